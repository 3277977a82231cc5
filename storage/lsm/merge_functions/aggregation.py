# SPDX-License-Identifier: Apache-2.0
"""The aggregation merge engine: each column has a function of its own.

Data plane: one call of a function per column and batch. Source: SEMANTICS.md §B.3.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.merge_functions.aggregators.contract import Aggregator
from storage.lsm.merge_functions.applied import UNCHANGING, Applied, aggregate
from storage.lsm.merge_functions.fold import fold_keys
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import (
    Segments,
    first_where,
    last_where,
    segment_lasts,
    valid_mask,
)
from storage.lsm.merge_functions.sequence_order import SequenceOrder

__all__ = ["Aggregation"]


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregation:
    """See the module.

    Attributes:
        key_names: key columns.
        functions: the function of each column by name.
        ignoring: columns whose function passes over -U and -D rows.
        remove_on_delete: a -D row removes the row.
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    functions: Mapping[str, Aggregator]
    ignoring: frozenset[str] = frozenset()
    remove_on_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a function cannot take a row back, or its result does not fit.
        """
        lone = self._lone(batch) if self.lone_rows else None
        return fold_keys(batch, starts, self.key_names, self._fold, lone=lone)

    def _lone(self, batch: pa.RecordBatch) -> np.ndarray:
        if any(function.name not in UNCHANGING for function in self.functions.values()):
            return np.ones(batch.num_rows, dtype=bool)
        return retractions(batch.column(VALUE_KIND).to_numpy(zero_copy_only=False))

    def _fold(self, batch: pa.RecordBatch, starts: np.ndarray) -> list[pa.Array]:
        kinds = batch.column(VALUE_KIND).to_numpy(zero_copy_only=False)
        lasts = segment_lasts(starts, batch.num_rows)
        applied = Applied(starts, batch.num_rows, retractions(kinds))
        merged = np.full(len(starts), RowKind.INSERT, dtype=np.int8)
        keep = None
        removed = lasts
        if self.remove_on_delete:
            merged[kinds[lasts] == RowKind.DELETE] = RowKind.DELETE
            removed = last_where(kinds == RowKind.DELETE, starts, batch.num_rows)
            if (removed >= 0).any():
                self._require_retractable(batch, starts, kinds == RowKind.UPDATE_BEFORE)
                keep, applied = _restarted(applied, kinds, removed)
        found = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name == VALUE_KIND:
                found.append(pa.array(merged))
            elif name == SEQUENCE_NUMBER:
                found.append(column.take(pa.array(lasts)))
            else:
                function = self.functions[name]
                values, rows = column, applied
                if keep is not None:
                    values = column.filter(pa.array(keep))
                    rows = dataclasses.replace(
                        applied, started=_started(function, column, kinds, starts, removed)
                    )
                found.append(
                    aggregate(function, values, rows, ignore_retract=name in self.ignoring)
                )
        return found

    def _require_retractable(
        self, batch: pa.RecordBatch, starts: np.ndarray, retract: np.ndarray
    ) -> None:
        """Rows that a -D makes obsolete fail all the same where they cannot be taken back."""
        if not retract.any():
            return
        segments = Segments(starts, batch.num_rows, retract)
        for name, function in self.functions.items():
            if not function.retractable:
                function.reduce(batch.column(name), segments)


def _restarted(
    applied: Applied, kinds: np.ndarray, removed: np.ndarray
) -> tuple[np.ndarray, Applied]:
    """What is left when the -D rows remove what came before them.

    Args:
        applied: all rows.
        kinds: of the rows.
        removed: position of the last -D of each key, -1 if there is none.

    Returns:
        Which rows stay, and how they are applied.
    """
    starts, rows = applied.starts, applied.rows
    lasts = segment_lasts(starts, rows)
    begin = np.where(removed >= 0, removed, starts)
    keep = np.arange(rows) >= np.repeat(begin, lasts + 1 - starts)
    base = np.zeros(rows, dtype=bool)
    base[removed[removed >= 0]] = True
    left = lasts + 1 - begin
    return keep, Applied(
        np.cumsum(left) - left,
        int(left.sum()),
        applied.retract[keep],
        base[keep],
    )


def _started(
    function: Aggregator,
    column: pa.Array,
    kinds: np.ndarray,
    starts: np.ndarray,
    removed: np.ndarray,
) -> np.ndarray:
    """Whether rows that a -D removed opened the function of a column: bool per key."""
    opens = kinds != RowKind.DELETE
    if function.name != "first_value":
        opens = opens & valid_mask(column)
    first = first_where(opens, starts, len(kinds))
    found: np.ndarray = (first >= 0) & (first < removed)
    return found
