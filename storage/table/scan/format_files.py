# SPDX-License-Identifier: Apache-2.0
"""The directory of a format table: its partitions, its files, the rows of a file.

Source: SEMANTICS.md §L.2, and Apache Paimon where that is silent. Files and directories whose
names begin with `_` or `.` belong to writers that have not finished.
"""

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from storage.errors import (
    CorruptDataError,
    InvalidOptionError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from storage.format.files.file_formats import read_batches
from storage.format.files.text_files import TEXT_FORMATS, TextCodec, text_codec
from storage.format.metadata.layout import unescape
from storage.format.metadata.schema import TableSchema
from storage.format.types.casts import CastError, from_text
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.options.options import TableOptions, option_value
from storage.table.core import TableCore
from storage.table.scan.predicate import (
    Predicate,
    columns_of,
    conjuncts,
    could_match,
    mask,
    row_group_range,
)
from storage.table.write.rows_by_bucket import partition_codes

FORMAT_TABLE = "format-table"
"""Value of the option `type`."""

_FORMATS = ("parquet", "orc", *TEXT_FORMATS)
CODECS = {"gzip": "gz", "bzip2": "bz2", "zstd": "zst"}
"""Compressions of text files, with the last part of their names."""

ONLY_VALUE = "format-table.partition-path-only-value"
_BATCH_ROWS = 65_536
_METADATA = ("schema", "branch")
"""Directories of a catalog in that of the table."""


@dataclasses.dataclass(frozen=True, slots=True)
class FormatSplit:
    """One file.

    Attributes:
        size: of it [bytes].
        partition: values of the partition columns, one row; without columns if there are none.
    """

    path: str
    size: int
    partition: pa.RecordBatch


@dataclasses.dataclass(frozen=True, slots=True)
class Directory:
    """A directory of data files, with its partition framed and as values."""

    path: str
    partition: pa.RecordBatch


def check_format_table(schema: TableSchema) -> None:
    """Check the schema of a new format table.

    Raises:
        InvalidRequestError: it has a primary key.
        UnsupportedFeatureError: the format does not exist, or cannot hold a column.
        InvalidOptionError: options contradict each other.
    """
    if schema.primary_keys or schema.options.get("primary-key"):
        raise InvalidRequestError(
            "Cannot define primary-key for format table.", hint="declare it without primary key"
        )
    options = TableOptions.from_strings(schema.options)
    if options.file_format not in _FORMATS:
        raise UnsupportedFeatureError(
            "a format table cannot have this format",
            hint=f"set it to one of {', '.join(_FORMATS)}",
            option="file.format",
            value=options.file_format,
        )
    for field in schema.partition_fields:
        if not isinstance(field.type, AtomicType):
            raise UnsupportedFeatureError("a nested partition column", column=field.name)
    stored = stored_fields(schema)
    if options.file_format in TEXT_FORMATS:
        text_codec(options.file_format, stored, schema.options)
    if not stored:
        raise InvalidRequestError("all columns are partition columns", hint="declare another")
    compression_of(schema)


def stored_fields(schema: TableSchema) -> list[DataField]:
    """The columns in the files."""
    return [field for field in schema.fields if field.name not in schema.partition_keys]


def partition_schema(schema: TableSchema) -> pa.Schema:
    """Arrow schema of the partition columns."""
    return pa.schema([schema.arrow_schema.field(name) for name in schema.partition_keys])


def compression_of(schema: TableSchema) -> str:
    """Compression of the files; text files support three."""
    options = schema.options
    file_format = option_value(options, "file.format")
    chosen = options.get("file.compression") or option_value(
        options, "format-table.file.compression"
    )
    if file_format not in TEXT_FORMATS:
        return chosen or ("snappy" if file_format == "parquet" else "zstd")
    chosen = (chosen or "none").lower()
    if chosen != "none" and chosen not in CODECS:
        raise InvalidOptionError(
            "text files have no compression of this name",
            hint=f"set it to none, {', '.join(CODECS)}",
            option="file.compression",
            value=chosen,
        )
    return cast("str", chosen)


def codec_of(table: TableCore) -> TextCodec:
    """The codec of a table of text files."""
    return text_codec(table.options.file_format, stored_fields(table.schema), table.schema.options)


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def directories(table: TableCore, predicate: Predicate | None) -> list[Directory]:
    """Partition directories that a predicate does not prune; without partitions, the table's.

    Only what can hold matching rows is listed: level by level, by the columns known so far.
    """
    schema, file_io = table.schema, table.file_io
    empty = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    level = [Directory(table.layout.root, empty)]
    parts = conjuncts(predicate)
    for depth, field in enumerate(schema.partition_fields, 1):
        below = [
            Directory(status.path, _with_value(parent.partition, field, text, table, status.path))
            for parent in level
            for status in file_io.list(parent.path)
            if status.directory
            and not (depth == 1 and status.name in _METADATA)
            and (text := _value_text(table, field.name, status.name)) is not None
        ]
        keys = set(schema.partition_keys[:depth])
        tested = [part for part in parts if columns_of(part) <= keys]
        level = [
            dir_ for dir_ in below if all(mask(part, dir_.partition)[0].as_py() for part in tested)
        ]
    return level


def _value_text(table: TableCore, key: str, name: str) -> str | None:
    """The value in the name of a directory, as text; None: it is not of a partition."""
    if option_value(table.schema.options, ONLY_VALUE):
        valid = name == table.options.partition_default_name or not _is_hidden(name)
        return unescape(name) if valid else None
    column, equals, text = name.partition("=")
    return unescape(text) if equals and unescape(column) == key else None


def _with_value(
    partition: pa.RecordBatch, field: DataField, text: str, table: TableCore, path: str
) -> pa.RecordBatch:
    value = None if text == table.options.partition_default_name else text
    assert isinstance(field.type, AtomicType)
    if value is not None and field.type.root is TypeRoot.DATE and value.isdecimal():
        value = str(datetime.date(1970, 1, 1) + datetime.timedelta(int(value)))
    try:
        column = from_text(pa.array([value], pa.string()), field.type)
    except (CastError, pa.ArrowInvalid) as error:
        raise CorruptDataError(
            "the name of a directory is no value of its partition column",
            hint="rename or remove the directory",
            column=field.name,
            value=text,
            path=path,
        ) from error
    target = table.schema.arrow_schema.field(field.name)
    columns = [*partition.columns, column.cast(target.type)]
    names = [*partition.schema.names, field.name]
    return pa.RecordBatch.from_arrays(columns, names=names)


def data_files(table: TableCore, directory: Directory) -> Iterator[FormatSplit]:
    """The files below a directory that belong neither to unfinished writers nor to the catalog."""
    start = len(directory.path) + 1
    root = directory.path == table.layout.root
    for status in table.file_io.walk(directory.path):
        names = status.path[start:].split("/")
        if any(map(_is_hidden, names)) or (root and names[0] in _METADATA):
            continue
        if status.size:
            yield FormatSplit(status.path, status.size, directory.partition)


def read_file(
    table: TableCore, split: FormatSplit, stored: Sequence[DataField], predicate: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows of a file, those that it has.

    Args:
        stored: columns wanted, none of them of the partition.
        predicate: condition on the rows; others may be returned, too.

    Raises:
        CorruptDataError: the file is damaged, or does not match the columns.
        FileNotFoundError: it was removed.
    """
    file_io = table.file_io
    if table.options.file_format in TEXT_FORMATS:
        names = [field.name for field in stored]
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(file_io.open_input(split.path))
            for codec, ending in CODECS.items():
                if split.path.endswith(f".{ending}"):
                    name = codec.replace("bzip2", "bz2")
                    stream = stack.enter_context(pa.CompressedInputStream(stream, name))
            yield from codec_of(table).decode(stream, names, split.path)
        return
    yield from read_batches(
        table.options.file_format,
        file_io,
        split.path,
        stored,
        batch_rows=_BATCH_ROWS,
        keep_row_group=_row_groups(table.schema, stored, predicate),
        options=table.schema.options,
    )


def _row_groups(
    schema: TableSchema, stored: Sequence[DataField], predicate: Predicate | None
) -> Callable[[Mapping[str, Any]], bool] | None:
    names = {field.name for field in stored}
    parts = [part for part in conjuncts(predicate) if columns_of(part) <= names]
    if not parts:
        return None
    types = {field.name: field.type for field in schema.arrow_schema}

    def keep(statistics: Mapping[str, Any]) -> bool:
        return all(
            could_match(part, lambda name: row_group_range(statistics.get(name)), types)
            for part in parts
        )

    return keep


def completed(
    batch: pa.RecordBatch,
    needed: Sequence[DataField],
    schema: TableSchema,
    partition: pa.RecordBatch,
) -> pa.RecordBatch:
    """The columns of a file with those of its partition; null where the file lacks one."""
    arrays = []
    for field in needed:
        if field.name in schema.partition_keys:
            arrays.append(pa.repeat(partition.column(field.name)[0], batch.num_rows))
        elif field.name in batch.schema.names:
            arrays.append(batch.column(field.name))
        else:
            arrays.append(pa.nulls(batch.num_rows, schema.arrow_schema.field(field.name).type))
    if not arrays:
        return batch.select([])
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in needed])


def framed(table: TableCore, partition: pa.RecordBatch) -> bytes:
    """The values of a partition as in a manifest."""
    return partition_codes(partition, table)[1][0]
