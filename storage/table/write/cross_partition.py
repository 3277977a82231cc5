# SPDX-License-Identifier: Apache-2.0
"""Cross-partition upserts: a key lives in one partition of the table, whichever row came last.

Source: SEMANTICS.md §G.3. The primary key lacks a partition key, so an index of all keys of the
table holds the location of each. It is built from the table when a writer opens and kept on local
disk. A row whose key is in another partition than its own is handled as the merge engine
demands (`MovedRow`); deduplicate deletes the row there and then inserts the new one. A delete
removes the row of its key in any partition: its partition columns may be null, as the source may
send the key alone. (Java writes it to the partition that it names, too, where it finds
nothing.)

A key that returns, before the commit, to a partition that it left in the same commit goes to the
bucket that it left. Java gives it any bucket with room; but the changes of one snapshot, read
bucket by bucket, would then hold the same key in two buckets of one partition, and a reader that
applies the -D of one after the +U of the other loses the row. Such a bucket may slightly exceed its
target, when other keys filled it in the meantime. Across commits keys are assigned as in
Java: where compactions lag and emit the changes of several commits at once, a follower of such a
table has to apply the changes of a snapshot in an order that fits its state.
"""

import concurrent.futures
import dataclasses
import enum
import itertools
import logging
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.row.bucket import KeyHashes, key_hashes
from storage.format.types.types import VALUE_KIND, RowKind
from storage.options.options import TableOptions
from storage.table.core import TableCore
from storage.table.read.read import TableRead
from storage.table.scan.scan import Split, TableScan
from storage.table.write.rows_by_bucket import key_column, partition_codes, split_codes

# An on-disk map from key hashes to locations, looked up and changed by whole arrays.
#
# A small log-structured tree of sorted arrays (docs/adr/storage/0006): new entries become a
# run in memory; a run that has reached the size of its older neighbour is merged into it; a run
# too large for memory lives in mapped files. A look-up sorts its hashes once and searches them in
# each run, newest first. Knows nothing of tables; `cross_partition` gives locations their meaning.


Locations = npt.NDArray[np.int64]

ABSENT = -1
"""Place of a key that the index does not have."""

_MEMORY_ENTRIES = 2_000_000
"""Entries of a run kept in memory, 24 bytes each; larger runs go to disk."""

_MERGED_ENTRIES = 2_000_000
"""Entries of both runs merged at a time; bounds memory to some 200 MB."""

_FEW_ROWS = 1 << 18
"""Hashes that are sorted by their first bits; with more, too many of these collide."""

_ENTRY = np.dtype([("high", np.uint64), ("low", np.uint64), ("location", np.int64)])


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """Entries ascending by (high, low), each key once. Arrays, or maps of files.

    Attributes:
        high: first half of the hashes; kept apart so that searching touches nothing else.
        low: second half.
        location: where the key is.
        time_s: when the entry was made [s since the epoch]; None in an index without end of life.
        files: what holds them; empty in memory.
    """

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    location: Locations
    time_s: npt.NDArray[np.uint32] | None
    files: tuple[pathlib.Path, ...] = ()

    def __len__(self) -> int:
        return len(self.high)

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        arrays = (self.high, self.low, self.location)
        return arrays if self.time_s is None else (*arrays, self.time_s)

    def between(self, start: int, end: int) -> "_Run":
        return _run([np.asarray(column[start:end]) for column in self.columns])


def _run(columns: list[npt.NDArray[Any]], files: tuple[pathlib.Path, ...] = ()) -> _Run:
    time_s = columns[3] if len(columns) > 3 else None
    return _Run(columns[0], columns[1], columns[2], time_s, files)


class KeyIndex:
    """See the module. Not thread-safe; belongs to one process.

    Invariants: among runs of one key the newest decides; the sizes of the runs at least double
    from newest to oldest, so that there are few.

    Args:
        directory: created when the first run goes to disk, and removed by `close`.
        ttl_s: entries older than this are ignored; None: entries do not expire.
        memory_entries: runs up to this length stay in memory.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        *,
        ttl_s: int | None = None,
        memory_entries: int = _MEMORY_ENTRIES,
    ) -> None:
        self._directory = directory
        self._ttl_s = ttl_s
        self._memory_entries = memory_entries
        self._runs: list[_Run] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """Entries; a key counts once per run that has it (exact after `merge_all`)."""
        return sum(map(len, self._runs))

    @property
    def run_count(self) -> int:
        """Runs a look-up searches."""
        return len(self._runs)

    @property
    def disk_bytes(self) -> int:
        """Size of the files [bytes]."""
        return sum(path.stat().st_size for run in self._runs for path in run.files)

    @property
    def is_incomplete(self) -> bool:
        """Whether files of the index were removed; it must be rebuilt then."""
        return not all(path.exists() for run in self._runs for path in run.files)

    def find(self, hashes: KeyHashes, now_s: int = 0) -> Locations:
        """Where keys are, shape (keys,); `ABSENT` where the index does not have the key.

        Args:
            hashes: shape (keys, 2).
            now_s: time [s since the epoch], for entries that have reached their end of life.
        """
        locations = np.full(len(hashes), ABSENT, np.int64)
        if not self._runs or not len(hashes):
            return locations
        order = sorted_order(
            hashes[:, 0], hashes[:, 1]
        )  # neighbouring searches touch the same memory
        high, low = hashes[order, 0], hashes[order, 1]
        pending = np.arange(len(order))
        for run in reversed(self._runs):
            positions = _search(run, high[pending], low[pending])
            hits = positions >= 0
            rows, positions = pending[hits], positions[hits]
            values = run.location[positions]
            if self._ttl_s is not None and run.time_s is not None:
                alive = run.time_s[positions] >= now_s - self._ttl_s
                values = np.where(alive, values, ABSENT)
            locations[order[rows]] = values
            pending = pending[~hits]
            if not len(pending):
                break
        return locations

    def put(self, hashes: KeyHashes, locations: Locations, now_s: int = 0) -> None:
        """Set the locations of new or existing keys.

        Args:
            hashes: shape (keys, 2), each key once.
            locations: shape (keys,), none negative.
            now_s: time of the entries [s since the epoch].
        """
        if not len(hashes):
            return
        columns: list[npt.NDArray[Any]] = [hashes[:, 0], hashes[:, 1], locations.astype(np.int64)]
        if self._ttl_s is not None:
            columns.append(np.full(len(hashes), max(now_s, 0), np.uint32))
        order = sorted_order(columns[0], columns[1])
        self._runs.append(_run([column[order] for column in columns]))
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            self._merge_newest(now_s)

    def merge_all(self, now_s: int = 0) -> None:
        """Merge all runs into one: each key once, none past its end of life."""
        while len(self._runs) > 1:
            self._merge_newest(now_s)

    def close(self) -> None:
        """Forget everything and remove the files. May be called twice."""
        self._runs = []
        shutil.rmtree(self._directory, ignore_errors=True)

    def _merge_newest(self, now_s: int) -> None:
        newer, older = self._runs[-1], self._runs[-2]
        pieces = _merged(older, newer, None if self._ttl_s is None else now_s - self._ttl_s)
        if len(newer) + len(older) <= self._memory_entries:
            merged = _join_runs(list(pieces))
        else:
            merged = self._write_run(pieces)
        self._runs[-2:] = [merged] if len(merged) else []
        for path in (*newer.files, *older.files):
            path.unlink(missing_ok=True)

    def _write_run(self, pieces: Iterator[_Run]) -> _Run:
        self._directory.mkdir(parents=True, exist_ok=True)
        names = ("high", "low", "location") + (() if self._ttl_s is None else ("time",))
        number = next(self._numbers)
        paths = tuple(self._directory / f"run-{number}.{name}" for name in names)
        types: list[npt.DTypeLike] = []
        files = [path.open("wb") for path in paths]
        try:
            for piece in pieces:
                types = [column.dtype for column in piece.columns]
                for file, column in zip(files, piece.columns, strict=True):
                    column.tofile(file)
        finally:
            for file in files:
                file.close()
        if not types or paths[0].stat().st_size == 0:
            for path in paths:
                path.unlink()
            return _join_runs([])
        maps = [np.memmap(path, type_, "r") for path, type_ in zip(paths, types, strict=True)]
        return _run(cast(list[npt.NDArray[Any]], maps), paths)


def _search(
    run: _Run, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Positions of hashes that ascend by their first half; -1 where the run has none."""
    positions = np.searchsorted(run.high, high)
    last = len(run) - 1
    inside = np.minimum(positions, last)
    same_high = run.high[inside] == high
    same = same_high & (run.low[inside] == low)
    out = np.where(same, inside, -1)
    open_rows = np.flatnonzero(same_high & ~same)
    step = 0
    while len(open_rows):  # first halves collide: check the entries that follow
        step += 1
        at = positions[open_rows] + step
        inside = np.minimum(at, last)
        alike = (at <= last) & (run.high[inside] == high[open_rows])
        same = alike & (run.low[inside] == low[open_rows])
        out[open_rows[same]] = inside[same]
        open_rows = open_rows[alike & ~same]
    return out


def sorted_order(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Positions ascending by (high, low), equal ones in their order."""
    order = _order_of_few(high) if len(high) <= _FEW_ROWS else None
    if order is None:
        order = np.argsort(high, kind="stable")
    ordered = high[order]
    ties = ordered[1:] == ordered[:-1]
    if ties.any():
        lows = low[order]
        if (ties & (lows[1:] < lows[:-1])).any():
            return np.lexsort((low, high))
    return order


def _order_of_few(high: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp] | None:
    """Stable order of hashes; None if too many of their first bits collide.

    One sort of plain integers, the row number in the last bits: several times as fast as an
    argsort.
    """
    bits = np.uint64(max(1, len(high) - 1).bit_length())
    words = (high >> bits << bits) | np.arange(len(high), dtype=np.uint64)
    words.sort()
    order = (words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.intp)
    ordered = high[order]
    return None if (ordered[1:] < ordered[:-1]).any() else order


def _merged(older: _Run, newer: _Run, since_s: int | None) -> Iterator[_Run]:
    """The entries of two runs in order, in pieces; of one key only the newer, none too old."""
    total = len(older) + len(newer)
    count = -(-total // _MERGED_ENTRIES)
    larger = older if len(older) >= len(newer) else newer
    starts = np.linspace(0, len(larger), count, endpoint=False).astype(np.int64)[1:]
    edges = np.unique(np.asarray(larger.high[starts]))
    cuts = [[0, *np.searchsorted(run.high, edges).tolist(), len(run)] for run in (older, newer)]
    for old_start, old_end, new_start, new_end in zip(
        cuts[0][:-1], cuts[0][1:], cuts[1][:-1], cuts[1][1:], strict=True
    ):
        union = _join_runs([older.between(old_start, old_end), newer.between(new_start, new_end)])
        order = sorted_order(union.high, union.low)
        high, low = union.high[order], union.low[order]
        keep = np.ones(len(order), bool)
        keep[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])  # the last one is the newest
        if since_s is not None and union.time_s is not None:
            keep &= union.time_s[order] >= since_s
        chosen = order[keep]
        yield _run([column[chosen] for column in union.columns])


def _join_runs(runs: list[_Run]) -> _Run:
    if not runs:
        return _run([np.empty(0, _ENTRY[name]) for name in ("high", "low", "location")])
    return _run(
        [np.concatenate(columns) for columns in zip(*(r.columns for r in runs), strict=True)]
    )


BUCKET_BITS = 31
BUCKET_MASK = (1 << BUCKET_BITS) - 1
"""A location is a partition number and a bucket in one integer."""

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
    """Locations that keys left in the current commit: a bucket per key and partition.

    Args:
        directory: for what exceeds memory; created on demand, and removed.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._index = KeyIndex(directory)

    def find(self, hashes: KeyHashes, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where each key was in a partition (by its number) before it left; `ABSENT` = nowhere."""
        return self._index.find(_with_partition(hashes, numbers))

    def put(self, hashes: KeyHashes, locations: npt.NDArray[np.int64]) -> None:
        """Keys leave locations. A key leaves no other location of the same partition."""
        keys = _with_partition(hashes, locations >> BUCKET_BITS)
        firsts = Chains.of(keys).first_rows
        self._index.put(keys[firsts], locations[firsts])

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
        return_rows: rows with which a key returns to a partition that it had left.
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
    left_locations: LeftLocations,
) -> KeySegments:
    """Split chains into segments.

    Args:
        chains: rows by key.
        numbers: partition number per row.
        before: location of each chain's key in the index.
        hashes: keys of the rows.
        left_locations: what keys left in earlier batches of the same commit.
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
    stays = np.zeros(len(order), bool)
    stays[first_rows] = (before != ABSENT) & (before >> BUCKET_BITS == numbers[first_rows])
    entering = order[enters]
    new = ~stays[entering]
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
        repeats = np.zeros(len(rows), bool)
        repeats[1:] = (owner[1:] == owner[:-1]) & (numbers[rows[1:]] == numbers[rows[:-1]])
        first = rows[np.maximum.accumulate(np.where(repeats, 0, np.arange(len(rows))))]
        joined = np.arange(len(order))
        joined[rows] = first
        source = joined[source]
        earlier = _earlier_locations(
            rows[~repeats], owner[~repeats], numbers, before, hashes, left_locations
        )
        hits = earlier != ABSENT
        inherited[rows[~repeats][hits]] = earlier[hits] & BUCKET_MASK
        returning = np.zeros(len(order), bool)
        returning[rows[repeats]] = True
        returning[rows[~repeats][hits]] = True
        returning &= ~stays
        new &= ~returning[entering]
        returns = np.flatnonzero(returning)
    return KeySegments(source, inherited, np.sort(entering[new]), returns)


def _earlier_locations(
    rows: npt.NDArray[np.int64],
    owner: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64],
    before: npt.NDArray[np.int64],
    hashes: KeyHashes,
    left_locations: LeftLocations,
) -> npt.NDArray[np.int64]:
    """Where the keys of rows are or were, in the partitions of these rows."""
    places = before[owner]
    places = np.where((places != ABSENT) & (places >> BUCKET_BITS == numbers[rows]), places, ABSENT)
    unknown = np.flatnonzero(places == ABSENT)
    places[unknown] = left_locations.find(hashes[rows[unknown]], numbers[rows[unknown]])
    return places


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
    previous = before[np.cumsum(starts) - 1]
    indexed = np.where(previous != ABSENT, previous >> BUCKET_BITS, numbers[order])
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
    absent = np.empty(len(order), bool)
    absent[order] = unknown
    return absent & deletes


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
    result = np.full(len(order), ABSENT, np.int64)
    result[order[moves]] = previous[moves]
    return result


def _with_partition(hashes: KeyHashes, numbers: npt.NDArray[np.int64]) -> KeyHashes:
    mixed = hashes.copy()
    mixed[:, 1] ^= numbers.astype(np.uint64) * _ODD
    return mixed


_LOG = logging.getLogger(__name__)

BucketRows = tuple[bytes, int, pa.RecordBatch]
"""Rows of one (framed partition, bucket), in the order in which they are to be written."""


class MovedRow(enum.Enum):
    """The effect of a row whose key is in another partition."""

    DELETE_OLD = "delete the old row, insert the new one"
    KEEP_OLD_PARTITION = "move the new row to the partition of the old one"
    DROP_NEW = "drop the new row"

    @staticmethod
    def of(options: TableOptions) -> "MovedRow":
        """What the merge engine of a table demands."""
        if options.merge_engine == "deduplicate":
            return MovedRow.DELETE_OLD
        if options.merge_engine == "first-row":
            return MovedRow.DROP_NEW
        return MovedRow.KEEP_OLD_PARTITION


class CrossPartitionBuckets:
    """Gives rows their partition and bucket by an index of all keys of the table.

    Protocol: `bootstrap` from the newest snapshot, then `assign` batches in arrival order, and
    `end_commit` when the next batch belongs to another commit. The index follows what is assigned;
    when that is not committed, or others wrote, `bootstrap` again. `close` removes the index.
    Belongs to one process; only one job may write such a table.

    Args:
        directory: for the index; created and removed. None: below the system's temporary one.
    """

    def __init__(self, table: TableCore, directory: pathlib.Path | None = None) -> None:
        self._table = table
        self._moved_row = MovedRow.of(table.options)
        schema = table.schema
        self._keys = tuple(schema.trimmed_primary_keys)
        self._key_types = [schema.field(name).type for name in self._keys]
        self._partition_names = tuple(schema.partition_keys)
        uuid = table.ids.uuid().replace("-", "")
        self._seed = (int(uuid[:16], 16), int(uuid[16:], 16))
        base = pathlib.Path(tempfile.gettempdir()) if directory is None else directory
        self._directory = base / f"lakeward-keys-{uuid}"
        ttl_ms = table.options.cross_partition_index_ttl_ms
        self._ttl_ms = ttl_ms
        self._ttl_s = None if ttl_ms is None else -(-ttl_ms // 1000)
        self._target_rows = table.options.dynamic_bucket_target_row_num
        self._index = KeyIndex(self._directory, ttl_s=self._ttl_s)
        self._left_locations = LeftLocations(base / f"lakeward-left-{uuid}")
        self._partitions = _Partitions()

    @property
    def index(self) -> KeyIndex:
        """The index of all keys."""
        return self._index

    @property
    def is_incomplete(self) -> bool:
        """Whether files of the index are missing: `bootstrap` again before the next batch."""
        return self._index.is_incomplete

    def bootstrap(self, snapshot_id: int | None) -> int:
        """Build the index from the keys of a snapshot, and count them; old contents are dropped.

        Args:
            snapshot_id: None: the table is taken to be empty.

        Raises:
            InvalidRequestError: a key exists twice.
        """
        self.close()
        self._index = KeyIndex(self._directory, ttl_s=self._ttl_s)
        self._partitions = _Partitions()
        if snapshot_id is None:
            return 0
        table, now_s = self._table, self._now_s()
        splits = TableScan(table).with_snapshot(snapshot_id).with_all_levels().plan().splits
        splits = tuple(split for split in splits if self._is_alive(split))
        names = {*self._keys, *self._partition_names}
        columns = [name for name in table.schema.field_names if name in names]
        read = TableRead(table, columns)
        total = 0
        threads = min(len(splits), table.options.cross_partition_bootstrap_parallelism)
        with concurrent.futures.ThreadPoolExecutor(max(1, threads), "keys") as pool:
            pending = (pool.submit(self._keys_of, read, split) for split in splits)
            for split, future in zip(splits, _one_ahead(pending, 2 * max(1, threads)), strict=True):
                hashes, values = future.result()
                total += len(hashes)
                if len(hashes):
                    number = self._partitions.number(split.partition, values)
                    self._partitions.count(number, split.bucket, len(hashes))
                    locations = np.full(len(hashes), _location(number, split.bucket), np.int64)
                    self._index.put(hashes, locations, now_s)
        self._index.merge_all(now_s)
        if len(self._index) < total and self._ttl_s is None:
            raise InvalidRequestError(
                "the table holds a key in more than one partition or bucket",
                hint="a table of this kind takes one writing job at a time; remove the duplicates "
                "and write again",
                table=table.layout.root,
                keys=total - len(self._index),
            )
        _LOG.info(
            "key index built",
            extra={"table": table.layout.root, "keys": len(self._index), "splits": len(splits)},
        )
        return len(self._index)

    def assign(self, batch: pa.RecordBatch) -> Iterator[BucketRows]:
        """Rows and the deletes of their old versions, by partition and bucket.

        Args:
            batch: value columns and `_VALUE_KIND`, in arrival order.

        Yields:
            Everything to write, each (partition, bucket) once.
        """
        now_s = self._now_s()
        batch = self._with_row(self._typed(batch), now_s)
        if not batch.num_rows:
            return
        codes, partitions, values = partition_codes(batch, self._table)
        numbers = np.array(
            [
                self._partitions.number(partition, values.slice(i, 1))
                for i, partition in enumerate(partitions)
            ],
            np.int64,
        )[codes]
        hashes = self._hashes(batch)
        chains = Chains.of(hashes)
        before = self._index.find(hashes[chains.first_rows], now_s)
        if self._moved_row is MovedRow.DELETE_OLD:
            targets = partitions_of_deletes(chains, numbers, before, _deletes(batch))
        else:
            targets = first_partitions(chains, numbers, before)
        rerouted, numbers = np.flatnonzero(targets != numbers), targets
        segments = segments_of(chains, numbers, before, hashes, self._left_locations)
        locations = self._locations(segments, numbers)
        lasts = chains.last_rows
        changed = locations[lasts] != before
        self._index.put(hashes[lasts[changed]], locations[lasts[changed]], now_s)
        origins = left_locations(chains, locations, before)
        moved = np.flatnonzero(origins != ABSENT)
        if len(moved):
            self._left_locations.put(hashes[moved], origins[moved])
        if self._moved_row is MovedRow.DROP_NEW:
            rows = np.delete(np.arange(batch.num_rows), rerouted)
            batch, locations, origins = batch.take(pa.array(rows)), locations[rows], origins[rows]
        elif len(rerouted):
            batch = self._rerouted(batch, rerouted, numbers)
        yield from self._rows(batch, locations, origins)

    def _hashes(self, batch: pa.RecordBatch) -> KeyHashes:
        columns = [batch.column(name) for name in self._keys]
        return key_hashes(columns, self._key_types, self._seed)

    def _with_row(self, batch: pa.RecordBatch, now_s: int) -> pa.RecordBatch:
        """The rows without deletes that name no partition, of keys without a row.

        A source may send the key alone; the null in a partition column carries no information then.
        """
        nameless = np.zeros(batch.num_rows, bool)
        for name in self._partition_names:
            column = batch.column(name)
            if column.null_count:
                nameless |= column.is_null().to_numpy(zero_copy_only=False)
        deletes = _deletes(batch)
        if self._ttl_s is not None or not (nameless & deletes).any():
            return batch
        hashes = self._hashes(batch)
        chains = Chains.of(hashes)
        before = self._index.find(hashes[chains.first_rows], now_s)
        discards = deletes_without_row(chains, before, deletes) & nameless
        return batch.filter(pa.array(~discards)) if discards.any() else batch

    def end_commit(self) -> None:
        """The next batch belongs to another commit."""
        self._left_locations.clear()

    def close(self) -> None:
        """Remove the index. May be called twice."""
        self._index.close()
        self._left_locations.clear()

    def _locations(
        self, segments: KeySegments, numbers: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Location of each row: one that its key is or was in, or one with room."""
        buckets, fresh = segments.inherited.copy(), segments.fresh_rows
        for number in np.unique(numbers[fresh]).tolist():
            rows = fresh[numbers[fresh] == number]
            buckets[rows] = self._partitions.assign(number, len(rows), self._target_rows)
        locations = (numbers << BUCKET_BITS) | buckets[segments.source]
        self._partitions.count_locations(locations[segments.return_rows], 1)
        return locations

    def _rows(
        self,
        batch: pa.RecordBatch,
        locations: npt.NDArray[np.int64],
        left_rows: npt.NDArray[np.int64],
    ) -> Iterator[BucketRows]:
        moved = np.flatnonzero(left_rows != ABSENT)
        order = np.arange(batch.num_rows, dtype=np.int64)
        if len(moved):
            self._partitions.count_locations(left_rows[moved], -1)
            batch = pa.concat_batches([batch, self._retractions(batch, moved, left_rows[moved])])
            locations = np.concatenate([locations, left_rows[moved]])
            # the delete of an old version comes right before the row that replaces it
            order = np.concatenate([2 * order + 1, 2 * moved]).argsort()
        for location, rows in split_codes(locations[order]):
            part = batch.take(pa.array(order if rows is None else order[rows]))
            partition = self._partitions.framed(location >> BUCKET_BITS)
            yield partition, location & BUCKET_MASK, part

    def _rerouted(
        self,
        batch: pa.RecordBatch,
        rows: npt.NDArray[np.int64],
        numbers: npt.NDArray[np.int64],
    ) -> pa.RecordBatch:
        """The batch with the partition values of some rows replaced by those of their keys."""
        source = np.arange(batch.num_rows, dtype=np.int64)
        source[rows] = batch.num_rows + np.arange(len(rows), dtype=np.int64)
        targets = self._partitions.values(numbers[rows])
        for name in self._partition_names:
            position = batch.schema.get_field_index(name)
            values = pa.concat_arrays([batch.column(position), targets.column(name)])
            field = batch.schema.field(position)
            batch = batch.set_column(position, field, values.take(pa.array(source)))
        return batch

    def _retractions(
        self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64], locations: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        """The rows as -D of the partitions that they leave."""
        moved_rows = batch.take(pa.array(rows))
        numbers = locations >> BUCKET_BITS
        old = self._partitions.values(numbers)
        columns = list(moved_rows.columns)
        for name in self._partition_names:
            position = batch.schema.get_field_index(name)
            columns[position] = old.column(name)
        kinds = np.full(len(rows), RowKind.DELETE.value, np.int8)
        columns[batch.schema.get_field_index(VALUE_KIND)] = pa.array(kinds)
        kind_column = self._table.options.rowkind_field
        if kind_column is not None:
            position = batch.schema.get_field_index(kind_column)
            columns[position] = pa.repeat(RowKind.DELETE.short, len(rows)).cast(
                columns[position].type
            )
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with key and partition columns in the types of the table."""
        for name in (*self._keys, *self._partition_names):
            column = key_column(batch, name, self._table)
            position = batch.schema.get_field_index(name)
            batch = batch.set_column(position, pa.field(name, column.type), column)
        return batch

    def _keys_of(self, read: TableRead, split: Split) -> tuple[KeyHashes, pa.RecordBatch]:
        hashes = [np.empty((0, 2), np.uint64)]
        values = None
        for batch in read.to_batches(split):
            columns = [batch.column(name) for name in self._keys]
            hashes.append(key_hashes(columns, self._key_types, self._seed))
            if values is None:
                values = batch.slice(0, 1).select(list(self._partition_names))
        return np.concatenate(hashes), values

    def _is_alive(self, split: Split) -> bool:
        """Whether the newest file of a split has not reached the end of life of its keys."""
        if self._ttl_ms is None:
            return True
        now_ms = self._table.clock.local_wall_ms()
        return any(now_ms <= (file.creation_time_ms or 0) + self._ttl_ms for file in split.files)

    def _now_s(self) -> int:
        return self._table.clock.now_ms() // 1000


class _Partitions:
    """Numbers of partitions, their values, and how many keys each of their buckets has."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._framed: list[bytes] = []
        self._rows: list[pa.RecordBatch] = []
        self._counts: list[dict[int, int]] = []

    def number(self, partition: bytes, values: pa.RecordBatch) -> int:
        """Number of a partition; `values` is one row with its values."""
        number = self._numbers.get(partition)
        if number is None:
            number = len(self._framed)
            self._numbers[partition] = number
            self._framed.append(partition)
            columns = pa.RecordBatch.from_arrays(values.columns, names=values.schema.names)
            self._rows.append(columns)
            self._counts.append({})
        return number

    def framed(self, number: int) -> bytes:
        return self._framed[number]

    def values(self, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
        distinct, rows = np.unique(numbers, return_inverse=True)
        table = pa.concat_batches([self._rows[number] for number in distinct.tolist()])
        return table.take(pa.array(rows))

    def count(self, number: int, bucket: int, more: int) -> None:
        counts = self._counts[number]
        counts[int(bucket)] = max(0, counts.get(int(bucket), 0) + int(more))

    def count_locations(self, locations: npt.NDArray[np.int64], more: int) -> None:
        """Add `more` keys to the count of a location for each of its occurrences."""
        for location, times in zip(*np.unique(locations, return_counts=True), strict=True):
            self.count(location >> BUCKET_BITS, location & BUCKET_MASK, more * times)

    def assign(self, number: int, keys: int, target_rows: int) -> npt.NDArray[np.int64]:
        """Buckets for new keys of a partition: the first with room, else new ones."""
        counts = self._counts[number]
        out = np.empty(keys, np.int64)
        start, bucket = 0, 0
        while start < keys:
            room = max(0, target_rows - counts.get(bucket, 0))
            end = min(keys, start + room)
            if end > start:
                out[start:end] = bucket
                counts[bucket] = counts.get(bucket, 0) + end - start
            start, bucket = end, bucket + 1
        return out


def _deletes(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    kinds = batch.column(VALUE_KIND).to_numpy()
    retracts: npt.NDArray[np.bool_] = np.isin(kinds, [k.value for k in RowKind if k.retracts])
    return retracts


def _location(number: int, bucket: int) -> int:
    return number << BUCKET_BITS | bucket


def _one_ahead(
    futures: Iterator[concurrent.futures.Future[tuple[KeyHashes, pa.RecordBatch]]], count: int
) -> Iterator[concurrent.futures.Future[tuple[KeyHashes, pa.RecordBatch]]]:
    """The futures in order, at most `count` of them started ahead of the consumer."""
    started = []
    for future in futures:
        started.append(future)
        if len(started) >= count:
            yield started.pop(0)
    yield from started
