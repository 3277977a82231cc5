# SPDX-License-Identifier: Apache-2.0
"""`reload`: the daemon reads its configuration again and continues with it, in the same process.

Any mistake leaves the stream as it is. So does a change of what a running stream cannot change: who
it is, where it writes, what its events are, and what is fixed when the process starts.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from ingest.config.settings import Settings
from ingest.daemon import checks
from ingest.daemon.requests.registry import Outcome, Pipeline, RequestKind
from ingest.transform.rules import key_recipe, transform_rule
from storage.errors import InvalidOptionError, InvalidRequestError

__all__ = ["RELOAD", "changed", "fixed_changes"]

_LOG = logging.getLogger(__name__)

_FIXED: Mapping[str, Callable[[Settings], Any]] = {
    "pipeline.name": lambda s: s.pipeline.name,
    "pipeline.checkpoint": lambda s: s.pipeline.checkpoint,
    "pipeline.owner.ttl": lambda s: s.life.owner_ttl_s,
    "source.offsets.group": lambda s: s.life.offsets_group,
    "source.type": lambda s: type(s.source).__name__,
    "source.format": lambda s: s.format,
    "source.ordering": lambda s: s.events.ordering,
    "sink.warehouse": lambda s: s.sink.warehouse,
    "sink.options": lambda s: dict(s.sink.options),
    "sink.catalog": lambda s: dict(s.sink.catalog),
    "bad.records.table": lambda s: s.bad_records.table,
    "metrics": lambda s: s.metrics,
    "log.format": lambda s: s.log.format,
    "spark": lambda s: s.spark,
}


def fixed_changes(old: Settings, new: Settings, tables: Mapping[str, Any]) -> list[str]:
    """Keys whose values may not differ, but do.

    Args:
        old: in force.
        new: wanted.
        tables: existing tables by `database.table`; their primary keys are fixed.
    """
    keys = [key for key, value in _FIXED.items() if value(old) != value(new)]
    for name in sorted(tables):
        if old.primary_key(name) != new.primary_key(name):
            keys.append(f"tables[].primary.key of {name}")
        elif _recipe(old, name) != _recipe(new, name):
            keys.append(f"tables[], how the primary key of {name} is computed or masked")
    return keys


def _recipe(settings: Settings, name: str) -> Mapping[str, str]:
    key, zone = settings.primary_key(name), settings.sink.time_zone
    return key_recipe(transform_rule(settings, name), key, zone)


def changed(old: Settings, new: Settings) -> list[str]:
    """Sections in which two settings differ."""
    return [name for name in old.__dataclass_fields__ if getattr(old, name) != getattr(new, name)]


def reload(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Read the configuration again."""
    del arguments
    if pipeline.reread is None:
        raise InvalidRequestError(
            "this daemon's configuration cannot be read again",
            hint="it came from standard input or from a program: restart it",
        )
    old, new = pipeline.settings, pipeline.reread()
    sections = changed(old, new)
    if not sections:
        return Outcome("nothing has changed", {"changed": []})
    fixed = fixed_changes(old, new, pipeline.book.schema_ids())
    if fixed:
        raise InvalidOptionError(
            "these settings cannot change while the pipeline runs",
            hint="restart the daemon, or take the change back; until then it continues as before",
            keys=", ".join(fixed),
        )
    _check(old, new)
    pipeline.use(new)
    _LOG.info("settings changed", extra={"event": "reload", "changed": ", ".join(sections)})
    return Outcome(f"continues with new settings: {', '.join(sections)}", {"changed": sections})


def _check(old: Settings, new: Settings) -> None:
    """Would it start? Source and schema registry are contacted only when they changed."""
    findings = checks.offline(new)
    if new.source != old.source:
        findings.append(checks.source(new))
    if new.avro is not None and new.avro != old.avro:
        findings.append(checks.registry(new.avro.registry))
    for each in findings:
        if not each.ok:
            raise InvalidOptionError(
                f"the new settings do not work: {each.name}",
                detail=each.finding,
                hint="until they do the pipeline continues as before",
            )


RELOAD = RequestKind("reload", reload, stops=True)
