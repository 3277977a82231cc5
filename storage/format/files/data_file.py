# SPDX-License-Identifier: Apache-2.0
"""Data and changelog files: writing rows of a bucket as rolling files.

The entrance to data files: reading (`data_file_reader`), options (`data_file_options`) and the
layout (`key_value_layout`) are offered here too. How a file is encoded is in `file_formats`.
"""

import contextlib
import dataclasses
import sys
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from storage.clock import Clock, IdSource
from storage.format.files.data_file_options import (
    CHANGELOG_PREFIX,
    DATA_PREFIX,
    INDEX_SUFFIX,
    DataFileNames,
    DataFileOptions,
    data_file_name,
)
from storage.format.files.data_file_reader import BATCH_ROWS, read_key_values, read_rows
from storage.format.files.file_formats import open_sink
from storage.format.files.key_value_layout import (
    FileLayout,
    KeyValueLayout,
    RowLayout,
    key_value_schema,
)
from storage.format.index.builder import FileIndexBuilder
from storage.format.metadata.file_meta import DataFileMeta, FileSource
from storage.format.metadata.schema import TableSchema
from storage.io.file_io import FileIO

__all__ = [
    "BATCH_ROWS",
    "CHANGELOG_PREFIX",
    "DATA_PREFIX",
    "INDEX_SUFFIX",
    "DataFileNames",
    "DataFileOptions",
    "KeyValueFileWriter",
    "RowFileWriter",
    "data_file_name",
    "key_value_schema",
    "read_key_values",
    "read_rows",
]

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class RollingFiles:
    """Writes rows of one bucket as one or more files.

    Protocol:
        1. `write` batches in file order, across calls too.
        2. `close` gives the metadata of every file, which is then durable; or
        3. `abort` removes everything written; also after `close`.

    Rows are collected until they fill a row group, and a file ends with the row group that takes
    it over the target size. Nothing is created before the first row.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        layout: FileLayout,
        *,
        names: DataFileNames,
        clock: Clock,
        level: int,
        source: FileSource,
    ) -> None:
        self._file_io = file_io
        self._directory = directory
        self._layout = layout
        self._options = layout.options
        self._names = names
        self._clock = clock
        self._level = level
        self._source = source
        limit = self._options.target_file_rows if source is FileSource.APPEND else None
        self._most_rows = sys.maxsize if limit is None else max(1, limit)
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._open: _OpenFile | None = None
        self._finished_files: list[DataFileMeta] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        The batch has at least the columns of the layout, found by name.

        Raises:
            InternalError: a column is missing or does not fit.
            UnsupportedFeatureError: the format cannot hold a column.
            StorageUnavailableError: the store failed.
        """
        if batch.num_rows == 0:
            return
        self._pending.append(self._layout.ordered(batch))
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._options.row_group_bytes:
            self._write_pending()

    def close(self) -> tuple[DataFileMeta, ...]:
        """Finish the last file; all files in the order of the rows."""
        self._write_pending()
        self._finish_file()
        return tuple(self._finished_files)

    def abort(self) -> None:
        """Remove every file of this writer; one that cannot be removed is left as an orphan."""
        self._pending = []
        if self._open is not None:
            self._open.discard()
            self._open = None
        names = (
            name for meta in self._finished_files for name in (meta.file_name, *meta.extra_files)
        )
        self._file_io.delete_many(f"{self._directory}/{name}" for name in names)
        self._finished_files = []

    def _write_pending(self) -> None:
        """Write the collected rows as row groups of about equal size."""
        if not self._pending:
            return
        batch = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        groups = max(1, round(self._pending_bytes / self._options.row_group_bytes))
        self._pending, self._pending_bytes = [], 0
        rows = -(-batch.num_rows // groups)
        start = 0
        while start < batch.num_rows:
            if self._open is None:
                self._open = self._new_file()
            group = batch.slice(start, min(rows, self._most_rows - self._open.rows))
            self._open.write(group)
            start += group.num_rows
            full = self._open.rows >= self._most_rows
            if full or self._open.size >= self._options.target_file_size:
                self._finish_file()

    def _new_file(self) -> "_OpenFile":
        name = self._names.next(self._options.prefix, self._options)
        return _OpenFile(self._file_io, self._directory, name, self._layout)

    def _finish_file(self) -> None:
        if self._open is None:
            return
        opened, self._open = self._open, None
        self._finished_files.append(
            opened.finish(
                level=self._level,
                source=self._source,
                creation_time_ms=self._clock.local_wall_ms(),
            )
        )


class _OpenFile:
    """One file being written; gathers what its metadata needs."""

    def __init__(self, file_io: FileIO, directory: str, name: str, layout: FileLayout) -> None:
        self._file_io = file_io
        self._directory = directory
        self._name = name
        self._layout = layout
        self._facts = layout.facts()
        self._rows = 0
        self._index = _index_builder(layout)
        self._context = file_io.open_output(f"{directory}/{name}")
        self._output = self._context.__enter__()
        options = layout.options
        table_options = options.table_options
        try:
            self._sink = open_sink(
                options.file_format,
                self._output,
                layout.fields,
                compression=options.compression,
                zstd_level=options.zstd_level,
                plain=layout.plain,
                options=_NO_OPTIONS if table_options is None else table_options.raw,
            )
        except BaseException:
            self.discard()
            raise

    @property
    def size(self) -> int:
        return self._sink.size

    @property
    def rows(self) -> int:
        return self._rows

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one row group; the batch has the columns of `FileLayout.ordered`."""
        self._sink.write(self._layout.physical(batch))
        self._facts.add(batch)
        self._rows += batch.num_rows
        if self._index is not None:
            self._index.add(self._layout.values(batch))

    def finish(self, *, level: int, source: FileSource, creation_time_ms: int) -> DataFileMeta:
        """Make the file durable and describe it."""
        embedded, beside = None, None
        try:
            self._sink.close()
            size = self._sink.size
            facts = self._facts.result(getattr(self._sink, "footer", ()))
            if self._index is not None:
                embedded, beside = self._place_index(self._index.finish())
        except BaseException:
            self.discard()
            raise
        try:
            self._context.__exit__(None, None, None)
        except BaseException:
            self._remove(beside)
            raise
        return DataFileMeta(
            file_name=self._name,
            file_size=size,
            row_count=facts.row_count,
            min_key=facts.min_key,
            max_key=facts.max_key,
            key_stats=facts.key_stats,
            value_stats=facts.value_stats,
            min_sequence_number=facts.min_sequence_number,
            max_sequence_number=facts.max_sequence_number,
            schema_id=self._layout.schema.id,
            level=level,
            extra_files=() if beside is None else (beside,),
            creation_time_ms=creation_time_ms,
            embedded_index=embedded,
            delete_row_count=facts.delete_row_count,
            file_source=source.value,
            value_stats_cols=facts.value_stats_cols,
        )

    def _place_index(self, container: bytes) -> tuple[bytes | None, str | None]:
        """Where the file index goes: into the metadata, or into a file of its own."""
        if len(container) <= self._layout.options.index_threshold:
            return container, None
        name = self._name + INDEX_SUFFIX
        self._file_io.write_bytes(f"{self._directory}/{name}", container)
        return None, name

    def _remove(self, name: str | None) -> None:
        if name is not None:
            self._file_io.delete_many([f"{self._directory}/{name}"])

    def discard(self) -> None:
        """Leave the output as after a failure, which removes the file."""
        with contextlib.suppress(_DiscardedError):
            error = _DiscardedError("the file is no longer needed")
            self._context.__exit__(_DiscardedError, error, None)


def _index_builder(layout: FileLayout) -> FileIndexBuilder | None:
    specs = layout.options.indexes
    return FileIndexBuilder(layout.schema.fields, specs) if specs else None


class _DiscardedError(Exception):
    """Leaves an output context so that the file is removed."""


class KeyValueFileWriter(RollingFiles):
    """Writes sorted rows of one bucket of a primary-key table; protocol of `RollingFiles`.

    `write` takes KeyValueBatches (see `key_value_schema`) in key order, across calls too; keys
    unique unless it is a changelog.

    Args:
        id_source: gives the UUID of the names unless `names` is given.
        names: shared by the data and changelog writers of one bucket.
        prefix: of the file names; that of `options` unless given.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        schema: TableSchema,
        *,
        id_source: IdSource,
        clock: Clock,
        options: DataFileOptions | None = None,
        names: DataFileNames | None = None,
        prefix: str | None = None,
        level: int = 0,
        source: FileSource = FileSource.APPEND,
    ) -> None:
        options = options or DataFileOptions()
        if prefix is not None:
            options = dataclasses.replace(options, prefix=prefix)
        super().__init__(
            file_io,
            directory,
            KeyValueLayout(schema, options),
            names=names or DataFileNames(id_source),
            clock=clock,
            level=level,
            source=source,
        )


class RowFileWriter(RollingFiles):
    """Writes rows of one bucket of an append table; protocol of `RollingFiles`.

    `write` takes batches with the columns of the table, all rows inserts.

    Args:
        schema: schema of the rows; its id is recorded.
        id_source: gives the UUID of the names unless `names` is given.
        names: shared by the writers of one bucket.
        first_sequence: sequence number of the first row; each further row has the next one.
    """

    def __init__(
        self,
        file_io: FileIO,
        directory: str,
        schema: TableSchema,
        *,
        id_source: IdSource,
        clock: Clock,
        options: DataFileOptions | None = None,
        names: DataFileNames | None = None,
        first_sequence: int = 0,
        source: FileSource = FileSource.APPEND,
    ) -> None:
        super().__init__(
            file_io,
            directory,
            RowLayout(schema, options or DataFileOptions(), first_sequence),
            names=names or DataFileNames(id_source),
            clock=clock,
            level=0,
            source=source,
        )
