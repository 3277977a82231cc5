# SPDX-License-Identifier: Apache-2.0
"""What the compaction policy costs over a history of commits, without a disk. Pure.

One bucket: every commit flushes one level-0 file of distinct keys; a merge keeps each key once; the
choice of merges is `compaction_policy.pick`, the real one. A file that is compacted alone only
changes its level and costs nothing, as in the compactor.
"""

import dataclasses
import itertools

import numpy as np
import numpy.typing as npt

from storage.format.metadata.file_meta import EMPTY_STATS, DataFileMeta
from storage.lsm.compaction_policy import CompactionPolicy, CompactUnit, pick
from storage.lsm.levels import Levels

_Keys = npt.NDArray[np.int64]

_MOST_ROWS = 500_000
"""Rows flushed by a simulation at most; larger histories are scaled down, ratios stay."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A history of commits to one bucket.

    Attributes:
        row_bytes: size of a row in a file [bytes].
        update_share: share of rows whose key exists already, evenly drawn; the others are new.
        keys: rows that exist at the beginning, in the last level.
        interval_s: time between commits, for rules that go by time [s].
    """

    commits: int = 300
    commit_rows: int = 2_000
    row_bytes: int = 100
    update_share: float = 0.8
    keys: int = 100_000
    interval_s: float = 30.0
    seed: int = 1

    @property
    def scale(self) -> int:
        """By how much the history is scaled down."""
        return max(1, -(-(self.commits * self.commit_rows + self.keys) // _MOST_ROWS))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a history cost.

    Attributes:
        write_amplification: bytes written, flushes included, per byte flushed.
        space_amplification: bytes stored per byte of the newest rows, average after each commit.
        most_space: the largest of these.
        runs: sorted runs after each commit.
        largest_compaction: output of the largest merge [bytes].
        written_bytes: everything written [bytes].
        stored_bytes: at the end [bytes].
    """

    write_amplification: float
    space_amplification: float
    most_space: float
    runs: tuple[int, ...]
    compactions: int
    largest_compaction: int
    written_bytes: int
    stored_bytes: int

    @property
    def mean_runs(self) -> float:
        """Average of `runs`: what a merging read has to merge."""
        return sum(self.runs) / max(1, len(self.runs))


def simulate(
    workload: Workload,
    policy: CompactionPolicy,
    *,
    num_levels: int,
    lookup: bool = False,
    delta_commits: int | None = None,
) -> Outcome:
    """Run a history.

    Args:
        workload: the commits.
        policy: the options.
        num_levels: levels, level 0 included.
        lookup: level 0 is compacted at each commit, as a lookup changelog needs it.
        delta_commits: commits between full compactions; None: none by count.
    """
    bucket = _Bucket(workload, policy, num_levels, lookup=lookup)
    for number in range(1, workload.commits + 1):
        bucket.commit(number, full=delta_commits is not None and number % delta_commits == 0)
    return bucket.outcome()


class _Bucket:
    """The files of the bucket and what they cost so far; sizes are in scaled rows."""

    def __init__(
        self, workload: Workload, policy: CompactionPolicy, num_levels: int, *, lookup: bool
    ) -> None:
        self._workload = workload
        self._policy = policy
        self._lookup = lookup
        self._scale = workload.scale
        self._random = np.random.default_rng(workload.seed)
        self._names = itertools.count()
        self._contents: dict[str, _Keys] = {}
        self._levels = Levels.of([], num_levels, _key_of)
        self._keys = workload.keys // self._scale
        self._last_full_ms: int | None = None
        self._written = self._flushed = self._largest = self._compactions = 0
        self._space: list[float] = []
        self._runs: list[int] = []
        if self._keys:
            keys = np.arange(self._keys, dtype=np.int64)
            self._add(keys, self._levels.max_level, (), 0)

    def commit(self, number: int, *, full: bool) -> None:
        """Flush one file and compact what is due."""
        rows = max(1, self._workload.commit_rows // self._scale)
        updates = round(rows * self._workload.update_share) if self._keys else 0
        old_keys = np.unique(self._random.integers(0, max(1, self._keys), updates))
        new_keys = np.arange(self._keys, self._keys + rows - updates, dtype=np.int64)
        self._keys += len(new_keys)
        flushed = np.concatenate([old_keys, new_keys])
        self._add(flushed, 0, (), number)
        self._flushed += len(flushed)
        self._written += len(flushed)
        now_ms = int(number * self._workload.interval_s * 1000)
        while (unit := self._pick(now_ms, full=full)) is not None:
            self._carry_out(unit, number)
            if unit.output_level == unit.max_level:
                self._last_full_ms = now_ms
        stored_bytes = sum(file.file_size for file in self._levels.files())
        self._space.append(stored_bytes / max(1, self._keys))
        self._runs.append(self._levels.run_count)

    def _pick(self, now_ms: int, *, full: bool) -> CompactUnit | None:
        return pick(
            self._levels,
            self._policy,
            full=full,
            force_level_0=self._lookup,
            now_ms=now_ms,
            last_full_ms=self._last_full_ms,
        )

    def _carry_out(self, unit: CompactUnit, number: int) -> None:
        contents = [self._contents.pop(file.file_name) for file in unit.files]
        merged = self._union(contents) if len(contents) > 1 else contents[0]
        self._add(merged, unit.output_level, unit.files, number)
        if len(contents) > 1:
            self._written += len(merged)
            self._largest = max(self._largest, len(merged))
            self._compactions += 1

    def _union(self, contents: list[_Keys]) -> _Keys:
        mask = np.zeros(self._keys, dtype=bool)
        for keys in contents:
            mask[keys] = True
        return np.flatnonzero(mask)

    def _add(
        self, keys: _Keys, level: int, instead_of: tuple[DataFileMeta, ...], number: int
    ) -> None:
        file = _file(f"f{next(self._names)}", level, len(keys), number)
        self._contents[file.file_name] = keys
        self._levels = self._levels.replace(instead_of, [file], _key_of)

    def outcome(self) -> Outcome:
        """What it cost."""
        size = self._scale * self._workload.row_bytes
        table_bytes = sum(file.file_size for file in self._levels.files())
        return Outcome(
            write_amplification=self._written / max(1, self._flushed),
            space_amplification=float(np.mean(self._space)) if self._space else 1.0,
            most_space=max(self._space, default=1.0),
            runs=tuple(self._runs),
            compactions=self._compactions,
            largest_compaction=self._largest * size,
            written_bytes=self._written * size,
            stored_bytes=table_bytes * size,
        )


def _key_of(key: bytes) -> tuple[bytes]:
    return (key,)


def _file(name: str, level: int, rows: int, number: int) -> DataFileMeta:
    return DataFileMeta(
        file_name=name,
        file_size=rows,
        row_count=rows,
        min_key=b"0",
        max_key=b"9",
        key_stats=EMPTY_STATS,
        value_stats=EMPTY_STATS,
        min_sequence_number=number,
        max_sequence_number=number,
        schema_id=0,
        level=level,
    )
