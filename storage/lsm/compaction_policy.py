# SPDX-License-Identifier: Apache-2.0
"""Which sorted runs to merge next, and to which level. Pure.

Universal compaction of SEMANTICS.md §D.4: full when due, else by size amplification, else by size
ratio, else by number of runs; where the table needs it, level 0 whatever its size.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from storage.format.metadata.file_meta import EMPTY_STATS, DataFileMeta
from storage.lsm.levels import Levels, SortedRun
from storage.options.options import TableOptions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """The options the choice depends on; see table-options.md for each.

    Attributes:
        trigger: sorted runs at which compaction is considered.
        stop_trigger: sorted runs a bucket may have after a commit.
        max_size_amplification_percent: newer runs relative to the oldest [percent].
        size_ratio: how much larger the next run may be [percent].
        optimization_interval_ms: time between full compactions, or None [ms].
        total_size_threshold: buckets below are compacted fully, or None [bytes].
        incremental_size_threshold: data outside the last level above which the bucket is
            compacted fully, or None [bytes].
        offpeak_start: first off-peak hour, -1 = off [local hour].
        offpeak_end: hour at which off-peak is over, -1 = off [local hour].
        offpeak_ratio: added to `size_ratio` off-peak [percent].
        force_level_0: compact all level-0 files at every chance.
        deletion_vectors: what is below the output is marked as deleted, so that retractions
            need never be written.
    """

    trigger: int = 5
    stop_trigger: int = 8
    max_size_amplification_percent: int = 200
    size_ratio: int = 1
    optimization_interval_ms: int | None = None
    total_size_threshold: int | None = None
    incremental_size_threshold: int | None = None
    offpeak_start: int = -1
    offpeak_end: int = -1
    offpeak_ratio: int = 0
    force_level_0: bool = False
    deletion_vectors: bool = False

    @staticmethod
    def of(options: TableOptions) -> "CompactionPolicy":
        """The policy of a table."""
        return CompactionPolicy(
            trigger=options.compaction_trigger,
            stop_trigger=options.stop_trigger,
            max_size_amplification_percent=options.max_size_amplification_percent,
            size_ratio=options.size_ratio,
            optimization_interval_ms=options.compaction_optimization_interval,
            total_size_threshold=options.compaction_total_size_threshold,
            incremental_size_threshold=options.compaction_incremental_size_threshold,
            offpeak_start=options.compaction_offpeak_start_hour,
            offpeak_end=options.compaction_offpeak_end_hour,
            offpeak_ratio=options.compaction_offpeak_ratio,
            force_level_0=options.compaction_force_up_level_0 and not options.needs_lookup,
            deletion_vectors=options.deletion_vectors_enabled,
        )

    def ratio_at(self, hour: int | None) -> int:
        """The size ratio at a local hour; None = peak [percent]."""
        if hour is None or self.offpeak_start < 0 or self.offpeak_end < 0:
            return self.size_ratio
        if self.offpeak_start <= self.offpeak_end:
            offpeak = self.offpeak_start <= hour < self.offpeak_end
        else:
            offpeak = hour >= self.offpeak_start or hour < self.offpeak_end
        return self.size_ratio + (self.offpeak_ratio if offpeak else 0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactUnit:
    """Files to merge together; a plan only.

    Attributes:
        files: of the chosen runs, newest run first.
        output_level: level of the result, never 0.
        drop_deletes: no row below the output can come to light again, so retractions need not be
            written.
        each_alone: rewrite every file by itself; all are on the output level.
    """

    files: tuple[DataFileMeta, ...]
    output_level: int
    max_level: int
    drop_deletes: bool
    each_alone: bool = False


def pick(
    levels: Levels,
    policy: CompactionPolicy,
    *,
    full: bool = False,
    force_level_0: bool = False,
    force_file_number: bool = False,
    now_ms: int | None = None,
    hour: int | None = None,
    last_full_ms: int | None = None,
    stale: Callable[[DataFileMeta], bool] | None = None,
) -> CompactUnit | None:
    """Choose the next compaction of a bucket.

    Args:
        levels: its files.
        policy: the options.
        full: merge everything into the last level.
        force_level_0: if nothing else is due, merge the level-0 files.
        force_file_number: if nothing else is due, bring the runs down to the trigger, and merge
            the two newest when there are no more than that.
        now_ms: time for `optimization_interval_ms`; None = that rule is off [ms].
        hour: local hour for the off-peak ratio.
        last_full_ms: when everything was last merged; None = never [ms].
        stale: whether a file that is where a full compaction wants it is to be rewritten; None =
            no file.

    Returns:
        The unit, or None when nothing is to be done. A single file that would stay on its level
        is nothing.
    """
    runs = levels.runs()
    if not runs:
        return None
    max_level = levels.max_level
    choice: _Choice | None
    if full:
        if len(runs) == 1 and runs[0].level == max_level:
            return _stale_files(runs[0], stale)
        choice = len(runs), max_level
    else:
        choice = _early_full(runs, max_level, policy, now_ms, last_full_ms)
        ratio = policy.ratio_at(hour)
        choice = choice or pick_size_amplification(
            runs, max_level, policy.trigger, policy.max_size_amplification_percent
        )
        choice = choice or pick_size_ratio(runs, max_level, policy.trigger, ratio)
        choice = choice or pick_file_number(runs, max_level, policy.trigger, ratio)
        if choice is None and (force_level_0 or policy.force_level_0):
            choice = _level_0(runs, max_level, ratio)
        if choice is None and force_file_number and len(runs) > 1:
            choice = _ratio_choice(runs, max_level, 2, ratio, triggered=True)
    return None if choice is None else _unit(levels, policy, runs, *choice)


_Choice = tuple[int, int]
"""How many of the newest runs, and the output level."""


def pick_size_amplification(
    runs: Sequence[SortedRun], max_level: int, trigger: int, max_percent: int
) -> _Choice | None:
    """All runs, when the newer ones are too large beside the oldest (SEMANTICS.md §D.4.1).

    Args:
        runs: newest first.
        max_level: the last level.
        trigger: runs from which the rule applies.
        max_percent: largest allowed size of all but the oldest, relative to it [percent].
    """
    if len(runs) < trigger or len(runs) < 2:
        return None
    newer = sum(run.size for run in runs[:-1])
    return (len(runs), max_level) if newer * 100 > max_percent * runs[-1].size else None


def pick_size_ratio(
    runs: Sequence[SortedRun], max_level: int, trigger: int, ratio: int
) -> _Choice | None:
    """The newest runs of similar size (SEMANTICS.md §D.4.2).

    Args:
        runs: newest first.
        max_level: the last level.
        trigger: runs from which the rule applies.
        ratio: how much larger the next run may be than all newer ones together [percent].
    """
    if len(runs) < trigger:
        return None
    count = _extended(runs, 1, ratio, triggered=False)
    return _at_output_level(runs, max_level, count) if count > 1 else None


def pick_file_number(
    runs: Sequence[SortedRun], max_level: int, trigger: int, ratio: int
) -> _Choice | None:
    """Enough of the newest runs that no more than the trigger remain (SEMANTICS.md §D.4.3)."""
    if len(runs) <= trigger:
        return None
    count = len(runs) - trigger + 1
    return _ratio_choice(runs, max_level, count, ratio, triggered=count > 1)


def _stale_files(
    run: SortedRun, stale: Callable[[DataFileMeta], bool] | None
) -> CompactUnit | None:
    files = () if stale is None else tuple(file for file in run.files if stale(file))
    if not files:
        return None
    return CompactUnit(
        files=files,
        output_level=run.level,
        max_level=run.level,
        drop_deletes=True,
        each_alone=True,
    )


def _early_full(
    runs: Sequence[SortedRun],
    max_level: int,
    policy: CompactionPolicy,
    now_ms: int | None,
    last_full_ms: int | None,
) -> _Choice | None:
    if len(runs) == 1:
        return None
    interval = policy.optimization_interval_ms
    is_due = (
        interval is not None
        and now_ms is not None
        and (last_full_ms is None or now_ms - last_full_ms > interval)
    )
    total = policy.total_size_threshold
    if not is_due and total is not None:
        is_due = sum(run.size for run in runs) < total
    incremental = policy.incremental_size_threshold
    if not is_due and incremental is not None:
        is_due = sum(run.size for run in runs if run.level != max_level) > incremental
    return (len(runs), max_level) if is_due else None


def _level_0(runs: Sequence[SortedRun], max_level: int, ratio: int) -> _Choice | None:
    count = sum(run.level == 0 for run in runs)
    if count == 0:
        return None
    return _ratio_choice(runs, max_level, count, ratio, triggered=True)


def _ratio_choice(
    runs: Sequence[SortedRun], max_level: int, count: int, ratio: int, *, triggered: bool
) -> _Choice:
    return _at_output_level(runs, max_level, _extended(runs, count, ratio, triggered=triggered))


def _extended(runs: Sequence[SortedRun], count: int, ratio: int, *, triggered: bool) -> int:
    """How many newest runs to take, from `count` on; once triggered, low runs go along."""
    size = sum(run.size for run in runs[:count])
    for run in runs[count:]:
        if size * (100 + ratio) < 100 * run.size and (not triggered or run.level > 1):
            break
        size += run.size
        count += 1
        triggered = True
    return count


def _at_output_level(runs: Sequence[SortedRun], max_level: int, count: int) -> _Choice:
    """The output level of the newest `count` runs, extended so that it is not level 0."""
    level = max_level if count == len(runs) else max(0, runs[count].level - 1)
    while level == 0 and count < len(runs):
        level = runs[count].level
        count += 1
    return (count, max_level) if count == len(runs) else (count, level)


def _unit(
    levels: Levels,
    policy: CompactionPolicy,
    runs: Sequence[SortedRun],
    count: int,
    output_level: int,
) -> CompactUnit | None:
    files = tuple(file for run in runs[:count] for file in run.files)
    if not files or (len(files) == 1 and files[0].level == output_level):
        return None
    return CompactUnit(
        files=files,
        output_level=output_level,
        max_level=levels.max_level,
        drop_deletes=policy.deletion_vectors or output_level >= levels.highest_non_empty_level,
    )


# What the compaction policy costs over a history of commits, without a disk. Pure.
#
# One bucket: every commit flushes one level-0 file of distinct keys; a merge keeps each key once;
# the choice of merges is `compaction_policy.pick`, the real one. A file that is compacted alone
# only changes its level and costs nothing, as in the compactor.


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
