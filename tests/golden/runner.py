# SPDX-License-Identifier: Apache-2.0
"""Reads one golden case with the storage layer and compares everything the case expects.

A case is a folder: `table/` as Java left it, `case.json` with the columns, the options and the
steps that Java was told, `expected/` with what Java read. It has parts, each a file there:
`latest`, `snapshots`, `changelog`, `files` and whatever `extra.json` holds. A part that needs a
feature of a later release (see `tests.conformance.features`) is left out and named; all others are
checked.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from changelog.stream_scan import StreamScan
from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema import TableSchema
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog
from tests.conformance.features import later, read_needs
from tests.conformance.values import change_rows, expected_changes, expected_rows, found_rows
from tests.golden.extras import check_extra, extra_needs
from tests.golden.files import check_files, format_needs
from tests.golden.values import difference
from tests.reporting import CaseReport

__all__ = ["Case", "find_cases", "run_case"]

_CASE_KEYS = {
    *("name", "writer", "why", "pypaimon", "columns", "primary_key", "partition", "options"),
    *("features", "steps", "unordered_columns", "export_snapshots"),
}
_EXPECTED = {"latest.json", "snapshots.json", "changelog.json", "files.json", "extra.json"}
_REQUIRED = _EXPECTED - {"extra.json"}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One case folder, opened.

    Attributes:
        path: the folder.
        description: `case.json`.
        expected: the parsed files of `expected/` by name without suffix.
        table: the table, opened.
    """

    path: pathlib.Path
    description: Mapping[str, Any]
    expected: Mapping[str, Any]
    table: FileStoreTable

    @property
    def options(self) -> Mapping[str, str]:
        """The table's options now, which may be more than at creation."""
        return {**self.description["options"], **self.table.schema.options}

    @property
    def unordered(self) -> tuple[str, ...]:
        """Array columns whose order is not defined."""
        return tuple(self.description.get("unordered_columns", ()))

    def schema_of(self, snapshot_id: int) -> TableSchema:
        """The schema time travel to a snapshot shows."""
        return self.table.schemas.read(self.table.snapshots.read(snapshot_id).schema_id)


def find_cases(pack: pathlib.Path) -> list[pathlib.Path]:
    """Case folders of a pack, by name; the pack may also be a single case.

    Raises:
        FileNotFoundError: there is none: missing data is never a success.
    """
    if (pack / "case.json").is_file():
        return [pack]
    cases = sorted(folder.parent for folder in pack.glob("*/case.json"))
    if not cases:
        raise FileNotFoundError(f"no golden case in {pack}")
    return cases


def run_case(path: pathlib.Path) -> CaseReport:
    """Check one case; every difference is in the report, nothing is raised."""
    report = CaseReport(path.name)
    try:
        case = _open(path, report)
    except Exception as error:
        report.failures.append(f"open: {_error_text(error)}")
        return report
    for name, needs, check in _parts(case):
        reasons = later(needs)
        if reasons:
            report.left_out.extend(f"{name} ({reason})" for reason in reasons)
            continue
        report.checked.append(name)
        try:
            report.failures.extend(f"{name}: {text}" for text in check(case))
        except Exception as error:
            report.failures.append(f"{name}: {_error_text(error)}")
    return report


_Check = Callable[[Case], Iterator[str]]


def _open(path: pathlib.Path, report: CaseReport) -> Case:
    description = json.loads((path / "case.json").read_text(encoding="utf-8"))
    for key in set(description) - _CASE_KEYS:
        report.failures.append(f"unknown key `{key}` in case.json")
    files = {file.name for file in (path / "expected").iterdir()}
    report.failures.extend(f"unknown file expected/{name}" for name in files - _EXPECTED)
    report.failures.extend(f"missing file expected/{name}" for name in _REQUIRED - files)
    expected = {
        name.removesuffix(".json"): json.loads(
            (path / "expected" / name).read_text(encoding="utf-8")
        )
        for name in sorted(files & _EXPECTED)
    }
    table = FileStoreTable.open(str((path / "table").resolve()))
    return Case(path, description, expected, table)


def _parts(case: Case) -> Iterator[tuple[str, list[str], _Check]]:
    data_formats = format_needs(case.expected["files"], "files")
    reading = [*read_needs(case.options), *data_formats]
    formats = [*data_formats, *format_needs(case.expected["files"], "changelog_files")]
    yield "files", [], check_files
    yield "changelog", formats, _check_changelog
    yield "stream", formats, _check_stream
    if later(reading):
        yield "refusal", [], _check_refused
    yield "latest", reading, _check_latest
    yield "snapshots", reading, _check_snapshots
    for key, content in case.expected.get("extra", {}).items():
        for part in extra_needs(key, content, reading):
            yield part.name, part.needs, lambda case, part=part: check_extra(case, part)


def _check_refused(case: Case) -> Iterator[str]:
    """A table that needs a missing feature must be refused, not read wrongly."""
    if not any(content["files"] for content in case.expected["files"].values()):
        return
    try:
        case.table.to_arrow()
    except UnsupportedFeatureError:
        return
    yield "the table was read although it needs a feature that is not there"


def _check_latest(case: Case) -> Iterator[str]:
    fields = case.table.schema.fields
    wanted = expected_rows(case.expected["latest"], fields, case.unordered)
    text = difference(wanted, found_rows(case.table.to_arrow(), fields, case.unordered))
    if text:
        yield text


def _check_snapshots(case: Case) -> Iterator[str]:
    ids = case.table.snapshots.ids()
    chosen = case.description.get("export_snapshots")
    listed = ids if chosen is None else [i for i in ids if i in chosen]
    if sorted(map(int, case.expected["snapshots"])) != listed:
        yield f"expected {sorted(map(int, case.expected['snapshots']))}, found {listed}"
    for snapshot_id, rows in case.expected["snapshots"].items():
        fields = case.schema_of(int(snapshot_id)).fields
        table = case.table.to_arrow(snapshot=int(snapshot_id))
        if table.column_names != [field.name for field in fields]:
            yield f"snapshot {snapshot_id}: columns {table.column_names}"
            continue
        wanted = expected_rows(rows, fields, case.unordered)
        text = difference(wanted, found_rows(table, fields, case.unordered))
        if text:
            yield f"snapshot {snapshot_id}: {text}"


def _check_changelog(case: Case) -> Iterator[str]:
    """The changes of every live snapshot, asked for one by one."""
    ids = case.table.snapshots.ids()
    known = {*ids, *case.table.changelogs.ids()}
    unknown = set(map(int, case.expected["changelog"])) - known
    if unknown:
        yield f"expected changes of snapshots that are not there: {sorted(unknown)}"
    fields = case.table.schema.fields
    for snapshot_id in ids:
        found = change_rows(read_snapshot_changelog(case.table, snapshot_id), fields)
        yield from _compare_changes(case, snapshot_id, found)


def _check_stream(case: Case) -> Iterator[str]:
    """The same changes from a streaming read, long-lived changelogs of expired snapshots first."""
    known = case.table.snapshots.ids()
    listed = set(map(int, case.expected["changelog"]))
    if not listed <= set(known):  # some are of expired snapshots
        known = sorted({*known, *case.table.changelogs.ids()})
    if not known:
        return
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(known[0])}
    options["lakeward.streaming-read.unmerged"] = "true"  # as Java's core, below its engines
    scan = StreamScan(case.table.with_options(options))
    delivered: dict[int, list[tuple[Any, ...]]] = {}
    while (rows := scan.next_batch()) is not None:
        delivered[scan.last_snapshot_id or 0] = change_rows(rows, case.table.schema.fields)
    if sorted(delivered) != list(delivered):
        yield f"snapshots came in the order {list(delivered)}"
    for snapshot_id in sorted({*known, *listed}):
        yield from _compare_changes(case, snapshot_id, delivered.get(snapshot_id, []))


def _compare_changes(case: Case, snapshot_id: int, found: list[tuple[Any, ...]]) -> Iterator[str]:
    schema = case.table.schema
    expected = case.expected["changelog"].get(str(snapshot_id), [])
    wanted = expected_changes(expected, schema.fields)
    text = difference(wanted, found)
    if text:
        yield f"snapshot {snapshot_id}: {text}"
    elif schema.primary_keys and _by_key(schema, wanted) != _by_key(schema, found):
        yield f"snapshot {snapshot_id}: the changes of a key came in another order"


def _by_key(
    schema: TableSchema, changes: list[tuple[Any, ...]]
) -> dict[tuple[Any, ...], list[tuple[Any, ...]]]:
    places = [schema.field_names.index(name) + 1 for name in schema.primary_keys]
    grouped: dict[tuple[Any, ...], list[tuple[Any, ...]]] = collections.defaultdict(list)
    for change in changes:
        grouped[tuple(change[place] for place in places)].append(change)
    return grouped


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
