# SPDX-License-Identifier: Apache-2.0
"""Lists of raw Avro values as Arrow arrays. Source: FORMAT.md §7.5.

`avro_decode` fills one list per node of a column: for a leaf its raw values, for a list or map the
number of items of each row, for a ROW a 1 per row; None where null.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError
from storage.format.arrow_types import arrow_field, arrow_type
from storage.format.types import (
    ArrayType,
    AtomicType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

__all__ = ["Leaf", "ListNode", "MapNode", "Node", "RowNode", "column_of"]

_DECIMAL_BYTES = 16
_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_BYTES = (TypeRoot.BINARY, TypeRoot.VARBINARY)


@dataclasses.dataclass(slots=True)
class Leaf:
    """A column of single values.

    Attributes:
        index: of its list.
        kind: Avro type: int, long, float, double, boolean, bytes, string or fixed.
        logical: Avro logical type, or "".
        type: the Paimon type wanted.
    """

    index: int
    kind: str
    logical: str
    type: AtomicType


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


def column_of(node: Node | None, lists: Sequence[list[Any]]) -> pa.Array:
    """The array of a node, of `arrow_type(node.type)`.

    Args:
        node: the column.
        lists: by index.

    Raises:
        ValueError, OverflowError: a value is not of its type; `pa.ArrowInvalid` is a ValueError.
    """
    match node:
        case Leaf():
            return _leaf(node, lists[node.index])
        case ListNode():
            offsets, validity = _offsets(lists[node.index])
            buffers = [validity, offsets]
            child = column_of(node.child, lists)
            return _built(node.type, lists, node, buffers, [child])
        case MapNode():
            offsets, validity = _offsets(lists[node.index])
            wanted = arrow_type(node.type)
            keys, items = column_of(node.key, lists), column_of(node.value, lists)
            if items.null_count and not wanted.item_field.nullable:
                raise ValueError("a value is null where none may be")
            entries = pa.Array.from_buffers(
                pa.struct([wanted.key_field, wanted.item_field]),
                len(keys),
                [None],
                children=[keys, items],
            )
            return _built(node.type, lists, node, [validity, offsets], [entries])
        case RowNode(children=children):
            rows = len(lists[node.index])
            columns = [
                column_of(children[field.name], lists)
                if field.name in children
                else pa.nulls(rows, arrow_field(field).type)
                for field in node.type.fields
            ]
            return _built(node.type, lists, node, [_validity(lists[node.index])], columns)
        case None:
            raise InternalError("a node of an Avro schema was never read")


def _built(
    type_: ArrayType | MapType | MultisetType | RowType,
    lists: Sequence[list[Any]],
    node: ListNode | MapNode | RowNode,
    buffers: list[pa.Buffer | None],
    children: list[pa.Array],
) -> pa.Array:
    rows = len(lists[node.index])
    return pa.Array.from_buffers(arrow_type(type_), rows, buffers, children=children)


def _offsets(counts: list[int | None]) -> tuple[pa.Buffer, pa.Buffer | None]:
    """Offsets and validity of lists with so many items."""
    array = pa.array(counts, pa.int32())
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(array.fill_null(0).to_numpy(), out=offsets[1:])
    return pa.py_buffer(offsets), array.buffers()[0]


def _validity(marks: list[int | None]) -> pa.Buffer | None:
    return pa.array(marks, pa.int8()).buffers()[0]


def _leaf(node: Leaf, values: list[Any]) -> pa.Array:
    wanted = arrow_type(node.type)
    if node.kind in ("int", "long"):
        return _integers(node, values, wanted)
    if node.kind == "boolean":
        return pc.not_equal(pa.array(values, pa.uint8()), 0).cast(wanted)
    if node.kind in ("float", "double"):
        stored = pa.float32() if node.kind == "float" else pa.float64()
        raw = pa.array(values, pa.binary(stored.bit_width // 8))
        return _viewed(raw, stored).cast(wanted)
    raw = pa.array(values, pa.binary())
    if node.type.root is TypeRoot.DECIMAL:
        return _decimals(raw, wanted)
    if node.type.root in _BYTES or pa.types.is_string(wanted):
        return raw.cast(wanted)
    raise ValueError(f"{node.kind} where {wanted} is expected")


def _integers(node: Leaf, values: list[Any], wanted: pa.DataType) -> pa.Array:
    raw = pa.array(values, pa.uint64())
    numbers = raw.fill_null(0).to_numpy()
    plain = (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
    array = pa.Array.from_buffers(
        pa.int64(), len(raw), [raw.buffers()[0], pa.py_buffer(np.ascontiguousarray(plain))]
    )
    if node.type.root in _TIMESTAMPS:
        unit = "us" if node.logical.endswith("-micros") else wanted.unit
        unit = "ms" if node.logical.endswith("-millis") else unit
        return array.cast(pa.timestamp(unit, wanted.tz)).cast(wanted)
    if node.type.root in (TypeRoot.DATE, TypeRoot.TIME):
        return array.cast(pa.int32()).cast(wanted)
    if node.type.root is TypeRoot.DECIMAL:
        raise ValueError("a number where a decimal is expected")
    return array.cast(wanted)


def _viewed(raw: pa.Array, type_: pa.DataType) -> pa.Array:
    """Fixed-width bytes as numbers."""
    return pa.Array.from_buffers(type_, len(raw), raw.buffers(), offset=raw.offset)


def _decimals(raw: pa.BinaryArray, wanted: pa.DataType) -> pa.Array:
    """Big-endian two's-complement bytes of any length up to 16 as decimals."""
    rows = len(raw)
    offsets = np.frombuffer(raw.buffers()[1], np.int32, rows + 1, raw.offset * 4)
    lengths = np.diff(offsets)
    if rows and (lengths.max() > _DECIMAL_BYTES or _has_empty(raw, lengths)):
        raise ValueError("a decimal is empty or longer than 16 bytes")
    little_endian = _right_aligned(raw.buffers()[2], offsets, lengths)
    return pa.Array.from_buffers(wanted, rows, [raw.buffers()[0], pa.py_buffer(little_endian)])


def _has_empty(raw: pa.BinaryArray, lengths: npt.NDArray[np.int32]) -> bool:
    return int((lengths == 0).sum()) > raw.null_count


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
