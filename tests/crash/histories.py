# SPDX-License-Identifier: Apache-2.0
"""Histories of one table as lists of steps, each of which can be carried out again.

What is done with a history is in `deaths`.
"""

import dataclasses
import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.write.rows.row_changes import delete_where
from storage.testing.invariants import check_table
from tests.inline_executor import InlineExecutor
from tests.table_kit import DEFAULT_COLUMNS, prepared

Rows = list[tuple[Any, ...]]
Step = Callable[[FileStoreTable, int], None]

USER = "stream"


def _check(table: FileStoreTable) -> None:
    check_table(table, rows=True)


@dataclasses.dataclass(frozen=True)
class History:
    """What happens to a table.

    Attributes:
        steps: in order; step n commits with identifier n. Each can be repeated.
        options: of the table.
        keys: its primary key.
        partitions: its partition columns.
        check: what must hold after a crash and in the end.
        columns: (name, type) in order.
        changelog: it has a changelog, and the last step compacts everything.
    """

    steps: Sequence[Step]
    options: dict[str, str]
    keys: tuple[str, ...] = ("k",)
    partitions: tuple[str, ...] = ()
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
        _write_as_other(table, rows, identifier)

    return step


def _write_as_other(table: FileStoreTable, rows: Rows, identifier: int) -> None:
    padded = [(*row, *[None] * (len(table.schema.fields) + 1 - len(row))) for row in rows]
    messages = prepared(table, padded, compaction=False)
    table.new_commit("other").commit(messages, identifier)


def _compact(table: FileStoreTable, *, full: bool, after: Callable[[], None]) -> None:
    """Compact; something else happens after the first bucket."""

    def between(number: int) -> None:
        if number == 1:
            after()

    report = compact_table(table, CompactRequest(full=full), InlineExecutor(between))
    for failure in report.failures:
        raise failure.error
    assert report.complete


def compact_step(*, full: bool = True, beside: Rows | None = None) -> Step:
    """A job compacts, once more each time; another user may commit before it does."""

    def step(table: FileStoreTable, identifier: int) -> None:
        def after() -> None:
            if beside is not None:
                _write_as_other(table, beside, identifier)

        _compact(table, full=full, after=after)
        after()  # when there was nothing to compact

    return step


def outrun_step() -> Step:
    """A job compacts everything, but another one is faster."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        _compact(table, full=True, after=lambda: _compact(table, full=True, after=_nothing))

    return step


def _nothing() -> None:
    pass


def outrun_write_step(rows: Rows) -> Step:
    """Write and compact; before the commit a job has compacted the same files."""

    def step(table: FileStoreTable, identifier: int) -> None:
        messages = prepared(table, rows, full=True)
        _compact(table, full=True, after=_nothing)
        table.new_commit(USER).commit(messages, identifier)

    return step


def lose_lookup_step() -> Step:
    """Local copies of data files go away."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del table, identifier
        shutil.rmtree(os.environ[DIRECTORY_VARIABLE], ignore_errors=True)

    return step
