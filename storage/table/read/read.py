# SPDX-License-Identifier: Apache-2.0
"""From a split to rows: raw where a section is one run, merged elsewhere.

Source: SEMANTICS.md §D.8. Columns that neither the caller nor the filter needs are not read; a
merge needs the key columns and sequence fields besides, and merge engines that combine several
rows need every column, since a value may depend on another. The filter is applied after
merging, except in sections of one run, where no other version of a row exists. Row groups are
left out by the same rule that `scan` applies to files: by key conditions anywhere, by value
conditions in sections of one run. Rows that deletion vectors mark are left out before anything
else.

Splits of changes (SEMANTICS.md §C.8, §C.9): changelog files and added files are read one by one
without merging. Where states are compared or replaced, each is merged as in a batch read, whole.
The filter is applied to the changes, so only one half of an update may pass it.
"""

import concurrent.futures
import dataclasses
import functools
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.files.data_file import SYSTEM_FIELDS, read_rows
from storage.format.files.file_columns import keeps_values
from storage.format.files.file_formats import format_of
from storage.format.files.parquet import ColumnRange, RowGroupFilter, readable_in_place
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.types.default_values import fill_defaults, read_defaults
from storage.format.types.types import (
    SEQUENCE_NUMBER,
    VALUE_KIND,
    AtomicType,
    DataField,
    RowKind,
    TypeRoot,
    arrow_field,
    arrow_type,
)
from storage.lsm.changelog import later_images, merge_inputs, side_by_side
from storage.lsm.levels import Section, SortedRun, sections
from storage.lsm.merge import MERGE_WINDOW_BYTES, merge_runs
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.segments import naming_table
from storage.lsm.merge_functions.segments import retractions as are_retractions
from storage.options.options import require_readable
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, selections
from storage.table.read.missing_files import explain_missing_files
from storage.table.scan.file_index import FileIndexFilter
from storage.table.scan.predicate import (
    And,
    Predicate,
    Range,
    columns_of,
    conjuncts,
    could_match,
    mask,
    require_known,
    row_group_range,
)
from storage.table.scan.scan import ChangeForm, ChangeSplit, Plan, Split

_T = TypeVar("_T")

_MAX_THREADS = 8
"""Splits read at once: more than the cores of a small executor only fight for memory."""

_POLL_S = 0.1
"""How often a reader whose queue is full checks whether the consumer has stopped."""

_BATCH_ROWS = (1_024, 131_072)
_WILDCARDS = frozenset("*?[")
"""Engines take a path with these for a pattern."""

_WITH_ROW_GROUP_RANGES = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.CHAR, TypeRoot.VARCHAR),
    }
)
"""Types whose row group statistics have the form of decoded rows."""

_TEXTS = pa.dictionary(pa.int32(), pa.string())

_Selections = Mapping[str, RowSelection]
"""Rows that deletion vectors leave, by data file name; files without a vector are not in it."""

_UNPACKED = 4
"""How much larger rows are in Arrow than in a zstd file (measured 3.2 to 3.6)."""


@dataclasses.dataclass(frozen=True, slots=True)
class _PushDown:
    """What is pushed down to the file readers: columns, and conditions on row groups."""

    columns: tuple[str, ...]
    conditions: tuple[Predicate, ...] = ()


class TableRead:
    """Reads splits of states and of changes. Picklable if the table is; safe for several threads.

    Args:
        table: the table; rows are given in its schema.
        columns: columns wanted, in the order wanted; None = all.
        predicate: rows wanted; None = all. Of an update only one half may be among them.
        kinds: give the kind of each row as a column `_VALUE_KIND` before the others: of changes
            their kinds, of a state +I. Without, only the rows that changes add are given.
        sequence_numbers: of a table with a primary key, give `_SEQUENCE_NUMBER` after the kind.
        retractions: of a state, give the kinds as they are stored, and retracted keys, too.
        filtered: False: the predicate chooses files and row groups only, and the caller filters.
        dictionaries: columns of text that are given as dictionaries; only where not `filtered`.

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
        sequence_numbers: bool = False,
        retractions: bool = False,
        filtered: bool = True,
        dictionaries: Collection[str] = (),
    ) -> None:
        require_readable(table.options)
        schema = table.schema
        self._table = table
        self._columns = tuple(schema.field_names if columns is None else columns)
        self._retractions = retractions
        self._numbered = sequence_numbers and bool(schema.primary_keys)
        self._by_arrival = False
        self._kinds: tuple[str, ...] = ()
        if kinds or sequence_numbers or retractions:
            self._kinds = (VALUE_KIND, SEQUENCE_NUMBER) if self._numbered else (VALUE_KIND,)
        self._filter = predicate if filtered else None
        self._dictionaries = frozenset(dictionaries)
        self._defaults = read_defaults(schema)
        pushed = [p for p in conjuncts(predicate) if not columns_of(p) & self._defaults.keys()]
        self._index = FileIndexFilter(table, And(tuple(pushed)) if pushed else None)
        require_known(sorted(columns_of(predicate) | set(self._columns)), schema.field_names)
        self._types = {
            field.name: arrow_type(field.type)
            for field in schema.fields
            if isinstance(field.type, AtomicType) and field.type.root in _WITH_ROW_GROUP_RANGES
        }
        ranged = [part for part in pushed if columns_of(part) <= set(self._types)]
        keys = set(schema.trimmed_primary_keys if schema.primary_keys else ())
        self._key_conditions = tuple(p for p in conjuncts(predicate) if columns_of(p) <= keys)
        key_ranged = tuple(part for part in ranged if columns_of(part) <= keys)
        needed = columns_of(self._filter) | set(self._columns)
        raw_columns = tuple(name for name in schema.field_names if name in needed)
        merge_columns = raw_columns
        if schema.primary_keys:
            keeps_one = table.options.merge_engine in ("deduplicate", "first-row")
            self._by_arrival = keeps_one and not (table.options.sequence_field or self._numbered)
            needed |= set(schema.trimmed_primary_keys) | set(table.options.sequence_field)
            merge_columns = tuple(
                name for name in schema.field_names if name in needed or not keeps_one
            )
        self._raw_push = _PushDown(raw_columns, tuple(ranged))
        self._merge_push = _PushDown(merge_columns, key_ranged)
        self._no_push = _PushDown(tuple(schema.field_names))

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        whole = self._table.schema.arrow_schema
        system = [arrow_field(f) for f in reversed(SYSTEM_FIELDS) if f.name in self._kinds]
        fields = [whole.field(name) for name in self._columns]
        fields = [f.with_type(_TEXTS) if f.name in self._dictionaries else f for f in fields]
        return pa.schema([*system, *fields])

    def to_batches(self, split: Split | ChangeSplit) -> Iterator[pa.RecordBatch]:
        """Rows of one split: merged, without deleted ones, filtered, projected.

        Yields:
            Non-empty batches of `schema`; of a state of a primary-key table ascending by key, of
            changes those of one key in the order in which they happened.

        Raises:
            CorruptDataError: a file violates the format, or is missing of the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        if isinstance(split, Split):
            batches, inserts = self._state(split), not self._retractions
        else:
            batches, inserts = self._changes(split), False
        with explain_missing_files(self._table, split.snapshot_id):
            for batch in batches:
                rows = self._finish(batch, inserts=inserts)
                if rows.num_rows:
                    yield rows

    def in_place(self, split: Split) -> list[str] | None:
        """Paths of files whose rows are those of a split as they are stored.

        Returns:
            None where rows must be merged, left out or converted, or are not in local Parquet
            files; a filter may still be needed.

        Raises:
            CorruptDataError: a file is damaged.
            FileNotFoundError: a file is missing.
        """
        if not split.raw or split.fallback or split.deletion_vectors:
            return None
        paths = [self._in_place(split, file) for file in split.files]
        return None if None in paths else [path for path in paths if path]

    def _in_place(self, split: Split, file: DataFileMeta) -> str | None:
        table, stored_path = self._table, self._path(split, file)
        path = table.file_io.local_path(stored_path)
        if path is None or set(path) & _WILDCARDS or format_of(path) != "parquet":
            return None
        if (table.key_of is not None and file.delete_row_count != 0) or file.write_cols is not None:
            return None
        if not self._columns or self._defaults.keys() & set(self._columns):
            return None
        stored = {field.id: field for field in table.schemas.read(file.schema_id).fields}
        fields = [table.schema.field(name) for name in self._columns]
        for field in fields:
            old = stored.get(field.id)
            if old is None or old.name != field.name or not keeps_values(old.type, field.type):
                return None
        if self._index.narrowed(None, stored_path, file) is not None:
            return None
        ready = readable_in_place(
            table.file_io,
            stored_path,
            fields,
            file_size=file.file_size,
            row_count=file.row_count,
            keep_row_group=self._row_groups(file, self._raw_push.conditions),
        )
        return path if ready else None

    def to_table(self, plan: Plan | Sequence[Split | ChangeSplit]) -> pa.Table:
        """All rows of some splits, splits in order; several splits are read at once."""
        splits = plan.splits if isinstance(plan, Plan) else plan
        sources = [functools.partial(self.to_batches, split) for split in splits]
        return pa.Table.from_batches(read_ahead(sources, waiting=0), schema=self.schema)

    def _finish(self, batch: pa.RecordBatch, *, inserts: bool) -> pa.RecordBatch:
        """The wanted rows and columns; `inserts`: all are of kind +I."""
        batch = fill_defaults(batch, self._defaults)
        if self._filter is not None:
            batch = batch.filter(mask(self._filter, batch))
        if not self._kinds:
            rows = batch.select(self._columns) if batch.num_columns else batch
            return self._with_dictionaries(rows) if self._dictionaries else rows
        columns = [batch.column(name) for name in (*self._kinds[1:], *self._columns)]
        if inserts or VALUE_KIND not in batch.schema.names:
            kinds = pa.array(np.full(batch.num_rows, RowKind.INSERT, np.int8))
        else:
            kinds = batch.column(VALUE_KIND)
        return pa.RecordBatch.from_arrays([kinds, *columns], schema=self.schema)

    def _with_dictionaries(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with dictionaries also where the file has none."""
        columns = [
            pc.dictionary_encode(column)
            if field.type == _TEXTS and column.type != _TEXTS
            else column
            for field, column in zip(self.schema, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _state(self, split: Split) -> Iterator[pa.RecordBatch]:
        live_rows = selections(self._table.file_io, split.deletion_vectors)
        stored = self._retractions or self._numbered
        for section in split.sections:
            if len(section) > 1:
                yield from self._merged(
                    split,
                    section,
                    live_rows,
                    self._merge_push,
                    key_conditions=self._key_conditions,
                    retractions=self._retractions,
                )
                continue
            for file in section[0].files:
                if self._table.key_of is None or (file.delete_row_count == 0 and not stored):
                    yield from self._raw(split, file, live_rows, self._raw_push, plain=True)
                else:
                    rows = self._raw(split, file, live_rows, self._raw_push)
                    yield from rows if self._retractions else map(additions, rows)

    def _changes(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        batches = self._changes_with_kinds(split)
        return batches if self._kinds or self._table.key_of is None else map(additions, batches)

    def _changes_with_kinds(self, split: ChangeSplit) -> Iterator[pa.RecordBatch]:
        if split.form is ChangeForm.STORED or self._table.key_of is None:
            live_rows = selections(self._table.file_io, split.vectors)
            for file in split.files:
                yield from self._raw(split, file, live_rows, self._raw_push)
            return
        before = self._merged_files(split, split.before, split.before_vectors)
        after = self._merged_files(split, split.files, split.vectors)
        if split.form is ChangeForm.COMPARED:
            keys = self._table.schema.trimmed_primary_keys
            yield from side_by_side(before, after, keys, later_images)
            return
        for kind, state in ((RowKind.DELETE, before), (RowKind.INSERT, after)):
            for batch in state:
                yield _of_kind(batch, kind)

    def _merged_files(
        self,
        split: ChangeSplit,
        files: Sequence[DataFileMeta],
        vectors: Iterable[tuple[str, DeletionFile]],
    ) -> Iterator[pa.RecordBatch]:
        """The rows that files of one bucket merge to: KeyValueBatches ascending by key, whole."""
        live_rows = selections(self._table.file_io, vectors)
        for section in sections(files, self._table.key_of) if self._table.key_of else ():
            if len(section) > 1:
                yield from self._merged(split, section, live_rows, self._no_push)
                continue
            for file in section[0].files:
                rows = self._raw(split, file, live_rows, self._no_push)
                yield from filter(len, map(additions, rows))

    def _raw(
        self,
        split: Split | ChangeSplit,
        file: DataFileMeta,
        selections: _Selections,
        push: _PushDown,
        *,
        plain: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with kinds and sequence numbers unless `plain`."""
        selection = selections.get(file.file_name)
        if push is self._raw_push:
            selection = self._index.narrowed(selection, self._path(split, file), file)
        if selection is not None and selection.empty(0, file.row_count):
            return iter(())
        if plain or self._table.key_of is None:
            return self._read_rows(split, file, selection)
        return self._read_key_values(split, file, push, None, selection)

    def _merged(
        self,
        split: Split | ChangeSplit,
        section: Section,
        selections: _Selections,
        push: _PushDown,
        *,
        key_conditions: Sequence[Predicate] = (),
        retractions: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The merged rows of a section; a key condition holds for all versions of a key or none."""
        table = self._table
        share = MERGE_WINDOW_BYTES // len(section)
        keys = table.schema.trimmed_primary_keys
        by_arrival = push is self._merge_push and self._by_arrival and _follow(section)
        system = SYSTEM_FIELDS[1:] if by_arrival else SYSTEM_FIELDS  # without sequence numbers

        def read(run: SortedRun) -> Iterator[pa.RecordBatch]:
            for file in run.files:
                selection = selections.get(file.file_name)
                for batch in self._read_key_values(split, file, push, share, selection, system):
                    for part in key_conditions:
                        batch = batch.filter(mask(part, batch))
                    yield batch

        with naming_table(table.layout.root):
            yield from merge_runs(
                merge_inputs(section, read, keys, table.key_of, table.options),
                keys,
                merge_function_for(table.options, table.schema),
                drop_retractions=not retractions,
            )

    def _path(self, split: Split | ChangeSplit, file: DataFileMeta) -> str:
        if file.external_path is not None:
            return file.external_path
        return self._table.layout.data_file(split.partition_path, split.bucket, file.file_name)

    def _read_rows(
        self, split: Split | ChangeSplit, file: DataFileMeta, selection: RowSelection | None
    ) -> Iterator[pa.RecordBatch]:
        return read_rows(
            self._table.file_io,
            self._path(split, file),
            file,
            self._table.schemas.read(file.schema_id),
            self._table.schema,
            self._raw_push.columns,
            batch_rows=_BATCH_ROWS[1],
            keep_row_group=self._row_groups(file, self._raw_push.conditions),
            selection=selection,
            dictionaries=self._dictionaries,
        )

    def _read_key_values(
        self,
        split: Split | ChangeSplit,
        file: DataFileMeta,
        push: _PushDown,
        batch_bytes: int | None,
        selection: RowSelection | None,
        system: Sequence[DataField] = SYSTEM_FIELDS,
    ) -> Iterator[pa.RecordBatch]:
        least, rows = _BATCH_ROWS
        if batch_bytes is not None:
            share = len(push.columns) / max(1, len(self._table.schema.fields))
            row_bytes = max(1, file.file_size * _UNPACKED * share / max(1, file.row_count))
            rows = min(rows, max(least, int(batch_bytes / row_bytes)))
        return read_rows(
            self._table.file_io,
            self._path(split, file),
            file,
            self._table.schemas.read(file.schema_id),
            self._table.schema,
            push.columns,
            batch_rows=rows,
            keep_row_group=self._row_groups(file, push.conditions),
            selection=selection,
            system=system,
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
                return row_group_range(stored.get(source.name))

            return all(could_match(part, ranges, self._types) for part in parts)

        return keep


def _follow(runs: Section) -> bool:
    """Whether sequence numbers rise from run to run, so that arrival is the order of a key."""
    least = [min(file.min_sequence_number for file in run.files) for run in runs]
    most = [max(file.max_sequence_number for file in run.files) for run in runs]
    return all(last < first for last, first in zip(most[:-1], least[1:], strict=True))


def additions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without the rows of kind -U and -D."""
    is_addition = ~are_retractions(batch.column(VALUE_KIND).to_numpy(zero_copy_only=False))
    return batch if is_addition.all() else batch.filter(pa.array(is_addition))


def _of_kind(batch: pa.RecordBatch, kind: RowKind) -> pa.RecordBatch:
    position = batch.schema.get_field_index(VALUE_KIND)
    kinds = pa.array(np.full(batch.num_rows, kind.value, dtype=np.int8))
    return batch.set_column(position, batch.schema.field(position), kinds)


def read_ahead(
    sources: Sequence[Callable[[], Iterator[_T]]],
    *,
    threads: int | None = None,
    waiting: int = 4,
) -> Iterator[_T]:
    """The items of all sources, in order; the next sources are read while one is consumed.

    Args:
        sources: open a stream each; called in threads when `threads` > 1.
        threads: streams read at once; 1 = in the caller's thread, nothing ahead; None = as many
            as there are cores, at most 8.
        waiting: items of a stream that wait at most, which bounds the memory; 0 = any number.

    Yields:
        The items. A consumer that stops early stops the readers.

    Raises:
        BaseException: what a source raised, at its position in the order.
    """
    threads = min(len(sources), _MAX_THREADS, os.cpu_count() or 1) if threads is None else threads
    if threads <= 1 or len(sources) <= 1:
        for source in sources:
            yield from source()
        return
    stopped = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(threads, "read") as pool:
        try:
            streams = [_Buffered(source, stopped, waiting) for source in sources]
            filled = [pool.submit(stream.fill) for stream in streams]
            for stream, future in zip(streams, filled, strict=True):
                yield from stream
                future.result()
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Buffered(Generic[_T]):
    """One stream, buffered between the thread that reads it and the consumer."""

    def __init__(
        self, source: Callable[[], Iterator[_T]], stopped: threading.Event, waiting: int
    ) -> None:
        self._source = source
        self._stopped = stopped
        self._items: queue.Queue[_T | None] = queue.Queue(waiting)

    def fill(self) -> None:
        """Read the stream to its end, or until the consumer has stopped."""
        try:
            if not self._stopped.is_set():
                for item in self._source():
                    if not self._put(item):
                        return
        finally:  # a stream that fails ends, too; its future holds the error
            self._put(None)

    def _put(self, item: _T | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[_T]:
        while (item := self._items.get()) is not None:
            yield item
