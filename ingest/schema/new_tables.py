# SPDX-License-Identifier: Apache-2.0
"""How tables are created: those of source tables, and Lakeward's own.

Decided on the driver, before a table is created: a repeated batch finds the table as it was
created by the first attempt, whatever the decision would be now.
"""

import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence

import orjson
import pyarrow as pa

from ingest.config.choices import ChangeKind
from ingest.config.settings import Settings, created_options
from ingest.decode.events import (
    OFFSET_COLUMN,
    OWN_TABLE_OPTION,
    SOURCE_TABLE_OPTION,
    BadRecord,
    SchemaDelta,
)
from ingest.decode.schema_change_events import TableDdl
from ingest.schema.routing import Outcome, Verdict, change_policy, watermark_refused
from ingest.schema.schema_draft import Decision, NewTable
from ingest.schema.schema_sync import TableRules, reconcile
from ingest.source.open import topic_bytes
from ingest.transform.rules import transform_rule
from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import AddColumn, SetOption
from storage.format.types.types import VALUE_KIND, AtomicType, DataType, arrow_type, parse_type

BYTES_PER_BUCKET = 512 << 20
"""What a bucket holds at least, except in a table smaller than that; at most twice as much."""

MOST_BUCKETS = 1024
"""Above this every batch touches too many files; partition such a table instead."""


def recommended_buckets(size: int) -> int:
    """The number of buckets for a table, or for one partition of a partitioned table.

    A bucket is the unit that one task writes, compacts and reads. Small ones make many small files
    and commits; big ones make compaction slow and limit how many tasks write. Apache Paimon
    recommends 200 MB to 1 GB of data files per bucket. A power of two lets a later rescale double
    the number without moving rows between more than two buckets.

    The greatest power of two that leaves at least `BYTES_PER_BUCKET` to each bucket: one bucket
    below 1 GiB, two from 1 GiB, four from 2 GiB, up to `MOST_BUCKETS`.

    Args:
        size: bytes of data files, expected or measured; what is unknown is given as 0.

    Returns:
        A power of two between 1 and `MOST_BUCKETS`.

    Raises:
        ValueError: the size is negative.
    """
    if size < 0:
        raise ValueError(f"negative size: {size}")
    full = size // BYTES_PER_BUCKET
    return min(MOST_BUCKETS, 1 << max(0, full.bit_length() - 1))


_LOG = logging.getLogger(__name__)

BYTES_PER_STORED_BYTE = 4
"""Bytes of events for one of data files, about: envelopes repeat names and are not compressed."""


def decided(
    settings: Settings,
    name: str,
    existing: TableSchema | None,
    deltas: Sequence[SchemaDelta],
    ddl: Sequence[TableDdl],
    now_ms: int,
) -> Decision:
    """What to do for `database.table` about shapes and statements of one batch.

    Args:
        name: the table.
        existing: its schema; None = it is not there.
        deltas: what its schema does not cover.
        ddl: statements about its source tables.
        now_ms: time of a new schema [epoch ms].

    Raises:
        RetryableError: the source did not return the size of the topics of a new table.
    """
    properties = settings.table_properties(name) | created_options(settings, name)
    if existing is None and deltas and settings.rule_value(name, lambda rule: rule.auto_bucket):
        properties["bucket"] = str(_buckets(settings, name, deltas))
    decision = reconcile(
        existing,
        deltas,
        table_properties=properties,
        primary_key=settings.primary_key(name),
        rules=TableRules(transform_rule(settings, name), settings.sink.time_zone),
        appends=settings.appends,
        ordering=settings.events.ordering,
        policy=change_policy(settings, name),
        ddl=ddl,
        now_ms=now_ms,
    )
    watermark = settings.rule_value(name, lambda rule: rule.watermark)
    if isinstance(decision.action, NewTable) and watermark is not None:
        reason = watermark_refused(decision.action.schema, watermark)
        if reason:
            return decision.as_refused(reason)
    return decision


def _buckets(settings: Settings, name: str, deltas: Sequence[SchemaDelta]) -> int:
    """Number of buckets for the topics that feed the table; what a partition gets is not known."""
    if transform_rule(settings, name).partition_by:
        return recommended_buckets(0)
    topics = {delta.topic for delta in deltas}
    return recommended_buckets(topic_bytes(settings.source, topics) // BYTES_PER_STORED_BYTE)


def log_notes(name: str, decision: Decision) -> None:
    """Log how a new table differs from the settings."""
    for note in decision.notes:
        _LOG.warning("a new table differs from the settings", extra={"table": name, "reason": note})


# Tables that Lakeward keeps for itself: the quarantine and the history of schema changes. Pure.
#
# Both are ordinary primary-key tables, so a replayed batch writes the same rows again and nothing
# is counted twice. Columns added by later versions are at the end; at start the daemon adds them to
# a table of an earlier version.
#
# `bad.records.table` stores records that could not be decoded, in full.
#
# A row of `<default database>._schema_history` has the requested change, the record that requested
# it, and the outcome. Rows are committed with the batch that requested the change and before its
# other tables. An applied change is recorded in the options of the altered table, in the same
# schema file (`lakeward.schema-changes`): after a crash between the change and the batch's commits
# the replay finds the record and writes the rows.


CHANGES_OPTION = "lakeward.schema-changes"
"""Table option: the last batch that changed the schema, and its changes; JSON."""

NEW = "new"
"""State of a record that was neither replayed nor dropped."""

REPLAYED = "replayed"
"""State of a record that was replayed."""

_LAST_MS = 253_402_300_800_000
"""The first moment of the year 10000 [epoch ms], which many readers do not support."""

_STRING, _BYTES, _INT, _BIGINT, _INSTANT = map(
    parse_type, ("STRING", "BYTES", "INT", "BIGINT", "TIMESTAMP_LTZ(3)")
)
_Columns = Mapping[str, DataType]

_QUARANTINE: _Columns = {
    "topic": _STRING,
    "topic_epoch": _INT,
    "partition": _INT,
    "offset": _BIGINT,
    "timestamp": _INSTANT,
    "key": _BYTES,
    "value": _BYTES,
    "headers": _STRING,
    "error_class": _STRING,
    "error": _STRING,
    "batch_id": _BIGINT,
    "ingested_at": _INSTANT,
    "state": _STRING,
    "target": _STRING,
    "replayed_at": _INSTANT,
}
_HISTORY: _Columns = {
    "time": _INSTANT,
    "stream": _STRING,
    "table": _STRING,
    "batch_id": _BIGINT,
    "change": _STRING,
    "kind": _STRING,
    "column": _STRING,
    "old": _STRING,
    "new": _STRING,
    "decision": _STRING,
    "reason": _STRING,
    "mode": _STRING,
    "source": _STRING,
    "topic": _STRING,
    "partition": _INT,
    "offset": _BIGINT,
}


def _own_schema(
    columns: _Columns, key: Sequence[str], purpose: str, comment: str, now_ms: int
) -> TableSchema:
    return new_schema(
        [*columns.items()],
        primary_keys=key,
        partition_keys=(),
        options={"bucket": "1", OWN_TABLE_OPTION: purpose},
        comment=comment,
        now_ms=now_ms,
    )


def _change_rows(
    columns: _Columns, rows: Sequence[Sequence[object]], offsets: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Rows as inserts: the columns, then `_VALUE_KIND`, then the offsets if there are any."""
    values = zip(*rows, strict=True) if rows else [()] * len(columns)
    arrays = [_array(type_, column) for type_, column in zip(columns.values(), values, strict=True)]
    arrays.append(pa.array([0] * len(rows), pa.int8()))
    names = [*columns, VALUE_KIND]
    if offsets is not None:
        arrays.append(pa.array(offsets, pa.int64()))
        names.append(OFFSET_COLUMN)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _array(type_: DataType, values: Sequence[object]) -> pa.Array:
    storage_type = pa.int64() if type_ == _INSTANT else arrow_type(type_)
    return pa.array(values, storage_type).cast(arrow_type(type_))


# --- the quarantine


def quarantine_schema(now_ms: int) -> TableSchema:
    """The schema that the daemon creates the table with."""
    key = ("topic", "topic_epoch", "partition", "offset")
    comment = "records that Lakeward could not decode"
    return _own_schema(_QUARANTINE, key, "quarantine", comment, now_ms)


def missing_columns(schema: TableSchema) -> tuple[AddColumn, ...]:
    """What a quarantine table of an earlier version lacks."""
    have = set(schema.field_names)
    return tuple(AddColumn(name, type_) for name, type_ in _QUARANTINE.items() if name not in have)


def quarantine_rows(
    records: Sequence[BadRecord], *, topic: str, partition: int, batch_id: int, time_ms: int
) -> pa.RecordBatch:
    """Bad records of one source partition as change rows of the quarantine table.

    Returns:
        The table's columns, then `_VALUE_KIND` and the order column, in offset order.
    """
    rows = [
        (
            *(topic, 0, partition, record.offset, _moment(record), record.key, record.value),
            *(_headers_json(record), record.error_class, _storable(record.error)),
            *(batch_id, time_ms, NEW, record.target or None, None),
        )
        for record in records
    ]
    return _change_rows(_QUARANTINE, rows, [record.offset for record in records])


def _moment(record: BadRecord) -> int | None:
    return record.timestamp_ms if 0 <= record.timestamp_ms < _LAST_MS else None


def _storable(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot encode, escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _headers_json(record: BadRecord) -> str | None:
    if not record.headers:
        return None
    pairs = [
        [_storable(name), value.decode("utf-8", "backslashreplace")]
        for name, value in record.headers
    ]
    return orjson.dumps(pairs).decode("utf-8")


# --- the history of schema changes


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of one batch.

    Attributes:
        table: `database.table`.
        batch: commit identifier of the batch.
        mode: of the pipeline.
        verdict: the change.
    """

    table: str
    batch: int
    mode: str
    verdict: Verdict

    @property
    def change(self) -> str:
        """Identifies the change within its table and batch; the same at every replay."""
        verdict = self.verdict
        parts = (verdict.kind, verdict.column, verdict.old, verdict.new, verdict.source)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def history_schema(now_ms: int) -> TableSchema:
    """The schema that the daemon creates the table with."""
    key = ("stream", "table", "batch_id", "change")
    comment = "requested schema changes and their outcome"
    return _own_schema(_HISTORY, key, "history of schema changes", comment, now_ms)


def history_rows(entries: Sequence[HistoryEntry], stream: str, time_ms: int) -> pa.RecordBatch:
    """Entries as change rows of the table; columns in its order, then `_VALUE_KIND`."""
    return _change_rows(_HISTORY, [_history_row(entry, stream, time_ms) for entry in entries])


def _history_row(entry: HistoryEntry, stream: str, time_ms: int) -> tuple[object, ...]:
    verdict = entry.verdict
    return (
        *(time_ms, stream, entry.table, entry.batch, entry.change, verdict.kind.value),
        *(verdict.column or None, verdict.old or None, verdict.new or None),
        *(verdict.outcome.value, verdict.reason or None, entry.mode, verdict.source or None),
        verdict.topic or None,
        *(number if number >= 0 else None for number in (verdict.partition, verdict.offset)),
    )


def with_note(
    options: Mapping[str, str], stream: str, batch: int, mode: str, verdicts: Iterable[Verdict]
) -> str:
    """The option's text after changes, those of an earlier round of the same batch included.

    Args:
        options: of the table before.
        stream: stream that makes them.
        batch: commit identifier of the batch.
        mode: of the pipeline.
        verdicts: of the changes made.
    """
    earlier = [
        entry.verdict for entry in noted_changes("", options, stream) if entry.batch == batch
    ]
    origins: dict[tuple[str, str, int, int], int] = {}
    rows = []
    for item in (*earlier, *verdicts):
        origin = (item.source, item.topic, item.partition, item.offset)
        number = origins.setdefault(origin, len(origins))
        rows.append([item.kind.value, item.column, item.old, item.new, item.reason, number])
    note = {"stream": stream, "batch": batch, "mode": mode, "places": list(origins), "rows": rows}
    return orjson.dumps(note).decode()


def noted_changes(table: str, options: Mapping[str, str], stream: str) -> list[HistoryEntry]:
    """The changes of a stream that a table's options record."""
    text = options.get(CHANGES_OPTION)
    if not text:
        return []
    try:
        note = orjson.loads(text)
        if note["stream"] != stream:
            return []
        entries = []
        for kind, column, old, new, reason, number in note["rows"]:
            source, topic, partition, offset = note["places"][number]
            verdict = Verdict(
                kind=ChangeKind(kind),
                column=column,
                old=old,
                new=new,
                outcome=Outcome.APPLIED,
                reason=reason,
                source=source,
                topic=topic,
                partition=partition,
                offset=offset,
            )
            entries.append(HistoryEntry(table, int(note["batch"]), note["mode"], verdict))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptDataError(
            "a table's note of its schema changes cannot be read", table=table, value=text
        ) from error
    return entries


# --- whether an existing table is one of them


def require_own_table(name: str, stored_schema: TableSchema, expected_schema: TableSchema) -> None:
    """Refuse a foreign table that has the name of one of Lakeward's own.

    Args:
        name: `database.table`.
        stored_schema: its schema.
        expected_schema: Lakeward's schema; a table of an earlier version may lack later columns.

    Raises:
        InvalidRequestError: it is filled from a source table, has another key, a column of another
            type, or a column that must not be null and is not ours.
    """
    if reason := _difference(stored_schema, expected_schema):
        purpose = expected_schema.options[OWN_TABLE_OPTION]
        raise InvalidRequestError(
            f"Lakeward keeps its {purpose} in this table, but the table is another one",
            detail=reason,
            hint="move or drop the table, or have Lakeward use other names: `bad.records.table` "
            "for the quarantine, `sink.default.database` for both",
            table=name,
        )


def _difference(stored_schema: TableSchema, expected_schema: TableSchema) -> str:
    owner = stored_schema.options.get(SOURCE_TABLE_OPTION)
    if owner is not None:
        return f"it is filled from source table {owner}"
    purpose, expected_purpose = (
        stored_schema.options.get(OWN_TABLE_OPTION),
        expected_schema.options[OWN_TABLE_OPTION],
    )
    if purpose not in (None, expected_purpose):
        return f"it is Lakeward's {purpose}"
    if stored_schema.primary_keys != expected_schema.primary_keys:
        return f"its primary key is ({', '.join(stored_schema.primary_keys)})"
    columns = {field.name: field.type for field in expected_schema.fields}
    for field in stored_schema.fields:
        type_ = columns.get(field.name)
        if type_ is None and not field.type.nullable:
            return f"its column {field.name} must not be null"
        if type_ is not None and _root(type_) != _root(field.type):
            return f"its column {field.name} is of another type"
    return ""


def _root(type_: object) -> object:
    return type_.root if isinstance(type_, AtomicType) else type(type_)


def mark_changes(stored_schema: TableSchema, expected_schema: TableSchema) -> tuple[SetOption, ...]:
    """Changes that mark a table of an earlier version as Lakeward's own for every pipeline."""
    if OWN_TABLE_OPTION in stored_schema.options:
        return ()
    return (SetOption(OWN_TABLE_OPTION, expected_schema.options[OWN_TABLE_OPTION]),)
