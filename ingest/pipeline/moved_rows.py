# SPDX-License-Identifier: Apache-2.0
"""Values of rows whose key changed, from the rows of their old keys.

Such a row comes with `MOVED` among its marks, right behind a delete of its old key. What it lacks
is in the last row of the old key before that delete, of this batch or of the table: one task has
all rows of both keys (`Target.finds_old_rows`), and rows of one key are in one source partition, in
order. Rows move rarely, so this is done row by row.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.events import MOVED
from storage.errors import InternalError
from storage.format.types.types import VALUE_KIND, RowKind

__all__ = ["Moves", "taken_moves"]

_Numbers = npt.NDArray[np.int64]
_RETRACTS = [kind.value for kind in RowKind if kind.retracts]


@dataclasses.dataclass(frozen=True, slots=True)
class Moves:
    """Rows that moved and the deletes of their old keys.

    Attributes:
        rows: numbers of the rows, in source order.
        deletes: of each the number of the delete.
        retracts: which rows of all delete.
    """

    rows: _Numbers
    deletes: _Numbers
    retracts: npt.NDArray[np.bool_]

    def ordered(self, order: _Numbers | None) -> "Moves":
        """The same after rows were put into another order."""
        if order is None or not len(self.rows):
            return self
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        return Moves(places[self.rows], places[self.deletes], self.retracts[order])

    def redirected(
        self, source: _Numbers, group: _Numbers, lacking: _Numbers
    ) -> tuple[_Numbers, _Numbers]:
        """Where the rows, and those that take values from them, have a value from.

        Args:
            source: per row the row of its key that has the value; -1: the stored one. A moved row
                counts as having it.
            group: number of each row's key.
            lacking: rows that do not have the value.

        Returns:
            (sources, the keys whose stored rows are meant where a source is -1)
        """
        groups = group.copy()
        lacks = set(lacking.tolist())
        for row, delete in zip(self.rows.tolist(), self.deletes.tolist(), strict=True):
            if row not in lacks:
                continue
            last = delete - 1
            while last >= 0 and group[last] == group[delete] and self.retracts[last]:
                last -= 1
            if last >= 0 and group[last] == group[delete]:
                found, key = source[last], groups[last]
            else:
                found, key = -1, group[delete]
            takers = (source == row) & (group == group[row])
            source[takers], groups[takers] = found, key
        return source, groups

    def needless(self, group: _Numbers) -> npt.NDArray[np.bool_]:
        """Deletes of old keys that another delete right before did already."""
        found = np.zeros(len(group), bool)
        for delete in self.deletes.tolist():
            before = delete - 1
            found[delete] = (
                before >= 0 and group[before] == group[delete] and bool(self.retracts[before])
            )
        return found


def taken_moves(rows: pa.RecordBatch, marks: pa.Array) -> tuple[pa.Array, Moves]:
    """Take the moves out of the marks.

    Args:
        rows: in source order.
        marks: field ids per row, `MOVED` among them.
    """
    ids = pc.list_flatten(marks).to_numpy()
    parents = pc.list_parent_indices(marks).to_numpy()
    moved = parents[ids == MOVED].astype(np.int64)
    retracts = np.isin(rows.column(VALUE_KIND).to_numpy(), _RETRACTS)
    if not len(moved):
        return marks, Moves(moved, moved, retracts)
    if moved[0] == 0 or not retracts[moved - 1].all():
        raise InternalError("a moved row without the delete of its old key")
    kept = ids != MOVED
    counts = np.bincount(parents[kept], minlength=len(marks))
    offsets = pa.array(np.r_[0, np.cumsum(counts)].astype(np.int32))
    values = pa.array(ids[kept].astype(np.int32))
    return (
        pa.ListArray.from_arrays(offsets, values, mask=pa.array(counts == 0)),
        Moves(moved, moved - 1, retracts),
    )
