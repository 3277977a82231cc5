# SPDX-License-Identifier: Apache-2.0
"""The environment of one bucket's merge tree, and how it opens and reads its data files.

The only module of `lsm` that knows how `format.data_file` is called.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.clock import Clock, IdSource
from storage.format.files.data_file import DataFileOptions, KeyValueFileWriter, read_key_values
from storage.format.files.row_selection import Bitmap, Except, RowSelection
from storage.format.metadata.file_meta import DataFileMeta, FileSource, IndexFileMeta
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema import TableSchema
from storage.format.row.row_codec import decode_row, from_row_values
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.io.file_io import FileIO
from storage.lsm.key_order import key_decoder
from storage.lsm.levels import KeyOf, SortedRun
from storage.options.options import TableOptions

# What a lookup compaction asks about the levels above its output.
#
# The compaction knows only these ports; `bucket_lookup` answers from local copies of the data
# files, and the table gives the deletion vectors of the bucket.


@dataclasses.dataclass(frozen=True, slots=True)
class LookupResult:
    """Rows found for some of the keys that were asked for.

    Attributes:
        keys: int64 numbers of the keys with a row, ascending.
        rows: their rows in the same order, as a KeyValueBatch in today's schema; None when values
            were not asked for.
        file_of: int32 position in `files` of each found row.
        positions: int64 physical row number in that file of each found row.
    """

    keys: npt.NDArray[np.int64]
    rows: pa.RecordBatch | None
    files: tuple[DataFileMeta, ...]
    file_of: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int64]


class KeyLookup(Protocol):
    """Finds rows of keys in sorted runs of one bucket."""

    def find(
        self, keys: pa.RecordBatch, runs: Sequence[SortedRun], *, values: bool = True
    ) -> LookupResult:
        """The rows of keys, each from the first run that has one.

        Args:
            keys: the key columns in key order, strictly ascending by key.
            runs: runs of levels above 0, the lowest level first.
            values: whether the rows are wanted, or only where they are.

        Returns:
            Rows that are marked as deleted are not found. A row may be a retraction.

        Raises:
            StorageUnavailableError: a file could not be read.
            CorruptDataError: a file violates the format.
        """

    def release(self, files: Iterable[DataFileMeta]) -> None:
        """A compaction has replaced these files: what is kept of them is not worth its room."""


class DeletedRows(Protocol):
    """The deletion vectors of one bucket, being changed."""

    def vector_of(self, data_file: str) -> Bitmap | None:
        """The deleted rows of a data file; not to be changed."""

    def mark(self, data_file: str, positions: npt.NDArray[np.integer] | Iterable[int]) -> int:
        """Mark rows of a data file as deleted; how many were not."""

    def drop(self, data_file: str) -> None:
        """Forget the vector of a data file that leaves the table."""

    def changes(self) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Write what changed since the last call: the new index files, and those they replace.

        The changes count as taken: the next call gives only later ones.
        """


_MILLIS_FROM = 1_000_000_000_000
"""A BIGINT from here on counts milliseconds, below it seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class RowExpiry:
    """Which rows are too old.

    Attributes:
        field: column with the time of a row: seconds (INT, BIGINT), milliseconds (large BIGINT),
            or a timestamp. A row without a time stays.
        age_s: greatest age of a row [s].
    """

    field: DataField
    age_s: int

    @staticmethod
    def of(options: TableOptions, schema: TableSchema) -> "RowExpiry | None":
        """The expiry of a table; None where rows stay."""
        age_ms, name = options.record_level_expire_time_ms, options.record_level_time_field
        if age_ms is None or not name:
            return None
        return RowExpiry(schema.field(name), age_ms // 1000)

    def unexpired(self, batch: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
        """The rows that stay."""
        stays = ~self._expired(batch.column(self.field.name), now_ms)
        return batch if stays.all() else batch.filter(pa.array(stays))

    def touches(self, file: DataFileMeta, file_schema: TableSchema, now_ms: int) -> bool:
        """Whether the statistics of a file show a row that is too old."""
        names = file.value_stats_cols
        if names is None:
            names = file_schema.field_names if file.write_cols is None else file.write_cols
        fields = [file_schema.field(name) for name in names]
        position = next((at for at, field in enumerate(fields) if field.id == self.field.id), None)
        stats = file.value_stats
        if position is None or len(stats.null_counts) != len(fields):
            return False
        column = fields[position]
        if not isinstance(column.type, AtomicType) or column.type.root != _root(self.field):
            return False
        oldest = decode_row(stats.min_values, [field.type for field in fields])[position]
        return bool(self._expired(from_row_values([oldest], column.type), now_ms)[0])

    def _expired(self, times: pa.Array, now_ms: int) -> npt.NDArray[np.bool_]:
        valid = pc.is_valid(times).to_numpy(zero_copy_only=False)
        return valid & (now_ms // 1000 - self.age_s > _seconds(times))


def _root(field: DataField) -> TypeRoot | None:
    return field.type.root if isinstance(field.type, AtomicType) else None


def _seconds(times: pa.Array) -> npt.NDArray[np.int64]:
    is_timestamp = pa.types.is_timestamp(times.type)
    if is_timestamp:
        times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
    values: npt.NDArray[np.int64] = (
        times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    )
    return np.where(is_timestamp | (values >= _MILLIS_FROM), values // 1000, values)


_BATCH_ROWS = (1_024, 131_072)
"""Fewest and most rows of one batch read for a merge; above, a batch costs more than it saves."""

_UNPACKED = 4
"""How much larger rows are in Arrow than in a zstd file; PEERS.md §4 measured 3.2 to 3.6."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketContext:
    """One bucket of one partition, and the ports its writer needs.

    Attributes:
        schema: rows are written as this schema says.
        options: of the schema, already accepted by `options.require_writable`.
        partition: framed BinaryRow of the partition keys.
        partition_path: directory part of the partition, empty when unpartitioned.
        schemas: reads a schema by id, for files older than `schema`.
        lookup: finds older rows; None where the table needs none.
        deletions: deletion vectors of the bucket; None where the table has none.
        in_memory: rows of files that were just written, by name: they are not read again.
    """

    file_io: FileIO
    layout: TableLayout
    schema: TableSchema
    options: TableOptions
    partition: bytes
    partition_path: str
    bucket: int
    schemas: Callable[[int], TableSchema]
    clock: Clock
    id_source: IdSource
    lookup: KeyLookup | None = None
    deletions: DeletedRows | None = None
    in_memory: Mapping[str, pa.RecordBatch] = dataclasses.field(default_factory=dict)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Key columns in key order."""
        return tuple(self.schema.trimmed_primary_keys)

    @property
    def key_of(self) -> KeyOf:
        """Comparable form of a framed key of this table."""
        return key_decoder(tuple(field.type for field in self.schema.key_fields))

    @property
    def directory(self) -> str:
        """Directory of the data files."""
        return self.layout.bucket_dir(self.partition_path, self.bucket)

    def path_of(self, file: DataFileMeta) -> str:
        """Path of a data file of this bucket."""
        return self.layout.data_file(self.partition_path, self.bucket, file.file_name)

    def open_writer(self, level: int, source: FileSource) -> KeyValueFileWriter:
        """A writer of rolling data files at a level."""
        return self._writer(level, source, changelog=False)

    def open_changelog_writer(self, level: int) -> KeyValueFileWriter:
        """A writer of rolling changelog files.

        `level` is that of the data files that are written along; 0 for those of a flush.
        """
        return self._writer(level, FileSource.APPEND, changelog=True)

    def _writer(self, level: int, source: FileSource, *, changelog: bool) -> KeyValueFileWriter:
        return KeyValueFileWriter(
            self.file_io,
            self.directory,
            self.schema,
            id_source=self.id_source,
            clock=self.clock,
            options=DataFileOptions.of(self.options, level=level, changelog=changelog),
            level=level,
            source=source,
        )

    def read_run(
        self, files: Sequence[DataFileMeta], *, batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """KeyValueBatches of files that follow one another in key order, in today's schema.

        Rows that a deletion vector marks are left out, and those that are too old for the table.

        Args:
            files: one sorted run.
            batch_bytes: Arrow memory of one batch, roughly [bytes].
        """
        expiry = RowExpiry.of(self.options, self.schema)
        for file in files:
            row_bytes = max(1, file.file_size * _UNPACKED // max(1, file.row_count))
            batch_rows = int(np.clip(batch_bytes // row_bytes, *_BATCH_ROWS))
            selection = self._undeleted(file)
            rows = self.in_memory.get(file.file_name) if selection is None else None
            batches = (
                (rows.slice(at, batch_rows) for at in range(0, len(rows), batch_rows))
                if rows is not None
                else read_key_values(
                    self.file_io,
                    self.path_of(file),
                    file,
                    self.schemas(file.schema_id),
                    self.schema,
                    None,
                    batch_rows=batch_rows,
                    selection=selection,
                )
            )
            if expiry is None:
                yield from batches
            else:
                now_ms = self.clock.now_ms()
                yield from (expiry.unexpired(batch, now_ms) for batch in batches)

    def expires_rows(self, file: DataFileMeta) -> bool:
        """Whether compaction would leave out a row of a file for its age, by the statistics."""
        expiry = RowExpiry.of(self.options, self.schema)
        if expiry is None:
            return False
        return expiry.touches(file, self.schemas(file.schema_id), self.clock.now_ms())

    def _undeleted(self, file: DataFileMeta) -> RowSelection | None:
        vector = None if self.deletions is None else self.deletions.vector_of(file.file_name)
        return None if vector is None else Except(vector)

    def delete_files(self, files: Iterable[DataFileMeta]) -> None:
        """Remove unreferenced data files; one that cannot be removed is left as an orphan."""
        paths = []
        for file in files:
            path = self.path_of(file)
            beside = path.rpartition("/")[0]
            paths += [path, *(f"{beside}/{name}" for name in file.extra_files)]
        self.file_io.delete_many(paths)
