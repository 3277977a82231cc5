# SPDX-License-Identifier: Apache-2.0
"""Keys that seemed to differ are read again; only what differs then too is reported.

A round reads the keys from the source, waits, reads them from the lake and once more from the
source. A key of which both reads of the source agree did not move while the lake had time to
take it in: if the lake still has something else, that is a difference. A key whose reads of the
source disagree says nothing and goes into the next round; after the last one it is *moving*.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.tools.verify.compare import Candidates, Kind, joined_keys
from ingest.tools.verify.hashes import Hashes
from ingest.tools.verify.lake import TableSide
from ingest.tools.verify.outcome import Example
from ingest.tools.verify.rows import Columns, HashedRows, Rows, Side, hashed, per_column

__all__ = ["Confirmed", "confirm"]

HIDDEN = "***"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What is left of the candidates.

    Attributes:
        counts: keys that differ, by kind.
        moving: keys that were never seen at rest.
        settled: keys that do not differ any more.
        examples: the first of each kind.
    """

    counts: dict[Kind, int]
    moving: int
    settled: int
    examples: tuple[Example, ...]


def confirm(
    source: Side,
    lake: TableSide,
    columns: Columns,
    candidates: Candidates,
    *,
    rounds: int,
    wait: Callable[[], None] | None,
    shown: int,
    masked: Sequence[str] = (),
) -> Confirmed:
    """Read candidates again.

    Args:
        source: as in `scan`.
        lake: as in `scan`; it is refreshed after every wait.
        columns: as in `scan`.
        candidates: what `find_candidates` found.
        rounds: how often they are read again; 0 = they are taken as they are.
        wait: between the reads of the source and of the lake; None = no waiting.
        shown: examples of each kind.
        masked: columns whose values no example shows.
    """
    if not columns.keyed:
        return _as_they_are(columns, candidates, shown, masked)
    asked, lost = _lookable(candidates)
    total = len(candidates.kinds)
    moving = np.zeros(0, np.uint64)
    state = _State(asked.keys, asked)
    for _ in range(max(1, rounds)):
        if not len(state.keys):
            break
        state, moving = _round(source, lake, columns, state, wait if rounds else None)
    found = state.differing(rounds > 0, moving)
    counts = {kind: found.kinds.count(kind) for kind in Kind}
    for odd_kind in lost.kinds:
        counts[odd_kind] += 1
    if not rounds:
        counts = {kind: candidates.kinds.count(kind) for kind in Kind}
        moving = moving[:0]
    settled = 0 if not rounds else total - sum(counts.values()) - len(moving)
    examples = _examples(columns, found, state, shown, masked)
    examples += _odd_examples(columns, lost, shown, masked)
    return Confirmed(
        counts=counts, moving=len(moving), settled=max(0, settled), examples=tuple(examples)
    )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Keys that differ: hashes and kinds."""

    keys: Hashes
    kinds: list[Kind]


@dataclasses.dataclass(slots=True, eq=False)
class _State:
    """Keys still in question.

    Attributes:
        keys: their hashes.
        rows: their key columns.
        source: their rows in the source when read last.
        lake: their rows in the lake when read last.
        found: which of them differ, and how.
    """

    keys: Hashes
    rows: HashedRows
    source: HashedRows | None = None
    lake: HashedRows | None = None
    found: _Found | None = None

    def differing(self, moved_out: bool, moving: Hashes) -> _Found:
        """Keys that differ; without those that move, if wanted."""
        if self.found is None:
            return _Found(np.zeros(0, np.uint64), [])
        keep = (
            ~np.isin(self.found.keys, moving) if moved_out else np.ones(len(self.found.keys), bool)
        )
        kinds = [kind for kind, kept in zip(self.found.kinds, keep, strict=True) if kept]
        return _Found(self.found.keys[keep], kinds)


def _round(
    source: Side,
    lake: TableSide,
    columns: Columns,
    state: _State,
    wait: Callable[[], None] | None,
) -> tuple[_State, Hashes]:
    """One round: the keys that still differ, and which of them move."""
    wanted = state.rows.rows.batch
    before = None
    if wait is not None:
        before = _read(source, columns, wanted, state.keys)
        wait()
    lake.refresh()
    in_lake = _read(lake, columns, wanted, state.keys)
    in_source = _read(source, columns, wanted, state.keys)
    differing, kinds = joined_keys(in_source, in_lake, columns.schema)
    found = _Found(differing.keys, kinds)
    moving = np.zeros(0, np.uint64)
    if before is not None:
        moved, _ = joined_keys(before, in_source, columns.schema)
        moving = np.intersect1d(moved.keys, found.keys)
    left = np.flatnonzero(np.isin(state.keys, found.keys))
    rows = state.rows.taken(left)
    return _State(state.keys[left], rows, in_source, in_lake, found), moving


def _read(side: Side, columns: Columns, keys: pa.RecordBatch, wanted: Hashes) -> HashedRows:
    parts = []
    step = side.keys_at_once(keys.num_rows)
    for start in range(0, keys.num_rows, step):
        some = wanted[start : start + step]
        for rows in side.of_keys(keys.slice(start, step)):
            found = hashed(rows, columns)
            chosen = np.flatnonzero(np.isin(found.keys, some))
            if len(chosen):
                parts.append(found.taken(chosen))
    return HashedRows.joined(parts, columns.schema)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Lost:
    """Keys that the lake's types cannot hold, so that nobody can ask for them."""

    rows: list[Rows]
    kinds: list[Kind]


def _lookable(candidates: Candidates) -> tuple[HashedRows, _Lost]:
    odd = sorted({each.row for each in candidates.rows.rows.odd})
    if not odd:
        return candidates.rows, _Lost([], [])
    rest = np.setdiff1d(np.arange(len(candidates.rows.keys)), odd)
    each = [candidates.rows.rows.taken(np.array([row])) for row in odd]
    return candidates.rows.taken(rest), _Lost(each, [candidates.kinds[row] for row in odd])


def _as_they_are(
    columns: Columns, candidates: Candidates, shown: int, masked: Sequence[str]
) -> Confirmed:
    """Of tables without a key: whole rows, which nobody can look up."""
    counts = {kind: candidates.kinds.count(kind) for kind in Kind}
    examples: list[Example] = []
    for kind in Kind:
        places = [row for row, each in enumerate(candidates.kinds) if each is kind][:shown]
        rows = candidates.rows.rows
        examples += [Example(kind, _key(columns, rows, row, masked)) for row in places]
    return Confirmed(counts=counts, moving=0, settled=0, examples=tuple(examples))


def _examples(
    columns: Columns, found: _Found, state: _State, shown: int, masked: Sequence[str]
) -> list[Example]:
    examples: list[Example] = []
    if state.source is None or state.lake is None:
        return examples
    one, two = _first_rows(state.source), _first_rows(state.lake)
    for kind in Kind:
        keys = [int(key) for key, each in zip(found.keys, found.kinds, strict=True) if each is kind]
        for key in keys[:shown]:
            side, row = (state.lake, two[key]) if kind is Kind.EXTRA else (state.source, one[key])
            named = _key(columns, side.rows, row, masked)
            differences: tuple[tuple[str, Any, Any], ...] = ()
            if kind is Kind.DIFFERENT:
                pair = (state.source.rows, one[key]), (state.lake.rows, two[key])
                differences = _differences(columns, *pair, masked)
            examples.append(Example(kind, named, differences))
    return examples


def _first_rows(found: HashedRows) -> dict[int, int]:
    return {int(key): row for row, key in reversed(list(enumerate(found.keys)))}


def _odd_examples(
    columns: Columns, lost: _Lost, shown: int, masked: Sequence[str]
) -> list[Example]:
    pairs = list(zip(lost.rows, lost.kinds, strict=True))[:shown]
    return [Example(kind, _key(columns, rows, 0, masked)) for rows, kind in pairs]


def _differences(
    columns: Columns, one: tuple[Rows, int], two: tuple[Rows, int], masked: Sequence[str]
) -> tuple[tuple[str, Any, Any], ...]:
    rows = [side.taken(np.array([row])) for side, row in (one, two)]
    left, right = (per_column(each, columns) for each in rows)
    found: list[tuple[str, Any, Any]] = []
    for place, column in enumerate(columns.all):
        if left[place][0] != right[place][0]:
            values = [_value(each, column.name, 0, masked) for each in rows]
            found.append((column.name, values[0], values[1]))
    return tuple(found)


def _key(columns: Columns, rows: Rows, row: int, masked: Sequence[str]) -> dict[str, Any]:
    return {key.name: _value(rows, key.name, row, masked) for key in columns.keys}


def _value(rows: Rows, column: str, row: int, masked: Sequence[str]) -> Any:
    if column in masked:
        return HIDDEN
    for odd in rows.odd:
        if odd.row == row and odd.column == column:
            return odd.text
    scalar = rows.batch.column(rows.batch.schema.get_field_index(column))[row]
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):  # a year that Python does not have
        return scalar.cast(pa.string()).as_py()
