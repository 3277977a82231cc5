# SPDX-License-Identifier: Apache-2.0
"""The settings of one table, combined for `schema_sync` and checked for a new table.

Decided on the driver, before a table is created: a repeated batch finds the table as it was
created by the first attempt, whatever the decision would be now.
"""

import logging
from collections.abc import Sequence

from ingest.config.compaction_mode import created_options
from ingest.config.settings import Settings
from ingest.decode.events import SchemaDelta
from ingest.decode.schema_change_events import TableDdl
from ingest.schema.event_time import watermark_refused
from ingest.schema.schema_modes import change_policy
from ingest.schema.schema_sync import Decision, NewTable, TableRules, reconcile
from ingest.source.open import topic_bytes
from ingest.transform.rules import transform_rule
from storage.format.metadata.schema import TableSchema

BYTES_PER_BUCKET = 512 << 20
"""What a bucket holds at least, except in a table smaller than that; at most twice as much."""

MOST_BUCKETS = 1024
"""Above this every batch touches too many files; partition such a table instead."""


def recommended_buckets(size: int) -> int:
    """The number of buckets for a table, or for one partition of a partitioned table.

    A bucket is the unit that one task writes, compacts and reads. Small ones make many small files
    and commits; big ones make compaction slow and limit how many tasks write. Apache Paimon
    recommends 200 MB to 1 GB of data files per bucket. A power of two lets a later rescale double
    the number without moving rows between more than two buckets.

    The greatest power of two that leaves at least `BYTES_PER_BUCKET` to each bucket: one bucket
    below 1 GiB, two from 1 GiB, four from 2 GiB, up to `MOST_BUCKETS`.

    Args:
        size: bytes of data files, expected or measured; what is unknown is given as 0.

    Returns:
        A power of two between 1 and `MOST_BUCKETS`.

    Raises:
        ValueError: the size is negative.
    """
    if size < 0:
        raise ValueError(f"negative size: {size}")
    full = size // BYTES_PER_BUCKET
    return min(MOST_BUCKETS, 1 << max(0, full.bit_length() - 1))


_LOG = logging.getLogger(__name__)

BYTES_PER_STORED_BYTE = 4
"""Bytes of events for one of data files, about: envelopes repeat names and are not compressed."""


def decided(
    settings: Settings,
    name: str,
    existing: TableSchema | None,
    deltas: Sequence[SchemaDelta],
    ddl: Sequence[TableDdl],
    now_ms: int,
) -> Decision:
    """What to do for `database.table` about shapes and statements of one batch.

    Args:
        settings: of the pipeline.
        name: the table.
        existing: its schema; None = it is not there.
        deltas: what its schema does not cover.
        ddl: statements about its source tables.
        now_ms: time of a new schema [epoch ms].

    Raises:
        RetryableError: the source did not return the size of the topics of a new table.
    """
    properties = settings.table_properties(name) | created_options(settings, name)
    if existing is None and deltas and settings.rule_value(name, lambda rule: rule.auto_bucket):
        properties["bucket"] = str(_buckets(settings, name, deltas))
    decision = reconcile(
        existing,
        deltas,
        table_properties=properties,
        primary_key=settings.primary_key(name),
        rules=TableRules(transform_rule(settings, name), settings.sink.time_zone),
        appends=settings.appends,
        ordering=settings.events.ordering,
        policy=change_policy(settings, name),
        ddl=ddl,
        now_ms=now_ms,
    )
    watermark = settings.rule_value(name, lambda rule: rule.watermark)
    if isinstance(decision.action, NewTable) and watermark is not None:
        reason = watermark_refused(decision.action.schema, watermark)
        if reason:
            return decision.as_refused(reason)
    return decision


def _buckets(settings: Settings, name: str, deltas: Sequence[SchemaDelta]) -> int:
    """Number of buckets for the topics that feed the table; what a partition gets is not known."""
    if transform_rule(settings, name).partition_by:
        return recommended_buckets(0)
    topics = {delta.topic for delta in deltas}
    return recommended_buckets(topic_bytes(settings.source, topics) // BYTES_PER_STORED_BYTE)


def log_notes(name: str, decision: Decision) -> None:
    """Log how a new table differs from the settings."""
    for note in decision.notes:
        _LOG.warning("a new table differs from the settings", extra={"table": name, "reason": note})
