# SPDX-License-Identifier: Apache-2.0
"""Error classes of bad records, with their meaning and what to do.

`lakeward quarantine show` prints them; `docs/guides/quarantine.md` has the same table.
"""

import dataclasses
import json
import struct
from collections.abc import Mapping

import orjson

_SHOWN_BYTES = 1024
_SHOWN_TEXT = 20_000


def record_text(data: bytes | None, *, in_full: bool = False) -> tuple[str, str]:
    """Return the kind of the bytes, and their text.

    Args:
        data: key or value of a record.
        in_full: whether to show long values in full.

    Returns:
        (kind, text); the kind is `none`, `empty`, `json`, `avro, schema id N`, `text` or `bytes`.
    """
    if data is None:
        return "none", ""
    if not data:
        return "empty", ""
    framed = len(data) > 5 and data[0] == 0
    try:
        text = "" if framed else data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text:
        kind = f"avro, schema id {struct.unpack('>I', data[1:5])[0]}" if framed else "bytes"
        part = data if in_full else data[:_SHOWN_BYTES]
        return kind, hex_dump(part) + _truncation_note(len(data) - len(part), "bytes")
    kind = "text"
    try:
        # the pretty form, or the very text where parsing would change a number
        parsed = orjson.loads(data)
        kind, text = "json", json.dumps(parsed, indent=2, ensure_ascii=False)
    except ValueError:
        pass
    shown_text = text if in_full else text[:_SHOWN_TEXT]
    return kind, shown_text + _truncation_note(len(text) - len(shown_text), "characters")


def _truncation_note(count: int, what: str) -> str:
    return f"\n… {count} more {what}: see --whole" if count else ""


def hex_dump(data: bytes) -> str:
    """Format lines of 16 bytes: offset, hexadecimal, printable characters."""
    lines = []
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        digits = part.hex(" ")
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {digits:<47}  {text}")
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True, slots=True)
class BadClass:
    """One error class.

    Attributes:
        meaning: what is wrong with the record.
        hint: what to do about it.
    """

    meaning: str
    hint: str


_REPLAY = "then `lakeward quarantine replay`"

BAD_CLASSES: Mapping[str, BadClass] = {
    "json": BadClass(
        "Key or value is not JSON, or not UTF-8.",
        "Find its producer (a foreign one in the topic?); Lakeward cannot repair such records. "
        "`lakeward quarantine drop` if they are not needed.",
    ),
    "avro": BadClass(
        "The bytes do not match the schema that they reference.",
        "Check `source.schema.registry.*` and the converter of the connector. If the framing was "
        f"configured wrongly: correct it, `lakeward reload`, {_REPLAY}.",
    ),
    "schema_id": BadClass(
        "The schema registry has no schema with this id.",
        f"Register it again (restore the topic of the registry), {_REPLAY}.",
    ),
    "envelope": BadClass(
        "Valid JSON or Avro, but not an event of `source.format`; the error says what it looks "
        "like.",
        "Check `source.format` and the transforms of the connector; exclude other topics with "
        "`source.topics.exclude`.",
    ),
    "type": BadClass(
        "A value does not fit the type of its column; the error shows all three.",
        "Widen the column, or choose another type with `sink.type.mapping`, "
        f"{_REPLAY}; correct a wrong value in the source.",
    ),
    "unrepresentable": BadClass(
        "No column of that type can hold the value; the error names the type mapping to choose.",
        f"Add it to `sink.type.mapping`, `lakeward reload`, {_REPLAY}.",
    ),
    "schema": BadClass(
        "The table lacks a column that may not be added, or the table could not be created; the "
        "error says why.",
        "Add the column, or allow the change (`pipeline.schema.change.behavior`, "
        f"`sink.include.schema.changes`), {_REPLAY}.",
    ),
    "no_primary_key": BadClass(
        "Neither the key of the record nor the settings define a primary key, or it has a column "
        "that the row lacks.",
        f"Set `tables[].primary.key`, restart the daemon, {_REPLAY}.",
    ),
    "primary_key_changed": BadClass(
        "The key of the record has other columns than the primary key of the table.",
        "The key changed in the source: route the source table to a new table with the new key, "
        f"`lakeward reload`, {_REPLAY}.",
    ),
    "source_table_conflict": BadClass(
        "The target table belongs to another source table.",
        f"Add a `route` that sends one of them to another table, `lakeward reload`, {_REPLAY}.",
    ),
    "table_name": BadClass(
        "The table format forbids the name of the target, or it is the name of one of Lakeward's "
        "own tables.",
        "Send the source table to another table with a rule of `route` (then add a last rule for "
        "all others: `{source-table: '.*', sink-table: '${source.db}.<>'}`), or, for forbidden "
        f"names, set `sink.names.sanitize: true`; `lakeward reload`, {_REPLAY}.",
    ),
    "unavailable_value": BadClass(
        "PostgreSQL did not send a large value (TOAST), and the table may not keep the stored one.",
        f"`toast: keep` or `null` for the table, `lakeward reload`, {_REPLAY}; or set REPLICA "
        "IDENTITY FULL in the source for later events.",
    ),
    "before_image": BadClass(
        "The event lacks old values from which the key or partition of the table is computed.",
        "Set REPLICA IDENTITY FULL (PostgreSQL) or binlog_row_image=FULL (MySQL) in the source; "
        "rows of quarantined events need a new snapshot of the table.",
    ),
    "transform": BadClass(
        "A filter or computed column of the table fails on this row.",
        f"Correct the expression in `tables[]`, `lakeward reload`, {_REPLAY}.",
    ),
    "internal": BadClass(
        "Processing the record raised an unexpected error: a bug.",
        "Report it with the text of the error; after an upgrade that fixes it: "
        "`lakeward quarantine replay`.",
    ),
}

_UNKNOWN = BadClass("A class of another version of Lakeward.", "See the error.")


def bad_class(name: str) -> BadClass:
    """Return the explanation of a class, also of an unknown one."""
    return BAD_CLASSES.get(name, _UNKNOWN)
