# SPDX-License-Identifier: Apache-2.0
"""Merging sorted runs over record batches, by key frontier.

Owns the memory bound of a merge, and the order of the rows of one key (SEMANTICS.md §A.7): sequence
fields, then the sequence number, then retractions before additions, then arrival. Knows nothing of
files and levels. Data plane: no Python object per row.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from storage.errors import CorruptDataError
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND
from storage.lsm.key_order import KeyGroups, key_at, lower_bound, sort_and_group
from storage.lsm.merge_functions import MergeFunction, RowPicker
from storage.lsm.merge_functions.segments import (
    SequenceOrder,
    naming_key,
    numbers_in,
    retractions,
    segment_lasts,
)

MERGE_WINDOW_BYTES = 64 << 20
"""Default memory of one merge: large enough that a window of 20 runs still holds batches of 3 MB,
small enough that eight of them fit a 1 GB worker with what sorting and gathering add (x 2)."""


def merge_runs(
    runs: Sequence[Iterator[pa.RecordBatch]],
    key_names: Sequence[str],
    function: MergeFunction,
    *,
    window_bytes: int = MERGE_WINDOW_BYTES,
    drop_retractions: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Merge sorted runs into one sorted stream with each key at most once.

    Args:
        runs: as for `complete_windows`.
        key_names: key columns in key order.
        function: reduces the rows of each key.
        window_bytes: as for `complete_windows` [bytes].
        drop_retractions: leave out keys whose result is -U or -D.

    Yields:
        Non-empty KeyValueBatches, strictly ascending by key across batch borders.

    Raises:
        CorruptDataError: a run has descending keys from one batch to the next.

    Cost: O(n log n) in a window; one gather per column. Windows in which only one run has rows
    are passed on without sorting.
    """
    for batches in complete_windows(runs, key_names, window_bytes=window_bytes):
        merged = merge_rows(batches, key_names, function, drop_retractions=drop_retractions)
        if merged.num_rows:
            yield merged


def complete_windows(
    runs: Sequence[Iterator[pa.RecordBatch]],
    key_names: Sequence[str],
    *,
    window_bytes: int = MERGE_WINDOW_BYTES,
) -> Iterator[list[pa.RecordBatch]]:
    """Cut sorted runs into windows, so that all rows of a key are in one of them.

    A window of batches is read from every run. The frontier is the smallest last key among the
    runs that may have more; all rows below it are complete, so they are emitted together, and
    the rest waits. A key may continue in the next batch of its run.

    Args:
        runs: KeyValueBatches sorted by (key, sequence number) each, all of one Arrow schema, which
            may have further columns. Merging is fastest when the runs are given oldest first; any
            order is right.
        key_names: key columns in key order.
        window_bytes: Arrow memory held for all runs together, exceeded by at most one batch of
            each run, and where a single key needs more [bytes].

    Yields:
        Pieces of the runs, in the order of the runs; every key of a window is above those of the
        windows before.

    Raises:
        CorruptDataError: a run has descending keys from one batch to the next.
    """
    cursors = [_Cursor(run, key_names) for run in runs]
    while True:
        share = window_bytes // max(1, len(cursors))
        for cursor in cursors:
            cursor.fill(share)
        cursors = [cursor for cursor in cursors if cursor.batches]
        if not cursors:
            return
        batches = _complete_rows(cursors)
        if batches:
            yield batches


def merge_rows(
    batches: Sequence[pa.RecordBatch],
    key_names: Sequence[str],
    function: MergeFunction,
    *,
    drop_retractions: bool = False,
) -> pa.RecordBatch:
    """Sort and reduce rows held in memory: a write buffer, or one window of a merge.

    Args:
        batches: KeyValueBatches of one Arrow schema in any order, at least one.
        key_names: key columns in key order.
        function: reduces the rows of each key.
        drop_retractions: leave out keys whose result is -U or -D.

    Returns:
        One KeyValueBatch, strictly ascending by key; may be empty, may share memory with a batch.
    """
    picks = len(batches) > 1 and isinstance(function, RowPicker)
    if picks:
        # the other columns are gathered from the batches: to join them costs as much again
        fields = () if function.sequence is None else function.sequence.fields
        names = {*key_names, *fields, SEQUENCE_NUMBER, VALUE_KIND} & {*batches[0].schema.names}
        rows = pa.concat_batches([batch.select(sorted(names)) for batch in batches])
    else:
        rows = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    groups = in_merge_order(rows, sort_and_group(rows, key_names), function.sequence)
    outcome = reduced(rows, groups, function, key_names)
    sources = batches if picks else [outcome.rows]
    return _gather(sources, outcome.live(drop_retractions=drop_retractions))


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What the rows of each key became.

    Attributes:
        rows: KeyValueBatch that holds the results.
        at: int64 per key: the row that is its result, ascending; -1 where nothing is left.
    """

    rows: pa.RecordBatch
    at: np.ndarray

    def batch(self, *, drop_retractions: bool = False) -> pa.RecordBatch:
        """The results, strictly ascending by key."""
        return _gather([self.rows], self.live(drop_retractions=drop_retractions))

    def live(self, *, drop_retractions: bool = False) -> np.ndarray:
        """int64 numbers of the rows that are results, in key order."""
        rows = self.at
        if (rows < 0).any():
            rows = rows[rows >= 0]
        if drop_retractions:
            mask = ~retractions(numbers_in(self.rows, VALUE_KIND)[rows])
            if not mask.all():
                rows = rows[mask]
        return rows


def reduced(
    batch: pa.RecordBatch, groups: KeyGroups, function: MergeFunction, key_names: Sequence[str]
) -> Outcome:
    """Apply a merge function to the rows of all keys.

    Args:
        batch: KeyValueBatch in any order.
        groups: its rows by key, those of one key in merge order; not necessarily all rows.
        function: reduces the rows of each key.
        key_names: key columns in key order.
    """
    order, starts = groups.order, groups.starts
    if not isinstance(function, RowPicker):
        rows_in_order = batch if order is None else _gather([batch], order)
        merged = function.reduce(rows_in_order, starts)
        return Outcome(merged, np.arange(merged.num_rows, dtype=np.int64))
    kinds = numbers_in(batch, VALUE_KIND)
    with naming_key(batch, key_names, starts if order is None else order[starts]):
        rows = function.pick(kinds if order is None else kinds[order], starts)
    at = rows if order is None else order[rows]
    if len(rows) == len(starts):
        return Outcome(batch, at)
    of_key = np.full(len(starts), -1, dtype=np.int64)
    of_key[np.searchsorted(starts, rows, side="right") - 1] = at
    return Outcome(batch, of_key)


def _gather(batches: Sequence[pa.RecordBatch], rows: np.ndarray) -> pa.RecordBatch:
    """The given rows of batches that follow one another, as a slice when they are contiguous."""
    count = len(rows)
    if not count:
        return batches[0].slice(0, 0)
    if int(rows[-1]) - int(rows[0]) == count - 1 and bool((np.diff(rows) == 1).all()):
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return whole.slice(int(rows[0]), count)
    if len(batches) == 1:
        return batches[0].take(pa.array(rows))
    return pa.Table.from_batches(batches).take(pa.array(rows)).combine_chunks().to_batches()[0]


def _complete_rows(cursors: Sequence["_Cursor"]) -> list[pa.RecordBatch]:
    """Take the complete rows from the cursors; reads another batch when there are none."""
    unfinished = [cursor for cursor in cursors if not cursor.exhausted]
    if not unfinished:
        return [batch for cursor in cursors for batch in cursor.take_all()]
    frontier = min(cursor.last_key for cursor in unfinished)
    batches = [batch for cursor in cursors for batch in cursor.take_below(frontier)]
    if not batches:
        for cursor in unfinished:
            if cursor.last_key == frontier:
                cursor.read()
    return batches


class _Cursor:
    """Read position in one run: the batches read and not yet merged.

    Invariant: `batches` are non-empty and ascending; `last_key` is the key of the last row.
    """

    def __init__(self, source: Iterator[pa.RecordBatch], key_names: Sequence[str]) -> None:
        self._source = iter(source)
        self._key_names = key_names
        self._bytes = 0
        self.batches: list[pa.RecordBatch] = []
        self.last_key: tuple[Any, ...] = ()
        self.exhausted = False

    def fill(self, size: int) -> None:
        """Read until at least `size` bytes are buffered, or the run ends [bytes]."""
        while not self.exhausted and (self._bytes < size or not self.batches):
            self.read()

    def read(self) -> None:
        """Read one batch."""
        batch = next(self._source, None)
        if batch is None:
            self.exhausted = True
            return
        if batch.num_rows == 0:
            return
        if self.last_key and key_at(batch, self._key_names, 0) < self.last_key:
            raise CorruptDataError(
                "a sorted run has descending keys",
                hint="rewrite the file that holds this key, or drop it from the table",
                last_key=self.last_key,
            )
        self.last_key = key_at(batch, self._key_names, batch.num_rows - 1)
        self.batches.append(batch)
        self._bytes += batch.nbytes

    def take_all(self) -> list[pa.RecordBatch]:
        """Everything read so far."""
        batches, self.batches, self._bytes = self.batches, [], 0
        return batches

    def take_below(self, frontier: tuple[Any, ...]) -> list[pa.RecordBatch]:
        """The rows whose key is below the frontier."""
        rows_below: list[pa.RecordBatch] = []
        rows_left: list[pa.RecordBatch] = []
        for batch in self.batches:
            if rows_left:
                rows_left.append(batch)
                continue
            position = lower_bound(batch, self._key_names, frontier)
            if position:
                rows_below.append(batch.slice(0, position))
            if position < batch.num_rows:
                rows_left.append(batch.slice(position))
        self.batches = rows_left
        self._bytes = sum(batch.nbytes for batch in rows_left)
        return rows_below


def in_merge_order(
    batch: pa.RecordBatch, groups: KeyGroups, sequence: SequenceOrder | None = None
) -> KeyGroups:
    """Put the rows of each key in merge order.

    Rows arrive in that order from one writer's runs given oldest first, unless the table has
    sequence fields; only keys for which they do not are sorted again.

    Args:
        batch: KeyValueBatch with the sequence fields; without sequence numbers where the caller
            knows that rows arrive in order.
        groups: its rows ordered by key, or some of them.
        sequence: user-defined order; None = arrival.
    """
    rows = batch.num_rows if groups.order is None else len(groups.order)
    if len(groups.starts) == rows or SEQUENCE_NUMBER not in batch.schema.names:
        return groups
    if sequence is None:
        numbers = numbers_in(batch, SEQUENCE_NUMBER)[... if groups.order is None else groups.order]
        ascends = numbers[1:] > numbers[:-1]
        ascends[groups.starts[1:] - 1] = True
        if ascends.all():
            return groups
    sizes = segment_lasts(groups.starts, rows) + 1 - groups.starts
    shared_keys = np.flatnonzero(np.repeat(sizes > 1, sizes))
    order = np.arange(rows, dtype=np.int64) if groups.order is None else groups.order
    row_numbers = order[shared_keys]
    group = np.repeat(np.arange(len(sizes)), sizes)[shared_keys]
    words = [numbers_in(batch, SEQUENCE_NUMBER)[row_numbers]]
    if sequence is not None:
        columns = batch.select(list(sequence.fields))
        words = [*sequence.words(columns.take(pa.array(row_numbers))), *words]
    # from the least significant word up: is a row not above the one before it
    inside = group[1:] == group[:-1]
    descends = inside
    for word in reversed(words):
        descends = (word[1:] < word[:-1]) | ((word[1:] == word[:-1]) & descends)
    descends &= inside
    if not descends.any():
        return groups
    adds = ~retractions(numbers_in(batch, VALUE_KIND)[row_numbers])
    unsorted = np.flatnonzero(np.isin(group, group[1:][descends]))
    keys = [adds, *reversed(words), group]
    permutation = np.lexsort([key[unsorted] for key in keys])
    order = order.copy()
    order[shared_keys[unsorted]] = row_numbers[unsorted[permutation]]
    return KeyGroups(order, groups.starts)
