# SPDX-License-Identifier: Apache-2.0
"""New files of a format table on their way: written outside of it, then published one by one."""

import contextlib
import dataclasses
import io
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError, InvalidRequestError
from storage.format.files.file_formats import open_sink
from storage.format.files.text_files import TEXT_FORMATS
from storage.format.metadata.layout import partition_path
from storage.format.metadata.schema import TableSchema
from storage.format.row.binary_row import decode_row
from storage.format.types.types import VALUE_KIND
from storage.io.file_io import FileIO
from storage.lsm.write_rules import accept_rows
from storage.options.options import TableOptions, option_value
from storage.table.core import TableCore
from storage.table.scan.format_files import (
    CODECS,
    ONLY_VALUE,
    codec_of,
    compression_of,
    stored_fields,
)
from storage.table.write.rows_by_bucket import partition_codes, split_codes

__all__ = ["FormatFiles"]

_BATCH_ROWS = 65_536
_IN_MEMORY = 8 << 20
"""Files up to this size are kept in memory until they are published [bytes]."""


@dataclasses.dataclass(slots=True)
class _File:
    """A file that is being written, outside of the table."""

    spool: BinaryIO
    sink: Any
    size: Callable[[], int]
    rows: int = 0


class FormatFiles:
    """New files on their way: written elsewhere, then published. A context manager."""

    def __init__(self, table: TableCore) -> None:
        self._table = table
        self._open: dict[bytes, _File] = {}
        self._done: list[tuple[bytes, BinaryIO]] = []
        self._stack = contextlib.ExitStack()
        self._file_rows = table.options.target_file_rows
        target = table.options.target_file_size
        # as files of append tables: FORMAT.md §7.2
        self._file_bytes = target if "target-file-size" in table.schema.options else 2 * target
        self._compression = compression_of(table.schema)
        self._uuid = table.ids.uuid()
        text = table.options.file_format in TEXT_FORMATS
        self._text = codec_of(table) if text else None
        self.rows = 0

    def __enter__(self) -> "FormatFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def partitions(self) -> set[bytes]:
        """Those that get rows (framed)."""
        return {*self._open, *(partition for partition, _ in self._done)}

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        schema = self._table.schema
        rows = _accepted(batch, schema, self._table.options)
        codes, framed, _ = partition_codes(rows, self._table)
        stored = rows.select([field.name for field in stored_fields(schema)])
        for code, indices in split_codes(codes):
            part = stored if indices is None else stored.take(pa.array(indices))
            for start in range(0, part.num_rows, _BATCH_ROWS):
                self._append(framed[code], part.slice(start, _BATCH_ROWS))
        self.rows += rows.num_rows

    def require(self, replaced: Callable[[bytes], bool], partition: Mapping[str, Any]) -> None:
        """Check that all rows belong to the partitions that are replaced."""
        for one in self.partitions:
            if not replaced(one):
                raise InvalidRequestError(
                    "a new row does not belong to this partition",
                    hint="write only rows of the partition that is overwritten",
                    partition=self._directory(one),
                    overwritten=dict(partition),
                )

    def publish(self) -> None:
        """Make all files visible, one after the other; all or, where the store allows it, none."""
        for partition in list(self._open):
            self._finish(partition)
        file_io = self._table.file_io
        published: list[str] = []
        try:
            for number, (partition, spool) in enumerate(self._done):
                path = f"{self._directory(partition)}/{self._name(number)}"
                spool.seek(0)
                _put(file_io, path, spool.read())
                published.append(path)
        except BaseException:
            file_io.delete_many(published)
            raise

    def _append(self, partition: bytes, rows: pa.RecordBatch) -> None:
        while rows.num_rows:
            file = self._open.get(partition) or self._new(partition)
            room = rows.num_rows if self._file_rows is None else self._file_rows - file.rows
            part, rows = rows.slice(0, room), rows.slice(room)
            if self._text is not None:
                file.sink.write(self._text.encode(part))
            else:
                file.sink.write(part.columns)
            file.rows += part.num_rows
            if file.size() >= self._file_bytes or file.rows == self._file_rows:
                self._finish(partition)

    def _new(self, partition: bytes) -> _File:
        table = self._table
        spool = cast("BinaryIO", tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115
        self._stack.enter_context(spool)
        if self._text is None:
            sink: Any = open_sink(
                table.options.file_format,
                spool,
                stored_fields(table.schema),
                compression=self._compression,
                zstd_level=table.options.zstd_level,
                options=table.schema.options,
            )
            file = _File(spool, sink, lambda: sink.size)
        else:
            sink = spool
            if self._compression != "none":
                kept = pa.PythonFile(_Kept(spool), "w")
                sink = pa.CompressedOutputStream(kept, self._compression.replace("bzip2", "bz2"))
            sink.write(self._text.header)
            file = _File(spool, sink, spool.tell)
        self._open[partition] = file
        return file

    def _finish(self, partition: bytes) -> None:
        file = self._open.pop(partition)
        if file.sink is not file.spool:
            file.sink.close()
        self._done.append((partition, file.spool))

    def _directory(self, partition: bytes) -> str:
        table = self._table
        fields = table.schema.partition_fields
        values = decode_row(partition, [field.type for field in fields]) if fields else ()
        path = partition_path(
            values,
            fields,
            default_name=table.options.partition_default_name,
            # by name unless it is asked for: other engines look for `dt=2024-01-31`
            legacy=table.schema.options.get("partition.legacy-name", "false") == "true",
        )
        if option_value(table.schema.options, ONLY_VALUE):
            path = "/".join(part.partition("=")[2] for part in path.split("/"))
        return f"{table.layout.root}/{path}" if path else table.layout.root

    def _name(self, number: int) -> str:
        table = self._table
        ending = "" if self._text is None else CODECS.get(self._compression, "")
        whole = f"{table.options.data_file_prefix}{self._uuid}-{number}.{table.options.file_format}"
        return f"{whole}.{ending}" if ending else whole


def _accepted(batch: pa.RecordBatch, schema: TableSchema, options: TableOptions) -> pa.RecordBatch:
    """Rows in the columns of the table."""
    if VALUE_KIND not in batch.schema.names:
        kinds = pa.array(np.zeros(batch.num_rows, np.int8))
        batch = batch.append_column(VALUE_KIND, kinds)
    kinds, columns = accept_rows(batch, schema, options)
    if pc.any(pc.not_equal(kinds, 0)).as_py():
        raise InvalidRequestError(
            "a format table takes inserts alone", hint="overwrite the table or a partition"
        )
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow_schema)


class _Kept(io.RawIOBase):
    """A file that stays open when what writes to it is closed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self._file.write(data)


def _put(file_io: FileIO, path: str, data: bytes) -> None:
    if not file_io.put_if_absent(path, data):
        raise InternalError("a new file has the name of another", path=path)
