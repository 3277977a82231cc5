# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.interop.differential [--seed N] [--first N] [--count N] [--only GLOB]`.

Carries random histories out with Apache Paimon's Java implementation and with Lakeward and compares
after every commit: the rows, the changes that the commit brought (as a multiset, and in order per
key), and the snapshots it made. Java's rows are read by Java, ours by us; changelog files of both
are read by us, which the golden tables check. At the end Java reads our table, too.
"""

import argparse
import collections
import dataclasses
import fnmatch
import itertools
import pathlib
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from changelog.stream_scan import StreamScan
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.errors import LakewardError
from storage.io.local import LocalFileIO
from storage.lsm.merge_functions.aggregators.sketches import decode_java, looks_like_java
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog
from tests.conformance.id_sets import held
from tests.conformance.values import change_rows
from tests.golden.values import arrow_rows, difference
from tests.interop import artifacts
from tests.interop.generated_histories import AVOIDED, SEED, Commit, History, history
from tests.interop.java_peer import JavaPeer
from tests.table_kit import rows_batch

__all__ = ["Report", "compare"]

_FROM_FIRST = {"scan.snapshot-id": "1"}
_REFUSALS = (LakewardError, Py4JJavaError)


@dataclasses.dataclass(slots=True)
class Report:
    """What became of one history.

    Attributes:
        name: of the history.
        commits: how many were compared.
        refused: both sides refused a commit or a read with these words; what follows is not run.
        differences: none when both agree.
    """

    name: str
    commits: int = 0
    refused: str = ""
    differences: list[str] = dataclasses.field(default_factory=list)


def compare(java: JavaPeer, dealt: History) -> Report:
    """Carry a history out on both sides; stops at the first commit that differs."""
    report = Report(dealt.name)
    name = f"history_{dealt.seed}_{dealt.number}"
    java.create(f"db.{name}", dealt.schema())
    sides = [_Java(java, f"db.{name}", dealt), _Ours(java, f"db.{name}_ours", dealt)]
    if dealt.number % 3 == 0:
        java.create(f"db.{name}_turns", dealt.schema())
        sides.append(_Turns(java, f"db.{name}_turns", dealt))
    for number, commit in enumerate(dealt.commits, start=1):
        outcomes = [side.outcome(number, commit) for side in sides]
        report.commits += 1
        report.differences += [
            f"{who}, commit {number} of {len(dealt.commits)} ({commit.compaction}): {text}"
            for who, outcome in zip(("we", "in turns"), outcomes[1:], strict=False)
            for text in _differences(dealt, outcomes[0], outcome)
        ]
        if outcomes[0].error and not report.differences:
            report.refused = f"{outcomes[0].error} / {outcomes[1].error}"
        if report.differences or report.refused:
            return report
    seen = _comparable(arrow_rows(java.read(f"db.{name}_ours"), sides[1].fields), dealt)
    text = difference(seen, outcomes[1].rows)
    if text:
        report.differences.append(f"Java reads our table differently: {text}")
    for side in sides:
        report.differences += _streamed(java, side)
    return report


def _streamed(java: JavaPeer, side: "_Side") -> Iterator[str]:
    """Differences between streams of one table, as Java reads it and as we do."""
    theirs = []
    for step in java.changes(side.name):
        rows = arrow_rows(step.drop_columns(["rowkind"]), side.fields)
        kinds = step.column("rowkind").to_pylist()
        theirs.append([(kind, *row) for kind, row in zip(kinds, rows, strict=True)])
    options = {"scan.mode": "from-snapshot", "lakeward.streaming-read.unmerged": "true"}
    scan = StreamScan(side.table.with_options({**options, **_FROM_FIRST}))
    ours = []
    while (found := scan.next_batch()) is not None:
        ours.append(change_rows(found, side.fields))
    if len(theirs) != len(ours):
        yield f"stream of {side.name}: {len(theirs)} steps in Java, {len(ours)} with us"
    for number, (expected, seen) in enumerate(zip(theirs, ours, strict=False), start=1):
        text = difference(expected, seen)
        keys = len(side.dealt.keys)
        if text or _by_key(expected, keys) != _by_key(seen, keys):
            yield f"stream of {side.name}, step {number}: {text or 'another order in a key'}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Outcome:
    """What a commit came to on one side: rows afterwards and what its snapshots brought."""

    error: str = ""
    rows: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    snapshots: list[str] = dataclasses.field(default_factory=list)
    changes: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    files: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)


class _Side:
    """One table and how to write it."""

    def __init__(self, java: JavaPeer, name: str, dealt: History, table: FileStoreTable) -> None:
        self.java = java
        self.name = name
        self.dealt = dealt
        self.last = 0
        self.table = table
        self.fields = self.table.schema.fields

    def write(self, number: int, commit: Commit) -> None:
        raise NotImplementedError

    def read(self) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def outcome(self, number: int, commit: Commit) -> _Outcome:
        try:
            self.write(number, commit)
            rows = self.read()
        except Exception as error:
            if isinstance(error, _REFUSALS):
                return _Outcome(error=_said(error))
            return _Outcome(error=f"BROKEN {traceback.format_exc()[-700:]}")
        snapshots = [self.table.snapshots.read(i) for i in self.table.snapshots.ids()]
        new = [snapshot for snapshot in snapshots if snapshot.id > self.last]
        self.last = snapshots[-1].id if snapshots else 0
        changes = [
            change
            for snapshot in new
            for change in change_rows(read_snapshot_changelog(self.table, snapshot.id), self.fields)
        ]
        entries = self.table.new_scan().live_entries(snapshots[-1]) if snapshots else []
        return _Outcome(
            rows=_comparable(rows, self.dealt),
            snapshots=[snapshot.commit_kind.value for snapshot in new],
            changes=_comparable(changes, self.dealt, offset=1),
            files=[
                (e.partition, e.bucket, e.file.level, e.file.row_count, e.file.delete_row_count)
                for e in entries
            ],
        )


def _write_java(side: _Side, number: int, commit: Commit) -> None:
    del number
    side.java.write(
        side.name,
        commit.rows,
        compaction=commit.compaction != "off",
        asked=commit.compaction if commit.compaction in ("minor", "full") else None,
        flushed=commit.flushed,
    )


def _write_ours(side: _Side, number: int, commit: Commit) -> None:
    user = f"us-{number}"
    with side.table.new_write(user, compaction=commit.compaction != "off") as writer:
        rows = [(kind, *values) for kind, values in commit.rows]
        for start, end in itertools.pairwise((0, *commit.flushed, len(rows))):
            if start:
                writer.compact()
            if start < end:
                writer.write(rows_batch(side.table, rows[start:end]))
        if commit.compaction in ("minor", "full"):
            writer.compact(full=commit.compaction == "full")
        messages = writer.prepare_commit(periodic=False)
    side.table.new_commit(user).commit(messages, 1, ignore_empty=True)


def _read_java(side: _Side) -> list[tuple[Any, ...]]:
    return arrow_rows(side.java.read(side.name), side.fields)


def _read_ours(side: _Side) -> list[tuple[Any, ...]]:
    return arrow_rows(side.table.to_arrow(), side.fields)


def _found(java: JavaPeer, name: str) -> FileStoreTable:
    return FileStoreTable.open(str(java.warehouse / "db.db" / name.partition(".")[2]))


class _Java(_Side):
    def __init__(self, java: JavaPeer, name: str, dealt: History) -> None:
        super().__init__(java, name, dealt, _found(java, name))

    def write(self, number: int, commit: Commit) -> None:
        _write_java(self, number, commit)

    def read(self) -> list[tuple[Any, ...]]:
        return _read_java(self)


class _Ours(_Side):
    def __init__(self, java: JavaPeer, name: str, dealt: History) -> None:
        catalog = FileSystemCatalog(
            str(java.warehouse),
            file_io=LocalFileIO(durable=False),
            clock=ManualClock(),
            ids=SeededIds(dealt.number),
        )
        super().__init__(java, name, dealt, catalog.create_table(name, dealt.schema()))

    def write(self, number: int, commit: Commit) -> None:
        _write_ours(self, number, commit)

    def read(self) -> list[tuple[Any, ...]]:
        return _read_ours(self)


class _Turns(_Side):
    """One table written by Java and by us in turns; who did not write reads."""

    def __init__(self, java: JavaPeer, name: str, dealt: History) -> None:
        super().__init__(java, name, dealt, _found(java, name))
        self._wrote_java = False

    def write(self, number: int, commit: Commit) -> None:
        self._wrote_java = number % 2 == 1
        (_write_java if self._wrote_java else _write_ours)(self, number, commit)

    def read(self) -> list[tuple[Any, ...]]:
        return (_read_ours if self._wrote_java else _read_java)(self)


def _said(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"[:300]
    return f"{type(error).__name__}: {error}"[:300]


# ---------------------------------------------------------------------------- comparison


def _comparable(
    rows: Sequence[tuple[Any, ...]], dealt: History, offset: int = 0
) -> list[tuple[Any, ...]]:
    """Rows whose undefined orders and bytes are put into one form."""
    forms = {
        place + offset: column.compared
        for place, column in enumerate(dealt.columns)
        if column.compared != "exactly"
    }
    if not forms:
        return list(rows)
    return [
        tuple(
            _form(value, forms[place]) if place in forms and value is not None else value
            for place, value in enumerate(row)
        )
        for row in rows
    ]


def _form(value: Any, form: str) -> Any:
    if form == "unordered":
        return tuple(sorted(value, key=repr))
    if form == "rbm64" and looks_like_java(bytes.fromhex(value)):
        return frozenset(decode_java(bytes.fromhex(value)).tolist())
    return held(form, value)


def _differences(dealt: History, java: _Outcome, ours: _Outcome) -> Iterator[str]:
    if bool(java.error) != bool(ours.error) or ours.error.startswith("BROKEN"):
        yield f"error: Java `{java.error}`, we `{ours.error}`"
        return
    text = difference(java.rows, ours.rows)
    if text:
        yield f"rows (expected is Java's): {text}"
    text = difference(java.changes, ours.changes)
    if text:
        yield f"changes: {text}"
    elif _by_key(java.changes, len(dealt.keys)) != _by_key(ours.changes, len(dealt.keys)):
        yield f"changes of a key came in another order: {java.changes} / {ours.changes}"
    if java.snapshots != ours.snapshots:
        yield f"snapshots: Java made {java.snapshots}, we {ours.snapshots}"
    text = difference(java.files, ours.files)
    if text:
        yield f"files: {text}"


def _by_key(changes: Sequence[tuple[Any, ...]], keys: int) -> dict[Any, list[tuple[Any, ...]]]:
    found: dict[Any, list[tuple[Any, ...]]] = collections.defaultdict(list)
    for change in changes:
        found[change[1 : 1 + keys]].append(change)
    return found


# ------------------------------------------------------------------------------ by hand


def main() -> int:
    """Run histories and print what differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.differential", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=0, help="number of the first history")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", default="*", metavar="GLOB", help="names of the histories")
    arguments = parser.parse_args()
    print(f"Apache Paimon Java {artifacts.CORE[2]}, seed {arguments.seed}")
    for name, text in AVOIDED.items():
        print(f"not compared: {name}: {text}")
    counts: collections.Counter[str] = collections.Counter()
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as folder,
        JavaPeer.running(pathlib.Path(folder)) as java,
    ):
        for number in range(arguments.first, arguments.first + arguments.count):
            dealt = history(arguments.seed, number)
            if not fnmatch.fnmatchcase(dealt.name, arguments.only):
                continue
            report = compare(java, dealt)
            verdict = "differs" if report.differences else "agrees"
            counts[f"{verdict}, refused by both" if report.refused else verdict] += 1
            counts["commits"] += report.commits
            for text in report.differences:
                print(f"DIFFERS {dealt.name}: {text[:1500]}")
            if report.refused:
                print(f"refused {dealt.name}: {report.refused}")
            if number % 20 == 19:
                print(f"{number + 1}: {dict(counts)}")
    print(dict(counts))
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
