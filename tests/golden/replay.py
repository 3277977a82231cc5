# SPDX-License-Identifier: Apache-2.0
"""Writes a golden case again with our writer and compares what every snapshot holds and brought.

The steps of `case.json` are what Java was told to do. After each of them the snapshots must be
those that Java made: kind, identifier, rows of a batch read, and the changes a streaming reader
receives. Cases that change branches or statistics are left out; so are the large ones, which do
not list their rows.
"""

import collections
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from storage.format.row.binary_row import decode_row
from storage.format.types.types import DataField
from storage.io.local import LocalFileIO
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog
from tests.conformance.values import (
    change_rows,
    expected_changes,
    expected_rows,
    found_rows,
    input_batch,
)
from tests.golden.json_values import golden_type
from tests.golden.values import difference, from_internal, rows_from_text
from tests.reporting import CaseReport

__all__ = ["replay_case"]

_USER = "golden-user"


def replay_case(path: pathlib.Path, warehouse: pathlib.Path) -> CaseReport:
    """Write a case again and compare; every difference is in the report, nothing is raised.

    Args:
        path: folder of the case.
        warehouse: where the table goes.
    """
    report = CaseReport(path.name)
    description = json.loads((path / "case.json").read_text(encoding="utf-8"))
    for step in description["steps"]:
        if step["op"] not in _STEPS and step["op"] not in _NO_SNAPSHOT:
            report.left_out.append(f"step `{step['op']}`")
        if "rows_written" in step:
            report.left_out.append("its rows are not listed")
    if report.left_out:
        return report
    expected = {
        name: json.loads((path / "expected" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("snapshots", "changelog", "files")
    }
    try:
        replay = _Replay(description, expected, warehouse)
        report.failures.extend(replay.differences())
    except Exception as error:
        report.failures.append(f"{type(error).__name__}: {str(error)[:300]}")
    report.checked.append("written again")
    return report


class _Replay:
    def __init__(
        self,
        description: Mapping[str, Any],
        expected: Mapping[str, Any],
        warehouse: pathlib.Path,
    ) -> None:
        self.description = description
        self.expected = expected
        self.identifiers = itertools.count(1)
        catalog = FileSystemCatalog(
            str(warehouse),
            file_io=LocalFileIO(durable=False),
            clock=ManualClock(),
            ids=SeededIds(1),
        )
        columns = [
            DataField(id=0, name=column["name"], type=golden_type(column["type"]))
            for column in description["columns"]
        ]
        schema = new_schema(
            columns,
            primary_keys=description["primary_key"],
            partition_keys=description["partition"],
            options=description["options"],
            now_ms=0,
        )
        self.table: FileStoreTable = catalog.create_table("golden.t", schema)
        self._batches = itertools.count()
        self._pairs: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []

    def differences(self) -> Iterator[str]:
        """Every difference, step by step."""
        for number, step in enumerate(self.description["steps"], start=1):
            act = _STEPS.get(step["op"])
            if act is None:
                continue
            before = self.table.snapshots.latest_id() or 0
            act(self, step)
            made = range(before + 1, (self.table.snapshots.latest_id() or 0) + 1)
            if not step["snapshots"] and not made:
                continue
            place = f"step {number} ({step['op']})"
            self._pairs.append((place, tuple(step["snapshots"]), tuple(made)))
            yield from (f"{place}: {text}" for text in self._check(*self._pairs[-1][1:]))
        for place, java, ours in self._pairs:  # changes are given in the newest schema
            yield from (f"{place}: {text}" for text in self._check_changes(java, ours))

    def _check(self, java: Sequence[int], ours: Sequence[int]) -> Iterator[str]:
        """Snapshots of one step and the rows after each of them."""
        facts = [self.expected["files"].get(str(i)) for i in java]
        snapshots = [self.table.snapshots.read(i) for i in ours]
        if None in facts:  # expired since
            return
        wanted = [(one["commit_kind"], one["commit_identifier"]) for one in facts]
        found = [(one.commit_kind.value, one.commit_identifier) for one in snapshots]
        if wanted != found and not self._by_sizes(wanted, found):
            yield f"expected snapshots {wanted}, made {found}"
        for place, snapshot in enumerate(snapshots):
            last = snapshot is snapshots[-1]
            rows = self.expected["snapshots"].get(str(java[-1 if last else place]))
            if rows is None:
                continue
            fields = self.table.schemas.read(snapshot.schema_id).fields
            unordered = tuple(self.description.get("unordered_columns", ()))
            read = self.table.to_arrow(snapshot=snapshot.id)
            text = difference(
                expected_rows(rows, fields, unordered), found_rows(read, fields, unordered)
            )
            if text:
                yield f"rows of the {snapshot.commit_kind.value}: {text}"

    @staticmethod
    def _by_sizes(wanted: Sequence[Any], found: Sequence[Any]) -> bool:
        """Whether only a compaction was made or not made, which may be due to sizes of files."""
        return [one for one in wanted if one[0] != "COMPACT"] == [
            one for one in found if one[0] != "COMPACT"
        ]

    def _check_changes(self, java: Sequence[int], ours: Sequence[int]) -> Iterator[str]:
        """What a step brought; -U and +U of one key may not be apart."""
        if any(str(i) not in self.expected["files"] for i in java):
            return
        schema = self.table.schema
        listed = [change for i in java for change in self.expected["changelog"].get(str(i), [])]
        wanted = expected_changes(listed, schema.fields)
        found = [
            change
            for i in ours
            for change in change_rows(read_snapshot_changelog(self.table, i), schema.fields)
        ]
        text = difference(wanted, found)
        if text:
            yield f"changes: {text}"
            return
        keys = [schema.field_names.index(name) + 1 for name in schema.primary_keys]
        if keys and _by_key(wanted, keys) != _by_key(found, keys):
            yield "changes of a key in another order"

    # --------------------------------------------------------------------------- steps

    def write(self, step: Mapping[str, Any]) -> None:
        identifier = next(self.identifiers)
        table = self.table.with_options(step.get("options") or {})
        with table.new_write(_USER) as writer:
            if step.get("rows"):
                writer.write(input_batch(step["rows"], self.table.schema.fields))
            how = step.get("compact") or step.get("mode")
            if how is not None:
                writer.compact(full=how == "full")
            messages = writer.prepare_commit(periodic=False)
        commit = self.table.new_commit(_USER)
        commit.commit(messages, identifier, watermark=step.get("watermark"), ignore_empty=False)

    def overwrite(self, step: Mapping[str, Any]) -> None:
        with self.table.new_write(_USER, overwrite=True) as writer:
            if step.get("rows"):
                writer.write(input_batch(step["rows"], self.table.schema.fields))
            messages = writer.prepare_commit()
        partition = step.get("partition") or {}
        user = f"batch-{next(self._batches)}"
        self.table.new_commit(user).overwrite(messages, 2**63 - 1, partition=partition)

    def truncate(self, step: Mapping[str, Any]) -> None:
        fields = self.table.schema.partition_fields
        types = [field.type for field in fields]
        gone = [
            rows_from_text([[one[field.name] for field in fields]], types)[0]
            for one in step.get("partitions") or []
        ]

        def doomed(framed: bytes) -> bool:
            values = map(from_internal, decode_row(framed, types), types)
            return not gone or tuple(values) in gone

        self.table.new_commit(f"batch-{next(self._batches)}").truncate(2**63 - 1, partitions=doomed)

    def alter(self, step: Mapping[str, Any]) -> None:
        self.table = self.table.alter([_change(change) for change in step["changes"]])


_STEPS: Mapping[str, Callable[[_Replay, Mapping[str, Any]], None]] = {
    "write": _Replay.write,
    "compact": _Replay.write,
    "overwrite": _Replay.overwrite,
    "truncate": _Replay.truncate,
    "alter": _Replay.alter,
}
_NO_SNAPSHOT = frozenset({"tag", "consumer", "expire"})
"""Steps that change no rows and no changelog."""


def _change(change: Mapping[str, Any]) -> SchemaChange:
    steps = tuple(change["name"].split("/"))
    name = steps[0] if len(steps) == 1 else steps
    after, first = change.get("after"), change.get("first", False)
    match change["change"]:
        case "add":
            return AddColumn(name, golden_type(change["type"]), after=after, first=first)
        case "rename":
            return RenameColumn(name, change["to"])
        case "drop":
            return DropColumn(name)
        case "type":
            return UpdateType(name, golden_type(change["type"]))
        case "move":
            return MoveColumn(name, after=after, first=first)
        case kind:
            raise NotImplementedError(kind)


def _by_key(
    changes: Sequence[tuple[Any, ...]], places: Sequence[int]
) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    found: dict[tuple[Any, ...], list[tuple[Any, ...]]] = collections.defaultdict(list)
    for change in changes:
        found[tuple(change[place] for place in places)].append(change)
    return found
