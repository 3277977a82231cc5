# SPDX-License-Identifier: Apache-2.0
"""Data and changelog files: writing sorted rows of a bucket as rolling files.

The entrance to data files: reading (`data_file_reader`) and the layout (`key_value_layout`) are
offered here too. How Parquet encodes a file is in `parquet`.
"""

import contextlib
import dataclasses

import numpy as np
import pyarrow as pa

from storage.clock import Clock, IdSource
from storage.errors import UnsupportedFeatureError
from storage.format.data_file_reader import BATCH_ROWS, read_key_values, read_rows
from storage.format.file_meta import (
    EMPTY_ROW,
    EMPTY_STATS,
    DataFileMeta,
    FileSource,
    SimpleStats,
)
from storage.format.key_value_layout import (
    CHANGELOG_PREFIX,
    DATA_PREFIX,
    SYSTEM_FIELDS,
    DataFileNames,
    DataFileOptions,
    KeyValueLayout,
    data_file_name,
    key_value_schema,
)
from storage.format.parquet import ParquetSink
from storage.format.schema import TableSchema
from storage.format.types import RowKind
from storage.io.file_io import FileIO

__all__ = [
    "BATCH_ROWS",
    "CHANGELOG_PREFIX",
    "DATA_PREFIX",
    "DataFileNames",
    "DataFileOptions",
    "KeyValueFileWriter",
    "data_file_name",
    "key_value_schema",
    "read_key_values",
    "read_rows",
]

_RETRACTING = tuple(kind.value for kind in RowKind if kind.retracts)


class KeyValueFileWriter:
    """Writes sorted rows of one bucket as one or more files.

    Protocol:
        1. `write` batches in key order, across calls too; keys unique unless it is a changelog.
        2. `close` gives the metadata of every file, which is then durable; or
        3. `abort` removes everything written; also after `close`.

    Rows are collected until they fill a row group, and a file ends with the row group that takes
    it over the target size. Nothing is created before the first row.

    Args:
        file_io: the store.
        directory: bucket directory.
        schema: schema of the rows; its id is recorded.
        id_source: gives the UUID of the names unless `names` is given.
        clock: gives the creation time.
        options: see `DataFileOptions`.
        names: shared by the data and changelog writers of one bucket.
        prefix: of the file names; that of data files unless given.
        level: recorded in the metadata.
        source: recorded in the metadata.

    Raises:
        UnsupportedFeatureError: the format cannot be written.
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
        self._options = options or DataFileOptions()
        if self._options.file_format != "parquet":
            raise UnsupportedFeatureError(
                "data files of this format cannot be written",
                hint="set `file.format` to parquet",
                format=self._options.file_format,
            )
        self._file_io = file_io
        self._directory = directory
        self._clock = clock
        self._names = names or DataFileNames(id_source)
        self._prefix = prefix or self._options.data_prefix
        self._layout = KeyValueLayout(schema, self._options)
        self._level = level
        self._source = source
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._open: _OpenFile | None = None
        self._finished: list[DataFileMeta] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Args:
            batch: KeyValueBatch, see `key_value_schema`; columns are found by name.
        """
        if batch.num_rows == 0:
            return
        self._pending.append(self._layout.ordered(batch))
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._options.row_group_bytes:
            self._write_pending()

    def close(self) -> tuple[DataFileMeta, ...]:
        """Finish the last file.

        Returns:
            All files in key order; none when there were no rows.
        """
        self._write_pending()
        self._finish_file()
        return tuple(self._finished)

    def abort(self) -> None:
        """Remove every file of this writer."""
        self._pending = []
        if self._open is not None:
            self._open.discard()
            self._open = None
        for meta in self._finished:
            self._file_io.delete(f"{self._directory}/{meta.file_name}")
        self._finished = []

    def _write_pending(self) -> None:
        """Write the collected rows as row groups of about equal size."""
        if not self._pending:
            return
        batch = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        groups = max(1, round(self._pending_bytes / self._options.row_group_bytes))
        self._pending, self._pending_bytes = [], 0
        rows = -(-batch.num_rows // groups)
        for start in range(0, batch.num_rows, rows):
            if self._open is None:
                self._open = self._new_file()
            self._open.write(batch.slice(start, rows))
            if self._open.size >= self._options.target_file_size:
                self._finish_file()

    def _new_file(self) -> "_OpenFile":
        name = self._names.next(self._prefix, self._options)
        return _OpenFile(self._file_io, f"{self._directory}/{name}", name, self._layout)

    def _finish_file(self) -> None:
        if self._open is None:
            return
        meta = self._open.finish()
        self._open = None
        self._finished.append(
            dataclasses.replace(
                meta,
                level=self._level,
                file_source=self._source.value,
                creation_time_ms=self._clock.local_wall_ms(),
            )
        )


class _OpenFile:
    """One file being written; gathers what its metadata needs."""

    def __init__(self, file_io: FileIO, path: str, name: str, layout: KeyValueLayout) -> None:
        self._layout = layout
        self._name = name
        self._context = file_io.open_output(path)
        self._output = self._context.__enter__()
        self._sink = ParquetSink(
            self._output,
            layout.file_schema,
            compression=layout.options.compression,
            zstd_level=layout.options.zstd_level,
            plain=layout.plain,
        )
        self._rows = 0
        self._deletes = 0
        self._min_key = self._max_key = EMPTY_ROW
        self._sequences: list[tuple[int, int]] = []
        self._key_stats = layout.key_stats()
        self._value_stats = layout.value_stats()

    @property
    def size(self) -> int:
        return self._sink.size

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one row group; the batch has the columns of `KeyValueLayout.ordered`."""
        columns = batch.columns
        keys = [columns[i] for i in self._layout.key_positions]
        self._sink.write([*keys, *columns])
        self._key_stats.add(keys)
        self._value_stats.add(columns[len(SYSTEM_FIELDS) :])
        sequences = columns[0].to_numpy()
        kinds = columns[1].to_numpy()
        self._sequences.append((int(sequences.min()), int(sequences.max())))
        self._deletes += int(np.isin(kinds, _RETRACTING).sum())
        if self._rows == 0:
            self._min_key = self._layout.key_of(batch, 0)
        self._max_key = self._layout.key_of(batch, batch.num_rows - 1)
        self._rows += batch.num_rows

    def finish(self) -> DataFileMeta:
        """Make the file durable and describe it."""
        try:
            self._sink.close()
            size = self._sink.size
        except BaseException:
            self.discard()
            raise
        self._context.__exit__(None, None, None)
        value_stats, value_names = self._value_stats_parts()
        return DataFileMeta(
            file_name=self._name,
            file_size=size,
            row_count=self._rows,
            min_key=self._min_key,
            max_key=self._max_key,
            key_stats=self._key_stats.stats() if self._layout.key_positions else EMPTY_STATS,
            value_stats=value_stats,
            min_sequence_number=min(low for low, _ in self._sequences),
            max_sequence_number=max(high for _, high in self._sequences),
            schema_id=self._layout.schema.id,
            level=0,
            delete_row_count=self._deletes,
            value_stats_cols=value_names,
        )

    def discard(self) -> None:
        """Leave the output as after a failure, which removes the file."""
        with contextlib.suppress(_DiscardedError):
            error = _DiscardedError("the file is not wanted any more")
            self._context.__exit__(_DiscardedError, error, None)

    def _value_stats_parts(self) -> tuple[SimpleStats, tuple[str, ...] | None]:
        if self._layout.options.dense_stats:
            return self._value_stats.dense_stats()
        return self._value_stats.stats(), None


class _DiscardedError(Exception):
    """Leaves an output context so that the file is removed."""
