# SPDX-License-Identifier: Apache-2.0
"""Readers of the changelog: one that begins with an empty table, others that come later."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from changelog.stream_scan import StreamScan
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog
from tests.conformance.values import change_rows
from tests.property.histories import History
from tests.property.naive_table import ADDS, NaiveTable, Row, order_of, sorted_rows

__all__ = ["Broken", "Replay", "require_equal"]

_STREAMS = 2
"""Streams that follow a table at once."""


class Broken(AssertionError):
    """A law does not hold."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(text)
        self.law = law


def require_equal(law: str, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Compare two sequences; tells what is surplus and what is missing."""
    if found == wanted:
        return
    surplus = list((Counter(found) - Counter(wanted)).elements())
    missing = list((Counter(wanted) - Counter(found)).elements())
    raise Broken(law, f"there is {surplus or 'nothing'} for {missing or 'nothing'}")


class Replay:
    """What readers of the changelog know, and what may come next."""

    def __init__(self, model: NaiveTable, history: History) -> None:
        self._model = model
        self._exact = history.exact
        options = history.options
        names = [name for name, _ in history.columns]
        key = dict.fromkeys([*history.partition, *history.key])
        self._places = [names.index(name) for name in key]
        self._rows: dict[Row, Row] = {}
        self._streams: list[tuple[StreamScan, dict[Row, Row]]] = []
        producer = model.producer
        self._sequence = "sequence.field" in options
        ignored = options.get("changelog-producer.row-deduplicate-ignore-fields", "").split(",")
        deduplicates = options.get("changelog-producer.row-deduplicate") == "true"
        self._ignored = {i for i, name in enumerate(names) if deduplicates and name in ignored}
        self._diffs = producer in ("lookup", "full-compaction")
        plain = model.engine == "deduplicate" and not self._sequence
        self._follows = producer in ("none", "input") and plain
        self._unordered = model.cross
        self._strays = model.cross and self._diffs and not _prompt(history)

    def widen(self) -> None:
        """All rows have one more column."""
        for rows in (self._rows, *(rows for _, rows in self._streams)):
            rows.update({key: (*row, None) for key, row in rows.items()})

    def begin_stream(self, table: FileStoreTable) -> None:
        """One more reader, which begins with the whole state of the table as it is now."""
        if len(self._streams) == _STREAMS or table.snapshots.latest_id() is None:
            return
        scan = _stream(table)
        batch = scan.next_batch()
        if batch is None or not scan.last_starting:
            raise Broken("stream", "it does not begin with the state of the table")
        rows: dict[Row, Row] = {}
        for change in change_rows(batch, table.schema.fields):
            key = self._key(change[1:])
            if change[0] != "+I" or key in rows:
                raise Broken("stream", f"it begins with {change} and there was {rows.get(key)}")
            rows[key] = tuple(change[1:])
        self._streams.append((scan, rows))

    def reopen(self, table: FileStoreTable) -> None:
        """Streams go on in another process, or with another schema."""
        going_on = []
        for scan, rows in self._streams:
            other = _stream(table)
            other.restore(scan.checkpoint())
            going_on.append((other, rows))
        self._streams = going_on

    def commit(
        self,
        table: FileStoreTable,
        before: int,
        taken: Sequence[tuple[str, Row]],
        changes: Sequence[tuple[str, Row]],
        *,
        full: bool,
    ) -> None:
        """Read what the snapshots after `before` brought, and compare.

        Args:
            table: at its newest.
            before: newest snapshot before the commit.
            taken: rows that were written.
            changes: what a producer of differences is to record.
            full: whether everything was compacted.
        """
        found = [
            (change[0], tuple(change[1:]))
            for snapshot_id in range(before + 1, (table.snapshots.latest_id() or 0) + 1)
            for change in change_rows(
                read_snapshot_changelog(table, snapshot_id), table.schema.fields
            )
        ]
        producer = self._model.producer
        if producer == "input" and not self._unordered:
            require_equal("input changelog", _in_order(found), _in_order(taken))
        if self._exact and self._diffs:
            require_equal("changelog", _in_order(found), _in_order(changes))
        settled = full if producer == "full-compaction" else not self._model.pending
        if not (self._diffs or self._follows):
            return
        self._apply(found, self._rows)
        for scan, rows in self._streams:
            while (batch := scan.next_batch()) is not None:
                changed = change_rows(batch, table.schema.fields)
                self._apply([(change[0], tuple(change[1:])) for change in changed], rows)
        if settled or (self._follows and not self._model.hides):
            self._compare("replay", self._rows)
            for _, rows in self._streams:
                self._compare("stream", rows)

    def _compare(self, law: str, told: dict[Row, Row]) -> None:
        rows = sorted_rows(map(self._masked, told.values()))
        require_equal(law, rows, sorted_rows(map(self._masked, self._model.rows())))

    def _key(self, row: Sequence[Any]) -> Row:
        return tuple(row[place] for place in self._places)

    def _masked(self, row: Row) -> Row:
        return tuple(None if i in self._ignored else value for i, value in enumerate(row))

    def _apply(self, changes: Sequence[tuple[str, Row]], rows: dict[Row, Row]) -> None:
        """Take changes in their order; where keys stray, those last that do not fit at first.

        A key that left a partition may come back to another bucket of it in a later commit, as in
        Java. One compaction then tells both at once, and buckets have no order.
        """
        pending: dict[Row, Row] = {}
        late: list[tuple[str, Row]] = []
        for kind, row in changes:
            if self._strays and self._misfit(kind, row, rows, pending):
                late.append((kind, row))
            else:
                self._take(kind, row, rows, pending)
        for kind, row in late:
            self._take(kind, row, rows, pending)
        if pending:
            raise Broken("replay", f"-U without +U: {list(pending.values())}")

    def _take(self, kind: str, row: Row, rows: dict[Row, Row], pending: dict[Row, Row]) -> None:
        misfit = self._misfit(kind, row, rows, pending) if self._diffs else None
        if misfit is not None:
            raise Broken("replay", misfit)
        key = self._key(row)
        if kind == "-U" and self._diffs:
            pending[key] = row
        elif kind == "+U":
            pending.pop(key, None)
        if kind in ADDS:
            rows[key] = row
        else:
            rows.pop(key, None)

    def _misfit(
        self, kind: str, row: Row, rows: Mapping[Row, Row], pending: Mapping[Row, Row]
    ) -> str | None:
        """Why a change cannot follow what is known."""
        key = self._key(row)
        there = rows.get(key)
        if kind in ("-U", "-D"):
            if there is None or self._masked(there) != self._masked(row):
                return f"{kind} {row} and there was {there}"
        elif kind == "+U" and self._model.engine != "first-row":
            if key not in pending:
                return f"+U {row} without -U"
        elif there is not None:
            return f"{kind} {row} and there was {there}"
        return None


def _prompt(history: History) -> bool:
    """Whether the changes of a commit are told by the compaction of the same commit."""
    looks_up = history.options.get("changelog-producer") == "lookup"
    writes = [step for step in history.steps if step["op"] == "write"]
    lags = history.options.get("write-only") == "true" or not history.waits
    return looks_up and not lags and all(step["compaction"] for step in writes)


def _stream(table: FileStoreTable) -> StreamScan:
    return StreamScan(table.with_options({"scan.mode": "latest-full"}))


def _in_order(changes: Sequence[tuple[str, Row]]) -> list[tuple[str, Row]]:
    return sorted(changes, key=lambda change: (change[0], order_of(change[1])))
