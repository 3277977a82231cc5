# SPDX-License-Identifier: Apache-2.0
"""The history of schema changes: `<default database>._schema_history`, an ordinary table.

A row has the requested change, the record that requested it, and the outcome. Rows are committed
like those of any other table, with the batch that requested it and before its other tables.

A change that is made is noted in the altered table's own options, in the same schema file
(`lakeward.schema-changes`): a crash between the change and the batch's commits loses nothing, the
replay finds the note and writes the rows. The key (stream, table, batch, change) makes writing them
again harmless.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import orjson
import pyarrow as pa

from ingest.decode.events import OWN_TABLE_OPTION
from ingest.schema.schema_modes import ChangeKind, Outcome, Verdict
from storage.errors import CorruptDataError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import MAX_LENGTH, VALUE_KIND, AtomicType, DataType, TypeRoot

__all__ = [
    "CHANGES_OPTION",
    "HistoryEntry",
    "history_rows",
    "history_schema",
    "noted",
    "with_note",
]

CHANGES_OPTION = "lakeward.schema-changes"
"""Table option: the last batch that changed the schema, and its changes; JSON."""

_STRING = AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH)
_INT = AtomicType(TypeRoot.INT)
_BIGINT = AtomicType(TypeRoot.BIGINT)
_INSTANT = AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=3)

_KEY = ("stream", "table", "batch_id", "change")
_COLUMNS: tuple[tuple[str, DataType], ...] = (
    ("time", _INSTANT),
    ("stream", _STRING),
    ("table", _STRING),
    ("batch_id", _BIGINT),
    ("change", _STRING),
    ("kind", _STRING),
    ("column", _STRING),
    ("old", _STRING),
    ("new", _STRING),
    ("decision", _STRING),
    ("reason", _STRING),
    ("mode", _STRING),
    ("source", _STRING),
    ("topic", _STRING),
    ("partition", _INT),
    ("offset", _BIGINT),
)


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
    return new_schema(
        _COLUMNS,
        primary_keys=_KEY,
        partition_keys=(),
        options={"bucket": "1", OWN_TABLE_OPTION: "history of schema changes"},
        comment="requested schema changes and their outcome",
        now_ms=now_ms,
    )


def history_rows(entries: Sequence[HistoryEntry], stream: str, time_ms: int) -> pa.RecordBatch:
    """Entries as change rows of the table; columns in its order, then `_VALUE_KIND`."""
    verdicts = [entry.verdict for entry in entries]
    values: list[Sequence[object]] = [
        [time_ms] * len(entries),
        [stream] * len(entries),
        [entry.table for entry in entries],
        [entry.batch for entry in entries],
        [entry.change for entry in entries],
        [each.kind.value for each in verdicts],
        [each.column or None for each in verdicts],
        [each.old or None for each in verdicts],
        [each.new or None for each in verdicts],
        [each.outcome.value for each in verdicts],
        [each.reason or None for each in verdicts],
        [entry.mode for entry in entries],
        [each.source or None for each in verdicts],
        [each.topic or None for each in verdicts],
        [each.partition if each.partition >= 0 else None for each in verdicts],
        [each.offset if each.offset >= 0 else None for each in verdicts],
    ]
    types = [_ARROW[type_.root] for _, type_ in _COLUMNS if isinstance(type_, AtomicType)]
    arrays = [pa.array(each, type_) for each, type_ in zip(values, types, strict=True)]
    arrays[0] = arrays[0].cast(pa.timestamp("ms", tz="UTC"))
    arrays.append(pa.array([0] * len(entries), pa.int8()))
    return pa.RecordBatch.from_arrays(arrays, names=[*(name for name, _ in _COLUMNS), VALUE_KIND])


_ARROW = {
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.TIMESTAMP_LTZ: pa.int64(),
}


def with_note(
    options: Mapping[str, str], stream: str, batch: int, mode: str, verdicts: Iterable[Verdict]
) -> str:
    """The option's text after changes were made: of an earlier round of the same batch too.

    Args:
        options: of the table before.
        stream: who makes them.
        batch: commit identifier of the batch.
        mode: of the pipeline.
        verdicts: of the changes made.
    """
    known = [each.verdict for each in noted("", options, stream) if each.batch == batch]
    origins: dict[tuple[str, str, int, int], int] = {}
    rows = []
    for each in (*known, *verdicts):
        origin = (each.source, each.topic, each.partition, each.offset)
        number = origins.setdefault(origin, len(origins))
        rows.append([each.kind.value, each.column, each.old, each.new, each.reason, number])
    note = {"stream": stream, "batch": batch, "mode": mode, "places": list(origins), "rows": rows}
    return orjson.dumps(note).decode()


def noted(table: str, options: Mapping[str, str], stream: str) -> list[HistoryEntry]:
    """The changes of a stream that a table's options note."""
    text = options.get(CHANGES_OPTION)
    if not text:
        return []
    try:
        note = orjson.loads(text)
        if note["stream"] != stream:
            return []
        found = []
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
            found.append(HistoryEntry(table, int(note["batch"]), note["mode"], verdict))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptDataError(
            "a table's note of its schema changes cannot be read", table=table, value=text
        ) from error
    return found
