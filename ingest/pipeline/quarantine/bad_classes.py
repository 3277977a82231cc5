# SPDX-License-Identifier: Apache-2.0
"""Every class of error that a bad record may have: what it means, and what to do about it.

`lakeward quarantine show` prints them; `docs/guides/quarantine.md` has the same table for people.
"""

import dataclasses
from collections.abc import Mapping

__all__ = ["BAD_CLASSES", "BadClass", "bad_class"]


@dataclasses.dataclass(frozen=True, slots=True)
class BadClass:
    """One class.

    Attributes:
        meaning: what is wrong with the record.
        hint: what to do about it.
    """

    meaning: str
    hint: str


_REPLAY = "then `lakeward quarantine replay`"

BAD_CLASSES: Mapping[str, BadClass] = {
    "json": BadClass(
        "Key or value is no JSON, or not UTF-8.",
        "Nothing in Lakeward can mend it: find who writes it (another producer in the topic?); "
        "`lakeward quarantine drop` when it is known to be rubbish.",
    ),
    "avro": BadClass(
        "The bytes do not follow the schema that they name.",
        "Check `source.schema.registry.*` and the converter of the connector; if the framing was "
        f"set wrongly: mend it, `lakeward reload`, {_REPLAY}.",
    ),
    "schema_id": BadClass(
        "The schema registry has no schema of this id.",
        f"Register it again (restore the registry's topic), {_REPLAY}.",
    ),
    "envelope": BadClass(
        "Valid, but no event of the format that `source.format` names; the text says what it looks "
        "like.",
        "Check `source.format` and the transforms of the connector; leave other topics out with "
        "`source.topics.exclude`.",
    ),
    "type": BadClass(
        "A value does not fit the type of its column; the text shows all three.",
        "Widen the column, or choose another type for it with `sink.type.mapping`, "
        f"{_REPLAY}; a wrong value is mended at the source.",
    ),
    "unrepresentable": BadClass(
        "No column of that type can hold the value; the error names the word to choose.",
        f"Add the word to `sink.type.mapping`, `lakeward reload`, {_REPLAY}.",
    ),
    "schema": BadClass(
        "A column that the table lacks and may not get, or the table could not be made; the text "
        "says why.",
        "Add the column, or allow the change (`pipeline.schema.change.behavior`, "
        f"`sink.include.schema.changes`), {_REPLAY}.",
    ),
    "no_primary_key": BadClass(
        "Neither the record's key nor the settings name a primary key, or it has a column that the "
        "row lacks.",
        f"Set `tables[].primary.key`, restart the daemon, {_REPLAY}.",
    ),
    "primary_key_changed": BadClass(
        "The record's key has other columns than the table's primary key.",
        "The source's key changed: route the source to a new table with the new key, "
        f"`lakeward reload`, {_REPLAY}.",
    ),
    "source_table_conflict": BadClass(
        "The target is filled from another source table.",
        f"Add a `route` that sends one of them elsewhere, `lakeward reload`, {_REPLAY}.",
    ),
    "table_name": BadClass(
        "The table format forbids the name of the target, or Lakeward's own table has it.",
        "Send the source table to another table with a rule of `route` (with the first rule comes "
        "a last one for all others: `{source-table: '.*', sink-table: '${source.db}.<>'}`); for "
        "forbidden names `sink.names.sanitize: true` does it, too; `lakeward reload`, "
        f"{_REPLAY}.",
    ),
    "unavailable_value": BadClass(
        "A large value that PostgreSQL did not send, and the table may not keep the older one.",
        f"`toast: keep` or `null` for the table, `lakeward reload`, {_REPLAY}; or REPLICA IDENTITY "
        "FULL at the source for what comes.",
    ),
    "before_image": BadClass(
        "The event lacks old values that the table's key or partition is computed from.",
        "REPLICA IDENTITY FULL (PostgreSQL) or binlog_row_image=FULL (MySQL) at the source; what "
        "is here needs a new snapshot of the table.",
    ),
    "transform": BadClass(
        "A filter or computed column of the table fails on this row.",
        f"Mend the expression in `tables[]`, `lakeward reload`, {_REPLAY}.",
    ),
    "internal": BadClass(
        "Lakeward raised an error that it does not foresee for this record: a bug.",
        "Report it with the error's text; after an upgrade that mends it: "
        "`lakeward quarantine replay`.",
    ),
}

_UNKNOWN = BadClass("A class of another version.", "See the error itself.")


def bad_class(name: str) -> BadClass:
    """What is known of a class; of an unknown one that it is."""
    return BAD_CLASSES.get(name, _UNKNOWN)
