# SPDX-License-Identifier: Apache-2.0
"""The comparison: both sides' checksums by range, then the keys of ranges that differ.

1. The source is read once, then the lake; of every row only its hash is kept, added up by range.
2. Ranges whose checksums differ are read again, as many together as `GROUP_ROWS` allows; of their
   rows keys and hashes are kept, and joined by the hash of the key.

What comes out are candidates: a side may have moved between the two reads. `recheck` reads them
again and decides.
"""

import dataclasses
import enum
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.tools.verify.hashes import Hashes
from ingest.tools.verify.ranges import (
    HashRanges,
    OrderedRanges,
    Part,
    Ranges,
    Sums,
    groups_of,
)
from ingest.tools.verify.rows import Columns, HashedRows, Side, hashed

__all__ = ["Candidates", "Kind", "Scanned", "find_candidates", "joined_keys", "ranges_for", "scan"]

GROUP_ROWS = 2_000_000
"""Rows of one side whose keys and hashes are in memory at once: about 100 MB with short keys."""

Indices = npt.NDArray[np.int64]


class Kind(enum.Enum):
    """How a key differs; the value is what a report says."""

    MISSING = "missing in the lake"
    EXTRA = "extra in the lake"
    DIFFERENT = "different"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """The first pass.

    Attributes:
        source: checksums of the source.
        lake: checksums of the lake.
        ranges: the ranges.
        differing: those that differ, ascending.
    """

    source: Sums
    lake: Sums
    ranges: Ranges
    differing: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Keys that differ, as far as one read of each side can tell.

    Attributes:
        rows: one row per key, of the side that has it, the source where both do; its columns are
            the key's.
        kinds: how each differs.
        complete: whether these are all of them; False = the search was ended at the limit.
    """

    rows: HashedRows
    kinds: tuple[Kind, ...]
    complete: bool


def scan(source: Side, lake: Side, columns: Columns, ranges: Ranges) -> Scanned:
    """The first pass: checksums of every range.

    Raises:
        LakewardError: a side cannot be read.
    """
    source_sums, lake_sums = Sums(), Sums()
    for side, sums in ((source, source_sums), (lake, lake_sums)):
        for rows in side.batches():
            found = hashed(rows, columns)
            first = rows.batch.column(0)
            ids = ranges.ids(first, found.keys)
            if sums is source_sums:
                ranges.grow(first)
            sums.add(ids, found.values, ranges.count)
    differing = source_sums.differing(lake_sums)
    return Scanned(source_sums, lake_sums, ranges, tuple(differing))


def find_candidates(
    source: Side, lake: Side, columns: Columns, scanned: Scanned, *, limit: int
) -> Candidates:
    """The second pass: keys of the ranges that differ.

    Args:
        source: as in `scan`.
        lake: as in `scan`.
        columns: as in `scan`.
        scanned: the first pass.
        limit: end the search when so many keys are found.
    """
    schema = pa.schema([columns.schema.field(i) for i in range(len(columns.keys))])
    parts: list[HashedRows] = []
    kinds: list[Kind] = []
    complete = True
    for group in _groups(scanned):
        if len(kinds) >= limit:
            complete = False
            break
        part = scanned.ranges.part(group)
        sides = [
            HashedRows.joined(
                list(_in_group(side, part, columns, scanned.ranges, group, schema)), schema
            )
            for side in (source, lake)
        ]
        found, its_kinds = joined_keys(sides[0], sides[1], schema)
        parts.append(found)
        kinds += its_kinds
    return Candidates(HashedRows.joined(parts, schema), tuple(kinds), complete)


def _groups(scanned: Scanned) -> Iterator[list[int]]:
    sizes = [
        max(int(scanned.source.counts[each]), int(scanned.lake.counts[each]))
        for each in scanned.differing
    ]
    return groups_of(scanned.differing, sizes, GROUP_ROWS)


def _in_group(
    side: Side,
    part: Part | None,
    columns: Columns,
    ranges: Ranges,
    group: Sequence[int],
    schema: pa.Schema,
) -> Iterator[HashedRows]:
    wanted = np.zeros(ranges.count, bool)
    wanted[list(group)] = True
    for rows in side.batches(part):
        found = hashed(rows, columns)
        chosen = np.flatnonzero(wanted[ranges.ids(rows.batch.column(0), found.keys)])
        if len(chosen):
            kept = found.taken(chosen)
            yield _keys_alone(kept, schema)


def _keys_alone(found: HashedRows, schema: pa.Schema) -> HashedRows:
    rows = found.rows
    odd = tuple(each for each in rows.odd if each.column in schema.names)
    kept = dataclasses.replace(rows, batch=rows.batch.select(schema.names), odd=odd)
    return dataclasses.replace(found, rows=kept)


def joined_keys(
    source: HashedRows, lake: HashedRows, schema: pa.Schema
) -> tuple[HashedRows, list[Kind]]:
    """Keys of which the sides have different rows.

    A key that a side has several times is compared by the number of its rows, then by the sum of
    their hashes.

    Returns:
        One row per key as in `Candidates`, and how each differs.
    """
    one, two = _Grouped.of(source), _Grouped.of(lake)
    at = np.searchsorted(two.keys, one.keys)
    at_or_last = np.minimum(at, max(0, len(two.keys) - 1))
    both = np.zeros(len(one.keys), bool)
    if len(two.keys):
        both = two.keys[at_or_last] == one.keys
    matches = at_or_last[both]
    more = one.counts[both] > two.counts[matches]
    fewer = one.counts[both] < two.counts[matches]
    other = ~more & ~fewer & (one.sums[both] != two.sums[matches])
    unmatched = np.ones(len(two.keys), bool)
    unmatched[matches] = False
    missing = np.concatenate((one.rows[~both], one.rows[both][more]))
    different = one.rows[both][other]
    extra = np.concatenate((two.rows[unmatched], two.rows[matches][fewer]))
    found = HashedRows.joined(
        [source.taken(missing), source.taken(different), lake.taken(extra)], schema
    )
    kinds = [Kind.MISSING] * len(missing) + [Kind.DIFFERENT] * len(different)
    return found, kinds + [Kind.EXTRA] * len(extra)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Grouped:
    """Rows of one side by the hash of their key, ascending.

    Attributes:
        keys: the hashes, each once.
        counts: rows with each.
        sums: of the hashes of these rows.
        rows: index of the first of these rows.
    """

    keys: Hashes
    counts: Indices
    sums: Hashes
    rows: Indices

    @staticmethod
    def of(found: HashedRows) -> "_Grouped":
        count = len(found.keys)
        if not count:
            nothing = np.zeros(0, np.int64)
            return _Grouped(nothing.view(np.uint64), nothing, nothing.view(np.uint64), nothing)
        order = np.argsort(found.keys, kind="stable")
        keys, values = found.keys[order], found.values[order]
        starts = np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))
        counts = np.diff(starts, append=count)
        return _Grouped(keys[starts], counts, np.add.reduceat(values, starts), order[starts])


def ranges_for(columns: Columns, *, ordered: bool, rows: int, rows_per_range: int) -> Ranges:
    """The ranges of a comparison.

    Args:
        columns: what is compared.
        ordered: whether the source can be asked for intervals of the first key column.
        rows: expected rows.
        rows_per_range: wanted rows of a range.
    """
    first = columns.schema.field(0).type
    if ordered and columns.keyed and pa.types.is_integer(first):
        return OrderedRanges()
    return HashRanges(rows, rows_per_range)
