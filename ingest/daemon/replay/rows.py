# SPDX-License-Identifier: Apache-2.0
"""Which rows a replay writes: those of the chosen records, and all later ones of the same keys.

By column, batch after batch; only rows that are written are held.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.events import MOVED, OFFSET_COLUMN, UNAVAILABLE_COLUMN
from ingest.decode.outcome import joined_rows
from storage.lsm.key_order import sort_and_group
from storage.table.table import FileStoreTable

__all__ = ["KeyedRows", "applies_again"]


def applies_again(table: FileStoreTable) -> bool:
    """Whether all changes of a key since some time can be applied again with the same end.

    True for tables that keep the last row, and for partial updates that aggregate nothing. For the
    others (append tables, aggregation, first-row) a change counts once.
    """
    options = table.options
    if not table.schema.primary_keys:
        return False
    if options.merge_engine == "deduplicate":
        return True
    adds_up = options.default_aggregate_function is not None or any(
        name.endswith(".aggregate-function") for name in table.schema.options
    )
    return options.merge_engine == "partial-update" and not adds_up


class KeyedRows:
    """Rows of one table from one source partition.

    Args:
        chosen: offsets of chosen records of the partition, ascending.
        end: rows at this offset and above are left out.
        alone: whether only rows of the chosen records are wanted.

    Attributes:
        moves: whether a later record changes a key and takes values of the row under the old one,
            which is not there any more.
    """

    def __init__(self, table: FileStoreTable, chosen: pa.Array, end: int, *, alone: bool) -> None:
        self._keys = list(table.schema.primary_keys)
        self._chosen = chosen
        self._end = end
        self._alone = alone or not applies_again(table)
        self.moves = False
        self._known: pa.RecordBatch | None = None
        self._kept: list[pa.RecordBatch] = []
        self._rows: list[pa.RecordBatch] = []

    def take_kept(self, rows: pa.RecordBatch) -> None:
        """Rows of the chosen records as the quarantine table keeps them; they come first."""
        rows = rows.filter(pc.less(rows.column(OFFSET_COLUMN), self._end))
        if rows.num_rows:
            self._know(rows)
            self._kept.append(rows)

    def take(self, rows: pa.RecordBatch) -> None:
        """The source's next rows of the table, in offset order."""
        rows = rows.filter(pc.less(rows.column(OFFSET_COLUMN), self._end))
        own = rows.filter(pc.is_in(rows.column(OFFSET_COLUMN), value_set=self._chosen))
        self._know(own)
        if self._alone:
            rows = own
        elif self._known is None:
            return
        else:
            rows = self._wanted(rows, self._known)
            self.moves |= _moves(rows) > _moves(own)
        if rows.num_rows:
            self._rows.append(rows)

    def _wanted(self, rows: pa.RecordBatch, known: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of known keys, and the other rows of the same records: a change of key is two."""
        offsets = rows.column(OFFSET_COLUMN)
        while True:
            same = rows.filter(pa.array(self._same_keys(rows, known)))
            whole = rows.filter(pc.is_in(offsets, value_set=same.column(OFFSET_COLUMN)))
            if whole.num_rows == same.num_rows:
                return whole
            found = self._know(whole)
            known = known if found is None else found

    def _know(self, rows: pa.RecordBatch) -> pa.RecordBatch | None:
        """Add the keys of rows to the known ones, and give these back."""
        if self._alone or rows.num_rows == 0:
            return self._known
        keys = rows.select(self._keys)
        both = keys if self._known is None else pa.concat_batches([self._known, keys])
        groups = sort_and_group(both, self._keys)
        firsts = groups.starts if groups.order is None else groups.order[groups.starts]
        self._known = both.take(pa.array(np.sort(firsts)))
        return self._known

    def _same_keys(self, rows: pa.RecordBatch, known: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        both = pa.concat_batches([known, rows.select(self._keys)])
        groups = sort_and_group(both, self._keys)
        order = np.arange(both.num_rows) if groups.order is None else groups.order
        counts = np.diff(np.r_[groups.starts, both.num_rows])
        of_known = np.add.reduceat((order < known.num_rows).astype(np.int64), groups.starts) > 0
        same = np.zeros(both.num_rows, np.bool_)
        same[order] = np.repeat(of_known, counts)
        return same[known.num_rows :]

    def rows(self, seen: Collection[int]) -> pa.RecordBatch | None:
        """All rows to be written, in offset order; None = there are none.

        Args:
            seen: offsets of chosen records that the source had; of the others the kept ones count.
        """
        there = pa.array(sorted(seen), pa.int64())
        parts = [
            rows.filter(pc.invert(pc.is_in(rows.column(OFFSET_COLUMN), value_set=there)))
            for rows in self._kept
        ]
        parts = [rows for rows in (*parts, *self._rows) if rows.num_rows]
        if not parts:
            return None
        rows = joined_rows(parts)
        order = np.argsort(rows.column(OFFSET_COLUMN).to_numpy(), kind="stable")
        return rows.take(pa.array(order))


def _moves(rows: pa.RecordBatch) -> int:
    """Rows that take values of the row under their old key."""
    at = rows.schema.get_field_index(UNAVAILABLE_COLUMN)
    if at < 0 or rows.num_rows == 0:
        return 0
    marks = pc.list_flatten(rows.column(at))
    return int(pc.sum(pc.equal(marks, MOVED)).as_py() or 0)
