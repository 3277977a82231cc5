# SPDX-License-Identifier: Apache-2.0
"""Values that the source did not send, on their way through a transform.

Rows come with the ids of such values in `UNAVAILABLE_COLUMN` and leave with those of the table's
columns. A column that is computed from nothing but such values is such a value, too: what the table
holds was computed from the same. An expression that also looks at something else has no result.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.events import HELD_ONLY, UNAVAILABLE_COLUMN
from ingest.transform.functions.cells import Mask

__all__ = ["Unsent", "split_unsent"]

_MARKS = pa.field(UNAVAILABLE_COLUMN, pa.list_(pa.int32()))


@dataclasses.dataclass(slots=True, eq=False)
class Unsent:
    """Masks of rows, by field id.

    Attributes:
        num_rows: of each mask.
        masks: where a value was not sent.
        held_only: rows that count only if the table holds one of their key.
    """

    num_rows: int
    masks: dict[int, Mask]
    held_only: Mask

    @classmethod
    def none(cls, num_rows: int) -> "Unsent":
        """Nothing marked."""
        return cls(num_rows, {}, np.zeros(num_rows, bool))

    def of(self, number: int) -> Mask:
        """Rows without the value of a field."""
        found = self.masks.get(number)
        return np.zeros(self.num_rows, bool) if found is None else found

    def any_of(self, numbers: Iterable[int]) -> Mask:
        """Rows without the value of one of some fields."""
        return np.logical_or.reduce([self.of(n) for n in numbers] or [self._none()])

    def all_of(self, numbers: Iterable[int]) -> Mask:
        """Rows that lack the values of all of some fields."""
        masks = [self.of(number) for number in numbers]
        return np.logical_and.reduce(masks) if masks else self._none()

    def _none(self) -> Mask:
        return np.zeros(self.num_rows, bool)

    def mark(self, number: int, rows: Mask) -> None:
        """Note rows whose value of a field is to be taken from the table."""
        if rows.any():
            self.masks[number] = self.of(number) | rows

    def column(self) -> pa.Array | None:
        """The marks as a column; None when there are none."""
        masks = {n: mask for n, mask in sorted(self.masks.items()) if mask.any()}
        if self.held_only.any():
            masks = {HELD_ONLY: self.held_only, **masks}
        if not masks:
            return None
        ids = np.array([*masks], np.int32)
        table = np.array([*masks.values()]).T
        offsets = np.r_[0, np.cumsum(table.sum(axis=1))].astype(np.int32)
        values = pa.array(ids[np.nonzero(table)[1]])
        return pa.ListArray.from_arrays(
            pa.array(offsets), values, mask=pa.array(~table.any(axis=1))
        )

    def with_column(self, rows: pa.RecordBatch, keep: Mask | None) -> pa.RecordBatch:
        """Rows with the marks of those that were kept behind them, if there are any."""
        marks = self.column()
        if marks is None:
            return rows
        if keep is not None:
            marks = marks.filter(pa.array(keep))
        return rows if marks.null_count == len(marks) else rows.append_column(_MARKS, marks)


def split_unsent(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Unsent]:
    """Rows without their marks, and the marks."""
    count = rows.num_rows
    at = rows.schema.get_field_index(UNAVAILABLE_COLUMN)
    masks: dict[int, Mask] = {}
    if at >= 0:
        marks = rows.column(at)
        rows = rows.remove_column(at)
        places = pc.list_parent_indices(marks).to_numpy()
        ids = pc.list_flatten(marks).to_numpy()
        for number in np.unique(ids).tolist():
            masks[number] = np.zeros(count, bool)
            masks[number][places[ids == number]] = True
    return rows, Unsent(count, masks, np.zeros(count, bool))
