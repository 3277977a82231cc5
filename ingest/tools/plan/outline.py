# SPDX-License-Identifier: Apache-2.0
"""A plan as values (topics, tables with columns and keys, warnings, type policies), JSON and text.

Built by `planner`.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.observe.text_table import aligned, human_size
from ingest.schema.new_tables import recommended_buckets

# Estimated size of a table once its topics are read, from a sample.
#
# Rows: messages, times the share of rows that stay: inserts and snapshot rows less deletes, or,
# where the sample has none of them, distinct keys. Bytes: what the sample's rows take in a
# compressed Parquet file, per row. Both are order-of-magnitude estimates.


_FEW_ROWS = 100
"""With fewer rows of the sample an estimate is rough."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of one table.

    Attributes:
        messages: in its topics.
        topic_bytes: of them.
        rows: that the table will have.
        row_bytes: one of them in a file.
        bytes: of the newest rows in data files; older versions add to it until compacted.
        files: in which they are, after compaction.
        buckets: as the table is set up; 0 = an index finds them.
        recommended: number of buckets.
        partitioned: whether numbers of buckets are those of each of its partitions.
        rough: whether the sample was too small.
    """

    messages: int
    topic_bytes: int
    rows: int
    row_bytes: float
    bytes: int
    files: int
    buckets: int
    recommended: int
    partitioned: bool
    rough: bool


def kept_share(counts: Mapping[str, int], records: int, rows: int, keys: int) -> float:
    """The share of messages that leave a row, between 0 and 1.

    Args:
        counts: records by fate (`DecodeResult.counts`).
        records: in the sample.
        rows: decoded from it.
        keys: distinct primary keys among them; 0 = there is no key.
    """
    if records == 0:
        return 0.0
    if keys == 0:
        return min(1.0, rows / records)
    inserts = counts.get("op.r", 0) + counts.get("op.c", 0)
    if inserts:
        return max(0.0, min(1.0, (inserts - counts.get("op.d", 0)) / records))
    return min(1.0, keys / records)


def row_bytes(batches: Sequence[pa.RecordBatch]) -> float:
    """Mean size of a row in a Parquet file of these rows [bytes]; 0 without rows."""
    rows = sum(batch.num_rows for batch in batches)
    if rows == 0:
        return 0.0
    out = pa.BufferOutputStream()
    table = pa.concat_tables(
        map(pa.Table.from_batches, ([b] for b in batches)), promote_options="default"
    )
    pq.write_table(table, out, compression="zstd")
    footer = pq.read_metadata(pa.BufferReader(out.getvalue()))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size = sum(
        group.column(at).total_compressed_size
        for group in groups
        for at in range(group.num_columns)
    )
    return float(size / rows)


def estimate(
    *,
    messages: int,
    topic_bytes: int,
    share: float,
    per_row: float,
    sampled_rows: int,
    buckets: int,
    target_file_bytes: int,
    partitioned: bool,
) -> Estimate:
    """Combine the parts.

    Args:
        messages: in the topics of the table.
        topic_bytes: of them.
        share: see `kept_share`.
        per_row: see `row_bytes`.
        sampled_rows: rows that these two are based on.
        buckets: of the table; below 1 = not fixed.
        target_file_bytes: `target-file-size`.
        partitioned: whether the table has partitions.
    """
    rows = round(messages * share)
    size = round(rows * per_row)
    recommended = recommended_buckets(size)
    spread = buckets if buckets > 0 else recommended
    per_bucket = size / spread
    files = spread * max(1, -(-int(per_bucket) // target_file_bytes)) if rows else 0
    return Estimate(
        messages=messages,
        topic_bytes=topic_bytes,
        rows=rows,
        row_bytes=round(per_row, 1),
        bytes=size,
        files=files,
        buckets=max(0, buckets),
        recommended=recommended,
        partitioned=partitioned,
        rough=sampled_rows < _FEW_ROWS,
    )


# Treatment of the types in a plan that need care. Source: types.md. Pure.


TYPES_PAGE = "docs/reference/types.md"


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """One kind of type.

    Attributes:
        kind: what it is.
        types: (type of the source, column type) pairs that occur.
        columns: how many columns have them.
        example: one of them, `database.table.column`.
        treatment: how values are handled, with the settings in force.
    """

    kind: str
    types: tuple[str, ...]
    columns: int
    example: str
    treatment: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    source: str
    lake: str
    treatment: str


_RULES = (
    _Rule(
        "date",
        r"(?i)^(connect\.)?(iso)?date\b(?!time)",
        r"^DATE\b",
        "days, without a zone; infinite dates: {infinity}",
    ),
    _Rule(
        "zoned time",
        r"(?i)zonedtime\b(?!stamp)|timetz",
        r"$^",
        "text in UTC, as the connector sends it",
    ),
    _Rule(
        "time of day",
        r"(?i)^(connect\.|micro|nano|iso)?time\b(?!stamp)",
        r"^TIME\b",
        "no zone; kept to the millisecond; below zero or a day and more: {times}",
    ),
    _Rule(
        "zoned timestamp",
        r"(?i)zonedtimestamp|timestamptz",
        r"LOCAL TIME ZONE",
        "a moment, in UTC; expressions see the wall clock of {zone}; infinite ones: {infinity}",
    ),
    _Rule(
        "timestamp",
        r"(?i)timestamp|datetime",
        r"^TIMESTAMP",
        "a wall clock without a zone, never shifted; infinite ones: {infinity}",
    ),
    _Rule(
        "interval",
        r"(?i)duration|interval",
        r"$^",
        "microseconds as estimated by the connector, or text with `interval.handling.mode: string`",
    ),
    _Rule(
        "unsigned 64 bit",
        r"(?i)bigint.*unsigned",
        r"$^",
        "{unsigned}",
    ),
    _Rule(
        "unlimited decimal",
        r"(?i)variablescaledecimal",
        r"$^",
        "text of the exact digits",
    ),
    _Rule(
        "decimal",
        r"(?i)decimal|numeric|money",
        r"^DECIMAL",
        "exact, no float on the way; more than 38 digits become text; growth: {decimal}",
    ),
    _Rule(
        "bits",
        r"(?i)^bits?\b",
        r"$^",
        "BIGINT to 63 bits, else bytes, most significant first",
    ),
    _Rule(
        "binary",
        r"(?i)^(bytes|bytea|blob|(var)?binary)\b",
        r"^(BYTES|BINARY|VARBINARY)",
        "bytes as they are; text by `binary.handling.mode: {binary}` is decoded",
    ),
    _Rule(
        "json",
        r"(?i)^jsonb?\b(?! (number|text|true))",
        r"$^",
        "text as sent; the order of members is kept",
    ),
    _Rule(
        "geometry",
        r"(?i)geometry|geography|^point\b",
        r"$^",
        "JSON text with WKB in base64",
    ),
)


def policies(
    columns: Iterable[tuple[str, str, str]],
    mapping: Iterable[str],
    *,
    zone: str,
    binary: str,
) -> list[Policy]:
    """Policies of the types that occur.

    Args:
        columns: (`database.table.column`, type of the source or "", column type).
        mapping: `sink.type.mapping`.
        zone: `sink.time.zone`.
        binary: `source.debezium.binary.handling.mode`.
    """
    facts = {**_facts(frozenset(mapping)), "zone": zone, "binary": binary}
    groups: dict[str, tuple[dict[str, None], list[str]]] = {}
    for name, source, lake in columns:
        rule = next((rule for rule in _RULES if _is(rule, source, lake)), None)
        if rule is None:
            continue
        types, names = groups.setdefault(rule.kind, ({}, []))
        types[f"{source} → {lake}" if source else lake] = None
        names.append(name)
    return [
        Policy(
            kind=rule.kind,
            types=tuple(groups[rule.kind][0]),
            columns=len(groups[rule.kind][1]),
            example=groups[rule.kind][1][0],
            treatment=rule.treatment.format_map(facts),
        )
        for rule in _RULES
        if rule.kind in groups
    ]


def _is(rule: _Rule, source: str, lake: str) -> bool:
    if source:
        return bool(re.search(rule.source, source))
    return bool(re.search(rule.lake, lake))


def _facts(words: frozenset[str]) -> Mapping[str, str]:
    infinity = "the record is bad (see `infinity-to-null`, `infinity-to-bounds`)"
    if "infinity-to-null" in words:
        infinity = "null"
    elif "infinity-to-bounds" in words:
        infinity = "the first moment of the year 1, or the last of 9999"
    times = "the record is bad (see `time-to-string`, `time-to-bigint`)"
    if "time-to-string" in words:
        times = "every TIME is text"
    elif "time-to-bigint" in words:
        times = "every TIME is microseconds in BIGINT"
    unsigned = "numbers from 2^63 on that arrive negative are bad (`unsigned-bigint-to-decimal`)"
    if "unsigned-bigint-to-decimal" in words:
        unsigned = "DECIMAL(20, 0), right up to 2^64"
    elif "bigint-unsigned-to-bigint" in words:
        unsigned = "BIGINT; numbers from 2^63 on are bad"
    fixed = words & {"decimal-no-change", "no-change"}
    decimal = (
        f"never (`{min(fixed)}`)" if fixed else "the column is widened so that no digit is lost"
    )
    return {"infinity": infinity, "times": times, "unsigned": unsigned, "decimal": decimal}


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
