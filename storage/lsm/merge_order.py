# SPDX-License-Identifier: Apache-2.0
"""The order in which the rows of one key are merged.

Owns SEMANTICS.md §A.7: user-defined sequence fields, then the sequence number, then retractions
before additions, then arrival. Data plane: no Python object per row.
"""

import numpy as np
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND
from storage.lsm.key_order import KeyGroups
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import segment_lasts
from storage.lsm.merge_functions.sequence_order import SequenceOrder

__all__ = ["in_merge_order"]


def in_merge_order(
    batch: pa.RecordBatch, groups: KeyGroups, sequence: SequenceOrder | None = None
) -> KeyGroups:
    """Put the rows of each key in merge order.

    Rows arrive in that order from one writer's runs given oldest first, unless the table has
    sequence fields; only keys for which they do not are sorted again.

    Args:
        batch: KeyValueBatch with the sequence fields.
        groups: its rows ordered by key, or some of them.
        sequence: user-defined order; None = arrival.

    Returns:
        The same groups with the rows of each in order.
    """
    rows = batch.num_rows if groups.order is None else len(groups.order)
    if len(groups.starts) == rows:
        return groups
    sizes = segment_lasts(groups.starts, rows) + 1 - groups.starts
    several = np.flatnonzero(np.repeat(sizes > 1, sizes))
    order = np.arange(rows, dtype=np.int64) if groups.order is None else groups.order
    chosen = order[several]
    group = np.repeat(np.arange(len(sizes)), sizes)[several]
    words = [_numbers(batch, SEQUENCE_NUMBER)[chosen]]
    if sequence is not None:
        columns = batch.select(list(sequence.fields))
        words = [*sequence.words(columns.take(pa.array(chosen))), *words]
    # from the least significant word up: is a row not above the one before it
    inside = group[1:] == group[:-1]
    behind = inside
    for word in reversed(words):
        behind = (word[1:] < word[:-1]) | ((word[1:] == word[:-1]) & behind)
    behind &= inside
    if not behind.any():
        return groups
    adds = ~retractions(_numbers(batch, VALUE_KIND)[chosen])
    touched = np.flatnonzero(np.isin(group, group[1:][behind]))
    keys = [adds, *reversed(words), group]
    inner = np.lexsort([key[touched] for key in keys])
    order = order.copy()
    order[several[touched]] = chosen[touched[inner]]
    return KeyGroups(order, groups.starts)


def _numbers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    numbers: np.ndarray = batch.column(name).to_numpy(zero_copy_only=False)
    return numbers
