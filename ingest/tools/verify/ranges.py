# SPDX-License-Identifier: Apache-2.0
"""Ranges of rows, each with a checksum, so that only ranges that differ are looked at closely.

Which range a row is in is a function of its key's value alone, worked out here for both sides.
So the sides need not agree on any order: not on the collation of texts, not on how floats or uuids
sort. Two kinds:

* `OrderedRanges`, where the first key column is a whole number: intervals of it. Their borders are
  the largest values of the pages in which the source is read; a part of them can be asked for with
  a condition on the column, on both sides.
* `HashRanges`, for every other key: the leading bits of the key's hash. A part of them can only be
  had by reading everything again and leaving out the rest.
"""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.tools.verify.hashes import Hashes

__all__ = ["HashRanges", "OrderedRanges", "Part", "Ranges", "Sums", "groups_of"]

Ids = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Intervals of the first key column: low < value <= high; None = without bound."""

    intervals: tuple[tuple[int | None, int | None], ...]


class OrderedRanges:
    """Intervals of the first key column, which is of a whole-number type."""

    def __init__(self) -> None:
        self._borders: list[int] = []
        self._odd = False

    @property
    def kind(self) -> str:
        """For reports."""
        return "of the key"

    @property
    def count(self) -> int:
        """Ranges so far."""
        return len(self._borders) + 1

    def grow(self, first: pa.Array) -> None:
        """Let a range end with a page of the source; call it after `ids` of the same page."""
        largest = pc.max(first).as_py()
        if largest is not None and (not self._borders or largest > self._borders[-1]):
            self._borders.append(largest)

    def ids(self, first: pa.Array, keys: Hashes) -> Ids:
        """The range of every row; a key that the lake's type cannot hold is in the first.

        Args:
            first: values of the first key column.
            keys: unused.
        """
        del keys
        self._odd |= bool(first.null_count)
        values = np.asarray(pc.fill_null(first.cast(pa.int64()), np.iinfo(np.int64).min))
        return np.searchsorted(np.array(self._borders, np.int64), values, side="left")

    def part(self, ids: Sequence[int]) -> Part | None:
        """What to ask for to get these ranges; None = everything.

        Args:
            ids: ascending.
        """
        if self._odd:
            return None
        intervals: list[tuple[int | None, int | None]] = []
        for each in ids:
            low = self._borders[each - 1] if each else None
            high = self._borders[each] if each < len(self._borders) else None
            if intervals and intervals[-1][1] == low and low is not None:
                intervals[-1] = (intervals[-1][0], high)
            else:
                intervals.append((low, high))
        return Part(tuple(intervals))


class HashRanges:
    """Equal shares of the hashes of keys.

    Args:
        rows: expected rows.
        rows_per_range: wanted rows of a range.
    """

    _MOST = 1 << 16

    def __init__(self, rows: int, rows_per_range: int) -> None:
        wanted = max(16, min(self._MOST, rows // max(1, rows_per_range)))
        self._bits = int(wanted - 1).bit_length()

    @property
    def kind(self) -> str:
        """For reports."""
        return "of the key's hash"

    @property
    def count(self) -> int:
        """Ranges."""
        return 1 << self._bits

    def grow(self, first: pa.Array) -> None:
        """Nothing: the ranges are fixed."""

    def ids(self, first: pa.Array, keys: Hashes) -> Ids:
        """The range of every row.

        Args:
            first: unused.
            keys: hashes of the keys.
        """
        del first
        return (keys >> np.uint64(64 - self._bits)).astype(np.int64)

    def part(self, ids: Sequence[int]) -> Part | None:
        """None: everything is read again."""
        del ids
        return None


Ranges = OrderedRanges | HashRanges


class Sums:
    """Checksums of one side: per range the rows, and sum and exclusive or of their hashes."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)
        self.sums = np.zeros(0, np.uint64)
        self.xors = np.zeros(0, np.uint64)

    def add(self, ids: Ids, hashes: Hashes, ranges: int) -> None:
        """Count rows in.

        Args:
            ids: range of each row.
            hashes: of each row.
            ranges: how many ranges there are.
        """
        self.resize(ranges)
        if not len(ids):
            return
        order = np.argsort(ids, kind="stable")
        sorted_ids, sorted_hashes = ids[order], hashes[order]
        starts = np.flatnonzero(np.diff(sorted_ids, prepend=-1))
        touched = sorted_ids[starts]
        self.counts[touched] += np.diff(starts, append=len(ids))
        self.sums[touched] += np.add.reduceat(sorted_hashes, starts)
        self.xors[touched] ^= np.bitwise_xor.reduceat(sorted_hashes, starts)

    def resize(self, ranges: int) -> None:
        """Have room for more ranges."""
        more = ranges - len(self.counts)
        if more > 0:
            self.counts = np.concatenate((self.counts, np.zeros(more, np.int64)))
            self.sums = np.concatenate((self.sums, np.zeros(more, np.uint64)))
            self.xors = np.concatenate((self.xors, np.zeros(more, np.uint64)))

    @property
    def rows(self) -> int:
        """Rows of all ranges."""
        return int(self.counts.sum())

    @property
    def checksum(self) -> str:
        """Of all ranges: 32 hexadecimal digits."""
        total = np.add.reduce(self.sums, dtype=np.uint64)
        mixed = np.bitwise_xor.reduce(self.xors) if len(self.xors) else np.uint64(0)
        return f"{int(total):016x}{int(mixed):016x}"

    def differing(self, other: "Sums") -> list[int]:
        """Ranges, ascending, whose checksums are not those of the other side."""
        ranges = max(len(self.counts), len(other.counts))
        self.resize(ranges)
        other.resize(ranges)
        differs = self.counts != other.counts
        differs |= (self.sums != other.sums) | (self.xors != other.xors)
        return [int(each) for each in np.flatnonzero(differs)]


def groups_of(ids: Sequence[int], sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Cut ranges into groups of at most so many rows, but of one range at least.

    Args:
        ids: ranges.
        sizes: rows of each.
        most: rows of a group.
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ids):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, bisect.bisect_right(ends, before + most))
        yield list(ids[start:end])
        start = end
