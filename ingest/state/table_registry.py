# SPDX-License-Identifier: Apache-2.0
"""The driver's registry of the tables that a stream writes.

It has for each table the schema and snapshot to plan with, what the stream committed there, and the
source offsets of the next commit. It creates and alters tables and commits to them; the sink and
`ingest.schema` decide what to do.
"""

import dataclasses
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ingest.config.settings import WRITE_ONLY, Settings, passing_options
from ingest.decode.events import SchemaDelta
from ingest.decode.outcome import reason_text
from ingest.decode.schema_change_events import TableDdl
from ingest.errors import blames_record
from ingest.schema.new_tables import (
    CHANGES_OPTION,
    decided,
    history_schema,
    log_notes,
    mark_changes,
    missing_columns,
    quarantine_schema,
    require_own_table,
    with_note,
)
from ingest.schema.routing import (
    AnswerBook,
    Answers,
    AppliedChanges,
    Outcome,
    stop_error,
    watermark_of,
)
from ingest.schema.schema_draft import Decision, NewTable, Refusal
from ingest.schema.statements import Statements
from ingest.source.records import EPOCHS_OPTION, added_epochs
from ingest.state.ownership import (
    TABLE_FAULTS,
    Parking,
    epoch_property,
    lost_file,
    reason_of,
    require_epoch,
)
from ingest.state.stream_state import (
    POSITIONS_PROPERTY,
    OffsetMap,
    Span,
    StoredPositions,
    TableProgress,
    Warehouse,
    catalog_of,
    parsed,
    progress_of,
    progress_up_to,
    require_history,
    require_own,
)
from storage.clock import Clock
from storage.errors import (
    CorruptDataError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import SchemaChange, SetOption
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.commit import CommitResult
from storage.table.table import FileStoreTable

# Applies schema changes: what batches report is decided, carried out on the tables, and recorded.
#
# Deciding is `ingest.schema`'s business; here tables are created and altered, and answers are kept
# for shapes that no change covers.


_LOG = logging.getLogger(__name__)


class SchemaApplier:
    """See the module.

    Args:
        tables: where changes are made.
    """

    def __init__(self, settings: Settings, clock: Clock, tables: "TableRegistry") -> None:
        self._settings = settings
        self._clock = clock
        self._tables = tables
        self._stream = settings.pipeline.name
        self._answers = AnswerBook()
        self._statements = Statements.of(settings, clock)

    def use_settings(self, settings: Settings) -> None:
        """Replace the settings of later decisions."""
        if Statements.differ(self._settings, settings):
            self._statements.close()
            self._statements = Statements.of(settings, self._clock)
        self._settings = settings
        self._answers = AnswerBook()  # other rules may decide differently

    @property
    def _mode(self) -> str:
        return self._settings.pipeline.schema_change_behavior

    def apply(
        self,
        deltas: Sequence[SchemaDelta],
        *,
        now_ms: int,
        batch: int = -1,
        ddl: Sequence[TableDdl] = (),
    ) -> AppliedChanges:
        """Create and alter tables so that they cover the reported shapes; idempotent.

        What is not covered by a change is answered (`schema_answers`), or the table is parked.

        Args:
            deltas: of one batch.
            now_ms: time of new schemas [epoch ms].
            batch: its commit identifier.
            ddl: its statements.

        Raises:
            SchemaStopError: the settings forbid a change; then no table is altered.
        """
        for name in {delta.target for delta in deltas if delta.epoch_ms is not None}:
            self._begin_epochs(name, [delta for delta in deltas if delta.target == name])
        deltas = [delta for delta in deltas if delta.epoch_ms is None]
        by_target: dict[str, list[SchemaDelta]] = {}
        for delta in deltas:
            by_target.setdefault(delta.target, []).append(delta)
        statements = self._statements.about(deltas, ddl, self._tables.options())
        decisions = {
            name: self._decided(name, by_target.get(name, []), statements.get(name, ()), now_ms)
            for name in {*by_target, *statements}
        }
        for name in sorted(decisions):
            stop = decisions[name].stop
            if stop is not None:
                raise stop_error(name, stop)
        return self._all_done(
            {name: self._apply(name, decisions[name], batch) for name in sorted(decisions)}
        )

    def _all_done(self, done: Mapping[str, tuple[Decision, tuple[str, ...]]]) -> AppliedChanges:
        for name, (decision, _) in done.items():
            self._answers.take(
                name, decision.ignored, decision.fixed, changed=bool(decision.action)
            )
            if decision.parked:
                self._tables.park(name, decision.parked)
        return AppliedChanges(
            applied=tuple((name, text) for name, (_, texts) in done.items() for text in texts),
            refused={name: result.why for name, (result, _) in done.items() if not result.complete},
            verdicts=tuple(
                (name, verdict) for name, (result, _) in done.items() for verdict in result.verdicts
            ),
        )

    def current_answers(self) -> dict[str, Answers]:
        """Decisions about shapes that no schema covers, by table."""
        return self._answers.current()

    def lasting_answers(self) -> dict[str, Answers]:
        """Decisions that hold for the next batch, too."""
        return self._answers.lasting(self._tables.options())

    def _decided(
        self, name: str, deltas: Sequence[SchemaDelta], ddl: Sequence[TableDdl], now_ms: int
    ) -> Decision:
        """What to do for one table; one that cannot be named is refused like an invalid change."""
        try:
            return self._decide(name, deltas, ddl, now_ms)
        except InvalidRequestError as error:
            return Decision(Refusal(str(error)), (str(error),))
        except (CorruptDataError, NotFoundError) as error:
            return Decision((), parked=reason_of(error))
        except Exception as error:
            if not blames_record(error):
                raise
            _LOG.exception("unexpected error in a schema change", extra={"table": name})
            return Decision(Refusal(reason_text(error)), (reason_text(error),))

    def _decide(
        self, name: str, deltas: Sequence[SchemaDelta], ddl: Sequence[TableDdl], now_ms: int
    ) -> Decision:
        schema = self._tables.open_schema(name)
        return decided(self._settings, name, schema, deltas, ddl, now_ms)

    def _apply(self, name: str, decision: Decision, batch: int) -> tuple[Decision, tuple[str, ...]]:
        """Apply a decision; (the resulting decision, the changes applied)."""
        if isinstance(decision.action, Refusal):
            _LOG.warning(
                "schema change refused", extra={"table": name, "reason": decision.action.reason}
            )
            return decision, ()
        try:
            return decision, self._carried_out(name, decision, batch)
        except InvalidRequestError as error:
            _LOG.warning("table refused", extra={"table": name, "reason": str(error)})
            return decision.as_refused(str(error)), ()
        except (CorruptDataError, NotFoundError) as error:
            return dataclasses.replace(decision, parked=reason_of(error)), ()
        except Exception as error:
            if not blames_record(error):
                raise
            _LOG.exception("unexpected error in a schema change", extra={"table": name})
            return decision.as_refused(reason_text(error)), ()

    def _carried_out(self, name: str, decision: Decision, batch: int) -> tuple[str, ...]:
        verdicts = [verdict for verdict in decision.verdicts if verdict.outcome is Outcome.APPLIED]
        if isinstance(decision.action, NewTable):
            schema = decision.action.schema
            note = with_note({}, self._stream, batch, self._mode, verdicts)
            options = {**schema.options, CHANGES_OPTION: note}
            self._tables.create(name, dataclasses.replace(schema, options=options))
            log_notes(name, decision)
            return ("create table",)
        if isinstance(decision.action, Refusal) or not decision.action:
            return ()
        changes = [*decision.action]
        if verdicts:
            current = self._tables.options()[name]
            note = with_note(current, self._stream, batch, self._mode, verdicts)
            changes.append(SetOption(CHANGES_OPTION, note))
        self._tables.alter(name, changes)
        return tuple(verdict.text for verdict in verdicts) or tuple(map(str, decision.action))

    def _begin_epochs(self, name: str, deltas: Sequence[SchemaDelta]) -> None:
        """Record the moments at which sources of a table restarted their positions; idempotent.

        A table that cannot take the note is parked: its order would be unknown.
        """
        epochs = [(d.source.server, d.epoch_ms) for d in deltas if d.epoch_ms is not None]
        schema = self._tables.open_schema(name) if name in self._tables.options() else None
        text = None if schema is None or not epochs else added_epochs(schema, epochs)
        if text is None:
            return
        _LOG.warning(
            "the source restarted its positions: a new epoch begins",
            extra={"table": name, "epochs": text},
        )
        try:
            self._tables.alter(name, (SetOption(EPOCHS_OPTION, text),))
        except TABLE_FAULTS as error:
            self._tables.park(name, reason_of(error))


_REFRESH_ALL_S = 60.0
"""How often tables that the stream did not write lately are refreshed [s]."""


@dataclasses.dataclass(slots=True)
class _Entry:
    table: FileStoreTable
    snapshot_id: int
    progress: TableProgress | None


class TableRegistry:
    """See the module. Thread-safe for concurrent commits of different tables.

    Attributes:
        catalog: of the warehouse.
        parking: its parked tables.
        schemas: applies schema changes to the tables.
        floors: offsets below which rows of a table are to be dropped (`stream_position`).
        bad_floors: the same for bad records of tables that are parked or catch up.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.warehouse = Warehouse.of(settings.sink)
        self.quarantine = settings.bad_records.table
        self.settings = settings
        self._stream = settings.pipeline.name
        self._clock = clock
        self.catalog = catalog_of(self.warehouse)
        self.file_io = self.catalog.file_io
        self._entries: dict[str, _Entry] = {}
        self.floors: Mapping[str, OffsetMap] = {}
        self.bad_floors: Mapping[str, OffsetMap] = {}
        self.parking = Parking(self.file_io, settings.sink.warehouse, self._stream)
        self._to_park: dict[str, str] = {}
        self.schemas = SchemaApplier(settings, clock, self)
        self._lock = threading.Lock()
        self._touched_tables: set[str] = set()
        self._refreshed_s = clock.monotonic_s()
        self._refresh_turn = 0
        self._epoch = 0
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="tables")

    @property
    def history(self) -> str:
        """The table of schema changes."""
        return self.settings.history_table

    def load(self, *, create: bool = True) -> None:
        """Open every table of the warehouse that could be a target, and the quarantine table.

        Args:
            create: whether the quarantine table is created if it is missing.
        """
        self.parking.load()
        if create:
            self._create_quarantine()
            self._check_history()
        names = [
            f"{database}.{table}"
            for database in self.catalog.list_databases()
            for table in self.catalog.list_tables(database)
        ]
        for name, entry in zip(names, self._pool.map(self._try_open, names), strict=True):
            if entry is not None:
                self._entries[name] = entry

    @property
    def mode(self) -> str:
        """`pipeline.schema.change.behavior`."""
        return self.settings.pipeline.schema_change_behavior

    def options(self) -> dict[str, Mapping[str, str]]:
        """Options of every table that the stream knows."""
        return {name: entry.table.schema.options for name, entry in self._entries.items()}

    def provide(self, name: str, schema: TableSchema) -> FileStoreTable:
        """A table of Lakeward's own, created at its first use."""
        if name not in self._entries:
            if not self.catalog.exists(name):
                self._create(name, schema)
            self._entries[name] = self._open(name)
        return self.table(name)

    def _create_quarantine(self) -> None:
        schema = quarantine_schema(self._clock.now_ms())
        if not self.catalog.exists(self.quarantine):
            self._create(self.quarantine, schema)
        table = self.catalog.table(self.quarantine)
        require_own_table(self.quarantine, table.schema, schema)
        edits: list[SchemaChange] = [
            *missing_columns(table.schema),
            *mark_changes(table.schema, schema),
        ]
        if edits:
            table.alter(edits)

    def _check_history(self) -> None:
        """Fail at the start if the history table could not be written."""
        if not self.catalog.exists(self.history):
            return
        table, schema = self.catalog.table(self.history), history_schema(self._clock.now_ms())
        require_own_table(self.history, table.schema, schema)
        if edits := mark_changes(table.schema, schema):
            table.alter(edits)

    def _create(self, name: str, schema: TableSchema) -> None:
        self.catalog.create_database(name.partition(".")[0], ignore_if_exists=True)
        self.catalog.create_table(name, schema, ignore_if_exists=True)

    def create(self, name: str, schema: TableSchema) -> None:
        """Create a table, unless it exists, and open it."""
        self._create(name, schema)
        self._entries[name] = self._open(name)

    def open_schema(self, name: str) -> TableSchema | None:
        """The schema of a table, which is opened if it exists; None = it does not."""
        if name not in self._entries and self.catalog.exists(name):
            self._entries[name] = self._open(name)
        entry = self._entries.get(name)
        return None if entry is None else entry.table.schema

    def alter(self, name: str, changes: Sequence[SchemaChange]) -> None:
        """Alter an open table."""
        entry = self._entries[name]
        entry.table = entry.table.alter(changes)

    def _open(self, name: str) -> _Entry:
        table = self.catalog.table(name)
        if passing := passing_options(self.settings, name, table.schema.options):
            table = table.with_options(passing)
        latest = table.latest_snapshot()
        progress = progress_up_to(latest, table, self._stream)
        return _Entry(table, 0 if latest is None else latest.id, progress)

    def _try_open(self, name: str) -> _Entry | None:
        """An entry, or None for a table that cannot be opened.

        It may not be a target of this stream. Events for it are quarantined if this version cannot
        describe the table, and the table is parked when it is damaged.
        """
        try:
            return self._open(name)
        except (
            UnsupportedFeatureError,
            CorruptDataError,
            NotFoundError,
            InvalidRequestError,
        ) as error:
            if name == self.quarantine:
                raise
            _LOG.warning(
                "table cannot be opened, skipped", extra={"table": name, "reason": str(error)}
            )
            return None

    def use_settings(self, settings: Settings) -> None:
        """Use other settings; warehouse, stream and quarantine table are the same."""
        self.settings = settings
        self.schemas.use_settings(settings)
        for name, entry in self._entries.items():
            try:
                entry.table = self._open(name).table
            except TABLE_FAULTS as error:
                self.park(name, reason_of(error))

    def use_epoch(self, epoch: int) -> None:
        """Commit with this owner's epoch from now on (`ingest.state.ownership`)."""
        self._epoch = epoch

    def park(self, name: str, reason: str) -> None:
        """Park a table in the batch that is being worked on.

        Its results of this batch are discarded and the other tables commit; it misses the batch
        from its start. May be called by any thread until the batch's commits begin.

        Raises:
            InvalidRequestError: it is the quarantine table, without which records would be lost.
        """
        if name == self.quarantine:
            raise InvalidRequestError("the quarantine table cannot be parked", table=name)
        with self._lock:
            self._to_park.setdefault(name, reason)

    def require(self, names: Iterable[str]) -> None:
        """Verify that tables can be written again; a missing one can be created.

        Raises:
            LakewardError: a table cannot be opened.
        """
        for name in names:
            if self.catalog.exists(name):
                self._entries[name] = self._open(name)

    def to_park(self) -> set[str]:
        """Tables that `park` named and that are not parked yet."""
        with self._lock:
            return set(self._to_park)

    def take_to_park(self) -> dict[str, str]:
        """Tables that `park` named since the last call, with the reasons."""
        with self._lock:
            reasons, self._to_park = self._to_park, {}
        return reasons

    def fault_of(self, name: str, error: BaseException) -> BaseException:
        """An error of a commit; a missing file that the table needs is the table's fault."""
        if isinstance(error, FileNotFoundError):
            return lost_file(self._entries[name].table, error) or error
        return error

    def answers(self) -> bool:
        """Whether the warehouse answers: then a failure is a table's, not the store's."""
        try:
            self._entries[self.quarantine].table.latest().snapshots.latest()
        except (LakewardError, OSError):
            return False
        return True

    def table(self, name: str) -> FileStoreTable:
        """An open table."""
        return self._entries[name].table

    def progresses(self) -> dict[str, TableProgress]:
        """What the stream committed, for the tables it ever wrote."""
        # other threads read, too, while a batch creates tables
        entries = list(self._entries.items())
        found = {name: entry.progress for name, entry in entries if entry.progress is not None}
        return {name: self._of_present_topics(progress) for name, progress in found.items()}

    def _of_present_topics(self, progress: TableProgress) -> TableProgress:
        offsets = self.parking.of_present_topics(progress.offsets, progress.identifier)
        same = offsets is progress.offsets
        return progress if same else dataclasses.replace(progress, offsets=offsets)

    def schema_ids(self) -> dict[str, int]:
        """Schema of every table to plan the next run with; parked tables are not planned."""
        parked = self.parking.parked()
        return {
            name: entry.table.schema.id
            for name, entry in self._entries.items()
            if name not in parked
        }

    def write_only(self) -> dict[str, bool]:
        """Tables that the stream writes with another `write-only` than their own."""
        tables = ((name, entry.table.dynamic_options) for name, entry in self._entries.items())
        return {name: extra[WRITE_ONLY] == "true" for name, extra in tables if WRITE_ONLY in extra}

    def snapshot_id(self, name: str) -> int:
        """The newest snapshot that this stream made or found; 0 = none."""
        return self._entries[name].snapshot_id

    def refresh(self) -> None:
        """Reload schemas that others changed: of recently written tables, within a minute of all.

        The others take turns, so that no batch waits for the schemas of thousands of tables.
        """
        tables = list(self._entries)
        now = self._clock.monotonic_s()
        elapsed = min(1.0, (now - self._refreshed_s) / _REFRESH_ALL_S)
        count = int(elapsed * len(tables))
        if elapsed == 1.0:
            self._refreshed_s = now
        elif count:
            self._refreshed_s += _REFRESH_ALL_S * count / len(tables)
        turns = range(self._refresh_turn, self._refresh_turn + count)
        self._refresh_turn += count
        due = [tables[turn % len(tables)] for turn in turns]
        names = list(dict.fromkeys([*self._touched_tables, *due]))
        self._touched_tables.clear()
        for name, table in zip(names, self._pool.map(self._reopen, names), strict=True):
            self._entries[name].table = table

    def _reopen(self, name: str) -> FileStoreTable:
        table = self._entries[name].table
        try:
            return table.latest()
        except TABLE_FAULTS as error:
            if name == self.quarantine:
                raise
            self.park(name, reason_of(error))
            return table

    def committed(self, identifier: int) -> tuple[str, ...]:
        """Tables in which the stream has this identifier (or a later one) already."""
        return tuple(
            name
            for name, progress in self.progresses().items()
            if progress.identifier >= identifier
        )

    def recorded_span(self, name: str) -> dict[str, dict[str, tuple[int, int]]]:
        """Source ranges of the stream's newest commit in a table."""
        progress = self._entries[name].progress
        return {} if progress is None else progress.span

    def offsets(self, name: str) -> OffsetMap:
        """The table's cumulative source offsets; none of a table that does not exist yet."""
        entry = self._entries.get(name)
        if entry is None or entry.progress is None:
            return {}
        return self._of_present_topics(entry.progress).offsets

    def positions(self) -> dict[str, StoredPositions]:
        """Highest source positions of the tables that are in the order of the source."""
        progresses = self.progresses().items()
        return {name: progress.positions for name, progress in progresses if progress.positions}

    def commit(
        self,
        name: str,
        messages: Sequence[CommitMessage],
        identifier: int,
        properties: Mapping[str, str],
        offsets: OffsetMap,
        span: Span,
        *,
        event_time_ms: int | None = None,
    ) -> CommitResult:
        """Commit one table's share of a batch and refresh its entry."""
        entry = self._entries[name]
        commit = entry.table.new_commit(self._stream)
        history = [offsets] if entry.progress is None else [entry.progress.offsets, offsets]

        def require(latest: Snapshot | None) -> None:
            snapshot_id = entry.snapshot_id
            require_epoch(latest, entry.table, self._stream, self._epoch, seen_snapshot=snapshot_id)
            require_history(latest, entry.table, name, self._stream, history)

        result = commit.commit(
            messages,
            identifier,
            properties={**properties, **epoch_property(self._stream, self._epoch)},
            watermark=watermark_of(self.settings, name, event_time_ms),
            before_publish=require,
        )
        ranges = {t: dict(p) for t, p in span.items() if t in offsets}
        if result.already_committed:
            require_own(progress_of(entry.table, self._stream), name, identifier, ranges)
        newest = result.compact_snapshot_id or result.append_snapshot_id
        with self._lock:
            self._touched_tables.add(name)
            if newest is not None:
                entry.snapshot_id = newest
                positions = parsed(properties.get(POSITIONS_PROPERTY + self._stream), newest)
                entry.progress = TableProgress(identifier, offsets, ranges, newest, positions)
        return result

    def discard(self, name: str, messages: Sequence[CommitMessage]) -> None:
        """Delete the files of messages that will not be committed."""
        entry = self._entries[name]
        entry.table.delete_uncommitted(messages)
