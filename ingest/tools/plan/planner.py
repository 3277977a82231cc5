# SPDX-License-Identifier: Apache-2.0
"""Builds a plan from a sample, its rehearsal and the columns of the source."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ingest.config.setting import redact_properties
from ingest.config.settings import Settings
from ingest.decode.decoders import json_values
from ingest.decode.events import OFFSET_COLUMN, UNAVAILABLE_COLUMN, ChangeBatch, SourceTable
from ingest.source.position.ordered_tables import POSITION_COLUMNS
from ingest.tools.plan.estimate import Estimate, estimate, kept_share, row_bytes
from ingest.tools.plan.notices import PlanFacts, notices
from ingest.tools.plan.outline import BadKind, Column, Outline, TableOutline, TopicOutline
from ingest.tools.plan.rehearsal import Rehearsal, rehearse
from ingest.tools.plan.sample import TopicSample, topic_samples
from ingest.tools.plan.source_columns import Observed, observe
from ingest.tools.plan.type_policies import policies
from ingest.transform.rules import TransformRule, transform_rule
from storage.clock import Clock
from storage.format.metadata.schema import TableSchema
from storage.format.types.type_text import type_name
from storage.format.types.types import VALUE_KIND
from storage.options.options import TableOptions
from storage.table.bucket_mode import BucketMode, bucket_mode

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
