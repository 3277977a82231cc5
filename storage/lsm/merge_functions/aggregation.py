# SPDX-License-Identifier: Apache-2.0
"""The aggregation merge engine: each column has a function of its own.

Data plane: one call of a function per column and batch. Source: SEMANTICS.md §B.3.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.merge_functions.aggregators import Aggregator
from storage.lsm.merge_functions.fold import fold_keys
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_functions.segments import Op, Segments, last_where, numbers_in, segment_lasts
from storage.lsm.merge_functions.sequence_order import SequenceOrder


@dataclasses.dataclass(frozen=True, slots=True)
class Aggregation:
    """See the module.

    Attributes:
        sequence: order of the rows of a key; None = arrival.
        lone_rows: a key with a single row is no exception.
    """

    key_names: tuple[str, ...]
    functions: Mapping[str, Aggregator]
    remove_on_delete: bool = False
    sequence: SequenceOrder | None = None
    lone_rows: bool = False

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        """See `MergeFunction`.

        Raises:
            InvalidRequestError: a function cannot retract, or its result does not fit.
        """
        lone = self._lone(batch) if self.lone_rows else None
        return fold_keys(batch, starts, self.key_names, self._fold, lone=lone)

    def _lone(self, batch: pa.RecordBatch) -> np.ndarray:
        if not all(function.keeps_lone for function in self.functions.values()):
            return np.ones(batch.num_rows, dtype=bool)
        return retractions(numbers_in(batch, VALUE_KIND))

    def _fold(self, batch: pa.RecordBatch, starts: np.ndarray) -> list[pa.Array]:
        kinds = numbers_in(batch, VALUE_KIND)
        lasts = segment_lasts(starts, batch.num_rows)
        merged = np.full(len(starts), RowKind.INSERT, dtype=np.int8)
        if self.remove_on_delete:
            merged[kinds[lasts] == RowKind.DELETE] = RowKind.DELETE
        segments = Segments(starts, batch.num_rows, self._ops(kinds, starts))
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name == VALUE_KIND:
                columns.append(pa.array(merged))
            elif name == SEQUENCE_NUMBER:
                columns.append(column.take(pa.array(lasts)))
            else:
                columns.append(self.functions[name].reduce(column, segments))
        return columns

    def _ops(self, kinds: np.ndarray, starts: np.ndarray) -> np.ndarray | None:
        rows = len(kinds)
        retract = retractions(kinds)
        if not retract.any():
            return None
        ops = np.where(retract, np.int8(Op.RETRACT), np.int8(Op.ADD))
        deletes = kinds == RowKind.DELETE
        if not (self.remove_on_delete and deletes.any()):
            return ops
        # a retraction that a -D makes obsolete fails all the same where a function has none
        before = Segments(starts, rows, np.where(deletes, np.int8(Op.SKIP), ops))
        for function in self.functions.values():
            function.require_retractable(before)
        deleted = last_where(deletes, starts, rows)
        sizes = segment_lasts(starts, rows) + 1 - starts
        obsolete = np.arange(rows) < np.repeat(deleted, sizes)
        ops[obsolete] = np.where(retract, np.int8(Op.SKIP), np.int8(Op.OBSOLETE))[obsolete]
        ops[deleted[deleted >= 0]] = Op.BASE
        return ops
