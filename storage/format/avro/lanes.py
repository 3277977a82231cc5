# SPDX-License-Identifier: Apache-2.0
"""Avro records to columns with numpy, one record of each block at a time.

Source: Avro specification, "Binary Encoding"; ADR 0015. Where a record begins is only known once
the one before it was passed over, but blocks are independent of each other. So all blocks at hand
are decoded together: one step passes over a field of the n-th record of each block, in a few numpy
calls, and records where the field begins. Since values are in the data in row order, the sorted
positions of a field are its column; the second part turns them into arrays at once. Messages of a
topic are walked in the same way, each as a block of one record.

Nothing is diagnosed here. Whatever looks damaged raises `OddDataError`, and the caller walks the
same blocks record by record with `decode.BlockDecoder`, which says what is wrong with which block.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError
from storage.format.avro.schema import INTEGERS, SIZED, kind_of, nullable, width_of
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_field,
    arrow_type,
)

# Raw Avro values as Arrow arrays. Source: FORMAT.md §7.5.
#
# The decoders give one raw array per node of a column: for a leaf its raw values (numbers still
# zig-zag encoded), for a list or map the number of items of each row, for a ROW a 1 per row; null
# where null.


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


_Longs: TypeAlias = npt.NDArray[np.int64]
_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Step: TypeAlias = Callable[[Any], Any]
"""Takes the start of a value in each lane; returns its end."""

LEAST_LANES = 24
"""With fewer blocks a numpy call for a step costs more than walking their records one by one."""

_PADDING = 16
_LARGEST_DATA = 1 << 30

_ZERO, _ONE, _ONE_BYTE = np.uint64(0), np.uint64(1), np.uint8(1)
_HIGH_BITS = np.uint64(0x8080_8080_8080_8080)
"""Set in each byte of a number but its last."""

_FOLDS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F_007F_007F_007F, 0x7F00_7F00_7F00_7F00, 1),
        (0x0000_3FFF_0000_3FFF, 0x3FFF_0000_3FFF_0000, 2),
        (0x0000_0000_0FFF_FFFF, 0x0FFF_FFFF_0000_0000, 4),
    )
)
"""Bring groups of seven bits together: pairs, pairs of pairs, halves."""


class OddDataError(ValueError):
    """The blocks are damaged, or of a shape whose columns are not positions in the data."""


class LaneDecoder:
    """Decodes blocks of one schema.

    Args:
        schema: of the record; names resolved.
        null_index: of the union around it, or None.
        nodes: the requested columns by name, with indexes of their own for all that is below.

    Raises:
        OddDataError: an item of a list may be empty, so that positions do not distinguish items.
    """

    def __init__(
        self, schema: Any, null_index: int | None, nodes: dict[str, Node], count: int
    ) -> None:
        self._data: _Bytes = np.zeros(0, np.uint8)
        self._windows = np.zeros(0, np.uint64)
        """By position: eight bytes from there on as one number, lowest first."""
        self._start_lists: list[list[_Longs]] = []
        self._unions: list[int] = []
        """Indices in `_start_lists` of the starts of unions with null."""
        self._nowhere = np.zeros(0, np.int64)
        self._places: dict[int, tuple[int, int | None, int]] = {}
        """By node index: its starts, the index of null, the starts of its items."""
        self._count = count
        self._nodes = list(nodes.values())
        self._record = self._record_step(schema, nodes)
        if null_index is not None:
            self._record = self._row_in_union(self._record, null_index)

    def decode(self, blocks: Sequence[tuple[bytes, int]]) -> list[pa.Array]:
        """The raw values of the columns, as `columns.column_of` takes them.

        Each block is its bytes and its number of records.

        Raises:
            OddDataError: see the module.
        """
        try:
            self._walk(blocks)
            raw: list[pa.Array] = [pa.nulls(0)] * self._count
            for index in self._unions:
                marks = self._data[np.concatenate([self._nowhere, *self._start_lists[index]])]
                if not ((marks == 0) | (marks == 2)).all():
                    raise OddDataError
            for node in self._nodes:
                self._gather(node, raw, None, 0)
        except (IndexError, OverflowError) as error:
            raise OddDataError from error
        finally:
            self._data, self._windows = np.zeros(0, np.uint8), np.zeros(0, np.uint64)
            for positions in self._start_lists:
                positions.clear()
        return raw

    # --------------------------------------------------------------------- where values begin

    def _load(self, blocks: Sequence[tuple[bytes, int]]) -> bytes:
        """Concatenate the blocks to the data; returns their bytes."""
        content = b"".join([*(data for data, _ in blocks), bytes(_PADDING)])
        if len(content) > _LARGEST_DATA:
            raise OddDataError("the blocks are larger than a gigabyte")
        self._data = np.frombuffer(content, np.uint8)
        self._windows = np.ndarray((len(content) - 7,), np.dtype("<u8"), content, 0, (1,))
        return content

    def _walk(self, blocks: Sequence[tuple[bytes, int]]) -> None:
        self._load(blocks)
        sizes = np.array([len(data) for data, _ in blocks], np.int64)
        counts = np.array([count for _, count in blocks], np.int64)
        if (counts > sizes).any():
            raise OddDataError
        limits = np.cumsum(sizes)
        order = np.argsort(-counts, kind="stable")
        position, limits, counts = (limits - sizes)[order], limits[order], counts[order]
        lanes = len(blocks)
        for step in range(int(counts[0])):
            while counts[lanes - 1] <= step:
                lanes -= 1
            position[:lanes] = self._record(position[:lanes].copy())
        if not np.array_equal(position, limits):
            raise OddDataError

    def _note(self) -> int:
        """A new list of starts."""
        self._start_lists.append([])
        return len(self._start_lists) - 1

    def _note_starts(self, node: Node | None, null_index: int | None) -> tuple[int, int]:
        """New lists of starts: of a value, and of its items or -1."""
        index, items = self._note(), -1
        if node is not None:
            items = self._note() if isinstance(node, ListNode | MapNode) else -1
            self._places[node.index] = index, null_index, items
        return index, items

    def _value_step(self, schema: Any, node: Node | None) -> _Step:
        """Skip one value, recording its start if it is requested or a union."""
        inner, null_index = nullable(schema)
        if node is None and null_index is None:
            return self._inner_step(inner, None, -1)
        index, items = self._note_starts(node, null_index)
        step = self._inner_step(inner, node, items)
        note = self._start_lists[index].append
        if null_index is None:

            def bare(position: _Longs) -> _Longs:
                note(position)
                return step(position)

            return bare
        self._unions.append(index)
        present = 2 * (1 - null_index)
        scattered = kind_of(inner) not in (*INTEGERS, "float", "double", "boolean", "fixed")

        def union(position: _Longs) -> _Longs:
            note(position)
            valid = self._data[position] == present
            after = position + 1
            if 0 not in valid.tobytes():  # several times as fast as `all` for a few hundred
                return step(after)
            if not scattered:
                return np.where(valid, step(after), after)
            if valid.any():
                after[valid] = step(after[valid])
            return after

        return union

    def _inner_step(self, schema: Any, node: Node | None, items: int) -> _Step:
        kind = kind_of(schema)
        if kind in (*INTEGERS, "enum"):
            return self._varint_ends
        if kind in SIZED:
            return self._sized
        if kind == "record":
            return self._record_step(schema, node.children if isinstance(node, RowNode) else {})
        if kind == "array":
            child = node.child if isinstance(node, ListNode) else None
            if not isinstance(node, MapNode):
                return self._items_step(self._value_step(schema["items"], child), items)
            entry, null_index = nullable(schema["items"])
            names = [field["name"] for field in entry["fields"]]
            children = dict(zip(names, (node.key, node.value), strict=True))
            if null_index is not None or len(names) != 2:
                raise OddDataError
            return self._items_step(
                self._record_step(entry, {n: c for n, c in children.items() if c}), items
            )
        if kind == "map":
            key, value = (node.key, node.value) if isinstance(node, MapNode) else (None, None)
            parts = self._value_step("string", key), self._value_step(schema["values"], value)
            return self._items_step(lambda position: parts[1](parts[0](position)), items)
        width = width_of(schema)
        if not width:
            raise OddDataError
        return lambda position: position + width

    def _record_step(self, schema: Any, nodes: dict[str, Node]) -> _Step:
        steps = [
            self._value_step(field["type"], nodes.get(field["name"])) for field in schema["fields"]
        ]
        if not steps:
            raise OddDataError

        def record(position: _Longs) -> _Longs:
            for step in steps:
                position = step(position)
            return position

        return record

    def _row_in_union(self, step: _Step, null_index: int) -> _Step:
        def row(position: _Longs) -> _Longs:
            if (self._data[position] != 2 * (1 - null_index)).any():
                raise OddDataError
            return step(position + 1)

        return row

    def _sized(self, position: _Longs) -> _Longs:
        first = self._data[position]
        if (first & 0x81).tobytes().count(0) == len(first):  # one byte, not negative
            return position + ((first >> 1) + _ONE_BYTE)
        return self._varint_ends(position) + self._sizes(position)

    def _sizes(self, position: _Longs) -> _Longs:
        raw = self._numbers(position)
        if (raw & np.uint64(1)).any() or (raw > np.uint64(2 * len(self._data))).any():
            raise OddDataError
        return (raw >> np.uint64(1)).astype(np.int64)

    def _items_step(self, item: _Step, items: int) -> _Step:
        note = self._start_lists[items].append if items >= 0 else None

        def step(position: _Longs) -> _Longs:
            result = position.copy()
            live = np.arange(len(position))
            while live.size:
                raw = self._numbers(result[live])
                cursor = self._varint_ends(result[live])
                if (raw > np.uint64(2 * len(self._data))).any():
                    raise OddDataError
                remaining = (raw >> np.uint64(1)).astype(np.int64)
                negative = (raw & np.uint64(1)) == 1  # then the size in bytes follows
                remaining[negative] += 1
                cursor[negative] = self._varint_ends(cursor[negative])
                rest = np.flatnonzero(remaining)
                next_live = live[rest]
                while rest.size:
                    begin = cursor[rest]
                    if note is not None:
                        note(begin)
                    cursor[rest] = item(begin)
                    remaining[rest] -= 1
                    rest = rest[remaining[rest] > 0]
                result[live] = cursor
                live = next_live
            return result

        return step

    # ---------------------------------------------------------------------- values to arrays

    def _starts(self, start: int) -> _Longs:
        noted = self._start_lists[start]
        noted[:] = [np.sort(np.concatenate([self._nowhere, *noted]))]  # blocks go by their size
        return noted[0]

    def _gather(self, node: Node, arrays: list[pa.Array], rows: _Longs | None, total: int) -> None:
        """Fill in the raw arrays of a node and of its descendants.

        Args:
            node: of the column.
            arrays: raw arrays by index.
            rows: of each value the row in its array; None when nothing is left out.
            total: length of the array, if something is.
        """
        index, null_index, items = self._places[node.index]
        starts = self._starts(index)
        valid = np.ones(len(starts), np.bool_)
        begin = starts
        if null_index is not None:
            valid = self._data[starts] == 2 * (1 - null_index)
            begin = starts + 1
        raw = self._raw(node, starts, begin, valid, items)
        if rows is not None:
            where = np.full(total, -1, np.int64)
            where[rows] = np.arange(len(rows))
            raw = raw.take(pa.array(where, mask=where < 0))
        arrays[node.index] = raw
        match node:
            case RowNode(children=children):
                if rows is not None or not valid.all():
                    indices = np.arange(len(starts)) if rows is None else rows
                    rows, total = indices[valid], len(raw)
                for child in children.values():
                    self._gather(child, arrays, rows, total)
            case ListNode(child=child) if child is not None:
                self._gather(child, arrays, None, 0)
            case MapNode(key=key, value=value) if key is not None and value is not None:
                self._gather(key, arrays, None, 0)
                self._gather(value, arrays, None, 0)

    def _raw(
        self, node: Node, starts: _Longs, begin: _Longs, valid: npt.NDArray[np.bool_], items: int
    ) -> pa.Array:
        """Raw values of a node, of `raw_type(node)`."""
        type_ = raw_type(node)
        absent = None if valid.all() else ~valid
        match node:
            case RowNode():
                return pa.array(np.ones(len(starts), np.int8), mask=absent)
            case ListNode() | MapNode():
                bounds = np.searchsorted(self._starts(items), np.append(starts, len(self._data)))
                return pa.array(np.diff(bounds).astype(np.int32), mask=absent)
            case Leaf(kind=kind) if kind in SIZED:
                return self._slices(begin, valid, absent)
            case Leaf(kind=kind) if kind in INTEGERS:
                if absent is None:
                    return pa.array(self._numbers(begin))
                numbers = np.zeros(len(starts), np.uint64)
                numbers[valid] = self._numbers(begin[valid])
                return pa.array(numbers, mask=absent)
            case Leaf(kind="boolean"):
                return pa.array(self._data[begin], mask=absent)
            case _:
                return self._fixed(begin, type_, valid, absent)

    def _fixed(
        self,
        begin: _Longs,
        type_: pa.DataType,
        valid: npt.NDArray[np.bool_],
        absent: npt.NDArray[np.bool_] | None,
    ) -> pa.Array:
        """Values of a fixed width."""
        matrix = self._data[begin[:, None] + np.arange(type_.byte_width)]
        validity = None if absent is None else pa.array(valid).buffers()[1]
        buffers = [validity, pa.py_buffer(np.ascontiguousarray(matrix))]
        return pa.Array.from_buffers(type_, len(begin), buffers)

    def _slices(
        self, begin: _Longs, valid: npt.NDArray[np.bool_], absent: npt.NDArray[np.bool_] | None
    ) -> pa.BinaryArray:
        """Texts: every other piece of the data when it is cut where texts begin and end."""
        cuts = np.empty(2 * len(begin), np.int32)
        firsts, sizes = begin.copy(), np.zeros(len(begin), np.int64)
        sizes[valid] = self._sizes(begin[valid])
        firsts[valid] = self._varint_ends(begin[valid])
        if not len(begin):
            return pa.array([], pa.binary())
        cuts[0::2], cuts[1::2] = firsts, firsts + sizes
        pieces = pa.Array.from_buffers(
            pa.binary(), len(cuts) - 1, [None, pa.py_buffer(cuts), pa.py_buffer(self._data)]
        )
        texts = pieces.take(pa.array(np.arange(0, len(cuts), 2)))
        if absent is None:
            return texts
        validity = pa.array(valid).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), len(texts), [validity, *texts.buffers()[1:]])

    def _varint_ends(self, position: _Longs) -> _Longs:
        """Where numbers of variable length end."""
        ends = ~self._windows[position] & _HIGH_BITS
        before = np.bitwise_count((ends & (_ZERO - ends)) - _ONE)
        lengths = before + _ONE_BYTE >> 3
        if 64 in before.tobytes():
            long = ends == 0
            far = position[long] + 8
            lengths[long] = 9 + (self._data[far] > 127)
            if (self._data[far + lengths[long] - 9] > 127).any():
                raise OddDataError
        return position + lengths

    def _numbers(self, position: _Longs) -> npt.NDArray[np.uint64]:
        """Numbers of variable length, still zig-zag encoded."""
        window = self._windows[position]
        ends = ~window & _HIGH_BITS
        value = window & ((ends & (_ZERO - ends)) - _ONE)
        for low, high, shift in _FOLDS:
            value = (value & low) | ((value & high) >> shift)
        if np.count_nonzero(ends) != len(ends):
            long = ends == 0
            far = position[long] + 8
            ninth, tenth = self._data[far], self._data[far + 1]
            more = ninth > 127
            if (tenth[more] > 1).any():
                raise OddDataError("a number has more than 64 bits")
            value[long] |= (ninth.astype(np.uint64) & np.uint64(127)) << np.uint64(56)
            value[long] |= np.where(more, tenth, 0).astype(np.uint64) << np.uint64(63)
        return value
