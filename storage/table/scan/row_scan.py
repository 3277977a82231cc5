# SPDX-License-Identifier: Apache-2.0
"""The rows of a table that columns, a filter and a state choose: one object for every batch read.

The table's options choose what is read: a state (SEMANTICS.md §C.8), the changes between two
(§C.9), or a branch whose missing partitions come from another (§F.10, `scan.fallback-branch`): a
partition that has files in the branch comes from there, every other one from the fallback branch.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.type_text import type_name
from storage.table.commit.live_files import live_state
from storage.table.read.read import TableRead
from storage.table.scan.arrow_scan import ArrowScan
from storage.table.scan.incremental import is_incremental
from storage.table.scan.predicate import Predicate, both
from storage.table.scan.scan import ChangeSplit, Split, TableScan
from storage.table.scan.time_travel import TimeTravel, travel_of

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

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
