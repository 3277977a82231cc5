# SPDX-License-Identifier: Apache-2.0
"""The first-row merge engine: the first row of each key stays. Source: SEMANTICS.md §B.4."""

import dataclasses

import numpy as np
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.types.types import VALUE_KIND
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
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    ignore_delete: bool = False
    lone_rows: bool = False

    @property
    def sequence(self) -> SequenceOrder | None:
        """Always arrival."""
        return None

    def pick(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """See `RowPicker`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        rows = len(kinds)
        if len(starts) == rows and not self.lone_rows:
            return starts
        retract = retractions(kinds)
        if not retract.any():
            return starts
        alone = (starts == segment_lasts(starts, rows)) & (not self.lone_rows)
        if not self.ignore_delete:
            wrong = (first_where(retract, starts, rows) >= 0) & ~alone
            if wrong.any():
                raise InvalidRequestError(
                    "By default, First row merge engine can not accept DELETE/UPDATE_BEFORE "
                    "records",
                    hint="set `ignore-delete` to drop them",
                    segment=int(np.argmax(wrong)),
                )
        first = np.where(alone, starts, first_where(~retract, starts, rows))
        return first[first >= 0]

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a key has a -U or -D row among others, and is not to ignore it.
        """
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        with naming_key(batch, self.key_names, starts):
            picked = self.pick(kinds, starts)
        return batch if len(picked) == batch.num_rows else batch.take(pa.array(picked))
