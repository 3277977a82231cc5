# SPDX-License-Identifier: Apache-2.0
"""Raw Avro values as Arrow arrays. Source: FORMAT.md §7.5.

The decoders give one raw array per node of a column: for a leaf its raw values (numbers still
zig-zag encoded), for a list or map the number of items of each row, for a ROW a 1 per row; null
where null.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError
from storage.format.types.arrow_types import arrow_field, arrow_type
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

_DECIMAL_BYTES = 16
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)


@dataclasses.dataclass(slots=True)
class Leaf:
    """A column of single values.

    Attributes:
        index: of its raw array.
        kind: Avro type: int, long, float, double, boolean, bytes, string or fixed.
        logical: Avro logical type, or "".
        type: the requested Paimon type.
        width: of a fixed [bytes].
    """

    index: int
    kind: str
    logical: str
    type: AtomicType
    width: int = 0


@dataclasses.dataclass(slots=True)
class ListNode:
    """A column of lists; attributes as in `Leaf`."""

    index: int
    type: ArrayType
    child: "Node | None" = None


@dataclasses.dataclass(slots=True)
class MapNode:
    """A column of maps; attributes as in `Leaf`."""

    index: int
    type: MapType | MultisetType
    key: "Node | None" = None
    value: "Node | None" = None


@dataclasses.dataclass(slots=True)
class RowNode:
    """A column of ROWs; `children` by name, without fields that the file does not have."""

    index: int
    type: RowType
    children: "dict[str, Node]" = dataclasses.field(default_factory=dict)


Node: TypeAlias = Leaf | ListNode | MapNode | RowNode
Raw: TypeAlias = Sequence[pa.Array] | Mapping[int, pa.Array]
"""Raw arrays by index."""


def raw_type(node: Node) -> pa.DataType:
    """Type of a node's raw array."""
    if isinstance(node, RowNode):
        return pa.int8()
    if isinstance(node, ListNode | MapNode):
        return pa.int32()
    if node.kind in ("int", "long"):
        return pa.uint64()
    return pa.uint8() if node.kind == "boolean" else pa.binary(node.width or -1)


def column_of(node: Node | None, raw: Raw) -> pa.Array:
    """The array of a node, of `arrow_type(node.type)`.

    Raises:
        ValueError, OverflowError: a value is not of its type; `pa.ArrowInvalid` is a ValueError.
    """
    match node:
        case Leaf():
            return _leaf(node, raw[node.index])
        case ListNode():
            offsets, validity = _offsets(raw[node.index])
            return _built(node, raw, [validity, offsets], [column_of(node.child, raw)])
        case MapNode():
            offsets, validity = _offsets(raw[node.index])
            map_type = arrow_type(node.type)
            keys, items = column_of(node.key, raw), column_of(node.value, raw)
            if items.null_count and not map_type.item_field.nullable:
                raise ValueError("null value in a NOT NULL type")
            entries = pa.Array.from_buffers(
                pa.struct([map_type.key_field, map_type.item_field]),
                len(keys),
                [None],
                children=[keys, items],
            )
            return _built(node, raw, [validity, offsets], [entries])
        case RowNode(children=children):
            rows = len(raw[node.index])
            columns = [
                column_of(children[field.name], raw)
                if field.name in children
                else pa.nulls(rows, arrow_field(field).type)
                for field in node.type.fields
            ]
            return _built(node, raw, [raw[node.index].buffers()[0]], columns)
        case None:
            raise InternalError("a node of an Avro schema was never read")


def _built(
    node: ListNode | MapNode | RowNode,
    raw: Raw,
    buffers: list[pa.Buffer | None],
    children: list[pa.Array],
) -> pa.Array:
    rows = len(raw[node.index])
    return pa.Array.from_buffers(arrow_type(node.type), rows, buffers, children=children)


def _offsets(counts: pa.Int32Array) -> tuple[pa.Buffer, pa.Buffer | None]:
    """Offsets and validity of lists with so many items."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts.fill_null(0).to_numpy(), out=offsets[1:])
    return pa.py_buffer(offsets), counts.buffers()[0]


def _leaf(node: Leaf, raw: pa.Array) -> pa.Array:
    target = arrow_type(node.type)
    if node.kind in ("int", "long"):
        return _integers(node, raw, target)
    if node.kind == "boolean":
        return pc.not_equal(raw, 0).cast(target)
    if node.kind in ("float", "double"):
        stored = pa.float32() if node.kind == "float" else pa.float64()
        return _viewed(raw, stored).cast(target)
    raw = raw.cast(pa.binary())
    if node.type.root is TypeRoot.DECIMAL:
        return _decimals(raw, target)
    if node.type.root in _BYTES or pa.types.is_string(target):
        return raw.cast(target)
    raise ValueError(f"{node.kind} where {target} is expected")


def _integers(node: Leaf, raw: pa.UInt64Array, target_type: pa.DataType) -> pa.Array:
    numbers = raw.fill_null(0).to_numpy()
    plain = (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
    array = pa.Array.from_buffers(
        pa.int64(), len(raw), [raw.buffers()[0], pa.py_buffer(np.ascontiguousarray(plain))]
    )
    if node.type.root in _TIMESTAMPS:
        unit = "us" if node.logical.endswith("-micros") else target_type.unit
        unit = "ms" if node.logical.endswith("-millis") else unit
        return array.cast(pa.timestamp(unit, target_type.tz)).cast(target_type)
    if node.type.root in (TypeRoot.DATE, TypeRoot.TIME):
        return array.cast(pa.int32()).cast(target_type)
    if node.type.root is TypeRoot.DECIMAL:
        raise ValueError("a number where a decimal is expected")
    return array.cast(target_type)


def _viewed(raw: pa.Array, type_: pa.DataType) -> pa.Array:
    """Fixed-width bytes as numbers."""
    return pa.Array.from_buffers(type_, len(raw), raw.buffers(), offset=raw.offset)


def _decimals(raw: pa.BinaryArray, target_type: pa.DataType) -> pa.Array:
    """Big-endian two's-complement bytes of any length up to 16 as decimals."""
    rows = len(raw)
    offsets = np.frombuffer(raw.buffers()[1], np.int32, rows + 1, raw.offset * 4)
    lengths = np.diff(offsets)
    if rows and (lengths.max() > _DECIMAL_BYTES or int((lengths == 0).sum()) > raw.null_count):
        raise ValueError("a decimal is empty or longer than 16 bytes")
    little_endian = _right_aligned(raw.buffers()[2], offsets, lengths)
    return pa.Array.from_buffers(target_type, rows, [raw.buffers()[0], pa.py_buffer(little_endian)])


def _right_aligned(
    data: pa.Buffer | None, offsets: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint8]:
    """Values as rows of 16 bytes, lowest first, filled up with their sign."""
    rows = len(lengths)
    out = np.zeros((rows, _DECIMAL_BYTES), np.uint8)
    if data is None or data.size == 0:
        return out
    content = np.frombuffer(data, np.uint8)
    ends = offsets[1:]
    present = lengths > 0
    negative = np.zeros(rows, np.bool_)
    negative[present] = content[offsets[:-1][present]] > 127
    out[negative] = 0xFF
    for k in range(int(lengths.max())):
        reaches = lengths > k
        out[reaches, k] = content[ends[reaches] - 1 - k]
    return out
