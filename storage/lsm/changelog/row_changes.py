# SPDX-License-Identifier: Apache-2.0
"""The changelog rows of keys whose row changed. Pure.

Owns the table of SEMANTICS.md §C.2 and the options `changelog-producer.row-deduplicate`. Data
plane: whole columns, no Python object per row.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.key_words import order_words
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import numbers_in, valid_mask
from storage.options.options import TableOptions

Mask = npt.NDArray[np.bool_]


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
    emits = has_before | has_after
    updates = has_before & has_after
    if rule.row_deduplicate and updates.any():
        updated_keys = np.flatnonzero(updates)
        emits[updated_keys] = ~_equal_rows(
            before, before_at[updated_keys], after, after_at[updated_keys], rule
        )
    updates &= emits
    emits_before, emits_after = has_before & emits, has_after & emits
    counts = emits_before.astype(np.int64) + emits_after
    ends = np.cumsum(counts)
    rows = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    kinds = np.empty(len(rows), dtype=np.int8)
    first_rows = (ends - counts)[emits_before]
    rows[first_rows] = before_at[emits_before]
    kinds[first_rows] = np.where(updates[emits_before], RowKind.UPDATE_BEFORE, RowKind.DELETE)
    last_rows = (ends - 1)[emits_after]
    rows[last_rows] = after_at[emits_after] + before.num_rows
    kinds[last_rows] = np.where(updates[emits_after], RowKind.UPDATE_AFTER, RowKind.INSERT)
    return _gathered(before, after, rows, kinds)


def _adds(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    return ~retractions(numbers_in(batch, VALUE_KIND))


def _equal_rows(
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
        previous = before.column(name).take(pa.array(before_rows))
        same &= equal_rows(previous, after.column(name).take(pa.array(after_rows)))
    return same


def _gathered(
    before: pa.RecordBatch,
    after: pa.RecordBatch,
    rows: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> pa.RecordBatch:
    """Rows of both batches, numbered consecutively, with new kinds."""
    position = after.schema.get_field_index(VALUE_KIND)
    if before is after:
        batch = after.take(pa.array(np.where(rows < after.num_rows, rows, rows - after.num_rows)))
    elif not before.num_rows or (rows >= before.num_rows).all():
        batch = after.take(pa.array(rows - before.num_rows))
    else:
        batch = pa.concat_batches([before, after]).take(pa.array(rows))
    return batch.set_column(position, after.schema.field(position), pa.array(kinds))


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Which rows of two columns are equal, as by Apache Paimon's equaliser (SEMANTICS.md §C.2).

    Two nulls are equal; floats are compared by their bits, all NaN being one; nested values by
    their content, maps without regard to the order of their entries.
    """
    left_valid, right_valid = valid_mask(left), valid_mask(right)
    valid = left_valid & right_valid
    equal = left_valid == right_valid
    kind = left.type
    if pa.types.is_null(kind) or not valid.any():
        return equal
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return equal & (_equal_lists(left, right, valid) | ~valid)
    if pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            equal &= equal_rows(left.field(position), right.field(position)) | ~valid
        return equal
    if pa.types.is_fixed_size_list(kind):
        return equal & (_equal_vectors(left, right, valid) | ~valid)
    if pa.types.is_floating(kind):
        return equal & ((_bits(left) == _bits(right)) | ~valid)
    if pa.types.is_dictionary(kind):
        return equal_rows(left.dictionary_decode(), right.dictionary_decode())
    same = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return equal & (same | ~valid)


def _bits(column: pa.Array) -> np.ndarray:
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    integer = np.dtype(f"i{values.dtype.itemsize}")
    bits = values.view(integer)
    nan = np.isnan(values)
    return np.where(nan, np.iinfo(integer).max, bits) if nan.any() else bits


def _equal_vectors(left: pa.Array, right: pa.Array, both_valid: Mask) -> Mask:
    size = left.type.list_size
    rows = np.flatnonzero(both_valid)
    indices = pa.array(rows)
    inner = equal_rows(left.take(indices).flatten(), right.take(indices).flatten())
    equal = np.zeros(len(both_valid), dtype=bool)
    equal[rows] = inner.reshape(len(rows), size).all(axis=1) if size else True
    return equal


def _equal_lists(left: pa.Array, right: pa.Array, both_valid: Mask) -> Mask:
    """Which lists and maps have the same length and equal elements; undefined for nulls."""
    left_sizes, right_sizes = _lengths(left), _lengths(right)
    equal = both_valid & (left_sizes == right_sizes)
    rows = np.flatnonzero(equal & (left_sizes > 0))
    if not len(rows):
        return equal
    inner = equal_rows(_elements(left, rows), _elements(right, rows))
    starts = np.cumsum(left_sizes[rows]) - left_sizes[rows]
    equal[rows] = np.logical_and.reduceat(inner, starts)
    return equal


def _lengths(column: pa.Array) -> np.ndarray:
    if pa.types.is_map(column.type):
        lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
        return np.where(valid_mask(column), lengths, 0)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _elements(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The elements of some rows concatenated, those of a map by key; no row is null."""
    lists = column.take(pa.array(rows))
    if not pa.types.is_map(column.type):
        return lists.flatten()
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    keys = lists.keys.slice(offsets[0], offsets[-1] - offsets[0])
    items = lists.items.slice(offsets[0], offsets[-1] - offsets[0])
    entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    owner = np.repeat(np.arange(len(rows)), np.diff(offsets))
    try:
        words = [word for word, _ in order_words([keys])]
    except UnsupportedFeatureError:
        return entries  # keys that are nested have no order: entries are compared as they come
    order = np.lexsort([*reversed(words), owner])
    return entries.take(pa.array(order))
