# SPDX-License-Identifier: Apache-2.0
"""Settings in force as lines for people: without secrets, each with where it came from."""

from collections.abc import Iterable, Mapping

from ingest.config.setting_operating import shown_operating
from ingest.config.setting_rules import shown_value
from ingest.config.setting_table import SETTINGS
from ingest.config.setting_values import Settings, TableRule
from ingest.config.settings_sources import Given
from ingest.config.source_settings import redact_properties

__all__ = ["shown_settings"]


def shown_settings(
    given: Mapping[str, Given], settings: Settings
) -> Iterable[tuple[str, str, str]]:
    """(key, value as it may be shown, origin) in the order of the reference.

    Args:
        given: what was written, by key.
        settings: the values in force.
    """
    derived = {
        "pipeline.checkpoint": settings.pipeline.checkpoint,
        "bad.records.table": settings.bad_records.table,
        "sink.warehouse": settings.sink.warehouse,
        "sink.table.properties": settings.sink.table_properties,
    }
    hidden = shown_operating(settings.control, settings.alerts)
    for row in SETTINGS:
        entry = given.get(row.key)
        origin = "default" if entry is None else entry.origin
        value: object = row.default if entry is None else entry.value
        value = derived.get(row.key, value)
        if value is not None:
            yield row.key, hidden.get(row.key) or shown_value(row.key, value), origin
    for rule in settings.tables:
        parts = [f"primary.key={','.join(rule.primary_key)}"] if rule.primary_key else []
        parts += [f"{k}={v}" for k, v in redact_properties(rule.table_properties).items()]
        parts += [f"toast={rule.toast}"] if rule.toast else []
        parts += _shown_rule(rule)
        yield f"tables[{rule.match}]", " ".join(parts), "file"
    for route in settings.routes:
        shard = "" if route.shard is None else f" shard {route.shard.column}={route.shard.value}"
        yield f"route[{route.source_table}]", f"{route.sink_table}{shard}", "file"


def _shown_rule(rule: TableRule) -> list[str]:
    """The other values of a rule by key; of masks the columns alone, for masks may hold salts."""
    given: dict[str, object] = {
        "bucket": "auto" if rule.auto_bucket else None,
        "bad.records": rule.bad_records,
        "columns.exclude": rule.columns_exclude,
        "computed": rule.computed,
        "filter": rule.filter,
        "mask": None if rule.mask is None else tuple(rule.mask),
        "deletes": rule.deletes,
        "partition.by": rule.partition_by,
        "on.incompatible": rule.on_incompatible,
        "compaction": rule.compaction,
        "freshness": None if rule.freshness_s is None else f"{rule.freshness_s:g}s",
        "watermark": rule.watermark,
    }
    return [f"{key}={shown_value(key, value)}" for key, value in given.items() if value is not None]
