# SPDX-License-Identifier: Apache-2.0
"""Carrying out a history on a table and on the naive one, and comparing after every step.

Laws: 1 scan and time travel equal the model; 2 compaction is invisible; 3 replaying the changelog
from empty gives the scan; 4 cutting the input elsewhere changes nothing; 5 one identifier commits
once; 6 the table is sound, and no file is left that nobody names.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.lsm.merge import merge_runs
from storage.lsm.merge_tree_writer import compact
from storage.table.commit.live_files import clear_live_cache
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import Compare, Op
from storage.table.scan.scan import changelog_entries
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.conformance.values import found_rows, input_batch
from tests.golden.values import from_text, rows_from_text
from tests.predicates import compares
from tests.property.histories import History, Step
from tests.property.naive_table import NaiveTable, Row, sorted_rows
from tests.property.replay import Broken, Replay, require_equal
from tests.table_kit import data_files, index_files_named, index_files_on_disk, reopened

__all__ = ["Disagreement", "judge", "last_rows"]

USER = "stream"
_FAILURES: tuple[type[BaseException], ...] = (Exception,)
_CHECK_EVERY = 4


class Disagreement(Exception):
    """The table and the model differ, or the table broke.

    Attributes:
        step: number of the step from 0; the number of steps after the last.
        law: which.
    """

    def __init__(self, step: int, law: str, text: str) -> None:
        super().__init__(f"step {step}, {law}: {text}")
        self.step, self.law = step, law


def judge(history: History, directory: pathlib.Path) -> int:
    """Run a history in an empty directory.

    Returns:
        How many snapshots it made.

    Raises:
        Disagreement: a law does not hold.
    """
    with _window(history.window_bytes), _lookup_below(directory):
        run: _Run | None = None
        number, name = -1, "create"
        try:
            run = _Run(history, directory)
            for step in history.steps:
                number, name = number + 1, step["op"]
                run.carry_out(step)
            run.check_all()
        except Broken as broken:
            raise Disagreement(number, broken.law, f"{name}: {broken}") from broken
        except _FAILURES as error:
            text = f"{name}: {type(error).__name__}: {error}"
            raise Disagreement(number, "no error", text) from error
    return run.made


def last_rows(history: History) -> list[list[Any]] | None:
    """What the model shows in the end, as JSON values; None where a value has no such form."""
    names = [name for name, _ in history.columns]
    types = [parse_type(text) for _, text in history.columns]
    model = NaiveTable(names, history.key, history.partition, history.options)
    originals: dict[tuple[int, str], Any] = {}
    for step in history.steps:
        if step["op"] == "add_column":
            model.add_column(step["name"])
            types.append(parse_type("INT"))
        elif step["op"] == "compact" and step["full"]:
            model.compact()
        elif step["op"] == "write":
            for kind, *row in (row for batch in step["batches"] for row in batch):
                values = [from_text(v, t) for v, t in zip(row, types, strict=True)]
                for place, (value, text) in enumerate(zip(values, row, strict=True)):
                    originals[(place, repr(value))] = text
                model.write([(kind, *values)])
            model.flush()
            if step["full"] or (model.looks_up and step["compaction"]):
                model.compact()
    found = []
    for row in model.rows():
        texts = []
        for place, value in enumerate(row):
            known = (place, repr(value)) in originals
            if not known and not isinstance(value, int | str | None):
                return None
            texts.append(originals[(place, repr(value))] if known else value)
        found.append(texts)
    return found


@contextlib.contextmanager
def _window(size: int | None) -> Iterator[None]:
    """Merge with a bound of memory."""
    with contextlib.ExitStack() as stack:
        for function in (compact, merge_runs) if size is not None else ():
            defaults: Any = function.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, window_bytes=size))
        yield


@contextlib.contextmanager
def _lookup_below(directory: pathlib.Path) -> Iterator[None]:
    """Keep local copies of data files with the table."""
    with mock.patch.dict(os.environ, {DIRECTORY_VARIABLE: str(directory / "lookup")}):
        yield


class _Run:
    """A table, its model, and what a reader of its changelog knows."""

    def __init__(self, history: History, directory: pathlib.Path) -> None:
        self.history = history
        options = dict(history.options)
        clock = ManualClock()
        catalog = FileSystemCatalog(
            str(directory), file_io=LocalFileIO(durable=False), clock=clock, ids=SeededIds(0)
        )
        self.table: FileStoreTable = catalog.create_table(
            "db.t",
            new_schema(
                [(name, parse_type(text)) for name, text in history.columns],
                primary_keys=history.key,
                partition_keys=history.partition,
                options=options,
                now_ms=0,
            ),
        )
        names = [name for name, _ in history.columns]
        self.model = NaiveTable(names, history.key, history.partition, options)
        self.replay = Replay(self.model, history)
        self.directory = directory
        self.identifier = 0
        self.made = self.steps = 0
        self.orphans: set[str] = set()
        self.last: tuple[int, list[CommitMessage], Sequence[Any]] | None = None
        self.late: tuple[list[CommitMessage], bool] | None = None
        self.write_only = options.get("write-only") == "true"

    def carry_out(self, step: Step) -> None:
        """One step and the laws after it."""
        act: Callable[[Step], None] = getattr(self, f"_{step['op']}")
        act(step)
        require_equal("scan", self._rows(None), self.model.rows())
        self.steps += 1
        if self.steps % _CHECK_EVERY == 0:
            check_table(self.table, rows=True)
        if self.steps % _CHECK_EVERY == 2 or step["op"] in ("bad", "expire"):
            self._check_files()

    def check_all(self) -> None:
        """Everything that is there."""
        check_table(self.table, rows=True)
        self._check_files()

    # -------------------------------------------------------------------------- steps

    def _write(self, step: Step) -> None:
        taken = [change for batch in step["batches"] for change in self._into_model(batch)]
        full = step["full"] or (step["compaction"] and self._all_is_due())
        messages = self._messages(
            step["batches"], compaction=step["compaction"], full=step["full"], user=USER
        )
        before = self._newest()
        result = self.table.new_commit(USER).commit(messages, self.identifier)
        if result.already_committed or result.compaction_dropped:
            raise Broken("commit", f"{result}")
        drops = self.model.cross and self.model.engine == "first-row"
        if result.append_snapshot_id is None and taken and not drops:
            raise Broken("commit", "rows were written and no snapshot made")
        self.model.flush()
        self._published(result.append_snapshot_id, "append")
        settles = step["compaction"] and not self.write_only and self.model.looks_up
        settles = settles and self.history.waits
        changes = self.model.compact() if settles or full else []
        self._published(result.compact_snapshot_id, "compact")
        self.replay.commit(self.table, before, taken, changes, full=full)
        self.last = (self.identifier, messages, step["batches"])
        self.identifier += 1

    def _all_is_due(self) -> bool:
        """Whether a commit of a stream compacts everything that is not compacted (§C.3)."""
        options = self.history.options
        usual = "1" if self.model.producer == "full-compaction" else None
        every = options.get("full-compaction.delta-commits", usual)
        if not self.history.streams or self.write_only or every is None:
            return False
        return self.identifier % int(every) == 0

    def _bad(self, step: Step) -> None:
        before = self._newest()
        self.model.discard()
        try:
            messages = self._messages([step["rows"]], compaction=True, full=False, user=USER)
        except InvalidRequestError as error:
            text = str(error)
            options = ("ignore-delete", "ignore-retract")
            if not any(option in text for option in options):
                raise Broken("refusal", f"no option is named by: {text}") from error
            for part in (self.table.layout.root, "key="):
                if part not in text:
                    raise Broken("refusal", f"`{part}` is not named by: {text}") from error
        else:
            raise Broken("refusal", f"{len(messages)} messages were made of {step['rows']}")
        if self._newest() != before:
            raise Broken("refusal", "there is a new snapshot")

    def _retry(self, step: Step) -> None:
        if self.last is None:
            return
        identifier, messages, batches = self.last
        if self.table.new_commit(USER).filter_committed([identifier]):
            return  # there was nothing to commit
        if not step["same"]:
            rows = [row for batch in batches for row in batch]
            cut = [rows[at : at + step["cut"]] for at in range(0, len(rows), step["cut"])]
            messages = self._messages(self._padded(cut), compaction=True, full=True, user=USER)
        before = self._newest()
        result = self.table.new_commit(USER).commit(messages, identifier)
        if not result.already_committed or self._newest() != before:
            raise Broken("exactly once", f"{result}")
        self.orphans |= self._stray()  # left where they might be those of the first attempt

    def _compact(self, step: Step) -> None:
        messages = self._messages([], compaction=True, full=step["full"], user="job")
        before = self._newest()
        if step["lost"]:
            rival = self._messages([], compaction=True, full=step["full"], user="rival")
            result = self.table.new_commit("rival").commit(rival, self.identifier)
            self._compacted(result.compact_snapshot_id, before, full=step["full"])
            before = self._newest()
        result = self.table.new_commit(f"job-{self.identifier}").commit(messages, self.identifier)
        if result.append_snapshot_id is not None:
            raise Broken("commit", "a compaction appended")
        if result.compaction_dropped != (step["lost"] and bool(messages)):
            raise Broken("commit", f"a compaction that lost: {step['lost']}, {result}")
        self._compacted(result.compact_snapshot_id, before, full=step["full"])
        self.identifier += 1

    def _compacted(self, snapshot_id: int | None, before: int, *, full: bool) -> None:
        changes = self.model.compact() if full or self.model.looks_up else []
        self._published(snapshot_id, "compact")
        self.replay.commit(self.table, before, [], changes, full=full)

    def _begin_late(self, step: Step) -> None:
        messages = self._messages([], compaction=True, full=step["full"], user="late")
        self.late = (messages, step["full"])

    def _end_late(self, step: Step) -> None:
        del step
        if self.late is None:
            return
        (messages, _), self.late = self.late, None
        before = self._newest()
        result = self.table.new_commit(f"late-{self.identifier}").commit(messages, self.identifier)
        self._published(result.compact_snapshot_id, "compact")
        self.replay.commit(self.table, before, [], [], full=False)
        self.identifier += 1

    def _add_column(self, step: Step) -> None:
        self.table = self.table.alter([AddColumn(step["name"], parse_type("INT"))])
        self.model.add_column(step["name"])
        self.replay.widen()
        self.replay.reopen(self.table)

    def _expire(self, step: Step) -> None:
        retain = step["retain"]
        now = self.table.clock.now_ms() + 10**10
        expire_snapshots(self.table, now_ms=now, retain_min=retain, retain_max=retain)
        earliest = self.table.snapshots.earliest_id()
        if earliest is not None:
            self.model.expire(earliest)
        require_equal("expiry", self.table.snapshots.ids(), sorted(self.model.snapshots))

    def _reopen(self, step: Step) -> None:
        del step
        clear_live_cache()
        clear_manifest_cache()
        self.table = reopened(self.table, seed=self.identifier + 7)
        self.replay.reopen(self.table)

    def _stream(self, step: Step) -> None:
        del step
        self.replay.begin_stream(self.table)

    def _travel(self, step: Step) -> None:
        del step
        for snapshot_id in sorted(self.model.snapshots):
            require_equal(
                f"scan of snapshot {snapshot_id}",
                self._rows(snapshot_id),
                self.model.rows(snapshot_id),
            )

    def _filter(self, step: Step) -> None:
        column, op = step["column"], Op[step["compare"]]
        field = self.table.schema.field(column)
        batch = input_batch(
            [
                ["+I", *(step["value"] if f.name == column else None for f in [field])],
            ],
            [field],
        )
        literal = batch.column(0)[0].as_py()
        wanted_value = from_text(step["value"], field.type)
        place = self.model.columns.index(column)
        found = self.table.to_arrow(filter=Compare(op, column, literal))
        rows = sorted_rows(found_rows(found, self.table.schema.fields))
        wanted = [row for row in self.model.rows() if _holds(row[place], op, wanted_value)]
        require_equal("filtered scan", rows, wanted)

    def _lose_lookup(self, step: Step) -> None:
        del step
        shutil.rmtree(self.directory / "lookup", ignore_errors=True)

    # ------------------------------------------------------------------------ helpers

    def _into_model(self, batch: Sequence[Sequence[Any]]) -> list[tuple[str, Row]]:
        types = [field.type for field in self.table.schema.fields]
        values = rows_from_text([row[1:] for row in batch], types)
        return self.model.write(
            [(row[0], *rest) for row, rest in zip(batch, values, strict=True)],
        )

    def _padded(self, batches: Sequence[Any]) -> list[list[list[Any]]]:
        width = len(self.table.schema.fields) + 1
        return [[[*row, *[None] * (width - len(row))] for row in batch] for batch in batches]

    def _messages(
        self, batches: Sequence[Any], *, compaction: bool, full: bool, user: str
    ) -> list[CommitMessage]:
        index = self.directory / "key-index"
        with self.table.new_write(user, compaction=compaction, index_directory=index) as writer:
            for rows in batches:
                writer.write(input_batch(rows, self.table.schema.fields))
            if full or (compaction and not batches and user != USER):
                writer.compact(full=full)
            streams = self.history.streams and user == USER and compaction
            return writer.prepare_commit(self.identifier, periodic=streams)

    def _newest(self) -> int:
        return self.table.snapshots.latest_id() or 0

    def _published(self, snapshot_id: int | None, kind: str) -> None:
        del kind
        if snapshot_id is not None:
            self.made += 1
            self.model.publish(snapshot_id)

    def _rows(self, snapshot_id: int | None) -> list[Row]:
        table = self.table
        found = table.to_arrow(snapshot=snapshot_id)
        fields = table.schema.fields
        if snapshot_id is not None:
            fields = table.schemas.read(table.snapshots.read(snapshot_id).schema_id).fields
        return sorted_rows(found_rows(found, fields))

    def _check_files(self) -> None:
        """No file of data, changelog or index but those that snapshots name."""
        stray = set() if self.late is not None else self._stray() - self.orphans
        if stray:
            raise Broken("files", f"nobody names {sorted(stray)}")

    def _stray(self) -> set[str]:
        table = self.table
        named: set[str] = set()
        for snapshot_id in table.snapshots.ids():
            snapshot = table.snapshots.read(snapshot_id)
            named |= {entry.file.file_name for entry in table.new_scan().live_entries(snapshot)}
            named |= {entry.file.file_name for entry in changelog_entries(table, snapshot)}
        stray = data_files(table) - named
        return stray | (index_files_on_disk(table) - index_files_named(table))


def _holds(value: Any, op: Op, literal: Any) -> bool:
    return value is not None and compares(op, value, literal)
