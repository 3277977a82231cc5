# SPDX-License-Identifier: Apache-2.0
"""Avro data files: columns in, columns out. Source: FORMAT.md §4.1, §7.5.

A column is encoded as a binary array: one value per row, the bytes of the row's field. Fields are
then joined row by row, and the data of the joined array, read from end to end, is the content of a
block. Elements of a list are contiguous already, so a list's bytes are its elements' array with
other offsets. No value is ever a Python object. `decode` is the inverse.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import CorruptDataError, InternalError, UnsupportedFeatureError
from storage.format.avro.container import BLOCK_BYTES, CODECS, Block, BlockReader, BlockWriter
from storage.format.avro.lanes import (
    LEAST_LANES,
    LaneDecoder,
    Leaf,
    ListNode,
    MapNode,
    Node,
    OddDataError,
    RowNode,
    column_of,
)
from storage.format.avro.schema import (
    INTEGERS,
    MULTISET_COUNT,
    SIZED,
    is_string_map,
    kind_of,
    logical_of,
    nullable,
    read_zigzag,
    resolved,
    schema_text,
    width_of,
)
from storage.format.files.file_columns import rows_without_columns, selected
from storage.format.files.row_selection import RowSelection, open_data_file
from storage.format.row.binary_row import minimal_lengths
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_field,
)
from storage.io.file_io import FileIO
from storage.options.options import option_value
from storage.options.values import codec_of

# Avro records to columns: many blocks together, few or damaged ones record by record.
#
# Source: Avro specification, "Binary Encoding"; FORMAT.md §7.5; ADR 0015. `lanes` decodes enough
# sound blocks. A file of few blocks goes through `BlockDecoder`, and so do damaged blocks, which
# it diagnoses. Both record where values begin; the columns are built from the positions.


_Step: TypeAlias = Callable[[int], int]
"""Takes the start of a value; returns its end."""

_Value: TypeAlias = tuple[Callable[[Any], None] | None, int, int, int, _Step | None]
"""How to skip a value: what records its position; marks of a value and of null in a union, or
-1; its width [bytes], 0 for a number of variable length, -1 for a size and so many bytes; the step
over a nested value."""


class BlockError(ValueError):
    """A block does not hold the records it should."""

    def __init__(self, position: int, detail: str) -> None:
        super().__init__(detail)
        self.position = position


class RecordDecoder:
    """Decodes the records of one schema.

    Args:
        fields: the requested columns, looked up by name.

    Attributes:
        present: those of `fields` that the schema has; the columns of `decode`.

    Raises:
        ValueError: the text is no schema of a record, or a column is of another kind than its
            field.
        UnsupportedFeatureError: a kind of Avro schema that Paimon never writes.
    """

    def __init__(self, schema_text: str, fields: Sequence[DataField]) -> None:
        schema, null_index = nullable(resolved(json.loads(schema_text), {}, ""))
        if kind_of(schema) != "record":
            raise ValueError("the schema is not a record")
        kinds = {column["name"]: column["type"] for column in schema["fields"]}
        self.present = [field for field in fields if field.name in kinds]
        indexes = itertools.count()
        self._nodes = [_node(kinds[field.name], field.type, indexes) for field in self.present]
        nodes = {f.name: node for f, node in zip(self.present, self._nodes, strict=True)}
        count = next(indexes)
        try:
            self._lanes = LaneDecoder(schema, null_index, nodes, count)
            self._single = BlockDecoder(schema, null_index, nodes, count)
        except OddDataError as error:
            raise UnsupportedFeatureError("an Avro file has an unknown type") from error

    def decode(self, blocks: Sequence[tuple[bytes, int]]) -> list[pa.Array]:
        """The columns of some blocks, each given as its bytes and its number of records.

        Returns:
            In the order of `present`, of `arrow_type` of their fields.

        Raises:
            BlockError: the bytes are not that many records.
            ValueError, OverflowError: a value is not of its column's type.
        """
        if len(blocks) >= LEAST_LANES:
            with contextlib.suppress(OddDataError):
                raw = self._lanes.decode(blocks)
                return [column_of(node, raw) for node in self._nodes]
        raw = self._single.decode(blocks)
        return [column_of(node, raw) for node in self._nodes]


def _node(schema: Any, type_: DataType, indexes: Iterator[int]) -> Node:
    """The node of a value and of all that is in it."""
    inner, _ = nullable(schema)
    kind, index = kind_of(inner), next(indexes)
    match type_:
        case AtomicType() if kind not in ("array", "map", "record", "enum"):
            return Leaf(index, kind, logical_of(inner), type_, width_of(inner))
        case ArrayType(element=element) if kind == "array":
            return ListNode(index, type_, _node(inner["items"], element, indexes))
        case MapType(key=key, value=value) if kind in ("array", "map"):
            return MapNode(index, type_, *_entry(inner, key, value, indexes))
        case MultisetType(element=key) if kind in ("array", "map"):
            return MapNode(index, type_, *_entry(inner, key, MULTISET_COUNT, indexes))
        case RowType(fields=fields) if kind == "record":
            types = {field.name: field.type for field in fields}
            children = {
                field["name"]: _node(field["type"], types[field["name"]], indexes)
                for field in inner["fields"]
                if field["name"] in types
            }
            return RowNode(index, type_, children)
    raise ValueError(f"a column is stored as {kind}")


def _entry(
    schema: Any, key: DataType, value: DataType, indexes: Iterator[int]
) -> tuple[Node, Node]:
    """The nodes of a map's keys and values."""
    if kind_of(schema) == "map":
        kinds = ["string", schema["values"]]
    else:
        entry, _ = nullable(schema["items"])
        if kind_of(entry) != "record" or len(entry["fields"]) != 2:
            raise ValueError("a map is stored as an array whose items are not entries")
        kinds = [field["type"] for field in entry["fields"]]
    return _node(kinds[0], key, indexes), _node(kinds[1], value, indexes)


def _after_sized(data: bytes, position: int) -> int:
    size, position = read_zigzag(data, position)
    if size < 0:
        raise ValueError("a negative size")
    return position + size


class BlockDecoder(LaneDecoder):
    """Decodes blocks record by record and reports damage; otherwise as `LaneDecoder`.

    `decode` raises a `BlockError` for the first block that does not hold its records.
    """

    _bytes = b""

    def _walk(self, blocks: Sequence[tuple[bytes, int]]) -> None:
        self._bytes = self._load(blocks)
        record: Any = self._record
        position = end = 0
        try:
            for number, (data, count) in enumerate(blocks):
                begin, end = end, end + len(data)
                if count > len(data):
                    raise BlockError(number, f"{count} records in {len(data)} bytes")
                try:
                    for _ in range(count):
                        position = record(position)
                except IndexError as error:
                    raise BlockError(number, "the block ends within a record") from error
                except (ValueError, OverflowError) as error:
                    raise BlockError(number, str(error)) from error
                if position != end:
                    detail = f"{count} records end at byte {position - begin} of {len(data)}"
                    raise BlockError(number, detail)
        finally:
            self._bytes = b""
        for positions in self._start_lists:
            positions[:] = [np.array(positions, np.int64)]

    def _row_in_union(self, step: _Step, null_index: int) -> _Step:
        def row(position: int) -> int:
            if self._bytes[position] != 2 * (1 - null_index):
                raise ValueError("a row is null")
            return step(position + 1)

        return row

    def _value_step(self, schema: Any, node: Node | None) -> _Step:
        return self._values_step([self._value(schema, node)])

    def _record_step(self, schema: Any, nodes: dict[str, Node]) -> _Step:
        fields = schema["fields"]
        if not fields:
            raise OddDataError
        return self._values_step(
            [self._value(field["type"], nodes.get(field["name"])) for field in fields]
        )

    def _value(self, schema: Any, node: Node | None) -> _Value:
        inner, null_index = nullable(schema)
        note, items = None, -1
        if node is not None:
            index, items = self._note_starts(node, null_index)
            note = self._start_lists[index].append
        present, null = (-1, -1) if null_index is None else (2 - 2 * null_index, 2 * null_index)
        kind = kind_of(inner)
        if kind in ("record", "array", "map"):
            nested = cast(_Step, self._inner_step(inner, node, items))
            return note, present, null, 0, nested
        if kind in (*INTEGERS, "enum"):
            width = 0
        elif kind in SIZED:
            width = -1
        else:
            width = width_of(inner)
            if not width:
                raise OddDataError
        return note, present, null, width, None

    def _values_step(self, values: Sequence[_Value]) -> _Step:  # noqa: C901 - see `step`
        """Skip consecutive values."""

        def step(position: int) -> int:  # noqa: C901 - no calls: it runs once per value of a file
            data = self._bytes
            for note, present, null, width, nested in values:
                if note is not None:
                    note(position)
                if present >= 0:
                    mark = data[position]
                    position += 1
                    if mark != present:
                        if mark != null:
                            raise ValueError("unknown branch of a union")
                        continue
                if nested is not None:
                    position = nested(position)
                elif width > 0:
                    position += width
                elif not width:
                    while data[position] > 127:
                        position += 1
                    position += 1
                else:
                    size = data[position]
                    if size > 127 or size & 1:
                        position = _after_sized(data, position)
                    else:
                        position += 1 + (size >> 1)
            return position

        return step

    def _items_step(self, item: _Step, items: int) -> _Step:
        note: Any = self._start_lists[items].append if items >= 0 else None

        def step(position: int) -> int:
            data = self._bytes
            while True:
                count, position = read_zigzag(data, position)
                if count == 0:
                    return position
                if count < 0:
                    count = -count
                    _, position = read_zigzag(data, position)
                for _ in range(count):
                    if note is not None:
                        note(position)
                    position = item(position)

        return step


_Matrix = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
_INT32_VIEWS = (TypeRoot.DATE, TypeRoot.TIME)
_INT64_VIEWS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_PRESENT = 2
"""Index 1 of the union [null, T], zig-zag encoded."""


_CHUNK_ROWS = 1 << 16
"""Rows encoded at a time; bounds the memory of an encoding."""

_GROUP_BYTES = 16 << 20
"""Uncompressed size of the blocks that are decoded together: about 260 usual ones."""


class AvroSink:
    """Writes one Avro file; see `file_formats.RowSink`.

    Args:
        compression: `file.compression`; option `avro.codec` takes precedence.

    Raises:
        UnsupportedFeatureError: Avro has no such type.
        InvalidOptionError: unknown compression.
    """

    footer = ()

    def __init__(
        self,
        output: Any,
        fields: Sequence[DataField],
        *,
        compression: str,
        zstd_level: int,
        options: Mapping[str, str],
        **_: object,
    ) -> None:
        codec = codec_of(option_value(options, "avro.codec") or compression, CODECS, "Avro")
        self._fields = fields
        self._output = output
        self._blocks = BlockWriter(output, schema_text(fields), codec, zstd_level)

    @property
    def size(self) -> int:
        """See `RowSink`."""
        return int(self._output.tell())

    def write(self, columns: Sequence[pa.Array]) -> None:
        """See `RowSink`."""
        types = [arrow_field(field).type for field in self._fields]
        if len(columns) != len(types) or any(
            column.type != type_ for column, type_ in zip(columns, types, strict=True)
        ):
            raise InternalError(
                "rows do not fit the file's schema",
                expected=", ".join(map(str, types)),
                found=", ".join(str(column.type) for column in columns),
            )
        for start in range(0, len(columns[0]), _CHUNK_ROWS):
            pieces = [column.slice(start, _CHUNK_ROWS) for column in columns]
            self._write_records(encode_records(pieces, self._fields))

    def close(self) -> None:
        """See `RowSink`."""
        self._blocks.close()

    def _write_records(self, records: pa.BinaryArray) -> None:
        """Cut the records into blocks of about the usual size."""
        _, offset_buffer, content = records.buffers()
        count = len(records)
        bounds = np.frombuffer(offset_buffer, np.int32, count + 1, records.offset * 4)
        data = memoryview(content if content is not None else b"")
        first = 0
        while first < count:
            limit = int(bounds[first]) + BLOCK_BYTES
            last = min(count, int(np.searchsorted(bounds, limit, side="left")))
            last = max(last, first + 1)
            self._blocks.write(data[bounds[first] : bounds[last]], last - first)
            first = last


def read_batches(
    file_io: FileIO,
    path: str,
    columns: Sequence[DataField],
    *,
    batch_rows: int,
    selection: RowSelection | None = None,
    file_size: int | None = None,
    **_: object,
) -> Iterator[pa.RecordBatch]:
    """Read some columns; arguments, batches and errors as in `file_formats.read_batches`.

    Blocks without a selected row are neither decompressed nor decoded.
    """
    with open_data_file(file_io, path, "an Avro file", file_size) as source:
        reader = BlockReader(source, path)
        decoder = _decoder(reader.schema_text, columns, path)
        blocks: list[tuple[Block, bytes]] = []
        start = position = group_bytes = 0
        for block in reader.blocks():
            skipped = selection is not None and selection.empty(position, block.count)
            if blocks and (skipped or group_bytes > _GROUP_BYTES):
                yield from _decoded(decoder, blocks, start, batch_rows, selection, path)
                blocks, group_bytes = [], 0
            if not blocks:
                start = position
            if not skipped:
                blocks.append((block, block.data()))
                group_bytes += len(blocks[-1][1])
            position += block.count
        yield from _decoded(decoder, blocks, start, batch_rows, selection, path)


def _decoder(text: str, columns: Sequence[DataField], path: str) -> RecordDecoder:
    try:
        return RecordDecoder(text, columns)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            expected="an Avro schema that fits the table's",
        ) from error


def _decoded(
    decoder: RecordDecoder,
    blocks: Sequence[tuple[Block, bytes]],
    start: int,
    batch_rows: int,
    selection: RowSelection | None,
    path: str,
) -> Iterator[pa.RecordBatch]:
    """The records of some blocks, the first being row `start` of the file."""
    rows = sum(block.count for block, _ in blocks)
    if not blocks:
        return
    try:
        arrays = decoder.decode([(data, block.count) for block, data in blocks])
    except BlockError as error:
        block, _ = blocks[error.position]
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            offset=block.offset,
            expected=f"{block.count} Avro records",
        ) from error
    except (ValueError, OverflowError) as error:
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            expected="values of the columns' types",
        ) from error
    if arrays:
        schema = pa.schema([arrow_field(field) for field in decoder.present])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    else:
        batch = rows_without_columns(rows)
    for first in range(0, rows, batch_rows):
        piece = selected(batch.slice(first, batch_rows), start + first, selection)
        if piece.num_rows:
            yield piece


def encode_records(columns: Sequence[pa.Array], fields: Sequence[DataField]) -> pa.BinaryArray:
    """One value per row: the encoded record, in the order of the fields.

    Columns are of `arrow_type(field.type)` and equally long.

    Raises:
        InternalError: a null where none may be.
    """
    return _join_arrays([_encoded(c, f.type, f.name) for c, f in zip(columns, fields, strict=True)])


def _encoded(
    column: pa.Array, type_: DataType, name: str, *, below_null: bool = False
) -> pa.BinaryArray:
    """Bytes of each row's value; `below_null` when some rows are inside of a ROW that is null."""
    if column.null_count and not type_.nullable and not below_null:
        raise InternalError("a NOT NULL column holds nulls", column=name)
    if isinstance(type_, AtomicType):
        return _atomic(column, type_)
    body = _body(column, type_, name)
    if not type_.nullable:
        return body
    if not column.null_count:
        return _join_arrays([_constant(_PRESENT, len(column)), body])
    valid = column.is_valid()
    marks = pc.if_else(valid, _scalar(_PRESENT), _scalar(0))
    return _join_arrays([marks, pc.if_else(valid, body, pa.scalar(b"", pa.binary()))])


def _body(column: pa.Array, type_: DataType, name: str) -> pa.BinaryArray:
    """Bytes of a nested value; undefined where it is null."""
    match type_:
        case ArrayType(element=element):
            bounds = _bounds(column)
            return _items(bounds, _encoded(_between(column.values, bounds), element, name))
        case MultisetType(element=key):
            return _entries(column, key, MULTISET_COUNT, name)
        case MapType(key=key, value=value):
            return _entries(column, key, value, name)
        case RowType(fields=fields):
            parts = []
            for i, field in enumerate(fields):
                below_null = column.null_count > 0
                path = f"{name}.{field.name}"
                parts.append(_encoded(column.field(i), field.type, path, below_null=below_null))
            if parts:
                return _join_arrays(parts)
            rows = len(column)
            return _gathered(np.zeros((rows, 1), np.uint8), np.zeros(rows, np.int64))
        case AtomicType():
            raise InternalError("not a nested type")


def _entries(column: pa.MapArray, key: DataType, value: DataType, name: str) -> pa.BinaryArray:
    bounds = _bounds(column)
    keys, values = _between(column.keys, bounds), _between(column.items, bounds)
    # the key of an Avro map is a bare string, even if the type is nullable
    bare = is_string_map(key)
    encoded = _text(keys, nullable=False) if bare else _encoded(keys, key, name)
    return _items(bounds, _join_arrays([encoded, _encoded(values, value, name)]))


def _bounds(column: pa.Array) -> npt.NDArray[np.int32]:
    """Where the elements of each row begin and end, of shape (rows + 1,)."""
    if len(column) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)


def _between(values: pa.Array, bounds: npt.NDArray[np.int32]) -> pa.Array:
    return values.slice(bounds[0], bounds[-1] - bounds[0])


def _items(bounds: npt.NDArray[np.int32], items: pa.BinaryArray) -> pa.BinaryArray:
    """Count, items, end mark; an empty list has only the end mark.

    `items` are the encoded elements from the first of `bounds` to the last.
    """
    rows = len(bounds) - 1
    counts = np.diff(bounds).astype(np.int64)
    starts = np.frombuffer(items.buffers()[1], np.int32, len(items) + 1, items.offset * 4)
    offsets = np.ascontiguousarray(starts[bounds - bounds[0]])
    content = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), items.buffers()[2]]
    )
    sizes, lengths = _varints(counts)
    lengths = np.where(counts == 0, 0, lengths)
    return _join_arrays([_gathered(sizes, lengths), content, _constant(0, rows)])


def _atomic(column: pa.Array, type_: AtomicType) -> pa.BinaryArray:
    root = type_.root
    if root in _TEXTS:
        return _text(column, nullable=type_.nullable)
    if root is TypeRoot.DECIMAL:
        return _fixed(column, type_, *_decimals(column))
    if root is TypeRoot.BOOLEAN:
        flags = column.cast(pa.uint8()).fill_null(0).to_numpy()
        return _fixed(column, type_, flags.reshape(-1, 1), np.ones(len(flags), np.int64))
    if root in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        values = np.ascontiguousarray(column.fill_null(0).to_numpy())
        width = values.dtype.itemsize
        matrix = values.view(np.uint8).reshape(-1, width)
        return _fixed(column, type_, matrix, np.full(len(values), width, np.int64))
    if root in _INT32_VIEWS:
        column = column.view(pa.int32())
    elif root in _INT64_VIEWS:
        column = column.view(pa.int64())
    integers = column.cast(pa.int64()).fill_null(0).to_numpy()
    return _fixed(column, type_, *_varints(integers))


def _fixed(column: pa.Array, type_: AtomicType, matrix: _Matrix, lengths: _Longs) -> pa.BinaryArray:
    """Rows of a matrix, of which only the first bytes count, with the union's mark before them."""
    if not type_.nullable:
        return _gathered(matrix, lengths)
    marks = np.full(len(column), _PRESENT, np.uint8)
    lengths = lengths + 1
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        marks[absent] = 0
        lengths[absent] = 1
    return _gathered(np.column_stack([marks, matrix]), lengths)


def _text(column: pa.Array, *, nullable: bool) -> pa.BinaryArray:
    values = column.fill_null("" if pa.types.is_string(column.type) else b"").cast(pa.binary())
    sizes, lengths = _varints(pc.binary_length(values).cast(pa.int64()).to_numpy())
    marker = AtomicType(TypeRoot.INT, nullable=nullable)
    return _join_arrays([_fixed(column, marker, sizes, lengths), values])


def _varints(values: _Longs) -> tuple[_Matrix, _Longs]:
    """Zig-zag numbers of variable length: bytes of shape (rows, longest), and how many count."""
    raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    longest = max(1, -(-int(raw.max()).bit_length() // 7)) if len(raw) else 1
    matrix = np.empty((len(raw), longest), np.uint8)
    lengths = np.ones(len(raw), np.int64)
    for i in range(longest):
        rest = raw >> np.uint64(7 * i)
        more = rest > 127
        matrix[:, i] = (rest & np.uint64(127)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        lengths += more
    return matrix, lengths


def _decimals(column: pa.Array) -> tuple[_Matrix, _Longs]:
    """Size and shortest two's-complement bytes of unscaled values, big-endian."""
    rows = len(column)
    pairs = np.frombuffer(column.buffers()[1], np.uint64, 2 * rows, column.offset * 16)
    low, high = (np.ascontiguousarray(part) for part in pairs.reshape(-1, 2).T)
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        low[absent] = high[absent] = 0
    sizes = minimal_lengths(low, high).astype(np.int64)
    big_endian = np.column_stack([high.byteswap(), low.byteswap()]).view(np.uint8)
    positions = np.minimum(np.arange(16) + (16 - sizes)[:, None], 15)
    shifted = np.take_along_axis(big_endian, positions, axis=1)
    return np.column_stack([(sizes * 2).astype(np.uint8), shifted]), sizes + 1


def _gathered(matrix: _Matrix, lengths: _Longs) -> pa.BinaryArray:
    """The first bytes of each row of a matrix as a binary array."""
    rows, width = matrix.shape
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] == rows * width:
        data = np.ascontiguousarray(matrix).reshape(-1)
    else:
        data = matrix[np.arange(width) < lengths[:, None]]
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _scalar(byte: int) -> pa.Scalar:
    return pa.scalar(bytes([byte]), pa.binary())


def _constant(byte: int, rows: int) -> pa.BinaryArray:
    matrix = np.full((rows, 1), byte, np.uint8)
    return _gathered(matrix, np.ones(rows, np.int64))


def _join_arrays(parts: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    if len(parts) == 1:
        return parts[0]
    return cast(pa.BinaryArray, pc.binary_join_element_wise(*parts, b""))
