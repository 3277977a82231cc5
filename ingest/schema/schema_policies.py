# SPDX-License-Identifier: Apache-2.0
"""The policy of schema changes that a pipeline's settings give each table."""

from ingest.config.schema_modes import ChangePolicy
from ingest.config.settings import Settings

__all__ = ["change_policy"]


def change_policy(settings: Settings, table: str) -> ChangePolicy:
    """Of `database.table`."""
    return ChangePolicy.of(
        settings.pipeline.schema_change_behavior,
        settings.sink.include_schema_changes,
        settings.sink.exclude_schema_changes,
        settings.rule_value(table, lambda rule: rule.on_incompatible),
        exact_names=settings.events.exact_names,
    )
