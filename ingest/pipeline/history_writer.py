# SPDX-License-Identifier: Apache-2.0
"""Writes the history of schema changes (`schema_history`) at the driver, with each batch.

Crash by crash: before a table is altered, the replay decides the same again; after it, the altered
table's options tell of the change until the history has a commit of that batch or a later one;
after the history's commit, the replay finds it and writes nothing.
"""

from collections.abc import Sequence

from ingest.pipeline.plan import BatchPlan
from ingest.schema.schema_history import HistoryEntry, history_rows, history_schema, noted
from ingest.schema.schema_modes import Outcome, Verdict
from ingest.state.stream_state import Span, commit_properties
from ingest.state.table_registry import TableBook

__all__ = ["HistoryWriter"]


class HistoryWriter:
    """One per process.

    Args:
        book: the stream's tables.
        stream: its name.
    """

    def __init__(self, book: TableBook, stream: str) -> None:
        self._book = book
        self._stream = stream
        self._told: set[tuple[str, str]] = set()

    def untold(
        self, plan: BatchPlan, verdicts: Sequence[tuple[str, Verdict]]
    ) -> list[HistoryEntry]:
        """What the history does not have yet: changes of this batch, and noted ones of a lost one.

        What was not made is told once in the life of the process.

        Args:
            plan: of the batch.
            verdicts: (table, change) of the batch.
        """
        progress = self._book.progresses().get(self._book.history)
        told = -1 if progress is None else progress.identifier
        if told >= plan.identifier:
            return []
        found: dict[tuple[str, int, str], HistoryEntry] = {}
        for name, options in self._book.options().items():
            for entry in noted(name, options, self._stream):
                if entry.batch > told:
                    found[name, entry.batch, entry.change] = entry
        for name, verdict in verdicts:
            entry = HistoryEntry(name, plan.identifier, self._book.mode, verdict)
            if verdict.outcome is not Outcome.APPLIED and (name, entry.change) not in self._told:
                found[name, entry.batch, entry.change] = entry
        return [found[key] for key in sorted(found)]

    def write(self, plan: BatchPlan, entries: Sequence[HistoryEntry], span: Span) -> None:
        """Commit entries of `untold`.

        Args:
            plan: of the batch.
            entries: at least one.
            span: ranges of the batch.
        """
        book, name = self._book, self._book.history
        table = book.provide(name, history_schema(plan.time_ms))
        topics = {entry.verdict.topic for entry in entries} & span.keys()
        properties, offsets = commit_properties(self._stream, book.offsets(name), span, topics)
        with table.new_write(self._stream) as write:
            write.write(history_rows(entries, self._stream, plan.time_ms))
            messages = write.prepare_commit(plan.identifier)
        book.commit(name, messages, plan.identifier, properties, offsets, span)
        self._told.update((each.table, each.change) for each in entries)
