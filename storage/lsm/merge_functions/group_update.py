# SPDX-License-Identifier: Apache-2.0
"""The partial-update merge engine with sequence groups.

Each group takes the rows that are not behind what it has seen of their key; columns outside of
groups take the last value that is not null. A first row that takes back starts its key with its
own values. Data plane: positions per column. Source: SEMANTICS.md §B.2.2 to §B.2.5.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.merge_functions.aggregators.contract import Aggregator, renumbered
from storage.lsm.merge_functions.applied import UNCHANGING, VALUE_PICKERS, Applied, aggregate
from storage.lsm.merge_functions.fold import fold_keys
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import (
    first_where,
    last_where,
    segment_ids,
    segment_lasts,
    take_or_null,
    valid_mask,
)
from storage.lsm.merge_functions.sequence_groups import SequenceGroup, Verdict
from storage.lsm.merge_functions.sequence_order import SequenceOrder

__all__ = ["GroupUpdate"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the keys that are folded, some of them obsolete ones left out.

    Attributes:
        at: position of each row in the folded batch; a first row that takes back is there twice,
            first as a base.
        starts: where keys begin.
        kinds: int8 per row.
        base: bool per row: it sets all columns to its values, whatever was there.
    """

    at: np.ndarray
    starts: np.ndarray
    kinds: np.ndarray
    base: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class GroupUpdate:
    """See the module.

    Attributes:
        key_names: key columns.
        groups: at least one; no column is in two of them.
        functions: aggregate functions of protected columns by name.
        ignoring: columns whose function passes over -U and -D rows.
        remove_on: ordering columns whose groups remove the row when they take a -D.
        ignore_delete: pass over -U and -D rows; files of older writers may hold some.
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    groups: tuple[SequenceGroup, ...]
    functions: Mapping[str, Aggregator]
    ignoring: frozenset[str] = frozenset()
    remove_on: tuple[str, ...] = ()
    ignore_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a function cannot take a row back, or its result does not fit.
        """
        lone = self._lone(batch) if self.lone_rows else None
        return fold_keys(batch, starts, self.key_names, self._fold, lone=lone)

    def _lone(self, batch: pa.RecordBatch) -> np.ndarray:
        if any(function.name not in UNCHANGING for function in self.functions.values()):
            return np.ones(batch.num_rows, dtype=bool)
        lone = retractions(batch.column(VALUE_KIND).to_numpy(zero_copy_only=False))
        for group in self.groups:  # what a group does not take stays null
            lone |= ~np.logical_or.reduce([valid_mask(batch.column(n)) for n in group.ordering])
        return lone

    def _fold(self, batch: pa.RecordBatch, starts: np.ndarray) -> list[pa.Array]:
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        retract = retractions(kinds)
        adds = last_where(~retract, starts, batch.num_rows)
        lasts = segment_lasts(starts, batch.num_rows)
        gone = adds < 0
        stamps = lasts
        rows = _all_rows(kinds, starts)
        obsolete = None
        if retract.any():
            rows = self._opened(rows, retract)
            removals = self._removals(batch, rows)
            if (removals >= 0).any():
                at = np.where(removals >= 0, rows.at[removals], -1)
                gone = gone | (at == lasts)
                sizes = lasts + 1 - starts
                obsolete = ~retract & (np.arange(batch.num_rows) < np.repeat(at, sizes))
                rows = _restarted(rows, removals)
            if self.ignore_delete:
                stamps = np.where(adds >= 0, adds, lasts)
        merged = np.where(gone, np.int8(RowKind.DELETE), np.int8(RowKind.INSERT))
        found = self._columns(batch, rows, starts, obsolete)
        names = batch.schema.names
        found[names.index(VALUE_KIND)] = pa.array(merged)
        stamp = batch.column(SEQUENCE_NUMBER).take(pa.array(stamps))
        found[names.index(SEQUENCE_NUMBER)] = stamp
        return found

    def _opened(self, rows: _Rows, retract: np.ndarray) -> _Rows:
        """With first rows that take back doubled: before they act they set all columns."""
        opening = np.zeros(len(retract), dtype=bool)
        opening[rows.starts] = retract[rows.starts]
        times = opening.astype(np.int64) + 1
        if self.ignore_delete:
            times = (opening | ~retract).astype(np.int64)
        at = np.repeat(rows.at, times)
        base = np.repeat(opening, times)
        base[1:] &= at[1:] != at[:-1]
        ids = segment_ids(rows.starts, len(retract))[at]
        fresh = np.ones(len(at), dtype=bool)
        np.not_equal(ids[1:], ids[:-1], out=fresh[1:])
        return _Rows(at, np.flatnonzero(fresh), rows.kinds[at], base)

    def _removals(self, batch: pa.RecordBatch, rows: _Rows) -> np.ndarray:
        """Position of the last row of each key that removes everything before it, or -1."""
        removed = np.full(len(rows.starts), -1, dtype=np.int64)
        listed = [group for group in self.groups if set(group.ordering) & set(self.remove_on)]
        deletes = (rows.kinds == RowKind.DELETE) & ~rows.base
        if not listed or not deletes.any():
            return removed
        names = [name for group in listed for name in group.ordering]
        open_keys = np.arange(len(rows.starts), dtype=np.int64)
        while len(open_keys):
            # the keys still open, each from its last known removal on
            begin = np.where(removed[open_keys] >= 0, removed[open_keys], rows.starts[open_keys])
            size = segment_lasts(rows.starts, len(rows.at))[open_keys] + 1 - begin
            starts = np.cumsum(size) - size
            place = np.arange(int(size.sum())) + np.repeat(begin - starts, size)
            base = rows.base[place]
            base[starts] |= removed[open_keys] >= 0
            part = batch.select(names).take(pa.array(rows.at[place]))
            hits = np.zeros(len(place), dtype=bool)
            for group in listed:
                hits |= group.verdict(part, starts, base).accepted
            hits &= deletes[place] & ~base
            pick = last_where if len(listed) == 1 else first_where
            found = pick(hits, starts, len(place))
            moved = found >= 0
            removed[open_keys[moved]] = place[found[moved]]
            open_keys = open_keys[moved] if len(listed) > 1 else open_keys[:0]
        return removed

    def _columns(
        self,
        batch: pa.RecordBatch,
        rows: _Rows,
        starts: np.ndarray,
        obsolete: np.ndarray | None,
    ) -> list[pa.Array]:
        """All columns.

        Args:
            batch: all rows of the keys.
            rows: those that take part.
            starts: where keys begin in the batch.
            obsolete: bool per row of the batch: it added to what was removed later.
        """
        count = len(rows.at)
        moved = count != batch.num_rows or bool(rows.base.any())
        retract = retractions(rows.kinds) & ~rows.base
        verdicts = self._verdicts(batch, rows, moved)
        lasts = segment_lasts(rows.starts, count)
        found = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            verdict = verdicts.get(name)
            if name in (SEQUENCE_NUMBER, VALUE_KIND):
                found.append(column)
                continue
            if name in self.functions and verdict is not None:
                started = None
                if obsolete is not None and self.functions[name].name in VALUE_PICKERS:
                    met = obsolete & self._touched(batch, name)
                    if self.functions[name].name != "first_value":
                        met &= valid_mask(column)
                    started = first_where(met, starts, batch.num_rows) >= 0
                found.append(self._aggregated(name, column, rows, retract, verdict, started))
                continue
            if verdict is not None:
                picked = last_where(verdict.accepted, rows.starts, count)
                if name not in self._ordering and retract.any():
                    picked = np.where((picked >= 0) & ~retract[picked], picked, -1)
            elif name in self.key_names:
                picked = lasts
            else:
                valid = valid_mask(column)[rows.at] if column.null_count else ~retract
                picked = last_where(valid & ~retract, rows.starts, count)
            found.append(take_or_null(column, np.where(picked >= 0, rows.at[picked], -1)))
        return found

    def _touched(self, batch: pa.RecordBatch, column: str) -> np.ndarray:
        """Which rows have an order in the group of a column: bool per row."""
        found = np.zeros(batch.num_rows, dtype=bool)
        for group in self.groups:
            if column in group.protected:
                for name in group.ordering:
                    found |= valid_mask(batch.column(name))
        return found

    @property
    def _ordering(self) -> frozenset[str]:
        return frozenset(name for group in self.groups for name in group.ordering)

    def _verdicts(self, batch: pa.RecordBatch, rows: _Rows, moved: bool) -> Mapping[str, Verdict]:
        """The verdict about each column that is in a group."""
        found: dict[str, Verdict] = {}
        for group in self.groups:
            part = batch.select(list(group.ordering))
            if moved:
                part = part.take(pa.array(rows.at))
            verdict = group.verdict(part, rows.starts, rows.base)
            found.update(dict.fromkeys((*group.ordering, *group.protected), verdict))
        return found

    def _aggregated(
        self,
        name: str,
        column: pa.Array,
        rows: _Rows,
        retract: np.ndarray,
        verdict: Verdict,
        started: np.ndarray | None,
    ) -> pa.Array:
        late = verdict.counts & ~verdict.accepted
        whole = Applied(rows.starts, len(rows.at), retract, rows.base, late, started)
        keys, part = whole.only(verdict.counts)
        values = column.take(pa.array(rows.at[verdict.counts]))
        with renumbered(keys):
            made = aggregate(
                self.functions[name], values, part, ignore_retract=name in self.ignoring
            )
        if len(keys) == len(rows.starts):
            return made
        place = np.full(len(rows.starts), -1, dtype=np.int64)
        place[keys] = np.arange(len(keys), dtype=np.int64)
        return take_or_null(made, place)


def _all_rows(kinds: np.ndarray, starts: np.ndarray) -> _Rows:
    rows = len(kinds)
    return _Rows(np.arange(rows, dtype=np.int64), starts, kinds, np.zeros(rows, dtype=bool))


def _restarted(rows: _Rows, removals: np.ndarray) -> _Rows:
    """The rows from the removal of each key on, which is their base."""
    count = len(rows.at)
    begin = np.where(removals >= 0, removals, rows.starts)
    sizes = segment_lasts(rows.starts, count) + 1 - rows.starts
    keep = np.arange(count) >= np.repeat(begin, sizes)
    base = rows.base.copy()
    base[removals[removals >= 0]] = True
    left = segment_lasts(rows.starts, count) + 1 - begin
    return _Rows(rows.at[keep], np.cumsum(left) - left, rows.kinds[keep], base[keep])
