# SPDX-License-Identifier: Apache-2.0
"""Write the history of schema changes (`schema_history`) on the driver, with each batch.

Crash safety: before a table is altered, the replay decides the same again; after it, the options of
the altered table record the change until the history has a commit of that batch or a later one;
after the commit of the history, the replay finds it and writes nothing.
"""

from collections.abc import Sequence

from ingest.pipeline.plan import BatchPlan
from ingest.schema.own_tables import HistoryEntry, history_rows, history_schema, noted
from ingest.schema.schema_modes import Outcome, Verdict
from ingest.state.stream_state import Span, commit_properties
from ingest.state.table_registry import TableRegistry

__all__ = ["HistoryWriter"]


class HistoryWriter:
    """Writer of the history; one per process.

    Args:
        book: tables of the stream.
        stream: name of the stream.
    """

    def __init__(self, book: TableRegistry, stream: str) -> None:
        self._book = book
        self._stream = stream
        self._recorded: set[tuple[str, str]] = set()

    def unrecorded(
        self, plan: BatchPlan, verdicts: Sequence[tuple[str, Verdict]]
    ) -> list[HistoryEntry]:
        """Return changes that the history lacks: of this batch, and recorded in options of tables.

        Changes that were not applied are recorded once per process.

        Args:
            plan: plan of the batch.
            verdicts: (table, change) of the batch.
        """
        progress = self._book.progresses().get(self._book.history)
        last_batch = -1 if progress is None else progress.identifier
        if last_batch >= plan.identifier:
            return []
        entries: dict[tuple[str, int, str], HistoryEntry] = {}
        for name, options in self._book.options().items():
            for entry in noted(name, options, self._stream):
                if entry.batch > last_batch:
                    entries[name, entry.batch, entry.change] = entry
        for name, verdict in verdicts:
            entry = HistoryEntry(name, plan.identifier, self._book.mode, verdict)
            applied = verdict.outcome is Outcome.APPLIED
            if not applied and (name, entry.change) not in self._recorded:
                entries[name, entry.batch, entry.change] = entry
        return [entries[key] for key in sorted(entries)]

    def write(self, plan: BatchPlan, entries: Sequence[HistoryEntry], span: Span) -> None:
        """Commit entries of `unrecorded`.

        Args:
            plan: plan of the batch.
            entries: at least one.
            span: offset ranges of the batch.
        """
        book, name = self._book, self._book.history
        table = book.provide(name, history_schema(plan.time_ms))
        topics = {entry.verdict.topic for entry in entries} & span.keys()
        properties, offsets = commit_properties(self._stream, book.offsets(name), span, topics)
        with table.new_write(self._stream) as write:
            write.write(history_rows(entries, self._stream, plan.time_ms))
            messages = write.prepare_commit(plan.identifier)
        book.commit(name, messages, plan.identifier, properties, offsets, span)
        self._recorded.update((entry.table, entry.change) for entry in entries)
