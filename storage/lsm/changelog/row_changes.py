# SPDX-License-Identifier: Apache-2.0
"""The changelog rows of keys whose row changed. Pure.

Owns the table of SEMANTICS.md §C.2 and the options `changelog-producer.row-deduplicate`. Data
plane: whole columns, no Python object per row.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.changelog.row_equality import equal_rows
from storage.lsm.merge_functions.pick_row import retractions
from storage.options.options import TableOptions

__all__ = ["ChangeRule", "row_changes"]

_SYSTEM = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeRule:
    """Which changes are emitted.

    Attributes:
        row_deduplicate: no change is emitted for a row that stays the same.
        ignore_fields: columns left out when rows are compared for that.
    """

    row_deduplicate: bool = False
    ignore_fields: tuple[str, ...] = ()

    @staticmethod
    def of(options: TableOptions) -> "ChangeRule":
        """The rule of a table."""
        return ChangeRule(options.row_deduplicate, options.row_deduplicate_ignore_fields)


def row_changes(
    before: pa.RecordBatch,
    before_at: npt.NDArray[np.int64],
    after: pa.RecordBatch,
    after_at: npt.NDArray[np.int64],
    *,
    rule: ChangeRule,
) -> pa.RecordBatch:
    """The changes that lead from some rows to others, key by key.

    Key i has the row `before_at[i]` of `before` and the row `after_at[i]` of `after`; -1 = none.
    A row of kind -U or -D counts as none. The keys themselves are not compared: rows of the same
    i belong together, and the result is ordered by i.

    | before | after | emitted |
    |---|---|---|
    | none | a row | +I of the later row |
    | a row | none | -D of the earlier row |
    | a row | a row | -U of the earlier, +U of the later; nothing where `rule` says they are equal |

    Args:
        before: KeyValueBatch, of any number of rows in any order.
        before_at: row number per key, -1 where there is none; int64.
        after: KeyValueBatch of the same Arrow schema.
        after_at: row number per key, -1 where there is none; int64, as many as `before_at`.
        rule: which changes are emitted.

    Returns:
        KeyValueBatch with the kinds of the table above, each row with its own sequence number;
        -U directly before its +U.
    """
    has_before = before_at >= 0
    has_after = after_at >= 0
    has_before[has_before] = _adds(before)[before_at[has_before]]
    has_after[has_after] = _adds(after)[after_at[has_after]]
    emitted = has_before | has_after
    updates = has_before & has_after
    if rule.row_deduplicate and updates.any():
        changed = np.flatnonzero(updates)
        emitted[changed] = ~_same(before, before_at[changed], after, after_at[changed], rule)
    updates &= emitted
    emits_before, emits_after = has_before & emitted, has_after & emitted
    counts = emits_before.astype(np.int64) + emits_after
    ends = np.cumsum(counts)
    rows = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    kinds = np.empty(len(rows), dtype=np.int8)
    first = (ends - counts)[emits_before]
    rows[first] = before_at[emits_before]
    kinds[first] = np.where(updates[emits_before], RowKind.UPDATE_BEFORE, RowKind.DELETE)
    last = (ends - 1)[emits_after]
    rows[last] = after_at[emits_after] + before.num_rows
    kinds[last] = np.where(updates[emits_after], RowKind.UPDATE_AFTER, RowKind.INSERT)
    return _gathered(before, after, rows, kinds)


def _adds(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    return ~retractions(batch.column(VALUE_KIND).to_numpy(zero_copy_only=False))


def _same(
    before: pa.RecordBatch,
    before_rows: npt.NDArray[np.int64],
    after: pa.RecordBatch,
    after_rows: npt.NDArray[np.int64],
    rule: ChangeRule,
) -> npt.NDArray[np.bool_]:
    """Which pairs of rows have equal values in all columns that count."""
    same = np.ones(len(before_rows), dtype=bool)
    for name in after.schema.names:
        if name in _SYSTEM or name in rule.ignore_fields:
            continue
        left = before.column(name).take(pa.array(before_rows))
        same &= equal_rows(left, after.column(name).take(pa.array(after_rows)))
    return same


def _gathered(
    before: pa.RecordBatch,
    after: pa.RecordBatch,
    rows: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> pa.RecordBatch:
    """Rows of both batches, counted through, with new kinds."""
    position = after.schema.get_field_index(VALUE_KIND)
    if before is after:
        found = after.take(pa.array(np.where(rows < after.num_rows, rows, rows - after.num_rows)))
    elif not before.num_rows or (rows >= before.num_rows).all():
        found = after.take(pa.array(rows - before.num_rows))
    else:
        found = pa.concat_batches([before, after]).take(pa.array(rows))
    return found.set_column(position, after.schema.field(position), pa.array(kinds))
