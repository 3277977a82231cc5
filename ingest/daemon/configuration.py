# SPDX-License-Identifier: Apache-2.0
"""Loads and checks the configuration of a pipeline, for daemon, commands and tools.

`ingest.config` only reads settings. Checks that need expressions, masks, columns, event time,
positions or metrics are here; all mistakes are reported at once.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.config import loading
from ingest.config.rule_settings import TableRule
from ingest.config.settings import Settings
from ingest.decode.metadata_columns import checked_metadata
from ingest.kubernetes.pods import default_parallelism
from ingest.observe.metrics.metric_table import METRICS
from ingest.schema.event_time import check_watermarks
from ingest.schema.routing import check_routes
from ingest.schema.schema_sync import fixed_buckets, moving_partitions
from ingest.source.position.ordered_tables import SOURCE, unordered
from ingest.transform.functions.casting import zone_named
from ingest.transform.masks import parse_mask
from ingest.transform.rules import check_part, check_rule, moved_by, transform_rule
from storage.errors import InvalidOptionError, InvalidRequestError
from storage.options.options import option_value

_ORDERED_FORMATS = ("debezium-json", "debezium-avro", "debezium-flat")
_ORDERING = "source.ordering"

_OWN_LABELS = frozenset(name for row in METRICS for name in row.labels)
_TAKEN_LABELS = _OWN_LABELS | {"job", "instance", "le", "quantile", "generation"}


def load_settings(
    paths: Path | str | Sequence[Path | str],
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from one or more YAML files (`-` is standard input).

    Args:
        paths: files; later ones override earlier ones.
        overrides: dotted keys from flags; highest precedence.
        environ: environment; default: that of the process.

    Raises:
        NotFoundError: a file does not exist.
        InvalidOptionError: a key is unknown, or a value malformed, missing or contradictory.
        UnsupportedFeatureError: a key is not supported yet.
    """
    return resolve(paths, overrides, environ=environ).settings


def check_labels(settings: Settings) -> None:
    """Refuse labels that metrics already have.

    Raises:
        InvalidOptionError: names the label.
    """
    for name in settings.metrics.labels:
        if name in _TAKEN_LABELS:
            raise InvalidOptionError(
                "metrics already have a label of this name",
                hint="choose another name",
                key=f"metrics.labels.{name}",
            )


def check_ordering(settings: Settings) -> None:
    """Refuse tables whose rows cannot be ordered.

    Raises:
        InvalidOptionError: names the contradictory key.
    """
    if settings.events.ordering != SOURCE:
        return
    if settings.format not in _ORDERED_FORMATS:
        raise InvalidOptionError(
            f"records in format {settings.format} carry no source position",
            hint="set it to `kafka`, or use debezium-json, debezium-avro or debezium-flat",
            key=_ORDERING,
            value=SOURCE,
        )
    for key, properties in settings.property_sets():
        reason = unordered(properties)
        if reason:
            raise InvalidOptionError(
                f"a table cannot be ordered by source position: {reason}",
                hint=f"change `{key}`, or set `{_ORDERING}: kafka`",
                key=_ORDERING,
                value=SOURCE,
            )


def check_transforms(settings: Settings) -> None:
    """Check expressions, masks, metadata columns and partitions.

    Raises:
        InvalidOptionError: one is invalid; names the key of the setting.
    """
    _at("sink.time.zone", zone_named, settings.sink.time_zone)
    _at("sink.metadata.columns", checked_metadata, settings.sink.metadata_columns)
    for position, rule in enumerate(settings.tables):
        _check(settings, rule, f"tables[{position}]")


def transforms_found(settings: Settings) -> str:
    """A summary of the transforms and their requirements, for people."""
    rules = [(rule.match, transform_rule(settings, rule.match)) for rule in settings.tables]
    notes = [f"of {match}" for match, rule in rules if not rule.empty]
    for match, rule in rules:
        notes += [
            f"`{name}` is in the key of {match} and comes from {', '.join(inputs)}: updates and "
            "deletes must bring the old value (REPLICA IDENTITY FULL), or go to quarantine"
            for name, inputs in moved_by(rule, settings.primary_key(match)).items()
        ]
    return "; ".join(notes)


def _check(settings: Settings, rule: TableRule, where: str) -> None:
    if rule.filter is not None:
        _at(f"{where}.filter", check_part, "filter", rule.filter)
    for number, text in enumerate(rule.computed or ()):
        _at(f"{where}.computed[{number}]", check_part, "computed", text)
    for number, text in enumerate(rule.partition_by or ()):
        _at(f"{where}.partition.by[{number}]", check_part, "partition.by", text)
    for column, mask in (rule.mask or {}).items():
        _at(f"{where}.mask.{column}", check_part, "mask", mask)
    # including other rules for the same tables
    whole = transform_rule(settings, rule.match)
    _at(where, check_rule, whole)
    key = settings.primary_key(rule.match)
    computed = {name for name, _ in whole.assignments}
    for name in key:
        if name in whole.exclude and name not in computed:
            raise InvalidOptionError(
                "a key column cannot be excluded", key=f"{where}.columns.exclude", column=name
            )
        if name in whole.mask and not parse_mask(whole.mask[name]).keeps_apart:
            raise InvalidOptionError(
                "a mask would map different keys to one",
                hint="use sha256, or another primary key",
                key=f"{where}.mask.{name}",
            )
    _check_partitions(settings, rule, where)


def _check_partitions(settings: Settings, rule: TableRule, where: str) -> None:
    """Keys that move between partitions need an index, which fixed buckets lack."""
    whole, key = transform_rule(settings, rule.match), settings.primary_key(rule.match)
    if settings.appends and not key:
        return
    moving = moving_partitions(whole, key)
    if not key:  # the records' keys may have a column of the source, never a computed one
        moving = tuple(name for name, _ in whole.assignments if name in whole.partition_columns)
    properties = settings.table_properties(rule.match)
    if moving and option_value({"bucket": "1", **properties}, "bucket") != -1:
        _at(f"{where}.partition.by", _refuse, moving, properties.get("bucket", ""))
    if moving and "sequence.field" in properties:
        raise InvalidOptionError(
            "sequence.field cannot be combined with keys that move between partitions",
            hint=f"add {', '.join(moving)} to `primary.key`, or remove sequence.field",
            key=f"{where}.partition.by",
        )


def _refuse(moving: tuple[str, ...], bucket: str) -> None:
    raise fixed_buckets(moving, bucket)


def _at(key: str, check: Callable[..., object], *arguments: object) -> None:
    try:
        check(*arguments)
    except InvalidRequestError as error:
        raise InvalidOptionError(
            error.message,
            detail=error.detail,
            hint=error.hint or "docs/reference/transforms.md has what can be written there",
            key=key,
            **error.context,
        ) from error


_CHECKS = (check_routes, check_transforms, check_ordering, check_watermarks, check_labels)

resolve = functools.partial(loading.resolve, parallelism=default_parallelism, checks=_CHECKS)
"""`ingest.config.loading.resolve` with these checks."""
