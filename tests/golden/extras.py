# SPDX-License-Identifier: Apache-2.0
"""Compares `extra.json` of a golden case: partitions, filters, tags and what comes later."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.format.files.row_selection import Only
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.types.types import DataField
from storage.table.inspect.statistics import read_statistics
from storage.table.retention.consumers import all_consumers
from storage.table.retention.reachability import branch_names
from storage.table.scan.file_index import FileIndexFilter
from storage.table.scan.predicate import parse_predicate
from tests.conformance.values import expected_rows, found_rows
from tests.golden.values import difference, from_internal, rows_from_text

if TYPE_CHECKING:
    from tests.golden.runner import Case

__all__ = ["ExtraPart", "check_extra", "extra_needs"]


@dataclasses.dataclass(frozen=True, slots=True)
class ExtraPart:
    """One member of extra.json, or a part of one.

    Attributes:
        name: for the report.
        needs: features it waits for.
        content: what is expected.
        check: how to compare it.
    """

    name: str
    needs: list[str]
    content: Any
    check: Callable[["Case", Any], Iterator[str]]


def extra_needs(key: str, content: Any, reading: Sequence[str]) -> Iterator[ExtraPart]:
    """The parts of one member of extra.json.

    Args:
        key: the member.
        content: its value.
        reading: features needed to read rows of the table.
    """
    rows = list(reading)
    if key == "partitions":
        yield ExtraPart(key, [], content, _check_partitions)
    elif key == "filters":
        yield ExtraPart(key, rows, content, _check_filters)
        if any("file_index" in item for item in content):
            yield ExtraPart("file index verdicts", [*rows, "file-index"], content, _check_verdicts)
    elif key == "tags":
        yield ExtraPart(key, rows, content, _check_tags)
    elif key == "branches":
        yield ExtraPart(key, rows, content, _check_branches)
    elif key == "consumers":
        yield ExtraPart(key, [], content, _check_consumers)
    elif key == "statistics":
        yield ExtraPart(key, [], content, _check_statistics)
    elif key == "long_lived_changelogs":
        yield ExtraPart(key, [], content, _check_long_lived)
    else:
        yield ExtraPart(key, [key], content, _unknown)


def check_extra(case: "Case", part: ExtraPart) -> Iterator[str]:
    """Every difference in one part."""
    return part.check(case, part.content)


def _unknown(case: "Case", content: Any) -> Iterator[str]:
    del content
    yield f"the runner cannot check this member of extra.json of {case.description['name']}"


def _check_partitions(case: "Case", content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    fields = case.table.schema.partition_fields
    types = [field.type for field in fields]
    live = {
        entry.partition
        for snapshot_id in case.table.snapshots.ids()
        for entry in case.table.new_scan().live_entries(case.table.snapshots.read(snapshot_id))
    }
    wanted = {bytes.fromhex(item["row_hex"]) for item in content}
    if not wanted <= live:
        yield f"partitions not found: {sorted(row.hex() for row in wanted - live)}"
    for item in content:
        unknown = set(item) - {"values", "path", "row_hex"}
        if unknown:
            yield f"unknown keys {sorted(unknown)}"
        row = bytes.fromhex(item["row_hex"])
        path = case.table.partition_path(row)
        if path.rstrip("/") != item["path"].rstrip("/"):
            yield f"path: expected {item['path']!r}, found {path!r}"
        values = tuple(map(from_internal, decode_row(row, types), types))
        if values != rows_from_text([item["values"]], types)[0]:
            yield f"values: expected {item['values']}, found {values}"


def _check_tags(case: "Case", content: Mapping[str, Any]) -> Iterator[str]:
    for name, item in content.items():
        snapshot = Snapshot.from_json(
            case.table.file_io.read_bytes(case.table.layout.tag_file(name))
        )
        if snapshot.id != item["snapshot"]:
            yield f"{name}: expected snapshot {item['snapshot']}, found {snapshot.id}"
        fields = case.table.schemas.read(snapshot.schema_id).fields
        found = case.table.new_read().to_table(case.table.new_scan().plan(snapshot))
        text = difference(
            expected_rows(item["rows"], fields, case.unordered),
            found_rows(found, fields, case.unordered),
        )
        if text:
            yield f"{name}: {text}"


def _check_branches(case: "Case", content: Mapping[str, Any]) -> Iterator[str]:
    if sorted(content) != branch_names(case.table):
        yield f"expected {sorted(content)}, found {branch_names(case.table)}"
    for name, item in content.items():
        unknown = set(item) - {"latest_snapshot", "rows", "snapshots"}
        if unknown:
            yield f"unknown keys {sorted(unknown)}"
        branch = case.table.at_branch(name)
        fields = branch.schema.fields
        if branch.snapshots.latest_id() != item["latest_snapshot"]:
            yield f"{name}: newest snapshot {branch.snapshots.latest_id()}"
        if list(map(str, branch.snapshots.ids())) != sorted(item["snapshots"]):
            yield f"{name}: snapshots {branch.snapshots.ids()}"
        for snapshot_id, rows in [(None, item["rows"]), *item["snapshots"].items()]:
            number = None if snapshot_id is None else int(snapshot_id)
            found = branch.to_arrow(snapshot=number)
            text = difference(
                expected_rows(rows, fields, case.unordered),
                found_rows(found, fields, case.unordered),
            )
            if text:
                yield f"{name}, snapshot {snapshot_id}: {text}"


def _check_consumers(case: "Case", content: Mapping[str, int]) -> Iterator[str]:
    if all_consumers(case.table) != content:
        yield f"expected {dict(content)}, found {all_consumers(case.table)}"


def _check_long_lived(case: "Case", content: Any) -> Iterator[str]:
    """Ids of the changelogs that outlived their snapshots; what they say is in `changelog.json`."""
    ids = sorted(int(one["id"] if isinstance(one, Mapping) else one) for one in content)
    if case.table.changelogs.ids() != ids:
        yield f"expected {ids}, found {case.table.changelogs.ids()}"


def _check_statistics(case: "Case", content: Mapping[str, Any]) -> Iterator[str]:
    found = read_statistics(case.table)
    document = None if found is None else json.loads(found.to_json())
    if document != content:
        yield f"expected {dict(content)}, found {document}"


def _check_filters(case: "Case", content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    fields = case.table.schema.fields
    for item in content:
        unknown = set(item) - {"filter", "rows", "files_after_scan", "file_index"}
        if unknown:
            yield f"unknown keys {sorted(unknown)}"
        text = _filter_text(item["filter"], {field.name: field for field in fields})
        predicate = parse_predicate(text)
        found = case.table.to_arrow(filter=predicate)
        differing = difference(expected_rows(item["rows"], fields), found_rows(found, fields))
        if differing:
            yield f"{text}: {differing}"
        plan = case.table.new_scan().with_filter(predicate).plan()
        kept = {file.file_name for split in plan.splits for file in split.files}
        missing = set(item["files_after_scan"]) - kept
        if missing:
            yield f"{text}: files {sorted(missing)} must not be pruned"


def _check_verdicts(case: "Case", content: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the index alone says of every file; Java's `skip` and no rows are the same here."""
    table = case.table
    fields = {field.name: field for field in table.schema.fields}
    snapshot = table.latest_snapshot()
    if snapshot is None:
        yield "the table has no snapshot"
        return
    entries = {entry.file.file_name: entry for entry in table.new_scan().live_entries(snapshot)}
    for item in content:
        text = _filter_text(item["filter"], fields)
        predicate = parse_predicate(text)
        index = FileIndexFilter(table, predicate)
        splits = table.new_scan().with_filter(predicate).plan().splits
        kept = {file.file_name for split in splits for file in split.files}
        expected = item["file_index"]
        if set(expected) != set(entries):
            yield f"{text}: verdicts of {sorted(expected)}, files {sorted(entries)}"
            continue
        for name, verdict in expected.items():
            entry = entries[name]
            partition = table.partition_path(entry.partition)
            path = table.layout.data_file(partition, entry.bucket, name)
            found = index.selection(path, entry.file)
            rows = list(found.rows) if isinstance(found, Only) else "remain"
            if rows != ([] if verdict == "skip" else verdict):
                yield f"{text}: {name}: expected {verdict}, found {rows}"
            if rows == [] and entry.file.embedded_index is not None and name in kept:
                yield f"{text}: {name}: planned although its metadata says it has no such row"


_COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _filter_text(node: Sequence[Any], fields: Mapping[str, DataField]) -> str:
    """A prefix expression of extra.json as the text of a predicate."""
    operator, *arguments = node
    if operator in ("and", "or"):
        return f" {operator} ".join(f"({_filter_text(part, fields)})" for part in arguments)
    if operator == "not":
        return f"not ({_filter_text(arguments[0], fields)})"
    column = arguments[0]
    if column not in fields:
        raise ValueError(f"filter on unknown column {column}")
    if operator in _COMPARISONS:
        return f"{column} {_COMPARISONS[operator]} {_literal(arguments[1])}"
    if operator in ("in", "not_in"):
        items = ", ".join(map(_literal, arguments[1]))
        return f"{column} {operator.replace('_', ' ')} ({items})"
    if operator == "between":
        return f"{column} between {_literal(arguments[1])} and {_literal(arguments[2])}"
    if operator in ("is_null", "is_not_null"):
        return f"{column} {operator.replace('_', ' ')}"
    raise ValueError(f"unknown operator {operator}")


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)
