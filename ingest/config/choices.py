# SPDX-License-Identifier: Apache-2.0
"""The words that settings take where there is a choice: formats, type mappings, events, changes."""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ingest.config.suggestion import nearest
from storage.errors import InvalidOptionError

__all__ = [
    "ALERT_EVENTS",
    "AVRO_FORMATS",
    "BARE_ROW_FORMATS",
    "DEBEZIUM_AVRO",
    "DEBEZIUM_JSON",
    "FORMATS",
    "MAPPING_WORDS",
    "SWEEP_REMOVED",
    "UPSERT_AVRO",
    "ChangeKind",
    "checked_mapping",
    "kinds_named",
]

DEBEZIUM_JSON = "debezium-json"
DEBEZIUM_AVRO = "debezium-avro"
UPSERT_AVRO = "upsert-avro"

AVRO_FORMATS = (DEBEZIUM_AVRO, UPSERT_AVRO)
"""Formats that need a schema registry."""

BARE_ROW_FORMATS = ("json", "upsert-json", "debezium-flat")
"""Formats whose message is a row, which may have members of any name."""

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
"""Events that webhooks can get; status-api.md says when."""

MAPPING_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "tinyint1-not-bool": "TINYINT(1) stays a number; always so here",
        "to-nullable": "columns take null although the source's do not; always so here",
        "to-string": "every column is STRING",
        "char-to-string": "CHAR(n) and VARCHAR(n) are STRING",
        "longtext-to-bytes": "LONGTEXT is BYTES (UTF-8)",
        "bigint-unsigned-to-bigint": "BIGINT UNSIGNED is BIGINT; larger numbers are bad records",
        "decimal-no-change": "the type of DECIMAL columns stays; what does not fit is a bad record",
        "no-change": "the type of no column changes; what does not fit is a bad record",
        "unsigned-bigint-to-decimal": "BIGINT UNSIGNED is DECIMAL(20, 0), also when the connector "
        "sends it as a signed number",
        "infinity-to-null": "infinite dates and timestamps are null",
        "infinity-to-bounds": "they are the first moment of the year 1 or the last of the year "
        "9999",
        "time-to-bigint": "TIME is BIGINT: microseconds, below zero and beyond a day too",
        "time-to-string": "TIME is STRING: `[-]HH:MM:SS[.ffffff]`",
        "cut-fractions": "fractions of a second in texts that are finer than the column's are cut",
        "zoned-to-string": "timestamps with a zone are STRING, as sent",
        "bits-to-bigint": "base64 text in a BIGINT column is BIT(n), where events have no schema",
    }
)
"""Words of the setting, and what each does."""

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
    """The words of `sink.type.mapping`, in lower case and sorted.

    Raises:
        InvalidOptionError: a word is unknown, or contradicts another.
    """
    key = "sink.type.mapping"
    chosen = sorted({word.strip().lower() for word in words})
    for word in chosen:
        if word not in MAPPING_WORDS:
            raise InvalidOptionError(
                f"there is no type mapping {word!r}",
                hint=nearest(word, MAPPING_WORDS) or f"one of {', '.join(MAPPING_WORDS)}",
                key=key,
            )
    for one, other in _CONTRARY:
        if one in chosen and other in chosen:
            raise InvalidOptionError(
                f"{one} and {other} contradict each other", hint="keep one of them", key=key
            )
    return tuple(chosen)


class ChangeKind(enum.StrEnum):
    """A kind of schema change, by its name in the settings."""

    CREATE_TABLE = "create.table"
    ADD_COLUMN = "add.column"
    ALTER_COLUMN_TYPE = "alter.column.type"
    RENAME_COLUMN = "rename.column"
    DROP_COLUMN = "drop.column"
    TRUNCATE_TABLE = "truncate.table"
    DROP_TABLE = "drop.table"


def kinds_named(name: str) -> tuple[ChangeKind, ...]:
    """The kinds that a full or partial name means: `drop.column`, `drop`, `column`.

    Raises:
        ValueError: none; the text says what was wanted and what may have been meant.
    """
    words = name.strip().lower().split(".")
    found = tuple(kind for kind in ChangeKind if _has(kind.value.split("."), words))
    if found:
        return found
    known = {word for kind in ChangeKind for word in (kind.value, *kind.value.split("."))}
    hint = nearest(name.strip(), sorted(known))
    meant = f"; {hint}" if hint else ""
    raise ValueError(f"kinds of schema changes ({', '.join(ChangeKind)}){meant}")


def _has(words: list[str], part: list[str]) -> bool:
    ends = range(len(part), len(words) + 1)
    return any(words[end - len(part) : end] == part for end in ends)
