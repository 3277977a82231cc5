# SPDX-License-Identifier: Apache-2.0
"""Scripted histories of one table, run once to count operations and again to die at each of them.

A history is a list of steps. Its steps are carried out by a "process" (a freshly opened table over
a faulty store) until it dies; a second process looks at what is left, repeats the step that was
under way, whether or not it had succeeded, and finishes. In the end the rows must be those of
the uninterrupted run, at every moment the table must be sound, and the rows seen after the crash
must be those before or after the interrupted step.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.format.manifest_store import clear_manifest_cache
from storage.format.schema_changes import AddColumn
from storage.format.type_text import parse_type
from storage.io.faulty import Fault, FaultMode, FaultyFileIO, SimulatedCrash
from storage.io.local import LocalFileIO
from storage.table.expire import expire_snapshots
from storage.table.invariants import check_table
from storage.table.live_files import clear_live_cache
from storage.table.predicate_text import parse_predicate
from storage.table.row_delete import delete_where
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, prepared, reopened, rows_of

Rows = list[tuple[Any, ...]]
Step = Callable[[FileStoreTable, int], None]

USER = "stream"
MODES: tuple[FaultMode, ...] = ("before", "after", "torn", "lost_response", "error")


@dataclasses.dataclass(frozen=True)
class History:
    """What happens to a table.

    Attributes:
        steps: in order; step n commits with identifier n. Each can be repeated.
        options: of the table.
        keys: its primary key.
    """

    steps: Sequence[Step]
    options: dict[str, str]
    keys: tuple[str, ...] = ("k",)


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


def forget_caches() -> None:
    """What a new process does not know."""
    clear_live_cache()
    clear_manifest_cache()


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
            directory, keys=history.keys, options=history.options, clock=ManualClock()
        )

    def states(self) -> tuple[list[Rows], list[int]]:
        """Run without faults: the rows after each step, and operations done by its end."""
        store = FaultyFileIO(self._plain)
        states, operations = [rows_of(self._table)], [0]
        for number, step in enumerate(self._history.steps):
            forget_caches()
            step(self._process(store), number)
            operations.append(len(store.operations))
            states.append(rows_of(self._process(self._plain)))
        check_table(self._process(self._plain))
        return states, operations

    def survive(self, fault: Fault, states: list[Rows]) -> None:
        """Die at an operation, come back, finish; compare at each point."""
        store = FaultyFileIO(self._plain, fault)
        done = 0
        try:
            for number, step in enumerate(self._history.steps):
                forget_caches()
                step(self._process(store), number)
                done = number + 1
        except (SimulatedCrash, StorageUnavailableError):
            forget_caches()
            left = self._process(self._plain)
            check_table(left)
            seen = rows_of(left)
            assert seen in (states[done], states[min(done + 1, len(states) - 1)]), (fault, done)
        for number in range(max(0, done - 1), len(self._history.steps)):
            self._history.steps[number](self._process(self._plain), number)
        forget_caches()
        end = self._process(self._plain)
        assert rows_of(end) == states[-1], fault
        check_table(end)
        committed = [
            (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind)
            for snapshot in map(end.snapshots.read, end.snapshots.ids())
        ]
        assert len(committed) == len(set(committed)), fault

    def _process(self, store: Any) -> FileStoreTable:
        return reopened(self._table, file_io=store)


def enumerate_crashes(
    directory: pathlib.Path, history: History, mode: FaultMode, stride: int, offset: int = 0
) -> int:
    """Die at every `stride`-th operation of a history in one mode.

    Returns:
        Number of operations of the history.
    """
    states, operations = Run(directory / "whole", history).states()
    total = operations[-1]
    for at in range(1 + offset % stride, total + 1, stride):
        Run(directory / f"{mode}-{at}", history).survive(Fault(at, mode), states)
    return total
