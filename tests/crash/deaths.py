# SPDX-License-Identifier: Apache-2.0
"""Runs of a history: once to count operations, and again to die at each of them.

The steps are carried out by a "process" (a freshly opened table over a faulty store) until it dies;
a second process looks at what is left, repeats the last finished step and the one that was under
way, whether or not it had succeeded, and finishes. In the end the rows must be those of the
uninterrupted run, at every moment the table must be sound, and the rows seen after the crash must
be those before or after the interrupted step.

Beside it a reader follows the changelog. What it is told must always fit what it knows, and end in
the rows of the table. The changes must be those of the uninterrupted run, unless death came
between the two snapshots of a commit: then a later compaction tells of both commits in one.

The uninterrupted run is kept as it was before each step, so that a fault costs what follows it.
Names and times are the same whenever a step is carried out: faults that leave the same bytes behind
are followed once. Who dies at a read leaves what the operation before had left.
"""

import copy
import dataclasses
import hashlib
import os
import pathlib
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.format.metadata.manifest_store import clear_manifest_cache
from storage.format.types.types import VALUE_KIND
from storage.io.file_io import FileIO
from storage.io.local import LocalFileIO
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.table.commit.live_files import clear_index_cache, clear_live_cache
from storage.table.iceberg.twin import clear_iceberg_cache
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.changelog_kit import read_snapshot_changelog
from tests.crash.histories import History, Rows
from tests.faulty_io import Fault, FaultMode, FaultyFileIO, SimulatedCrash
from tests.table_kit import KINDS, make_table, reopened, rows_of

MODES: tuple[FaultMode, ...] = ("before", "after", "torn", "lost_response", "error")
_WRITES = frozenset({"open_output", "write_bytes", "overwrite_bytes", "put_if_absent"})
_DELETES = frozenset({"delete", "prune"})
_SEED = 10**9
"""Of the names that a step gives; those of its repetitions are smaller."""


class ChangelogReader:
    """Reads the changes of each snapshot once, in order, beginning with an empty table.

    Attributes:
        rows: by key, as the changes say.
        changes: all of them.
        next_id: of the snapshot to be read next.

    Args:
        keys: positions of the columns that make a row one of its kind.
        plain: changes are those that were written, which need not fit each other.
    """

    def __init__(self, keys: Sequence[int], *, plain: bool) -> None:
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
        key = tuple(row[at] for at in self._keys)
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
    clear_index_cache()
    clear_iceberg_cache()


@dataclasses.dataclass(frozen=True, slots=True)
class Whole:
    """What an uninterrupted run showed.

    Attributes:
        states: rows before the first step and after each.
        newest: id of the newest snapshot at these moments.
        operations: of each step, their names in order.
        changes: of the changelog, sorted.
    """

    states: list[Rows]
    newest: list[int]
    operations: list[list[str]]
    changes: list[tuple[Any, ...]]

    def faults(self) -> Iterator[tuple[int, Fault]]:
        """Every (step, fault) that may leave something else behind than another.

        Who dies at a read leaves what the operation before had left, and dying after an operation
        is dying before the next one. Only after opening a file there may be more local copies.
        """
        for number, names in enumerate(self.operations):
            before = "open_input"
            for at, name in enumerate(names, 1):
                changes = name in _WRITES or name in _DELETES
                if changes or before in _WRITES or before in _DELETES or before == "open_input":
                    yield number, Fault(at, "before")
                if name in _WRITES:
                    yield number, Fault(at, "torn")
                if changes:
                    yield number, Fault(at, "lost_response")
                yield number, Fault(at, "error")
                before = name
            if names:
                yield number, Fault(len(names), "after")


@dataclasses.dataclass(frozen=True, slots=True)
class Enumerated:
    """How much was tried.

    Attributes:
        operations: of the history.
        faults: carried out.
        distinct: of these left something behind that none before had left.
    """

    operations: int
    faults: int
    distinct: int


class Run:
    """One table that lives through a history, again and again.

    Args:
        directory: for the warehouse, and for what it was like before each step.
        history: the steps.
    """

    def __init__(self, directory: pathlib.Path, history: History) -> None:
        self._history = history
        self._plain = LocalFileIO(durable=False)
        self._live = directory / "live"
        self._kept = directory / "kept"
        self._clock = ManualClock()
        self._table = make_table(
            self._live,
            columns=history.columns,
            keys=history.keys,
            partitions=history.partitions,
            options=history.options,
            clock=self._clock,
        )
        producer = history.options.get("changelog-producer")
        names = [name for name, _ in history.columns]
        self._reader = ChangelogReader(
            [names.index(name) for name in (*history.keys, *history.partitions)],
            plain=producer == "input",
        )
        # reads skip what is not compacted: a compaction that is done again may show more
        self._late = bool(history.keys) and (
            history.options.get("deletion-vectors.enabled") == "true"
            or history.options.get("merge-engine") == "first-row"
        )
        self._before: list[tuple[int, ChangelogReader]] = []
        self._followed: set[tuple[int, bool, bytes]] = set()

    def whole(self) -> Whole:
        """Run without faults."""
        states, newest, operations = [rows_of(self._table)], [0], []
        for number, step in enumerate(self._history.steps):
            self._keep(number)
            forget_caches()
            store = FaultyFileIO(self._plain)
            step(self._process(store, seed=_SEED + number), number)
            operations.append([name for name, _ in store.operations])
            table = self._process()
            states.append(rows_of(table))
            newest.append(table.snapshots.latest_id() or 0)
            self._follow()
            self._followed.add((number, False, self._fingerprint()))
        check_table(self._process(), rows=True)
        self._require_followed()
        return Whole(states, newest, operations, sorted(self._reader.changes, key=repr))

    def survive(self, number: int, fault: Fault, whole: Whole) -> bool:
        """Die at an operation of a step, come back, finish; compare at each point.

        Returns:
            Whether it left something else behind than the faults before.
        """
        self._bring_back(number)
        forget_caches()
        store = FaultyFileIO(self._plain, fault)
        died = False
        try:
            self._history.steps[number](self._process(store, seed=_SEED + number), number)
        except (SimulatedCrash, StorageUnavailableError):
            died = True
        if len(store.operations) < fault.at:  # threads that read beside each other may read twice
            return False
        left = (number, died, self._fingerprint())
        if left in self._followed:
            return False
        self._followed.add(left)
        self._finish(number, fault, whole, died=died)
        return True

    def _finish(self, number: int, fault: Fault, whole: Whole, *, died: bool) -> None:
        where = (number, fault)
        forget_caches()
        left = self._process()
        self._history.check(left)
        before, after = whole.states[number if died else number + 1], whole.states[number + 1]
        assert self._lies_between(rows_of(left), before, after), where
        newest = left.snapshots.latest_id() or 0
        between = died and whole.newest[number] < newest < whole.newest[number + 1]
        self._follow()
        last = len(self._history.steps) - 1
        again = max(0, number - 1) if died else min(number + 1, last)
        for each in range(again, last + 1):
            self._history.steps[each](self._process(), each)
            self._follow()
            if each == number and not self._late:
                assert rows_of(self._process()) == whole.states[number + 1], where
        forget_caches()
        end = self._process()
        assert rows_of(end) == whole.states[-1], where
        self._history.check(end)
        self._require_followed()
        if not between:
            assert sorted(self._reader.changes, key=repr) == whole.changes, where
        committed = [
            (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind)
            for snapshot in map(end.snapshots.read, end.snapshots.ids())
        ]
        assert len(committed) == len(set(committed)), where

    def _lies_between(self, seen: Rows, before: Rows, after: Rows) -> bool:
        """Whether rows are those before or after a step; bucket by bucket if seen late."""
        if seen in (before, after):
            return True
        old, new = set(before), set(after)
        return self._late and old & new <= set(seen) <= old | new

    # --- time travel -------------------------------------------------------------------------

    def _places(self, kept: pathlib.Path) -> Iterator[tuple[pathlib.Path, pathlib.Path]]:
        yield self._live, kept / "live"
        yield pathlib.Path(os.environ[DIRECTORY_VARIABLE]), kept / "lookup"

    def _keep(self, number: int) -> None:
        for place, kept in self._places(self._kept / str(number)):
            if place.exists():
                shutil.copytree(place, kept)
        self._before.append((self._clock.now_ms(), copy.deepcopy(self._reader)))

    def _bring_back(self, number: int) -> None:
        for place, kept in self._places(self._kept / str(number)):
            shutil.rmtree(place, ignore_errors=True)
            if kept.exists():
                shutil.copytree(kept, place)
        now_ms, reader = self._before[number]
        self._clock = ManualClock(now_ms)
        self._reader = copy.deepcopy(reader)

    def _fingerprint(self) -> bytes:
        """Of all bytes, by name; temporary files have names of their own every time."""
        seen = []
        for place, _ in self._places(self._kept):
            for path in place.rglob("*"):
                if path.is_file():
                    name = str(path.relative_to(place))
                    if name.endswith(".tmp"):
                        name = name[: -len(f"{uuid.UUID(int=0)}.tmp")]
                    seen.append((name, path.read_bytes()))
        digest = hashlib.blake2b(digest_size=16)
        for name, data in sorted(seen):
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        digest.update(str(self._clock.now_ms()).encode())
        return digest.digest()

    def _follow(self) -> None:
        if self._history.changelog:
            self._reader.read(self._process())

    def _require_followed(self) -> None:
        if self._history.changelog:
            rows = sorted(self._reader.rows.values(), key=repr)
            assert rows == rows_of(self._process())

    def _process(self, store: FileIO | None = None, *, seed: int | None = None) -> FileStoreTable:
        table = dataclasses.replace(self._table, clock=self._clock)
        return reopened(table, file_io=self._plain if store is None else store, seed=seed)


def enumerate_crashes(directory: pathlib.Path, history: History) -> Enumerated:
    """Fail at every operation of a history in every way that makes a difference."""
    return _enumerate(Run(directory, history), lambda faults: faults)


def sample_crashes(directory: pathlib.Path, history: History, count: int) -> Enumerated:
    """Fail at some operations: each time in another way, and elsewhere in each history."""

    def chosen(faults: Sequence[tuple[int, Fault]]) -> Iterator[tuple[int, Fault]]:
        turn = len(faults)  # histories differ, too
        for number in range(count):
            mode = MODES[(turn + number) % len(MODES)]
            of_mode = [one for one in faults if one[1].mode == mode]
            yield of_mode[(turn + len(of_mode) * number // count) % len(of_mode)]

    return _enumerate(Run(directory, history), chosen)


def _enumerate(
    run: Run,
    choice: Callable[[Sequence[tuple[int, Fault]]], Iterable[tuple[int, Fault]]],
) -> Enumerated:
    whole = run.whole()
    faults = distinct = 0
    for number, fault in choice(list(whole.faults())):
        faults += 1
        distinct += run.survive(number, fault, whole)
    return Enumerated(sum(map(len, whole.operations)), faults, distinct)
