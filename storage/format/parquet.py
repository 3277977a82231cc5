# SPDX-License-Identifier: Apache-2.0
"""Parquet files as Paimon lays them out: physical types, field ids, row groups, encodings.

Source: FORMAT.md §7.1, §7.3; every choice is compared with files written by Java in the tests.

Encodings are PLAIN and dictionary only: an earlier column reader of Paimon (`AbstractColumnReader`)
refuses any other, and from which release on that is gone is not known.
Dictionaries cost time, so a column gets one only when a sample of it repeats itself.

Timestamps with more than 6 digits are INT96 like Java's, except inside ARRAY, MAP or ROW, where
they are INT64 nanoseconds: Java 2.1 reads both, whether 1.x reads the latter is unverified.
"""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import CorruptDataError, InternalError, StorageUnavailableError
from storage.format.arrow_types import arrow_type
from storage.format.int96 import INT96_BYTES, holds_nanoseconds, to_int96
from storage.format.parquet_footer import bytes_as_int96, int96_as_bytes
from storage.format.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
)
from storage.io.file_io import FileIO

__all__ = [
    "ColumnRange",
    "ParquetSink",
    "RowGroupFilter",
    "parquet_field",
    "read_batches",
]

_MAGIC = b"PAR1"
_TRAILER_BYTES = 8
_FIELD_ID = b"PARQUET:field_id"
_ELEMENT_IDS = 536_870_911
_ELEMENT_IDS_PER_FIELD = 1024

_SAMPLE_ROWS = 4096
_DICTIONARY_SHARE = 0.2
"""A column gets a dictionary when at most this share of a sample is distinct: below it the
dictionary saves compression work, above it pyarrow would give up half way anyway."""


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnRange:
    """What a row group's statistics say about a column.

    Attributes:
        minimum: lower bound of the values as a Python object, None when unknown.
        maximum: upper bound, None when unknown.
        null_count: number of nulls, None when unknown.
        row_count: number of rows.
    """

    minimum: Any
    maximum: Any
    null_count: int | None
    row_count: int


RowGroupFilter = Callable[[Mapping[str, ColumnRange]], bool]
"""Given the ranges by column name in the file, whether the row group may hold a wanted row."""


def parquet_field(field: DataField) -> pa.Field:
    """An Arrow field that makes pyarrow write the Parquet field Java would write.

    Carries the field id, also of nested elements (FORMAT.md §7.1).
    """
    type_ = _with_ids(field.type, field.id, 1)
    if holds_nanoseconds(type_):
        type_ = INT96_BYTES
    return _field(field.name, type_, field.type.nullable, field.id)


def _with_ids(type_: DataType, owner: int, depth: int) -> pa.DataType:
    """The Arrow type with field ids on everything inside; `owner` is the enclosing field's id."""
    offset = _ELEMENT_IDS_PER_FIELD * owner + depth
    after, before = _ELEMENT_IDS + offset, _ELEMENT_IDS - offset
    match type_:
        case AtomicType():
            return arrow_type(type_)
        case ArrayType(element=element):
            inner = _with_ids(element, owner, depth + 1)
            return pa.list_(_field("element", inner, element.nullable, after))
        case MultisetType(element=element):
            return pa.map_(
                _field("key", _with_ids(element, owner, depth + 1), False, before),
                _field("value", pa.int32(), False, after),
            )
        case MapType(key=key, value=value):
            return pa.map_(
                _field("key", _with_ids(key, owner, depth + 1), False, before),
                _field("value", _with_ids(value, owner, depth + 1), value.nullable, after),
            )
        case RowType(fields=fields):
            return pa.struct(
                [_field(f.name, _with_ids(f.type, f.id, 1), f.type.nullable, f.id) for f in fields]
            )


def _field(name: str, type_: pa.DataType, nullable: bool, field_id: int) -> pa.Field:
    return pa.field(name, type_, nullable, {_FIELD_ID: str(field_id).encode()})


class _Writer(pq.ParquetWriter):
    """pyarrow's writer without its finalizer.

    That would write a footer when an abandoned writer is collected, to an output which its owner
    has closed and removed by then.
    """

    def __del__(self) -> None:
        pass


class ParquetSink:
    """Writes one Parquet file, a row group per call.

    Protocol: `write` any number of non-empty batches, then `close` once; the caller owns and
    closes the output.

    Args:
        output: binary sink.
        schema: from `parquet_field`.
        compression: `zstd`, `snappy`, `lz4`, `gzip` or `none`.
        zstd_level: level when compression is zstd.
        plain: names of columns that never get a dictionary, such as unique keys.
    """

    def __init__(
        self,
        output: Any,
        schema: pa.Schema,
        *,
        compression: str = "zstd",
        zstd_level: int = 1,
        plain: frozenset[str] = frozenset(),
    ) -> None:
        self._schema = schema
        self._compression = compression
        self._level = zstd_level if compression == "zstd" else None
        self._plain = plain
        self._int96 = tuple(i for i, field in enumerate(schema) if field.type == INT96_BYTES)
        self._output = _FooterHolder(output) if self._int96 else output
        self._writer: pq.ParquetWriter | None = None

    @property
    def size(self) -> int:
        """Bytes written so far; after `close` the exact file size."""
        return int(self._output.tell())

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Write one row group.

        Args:
            columns: in the order of the schema, equally long, at least one row; nanosecond
                timestamps where the schema has INT96. The same array may be given twice.

        Raises:
            InternalError: a column does not fit the schema, or a null is where none may be.
        """
        stored = [to_int96(c) if i in self._int96 else c for i, c in enumerate(columns)]
        try:
            if self._writer is None:
                self._writer = self._open(stored)
            table = pa.Table.from_arrays(stored, schema=self._schema)
            self._writer.write_table(table, row_group_size=table.num_rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InternalError("rows do not fit the file's schema", detail=str(error)) from error

    def close(self) -> None:
        """Write the footer. A file without rows is valid, too."""
        if self._writer is None:
            self._writer = self._open(())
        if isinstance(self._output, _FooterHolder):
            self._output.hold()
            self._writer.close()
            self._output.release()
        else:
            self._writer.close()

    def _open(self, sample: Sequence[pa.Array]) -> pq.ParquetWriter:
        int96_names = {self._schema.field(i).name for i in self._int96}
        leaves = [path for field in self._schema for path in _leaf_paths(field.name, field.type)]
        return _Writer(
            self._output,
            self._schema,
            compression=self._compression,
            compression_level=self._level,
            use_dictionary=self._dictionary_columns(sample),
            # INT96 has no defined order, so it gets no statistics
            write_statistics=[path for path in leaves if path not in int96_names],
            store_schema=False,
            store_decimal_as_integer=True,
            write_time_adjusted_to_utc=True,
        )

    def _dictionary_columns(self, sample: Sequence[pa.Array]) -> list[str]:
        names: list[str] = []
        for i, field in enumerate(self._schema):
            if pa.types.is_nested(field.type):
                names += _leaf_paths(field.name, field.type)
            elif (
                sample
                and field.name not in self._plain
                and not pa.types.is_boolean(field.type)
                and _repeats(sample[i])
            ):
                names.append(field.name)
        return names


def _repeats(column: pa.Array) -> bool:
    """Whether a dictionary would pay: few distinct values in an evenly spread sample."""
    rows = len(column)
    if rows > _SAMPLE_ROWS:
        spread = np.linspace(0, rows - 1, _SAMPLE_ROWS).astype(np.int64)
        column = column.take(pa.array(spread))
    distinct = len(column.unique())
    return distinct <= 1 or distinct <= len(column) * _DICTIONARY_SHARE


def _leaf_paths(path: str, type_: pa.DataType) -> list[str]:
    """Dotted Parquet paths of the leaves below a column."""
    if pa.types.is_list(type_):
        return _leaf_paths(f"{path}.list.element", type_.value_type)
    if pa.types.is_map(type_):
        return [
            *_leaf_paths(f"{path}.key_value.key", type_.key_type),
            *_leaf_paths(f"{path}.key_value.value", type_.item_type),
        ]
    if pa.types.is_struct(type_):
        children = (type_.field(i) for i in range(type_.num_fields))
        return [leaf for f in children for leaf in _leaf_paths(f"{path}.{f.name}", f.type)]
    return [path]


class _FooterHolder(io.RawIOBase):
    """Passes bytes on, but keeps the footer back to change it; see `parquet_footer`."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._output = output
        self._held: bytearray | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._output.tell()) + len(self._held or b"")

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._held is None:
            self._output.write(view)
        else:
            self._held += view
        return view.nbytes

    def hold(self) -> None:
        self._held = bytearray()

    def release(self) -> None:
        """Pass the held bytes on, with 12-byte values declared as INT96."""
        held = bytes(self._held or b"")
        self._held = None
        length = int.from_bytes(held[-_TRAILER_BYTES:-4], "little")
        start = len(held) - _TRAILER_BYTES - length
        footer = bytes_as_int96(held[start:-_TRAILER_BYTES])
        self._output.write(held[:start] + footer + len(footer).to_bytes(4, "little") + _MAGIC)


def read_batches(
    file_io: FileIO,
    path: str,
    columns: Sequence[str],
    *,
    batch_rows: int,
    keep_row_group: RowGroupFilter | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a Parquet file.

    Args:
        file_io: the store.
        path: the file.
        columns: names in the file; those it does not have are left out.
        batch_rows: largest batch [rows].
        keep_row_group: leaves out row groups, or None to read all.

    Yields:
        Batches in file order, columns in file order; INT96 columns as raw `INT96_BYTES`. With no
        column left, batches still carry the right number of rows.

    Raises:
        CorruptDataError: not a Parquet file, or a damaged one.
        FileNotFoundError: there is no such file.
    """
    with file_io.open_input(path) as source, _translated(path):
        file = _opened(source)
        groups = [
            group
            for group in range(file.num_row_groups)
            if keep_row_group is None or keep_row_group(_ranges(file.metadata.row_group(group)))
        ]
        present = [name for name in columns if name in file.schema_arrow.names]
        yield from file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=present)


def _opened(source: pa.NativeFile) -> pq.ParquetFile:
    file = pq.ParquetFile(source, pre_buffer=False)
    schema = file.schema
    if all(schema.column(i).physical_type != "INT96" for i in range(len(schema))):
        return file
    size = source.size()
    source.seek(size - _TRAILER_BYTES)
    length = int.from_bytes(source.read(4), "little")
    source.seek(size - _TRAILER_BYTES - length)
    footer = int96_as_bytes(source.read(length))
    image = _MAGIC + footer + len(footer).to_bytes(4, "little") + _MAGIC
    metadata = pq.read_metadata(io.BytesIO(image))
    return pq.ParquetFile(source, metadata=metadata, pre_buffer=False)


def _ranges(group: pq.RowGroupMetaData) -> dict[str, ColumnRange]:
    """Ranges of the columns that are not nested and whose statistics have a Python form."""
    ranges = {}
    for i in range(group.num_columns):
        chunk = group.column(i)
        found = chunk.statistics if chunk.is_stats_set else None
        if found is None or "." in chunk.path_in_schema:
            continue
        bounded = found.has_min_max
        ranges[chunk.path_in_schema] = ColumnRange(
            minimum=found.min if bounded else None,
            maximum=found.max if bounded else None,
            null_count=found.null_count if found.has_null_count else None,
            row_count=group.num_rows,
        )
    return ranges


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Tell damaged bytes, which pyarrow reports in several ways, from a failing store."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise CorruptDataError(
            "not a readable Parquet file", detail=str(error), path=path
        ) from error
    except OSError as error:
        if error.errno is None:
            raise CorruptDataError(
                "not a readable Parquet file", detail=str(error), path=path
            ) from error
        raise StorageUnavailableError(
            "cannot read a data file", detail=str(error), path=path
        ) from error
