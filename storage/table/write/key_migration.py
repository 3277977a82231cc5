# SPDX-License-Identifier: Apache-2.0
"""Migration of keys between partitions, as arrays: which rows share a bucket, which keys move.

Source: SEMANTICS.md §G.3. Works for `cross_partition`, whose index says where keys were before the
batch. A location is a partition number and a bucket in one integer.
"""

import dataclasses
import pathlib

import numpy as np
import numpy.typing as npt

from storage.format.row.key_hash import KeyHashes
from storage.table.write.key_index import ABSENT, KeyIndex, sorted_order

__all__ = [
    "BUCKET_BITS",
    "BUCKET_MASK",
    "Chains",
    "KeySegments",
    "LeftLocations",
    "deletes_without_row",
    "first_partitions",
    "left_locations",
    "partitions_of_deletes",
    "segments_of",
]

BUCKET_BITS = 31
BUCKET_MASK = (1 << BUCKET_BITS) - 1

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Spreads partition numbers over 64 bits, each its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chains:
    """Rows by key: those of one key after one another, in arrival order.

    Attributes:
        order: row numbers by chain.
        starts: True in `order` where a chain begins.
    """

    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.bool_]

    @staticmethod
    def of(hashes: KeyHashes) -> "Chains":
        """The chains of rows with these keys."""
        order = sorted_order(hashes[:, 0], hashes[:, 1])
        ordered = hashes[order]
        starts = np.ones(len(order), bool)
        starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        return Chains(order, starts)

    @property
    def first_rows(self) -> npt.NDArray[np.int64]:
        """First row of each chain."""
        return self.order[self.starts]

    @property
    def last_rows(self) -> npt.NDArray[np.int64]:
        """Last row of each chain."""
        return self.order[np.r_[self.starts[1:], True]]


class LeftLocations:
    """What keys left in the commit that is being written: a bucket per key and partition.

    Args:
        directory: for what memory should not hold; is made when that comes, and removed.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._index = KeyIndex(directory)

    def find(self, hashes: KeyHashes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where each key was in a partition (by its number) before it left; `ABSENT` = nowhere."""
        return self._index.find(_with_partition(hashes, numbers))

    def put(self, hashes: KeyHashes, locations: npt.NDArray[np.int64]) -> None:
        """Keys leave locations. A key leaves no other location of the same partition."""
        both = _with_partition(hashes, locations >> BUCKET_BITS)
        once = Chains.of(both).first_rows
        self._index.put(both[once], locations[once])

    def clear(self) -> None:
        """Forget everything."""
        if self._index.run_count:
            self._index.close()


@dataclasses.dataclass(frozen=True, slots=True)
class KeySegments:
    """Rows of a key that follow one another in one partition are a segment, and share a bucket.

    Attributes:
        source: per row, the row whose bucket it has: the first one of its key in its partition.
        inherited: bucket of such first rows where it is known; elsewhere undefined.
        fresh_rows: first rows that need a bucket, in arrival order.
        return_rows: rows with which a key comes back to a partition that it had left.
    """

    source: npt.NDArray[np.int64]
    inherited: npt.NDArray[np.int64]
    fresh_rows: npt.NDArray[np.int64]
    return_rows: npt.NDArray[np.int64]


def segments_of(
    chains: Chains,
    numbers: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    hashes: KeyHashes,
    left: LeftLocations,
) -> KeySegments:
    """Split chains into segments.

    Args:
        chains: rows by key.
        numbers: partition number per row.
        before: location of each chain's key in the index.
        hashes: keys of the rows.
        left: what keys left in earlier batches of the same commit.
    """
    order, starts = chains.order, chains.starts
    ordered = numbers[order]
    enters = starts.copy()
    enters[1:] |= ordered[1:] != ordered[:-1]
    heads = order[np.maximum.accumulate(np.where(enters, np.arange(len(order)), 0))]
    source = np.empty(len(order), np.int64)
    source[order] = heads
    inherited = np.zeros(len(order), np.int64)
    first_rows = chains.first_rows
    inherited[first_rows] = before & BUCKET_MASK
    known = np.zeros(len(order), bool)
    known[first_rows] = (before != ABSENT) & (before >> BUCKET_BITS == numbers[first_rows])
    entering = order[enters]
    new = ~known[entering]
    owner = (np.cumsum(starts) - 1)[enters]
    moving = new & (~starts[enters] | (before[owner] != ABSENT))
    returns = np.zeros(0, np.int64)
    if moving.any():
        migrates = np.zeros(len(before), bool)
        migrates[owner[moving]] = True
        chosen = np.flatnonzero(migrates[owner])
        rows, owner = entering[chosen], owner[chosen]
        by_partition = np.lexsort((numbers[rows], owner))
        rows, owner = rows[by_partition], owner[by_partition]
        again = np.zeros(len(rows), bool)
        again[1:] = (owner[1:] == owner[:-1]) & (numbers[rows[1:]] == numbers[rows[:-1]])
        first = rows[np.maximum.accumulate(np.where(again, 0, np.arange(len(rows))))]
        joined = np.arange(len(order))
        joined[rows] = first
        source = joined[source]
        was = _earlier_locations(rows[~again], owner[~again], numbers, before, hashes, left)
        found = was != ABSENT
        inherited[rows[~again][found]] = was[found] & BUCKET_MASK
        returning = np.zeros(len(order), bool)
        returning[rows[again]] = True
        returning[rows[~again][found]] = True
        returning &= ~known
        new &= ~returning[entering]
        returns = np.flatnonzero(returning)
    return KeySegments(source, inherited, np.sort(entering[new]), returns)


def _earlier_locations(
    rows: npt.NDArray[np.int64],
    owner: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    hashes: KeyHashes,
    left: LeftLocations,
) -> npt.NDArray[np.int64]:
    """Where the keys of rows are or were, in the partitions of these rows."""
    was = before[owner]
    was = np.where((was != ABSENT) & (was >> BUCKET_BITS == numbers[rows]), was, ABSENT)
    unknown = np.flatnonzero(was == ABSENT)
    was[unknown] = left.find(hashes[rows[unknown]], numbers[rows[unknown]])
    return was


def first_partitions(
    chains: Chains, numbers: npt.NDArray[np.int64], before: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Per row the number of the partition that its key came to first."""
    first = np.where(before != ABSENT, before >> BUCKET_BITS, numbers[chains.first_rows])
    targets = np.empty(len(chains.order), np.int64)
    targets[chains.order] = first[np.cumsum(chains.starts) - 1]
    return targets


def partitions_of_deletes(
    chains: Chains,
    numbers: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    deletes: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """The partition numbers, those of deletes replaced by where their key is at that point.

    A delete of a key without a row keeps its own; see `deletes_without_row`.
    """
    order, starts = chains.order, chains.starts
    last = _last_put(chains, deletes)
    at = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    was = before[np.cumsum(starts) - 1]
    indexed = np.where(was != ABSENT, was >> BUCKET_BITS, numbers[order])
    targets = np.empty(len(order), np.int64)
    targets[order] = np.where(last >= at, numbers[order[np.maximum(last, 0)]], indexed)
    return np.where(deletes, targets, numbers)


def deletes_without_row(
    chains: Chains, before: npt.NDArray[np.int64], deletes: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Deletes of keys that have no row when they arrive."""
    order, starts = chains.order, chains.starts
    at = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    unknown = (_last_put(chains, deletes) < at) & (before[np.cumsum(starts) - 1] == ABSENT)
    lost = np.empty(len(order), bool)
    lost[order] = unknown
    return lost & deletes


def _last_put(chains: Chains, deletes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """By chain order, the position of the last row up to each that is no delete; -1: none."""
    positions = np.arange(len(chains.order))
    return np.maximum.accumulate(np.where(deletes[chains.order], -1, positions))


def left_locations(
    chains: Chains, locations: npt.NDArray[np.int64], before: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Per row the location in another partition that its key leaves with it; `ABSENT` = none."""
    order, starts = chains.order, chains.starts
    previous = np.empty(len(order), np.int64)
    previous[1:] = locations[order[:-1]]
    previous[starts] = before
    moves = (previous != ABSENT) & (previous >> BUCKET_BITS != locations[order] >> BUCKET_BITS)
    left = np.full(len(order), ABSENT, np.int64)
    left[order[moves]] = previous[moves]
    return left


def _with_partition(hashes: KeyHashes, numbers: npt.NDArray[np.int64]) -> KeyHashes:
    """Hashes of keys in partitions."""
    mixed = hashes.copy()
    mixed[:, 1] ^= numbers.astype(np.uint64) * _ODD
    return mixed
