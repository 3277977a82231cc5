# SPDX-License-Identifier: Apache-2.0
"""The first-row merge engine: the first row of each key stays. Source: SEMANTICS.md §B.4."""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types import VALUE_KIND
from storage.lsm.merge_functions.fold import naming_key
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import first_where, segment_lasts
from storage.lsm.merge_functions.sequence_order import SequenceOrder

__all__ = ["FirstRow"]


@dataclasses.dataclass(frozen=True, slots=True)
class FirstRow:
    """The first row of each key that adds, with its kind.

    Attributes:
        key_names: key columns.
        ignore_delete: pass over -U and -D rows. A key with nothing else is left out, unless it
            has a single row.
    """

    key_names: tuple[str, ...]
    ignore_delete: bool = False

    @property
    def sequence(self) -> SequenceOrder | None:
        """Always arrival."""
        return None

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        rows = batch.num_rows
        if len(starts) == rows:
            return batch
        retract = retractions(batch.column(VALUE_KIND).to_numpy(zero_copy_only=False))
        if not retract.any():
            return batch.take(pa.array(starts))
        alone = starts == segment_lasts(starts, rows)
        if not self.ignore_delete:
            wrong = (first_where(retract, starts, rows) >= 0) & ~alone
            if wrong.any():
                with naming_key(batch, self.key_names, starts):
                    raise InvalidRequestError(
                        "By default, First row merge engine can not accept DELETE/UPDATE_BEFORE "
                        "records",
                        hint="set `ignore-delete` to drop them",
                        segment=int(np.argmax(wrong)),
                    )
        first = np.where(alone, starts, first_where(~retract, starts, rows))
        return batch.take(pa.array(first[first >= 0]))
