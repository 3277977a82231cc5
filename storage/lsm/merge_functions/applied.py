# SPDX-License-Identifier: Apache-2.0
"""The rows of keys as a merge applies them to one column, and columns that are one of the values.

Owns the functions whose result is a value of one of the rows (`last_value`, `first_value` and
their kin) with all that decides which row it is: rows that come late in a sequence group, rows
taken back, a row that started the key anew. Data plane: positions, no Python object per row.
Source: SEMANTICS.md §B.2.3 and §B.3.
"""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.lsm.merge_functions.aggregators.contract import Aggregator, renumbered
from storage.lsm.merge_functions.segments import (
    Segments,
    first_where,
    last_where,
    segment_ids,
    segment_lasts,
    subset,
    take_or_null,
    valid_mask,
)

__all__ = ["UNCHANGING", "VALUE_PICKERS", "Applied", "aggregate", "picked_value"]

VALUE_PICKERS = frozenset(
    {
        *("primary-key", "last_value", "last_non_null_value"),
        *("first_value", "first_non_null_value", "first_not_null_value"),
    }
)
"""Functions whose result is the value of one row."""

_COMMUTATIVE = frozenset(
    {
        *("sum", "product", "max", "min", "bool_and", "bool_or", "collect"),
        *("rbm32", "rbm64", "theta_sketch", "hll_sketch"),
    }
)
"""Functions for which a late row may be applied where it arrives."""

UNCHANGING = VALUE_PICKERS | {
    *("sum", "product", "max", "min", "bool_and", "bool_or"),
    *("rbm32", "rbm64", "theta_sketch", "hll_sketch"),
}
"""Functions that leave a value that is added to nothing as it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Applied:
    """Rows that take part in the merge of a column, key by key, in arrival order.

    Attributes:
        starts: position at which each key begins, ascending from 0; every key has a row.
        rows: rows of all keys.
        retract: bool per row: it takes its value back.
        base: bool per row: it replaced whatever was there before, without a function; only the
            first row of a key. None = no row is.
        late: bool per row: it adds or takes back behind a row of higher order. None = no row is.
        started: bool per key: a function met rows already that `base` made obsolete. None = never.
    """

    starts: np.ndarray
    rows: int
    retract: np.ndarray
    base: np.ndarray | None = None
    late: np.ndarray | None = None
    started: np.ndarray | None = None

    def only(self, keep: np.ndarray) -> tuple[np.ndarray, "Applied"]:
        """A part of the rows: the numbers of the keys that have some, and these rows."""
        keys, part = subset(keep, Segments(self.starts, self.rows, None))
        return keys, Applied(
            part.starts,
            part.rows,
            self.retract[keep],
            None if self.base is None else self.base[keep],
            None if self.late is None else self.late[keep],
            None if self.started is None else self.started[keys],
        )


def picked_value(
    function: str, valid: np.ndarray, applied: Applied, *, ignore_retract: bool = False
) -> np.ndarray:
    """Which row's value a function of `VALUE_PICKERS` leaves.

    Args:
        function: its name.
        valid: bool per row: the value is not null.
        applied: the rows.
        ignore_retract: rows that take back are passed over.

    Returns:
        Row number per key, -1 where the result is null.
    """
    starts, rows = applied.starts, applied.rows
    if function == "primary-key":
        return segment_lasts(starts, rows)
    base = np.zeros(rows, dtype=bool) if applied.base is None else applied.base
    late = np.zeros(rows, dtype=bool) if applied.late is None else applied.late
    retract = applied.retract & ~base
    late_adds = late & ~retract
    adds = ~late & ~retract
    takes_back = np.zeros(rows, dtype=bool) if ignore_retract else retract
    if function == "last_value":
        return _unless(takes_back, last_where(adds | takes_back, starts, rows))
    if function == "last_non_null_value":
        decides = last_where(valid & (adds | takes_back), starts, rows)
        found = _unless(takes_back, decides)
        if not late_adds.any():
            return found
        behind = np.arange(rows) > np.repeat(decides, np.diff(starts, append=rows))
        filler = first_where(valid & late_adds & behind, starts, rows)
        return np.where(found >= 0, found, filler)
    return _first(function != "first_value", valid, applied, base, adds, late_adds)


def _unless(takes_back: np.ndarray, picked: np.ndarray) -> np.ndarray:
    """Positions, those of rows that take back replaced by -1."""
    if not takes_back.any():
        return picked
    return np.where((picked >= 0) & ~takes_back[picked], picked, -1)


def _first(
    skips_null: bool,
    valid: np.ndarray,
    applied: Applied,
    base: np.ndarray,
    adds: np.ndarray,
    late_adds: np.ndarray,
) -> np.ndarray:
    """The row whose value `first_value` or `first_non_null_value` leaves.

    The functions keep the value of the row that opens them. A late row is applied the other way
    round: it opens them with what is there already, and once they are open it takes over.
    """
    starts, rows = applied.starts, applied.rows
    opening = np.where(base[starts], starts, -1)
    opens = adds & ~base & valid if skips_null else adds & ~base
    event = first_where(opens, starts, rows)
    found = event
    if late_adds.any():
        held = opening
        if skips_null:
            early = first_where(late_adds & valid, starts, rows)
            held = np.where((opening >= 0) & valid[opening], opening, early)
        turned = first_where(late_adds & _behind(held, applied, skips_null), starts, rows)
        first = (turned >= 0) & ((event < 0) | (turned < event))
        event, found = np.where(first, turned, event), np.where(first, held, event)
        found = np.where(event < 0, held, found)
    if applied.started is not None:
        again = applied.started & (opening >= 0)
        event, found = np.where(again, opening, event), np.where(again, opening, found)
    if late_adds.any():
        after = last_where(late_adds & _behind(event, applied, True), starts, rows)
        found = np.where(after >= 0, after, found)
    return np.where((event < 0) & (found < 0), opening, found)


def _behind(places: np.ndarray, applied: Applied, needed: bool) -> np.ndarray:
    """Which rows come after a place of their key; where there is none (-1): none, or all."""
    bound = np.where(places >= 0, places, applied.rows if needed else -1)
    sizes = np.diff(applied.starts, append=applied.rows)
    behind: np.ndarray = np.arange(applied.rows) > np.repeat(bound, sizes)
    return behind


def aggregate(
    aggregator: Aggregator,
    values: pa.Array,
    applied: Applied,
    *,
    ignore_retract: bool = False,
) -> pa.Array:
    """The result of a function for each key.

    Args:
        aggregator: the function.
        values: one per row.
        applied: the rows.
        ignore_retract: rows that take back are passed over.

    Returns:
        One value per key.

    Raises:
        InvalidRequestError: see `Aggregator.reduce`.
    """
    retract = applied.retract
    if applied.base is not None:
        retract = retract & ~applied.base
    if aggregator.name in VALUE_PICKERS and (
        ignore_retract or aggregator.retractable or not retract.any()
    ):
        picked = picked_value(
            aggregator.name, valid_mask(values), applied, ignore_retract=ignore_retract
        )
        return take_or_null(values, picked)
    late = applied.late is not None and bool(applied.late.any())
    # passing over rows that take back hides from Java that `collect` need not turn late rows
    turns = aggregator.name not in _COMMUTATIVE or (ignore_retract and aggregator.name == "collect")
    if late and turns:
        made = _late_first(aggregator, values, applied, retract)
    else:
        taken = retract if retract.any() else None
        opened = None if applied.base is None else applied.base[applied.starts]
        made = aggregator.reduce(values, Segments(applied.starts, applied.rows, taken, opened))
    based = applied.base is not None and bool(applied.base.any())
    if aggregator.name in UNCHANGING or not (late or based):
        return made
    source = _as_it_is(aggregator.name, values, made, applied, retract, ignore_retract)
    place = np.where(source >= 0, source + len(made), np.arange(len(made), dtype=np.int64))
    return pa.concat_arrays([made, values]).take(pa.array(place))


def _as_it_is(
    function: str,
    values: pa.Array,
    made: pa.Array,
    applied: Applied,
    retract: np.ndarray,
    ignore_retract: bool,
) -> np.ndarray:
    """Which row's value is the result, because no function was applied to it.

    A function may not leave a single value as it is: it drops elements that are there twice, or
    passes over blanks. The base of a key is not given to it before another value comes; nor is
    the value of a late row that finds nothing, since that counts as what was there before.

    Args:
        function: its name.
        values: one per row.
        made: what the function makes of the rows of each key.
        applied: the rows.
        retract: bool per row: it takes back and is no base.
        ignore_retract: rows that take back are passed over.

    Returns:
        Row number per key, -1 where `made` is the result.
    """
    starts, rows = applied.starts, applied.rows
    none = np.zeros(rows, dtype=bool)
    base = none if applied.base is None else applied.base
    late = none if applied.late is None else applied.late & ~retract
    if function == "listagg":  # a blank stays a blank until a text comes, or a later blank late
        last = last_where(late, starts, rows)
        blank = np.where(last >= 0, last, np.where(base[starts], starts, -1))
        return np.where(valid_mask(made), -1, blank)
    valid = valid_mask(values)
    acts = (valid | late) & ~base & ~(retract & ignore_retract)
    if function == "collect":  # with `distinct` even a null makes a set of what is there
        acts |= ~base & ~retract
        source = np.where(base[starts] & valid[starts], starts, -1)
    else:
        opens = first_where(valid & ~retract, starts, rows)
        source = np.where((opens >= 0) & (base | late)[opens], opens, -1)
    return np.where(last_where(acts, starts, rows) <= source, source, -1)


def _late_first(
    aggregator: Aggregator, values: pa.Array, applied: Applied, retract: np.ndarray
) -> pa.Array:
    """Merge so that a late row counts as one that came before all others so far.

    Late rows are put in front, the latest first. Those that come after a row that takes back
    must not move before that, so the rows are merged round by round, cut where they come; where
    an entry of a map may remove another one, so must not any other late row.
    """
    keys = segment_ids(applied.starts, applied.rows)
    moved = np.asarray(applied.late) & ~retract
    found = moved if applied.base is None else moved | applied.base
    apart = aggregator.name == "merge_map_with_keytime" and values.items.null_count > 0
    rounds = _rounds(keys, moved, retract, apart=apart)
    rows = np.arange(applied.rows, dtype=np.int64)
    done = np.empty(0, dtype=np.int64)
    results = values.slice(0, 0)
    for number in range(int(rounds.max()) + 1):
        now = np.flatnonzero(rounds == number)
        present = np.unique(keys[now])
        carried = np.flatnonzero(np.isin(done, present))
        inputs = pa.concat_arrays([results.take(pa.array(carried)), values.take(pa.array(now))])
        of_key = np.concatenate([done[carried], keys[now]])
        place = np.where(moved[now], -rows[now] - 1, rows[now] + 1)
        order = np.lexsort((np.concatenate([np.zeros(len(carried), np.int64), place]), of_key))
        back = np.concatenate([np.zeros(len(carried), dtype=bool), retract[now]])[order]
        starts = np.flatnonzero(np.diff(of_key[order], prepend=-1)).astype(np.int64)
        opened = np.concatenate([np.ones(len(carried), dtype=bool), found[now]])[order][starts]
        part = Segments(starts, len(order), back if back.any() else None, opened)
        with renumbered(present):
            made = aggregator.reduce(inputs.take(pa.array(order)), part)
        kept = np.flatnonzero(~np.isin(done, present))
        results = pa.concat_arrays([results.take(pa.array(kept)), made])
        done = np.concatenate([done[kept], present])
    return results.take(pa.array(np.argsort(done)))


def _rounds(keys: np.ndarray, moved: np.ndarray, retract: np.ndarray, *, apart: bool) -> np.ndarray:
    """Number of the round of each row.

    The next one begins with a late row behind a retraction, or with every late row (`apart`).
    """
    events = np.flatnonzero(moved | retract)
    begins = np.zeros(len(keys), dtype=np.int64)
    again = events[1:]
    before = events[:-1]
    begins[again[moved[again] & retract[before] & (keys[again] == keys[before])]] = 1
    if apart:
        begins[moved] = 1
    counted = np.cumsum(begins)
    fresh = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=fresh[1:])
    firsts = np.flatnonzero(fresh)
    return counted - np.repeat(counted[firsts], np.diff(firsts, append=len(keys)))
