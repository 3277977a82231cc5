# SPDX-License-Identifier: Apache-2.0
"""The three formats of data files behind one sink and one reader.

The format of a file follows from its name, never by the table's options (FORMAT.md §7.2): a table
may hold several at once. How each format encodes columns is in `parquet`, `orc` and `avro.rows`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.avro.container import CODECS as AVRO_CODECS
from storage.format.avro.rows import AvroSink
from storage.format.avro.rows import read_batches as read_avro
from storage.format.avro.schema import schema_text
from storage.format.files.orc.orc import CODECS as ORC_CODECS
from storage.format.files.orc.orc import OrcSink
from storage.format.files.orc.orc import read_batches as read_orc
from storage.format.files.parquet import CODECS as PARQUET_CODECS
from storage.format.files.parquet import ParquetSink, RowGroupFilter
from storage.format.files.parquet import read_batches as read_parquet
from storage.format.files.row_selection import RowSelection
from storage.format.row.stats import Footer
from storage.format.types.types import DataField
from storage.io.file_io import FileIO
from storage.options.options import option_value
from storage.options.values import codec_of

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class RowSink(Protocol):
    """Writes one data file.

    Protocol: `write` any number of times, then `close` once. The caller owns the output, and
    abandons a sink by leaving the output as after a failure.
    """

    @property
    def size(self) -> int:
        """Bytes written so far; after `close` the exact file size."""

    @property
    def footer(self) -> Footer:
        """After `close` the ranges that the footer holds; empty where bounds are not from it."""

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Write one row group, stripe or run of blocks.

        Args:
            columns: one per field of the layout, of `arrow_type(field.type)`, equally long, at
                least one row. The same array may be given twice.

        Raises:
            InternalError: a column does not fit its field, or a null is where none may be.
        """

    def close(self) -> None:
        """Write buffered rows and the footer. A file without rows is valid."""


class _Format(NamedTuple):
    """Writer and reader of the files of a format, and its names of compressions."""

    sink: Callable[..., RowSink]
    read: Callable[..., Iterator[pa.RecordBatch]]
    codecs: Mapping[str, str]
    title: str


_FORMATS = {
    "parquet": _Format(ParquetSink, read_parquet, PARQUET_CODECS, "Parquet"),
    "orc": _Format(OrcSink, read_orc, ORC_CODECS, "ORC"),
    "avro": _Format(AvroSink, read_avro, AVRO_CODECS, "Avro"),
}
FORMATS = tuple(_FORMATS)
"""Values of `file.format`, which are also the last parts of file names."""


def _format(name: str, verb: str) -> _Format:
    if name not in _FORMATS:
        raise UnsupportedFeatureError(
            f"data files of this format cannot be {verb}",
            hint=f"set `file.format` to one of {', '.join(FORMATS)}",
            format=name,
        )
    return _FORMATS[name]


def format_of(file_name: str) -> str:
    """The format of a file by its name: the last extension.

    Raises:
        UnsupportedFeatureError: an unknown format.
    """
    extension = file_name.rpartition(".")[2].lower()
    if extension in FORMATS:
        return extension
    raise UnsupportedFeatureError(
        "data files of this format cannot be read",
        hint=f"known formats are {', '.join(FORMATS)}",
        path=file_name,
        format=extension,
    )


def open_sink(
    file_format: str,
    output: Any,
    layout_fields: Sequence[DataField],
    *,
    compression: str = "zstd",
    zstd_level: int = 1,
    plain: frozenset[str] = frozenset(),
    options: Mapping[str, str] = _NO_OPTIONS,
) -> RowSink:
    """A sink for one file.

    Args:
        file_format: one of `FORMATS`.
        output: binary sink with `write` and `tell`.
        layout_fields: the file's columns in order, with their field ids.
        compression: `file.compression`.
        zstd_level: level when compression is zstd.
        plain: columns that never get a dictionary, such as unique keys.
        options: the table's options; those named after the format shape its files.

    Raises:
        UnsupportedFeatureError: the format does not exist or cannot hold a column's type.
        InvalidOptionError: unknown compression, or a malformed option of the format.
    """
    return _format(file_format, "written").sink(
        output,
        layout_fields,
        compression=compression,
        zstd_level=zstd_level,
        plain=plain,
        options=options,
    )


def read_batches(
    file_format: str,
    file_io: FileIO,
    path: str,
    columns: Sequence[DataField],
    *,
    batch_rows: int,
    keep_row_group: RowGroupFilter | None = None,
    selection: RowSelection | None = None,
    file_size: int | None = None,
    options: Mapping[str, str] = _NO_OPTIONS,
    dictionaries: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a data file.

    Args:
        file_format: from `format_of`.
        file_io: the store.
        path: the file.
        columns: fields of the file's own schema; found in the file by name.
        batch_rows: largest batch [rows].
        keep_row_group: leaves out row groups by their statistics, or None to read all. Formats
            without such statistics return all rows.
        selection: which rows to return by position in the file, or None for all; groups of rows
            without a selected one are not decoded where the format allows it.
        file_size: recorded size [bytes], or None when it is unknown.
        options: of the file's schema; `orc.timestamp-ltz.legacy.type` says how Java stored
            TIMESTAMP_LTZ.
        dictionaries: columns of text that may be returned as dictionaries.

    Returns:
        Batches in file order, never empty; the columns in requested order, absent ones left out,
        each of `arrow_type` of its field. With no column left, batches without columns that
        still carry their number of rows.

    Raises:
        CorruptDataError: a damaged file, one of another format, or one shorter than recorded.
        UnsupportedFeatureError: the format is unknown, or a value has no Arrow form.
        FileNotFoundError: there is no such file.
    """
    return _format(file_format, "read").read(
        file_io,
        path,
        columns,
        batch_rows=batch_rows,
        keep_row_group=keep_row_group,
        selection=selection,
        file_size=file_size,
        options=options,
        dictionaries=dictionaries,
    )


def check_types(file_format: str, fields: Sequence[DataField]) -> None:
    """Check that files of a format can hold some columns.

    Raises:
        UnsupportedFeatureError: the format has no type for one of them.
    """
    if file_format == "avro":
        schema_text(fields)


def check_compression(file_format: str, compression: str, options: Mapping[str, str]) -> None:
    """Check that files of a format can be written with a compression.

    Raises:
        InvalidOptionError: the format has none of this name.
    """
    codec = option_value(options, "avro.codec") if file_format == "avro" else None
    format_ = _format(file_format, "written")
    codec_of(codec or compression, format_.codecs, format_.title)
