# SPDX-License-Identifier: Apache-2.0
"""Builds a plan from a sample, its rehearsal and the columns of the source."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ingest.config.setting import redact_properties
from ingest.config.settings import Settings
from ingest.decode.columns import alike
from ingest.decode.decoders import json_values
from ingest.decode.events import OFFSET_COLUMN, UNAVAILABLE_COLUMN, ChangeBatch, SourceTable
from ingest.schema.routing import Outcome
from ingest.source.records import POSITION_COLUMNS
from ingest.tools.plan.outline import (
    BadKind,
    Column,
    Estimate,
    Notice,
    Outline,
    TableOutline,
    TopicOutline,
    estimate,
    kept_share,
    policies,
    row_bytes,
)
from ingest.tools.plan.sample import (
    Observed,
    Rehearsal,
    TopicSample,
    observe,
    rehearse,
    topic_samples,
)
from ingest.transform.rules import TransformRule, transform_rule
from storage.clock import Clock
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import VALUE_KIND, type_name
from storage.options.options import TableOptions
from storage.table.bucket_mode import BucketMode, bucket_mode

# Problems and notes of a plan, to be read before the pipeline starts. Pure.


_HUGE_PARTITION = 1_000_000
"""Records of a topic with one partition above which a note is given."""

_CONFLICT = "source_table_conflict"
_NO_KEY = "no_primary_key"
_NAME = "table_name"
_CATCH_ALL_RULE = (
    "with the first rule of `route` comes a last one for all other tables: "
    "`{source-table: '.*', sink-table: '${source.db}.<>'}`"
)
_KEYED_FORMATS = ("upsert-json", "upsert-avro", "debezium-json", "debezium-avro", "debezium-flat")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """Inputs of the notices; `observed` is by target, one for each of its source tables."""

    settings: Settings
    rehearsal: Rehearsal
    topics: Sequence[TopicOutline]
    tables: Sequence[TableOutline]
    unrouted: Mapping[str, Sequence[str]]
    bad: Sequence[BadKind]
    observed: Mapping[str, Sequence[Observed]]


def notices(plan_facts: PlanFacts) -> list[Notice]:
    """All of them, severe ones first, then by subject."""
    result = [
        *_pipeline(plan_facts),
        *(notice for topic in plan_facts.topics for notice in _topic_notices(plan_facts, topic)),
        *(notice for table in plan_facts.tables for notice in _table_notices(plan_facts, table)),
        *_bad_record_notices(plan_facts),
        *_shards(plan_facts),
        *_names(plan_facts),
    ]
    return sorted(result, key=lambda notice: (not notice.severe, notice.about, notice.code))


def _pipeline(plan_facts: PlanFacts) -> Iterator[Notice]:
    for name, why in plan_facts.rehearsal.name_conflicts.items():
        yield Notice("own_table", True, name, f"the stream would not start: {why}")
    if plan_facts.rehearsal.stop:
        yield Notice(
            "stop",
            True,
            "",
            f"the stream would stop: {plan_facts.rehearsal.stop}",
            "alter the table by hand, or choose another `pipeline.schema.change.behavior`",
        )
    if not plan_facts.topics:
        yield Notice(
            "no_topics",
            True,
            "",
            "no topic matches",
            "see `source.topics`, `source.topics.pattern` and `source.topics.exclude`",
        )
    for address, topics in plan_facts.unrouted.items():
        yield Notice(
            "unrouted",
            False,
            address,
            f"no rule of `route` takes this source table (topic {', '.join(topics)}): its records "
            "are counted and left out",
            "add a rule, or exclude the topic with `source.topics.exclude`",
        )


def _topic_notices(plan_facts: PlanFacts, topic: TopicOutline) -> Iterator[Notice]:
    policy = {part.strip() for part in topic.cleanup_policy.split(",")}
    if "compact" in policy:
        alone = policy == {"compact"}
        yield Notice(
            "compacted",
            False,
            topic.name,
            f"cleanup.policy={topic.cleanup_policy}: changes in between are removed, which is fine "
            "for tables, but a delete whose tombstone was removed before the stream read it is "
            "lost" + ("" if alone else "; old records go, too"),
            "keep `delete.retention.ms` above the longest time the stream may be stopped",
        )
    if topic.partitions == 1 and topic.records >= _HUGE_PARTITION and not _files(plan_facts):
        yield Notice(
            "one_partition",
            False,
            topic.name,
            f"{topic.records:,} records in one partition: one task reads them all, one after the "
            "other",
            "give a new topic more partitions; the connector keeps a key in its partition",
        )
    if topic.sampled and not topic.tables and not topic.counts and not _of_topic(plan_facts, topic):
        yield Notice("idle", False, topic.name, "no row event in the sample")
    if topic.records == 0:
        yield Notice("empty", False, topic.name, "the topic is empty: its tables are created later")


def _events(plan_facts: PlanFacts, table: TableOutline) -> Iterator[Notice]:
    """What the row events of a table lack."""
    stats = plan_facts.observed[table.name]
    keyless, records = sum(stat.keyless for stat in stats), sum(stat.records for stat in stats)
    if keyless and plan_facts.settings.format in _KEYED_FORMATS:
        yield Notice(
            "keyless",
            False,
            table.name,
            f"{keyless} of {records} sampled row events have no key (topic "
            f"{', '.join(table.topics)}): the source table has no primary key, or the connector "
            "drops it",
            "set `primary.key` in a rule of `tables`; changes of a row may be spread over "
            "partitions, so `source.ordering: source` may be needed",
        )
    untyped = [stat for stat in stats if stat.records and not stat.typed]
    if untyped and plan_facts.settings.format == "debezium-json":
        yield Notice(
            "untyped",
            False,
            table.name,
            "events carry no types: times come as BIGINT, decimals, arrays and structs as STRING",
            "set `value.converter.schemas.enable: true` or use Avro; or create the table with the "
            "right types first",
        )


def _files(plan_facts: PlanFacts) -> bool:
    return getattr(plan_facts.settings.source, "kind", "") == "files"


def _of_topic(plan_facts: PlanFacts, topic: TopicOutline) -> bool:
    return any(kind.topic == topic.name for kind in plan_facts.bad)


def _table_notices(plan_facts: PlanFacts, table: TableOutline) -> Iterator[Notice]:
    settings, name = plan_facts.settings, table.name
    problem = plan_facts.rehearsal.problems.get(name)
    refused = [
        verdict
        for about, verdict in plan_facts.rehearsal.verdicts
        if about == name and verdict.outcome is Outcome.REFUSED
    ]
    if problem:
        yield Notice("unusable", True, name, f"the table cannot be written: {problem}")
    for verdict in refused:
        creation = verdict.kind.value == "create.table"
        what = "the table cannot be created" if creation else f"a change is refused, {verdict.text}"
        yield Notice("refused", True, name, f"{what}: {verdict.reason}")
    yield from _events(plan_facts, table)
    schema = plan_facts.rehearsal.schemas.get(name)
    if schema is None:
        return
    options = TableOptions.from_strings(schema.options)
    partitions = [topic.partitions for topic in plan_facts.topics if name in topic.tables]
    if options.bucket > 0 and sum(partitions) < options.bucket and not _files(plan_facts):
        yield Notice(
            "few_partitions",
            False,
            name,
            f"{options.bucket} buckets are fed from {sum(partitions)} "
            f"partition{'s' if sum(partitions) > 1 else ''}: reading is slower than writing",
            "give a new topic more partitions, or the table fewer buckets",
        )
    if bucket_mode(schema, options) is BucketMode.CROSS_PARTITION:
        yield Notice(
            "cross_partition",
            False,
            name,
            "partition columns are not in the key, so a row moves when one changes: an index of "
            "all keys is kept on disk and built again by a new process",
            "put them into `primary.key` if they never change",
        )
    yield from _images(plan_facts, table, options.changelog_producer)
    yield from _toast(settings, plan_facts, table)


def _images(plan_facts: PlanFacts, table: TableOutline, producer: object) -> Iterator[Notice]:
    """Missing before images, and whether the table needs them."""
    stats = plan_facts.observed[table.name]
    missing, changes = sum(stat.no_before for stat in stats), sum(stat.changes for stat in stats)
    if not missing:
        return
    target = plan_facts.rehearsal.targets.get(table.name)
    needed = "" if target is None else target.needs_before
    hint = "ALTER TABLE … REPLICA IDENTITY FULL at the source (PostgreSQL)"
    lacking = f"{missing} of {changes} sampled updates and deletes bring no old row"
    if needed:
        yield Notice(
            "before", True, table.name, f"{lacking}, and this table needs it: {needed}", hint
        )
    elif getattr(producer, "value", producer) == "input":
        yield Notice(
            "before",
            False,
            table.name,
            f"{lacking} (REPLICA IDENTITY DEFAULT?), so the changelog of "
            "`changelog-producer: input` has no -U rows for them",
            f"{hint}, or `changelog-producer: lookup`",
        )


def _toast(settings: Settings, plan_facts: PlanFacts, table: TableOutline) -> Iterator[Notice]:
    count = sum(stat.unavailable for stat in plan_facts.observed[table.name])
    if not count:
        return
    chosen = settings.toast(table.name)
    does = {
        "keep": "are taken from the row's older version (`toast: keep`)",
        "null": "become null (`toast: null`)",
        "fail": "send their records to quarantine (`toast: fail`)",
    }[chosen]
    yield Notice(
        "toast",
        chosen == "fail",
        table.name,
        f"{count} of the sampled records: values that were not sent because they did not change "
        f"(TOAST); they {does}",
        "" if chosen == "keep" else "`toast: keep`, or REPLICA IDENTITY FULL at the source",
    )


def _bad_record_notices(plan_facts: PlanFacts) -> Iterator[Notice]:
    for kind in plan_facts.bad:
        about = kind.table or kind.topic
        where = f"{kind.topic}, partition {kind.partition}, offset {kind.offset}"
        count = f"{kind.records} sampled record{'s' if kind.records > 1 else ''}"
        hint = {
            _CONFLICT: "send it elsewhere by a rule of `route`, or let both share the table there",
            _NAME: "" if plan_facts.settings.routes else _CATCH_ALL_RULE,
            _NO_KEY: f"add `{{match: {kind.table}, primary.key: […]}}` to `tables`",
        }.get(kind.error_class, "")
        yield Notice(
            "quarantine",
            True,
            about,
            f"{count} would go to quarantine, {kind.error_class}: {kind.example} (first: {where})",
            hint,
        )


def _names(plan_facts: PlanFacts) -> Iterator[Notice]:
    """Names that are replaced, and those that not every reader distinguishes."""
    places = [
        p for p in plan_facts.rehearsal.destinations.values() if p is not None and not p.refusal
    ]
    for place in places:
        if place.original_name:
            yield Notice(
                "name_replaced",
                False,
                place.table,
                f"stands for {place.original_name}, a name that the table format forbids "
                "(`sink.names.sanitize`)",
            )
    for names in alike(sorted(place.table for place in places)):
        yield Notice(
            "tables_alike",
            False,
            names[0],
            f"differs from {', '.join(names[1:])} in letter case or normal form alone: where file "
            "systems or catalogs take them for one (macOS, Hive), the first one is written and "
            "the other's records go to quarantine, or no catalog shows both",
            "send one of them elsewhere by a rule of `route`",
        )
    for table, schema in plan_facts.rehearsal.schemas.items():
        for names in alike(schema.field_names):
            yield Notice(
                "columns_alike",
                False,
                table,
                f"columns {', '.join(names)} differ in letter case or normal form alone: engines "
                "that ignore it, as Spark does by default, cannot read them by name",
                "leave one out with `columns.exclude`, or set `source.names.case: insensitive` "
                "before the table is created",
            )
    for table, member, column in sorted(plan_facts.rehearsal.case_matches):
        yield Notice(
            "column_matched",
            False,
            table,
            f"column {column} comes as {member}, too, which is taken for the same "
            "(`source.names.case: insensitive`)",
        )


def _shards(plan_facts: PlanFacts) -> Iterator[Notice]:
    """Equal keys of two source tables in one table whose key has no shard column."""
    for table in plan_facts.tables:
        schema = plan_facts.rehearsal.schemas.get(table.name)
        if len(table.sources) < 2 or schema is None:
            continue
        places = [
            p for p in plan_facts.rehearsal.destinations.values() if p and p.table == table.name
        ]
        if any(place.key_prefix for place in places):
            continue
        collision = _collision(plan_facts.rehearsal, table.name, schema.primary_keys)
        if collision is not None:
            key, first_source, second_source = collision
            text = ", ".join(f"{n}={v}" for n, v in zip(schema.primary_keys, key, strict=True))
            yield Notice(
                "shards_collide",
                True,
                table.name,
                f"a key is in two of the source tables that share this table: {text} in "
                f"{first_source} and {second_source}; the later row overwrites the other",
                "add `shard: {column: _shard, value: '${source.db}'}` to the rule",
            )


def _collision(
    rehearsal: Rehearsal, table: str, keys: Sequence[str]
) -> tuple[tuple[object, ...], str, str] | None:
    """The first key that occurs in two topics, and the topics."""
    first: dict[tuple[object, ...], str] = {}
    for raw, result in rehearsal.decoded:
        for change in result.changes:
            if change.target != table:
                continue
            columns = [change.rows.column(key).to_pylist() for key in keys]
            for key in zip(*columns, strict=True):
                if first.setdefault(key, raw.topic) != raw.topic:
                    return key, first[key], raw.topic
    return None


_OPTION_PREFIX = "lakeward."
"""Prefix of Lakeward's own options."""

_HELPERS = frozenset({VALUE_KIND, OFFSET_COLUMN, UNAVAILABLE_COLUMN})
"""Columns of change batches that are no columns of tables."""


def planned(
    settings: Settings, *, records: int, estimates: bool = False, clock: Clock | None = None
) -> Outline:
    """Read a sample of the source and report what the stream would do.

    Raises:
        RetryableError: source, registry or warehouse did not answer.
        InvalidRequestError: one of them refuses.
    """
    topics = topic_samples(settings.source, records)
    ddl = settings.events.schema_change_topic
    played = rehearse(settings, topics, clock)
    return outline_of(
        settings, [topic for topic in topics if topic.name != ddl], played, estimates=estimates
    )


def outline_of(
    settings: Settings, topics: Sequence[TopicSample], played: Rehearsal, *, estimates: bool
) -> Outline:
    """Combine a sample and its rehearsal."""
    placeholder = settings.debezium.unavailable_value_placeholder
    observed = observe(topics, json_values(settings), placeholder)
    by_table = _by_table(played)
    tables = []
    for name, sources in sorted(by_table.items()):
        observations = [_observation(observed, source, played) for source in sources]
        sizes = _estimate(name, sources, topics, played) if estimates else None
        tables.append(_table(settings, name, sources, observations, played, sizes))
    bad = _bad(played)
    unrouted = {
        source.address: sorted(names)
        for source, names in sorted(played.sources.items(), key=lambda item: item[0].address)
        if played.destinations[source] is None
    }
    outlines = [_topic(topic, played) for topic in topics]
    inputs = PlanFacts(
        settings=settings,
        rehearsal=played,
        topics=outlines,
        tables=tables,
        unrouted=unrouted,
        bad=bad,
        observed={
            name: [_observation(observed, source, played) for source in sources]
            for name, sources in by_table.items()
        },
    )
    columns = [
        (f"{table.name}.{column.name}", column.source_type, column.type)
        for table in tables
        for column in table.columns
        if not {"metadata", "position"} & set(column.roles)
    ]
    return Outline(
        pipeline=settings.pipeline.name,
        format=settings.format,
        topics=outlines,
        tables=tables,
        unrouted=unrouted,
        bad=bad,
        warnings=notices(inputs),
        policies=policies(
            columns,
            settings.sink.type_mapping,
            zone=settings.sink.time_zone,
            binary=settings.debezium.binary_handling_mode,
        ),
    )


def _by_table(played: Rehearsal) -> dict[str, list[SourceTable]]:
    result: dict[str, list[SourceTable]] = {}
    for source in sorted(played.destinations, key=lambda table: table.address):
        place = played.destinations[source]
        if place is not None:
            result.setdefault(place.table, []).append(source)
    return result


def _observation(
    observed: Mapping[tuple[str, str, str], Observed], source: SourceTable, played: Rehearsal
) -> Observed:
    place = (source.database, source.schema, source.table)
    if place in observed:
        return observed[place]
    for topic in sorted(played.sources[source]):
        entry = observed.get(("", "", topic)) or observed.get((source.database, "", source.table))
        if entry is not None:
            return entry
    return Observed()


def _topic(topic: TopicSample, played: Rehearsal) -> TopicOutline:
    counts: Counter[str] = Counter()
    for raw, result in played.decoded:
        if raw.topic == topic.name:
            counts.update(result.counts)
    tables = {
        place.table
        for source, names in played.sources.items()
        if topic.name in names and (place := played.destinations[source]) is not None
    }
    return TopicOutline(
        name=topic.name,
        partitions=topic.partitions,
        records=topic.records,
        bytes=topic.bytes,
        cleanup_policy=topic.cleanup_policy,
        sampled=topic.sampled,
        tables=tuple(sorted(tables)),
        counts=dict(sorted((+counts).items())),
    )


def _table(
    settings: Settings,
    name: str,
    sources: Sequence[SourceTable],
    observations: Sequence[Observed],
    rehearsal: Rehearsal,
    sizes: Estimate | None,
) -> TableOutline:
    topics = tuple(sorted({topic for source in sources for topic in rehearsal.sources[source]}))
    addresses = tuple(source.address for source in sources)
    schema = rehearsal.schemas.get(name)
    changes = tuple(
        f"{verdict.text}"
        + (f" ({verdict.outcome.value}: {verdict.reason})" if verdict.reason else "")
        for table, verdict in rehearsal.verdicts
        if table == name and verdict.kind.value != "create.table"
    )
    if schema is None:
        return TableOutline(
            name=name, state="refused", sources=addresses, topics=topics, changes=changes
        )
    before = rehearsal.stored_schemas.get(name)
    state = "new"
    if before is not None:
        state = "exists" if before.fields == schema.fields else "changes"
    options = {
        key: value for key, value in schema.options.items() if not key.startswith(_OPTION_PREFIX)
    }
    shard = any(place.shard for s in sources if (place := rehearsal.destinations[s]) is not None)
    return TableOutline(
        name=name,
        state=state,
        sources=addresses,
        topics=topics,
        columns=_columns(settings, name, schema, sources, observations, rehearsal),
        primary_key=schema.primary_keys,
        key_from=_key_from(settings, name, existing=before is not None, shard=shard),
        partition_keys=schema.partition_keys,
        buckets=_buckets(schema),
        options=redact_properties(options),
        transforms=_transforms(transform_rule(settings, name)),
        changes=changes,
        estimate=sizes,
    )


def _columns(
    settings: Settings,
    name: str,
    schema: TableSchema,
    sources: Sequence[SourceTable],
    observations: Sequence[Observed],
    rehearsal: Rehearsal,
) -> tuple[Column, ...]:
    rule = transform_rule(settings, name)
    computed = {column for column, _ in rule.assignments}
    metadata = {rule.metadata_prefix + column for column in rule.metadata} | {rule.deleted_column}
    shards = {
        place.shard.column
        for source in sources
        if (place := rehearsal.destinations[source]) is not None and place.shard is not None
    }
    groups = (
        ("key", set(schema.primary_keys)),
        ("partition", set(schema.partition_keys)),
        ("computed", computed),
        ("masked", set(rule.mask)),
        ("metadata", metadata),
        ("position", set(POSITION_COLUMNS)),
        ("shard", shards),
    )
    types: dict[str, str] = {}
    for observation in reversed(observations):
        types.update(observation.columns)
    return tuple(
        Column(
            name=field.name,
            source_type=types.get(field.name, ""),
            type=type_name(field.type),
            roles=tuple(role for role, names in groups if field.name in names),
        )
        for field in schema.fields
    )


def _key_from(settings: Settings, name: str, *, existing: bool, shard: bool) -> str:
    if existing:
        return "the table as it is"
    if settings.primary_key(name):
        return "tables[].primary.key"
    if settings.appends:
        return "none: every record is an insert"
    return "the records' keys" + (", after the shard column" if shard else "")


def _buckets(schema: TableSchema) -> str:
    options = TableOptions.from_strings(schema.options)
    mode = bucket_mode(schema, options)
    if mode is BucketMode.FIXED:
        of = " in each partition" if schema.partition_keys else ""
        return (
            f"{options.bucket} by a hash of the {'bucket key' if options.bucket_key else 'key'}{of}"
        )
    return {
        BucketMode.UNAWARE: "none (append table)",
        BucketMode.DYNAMIC: "dynamic: an index of each partition says where a key is",
        BucketMode.CROSS_PARTITION: "dynamic: an index over all partitions says where a key is",
        BucketMode.POSTPONE: "postponed to compaction",
    }[mode]


def _transforms(rule: TransformRule) -> tuple[str, ...]:
    """Transforms for people; masks without their arguments, which may hold a salt."""
    texts = [f"filter: {rule.filter}"] if rule.filter else []
    texts += [f"computed: {text}" for text in rule.computed]
    texts += [f"partition.by: {text}" for text in rule.partition_by]
    if rule.exclude:
        texts.append(f"columns.exclude: {', '.join(rule.exclude)}")
    texts += [f"mask: {column} by {mask.partition('(')[0]}" for column, mask in rule.mask.items()]
    if rule.soft_delete:
        texts.append(f"deletes: soft ({rule.deleted_column})")
    if rule.metadata:
        texts.append(
            f"metadata: {', '.join(rule.metadata_prefix + column for column in rule.metadata)}"
        )
    return tuple(texts)


def _bad(played: Rehearsal) -> list[BadKind]:
    kinds: dict[tuple[str, str, str], BadKind] = {}
    for raw, result in played.decoded:
        for record in result.bad:
            place = (record.target, raw.topic, record.error_class)
            previous = kinds.get(place)
            kinds[place] = BadKind(
                table=record.target,
                topic=raw.topic,
                error_class=record.error_class,
                records=1 if previous is None else previous.records + 1,
                example=record.error if previous is None else previous.example,
                partition=raw.partition if previous is None else previous.partition,
                offset=record.offset if previous is None else previous.offset,
            )
    return [kinds[place] for place in sorted(kinds)]


def _estimate(
    name: str, sources: Sequence[SourceTable], topics: Sequence[TopicSample], played: Rehearsal
) -> Estimate | None:
    schema = played.schemas.get(name)
    if schema is None:
        return None
    feeding = {topic for source in sources for topic in played.sources[source]}
    samples = [topic for topic in topics if topic.name in feeding]
    changes = [c for _, result in played.decoded for c in result.changes if c.target == name]
    counts: Counter[str] = Counter()
    for raw, result in played.decoded:
        if raw.topic in feeding:
            counts.update(result.counts)
    rows = sum(change.rows.num_rows for change in changes)
    sampled = sum(topic.sampled for topic in samples)
    keys, newest = _newest(schema, changes)
    options = TableOptions.from_strings(schema.options)
    # the records of a topic with several tables are divided as in its sample
    share_of_topics = min(1.0, rows / sampled) if _shared(name, feeding, played) else 1.0
    return estimate(
        messages=round(sum(topic.records for topic in samples) * share_of_topics),
        topic_bytes=round(sum(topic.bytes for topic in samples) * share_of_topics),
        share=kept_share(counts, sampled, rows, keys),
        per_row=row_bytes(newest),
        sampled_rows=rows,
        buckets=options.bucket,
        target_file_bytes=options.target_file_size,
        partitioned=bool(schema.partition_keys),
    )


def _shared(name: str, feeding: set[str], played: Rehearsal) -> bool:
    return any(
        names & feeding
        for source, names in played.sources.items()
        if (place := played.destinations[source]) is None or place.table != name
    )


def _newest(
    schema: TableSchema, changes: Sequence[ChangeBatch]
) -> tuple[int, list[pa.RecordBatch]]:
    """Number of distinct keys, and one row of each: repeated keys compress too well."""
    distinct: set[tuple[object, ...]] = set()
    batches = []
    for change in changes:
        rows = change.rows
        keys = [key for key in schema.primary_keys if key in rows.schema.names]
        chosen = list(range(rows.num_rows))
        if keys:
            chosen = []
            columns = [rows.column(key).to_pylist() for key in keys]
            for at, key in enumerate(zip(*columns, strict=True)):
                if key not in distinct:
                    distinct.add(key)
                    chosen.append(at)
        names = [name for name in rows.schema.names if name not in _HELPERS]
        batches.append(rows.select(names).take(pa.array(chosen, pa.int64())))
    return len(distinct), batches
