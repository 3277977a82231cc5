# SPDX-License-Identifier: Apache-2.0
"""A plan as values (topics, tables with columns and keys, warnings, type policies), JSON and text.

Built by `planner`.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingest.observe.text_table import aligned, human_size
from ingest.tools.plan.estimate import Estimate
from ingest.tools.plan.type_policies import TYPES_PAGE, Policy


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Something to know before the stream starts.

    Attributes:
        code: one word for machines.
        severe: whether records would be lost to quarantine, or a table not written.
        about: topic or table; empty = the pipeline.
        text: the finding.
        hint: what can be done.
    """

    code: str
    severe: bool
    about: str
    text: str
    hint: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutline:
    """A topic; `counts` are sampled records by fate."""

    name: str
    partitions: int
    records: int
    bytes: int
    cleanup_policy: str
    sampled: int
    tables: tuple[str, ...]
    counts: Mapping[str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a target; `roles` are of `key`, `partition`, `computed`, `metadata`."""

    name: str
    source_type: str
    type: str
    roles: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BadKind:
    """Sampled records of one class that would go to quarantine."""

    table: str
    topic: str
    error_class: str
    records: int
    example: str
    partition: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableOutline:
    """A target.

    Attributes:
        name: `database.table`.
        state: `new`, `exists`, `changes` (exists and gets other columns), or `refused`.
        sources: addresses of the source tables.
        topics: in which they occur.
        columns: as the table would be.
        primary_key: in order.
        key_from: where the key comes from, for people.
        partition_keys: in order.
        buckets: for people.
        options: of the table, without secrets.
        transforms: of rows, for people.
        changes: of an existing table.
        estimate: None unless requested.
    """

    name: str
    state: str
    sources: tuple[str, ...]
    topics: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    key_from: str = ""
    partition_keys: tuple[str, ...] = ()
    buckets: str = ""
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    transforms: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    estimate: Estimate | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The whole plan."""

    pipeline: str
    format: str
    topics: Sequence[TopicOutline]
    tables: Sequence[TableOutline]
    unrouted: Mapping[str, Sequence[str]]
    bad: Sequence[BadKind]
    warnings: Sequence[Notice]
    policies: Sequence[Policy]

    @property
    def severe(self) -> bool:
        """Whether the sample shows a severe problem."""
        return any(notice.severe for notice in self.warnings)


def as_document(outline: Outline) -> dict[str, Any]:
    """As plain values for JSON."""
    return dataclasses.asdict(outline)


def plan_text(outline: Outline) -> str:
    """The whole report, without final newline."""
    return "\n".join(_lines(outline))


def _lines(outline: Outline) -> Iterator[str]:
    severe = sum(notice.severe for notice in outline.warnings)
    notes = len(outline.warnings) - severe
    yield (
        f"pipeline {outline.pipeline}, {outline.format}: {_count(len(outline.topics), 'topic')}, "
        f"{_count(len(outline.tables), 'table')}, {_count(severe, 'problem')}, "
        f"{_count(notes, 'note')}"
    )
    if outline.topics:
        yield from ("", "topics", _topics(outline))
    for table in outline.tables:
        yield ""
        yield from _table(table)
    if outline.unrouted:
        yield from ("", "left out, no rule of `route` takes them")
    for address, topics in outline.unrouted.items():
        yield f"  {address} (topic {', '.join(topics)})"
    if any(table.estimate is not None for table in outline.tables):
        yield from ("", "estimate, when the topics are worked off", _estimates(outline))
    yield from _policies(outline)
    yield from _notices(outline, "problems", severe=True)
    yield from _notices(outline, "notes", severe=False)


def _policies(outline: Outline) -> Iterator[str]:
    if outline.policies:
        yield from ("", f"types that need care (all of them: {TYPES_PAGE})")
    for policy in outline.policies:
        more = f" and {policy.columns - 1} more" if policy.columns > 1 else ""
        yield f"  {policy.kind}: {', '.join(policy.types)}"
        yield f"    {policy.treatment}"
        yield f"    {policy.example}{more}"


def _notices(outline: Outline, title: str, *, severe: bool) -> Iterator[str]:
    chosen = [notice for notice in outline.warnings if notice.severe is severe]
    if chosen:
        yield from ("", title)
    for notice in chosen:
        yield f"  {f'{notice.about}: ' if notice.about else ''}{notice.text}"
        if notice.hint:
            yield f"    hint: {notice.hint}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _topics(outline: Outline) -> str:
    rows = [
        [
            topic.name,
            topic.partitions,
            topic.records,
            human_size(topic.bytes),
            topic.cleanup_policy or "-",
            ", ".join(topic.tables) or "-",
            " ".join(f"{name}={count}" for name, count in topic.counts.items()) or "-",
        ]
        for topic in outline.topics
    ]
    head = ["topic", "partitions", "records", "size", "cleanup", "into", "in the sample"]
    return aligned(head, rows, indent="  ")


_STATES = {
    "new": "new",
    "exists": "exists, and covers the sample",
    "changes": "exists, and gets other columns",
    "refused": "CANNOT BE WRITTEN, see the problems",
}


def _table(table: TableOutline) -> Iterator[str]:
    yield f"{table.name}  ({_STATES[table.state]})"
    for address in table.sources:
        yield f"  from         {address}"
    if table.state == "refused":
        return
    key = f"{', '.join(table.primary_key)}  ({table.key_from})" if table.primary_key else "none"
    yield f"  primary key  {key}"
    if table.partition_keys:
        yield f"  partitions   {', '.join(table.partition_keys)}"
    yield f"  buckets      {table.buckets}"
    options = [f"{name}={value}" for name, value in table.options.items() if name != "bucket"]
    if options:
        yield f"  options      {', '.join(options)}"
    for text in table.transforms:
        yield f"  transform    {text}"
    for text in table.changes:
        yield f"  change       {text}"
    rows = [
        [column.name, column.source_type or "-", column.type, ", ".join(column.roles)]
        for column in table.columns
    ]
    yield aligned(["column", "in the source", "in the lake", ""], rows, indent="  ")


def _estimates(outline: Outline) -> str:
    rows = []
    for table in outline.tables:
        estimate = table.estimate
        if estimate is None:
            continue
        suffix = " each" if estimate.partitioned else ""
        now = f"{estimate.buckets}{suffix}" if estimate.buckets else "dynamic"
        rows.append(
            [
                table.name,
                estimate.messages,
                human_size(estimate.topic_bytes),
                estimate.rows,
                round(estimate.row_bytes),
                human_size(estimate.bytes),
                estimate.files,
                now,
                estimate.recommended,
                "rough: small sample" if estimate.rough else "",
            ]
        )
    head = ["table", "messages", "topic", "rows", "bytes/row", "size", "files", "buckets"]
    return aligned([*head, "recommended", "note"], rows, indent="  ")
