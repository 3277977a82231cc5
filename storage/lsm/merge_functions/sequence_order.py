# SPDX-License-Identifier: Apache-2.0
"""User-defined sequence fields: columns that order the rows of one key.

Source: SEMANTICS.md §A.6. Data plane: whole columns.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage.lsm.key_order import sort_and_group
from storage.lsm.key_words import order_words
from storage.lsm.merge_functions.segments import segment_ids, valid_mask
from storage.options.options import TableOptions


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceOrder:
    """Columns compared from left to right before the sequence number.

    A null comes before every value in either direction: it loses.

    Attributes:
        fields: columns, most significant first; at least one.
        descending: the smaller value wins.
    """

    fields: tuple[str, ...]
    descending: bool = False

    @staticmethod
    def of(options: TableOptions) -> "SequenceOrder | None":
        """The order that a table defines; None: the order of arrival."""
        if not options.sequence_field:
            return None
        return SequenceOrder(options.sequence_field, options.sequence_descending)

    def words(self, batch: pa.RecordBatch) -> list[np.ndarray]:
        """One or more numbers per row that compare as the rows do.

        Returns:
            uint64 or int64 arrays, most significant first; none when all rows are equal. They
            compare only with one another.
        """
        columns = [batch.column(name) for name in self.fields]
        if not self.descending:
            return [word for word, _ in order_words(columns)]
        words = []
        for column in columns:
            ranks = dense_ranks([column])
            valid = valid_mask(column)
            words.append(np.where(valid, len(column) - ranks, 0))
        return words


def dense_ranks(columns: Sequence[pa.Array]) -> np.ndarray:
    """Numbers (int64) from 0 that are equal where the rows are equal and ascend as they do.

    Args:
        columns: most significant first, equal lengths, scalar types; nulls come first.
    """
    if not len(columns[0]):
        return np.empty(0, dtype=np.int64)
    names = [str(position) for position in range(len(columns))]
    batch = pa.RecordBatch.from_arrays(list(columns), names=names)
    groups = sort_and_group(batch, names)
    ranks = segment_ids(groups.starts, batch.num_rows)
    if groups.order is None:
        return ranks
    row_ranks = np.empty(batch.num_rows, dtype=np.int64)
    row_ranks[groups.order] = ranks
    return row_ranks
