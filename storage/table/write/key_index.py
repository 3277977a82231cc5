# SPDX-License-Identifier: Apache-2.0
"""An on-disk map from key hashes to locations, looked up and changed by whole arrays.

A small log-structured tree of sorted arrays (docs/adr/storage/0006): new entries become a
run in memory; a run that has reached the size of its older neighbour is merged into it; a run
too large for memory lives in mapped files. A look-up sorts its hashes once and searches them in
each run, newest first. Knows nothing of tables; `cross_partition` gives locations their meaning.
"""

import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from storage.format.row.key_hash import KeyHashes

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
