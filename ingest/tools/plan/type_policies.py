# SPDX-License-Identifier: Apache-2.0
"""Treatment of the types in a plan that need care. Source: types.md. Pure."""

import dataclasses
import re
from collections.abc import Iterable, Mapping

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
