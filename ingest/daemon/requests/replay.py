# SPDX-License-Identifier: Apache-2.0
"""`replay` and `drop_bad`: records of the quarantine table replayed, or removed.

Steps of a replay, in this order:

1. resolve an unfinished earlier replay (`Ledger`);
2. decode the chosen records and the later ones of the same keys (`replayed_rows`);
3. write their rows; records whose rows cannot be written stay in quarantine, with the error, and
   steps 2 and 3 are repeated without them;
4. write the ledger: the records of each commit;
5. commit table by table, as `<stream>.replay`;
6. mark the records in the quarantine table, and delete the ledger.

A crash before 5 changes nothing (except schemas, as in the stream); one inside 5 leaves some tables
committed, and step 1 of the next replay, or of the same request handled again, marks their records
before it continues with the others.
"""

import contextlib
import dataclasses
import datetime
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ingest.config.stream_folder import stream_folder
from ingest.daemon.requests.registry import Outcome, Pipeline
from ingest.daemon.requests.replayed_rows import (
    Bounds,
    PartRows,
    QuarantinedRecord,
    ReplayOutcome,
    decode_for_replay,
    kept_of,
    source_records,
)
from ingest.decode.events import BadRecord
from ingest.pipeline.chunk import OFFSET_COLUMN, Chunk, ChunkFile
from ingest.pipeline.map_side import chunks, split_or_blame
from ingest.pipeline.plan import BatchPlan, Unwritable
from ingest.pipeline.quarantine.quarantine_choice import Choice, read_quarantine
from ingest.pipeline.reduce_side import reduced
from ingest.schema.own_tables import NEW, REPLAYED
from ingest.source.records import RawBatch
from ingest.state.state_file import StateFile
from ingest.state.table_cache import Warehouse
from storage.errors import InternalError, InvalidRequestError, RetryableError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.types.types import VALUE_KIND, RowKind
from storage.io.file_io import FileIO
from storage.table.table import FileStoreTable

Position = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """Commits and their records.

    Attributes:
        identifiers: of the commits, by table.
        records: in them, by table.
    """

    identifiers: Mapping[str, int]
    records: Mapping[str, tuple[Position, ...]]


def ledger_file(file_io: FileIO, warehouse: str, stream: str) -> StateFile[Ledger]:
    """The ledger file of a stream; it exists only while a replay is unfinished."""
    return StateFile(
        file_io,
        f"{stream_folder(warehouse, stream)}/replay.json",
        Ledger,
        title="the ledger of an unfinished replay",
        hint="restore it; without it, records may be applied twice to tables that aggregate",
    )


def replay_user(stream: str) -> str:
    """The commit user of a stream's replays."""
    return f"{stream}.replay"


def newest_identifier(table: FileStoreTable, user: str) -> int:
    """Newest identifier of the user's commits in a table; -1 = none."""
    snapshot = table.new_commit(user).latest_of_user(user)
    return -1 if snapshot is None else snapshot.commit_identifier


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenTable:
    """Files of one table, not committed yet.

    Attributes:
        messages: what to commit.
        unwritable: records whose rows cannot be written; then there are no messages.
    """

    messages: tuple[CommitMessage, ...] = ()
    unwritable: tuple[Unwritable, ...] = ()


def write_rows(
    warehouse: Warehouse,
    table: FileStoreTable,
    name: str,
    parts: Sequence[PartRows],
    *,
    identifier: int,
) -> WrittenTable:
    """Write change rows of a table.

    Args:
        warehouse: where the table is.
        table: with the schema version of the rows.
        name: its name.
        parts: rows by source partition, in order of application.
        identifier: of the future commit.

    Raises:
        LakewardError: the table cannot be written.
    """
    plan = BatchPlan(batch_id=-1, identifier=identifier, tables={name: table.schema.id})
    buckets: dict[tuple[bytes, int], list[Chunk]] = {}
    unwritable: list[Unwritable] = []
    for number, part in enumerate(parts):
        source = (part.topic, part.partition)
        placed, refused = split_or_blame(part.rows, table, name, *source)
        unwritable += refused
        for chunk in chunks(placed, name, table.schema.id, *source, ChunkFile("")):
            ordered = dataclasses.replace(chunk, first_offset=number)
            buckets.setdefault((chunk.partition, chunk.bucket), []).append(ordered)
    if unwritable:
        return WrittenTable(unwritable=tuple(unwritable))
    results = [reduced(warehouse, plan, name, group) for group in buckets.values()]
    messages = tuple(message for result in results for message in result.messages)
    failures = [result.failure for result in results if result.failure is not None]
    unwritable += [record for result in results for record in result.unwritable]
    if failures or unwritable:
        table.delete_uncommitted(messages)
        if failures:
            raise failures[0]
        return WrittenTable(unwritable=tuple(unwritable))
    return WrittenTable(messages)


def change_rows(rows: pa.Table, kind: RowKind) -> pa.RecordBatch:
    """Rows of a table as change rows of one kind."""
    count = rows.num_rows
    rows = rows.append_column(VALUE_KIND, pa.array([int(kind)] * count, pa.int8()))
    rows = rows.append_column(OFFSET_COLUMN, pa.array(range(count), pa.int64()))
    (batch,) = rows.combine_chunks().to_batches()
    return batch


_LOG = logging.getLogger(__name__)

_LIMITS = (20_000, 256 << 20)
"""Approximate limits of one request, in records and bytes: they are held in memory."""

_REPORT_EVERY_S = 2.0


def replay(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Replay chosen records."""
    choice = _choice(arguments)
    alone, dry = bool(arguments.get("alone")), bool(arguments.get("dry_run"))
    work = _Replay(pipeline)
    if not dry:
        work.resolve_unfinished()
    rows = work.pick(choice)
    result = work.decode(rows, alone=alone, change=not dry)
    if dry:
        return _outcome(result, _positions(rows), dry=True)
    written = work.write(result)
    while unwritable := [record for files in written.values() for record in files.unwritable]:
        work.discard(written)
        all_unwritable, changes = (*result.plan.unwritable, *unwritable), result.changes
        result = work.decode(rows, alone=alone, change=True, unwritable=all_unwritable)
        result.changes[:0] = changes
        written = work.write(result)
    return work.apply(result, rows, written)


def drop_bad(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    """Remove chosen records from the quarantine table."""
    choice = Choice.of_values(arguments.get("choice") or {})
    work = _Replay(pipeline)
    work.resolve_unfinished()
    rows = read_quarantine(work.quarantine(), choice)
    if rows.num_rows:
        work.commit_marks(change_rows(rows, RowKind.DELETE))
    return Outcome(f"{rows.num_rows} records dropped", {"dropped": rows.num_rows})


def _choice(arguments: Mapping[str, Any]) -> Choice:
    choice = Choice.of_values(arguments.get("choice") or {})
    return choice if choice.state is not None else dataclasses.replace(choice, state=NEW)


class _Replay:
    """One request's work; the sink is idle."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._book = pipeline.book
        self._book.load()  # other processes may have changed tables: that may be the fix
        self._stream = pipeline.settings.pipeline.name
        self._user = replay_user(self._stream)
        self._now_ms = pipeline.clock.now_ms()
        self._ledger = ledger_file(
            self._book.file_io, pipeline.settings.sink.warehouse, self._stream
        )
        self._reported_s = time.monotonic()

    def quarantine(self) -> FileStoreTable:
        """The newest version of the quarantine table."""
        return self._book.table(self._book.quarantine).latest()

    def resolve_unfinished(self) -> None:
        """Mark the records that an earlier replay committed but did not mark."""
        ledger = self._ledger.read()
        if ledger is None:
            return
        positions: set[Position] = set()
        for name, identifier in ledger.identifiers.items():
            with contextlib.suppress(KeyError):  # a missing table has nothing
                table = self._book.table(name).latest()
                if newest_identifier(table, self._user) >= identifier:
                    positions |= set(ledger.records[name])
        if positions:
            offsets = {offset for _, _, offset in positions}
            self._set_states(
                read_quarantine(self.quarantine(), Choice(), offsets=offsets), positions, {}
            )
        _LOG.warning(
            "an unfinished replay is resolved",
            extra={"event": "replay_settled", "records": len(positions)},
        )
        self._ledger.delete()

    def pick(self, choice: Choice) -> pa.Table:
        """Chosen rows of the quarantine table, without those for parked tables."""
        parked = self._book.parking.parked()
        rows = read_quarantine(self.quarantine(), choice, but_for=parked, limits=_LIMITS)
        if (
            parked
            and not rows.num_rows
            and read_quarantine(self.quarantine(), choice, ("offset",)).num_rows
        ):
            raise InvalidRequestError(
                "the records are for parked tables",
                hint="`lakeward resume` them first: they read again what they missed",
                tables=", ".join(sorted(parked)),
            )
        keys = [(name, "ascending") for name in ("topic", "partition", "offset")]
        return rows.sort_by(keys)

    def decode(
        self,
        rows: pa.Table,
        *,
        alone: bool,
        change: bool,
        unwritable: Sequence[Unwritable] = (),
    ) -> ReplayOutcome:
        """Decode the records with the settings in force."""
        pipeline = self._pipeline
        records: list[QuarantinedRecord] = [kept_of(row) for row in rows.to_pylist()]
        return decode_for_replay(
            pipeline.settings,
            self._book,
            Bounds(pipeline.reached, self._book),
            records,
            now_ms=self._now_ms,
            alone=alone,
            change=change,
            read=self._read,
            waiting=self._new_positions(),
            unwritable=unwritable,
        )

    def _new_positions(self) -> set[Position]:
        columns = ("topic", "partition", "offset", "state")
        return set(_positions(read_quarantine(self.quarantine(), Choice(state=NEW), columns)))

    def _read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RawBatch]:
        source = self._pipeline.settings.source
        for raw in source_records(source, topic, partition, start, end):
            yield raw
            if self._pipeline.stopping():
                raise RetryableError(
                    "the daemon is stopping", hint="nothing was changed; replay again when it runs"
                )
            if len(raw) and time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
                self._reported_s = time.monotonic()
                position = f"{topic}-{partition}"
                self._pipeline.progress(f"reading {position}: {raw.offsets[-1]} of {start}..{end}")

    def write(self, decoded_records: ReplayOutcome) -> dict[str, WrittenTable]:
        """Write the rows of every table, without a commit."""
        written = {}
        for name in sorted(decoded_records.rows):
            count = sum(target == name for target in decoded_records.tables.values())
            self._pipeline.progress(f"writing {count} records to {name}")
            written[name] = self._write(name, self._book.table(name), decoded_records.rows[name])
        return written

    def discard(self, written: Mapping[str, WrittenTable]) -> None:
        """Delete files that will not be committed."""
        for name, files in written.items():
            self._book.table(name).delete_uncommitted(files.messages)

    def apply(
        self, decoded_records: ReplayOutcome, rows: pa.Table, written: Mapping[str, WrittenTable]
    ) -> Outcome:
        """Commit, mark, and return the outcome."""
        positions = _positions(rows)
        records: dict[str, list[Position]] = {name: [] for name in decoded_records.rows}
        for position, name in sorted(decoded_records.tables.items()):
            records[name].append(position)
        identifiers = {name: self._identifier(name) for name in sorted(decoded_records.rows)}
        if identifiers:
            self._ledger.write(Ledger(identifiers, {n: tuple(p) for n, p in records.items()}))
        for name, identifier in identifiers.items():
            self._commit(name, written[name], identifier)
        rowless = _without_rows(decoded_records, positions)
        if self._book.parking.parked():
            rowless = set()  # they may be for a parked table
        self._set_states(rows, {*decoded_records.tables, *rowless}, decoded_records.bad)
        if identifiers:
            self._ledger.delete()
        for table, change in decoded_records.changes:
            facts = {"event": "schema_change", "table": table, "change": change}
            _LOG.info("schema changed", extra=facts)
        return _outcome(decoded_records, positions, dry=False)

    def _write(self, name: str, table: FileStoreTable, parts: Sequence[PartRows]) -> WrittenTable:
        identifier = self._identifier(name)
        return write_rows(self._book.warehouse, table, name, parts, identifier=identifier)

    def _commit(self, name: str, written: WrittenTable, identifier: int) -> None:
        if written.messages:
            commit = self._book.table(name).new_commit(self._user)
            commit.commit(written.messages, identifier)

    def _identifier(self, name: str) -> int:
        """An identifier above all of the user's in the table, including expired snapshots."""
        newest = newest_identifier(self._book.table(name).latest(), self._user)
        return max(self._now_ms, newest + 1)

    def _set_states(
        self, rows: pa.Table, replayed: Collection[Position], bad: Mapping[Position, BadRecord]
    ) -> None:
        """Set the state of records, and the error of those that fail again."""
        now = datetime.datetime.fromtimestamp(self._now_ms / 1000, datetime.UTC)
        documents = []
        for position, row in zip(_positions(rows), rows.to_pylist(), strict=True):
            if position in replayed:
                documents.append(row | {"state": REPLAYED, "replayed_at": now})
            elif position in bad:
                error = bad[position]
                new = {"error_class": error.error_class, "error": error.error}
                documents.append(row | new | {"target": error.target or row["target"]})
        if documents:
            table = pa.Table.from_pylist(documents, schema=rows.schema)
            self.commit_marks(change_rows(table, RowKind.UPDATE_AFTER))

    def commit_marks(self, rows: pa.RecordBatch) -> None:
        """Commit change rows of the quarantine table."""
        name = self._book.quarantine
        written = self._write(name, self.quarantine(), [PartRows("", 0, rows)])
        for record in written.unwritable:
            raise InternalError("a row of the quarantine table cannot be written", why=record.why)
        self._commit(name, written, self._identifier(name))


def _positions(rows: pa.Table) -> list[Position]:
    names = ("topic", "partition", "offset")
    columns = [rows.column(name).to_pylist() for name in names]
    return list(zip(*columns, strict=True))


def _without_rows(decoded_records: ReplayOutcome, positions: Collection[Position]) -> set[Position]:
    """Valid records without rows: filtered out, or not routed to a table."""
    if decoded_records.deltas:
        return set()  # they wait for a schema change
    return (
        {*positions}
        - {*decoded_records.tables}
        - {*decoded_records.bad}
        - decoded_records.later
        - decoded_records.blocked
    )


def _outcome(
    decoded_records: ReplayOutcome, positions: Sequence[Position], *, dry: bool
) -> Outcome:
    tables = Counter(decoded_records.tables.values())
    classes = Counter(record.error_class for record in decoded_records.bad.values())
    rest = _without_rows(decoded_records, positions)
    by_table = ", ".join(f"{count} to {name}" for name, count in sorted(tables.items()))
    verb = "would be replayed" if dry else "replayed"
    text = f"{len(decoded_records.tables)} of {len(positions)} records {verb}"
    text += f" ({by_table})" if by_table else ""
    if decoded_records.bad:
        kinds = ", ".join(f"{count} {name}" for name, count in classes.most_common())
        text += f"; {len(decoded_records.bad)} fail again ({kinds})"
    if decoded_records.later:
        text += f"; {len(decoded_records.later)} are ahead of their table: the stream brings them"
    if decoded_records.blocked:
        text += f"; {len(decoded_records.blocked)} stay: a later record of their key is in the"
        text += " table and cannot be written again, so it would be overwritten"
    if decoded_records.deltas:
        waiting = ", ".join(sorted({delta.target for delta in decoded_records.deltas}))
        text += f"; the schema of {waiting} would be changed first"
    if rest:
        text += f"; {len(rest)} give no row now"
    result = {
        "chosen": len(positions),
        "replayed": len(decoded_records.tables),
        "tables": dict(tables),
        "bad": dict(classes),
        "blocked": len(decoded_records.blocked),
        "ahead": len(decoded_records.later),
        "without_rows": len(rest),
        "rows_written": 0 if dry else _row_count(decoded_records),
        "schema_changes": [list(change) for change in decoded_records.changes],
        "dry_run": dry,
    }
    return Outcome(text, result)


def _row_count(decoded_records: ReplayOutcome) -> int:
    return sum(part.rows.num_rows for parts in decoded_records.rows.values() for part in parts)
