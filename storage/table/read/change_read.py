# SPDX-License-Identifier: Apache-2.0
"""From a split of changes to rows with their kinds.

Source: SEMANTICS.md §C.8, §C.9. Changelog files and added files are read one by one without
merging. Merged rows go through the merge engine as in a batch read. The filter is applied to the
changes, so of an update only one half may stay.
"""

import concurrent.futures
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.files.data_file import read_key_values, read_rows
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.types.default_values import fill_defaults, read_defaults
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.changelog.state_diff import later_images, side_by_side
from storage.lsm.levels import SortedRun, sections
from storage.lsm.merge import merge_runs
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.fold import naming_table
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.upper_rows import merge_inputs
from storage.options.options import require_readable
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, selections
from storage.table.read.lost_files import judging_losses
from storage.table.scan.change_plan import ChangeForm, ChangeSplit
from storage.table.scan.predicate import Predicate, columns_of, mask

__all__ = ["ChangeRead", "additions", "merged_rows"]

_MAX_THREADS = 8
"""Splits read at once, as in `read`."""

_SYSTEM_FIELDS = {
    VALUE_KIND: pa.field(VALUE_KIND, pa.int8(), nullable=False),
    SEQUENCE_NUMBER: pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False),
}

_Vectors = Iterable[tuple[str, DeletionFile]]


class ChangeRead:
    """Reads splits of changes. Picklable if the table is; safe for several threads.

    Args:
        table: the table; rows are given in its schema.
        columns: columns wanted, in the order wanted; None = all.
        predicate: rows wanted; None = all.
        sequence_numbers: of a table with a primary key, also give `_SEQUENCE_NUMBER`.

    Raises:
        InvalidRequestError: a column is unknown.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
    """

    def __init__(
        self,
        table: TableCore,
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        sequence_numbers: bool = False,
    ) -> None:
        require_readable(table.options)
        names = table.schema.field_names
        self._table = table
        self._columns = tuple(names if columns is None else columns)
        self._predicate = predicate
        numbered = sequence_numbers and bool(table.schema.primary_keys)
        self._system = (VALUE_KIND, SEQUENCE_NUMBER) if numbered else (VALUE_KIND,)
        self._defaults = read_defaults(table.schema)
        needed = {*self._columns, *(() if predicate is None else columns_of(predicate))}
        unknown = needed - set(names)
        if unknown:
            raise InvalidRequestError(
                "no such column",
                hint=f"the table has {', '.join(names)}",
                column=sorted(unknown)[0],
            )
        self._needed = tuple(name for name in names if name in needed) or tuple(names[:1])

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches: `_VALUE_KIND` (int8), then the columns.

        The sequence number (int64) stands between them where it is asked for.
        """
        whole = self._table.schema.arrow_schema
        system = [_SYSTEM_FIELDS[name] for name in self._system]
        return pa.schema([*system, *(whole.field(name) for name in self._columns)])

    def to_batches(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        """The changes of one split, those of one key in the order in which they happened.

        Yields:
            Non-empty batches of `schema`.

        Raises:
            CorruptDataError: a file violates the format, or is missing of the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        with judging_losses(self._table, split.snapshot_id):
            for batch in self._batches(split):
                wanted = self._finish(batch)
                if wanted.num_rows:
                    yield wanted

    def to_table(self, splits: Sequence[ChangeSplit]) -> pa.Table:
        """The changes of several splits, splits in order; several are read at once."""
        threads = min(len(splits), _MAX_THREADS, os.cpu_count() or 1)
        if threads <= 1:
            parts = [list(self.to_batches(split)) for split in splits]
        else:
            with concurrent.futures.ThreadPoolExecutor(threads, "changes") as pool:
                parts = list(pool.map(lambda split: list(self.to_batches(split)), splits))
        return pa.Table.from_batches([b for part in parts for b in part], schema=self.schema)

    def _batches(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        if split.form is ChangeForm.STORED or self._table.key_of is None:
            left = selections(self._table.file_io, split.vectors)
            for file in split.files:
                yield from self._stored(split, file, left.get(file.file_name))
            return
        if split.form is ChangeForm.REPLACED:
            for batch in merged_rows(self._table, split, split.before, split.before_vectors):
                yield _of_kind(batch, RowKind.DELETE)
            for batch in merged_rows(self._table, split, split.files, split.vectors):
                yield _of_kind(batch, RowKind.INSERT)
            return
        yield from side_by_side(
            merged_rows(self._table, split, split.before, split.before_vectors),
            merged_rows(self._table, split, split.files, split.vectors),
            self._table.schema.trimmed_primary_keys,
            later_images,
        )

    def _stored(
        self, split: ChangeSplit, file: DataFileMeta, selection: RowSelection | None
    ) -> Iterator[pa.RecordBatch]:
        table = self._table
        path, file_schema = _path(table, split, file), table.schemas.read(file.schema_id)
        if table.key_of is not None:
            yield from read_key_values(
                table.file_io,
                path,
                file,
                file_schema,
                table.schema,
                self._needed,
                selection=selection,
            )
            return
        rows = read_rows(
            table.file_io, path, file, file_schema, table.schema, self._needed, selection=selection
        )
        for batch in rows:
            kinds = pa.array(np.full(batch.num_rows, RowKind.INSERT, dtype=np.int8))
            yield batch.append_column(VALUE_KIND, kinds)

    def _finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = fill_defaults(batch, self._defaults)
        if self._predicate is not None:
            batch = batch.filter(mask(self._predicate, batch))
        columns = batch.select([*self._system, *self._columns]).columns
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def merged_rows(
    table: TableCore,
    split: ChangeSplit,
    files: Sequence[DataFileMeta],
    vectors: _Vectors,
    *,
    keep_retractions: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The rows that files of one bucket of a primary-key table merge to.

    Args:
        table: the table.
        split: says which bucket; its own files do not matter.
        files: of that bucket, in any order.
        vectors: where their deletion vectors lie.
        keep_retractions: also give keys whose row is a retraction.

    Yields:
        KeyValueBatches with all columns, strictly ascending by key.

    Raises: as `TableRead.to_batches`, but for what a missing file means.
    """
    if table.key_of is None:
        return
    left = selections(table.file_io, vectors)
    keys = table.schema.trimmed_primary_keys
    function = merge_function_for(table.options, table.schema)

    def read(run: SortedRun) -> Iterator[pa.RecordBatch]:
        return _key_values(table, split, run, left)

    with naming_table(table.layout.root):
        for section in sections(files, table.key_of):
            if len(section) > 1:
                runs = merge_inputs(section, read, keys, table.options)
                yield from merge_runs(runs, keys, function, drop_retractions=not keep_retractions)
            elif keep_retractions:
                yield from read(section[0])
            else:
                yield from filter(len, map(additions, read(section[0])))


def additions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the rows of kind -U and -D."""
    stays = ~retractions(batch.column(VALUE_KIND).to_numpy(zero_copy_only=False))
    return batch if stays.all() else batch.filter(pa.array(stays))


def _key_values(
    table: TableCore, split: ChangeSplit, run: SortedRun, left: Mapping[str, RowSelection]
) -> Iterator[pa.RecordBatch]:
    for file in run.files:
        yield from read_key_values(
            table.file_io,
            _path(table, split, file),
            file,
            table.schemas.read(file.schema_id),
            table.schema,
            table.schema.field_names,
            selection=left.get(file.file_name),
        )


def _path(table: TableCore, split: ChangeSplit, file: DataFileMeta) -> str:
    if file.external_path is not None:
        return file.external_path
    return table.layout.data_file(split.partition_path, split.bucket, file.file_name)


def _of_kind(batch: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    place = batch.schema.get_field_index(VALUE_KIND)
    kinds = pa.array(np.full(batch.num_rows, kind.value, dtype=np.int8))
    return batch.set_column(place, batch.schema.field(place), kinds)
