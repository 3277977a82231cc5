# SPDX-License-Identifier: Apache-2.0
"""Filters on the quarantine table, and the selected rows.

A filter is passed in requests as plain values. Rows are processed by column: the table may have
millions of rows.
"""

import dataclasses
import datetime
import json
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError
from storage.table.scan.predicate import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Op,
    Or,
    Predicate,
    conjuncts,
)
from storage.table.table import FileStoreTable

UNKNOWN = "unknown"
"""Name that selects records with an unknown target table."""

GROUP_COLUMNS = ("topic", "table", "class", "state", "records", "first", "last", "example")
"""Columns of `count_groups`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Conditions, combined with AND; None = any.

    Attributes:
        topic: source topic.
        partition: source partition.
        offset: source offset.
        table: target table `database.table`, or `UNKNOWN`.
        error_class: see `ingest.pipeline.quarantine`.
        state: `new` or `replayed`.
        since_ms: quarantined at this time or later [epoch ms].
    """

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    table: str | None = None
    error_class: str | None = None
    state: str | None = None
    since_ms: int | None = None

    def to_values(self) -> dict[str, Any]:
        """Return plain values without None."""
        return {
            name: value for name, value in dataclasses.asdict(self).items() if value is not None
        }

    @staticmethod
    def of_values(values: Mapping[str, Any]) -> "Choice":
        """Decode the values of `to_values`.

        Raises:
            InvalidRequestError: the values are invalid.
        """
        kinds = {"partition": int, "offset": int, "since_ms": int}
        for name, value in values.items():
            if name not in Choice.__dataclass_fields__ or type(value) is not kinds.get(name, str):
                raise InvalidRequestError("invalid filter of bad records", argument=name)
        return Choice(**values)

    def predicate(self) -> Predicate | None:
        """Return the predicate on the quarantine table."""
        parts: list[Predicate] = [
            Compare(Op.EQ, column, value)
            for column, value in (
                ("topic", self.topic),
                ("partition", self.partition),
                ("offset", self.offset),
                ("error_class", self.error_class),
                ("state", self.state),
            )
            if value is not None
        ]
        if self.table is not None:
            match = Compare(Op.EQ, "target", self.table)
            parts.append(IsNull("target") if self.table == UNKNOWN else match)
        if self.since_ms is not None:
            since = datetime.datetime.fromtimestamp(self.since_ms / 1000, datetime.UTC)
            parts.append(Compare(Op.GE, "ingested_at", since))
        return And(tuple(parts)) if parts else None


def read_quarantine(
    table: FileStoreTable,
    choice: Choice,
    columns: Sequence[str] | None = None,
    *,
    offsets: Collection[int] | None = None,
    but_for: Collection[str] = (),
    limits: tuple[int, int] | None = None,
) -> pa.Table:
    """Return rows of the quarantine table, in the order of its key.

    Args:
        table: latest version of the quarantine table.
        choice: filter.
        columns: columns to read; None = all.
        offsets: only records at these source offsets.
        but_for: target tables to exclude.
        limits: approximate limits of rows and bytes.

    Raises:
        InvalidRequestError: the table was created by an earlier version, and no daemon of this
            version has started since.
    """
    if "target" not in table.schema.field_names:
        raise InvalidRequestError(
            "the quarantine table was created by an earlier version",
            hint="start the daemon: it adds the missing columns",
        )
    parts = list(conjuncts(choice.predicate()))
    if offsets is not None:
        parts.append(In("offset", tuple(sorted(offsets))))
    if but_for:
        parts.append(Or((IsNull("target"), Not(In("target", tuple(sorted(but_for)))))))
    predicate = And(tuple(parts)) if parts else None
    names = list(columns or table.schema.field_names)
    read = table.new_read(columns=names, predicate=predicate)
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for split in table.new_scan().with_filter(predicate).plan().splits:
        for batch in read.to_batches(split):
            batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if limits is not None and (rows >= limits[0] or size >= limits[1]):
                return pa.Table.from_batches(batches, read.schema)
    return pa.Table.from_batches(batches, read.schema)


def count_groups(rows: pa.Table) -> pa.Table:
    """Count rows by topic, table, class and state, in descending order.

    Args:
        rows: rows with these columns, `ingested_at` and `error`.

    Returns:
        `GROUP_COLUMNS`; `first` and `last` are times of quarantine, `example` is one error.
    """
    keys = ["topic", "target", "error_class", "state"]
    groups = rows.group_by(keys, use_threads=False).aggregate(
        [("error", "count"), ("ingested_at", "min"), ("ingested_at", "max"), ("error", "first")]
    )
    groups = groups.select(
        [*keys, "error_count", "ingested_at_min", "ingested_at_max", "error_first"]
    ).rename_columns(list(GROUP_COLUMNS))
    groups = groups.set_column(1, "table", pc.fill_null(groups.column("table"), UNKNOWN))
    return groups.sort_by(
        [("records", "descending"), ("topic", "ascending"), ("table", "ascending")]
    )


# Error classes of bad records, with their meaning and what to do.
#
# `lakeward quarantine show` prints them; `docs/guides/quarantine.md` has the same table.


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
