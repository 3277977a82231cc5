# SPDX-License-Identifier: Apache-2.0
"""Values of settings with a fixed set of values: formats, type mappings, events, schema changes."""

import difflib
import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from storage.errors import InvalidOptionError
from storage.options.options import find_option
from storage.options.table import TABLE_OPTIONS

# Suggest the known name that is most similar to an unknown one.


_SHORT = 2
"""Names up to this length are matched exactly: they resemble too many others."""


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint with the most similar name; empty if there is none."""
    match = nearest_of(name, candidates, cutoff)
    return f"did you mean `{match}`?" if match else ""


def nearest_of(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the most similar known name, ignoring case; empty if there is none.

    Args:
        name: unknown name.
        candidates: known names.
        cutoff: minimum similarity, between 0 and 1.
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    cutoff = cutoff if len(name) > _SHORT else 1.0
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else ""


def refuse_misspelt(option: str) -> None:
    """Refuse a table option that seems misspelt; other unknown ones are kept unchanged."""
    if find_option(option) is not None:
        return
    hint = nearest(option, (row.key for row in TABLE_OPTIONS), cutoff=0.85)
    if hint:
        raise InvalidOptionError("there is no such table option", hint=hint, option=option)


DEBEZIUM_JSON = "debezium-json"
DEBEZIUM_AVRO = "debezium-avro"
UPSERT_AVRO = "upsert-avro"

AVRO_FORMATS = (DEBEZIUM_AVRO, UPSERT_AVRO)
"""Formats that need a schema registry."""

BARE_ROW_FORMATS = ("json", "upsert-json", "debezium-flat")
"""Formats whose message is a row, which may have fields of any name."""

SWEEP_REMOVED = {"sweep": "`lakeward verify --repair` deletes rows that the source does not have"}
"""The value of `on.resnapshot` of earlier releases, and what replaced it."""

FORMATS = (
    DEBEZIUM_JSON,
    *AVRO_FORMATS,
    "debezium-flat",
    "upsert-json",
    "canal-json",
    "maxwell-json",
    "ogg-json",
    "aws-dms-json",
    "json",
)
"""Values of `source.format`; `ingest.decode.decoders` has their decoders."""

ALERT_EVENTS = (
    "table_parked",
    "table_resumed",
    "schema_applied",
    "schema_refused",
    "quarantine",
    "stream_failed",
    "stream_fatal",
    "stream_paused",
    "stream_resumed",
)
"""Events of webhooks; documented in status-api.md."""

MAPPING_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "tinyint1-not-bool": "TINYINT(1) stays a number; always on",
        "to-nullable": "columns are nullable, even if they are not in the source; always on",
        "to-string": "every column is STRING",
        "char-to-string": "CHAR(n) and VARCHAR(n) are STRING",
        "longtext-to-bytes": "LONGTEXT is BYTES (UTF-8)",
        "bigint-unsigned-to-bigint": "BIGINT UNSIGNED is BIGINT; larger numbers are bad records",
        "decimal-no-change": "DECIMAL columns keep their type; a value that does not fit makes a "
        "bad record",
        "no-change": "all columns keep their type; a value that does not fit makes a bad record",
        "unsigned-bigint-to-decimal": "BIGINT UNSIGNED is DECIMAL(20, 0), also when the connector "
        "sends it as a signed number",
        "infinity-to-null": "infinite dates and timestamps are null",
        "infinity-to-bounds": "infinite dates and timestamps are the first or last value of the "
        "years 1 to 9999",
        "time-to-bigint": "TIME is BIGINT: microseconds, also negative and beyond a day",
        "time-to-string": "TIME is STRING: `[-]HH:MM:SS[.ffffff]`",
        "cut-fractions": "fractions of a second in texts are truncated to the column's precision",
        "zoned-to-string": "timestamps with a zone are STRING, as sent",
        "bits-to-bigint": "base64 text in a BIGINT column is BIT(n), for events without schema",
    }
)
"""Values of `sink.type.mapping` with their meaning."""

_CONTRARY = (
    ("bigint-unsigned-to-bigint", "unsigned-bigint-to-decimal"),
    ("infinity-to-null", "infinity-to-bounds"),
    ("time-to-bigint", "time-to-string"),
    ("to-string", "longtext-to-bytes"),
    ("to-string", "time-to-bigint"),
    ("to-string", "unsigned-bigint-to-decimal"),
    ("to-string", "bigint-unsigned-to-bigint"),
)


def checked_mapping(words: Iterable[str]) -> tuple[str, ...]:
    """Return the values of `sink.type.mapping`, in lower case and sorted.

    Raises:
        InvalidOptionError: a value is unknown, or contradicts another.
    """
    key = "sink.type.mapping"
    chosen = sorted({word.strip().lower() for word in words})
    for word in chosen:
        if word not in MAPPING_WORDS:
            raise InvalidOptionError(
                f"unknown type mapping {word!r}",
                hint=nearest(word, MAPPING_WORDS) or f"one of {', '.join(MAPPING_WORDS)}",
                key=key,
            )
    for first, second in _CONTRARY:
        if first in chosen and second in chosen:
            raise InvalidOptionError(
                f"{first} and {second} contradict each other", hint="keep one of them", key=key
            )
    return tuple(chosen)


class ChangeKind(enum.StrEnum):
    """A kind of schema change, named as in the settings."""

    CREATE_TABLE = "create.table"
    ADD_COLUMN = "add.column"
    ALTER_COLUMN_TYPE = "alter.column.type"
    RENAME_COLUMN = "rename.column"
    DROP_COLUMN = "drop.column"
    TRUNCATE_TABLE = "truncate.table"
    DROP_TABLE = "drop.table"


def kinds_named(name: str) -> tuple[ChangeKind, ...]:
    """Return the kinds of a full or partial name: `drop.column`, `drop`, `column`.

    Raises:
        ValueError: no kind matches; the text has the expected values and a suggestion.
    """
    words = name.strip().lower().split(".")
    kinds = tuple(kind for kind in ChangeKind if _has(kind.value.split("."), words))
    if kinds:
        return kinds
    names = {word for kind in ChangeKind for word in (kind.value, *kind.value.split("."))}
    hint = nearest(name.strip(), sorted(names))
    suffix = f"; {hint}" if hint else ""
    raise ValueError(f"kinds of schema changes ({', '.join(ChangeKind)}){suffix}")


def _has(words: list[str], part: list[str]) -> bool:
    ends = range(len(part), len(words) + 1)
    return any(words[end - len(part) : end] == part for end in ends)
