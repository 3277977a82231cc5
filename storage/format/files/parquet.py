# SPDX-License-Identifier: Apache-2.0
"""Parquet files as Paimon lays them out: physical types, field ids, row groups, encodings.

Source: FORMAT.md §7.1, §7.3; every choice is compared with files written by Java in the tests.

Encodings are PLAIN and dictionary only: an earlier column reader of Paimon (`AbstractColumnReader`)
refuses any other, and the release that lifts this is unknown.
Dictionaries cost time, so a column gets one only when a sample of it repeats itself.

Timestamps with more than 6 digits are INT96 at any depth, as Java writes them. INT64 nanoseconds,
which other writers use, are read as well.

Rows are skipped by row group: the library cannot read the page indexes that would allow more.
"""

import concurrent.futures
import dataclasses
import functools
import io
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from storage.errors import CorruptDataError, InternalError
from storage.format.avro.schema import read_varint, read_zigzag, varint, zigzag
from storage.format.files.file_columns import (
    INT96_BYTES,
    conform_batch,
    holds_nanoseconds,
    list_like,
    map_entries,
    selected,
    struct_like,
    to_int96,
    without_nulls,
)
from storage.format.files.row_selection import RowSelection, TailHolder, decoding, open_data_file
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    arrow_type,
    key_id,
    value_id,
)
from storage.io.file_io import FileIO
from storage.lru import LruCache
from storage.options.options import option_value
from storage.options.values import codec_of

# Exchange of INT96 and 12-byte values in a Parquet footer.
#
# Paimon stores TIMESTAMP(7..9) as INT96, column by column. pyarrow can write INT96 only for all
# timestamps of a file at once, and reads it with silent wrap-around outside the years 1677 to 2262.
# The pages of an INT96 column and of a FIXED_LEN_BYTE_ARRAY(12) column hold the same bytes, so both
# problems go away when only the footer is changed: write 12-byte values and call them INT96, read
# INT96 and call it 12-byte values. `int96` turns those values into timestamps.
#
# The footer is Thrift in the compact protocol; it is taken apart and put together generically, so
# nothing in it is lost. Source: Parquet format, `parquet.thrift`; FORMAT.md §7.3.


_INT96 = 3
_FIXED_LENGTH = 7
_INT96_BYTES = 12

# Field ids of parquet.thrift.
_FILE_SCHEMA, _FILE_ROW_GROUPS = 2, 4
_ELEMENT_TYPE, _ELEMENT_TYPE_LENGTH, _ELEMENT_CONVERTED, _ELEMENT_LOGICAL = 1, 2, 6, 10
_GROUP_COLUMNS = 1
_CHUNK_METADATA = 3
_COLUMN_TYPE = 1
_PAGE_SIZE, _PAGE_CHECKSUM = 3, 4
_UNSIGNED = 0xFFFFFFFF

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12,
)  # fmt: skip


@dataclasses.dataclass(slots=True)
class _Struct:
    """Fields of a Thrift struct: id -> (type, value)."""

    fields: dict[int, tuple[int, Any]]

    def get(self, field_id: int) -> Any:
        entry = self.fields.get(field_id)
        return None if entry is None else entry[1]


def bytes_as_int96(footer: bytes) -> bytes:
    """Declare every FIXED_LEN_BYTE_ARRAY(12) without a logical type to be INT96.

    The footer is a serialized `FileMetaData`, without length and magic.
    """
    file = _parse(footer)
    changed = []
    for index, element in enumerate(_footer_leaves(file)):
        plain = element.get(_ELEMENT_CONVERTED) is None and element.get(_ELEMENT_LOGICAL) is None
        is_fixed = element.get(_ELEMENT_TYPE) == _FIXED_LENGTH
        if is_fixed and plain and element.get(_ELEMENT_TYPE_LENGTH) == _INT96_BYTES:
            element.fields[_ELEMENT_TYPE] = (_I32, _INT96)
            del element.fields[_ELEMENT_TYPE_LENGTH]
            changed.append(index)
    _set_column_types(file, changed, _INT96)
    return _serialized(file)


def int96_as_bytes(footer: bytes) -> bytes:
    """Declare every INT96 column to be FIXED_LEN_BYTE_ARRAY(12).

    The footer is a serialized `FileMetaData`, without length and magic.
    """
    file = _parse(footer)
    changed = []
    for index, element in enumerate(_footer_leaves(file)):
        if element.get(_ELEMENT_TYPE) == _INT96:
            element.fields[_ELEMENT_TYPE] = (_I32, _FIXED_LENGTH)
            element.fields[_ELEMENT_TYPE_LENGTH] = (_I32, _INT96_BYTES)
            changed.append(index)
    _set_column_types(file, changed, _FIXED_LENGTH)
    return _serialized(file)


def page_header(data: bytes, position: int) -> tuple[int, int, int | None]:
    """Where the page behind a header begins, its stored size [bytes], and its CRC-32 if it has one.

    Raises:
        ValueError, LookupError, TypeError: these are no bytes of a page header.
    """
    header, start = _read_struct(data, position)
    checksum = header.get(_PAGE_CHECKSUM)
    return start, header.fields[_PAGE_SIZE][1], None if checksum is None else checksum & _UNSIGNED


def _footer_leaves(file: _Struct) -> list[_Struct]:
    """Schema elements that are columns, in column order: only those have a physical type."""
    return [element for element in file.get(_FILE_SCHEMA)[1] if _ELEMENT_TYPE in element.fields]


def _set_column_types(file: _Struct, columns: list[int], physical_type: int) -> None:
    for group in file.get(_FILE_ROW_GROUPS)[1]:
        chunks = group.get(_GROUP_COLUMNS)[1]
        for index in columns:
            chunks[index].get(_CHUNK_METADATA).fields[_COLUMN_TYPE] = (_I32, physical_type)


def _parse(data: bytes) -> _Struct:
    value, _ = _read_struct(data, 0)
    return value


def _read_struct(data: bytes, position: int) -> tuple[_Struct, int]:
    fields: dict[int, tuple[int, Any]] = {}
    field_id = 0
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return _Struct(fields), position
        type_, delta = header & 0x0F, header >> 4
        if delta:
            field_id += delta
        else:
            field_id, position = read_zigzag(data, position)
        if type_ in (_TRUE, _FALSE):
            fields[field_id] = (type_, None)
        else:
            value, position = _read_value(data, position, type_)
            fields[field_id] = (type_, value)


def _read_value(data: bytes, position: int, type_: int) -> tuple[Any, int]:
    if type_ in (_I16, _I32, _I64):
        return read_zigzag(data, position)
    if type_ == _BINARY:
        size, position = read_varint(data, position)
        return data[position : position + size], position + size
    if type_ == _STRUCT:
        return _read_struct(data, position)
    if type_ in (_LIST, _SET):
        return _read_list(data, position)
    if type_ in (_BYTE, _TRUE, _FALSE):
        return data[position], position + 1
    if type_ == _DOUBLE:
        return data[position : position + 8], position + 8
    raise ValueError(f"unexpected Thrift type {type_} in a Parquet footer")


def _read_list(data: bytes, position: int) -> tuple[tuple[int, list[Any]], int]:
    header = data[position]
    position += 1
    type_, size = header & 0x0F, header >> 4
    if size == 0x0F:
        size, position = read_varint(data, position)
    values = []
    for _ in range(size):
        value, position = _read_value(data, position, type_)
        values.append(value)
    return (type_, values), position


def _serialized(struct: _Struct) -> bytes:
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _write_struct(out: bytearray, struct: _Struct) -> None:
    previous = 0
    for field_id in sorted(struct.fields):
        type_, value = struct.fields[field_id]
        delta = field_id - previous
        if 0 < delta <= 0x0F:
            out.append(delta << 4 | type_)
        else:
            out.append(type_)
            out += zigzag(field_id)
        if type_ not in (_TRUE, _FALSE):
            _write_value(out, type_, value)
        previous = field_id
    out.append(0)


def _write_value(out: bytearray, type_: int, value: Any) -> None:
    if type_ in (_I16, _I32, _I64):
        out += zigzag(value)
    elif type_ == _BINARY:
        out += varint(len(value))
        out += value
    elif type_ == _STRUCT:
        _write_struct(out, value)
    elif type_ in (_LIST, _SET):
        element_type, values = value
        out.append(min(len(values), 0x0F) << 4 | element_type)
        if len(values) >= 0x0F:
            out += varint(len(values))
        for item in values:
            _write_value(out, element_type, item)
    elif type_ == _DOUBLE:
        out += value
    else:
        out.append(value)


_READ_TOGETHER = 8 << 20
"""Column chunks of a distant file that are read before they are decoded [bytes]; as much as a
reader of ranges holds otherwise, because a merge has dozens of files open."""

_SMALL_DICTIONARY = 64 << 10
"""A page of a dictionary of this size [compressed bytes] costs less than the texts it stands for,
although each batch carries it again."""


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnRange:
    """A row group's statistics of a column.

    Attributes:
        minimum: lower bound of the values as a Python object, None when unknown.
        maximum: upper bound, None when unknown.
        null_count: number of nulls, None when unknown.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    row_count: int

    @property
    def bounded(self) -> bool:
        """Whether every value is between bounds that Python can hold."""
        return self.minimum is not None or self.null_count == self.row_count


RowGroupFilter = Callable[[Mapping[str, ColumnRange]], bool]
"""Whether a row group may hold a matching row, given the ranges by column name in the file."""


def wanted_runs(
    metadata: pq.FileMetaData, keep: RowGroupFilter | None, selection: RowSelection | None
) -> Iterator[tuple[int, list[int]]]:
    """Row groups to read, in runs without gaps, each with the position of its first row."""
    position = run_start = 0
    run: list[int] = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        overlaps = selection is None or not selection.empty(position, group.num_rows)
        if overlaps and (keep is None or keep(ranges_of(group))):
            if not run:
                run_start = position
            run.append(index)
        elif run:
            yield run_start, run
            run = []
        position += group.num_rows
    if run:
        yield run_start, run


def readers(
    file: pq.ParquetFile,
    source: pa.NativeFile,
    groups: list[int],
    columns: Sequence[str],
    distant: bool,
    dictionaries: Collection[str] = (),
) -> Iterator[tuple[pq.ParquetFile, list[int]]]:
    """Row groups in order, each run with the reader for it.

    Of a distant file the library reads the requested column chunks of a run together before it
    decodes them, and holds them as long as its reader lives; so a run is small.
    """
    if not distant:
        yield file, groups
        return
    names = set(columns)
    sizes = [_stored_bytes(file.metadata.row_group(index), names) for index in groups]
    while groups:
        totals = itertools.accumulate(sizes)
        count = sum(1 for _ in itertools.takewhile(lambda total: total <= _READ_TOGETHER, totals))
        if count:
            settings = {"read_dictionary": list(dictionaries), "metadata": file.metadata}
            settings["page_checksum_verification"] = True
            yield pq.ParquetFile(source, pre_buffer=True, **settings), groups[:count]
        else:
            yield file, groups[:1]
        groups, sizes = groups[count or 1 :], sizes[count or 1 :]


def _stored_bytes(group: pq.RowGroupMetaData, columns: Collection[str]) -> int:
    """Compressed size of some columns of a row group [bytes]."""
    chunks = (group.column(i) for i in range(group.num_columns))
    return sum(
        chunk.total_compressed_size
        for chunk in chunks
        if chunk.path_in_schema.partition(".")[0] in columns
    )


def ranges_of(group: pq.RowGroupMetaData) -> dict[str, ColumnRange]:
    """Ranges of the columns that are not nested and whose statistics have a Python form."""
    ranges = {}
    for i in range(group.num_columns):
        chunk = group.column(i)
        statistics = chunk.statistics if chunk.is_stats_set else None
        if statistics is None or "." in chunk.path_in_schema:
            continue
        minimum, maximum = _bounds(statistics)
        ranges[chunk.path_in_schema] = ColumnRange(
            minimum=minimum,
            maximum=maximum,
            null_count=statistics.null_count if statistics.has_null_count else None,
            row_count=group.num_rows,
        )
    return ranges


def _bounds(statistics: pq.Statistics) -> tuple[Any, Any]:
    """Least and greatest value; None where there are none, or none that Python can hold."""
    if not statistics.has_min_max:
        return None, None
    try:
        return statistics.min, statistics.max
    except (OverflowError, ValueError):  # dates and timestamps beyond the years 1 to 9999
        return None, None


_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
_FIELD_ID = b"PARQUET:field_id"
CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "gzip": "gzip",
    "brotli": "brotli",
    "none": "none",
    "uncompressed": "none",
}
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

_SAMPLE_ROWS = 4096
_DICTIONARY_SHARE = 0.2
"""A column gets a dictionary when at most this share of a sample is distinct: below it the
dictionary saves compression work, above it pyarrow would abandon it half way."""


def parquet_field(field: DataField) -> pa.Field:
    """An Arrow field that makes pyarrow write the Parquet field Java would write.

    Carries the field id, also of nested elements (FORMAT.md §7.1).
    """
    return _field(field.name, _stored_type(field.type, field.id, 1), field.type.nullable, field.id)


def _stored_type(type_: DataType, owner: int, depth: int) -> pa.DataType:
    """The Arrow type handed to pyarrow, with field ids inside; `owner` is the enclosing field."""
    after, before = value_id(owner, depth), key_id(owner, depth)
    match type_:
        case AtomicType():
            plain = arrow_type(type_)
            return INT96_BYTES if holds_nanoseconds(plain) else plain
        case ArrayType(element=element):
            inner = _stored_type(element, owner, depth + 1)
            return pa.list_(_field("element", inner, element.nullable, after))
        case MultisetType(element=element):
            return pa.map_(
                _field("key", _stored_type(element, owner, depth + 1), False, before),
                _field("value", pa.int32(), False, after),
            )
        case MapType(key=key, value=value):
            return pa.map_(
                _field("key", _stored_type(key, owner, depth + 1), False, before),
                _field("value", _stored_type(value, owner, depth + 1), value.nullable, after),
            )
        case RowType(fields=fields):
            return pa.struct(
                [
                    _field(f.name, _stored_type(f.type, f.id, 1), f.type.nullable, f.id)
                    for f in fields
                ]
            )


def _field(name: str, type_: pa.DataType, nullable: bool, field_id: int) -> pa.Field:
    return pa.field(name, type_, nullable, {_FIELD_ID: str(field_id).encode()})


_UNORDERED = (INT96_BYTES, pa.float32(), pa.float64())
"""No statistics: a range would not cover NaN, and DuckDB and PyIceberg skip row groups by it."""


class _Writer(pq.ParquetWriter):
    """pyarrow's writer without its finalizer.

    That would write a footer when an abandoned writer is collected, to an output which its owner
    has closed and removed by then.
    """

    def __del__(self) -> None:
        pass


class ParquetSink:
    """Writes one Parquet file, a row group per call; see `file_formats.RowSink`.

    Args:
        output: binary sink.
        fields: the columns; nanosecond timestamps are INT96 at any depth.
        compression: see `CODECS`.
        zstd_level: level when compression is zstd.
        plain: names of columns that never get a dictionary, such as unique keys.
        options: of the table; those about pages and dictionaries that begin with `parquet.`
            are carried out.
    """

    def __init__(
        self,
        output: Any,
        fields: Sequence[DataField],
        *,
        compression: str,
        zstd_level: int,
        plain: frozenset[str],
        options: Mapping[str, str],
    ) -> None:
        self._schema = pa.schema([parquet_field(field) for field in fields])
        self._compression = codec_of(compression, CODECS, "Parquet")
        self._level = None
        if self._compression == "zstd":
            level = option_value(options, "parquet.compression.codec.zstd.level")
            self._level = level or zstd_level
        self._plain = plain
        self._pages = _page_settings(options)
        self._dictionaries = option_value(options, "parquet.enable.dictionary")
        self._int96 = any(_holds_int96(field.type) for field in self._schema)
        self._output = TailHolder(output) if self._int96 else output
        self._writer: pq.ParquetWriter | None = None
        self._written: list[pq.FileMetaData] = []

    @property
    def size(self) -> int:
        """See `RowSink`."""
        return int(self._output.tell())

    def write(self, columns: Sequence[pa.Array]) -> None:
        """See `RowSink`."""
        stored_columns = [
            _as_stored(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        try:
            if self._writer is None:
                self._writer = self._open(stored_columns)
            table = pa.Table.from_arrays(stored_columns, schema=self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InternalError("rows do not fit the file's schema", detail=str(error)) from error

    def close(self) -> None:
        """See `RowSink`."""
        if self._writer is None:
            self._writer = self._open(())
        if isinstance(self._output, TailHolder):
            self._output.hold()
            self._writer.close()
            self._output.release(_with_int96)
        else:
            self._writer.close()

    @property
    def footer(self) -> list[dict[str, ColumnRange]]:
        """Ranges of the columns of each row group, of a file that is closed."""
        groups = (part.row_group(i) for part in self._written for i in range(part.num_row_groups))
        return [ranges_of(group) for group in groups]

    def _open(self, sample: Sequence[pa.Array]) -> pq.ParquetWriter:
        leaves = [leaf for field in self._schema for leaf in _leaves(field.name, field.type)]
        return _Writer(
            self._output,
            self._schema,
            compression=self._compression,
            compression_level=self._level,
            use_dictionary=self._dictionary_columns(sample),
            write_statistics=[path for path, type_ in leaves if type_ not in _UNORDERED],
            metadata_collector=self._written,
            store_schema=False,
            store_decimal_as_integer=True,
            write_time_adjusted_to_utc=True,
            write_page_checksum=True,  # as Java does; a few percent, and damage is detected
        )

    def _dictionary_columns(self, sample: Sequence[pa.Array]) -> list[str]:
        names: list[str] = []
        if not self._dictionaries:
            return names
        rows = len(sample[0]) if sample else 0
        spread = None
        if rows > _SAMPLE_ROWS:
            spread = pa.array(np.linspace(0, rows - 1, _SAMPLE_ROWS).astype(np.int64))
        for i, field in enumerate(self._schema):
            if pa.types.is_nested(field.type):
                names += [path for path, _ in _leaves(field.name, field.type)]
            elif (
                sample
                and field.name not in self._plain
                and not pa.types.is_boolean(field.type)
                and _repeats(sample[i], spread)
            ):
                names.append(field.name)
        return names


def _repeats(column: pa.Array, spread: pa.Array | None) -> bool:
    """Whether a dictionary would pay: few distinct values in the sample at `spread`, None = all."""
    most = max(1, min(len(column), _SAMPLE_ROWS) * _DICTIONARY_SHARE)
    # the first rows are enough where hardly a value repeats
    if len(column.slice(0, int(most) + _SAMPLE_ROWS // 32).unique()) > most:
        return False
    return len((column if spread is None else column.take(spread)).unique()) <= most


def _leaves(path: str, type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Dotted Parquet paths and types of the leaves of a column."""
    if pa.types.is_list(type_):
        return _leaves(f"{path}.list.element", type_.value_type)
    if pa.types.is_map(type_):
        return [
            *_leaves(f"{path}.key_value.key", type_.key_type),
            *_leaves(f"{path}.key_value.value", type_.item_type),
        ]
    if pa.types.is_struct(type_):
        children = (type_.field(i) for i in range(type_.num_fields))
        return [leaf for f in children for leaf in _leaves(f"{path}.{f.name}", f.type)]
    return [(path, type_)]


def _holds_int96(type_: pa.DataType) -> bool:
    return any(leaf == INT96_BYTES for _, leaf in _leaves("", type_))


def _as_stored(column: pa.Array, storage_type: pa.DataType, *, lenient: bool = False) -> pa.Array:
    """The column as it is handed to the library: nanosecond timestamps as INT96 bytes.

    `lenient`: it is below ROWs that were null, so that nulls prove nothing.
    """
    if storage_type == INT96_BYTES and pa.types.is_timestamp(column.type):
        return to_int96(column)
    if not pa.types.is_nested(storage_type):
        return column
    if pa.types.is_list(storage_type):
        child = _as_stored(column.values, storage_type.value_type, lenient=lenient)
        return list_like(column, storage_type, child)
    if pa.types.is_map(storage_type):
        keys = _as_stored(column.keys, storage_type.key_type, lenient=lenient)
        items = _as_stored(column.items, storage_type.item_type, lenient=lenient)
        return map_entries(column, storage_type, keys, items)
    fields = [storage_type.field(i) for i in range(storage_type.num_fields)]
    children = []
    for i, field in enumerate(fields):
        child = column.field(i)
        cleared = not field.nullable and child.null_count > 0
        if cleared:
            child = _child_of(column, child, lenient)
        children.append(_as_stored(child, field.type, lenient=lenient or cleared))
    return struct_like(column, fields, children)


def _child_of(parent: pa.StructArray, child: pa.Array, lenient: bool) -> pa.Array:
    """A required field of a ROW, without the nulls it has where the ROW itself is null."""
    nulls = pc.any(pc.and_(child.is_null(), parent.is_valid()))
    if not lenient and nulls.equals(pa.scalar(True)):
        raise pa.ArrowInvalid("a field of a ROW may not be null, but is")
    return without_nulls(child)


def _with_int96(tail: bytes) -> bytes:
    """The end of a file, with 12-byte values declared as INT96."""
    length = int.from_bytes(tail[-_TRAILER_BYTES:-4], "little")
    start = len(tail) - _TRAILER_BYTES - length
    footer = bytes_as_int96(tail[start:-_TRAILER_BYTES])
    return tail[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC


def _page_settings(options: Mapping[str, str]) -> dict[str, int]:
    """Arguments of the library's writer from the table's options."""
    names = {
        "parquet.page.size": "data_page_size",
        "parquet.dictionary.page.size": "dictionary_pagesize_limit",
    }
    settings = {argument: option_value(options, key) for key, argument in names.items()}
    return {argument: value for argument, value in settings.items() if value is not None}


def read_batches(
    file_io: FileIO,
    path: str,
    columns: Sequence[DataField],
    *,
    batch_rows: int,
    keep_row_group: RowGroupFilter | None = None,
    selection: RowSelection | None = None,
    file_size: int | None = None,
    dictionaries: Collection[str] = (),
    **_: object,
) -> Iterator[pa.RecordBatch]:
    """Read some columns; arguments, batches and errors as in `file_formats.read_batches`."""
    with open_data_file(file_io, path, "a Parquet file", file_size) as source:
        file = _opened(source, path, dictionaries)
        names = set(file.schema_arrow.names)
        present = [field.name for field in columns if field.name in names]
        for start, groups in wanted_runs(file.metadata, keep_row_group, selection):
            runs = readers(file, source, groups, present, file_io.distant, dictionaries)
            for reader, run in runs:
                for batch in reader.iter_batches(batch_rows, row_groups=run, columns=present):
                    rows = selected(batch, start, selection)
                    start += batch.num_rows
                    if rows.num_rows:
                        yield conform_batch(rows, columns, path)


def small_dictionaries(
    file_io: FileIO, path: str, columns: Collection[str], file_size: int | None = None
) -> set[str]:
    """Those columns of a file that its first row group keeps as small dictionaries.

    Raises: as `read_batches`.
    """
    with open_data_file(file_io, path, "a Parquet file", file_size) as source:
        metadata = pq.ParquetFile(source, pre_buffer=False).metadata
    if not metadata.num_row_groups:
        return set()
    group = metadata.row_group(0)
    return {
        chunk.path_in_schema
        for chunk in map(group.column, range(group.num_columns))
        if chunk.path_in_schema in columns
        and chunk.has_dictionary_page
        and chunk.data_page_offset - chunk.dictionary_page_offset <= _SMALL_DICTIONARY
    }


def _opened(source: pa.NativeFile, path: str, dictionaries: Collection[str] = ()) -> pq.ParquetFile:
    settings: dict[str, Any] = {"pre_buffer": False, "page_checksum_verification": True}
    settings["read_dictionary"] = list(dictionaries)
    file = pq.ParquetFile(source, **settings)
    schema = file.schema
    if all(schema.column(i).physical_type != "INT96" for i in range(len(schema))):
        return file
    size = source.size()
    source.seek(size - _TRAILER_BYTES)
    length = int.from_bytes(source.read(4), "little")
    source.seek(size - _TRAILER_BYTES - length)
    try:
        footer = int96_as_bytes(source.read(length))
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise CorruptDataError(
            "a data file cannot be decoded",
            detail=str(error),
            path=path,
            expected="the footer of a Parquet file",
        ) from error
    image = _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC
    metadata = pq.read_metadata(io.BytesIO(image))
    return pq.ParquetFile(source, metadata=metadata, **settings)


# Parquet files that an engine may decode itself: which ones, and the checksums of their pages.
#
# An engine that reads a file in place of `parquet.read_batches` must get the same values from it.
# So the file must hold the columns in the types that rows have in memory, which leaves nothing to
# convert, and its pages are verified here, because engines do not do it (DuckDB 2.0 returns wrong
# values for most flipped bits). Data files never change: a process verifies a column of a file
# once.


_PARQUET_FILE = "a Parquet file"
_VERIFIED: LruCache[tuple[str, int, int, str], bool] = LruCache(100_000)
"""By path, time of change [ns], size [bytes] and column."""


def readable_in_place(
    file_io: FileIO,
    path: str,
    fields: Sequence[DataField],
    *,
    file_size: int,
    row_count: int,
    keep_row_group: RowGroupFilter | None = None,
) -> bool:
    """Whether a file holds the columns as rows have them, and all of its row groups are needed.

    Args:
        file_io: the store.
        path: of the file.
        fields: the columns; the file has them under these names.
        file_size: of its metadata [bytes].
        row_count: of its metadata.
        keep_row_group: which row groups are needed; None: all.

    Raises:
        CorruptDataError: it is no Parquet file of this size and number of rows.
        FileNotFoundError: there is no such file.
    """
    with open_data_file(file_io, path, _PARQUET_FILE, file_size) as source:
        file = pq.ParquetFile(source, pre_buffer=False)
        schema, metadata = file.schema_arrow, file.metadata
    if metadata.num_rows != row_count:
        raise CorruptDataError(
            "a data file's row count differs from its manifest",
            path=path,
            expected=row_count,
            found=metadata.num_rows,
        )
    if len({name.lower() for name in schema.names}) < len(schema.names):
        return False  # engines fold the case of names
    for field in fields:
        position = schema.get_field_index(field.name)
        if position < 0 or schema.field(position).type != arrow_type(field.type):
            return False
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    ranges = [ranges_of(group) for group in groups]
    millis = [field.name for field in fields if _is_millis(schema.field(field.name).type)]
    return all(
        (keep_row_group is None or keep_row_group(columns))
        and all(name in columns and columns[name].bounded for name in millis)
        for columns in ranges
    )


def verify_pages(
    paths: Sequence[str], columns: Sequence[str], is_stopped: Callable[[], bool] = lambda: False
) -> None:
    """Compare the pages of columns with their checksums, as far as files have them.

    Args:
        paths: local ones.
        columns: names of columns of the files; of nested columns all parts are read.
        stopped: whether to end early; what was not verified by then is the next time.

    Raises:
        CorruptDataError: a page is damaged, names the first.
        FileNotFoundError: a file is missing.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1, "verify") as pool:
        verify = functools.partial(_verify, columns=frozenset(columns), is_stopped=is_stopped)
        for _ in pool.map(verify, paths):
            pass


def _verify(path: str, columns: frozenset[str], is_stopped: Callable[[], bool]) -> None:
    with decoding(path, _PARQUET_FILE), pathlib.Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        state = (path, status.st_mtime_ns, status.st_size)
        unverified = {name for name in columns if (*state, name) not in _VERIFIED}
        if not unverified:
            return
        metadata = pq.read_metadata(file)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for chunk in map(group.column, range(group.num_columns)):
                if is_stopped():
                    return
                if chunk.path_in_schema.partition(".")[0] in unverified:
                    file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
                    _verify_chunk(file.read(chunk.total_compressed_size), path)
    for name in unverified:
        _VERIFIED.put((*state, name), True)


def _verify_chunk(chunk: bytes, path: str) -> None:
    position, contents = 0, memoryview(chunk)
    while position < len(chunk):
        try:
            start, size, checksum = page_header(chunk, position)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _damaged(path, detail=str(error)) from error
        position = start + size
        page = contents[start:position]
        if len(page) < size or (checksum is not None and zlib.crc32(page) != checksum):
            raise _damaged(path, detail="a page does not match its checksum")


def _damaged(path: str, detail: str) -> CorruptDataError:
    return CorruptDataError(
        "a data file cannot be decoded", detail=detail, path=path, expected=_PARQUET_FILE
    )


def _is_millis(type_: pa.DataType) -> bool:
    """Engines count microseconds; milliseconds beyond their range would fail."""
    return bool(pa.types.is_timestamp(type_)) and type_.unit == "ms"
