# SPDX-License-Identifier: Apache-2.0
"""What the settings want of one table, put together for `schema_sync`, and checked for a new one.

Decided on the driver, before a table is made: a batch that is done again finds the table as it was
made the first time, whatever the answer would be now.
"""

import logging
from collections.abc import Sequence

from ingest.config.compaction_mode import created_options
from ingest.config.settings import Settings
from ingest.decode.events import SchemaDelta
from ingest.decode.schema_change_events import TableDdl
from ingest.schema.bucket_estimate import recommended_buckets
from ingest.schema.event_time import watermark_refused
from ingest.schema.schema_modes import change_policy
from ingest.schema.schema_sync import Decision, NewTable, reconcile
from ingest.schema.transformed_schema import TableRules
from ingest.source.topic_sizes import topic_bytes
from ingest.transform.rule_names import transform_rule
from storage.format.metadata.schema import TableSchema

__all__ = ["BYTES_PER_STORED_BYTE", "decided", "tell_notes"]

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
        RetryableError: the source does not tell how big the topics of a new table are.
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
            return decision.failed(reason)
    return decision


def _buckets(settings: Settings, name: str, deltas: Sequence[SchemaDelta]) -> int:
    """Number of buckets for the topics that feed the table; what a partition gets is not known."""
    if transform_rule(settings, name).partition_by:
        return recommended_buckets(0)
    topics = {delta.topic for delta in deltas}
    return recommended_buckets(topic_bytes(settings.source, topics) // BYTES_PER_STORED_BYTE)


def tell_notes(name: str, decision: Decision) -> None:
    """Log in what a table that was made differs from what was asked for."""
    for told in decision.notes:
        _LOG.warning(
            "a new table is not all that was asked for", extra={"table": name, "reason": told}
        )
