# SPDX-License-Identifier: Apache-2.0
"""From a split to rows: raw where a section is one run, merged elsewhere.

Source: SEMANTICS.md §D.8. Columns that neither the caller nor the filter needs are not read; a
merge needs the key columns and sequence fields besides, and merge engines that make a row of
several need every column, since a value may depend on another. The filter is applied after
merging, except in sections of one run, where no other version of a row exists. Row groups are
left out by the same rule that `scan` applies to files: by key conditions anywhere, by value
conditions in sections of one run. Rows that deletion vectors mark are left out before anything
else.
"""

import concurrent.futures
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.files.column_mapping import keeps_values
from storage.format.files.data_file import read_key_values, read_rows
from storage.format.files.parquet.parquet import ColumnRange, RowGroupFilter
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.types.arrow_types import arrow_type
from storage.format.types.default_values import fill_defaults, read_defaults
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, AtomicType, RowKind, TypeRoot
from storage.lsm.levels import Section, SortedRun
from storage.lsm.merge import MERGE_WINDOW_BYTES, merge_runs
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.fold import naming_table
from storage.lsm.upper_rows import merge_inputs
from storage.options.options import require_readable
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import selections
from storage.table.read.lost_files import judging_losses
from storage.table.scan.file_index import FileIndexFilter
from storage.table.scan.predicate import And, Predicate, columns_of, conjuncts, mask
from storage.table.scan.prune import Range, could_match
from storage.table.scan.scan import Plan, Split

__all__ = ["TableRead"]

_MAX_THREADS = 8
"""Splits read at once: more than the cores of a small executor only fight for memory."""

_BATCH_ROWS = (1_024, 131_072)
_WITH_ROW_GROUP_RANGES = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.CHAR, TypeRoot.VARCHAR),
    }
)
"""Types whose row group statistics have the form of decoded rows."""

_SYSTEM_FIELDS = {
    SEQUENCE_NUMBER: pa.field(SEQUENCE_NUMBER, pa.int64(), nullable=False),
    VALUE_KIND: pa.field(VALUE_KIND, pa.int8(), nullable=False),
}

_Left = Mapping[str, RowSelection]
"""Rows that deletion vectors leave, by data file name; files without a vector are not in it."""

_UNPACKED = 4
"""How much larger rows are in Arrow than in a zstd file (measured 3.2 to 3.6)."""


class TableRead:
    """Reads splits of a table. Picklable if the table is; safe for several threads.

    Args:
        table: the table; rows are given in its schema.
        columns: columns wanted, in the order wanted; None = all.
        predicate: rows wanted; None = all.
        kinds: also give keys that are retracted, and the kind of each row, and of a table with
            a primary key its sequence number, as further columns `_SEQUENCE_NUMBER` and
            `_VALUE_KIND`.

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
        kinds: bool = False,
    ) -> None:
        require_readable(table.options)
        schema = table.schema
        self._table = table
        self._columns = tuple(schema.field_names if columns is None else columns)
        self._kinds: tuple[str, ...] = ()
        if kinds:
            self._kinds = (SEQUENCE_NUMBER, VALUE_KIND) if schema.primary_keys else (VALUE_KIND,)
        self._predicate = predicate
        self._defaults = read_defaults(schema)
        pushed = [p for p in conjuncts(predicate) if not columns_of(p) & self._defaults.keys()]
        self._index = FileIndexFilter(table, And(tuple(pushed)) if pushed else None)
        filtered = columns_of(predicate) if predicate is not None else frozenset()
        unknown = (filtered | set(self._columns)) - set(schema.field_names)
        if unknown:
            raise InvalidRequestError(
                "no such column",
                hint=f"the table has {', '.join(schema.field_names)}",
                column=sorted(unknown)[0],
            )
        self._types = {
            field.name: arrow_type(field.type)
            for field in schema.fields
            if isinstance(field.type, AtomicType) and field.type.root in _WITH_ROW_GROUP_RANGES
        }
        ranged = [part for part in pushed if columns_of(part) <= set(self._types)]
        keys = set(schema.trimmed_primary_keys if schema.primary_keys else ())
        self._key_conditions = tuple(p for p in conjuncts(predicate) if columns_of(p) <= keys)
        self._raw_parts = tuple(ranged)
        self._merge_parts = tuple(part for part in ranged if columns_of(part) <= keys)
        needed = filtered | set(self._columns)
        self._raw_columns = tuple(name for name in schema.field_names if name in needed)
        self._merge_columns = self._raw_columns
        if schema.primary_keys:
            keeps_one = table.options.merge_engine in ("deduplicate", "first-row")
            needed |= set(schema.trimmed_primary_keys) | set(table.options.sequence_field)
            self._merge_columns = tuple(
                name for name in schema.field_names if name in needed or not keeps_one
            )

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        whole = self._table.schema.arrow_schema
        fields = [whole.field(name) for name in self._columns]
        return pa.schema([*fields, *(_SYSTEM_FIELDS[name] for name in self._kinds)])

    def to_batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Rows of one split: merged, without deleted ones, filtered, projected.

        Yields:
            Non-empty value batches; on a primary-key table ascending by key.

        Raises:
            CorruptDataError: a file violates the format, or is missing of the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        with judging_losses(self._table, split.snapshot_id):
            yield from self._batches(split)

    def _batches(self, split: Split) -> Iterator[pa.RecordBatch]:
        left = selections(self._table.file_io, split.deletion_vectors)
        for section in split.sections:
            if len(section) == 1:
                batches = self._raw(split, section[0], left)
            else:
                batches = self._merged(split, section, left)
            for batch in batches:
                wanted = self._finish(batch)
                if wanted.num_rows:
                    yield wanted

    def to_table(self, plan: Plan) -> pa.Table:
        """All rows of a plan, splits in order; several splits are read at once."""
        splits = plan.splits
        threads = min(len(splits), _MAX_THREADS, os.cpu_count() or 1)
        if threads <= 1:
            parts = [list(self.to_batches(split)) for split in splits]
        else:
            with concurrent.futures.ThreadPoolExecutor(threads, "read") as pool:
                parts = list(pool.map(lambda split: list(self.to_batches(split)), splits))
        return pa.Table.from_batches([b for part in parts for b in part], schema=self.schema)

    def _finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = fill_defaults(batch, self._defaults)
        if self._predicate is not None:
            batch = batch.filter(mask(self._predicate, batch))
        if self._kinds and VALUE_KIND not in batch.schema.names:
            added = pa.array(np.full(batch.num_rows, RowKind.INSERT, np.int8))
            batch = batch.append_column(_SYSTEM_FIELDS[VALUE_KIND], added)
        if batch.num_columns == 0 and not self._columns:
            return batch
        return batch.select([*self._columns, *self._kinds])

    def _raw(self, split: Split, run: SortedRun, left: _Left) -> Iterator[pa.RecordBatch]:
        for file in run.files:
            selection = left.get(file.file_name)
            selection = self._index.narrowed(selection, self._path(split, file), file)
            if selection is not None and selection.empty(0, file.row_count):
                continue
            plain = file.delete_row_count == 0 and not self._kinds
            if self._table.key_of is None or plain:
                yield from self._read_rows(split, file, selection)
            else:
                keep = self._row_groups(file, self._raw_parts)
                columns = self._raw_columns
                for batch in self._read_key_values(split, file, columns, None, keep, selection):
                    yield batch if self._kinds else _additions(batch)

    def _merged(self, split: Split, section: Section, left: _Left) -> Iterator[pa.RecordBatch]:
        table = self._table
        share = MERGE_WINDOW_BYTES // len(section)
        keys = table.schema.trimmed_primary_keys

        def read(run: SortedRun) -> Iterator[pa.RecordBatch]:
            return self._run(split, run, share, left)

        with naming_table(table.layout.root):
            yield from merge_runs(
                merge_inputs(section, read, keys, table.options),
                keys,
                merge_function_for(table.options, table.schema),
                drop_retractions=not self._kinds,
            )

    def _run(
        self, split: Split, run: SortedRun, batch_bytes: int, left: _Left
    ) -> Iterator[pa.RecordBatch]:
        columns = self._merge_columns
        for file in run.files:
            keep = self._row_groups(file, self._merge_parts)
            selection = left.get(file.file_name)
            for batch in self._read_key_values(split, file, columns, batch_bytes, keep, selection):
                yield self._of_wanted_keys(batch)

    def _of_wanted_keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that key conditions leave; all versions of a key share its fate."""
        for part in self._key_conditions:
            batch = batch.filter(mask(part, batch))
        return batch

    def _path(self, split: Split, file: DataFileMeta) -> str:
        if file.external_path is not None:
            return file.external_path
        return self._table.layout.data_file(split.partition_path, split.bucket, file.file_name)

    def _read_rows(
        self, split: Split, file: DataFileMeta, selection: RowSelection | None
    ) -> Iterator[pa.RecordBatch]:
        return read_rows(
            self._table.file_io,
            self._path(split, file),
            file,
            self._table.schemas.read(file.schema_id),
            self._table.schema,
            self._raw_columns,
            batch_rows=_BATCH_ROWS[1],
            keep_row_group=self._row_groups(file, self._raw_parts),
            selection=selection,
        )

    def _read_key_values(
        self,
        split: Split,
        file: DataFileMeta,
        columns: Sequence[str],
        batch_bytes: int | None,
        keep_row_group: RowGroupFilter | None,
        selection: RowSelection | None,
    ) -> Iterator[pa.RecordBatch]:
        least, rows = _BATCH_ROWS
        if batch_bytes is not None:
            share = len(columns) / max(1, len(self._table.schema.fields))
            row_bytes = max(1, file.file_size * _UNPACKED * share / max(1, file.row_count))
            rows = min(rows, max(least, int(batch_bytes / row_bytes)))
        return read_key_values(
            self._table.file_io,
            self._path(split, file),
            file,
            self._table.schemas.read(file.schema_id),
            self._table.schema,
            columns,
            batch_rows=rows,
            keep_row_group=keep_row_group,
            selection=selection,
        )

    def _row_groups(self, file: DataFileMeta, parts: Sequence[Predicate]) -> RowGroupFilter | None:
        """Which row groups of a file may hold a row that makes all parts true."""
        if not parts:
            return None
        schema, file_schema = self._table.schema, self._table.schemas.read(file.schema_id)
        old = {field.id: field for field in file_schema.fields}

        def keep(stored: Mapping[str, ColumnRange]) -> bool:
            def ranges(name: str) -> Range | None:
                field = schema.field(name)
                source = old.get(field.id)
                if source is None or not keeps_values(source.type, field.type):
                    return None
                found = stored.get(source.name)
                if found is None or not isinstance(found.minimum, int | str):
                    return None
                return Range(
                    low=found.minimum,
                    high=found.maximum,
                    null_count=found.null_count,
                    row_count=found.row_count,
                )

            return all(could_match(part, ranges, self._types) for part in parts)

        return keep


def _additions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the kinds that batch reads show."""
    kinds = batch.column(VALUE_KIND).to_numpy()
    adds = np.isin(kinds, (RowKind.INSERT, RowKind.UPDATE_AFTER))
    return batch if adds.all() else batch.filter(pa.array(adds))
