# SPDX-License-Identifier: Apache-2.0
"""The rows of a table that columns, a filter and a state choose: one object for every batch read.

The table's options choose what is read: a state (SEMANTICS.md §C.8), the changes between two
(§C.9), or a branch whose missing partitions come from another (§F.10, `scan.fallback-branch`): a
partition that has files in the branch comes from there, every other one from the fallback branch.
"""

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.files.file_formats import format_of
from storage.format.files.parquet import small_dictionaries, verify_pages
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.row.row_codec import from_row_values
from storage.format.types.default_values import read_defaults
from storage.format.types.types import AtomicType, DataField, TypeRoot, type_name
from storage.table.commit.live_files import live_state
from storage.table.read.missing_files import explain_missing_files
from storage.table.read.read import TableRead, read_ahead
from storage.table.scan.predicate import Predicate, both
from storage.table.scan.scan import ChangeSplit, Split, TableScan
from storage.table.scan.time_travel import TimeTravel, is_incremental, travel_of

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

# What every scan of rows offers besides its plan: batches, a reader, a table, Arrow's stream.
#
# Speaks Arrow's stream interface, so DuckDB, Polars, pandas and others take a scan as it is.


class ArrowScan(abc.ABC):
    """Rows that were chosen and not read yet. Derived classes plan splits and read one."""

    _planned: Sequence[Any] | None = None

    @property
    @abc.abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the columns wanted, in the order wanted."""

    @abc.abstractmethod
    def plan(self, predicate: Predicate | None = None) -> Sequence[Any]:
        """The splits that may hold wanted rows.

        Args:
            predicate: besides that of the scan.
        """

    @abc.abstractmethod
    def read(self, split: Any, predicate: Predicate | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a split: non-empty batches of `schema`."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, split by split, the next splits read ahead; memory is bounded.

        Yields and raises: as `read`.
        """
        return self._batches(waiting=4)

    def _batches(self, waiting: int) -> Iterator[pa.RecordBatch]:
        if self._planned is None:
            self._planned = self.plan()
        sources = [functools.partial(self.read, split) for split in self._planned]
        return read_ahead(sources, waiting=waiting)

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as Arrow's reader of batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_arrow(self) -> pa.Table:
        """The rows, all at once."""
        return pa.Table.from_batches(self._batches(waiting=0), schema=self.schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream interface."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


FALLBACK_BRANCH = "scan.fallback-branch"


class RowScan(ArrowScan):
    """Rows that are selected and not read yet. Picklable, safe for several threads.

    The state is chosen by the first read, and stays the same for all later ones; `plan` chooses
    again.

    Args:
        table: with the options that choose what is read.
        columns: in the order wanted; None = all.
        predicate: rows wanted; None = all.
        travel: the state wanted; the newest = what the table's options choose.

    Raises:
        NotFoundError: there is no such snapshot (any more), or tag.
        InvalidRequestError: a column is unknown, or snapshots are chosen in two ways.
        UnsupportedFeatureError: reading would return wrong rows; names the option.
    """

    _mixes: ClassVar[bool] = True
    """Whether options may choose changes, or partitions of another branch."""

    def __init__(
        self,
        table: "FileStoreTable",
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
        *,
        travel: TimeTravel | None = None,
    ) -> None:
        self._changes = False
        self._tables: tuple[FileStoreTable, ...] = (table,)
        self._states: tuple[Snapshot | None, ...] | None = None
        chosen = travel is not None and not travel.to_newest
        if not chosen:
            self._changes = self._mixes and is_incremental(table)
        if self._mixes and FALLBACK_BRANCH in table.schema.options and not self._changes:
            self._tables = table.with_fallback()
            travel = travel if chosen else travel_of(table.schema.options)
            chosen = travel is not None and not travel.to_newest
        if chosen and travel is not None:
            self._states = _states(travel, self._tables)
            self._tables = tuple(
                branch if state is None else branch.with_schema(state.schema_id)
                for branch, state in zip(self._tables, self._states, strict=True)
            )
        self._columns = tuple(self._tables[0].schema.field_names if columns is None else columns)
        self._predicate = predicate
        self._planned: Sequence[Split | ChangeSplit] | None = None
        self._reader()  # rejects what cannot be read before anything is

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows: the columns wanted, in the order wanted."""
        whole = self._tables[0].schema.arrow_schema
        return pa.schema([whole.field(name) for name in self._columns])

    def plan(self, predicate: Predicate | None = None) -> Sequence[Split | ChangeSplit]:
        """Choose the state, and those of its files that may hold matching rows.

        Args:
            predicate: in addition to that of the scan.

        Raises:
            InvalidRequestError: branch and fallback branch differ in columns or primary keys.
            NotFoundError: a snapshot expired meanwhile.
            CorruptDataError: metadata is damaged.
        """
        predicate = both(self._predicate, predicate)
        scan = self._scan(self._tables[0]).with_filter(predicate)
        if len(self._tables) > 1:
            return self._with_fallback(scan, predicate)
        if self._changes:
            return scan.plan_changes()
        return scan.plan(None if self._states is None else self._states[0]).splits

    def _scan(self, table: "FileStoreTable") -> TableScan:
        return TableScan(table)

    def _with_fallback(self, scan: TableScan, predicate: Predicate | None) -> list[Split]:
        table, fallback = self._tables
        _check_alike(table.schema, fallback.schema)
        splits: list[Split] = []
        partitions: set[bytes] = set()
        states = self._states or (table.latest_snapshot(), fallback.latest_snapshot())
        if states[0] is not None:
            partitions = {partition for partition, _ in live_state(table, states[0]).buckets}
            splits += scan.plan(states[0]).splits
        if states[1] is not None:
            for split in TableScan(fallback).with_filter(predicate).plan(states[1]).splits:
                if split.partition not in partitions:
                    splits.append(dataclasses.replace(split, fallback=True))
        return splits

    def read(
        self, split: Split | ChangeSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a split.

        Yields:
            Non-empty batches of `schema`; a state of a primary-key table ascending by key.

        Raises:
            CorruptDataError: a file violates the format, or is missing from the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        fallback = isinstance(split, Split) and split.fallback
        for batch in self._reader(predicate, fallback=fallback).to_batches(split):
            yield batch.cast(self.schema) if fallback else batch

    def _reader(self, predicate: Predicate | None = None, *, fallback: bool = False) -> TableRead:
        table = self._tables[1 if fallback else 0]
        return TableRead(table, self._columns, both(self._predicate, predicate))


def _states(travel: TimeTravel, tables: "Sequence[FileStoreTable]") -> tuple[Snapshot | None, ...]:
    """The state of a table, and that of its fallback branch at the same time.

    As in Paimon a snapshot id is one of the table itself: the fallback branch is read as of the
    commit time of that snapshot, or at its first snapshot if it has none that old.
    """
    table, *fallbacks = tables
    if fallbacks and (travel.files_since_ms is not None or travel.since_ms is not None):
        raise UnsupportedFeatureError(
            "files by their time on a table with a fallback branch are not implemented",
            hint=f"remove the option: with_options({{'{FALLBACK_BRANCH}': None}})",
            option=FALLBACK_BRANCH,
        )
    state = travel.resolve(table)
    if not fallbacks:
        return (state,)
    if travel.snapshot_id is None or state is None:
        return (state, travel.resolve(fallbacks[0]))
    snapshots = fallbacks[0].snapshots
    first = snapshots.read(1) if snapshots.exists(1) else None
    return (state, snapshots.at_time(state.time_ms) or first)


def _check_alike(schema: TableSchema, other: TableSchema) -> None:
    """Names, types apart from nullability, and keys must be the same.

    A table without a primary key may fall back to a branch that has one (batch over streaming).
    """
    left, right = (
        [(field.name, dataclasses.replace(field.type, nullable=True)) for field in side.fields]
        for side in (schema, other)
    )
    same_keys = schema.primary_keys in ((), other.primary_keys)
    if left == right and same_keys and schema.partition_keys == other.partition_keys:
        return
    raise InvalidRequestError(
        "the branch and its fallback branch do not have the same columns and keys",
        columns=", ".join(f"{field.name} {type_name(field.type)}" for field in schema.fields),
        fallback=", ".join(f"{field.name} {type_name(field.type)}" for field in other.fields),
    )


# The rows of a table for an engine that filters and projects again, so reads can be cheaper.
#
# Four savings: conditions prune files and row groups, and are not evaluated row by row; strings
# that files store with small dictionaries are returned as dictionaries (a GROUP BY over five
# strings then takes a third of the CPU time); where rows are only counted, or only partition
# columns are read, the rows come from the manifests, without opening data files that have no
# deletes or other versions of their rows; and files whose rows are those of the table as they are
# stored can be left to the engine's own reader.


ROWS = pa.schema([("_LAKEWARD_ROWS", pa.null())])
"""Schema of a scan without columns: rows without values."""

_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_WORTH_A_LOOK = 100_000
"""Rows from which it pays to check in a file whether its strings are dictionary-encoded."""

_ROWS_PER_BATCH = 65_536
_WORTH_HANDING_OVER = 500_000
"""Rows from which an engine's reader of files pays for the instance that it needs."""


class EngineScan(RowScan):
    """Rows that are planned and not read yet; a superset of those that match the predicate.

    Arguments and errors as of `RowScan`, and of `RowScan.plan`.

    Attributes:
        files: local Parquet files with rows of the table as they are stored, which the engine
            reads after `hand_over`; batches have the other rows.
    """

    _dictionaries: frozenset[str] = frozenset()

    def __init__(
        self,
        table: "FileStoreTable",
        columns: Sequence[str] | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        super().__init__(table, columns, predicate)
        self.files: tuple[str, ...] = ()
        self._snapshot_id = 0
        self._planned = self.plan()
        partition_keys = {*table.schema.partition_keys} - read_defaults(table.schema).keys()
        self._of_partitions = set(self._columns) <= partition_keys
        texts = self._texts()
        if texts and not self._of_partitions:
            self._dictionaries = self._small_text_columns(texts, self._planned)

    @property
    def fields(self) -> list[DataField]:
        """The selected columns."""
        return [self._tables[0].schema.field(name) for name in self._columns]

    @property
    def complete(self) -> bool:
        """Whether `files` have all rows."""
        return bool(self.files) and not self._planned

    @property
    def schema(self) -> pa.Schema:
        """Selected columns in the given order, strings maybe as dictionaries; without any, ROWS."""
        return self._reader().schema if self._columns else ROWS

    @property
    def row_count(self) -> int | None:
        """The number of rows, where manifests tell it."""
        counts = [each.live_row_count for each in self._planned or () if isinstance(each, Split)]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(self._planned or ()) else None

    def read(
        self, split: Split | ChangeSplit, predicate: Predicate | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `RowScan.read`; the predicates only prune files and row groups."""
        count = split.live_row_count if isinstance(split, Split) else None
        if self._columns:
            known = count is not None and isinstance(split, Split) and not split.fallback
            if known and self._of_partitions:
                yield from self._partition_rows(split.partition, count or 0)
            else:
                yield from super().read(split, predicate)
            return
        counts = [count] if count is not None else (b.num_rows for b in self._rows(split))
        for rows in counts:
            if rows:
                yield pa.RecordBatch.from_arrays([pa.nulls(rows)], schema=ROWS)

    def _partition_rows(self, partition: bytes, count: int) -> Iterator[pa.RecordBatch]:
        """As many rows with the values of a partition."""
        fields = self._tables[0].schema.partition_fields
        values = decode_row(partition, [field.type for field in fields])
        by_name = dict(zip((field.name for field in fields), values, strict=True))
        columns = [from_row_values([by_name[f.name]], f.type) for f in self.fields]
        first = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        batch = first.take(pa.array(np.zeros(min(count, _ROWS_PER_BATCH), np.int64)))
        for start in range(0, count, _ROWS_PER_BATCH):
            yield batch.slice(0, count - start)

    def hand_over(self) -> None:
        """Leave `files` to the engine, where they are large enough for that.

        Raises: as `verify`.
        """
        splits = self._planned or ()
        states = [split for split in splits if isinstance(split, Split) and split.raw]
        if self._of_partitions or sum(s.row_count for s in states) < _WORTH_HANDING_OVER:
            return
        reader, files, rest = self._reader(), list[str](), list[Split | ChangeSplit]()
        self._snapshot_id = states[0].snapshot_id
        with explain_missing_files(self._tables[0], self._snapshot_id):
            for split in splits:
                paths = reader.in_place(split) if isinstance(split, Split) else None
                if paths is None:
                    rest.append(split)
                else:
                    files += paths
        self.files, self._planned = tuple(files), rest

    def verify(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Verify the checksums of `files`, which the engine's reader does not.

        Args:
            stopped: whether to end early.

        Raises:
            CorruptDataError: a file is damaged, or is missing from the newest snapshot.
            NotFoundError: a file is missing, because the snapshot has expired.
            FileNotFoundError: a file of an older snapshot is missing.
        """
        with explain_missing_files(self._tables[0], self._snapshot_id):
            verify_pages(self.files, self._columns, stopped)

    def look_for_files(self) -> None:
        """Say why a file is missing, if one is. Raises: as `verify`."""
        with explain_missing_files(self._tables[0], self._snapshot_id):
            for path in self.files:
                pathlib.Path(path).stat()

    def _rows(self, split: Split | ChangeSplit) -> Iterator[pa.RecordBatch]:
        fallback = isinstance(split, Split) and split.fallback
        return self._reader(fallback=fallback).to_batches(split)

    def _reader(self, predicate: Predicate | None = None, *, fallback: bool = False) -> TableRead:
        table = self._tables[1 if fallback else 0]
        return TableRead(
            table,
            self._columns,
            both(self._predicate, predicate),
            filtered=False,
            dictionaries=() if fallback else self._dictionaries,
        )

    def _texts(self) -> set[str]:
        schema = self._tables[0].schema
        fields = (schema.field(name) for name in self._columns)
        texts = {
            field.name
            for field in fields
            if isinstance(field.type, AtomicType) and field.type.root in _TEXTS
        }
        return texts - read_defaults(schema).keys()

    def _small_text_columns(
        self, texts: set[str], splits: Sequence[Split | ChangeSplit]
    ) -> frozenset[str]:
        raw = [s for s in splits if isinstance(s, Split) and s.raw and not s.fallback]
        if len(raw) < len(splits) or sum(split.row_count for split in raw) < _WORTH_A_LOOK:
            return frozenset()
        split, file = max(
            ((split, file) for split in raw for file in split.files),
            key=lambda pair: pair[1].row_count,
        )
        return frozenset(self._stored_small(texts, split, file))

    def _stored_small(self, texts: set[str], split: Split, file: DataFileMeta) -> set[str]:
        table = self._tables[0]
        path = file.external_path or table.data_path(split.partition, split.bucket, file.file_name)
        if format_of(path) != "parquet":
            return set()
        ids = {field.id: field.name for field in table.schema.fields if field.name in texts}
        stored = {
            field.name: ids[field.id]
            for field in table.schemas.read(file.schema_id).fields
            if field.id in ids
        }
        with explain_missing_files(table, split.snapshot_id):
            names = small_dictionaries(table.file_io, path, stored, file.file_size)
        return {stored[name] for name in names}
