# SPDX-License-Identifier: Apache-2.0
"""Scripted histories of one table, run once to count operations and again to die at each of them.

A history is a list of steps. Its steps are carried out by a "process" (a freshly opened table over
a faulty store) until it dies; a second process looks at what is left, repeats the step that was
under way, whether or not it had succeeded, and finishes. In the end the rows must be those of
the uninterrupted run, at every moment the table must be sound, and the rows seen after the crash
must be those before or after the interrupted step.

Beside it a reader follows the changelog. What it is told must always fit what it knows, and end in
the rows of the table. The changes must be those of the uninterrupted run, unless death came
between the two snapshots of a commit: then a later compaction tells of both commits in one.
"""

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from changelog.snapshot_changelog import read_snapshot_changelog
from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.format.manifest_store import clear_manifest_cache
from storage.format.schema_changes import AddColumn
from storage.format.type_text import parse_type
from storage.format.types import VALUE_KIND
from storage.io.faulty import Fault, FaultMode, FaultyFileIO, SimulatedCrash
from storage.io.local import LocalFileIO
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.table.expire import expire_snapshots
from storage.table.invariants import check_table
from storage.table.live_files import clear_live_cache
from storage.table.predicate_text import parse_predicate
from storage.table.row_delete import delete_where
from storage.table.table import FileStoreTable
from tests.table_kit import DEFAULT_COLUMNS, KINDS, make_table, prepared, reopened, rows_of

Rows = list[tuple[Any, ...]]
Step = Callable[[FileStoreTable, int], None]

USER = "stream"
MODES: tuple[FaultMode, ...] = ("before", "after", "torn", "lost_response", "error")


def _check(table: FileStoreTable) -> None:
    check_table(table, rows=True)


@dataclasses.dataclass(frozen=True)
class History:
    """What happens to a table.

    Attributes:
        steps: in order; step n commits with identifier n. Each can be repeated.
        options: of the table.
        keys: its primary key.
        check: what must hold after a crash and in the end.
        columns: (name, type) in order.
        changelog: it has a changelog, and the last step compacts everything.
    """

    steps: Sequence[Step]
    options: dict[str, str]
    keys: tuple[str, ...] = ("k",)
    check: Callable[[FileStoreTable], None] = _check
    columns: Sequence[tuple[str, str]] = DEFAULT_COLUMNS
    changelog: bool = False


def write_step(rows: Rows, *, full: bool = False, parts: int = 1) -> Step:
    """Write and commit; `parts` flushes with due compactions between them."""

    def step(table: FileStoreTable, identifier: int) -> None:
        width = len(table.schema.fields) + 1
        padded = [(*row, *[None] * (width - len(row))) for row in rows]
        size = -(-len(padded) // parts) or 1
        batches = [padded[at : at + size] for at in range(0, len(padded), size)]
        messages = prepared(table, *batches, full=full)
        table.new_commit(USER).commit(messages, identifier, properties={"lakeward.n": "1"})

    return step


def alter_step(name: str) -> Step:
    """Add a column unless it is there."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        if name not in table.latest().schema.field_names:
            table.alter([AddColumn(name, parse_type("INT"))])

    return step


def expire_step(retain: int) -> Step:
    """Keep the newest snapshots only."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        now = table.clock.now_ms() + 10**10
        expire_snapshots(table, now_ms=now, retain_min=retain, retain_max=retain)

    return step


def delete_step(text: str) -> Step:
    """Mark rows of an append table as deleted."""

    def step(table: FileStoreTable, identifier: int) -> None:
        delete_where(table, parse_predicate(text), USER, identifier=identifier)

    return step


def other_writer_step(rows: Rows) -> Step:
    """Another user commits in between."""

    def step(table: FileStoreTable, identifier: int) -> None:
        padded = [(*row, *[None] * (len(table.schema.fields) + 1 - len(row))) for row in rows]
        messages = prepared(table, padded, compaction=False)
        table.new_commit("other").commit(messages, identifier)

    return step


def lose_lookup_step() -> Step:
    """Local copies of data files go away."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del table, identifier
        shutil.rmtree(os.environ[DIRECTORY_VARIABLE], ignore_errors=True)

    return step


class ChangelogReader:
    """Reads the changes of each snapshot once, in order, beginning with an empty table.

    Attributes:
        rows: by key, as the changes say.
        changes: all of them.
        next_id: of the snapshot to be read next.

    Args:
        keys: number of key columns, which come first.
        plain: changes are those that were written, which need not fit each other.
    """

    def __init__(self, keys: int, *, plain: bool) -> None:
        self._keys = keys
        self._plain = plain
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.changes: list[tuple[Any, ...]] = []
        self.next_id = 1

    def read(self, table: FileStoreTable) -> None:
        """Follow to the newest snapshot."""
        names = {value: name for name, value in KINDS.items()}
        for snapshot_id in range(self.next_id, (table.snapshots.latest_id() or 0) + 1):
            for row in read_snapshot_changelog(table, snapshot_id).to_pylist():
                kind = names[row.pop(VALUE_KIND)]
                self._take(kind, tuple(row.values()))
            self.next_id = snapshot_id + 1

    def _take(self, kind: str, row: tuple[Any, ...]) -> None:
        key = row[: self._keys]
        self.changes.append((kind, *row))
        if kind in ("-U", "-D"):
            there = self.rows.pop(key, None)
            assert self._plain or there == row, (kind, row, there)
        else:
            assert self._plain or key not in self.rows, (kind, row)
            self.rows[key] = row


def forget_caches() -> None:
    """What a new process does not know."""
    clear_live_cache()
    clear_manifest_cache()


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    """What an uninterrupted run showed.

    Attributes:
        states: rows before the first step and after each.
        newest: id of the newest snapshot at these moments.
        operations: how many it took.
        changes: of the changelog, sorted.
    """

    states: list[Rows]
    newest: list[int]
    operations: int
    changes: list[tuple[Any, ...]]


class Run:
    """One table that lives through a history.

    Args:
        directory: warehouse.
        history: the steps.
    """

    def __init__(self, directory: pathlib.Path, history: History) -> None:
        self._history = history
        self._plain = LocalFileIO(durable=False)
        self._table = make_table(
            directory,
            columns=history.columns,
            keys=history.keys,
            options=history.options,
            clock=ManualClock(),
        )
        producer = history.options.get("changelog-producer")
        self._reader = ChangelogReader(len(history.keys), plain=producer == "input")

    def whole(self) -> "Whole":
        """Run without faults."""
        store = FaultyFileIO(self._plain)
        states, newest = [rows_of(self._table)], [0]
        for number, step in enumerate(self._history.steps):
            forget_caches()
            step(self._process(store), number)
            table = self._process(self._plain)
            states.append(rows_of(table))
            newest.append(table.snapshots.latest_id() or 0)
            self._follow()
        check_table(self._process(self._plain))
        self._require_followed()
        return Whole(states, newest, len(store.operations), sorted(self._reader.changes, key=repr))

    def survive(self, fault: Fault, whole: "Whole") -> None:
        """Die at an operation, come back, finish; compare at each point."""
        states = whole.states
        store = FaultyFileIO(self._plain, fault)
        done = 0
        between = False
        try:
            for number, step in enumerate(self._history.steps):
                forget_caches()
                step(self._process(store), number)
                done = number + 1
                self._follow()
        except (SimulatedCrash, StorageUnavailableError):
            forget_caches()
            left = self._process(self._plain)
            self._history.check(left)
            seen = rows_of(left)
            assert seen in (states[done], states[min(done + 1, len(states) - 1)]), (fault, done)
            newest = left.snapshots.latest_id() or 0
            between = whole.newest[done] < newest < whole.newest[done + 1]
            self._follow()
        for number in range(max(0, done - 1), len(self._history.steps)):
            self._history.steps[number](self._process(self._plain), number)
            self._follow()
        forget_caches()
        end = self._process(self._plain)
        assert rows_of(end) == states[-1], fault
        self._history.check(end)
        self._require_followed()
        if not between:
            assert sorted(self._reader.changes, key=repr) == whole.changes, fault
        committed = [
            (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind)
            for snapshot in map(end.snapshots.read, end.snapshots.ids())
        ]
        assert len(committed) == len(set(committed)), fault

    def _follow(self) -> None:
        if self._history.changelog:
            self._reader.read(self._process(self._plain))

    def _require_followed(self) -> None:
        if self._history.changelog:
            rows = sorted(self._reader.rows.values(), key=repr)
            assert rows == rows_of(self._process(self._plain))

    def _process(self, store: Any) -> FileStoreTable:
        return reopened(self._table, file_io=store)


def enumerate_crashes(
    directory: pathlib.Path, history: History, mode: FaultMode, stride: int, offset: int = 0
) -> int:
    """Die at every `stride`-th operation of a history in one mode.

    Returns:
        Number of operations of the history.
    """
    whole = Run(directory / "whole", history).whole()
    for at in range(1 + offset % stride, whole.operations + 1, stride):
        Run(directory / f"{mode}-{at}", history).survive(Fault(at, mode), whole)
    return whole.operations
