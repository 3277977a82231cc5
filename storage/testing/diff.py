# SPDX-License-Identifier: Apache-2.0
"""The changes that lead from one state of a table to another. Pure over record batches.

Source: SEMANTICS.md §C.2: what a changelog of `lookup` or `full-compaction` would emit if nothing
had happened between the two states but the difference.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.changelog.row_changes import ChangeRule, row_changes
from storage.lsm.changelog.state_diff import Positions, side_by_side
from storage.lsm.key_order import sort_and_group
from storage.lsm.merge import MERGE_WINDOW_BYTES

__all__ = ["diff_sorted", "diff_states"]


def diff_sorted(
    before: Iterable[pa.RecordBatch],
    after: Iterable[pa.RecordBatch],
    key_names: Sequence[str],
    *,
    rule: ChangeRule | None = None,
    window_bytes: int = MERGE_WINDOW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The changes between two sorted states, in bounded memory.

    Args:
        before: KeyValueBatches (with `_SEQUENCE_NUMBER` and `_VALUE_KIND`) strictly ascending by
            key across batches.
        after: the same of the later state, in the same Arrow schema.
        key_names: key columns in key order.
        rule: which changes are emitted; None: none for unchanged rows.
        window_bytes: Arrow memory held, as in `merge_runs` [bytes].

    Yields:
        Non-empty KeyValueBatches ascending by key: +I, -D, or -U directly before +U. A row of
        kind -U or -D counts as none.

    Raises:
        CorruptDataError: a state has descending keys.
    """
    chosen = ChangeRule(row_deduplicate=True) if rule is None else rule

    def emit(
        old: pa.RecordBatch, old_at: Positions, new: pa.RecordBatch, new_at: Positions
    ) -> pa.RecordBatch:
        return row_changes(old, old_at, new, new_at, rule=chosen)

    return side_by_side(before, after, key_names, emit, window_bytes=window_bytes)


def diff_states(
    before: pa.Table,
    after: pa.Table,
    key_names: Sequence[str],
    *,
    rule: ChangeRule | None = None,
) -> pa.Table:
    """The changes between two states held in memory, as plain reads give them.

    Args:
        before: rows in any order, each key at most once.
        after: the same of the later state, in the same Arrow schema.
        key_names: key columns in key order.
        rule: which changes are emitted; None: none for unchanged rows.

    Returns:
        `_VALUE_KIND` (int8, `RowKind`), then the columns; ascending by key, -U directly before +U.
    """
    kind = pa.field(VALUE_KIND, pa.int8(), nullable=False)
    schema = pa.schema([kind, *after.schema])
    found = diff_sorted(
        _as_state(before, key_names), _as_state(after, key_names), key_names, rule=rule
    )
    batches = [
        pa.RecordBatch.from_arrays(batch.select(schema.names).columns, schema=schema)
        for batch in found
    ]
    return pa.Table.from_batches(batches, schema=schema)


def _as_state(rows: pa.Table, key_names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in rows.combine_chunks().to_batches():
        order = sort_and_group(batch, key_names).order
        ordered = batch if order is None else batch.take(pa.array(order))
        count = ordered.num_rows
        system = {
            SEQUENCE_NUMBER: np.zeros(count, dtype=np.int64),
            VALUE_KIND: np.full(count, RowKind.INSERT, dtype=np.int8),
        }
        yield pa.RecordBatch.from_arrays(
            [*map(pa.array, system.values()), *ordered.columns],
            names=[*system, *ordered.schema.names],
        )
