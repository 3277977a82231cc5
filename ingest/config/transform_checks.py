# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the transforms of a configuration that need no table to be seen."""

from collections.abc import Callable

from ingest.config.setting_values import Settings, TableRule
from ingest.decode.metadata_columns import checked_metadata
from ingest.schema.transformed_schema import fixed_buckets, moving_partitions
from ingest.transform.functions.zones import zone_named
from ingest.transform.masks import parse_mask
from ingest.transform.rule_names import check_part, check_rule, moved_by
from storage.errors import InvalidOptionError, InvalidRequestError
from storage.options.options import option_value

__all__ = ["check_transforms", "transforms_found"]


def check_transforms(settings: Settings) -> None:
    """Check expressions, masks, metadata columns and partitions.

    Raises:
        InvalidOptionError: one is wrong; with the key of the setting.
    """
    _at("sink.time.zone", zone_named, settings.sink.time_zone)
    _at("sink.metadata.columns", checked_metadata, settings.sink.metadata_columns)
    for position, rule in enumerate(settings.tables):
        _check(settings, rule, f"tables[{position}]")


def transforms_found(settings: Settings) -> str:
    """What there is, and what to know about it, for people."""
    rules = [(rule.match, settings.transform(rule.match)) for rule in settings.tables]
    found = [f"of {match}" for match, rule in rules if not rule.empty]
    for match, rule in rules:
        found += [
            f"`{name}` is in the key of {match} and comes from {', '.join(inputs)}: updates and "
            "deletes must bring the old value (REPLICA IDENTITY FULL), or go to quarantine"
            for name, inputs in moved_by(rule, settings.primary_key(match)).items()
        ]
    return "; ".join(found)


def _check(settings: Settings, rule: TableRule, where: str) -> None:
    if rule.filter is not None:
        _at(f"{where}.filter", check_part, "filter", rule.filter)
    for number, text in enumerate(rule.computed or ()):
        _at(f"{where}.computed[{number}]", check_part, "computed", text)
    for number, text in enumerate(rule.partition_by or ()):
        _at(f"{where}.partition.by[{number}]", check_part, "partition.by", text)
    for column, mask in (rule.mask or {}).items():
        _at(f"{where}.mask.{column}", check_part, "mask", mask)
    # with what other rules say of the same tables
    whole = settings.transform(rule.match)
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
                "a mask would make one key of different ones",
                hint="use sha256, or another primary key",
                key=f"{where}.mask.{name}",
            )
    _check_partitions(settings, rule, where)


def _check_partitions(settings: Settings, rule: TableRule, where: str) -> None:
    """Keys that move between partitions need an index, which fixed buckets do not have."""
    whole, key = settings.transform(rule.match), settings.primary_key(rule.match)
    if settings.appends and not key:
        return
    moving = moving_partitions(whole, key)
    if not key:  # the records' keys may have a column of the source, never one that we make
        moving = tuple(name for name, _ in whole.assignments if name in whole.partition_columns)
    properties = settings.table_properties(rule.match)
    if moving and option_value({"bucket": "1", **properties}, "bucket") != -1:
        _at(f"{where}.partition.by", _refuse, moving, properties.get("bucket", ""))
    if moving and "sequence.field" in properties:
        raise InvalidOptionError(
            "sequence.field and keys that move between partitions exclude each other",
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
