# SPDX-License-Identifier: Apache-2.0
"""The elements of arrays and the entries of maps as rows of their own, and back.

What happens to one element of one segment is a segment again: elements are sorted by (segment,
code) and reduced with the same tools as rows. Nothing is done per segment in Python.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from storage.lsm.key_words import order_words
from storage.lsm.merge_functions.aggregators.identity import Codes, paired
from storage.lsm.merge_functions.segments import (
    Segments,
    first_where,
    last_where,
    segment_ids,
    valid_mask,
)

__all__ = ["Elements", "Histories"]


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """Elements of all arrays, or entries of all maps, in the order of the rows.

    Attributes:
        parts: the elements; or the keys and the values.
        row: int64 row of each element, ascending.
        segment: int64 segment of each element, ascending.
        taken: bool per element, whether its row takes back.
        absent: bool per segment: nothing was ever added, the result is null.
        kind: Arrow type of the column.
    """

    parts: tuple[pa.Array, ...]
    row: np.ndarray
    segment: np.ndarray
    taken: np.ndarray
    absent: np.ndarray
    kind: pa.DataType

    @staticmethod
    def of(values: pa.Array, segments: Segments) -> "Elements":
        """All elements of a column of arrays or maps."""
        valid = valid_mask(values)
        present = values if valid.all() else values.filter(pa.array(valid))
        offsets = present.offsets.to_numpy()
        first, last = int(offsets[0]), int(offsets[-1])
        row = np.repeat(np.flatnonzero(valid), np.diff(offsets))
        adds = valid if segments.retract is None else valid & ~segments.retract
        takes = np.zeros(segments.rows, bool) if segments.retract is None else segments.retract
        whole = (present.keys, present.items) if pa.types.is_map(values.type) else (present.values,)
        return Elements(
            tuple(part.slice(first, last - first) for part in whole),
            row,
            segments.ids[row],
            takes[row],
            ~np.logical_or.reduceat(adds, segments.starts),
            values.type,
        )

    def only(self, keep: np.ndarray) -> "Elements":
        """Some of the elements, as a bool mask or as ascending positions."""
        chosen = np.flatnonzero(keep) if keep.dtype == bool else keep
        if len(chosen) == len(self.row):
            return self
        positions = pa.array(chosen)
        return dataclasses.replace(
            self,
            parts=tuple(part.take(positions) for part in self.parts),
            row=self.row[chosen],
            segment=self.segment[chosen],
            taken=self.taken[chosen],
        )

    def with_parts(self, parts: tuple[pa.Array, ...], chosen: np.ndarray) -> pa.Array:
        """The column again.

        Args:
            parts: elements, or keys and values, of which some rows were merged.
            chosen: for each of them an element of the same segment, ascending.

        Returns:
            An array or a map per segment.
        """
        segments = np.arange(len(self.absent) + 1, dtype=np.int64)
        offsets = np.searchsorted(self.segment[chosen], segments).astype(np.int32)
        made = pa.MapArray if pa.types.is_map(self.kind) else pa.ListArray
        mask = pa.array(self.absent) if self.absent.any() else None
        return made.from_arrays(pa.array(offsets), *parts, type=self.kind, mask=mask)

    def collected(self, keep: np.ndarray) -> pa.Array:
        """The column of the elements that stay (bool mask, or ascending positions)."""
        left = self.only(keep)
        return left.with_parts(left.parts, np.arange(len(left.row), dtype=np.int64))


@dataclasses.dataclass(frozen=True, slots=True)
class Histories:
    """What happens to one element or key of one segment, one history after the other.

    Attributes:
        order: int64 elements, sorted by history, each history in the order of the rows.
        starts: int64 positions in `order` at which histories begin.
        live: bool per position of `order`: adds, and nothing behind it takes it back.
    """

    order: np.ndarray
    starts: np.ndarray
    live: np.ndarray

    @staticmethod
    def of(elements: Elements, codes: Codes, taken: np.ndarray | None = None) -> "Histories":
        """The histories of elements.

        Args:
            elements: of a column.
            codes: one per element: which of them are the same.
            taken: bool per element: removes what came before; by default those of rows that take
                back.
        """
        count = len(elements.row)
        whole = paired([Codes(elements.segment, len(elements.absent)), codes])
        order = np.argsort(whole.numbers, kind="stable")
        ordered = whole.numbers[order]
        fresh = np.ones(count, dtype=bool)
        np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
        starts = np.flatnonzero(fresh).astype(np.int64)
        removed = (elements.taken if taken is None else taken)[order]
        if not removed.any():
            return Histories(order, starts, np.ones(count, dtype=bool))
        gone = last_where(removed, starts, count)[segment_ids(starts, count)]
        return Histories(order, starts, np.arange(count, dtype=np.int64) > gone)

    @property
    def ids(self) -> np.ndarray:
        """Number of the history of each position of `order`."""
        return segment_ids(self.starts, len(self.order))

    def first(self, mask: np.ndarray) -> np.ndarray:
        """The first position of each history where the mask (by position) is true, or -1."""
        return first_where(mask, self.starts, len(self.order))

    def last(self, mask: np.ndarray) -> np.ndarray:
        """The last position of each history where the mask (by position) is true, or -1."""
        return last_where(mask, self.starts, len(self.order))

    def greatest(self, candidates: np.ndarray, columns: Sequence[pa.Array]) -> np.ndarray:
        """Those of the candidates that none of their history exceeds.

        Args:
            candidates: bool per position.
            columns: what is compared, most significant first, one value per position; nulls are
                least.
        """
        for word, _ in order_words(columns) if len(candidates) else ():
            best = np.maximum.reduceat(np.where(candidates, word, np.uint64(0)), self.starts)
            candidates = candidates & (word == best[self.ids])
        return candidates

    def by_arrival(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Histories that are still there, by the arrival of what is there.

        Args:
            positions: chosen position of each history, or -1.

        Returns:
            Histories in the order in which their first live element came; and that element.
        """
        there = np.flatnonzero(positions >= 0)
        arrival = self.order[self.first(self.live)[there]]
        sorted_ = np.argsort(arrival)
        return there[sorted_], arrival[sorted_]
