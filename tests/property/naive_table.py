# SPDX-License-Identifier: Apache-2.0
"""The naive table: for every key the rows that were flushed, and what follows for readers.

Written from SEMANTICS.md §0, §A.3-§A.7, §B, §C.2-§C.6, §E and §G.3; rows of a key are merged by
`merge_model`. It knows nothing of files, levels, buckets or batches, only these facts about time:

* a commit merges the rows of a key that it brings, and puts the result behind the earlier ones;
* a reader merges those, a single one as it is (§0.4);
* a full compaction puts the merge in their place and forgets retractions (§D.6);
* tables that look up compact at every commit; where they hide what is not compacted (deletion
  vectors, first-row) readers see only what was compacted.

Real tables flush and compact when they like. Histories are drawn so that this cannot be seen
(`draw` calls them free), or run on tables that compact at those moments only (scheduled ones).
What readers may see of the moment otherwise, as in Java, and histories avoid therefore:

* a delete that a compaction dropped no longer hides rows with a smaller sequence;
* a row that takes back, merged first, leaves its values to a later partial row (§B.2.2), and
  removes nothing from an older run once rows follow it in its own run;
* partial-update: a row whose group fields are all null keeps the group's values while it is alone
  (golden case `partial_update_groups`); aggregation: `listagg` keeps an empty text while it is
  alone;
* functions that care for order (`first_value`, `listagg`, `last_non_null_value`) beside
  `sequence.field`: a run counts with its largest sequence;
* a key that left a partition and comes back in a later commit may get another bucket there (§G.3);
  a compaction that takes both commits tells of two buckets, in no order, where it is and was
  (`replay` takes these changes in any order that fits);
* `ignore-delete` drops also the deletes that move a key to another partition (§A.3, §G.3), so that
  the key is in both.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tests.property.merge_model import Change, Engine, Values, in_order

__all__ = ["ADDS", "NaiveTable", "Row", "order_of", "sorted_rows"]

Row = tuple[Any, ...]

ADDS = frozenset({"+I", "+U"})
_IGNORE_DELETE = tuple(
    f"{prefix}ignore-delete" for prefix in ("", "deduplicate.", "partial-update.", "first-row.")
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Kept:
    """A row with the number of its arrival."""

    kind: str
    values: Values
    number: int


@dataclasses.dataclass(slots=True)
class _Key:
    """Flushed rows of one key, oldest first; the first `settled` were compacted."""

    rows: list[_Kept] = dataclasses.field(default_factory=list)
    settled: int = 0


class NaiveTable:
    """What readers of a primary-key table must see.

    Args:
        columns: names in order.
        key: the primary key.
        partition: partition columns.
        options: of the table.
    """

    def __init__(
        self,
        columns: Sequence[str],
        key: Sequence[str],
        partition: Sequence[str],
        options: Mapping[str, str],
    ) -> None:
        self.columns = list(columns)
        self._key = tuple(key)
        self._partition = tuple(partition)
        self._options = dict(options)
        self._engine = Engine(self.columns, key, options)
        self.producer = options.get("changelog-producer", "none")
        vectors = options.get("deletion-vectors.enabled") == "true"
        self.engine = self._engine.engine
        self.looks_up = self.producer == "lookup" or vectors or self.engine == "first-row"
        self.hides = vectors or self.engine == "first-row"
        self.cross = not set(partition) <= set(key)
        self._ignored: set[str] = set()
        if any(options.get(name) == "true" for name in _IGNORE_DELETE):
            self._ignored = {"-U", "-D"}
        if options.get("ignore-update-before") == "true":
            self._ignored.add("-U")
        self._number = 0
        self._buffer: dict[Row, list[_Kept]] = {}
        self._keys: dict[Row, _Key] = {}
        self._homes: dict[Row, Row] = {}
        self._snapshots: dict[int, tuple[Row, ...]] = {}

    # ------------------------------------------------------------------------- writing

    def write(self, changes: Iterable[Sequence[Any]]) -> list[tuple[str, Row]]:
        """Buffer rows `(kind, value...)`.

        Returns:
            Those that were not filtered, with their kinds: what the `input` producer records.
        """
        taken = []
        for kind, *row in changes:
            values = dict(zip(self.columns, row, strict=True))
            column = self._options.get("rowkind.field")
            kind = kind if column is None else values[column]
            if kind in self._ignored:
                continue
            key = tuple(values[name] for name in self._key)
            self._buffer.setdefault(key, []).append(_Kept(kind, values, self._number))
            self._number += 1
            taken.append((kind, tuple(row)))
        return taken

    def discard(self) -> None:
        """Forget what was not flushed."""
        self._buffer.clear()

    def flush(self) -> None:
        """Merge what is buffered into one row per key.

        Raises:
            UnsupportedRetraction: a row takes back where the engine cannot; all is as before.
        """
        for rows in self._buffer.values():
            self._merged(rows)
        for key, rows in self._buffer.items():
            for row in rows:
                self._at_home(key, row.values)
            self._keys.setdefault(key, _Key()).rows.append(self._merged(rows))
        self._buffer.clear()

    def _at_home(self, key: Row, values: Values) -> None:
        """Engines that make one row of several leave it where the key came first (§G.3)."""
        if not self.cross:
            return
        home = self._homes.setdefault(key, tuple(values[name] for name in self._partition))
        if self.engine in ("partial-update", "aggregation"):
            values.update(zip(self._partition, home, strict=True))

    def compact(self) -> list[tuple[str, Row]]:
        """Merge all rows of every key into one, or none.

        Returns:
            The changes that the producers `lookup` and `full-compaction` record: `-U` directly
            before its `+U`.
        """
        changes: list[tuple[str, Row]] = []
        for state in self._keys.values():
            if state.settled == len(state.rows):
                continue
            before = self._seen(state.rows[: state.settled])
            kept = self._merged(state.rows, always=self.looks_up)
            after = kept.values if kept.kind in ADDS else None
            changes.extend(self._emitted(before, after, kept.kind))
            state.rows = [kept] if after is not None else []
            state.settled = len(state.rows)
        return changes

    def _emitted(
        self, before: Values | None, after: Values | None, kind: str
    ) -> list[tuple[str, Row]]:
        old = None if before is None else self._row(before)
        new = None if after is None else self._row(after)
        if old is None and new is None:
            return []
        if new is None:
            assert old is not None
            return [("-D", old)]
        if self.engine == "first-row":
            return [] if old is not None else [(kind, new)]
        if old is None:
            return [("+I", new)]
        ignored = self._options.get("changelog-producer.row-deduplicate-ignore-fields", "")
        places = [i for i, name in enumerate(self.columns) if name not in ignored.split(",")]
        same = all(old[place] == new[place] for place in places)
        if same and self._options.get("changelog-producer.row-deduplicate") == "true":
            return []
        return [("-U", old), ("+U", new)]

    def add_column(self, name: str) -> None:
        """A new column, null in all rows."""
        self.columns.append(name)
        self._engine = Engine(self.columns, self._key, self._options)
        for state in self._keys.values():
            for row in state.rows:
                row.values[name] = None

    # ------------------------------------------------------------------------- reading

    def rows(self, snapshot_id: int | None = None) -> list[Row]:
        """What a scan returns, sorted; of the newest state by default."""
        if snapshot_id is not None:
            return list(self._snapshots[snapshot_id])
        found = []
        for state in self._keys.values():
            rows = state.rows[: state.settled] if self.hides else state.rows
            seen = self._seen(rows)
            if seen is not None:
                found.append(self._row(seen))
        return sorted_rows(found)

    def publish(self, snapshot_id: int) -> None:
        """Remember the newest state as that of a snapshot."""
        assert snapshot_id not in self._snapshots
        self._snapshots[snapshot_id] = tuple(self.rows())

    def expire(self, earliest: int) -> None:
        """Forget the snapshots before `earliest`."""
        self._snapshots = {i: rows for i, rows in self._snapshots.items() if i >= earliest}

    @property
    def snapshots(self) -> Mapping[int, tuple[Row, ...]]:
        """The rows of the snapshots that can be read."""
        return MappingProxyType(self._snapshots)

    @property
    def pending(self) -> bool:
        """Whether there are rows that were not compacted."""
        return any(state.settled < len(state.rows) for state in self._keys.values())

    # ------------------------------------------------------------------------- merging

    def _merged(self, rows: Sequence[_Kept], *, always: bool = False) -> _Kept:
        """Rows of one key as one row, with the number of the last in merge order."""
        arrived = sorted(rows, key=lambda row: row.number)
        numbers = {id(row.values): row.number for row in arrived}
        changes: list[Change] = [(row.kind, row.values) for row in arrived]
        engine = self._engine
        ordered = in_order(changes, engine.sequence, descending=engine.descending)
        kind, values = engine.fold(ordered) if always else engine.merge(ordered)
        return _Kept(kind, dict(values), numbers[id(ordered[-1][1])])

    def _seen(self, rows: Sequence[_Kept]) -> Values | None:
        if not rows:
            return None
        merged = self._merged(rows)
        return merged.values if merged.kind in ADDS else None

    def _row(self, values: Values) -> Row:
        return tuple(values[name] for name in self.columns)


def order_of(row: Row) -> tuple[Any, ...]:
    """A sort key for rows that may hold nulls and values of any type."""
    return tuple((value is not None, str(type(value)), repr(value)) for value in row)


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order to compare them in."""
    return sorted(rows, key=order_of)
