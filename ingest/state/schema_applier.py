# SPDX-License-Identifier: Apache-2.0
"""Applies schema changes: what batches report is decided, carried out on the tables, and recorded.

Deciding is `ingest.schema`'s business; here tables are created and altered, and answers are kept
for shapes that no change covers.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingest.config.settings import Settings
from ingest.decode.events import SchemaDelta
from ingest.decode.isolation import reason_text
from ingest.decode.schema_change_events import TableDdl
from ingest.errors import blames_record
from ingest.schema.new_tables import decided, log_notes
from ingest.schema.own_tables import CHANGES_OPTION, with_note
from ingest.schema.schema_modes import AnswerBook, Answers, AppliedChanges, Outcome, stop_error
from ingest.schema.schema_sync import Decision, NewTable, Refusal
from ingest.schema.statements import Statements
from ingest.source.position.ordered_tables import EPOCHS_OPTION, added_epochs
from ingest.state.table_faults import TABLE_FAULTS, reason_of
from storage.clock import Clock
from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.format.metadata.schema_changes import SetOption

if TYPE_CHECKING:  # which creates the applier
    from ingest.state.table_registry import TableRegistry

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
