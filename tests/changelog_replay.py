# SPDX-License-Identifier: Apache-2.0
"""Applying a changelog to a state, and checking that it can be applied. Pure.

What a reader that keeps one row per key ends up with: +I and +U put a row, -U and -D take it away.
Source: SEMANTICS.md §A.1, §C.2. Data plane: whole columns, no Python object per row.
"""

import dataclasses
import enum
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.format.types.types import VALUE_KIND, RowKind
from storage.lsm.changelog import equal_rows
from storage.lsm.key_order import sort_and_group
from storage.lsm.merge_functions.segments import retractions

__all__ = ["Fault", "FaultKind", "changelog_faults", "replay"]


class FaultKind(enum.Enum):
    """What is wrong with a change in a complete changelog."""

    INSERTED_TWICE = "+I or +U of a key that has a row"
    RETRACTS_NOTHING = "-U or -D of a key that has no row"
    RETRACTS_OTHER = "-U or -D whose values are not those of the row"
    UPDATE_WITHOUT_BEFORE = "+U without its -U directly before it"
    BEFORE_WITHOUT_UPDATE = "-U without its +U directly after it"


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """Changes that do not fit.

    Attributes:
        kind: what is wrong with them.
        count: how many changes.
        first: the first of them, with the columns of the changelog.
    """

    kind: FaultKind
    count: int
    first: pa.RecordBatch


def replay(
    changes: Iterable[pa.RecordBatch], key_names: Sequence[str], state: pa.Table | None = None
) -> pa.Table:
    """The rows that are there after some changes.

    Args:
        changes: `_VALUE_KIND` (int8, `RowKind`) and columns, in the order in which they happened;
            at least one batch, which may be empty, where `state` is None.
        key_names: key columns in key order; none on tables without primary key, where every +I
            stays.
        state: rows to begin with, each key at most once, with the columns of the changes; None:
            none.

    Returns:
        The rows without their kinds, ascending by key.

    Raises:
        ValueError: neither changes nor a state.
    """
    history = _history(changes, state)
    kinds = _kinds(history)
    if not key_names:
        return _rows(history.filter(pa.array(~retractions(kinds))))
    if not history.num_rows:
        return _rows(history)
    order, starts = _by_key(history, key_names)
    lasts = order[np.append(starts[1:], history.num_rows) - 1]
    return _rows(history.take(pa.array(lasts[~retractions(kinds[lasts])])))


def changelog_faults(
    changes: Iterable[pa.RecordBatch], key_names: Sequence[str], state: pa.Table | None = None
) -> list[Fault]:
    """What a changelog of `lookup` or `full-compaction` must not hold.

    A changelog without faults undoes exactly what it did before, so that readers may keep sums of
    it. The other producers promise no such thing.

    Args:
        changes: as for `replay`.
        key_names: key columns in key order, at least one.
        state: rows to begin with; None: none.

    Returns:
        One per kind of fault that occurs.
    """
    history = _history(changes, state)
    if not history.num_rows:
        return []
    order, starts = _by_key(history, key_names)
    rows = history.take(pa.array(order))
    kinds = _kinds(rows)
    retracts = retractions(kinds)
    is_first = np.zeros(len(kinds), dtype=bool)
    is_first[starts] = True
    previous = np.arange(len(kinds)) - 1
    exists = ~is_first & ~np.append(False, retracts[:-1])
    checked = np.flatnonzero(retracts & exists)
    differs = np.zeros(len(kinds), dtype=bool)
    differs[checked] = ~_equal(rows, previous[checked], checked)
    # -U and +U must be neighbours in the changelog itself
    adjoins = ~is_first & (np.append(-2, order[:-1]) == order - 1)
    is_before, is_after = kinds == RowKind.UPDATE_BEFORE, kinds == RowKind.UPDATE_AFTER
    follows = adjoins & np.append(False, is_before[:-1])
    masks = {
        FaultKind.INSERTED_TWICE: ~retracts & exists,
        FaultKind.RETRACTS_NOTHING: retracts & ~exists,
        FaultKind.RETRACTS_OTHER: differs,
        FaultKind.UPDATE_WITHOUT_BEFORE: is_after & ~follows,
        FaultKind.BEFORE_WITHOUT_UPDATE: is_before & ~np.append((follows & is_after)[1:], False),
    }
    return [
        Fault(kind, int(wrong.sum()), rows.slice(int(np.flatnonzero(wrong)[0]), 1))
        for kind, wrong in masks.items()
        if wrong.any()
    ]


def _history(changes: Iterable[pa.RecordBatch], state: pa.Table | None) -> pa.RecordBatch:
    """The state as inserts, then the changes."""
    parts = [pa.Table.from_batches([batch]) for batch in changes]
    if state is not None:
        kinds = pa.array(np.full(state.num_rows, RowKind.INSERT, dtype=np.int8))
        parts.insert(0, state.add_column(0, VALUE_KIND, kinds))
    if not parts:
        raise ValueError("neither changes nor a state to begin with")
    names = parts[0].column_names
    columns = [
        pa.chunked_array([chunk for part in parts for chunk in part.column(name).chunks], type_)
        for name, type_ in zip(names, parts[0].schema.types, strict=True)
    ]
    arrays = [column.combine_chunks() for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _by_key(
    history: pa.RecordBatch, key_names: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers by key, then as they happened; and where each key begins."""
    groups = sort_and_group(history, key_names)
    order = groups.order
    return np.arange(history.num_rows) if order is None else order, groups.starts


def _equal(
    rows: pa.RecordBatch, left_rows: npt.NDArray[np.int64], right_rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    equal = np.ones(len(left_rows), dtype=bool)
    for column in rows.drop_columns([VALUE_KIND]).columns:
        equal &= equal_rows(column.take(pa.array(left_rows)), column.take(pa.array(right_rows)))
    return equal


def _kinds(batch: pa.RecordBatch) -> npt.NDArray[np.int8]:
    kinds: npt.NDArray[np.int8] = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
    return kinds


def _rows(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch]).drop_columns([VALUE_KIND])
