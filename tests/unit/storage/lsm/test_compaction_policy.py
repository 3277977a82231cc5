# SPDX-License-Identifier: Apache-2.0

import pytest

from storage.lsm.compaction_policy import (
    CompactionPolicy,
    pick,
    pick_file_number,
    pick_size_amplification,
    pick_size_ratio,
)
from storage.lsm.levels import Levels
from storage.options.options import TableOptions
from tests.unit.storage.file_metas import file_meta, key_of


def _levels(sizes_newest_first, num_levels):
    """Levels of overlapping runs given as [level, size], newest first."""
    count = len(sizes_newest_first)
    files = [
        file_meta(level, 0, 9, size=size, sequence=count - position)
        for position, (level, size) in enumerate(sizes_newest_first)
    ]
    return Levels.of(files, num_levels, key_of)


def _picked(levels, policy, **arguments):
    unit = pick(levels, policy, **arguments)
    return None if unit is None else (len(unit.files), unit.output_level)


def _policy(amplification, ratio, trigger, **others):
    return CompactionPolicy(
        max_size_amplification_percent=amplification, size_ratio=ratio, trigger=trigger, **others
    )


@pytest.mark.parametrize(
    ("policy", "runs", "num_levels", "expected"),
    [
        # SEMANTICS.md §D.5
        (_policy(25, 1, 3), [(0, 1), (0, 2), (1, 3), (2, 50)], 3, (3, 1)),
        (_policy(200, 1, 3), [(0, 10), (0, 20), (1, 97), (2, 100)], 3, (4, 2)),
    ],
)
def test_worked_picks(policy, runs, num_levels, expected):
    assert _picked(_levels(runs, num_levels), policy) == expected


def test_size_amplification_series():
    state, seen = [1], []
    for _ in range(8):
        state = [1, *state]
        levels = _levels([(level, size) for level, size in zip((0, 2, 3), state, strict=False)], 4)
        if pick_size_amplification(levels.runs(), levels.max_level, 1, 25) is not None:
            state = [sum(state)]
        seen.append(list(state))
    assert seen == [[2], [3], [4], [1, 4], [6], [1, 6], [8], [1, 8]]


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ([1, 1, 1, 1, 1], [5]),
        ([1, 1, 1, 1, 5], [4, 5]),
        ([1, 1, 2, 3, 4, 5], [16]),
    ],
)
def test_size_ratio_series(sizes, left):
    levels = _levels([(0, size) for size in sizes[:-1]] + [(5, sizes[-1])], 6)
    count, _ = pick_size_ratio(levels.runs(), levels.max_level, 5, 1)
    assert [sum(sizes[:count]), *sizes[count:]] == left


@pytest.mark.parametrize(("ratio", "count"), [(10, None), (20, 3)])
def test_the_size_ratio_decides_whether_similar_runs_are_merged(ratio, count):
    levels = _levels([(2, 8), (3, 9), (4, 10)], 6)
    found = pick_size_ratio(levels.runs(), levels.max_level, 2, ratio)
    assert found == (None if count is None else (count, 5))


def test_file_number_brings_the_runs_down_to_the_trigger():
    levels = _levels([(0, 1), (0, 5), (0, 30), (3, 200), (4, 1500), (5, 10_000)], 6)
    assert pick_file_number(levels.runs(), 5, 5, 1) == (3, 2)
    assert pick_file_number(levels.runs(), 5, 6, 1) is None


def test_nothing_is_picked_below_the_trigger_or_without_files():
    assert pick(_levels([], 6), CompactionPolicy()) is None
    assert pick(_levels([], 6), CompactionPolicy(), full=True) is None
    assert pick(_levels([(0, 1)] * 4, 6), CompactionPolicy()) is None


def test_full_takes_all_runs_to_the_last_level():
    assert _picked(_levels([(0, 1), (3, 5)], 6), CompactionPolicy(), full=True) == (2, 5)
    assert _picked(_levels([(3, 5)], 6), CompactionPolicy(), full=True) == (1, 5)
    assert _picked(_levels([(5, 5)], 6), CompactionPolicy(), full=True) is None


def test_output_is_never_level_0():
    policy = _policy(10_000, 1, 3)
    assert _picked(_levels([(0, 1), (0, 1), (0, 500), (3, 10_000)], 6), policy) == (3, 2)
    # the next run is in level 1: no free level in between, so it goes along
    assert _picked(_levels([(0, 1), (0, 1), (1, 500), (3, 10_000)], 6), policy) == (3, 2)
    forced = _policy(10_000_000, 1, 5, force_level_0=True)
    assert _picked(_levels([(0, 1), (1, 500), (3, 10_000)], 6), forced) == (2, 2)
    assert _picked(_levels([(0, 1), (1, 500)], 6), forced) == (2, 5)


def test_deletes_are_dropped_only_when_nothing_older_lies_below():
    last = pick(_levels([(0, 1), (5, 1)], 6), CompactionPolicy(), full=True)
    assert last.drop_deletes
    above = pick(_levels([(0, 1), (0, 1), (0, 1), (0, 1), (5, 500)], 6), _policy(10_000, 1, 5))
    assert (above.output_level, above.drop_deletes) == (4, False)
    into = pick(_levels([(0, 1), (0, 1), (3, 2)], 6), _policy(25, 1, 3))
    assert (into.output_level, into.drop_deletes) == (5, True)


def test_a_run_of_several_files_counts_as_one():
    files = [file_meta(5, 0, 9, size=10), file_meta(5, 10, 19, size=10)]
    newer = [file_meta(0, 0, 5), file_meta(0, 0, 5)]
    levels = Levels.of([*files, *newer], 6, key_of)
    assert pick(levels, _policy(200, 1, 4)) is None
    assert _picked(levels, _policy(5, 1, 3)) == (4, 5)


def test_the_optimisation_interval_asks_for_full_compactions():
    policy = CompactionPolicy(optimization_interval_ms=1000)
    levels = _levels([(0, 1), (5, 1000)], 6)
    assert _picked(levels, policy, now_ms=0) == (2, 5)
    assert _picked(levels, policy, now_ms=1000, last_full_ms=0) is None
    assert _picked(levels, policy, now_ms=1001, last_full_ms=0) == (2, 5)
    assert _picked(_levels([(5, 1000)], 6), policy, now_ms=9999) is None
    assert _picked(levels, policy) is None


def test_small_buckets_are_compacted_fully_when_asked():
    policy = CompactionPolicy(total_size_threshold=100)
    assert _picked(_levels([(0, 1), (5, 90)], 6), policy) == (2, 5)
    assert _picked(_levels([(0, 1), (5, 99)], 6), policy) is None


def test_much_data_outside_the_last_level_is_compacted_fully_when_asked():
    policy = CompactionPolicy(incremental_size_threshold=100)
    assert _picked(_levels([(0, 51), (4, 50), (5, 10_000)], 6), policy) == (3, 5)
    assert _picked(_levels([(0, 50), (4, 50), (5, 10_000)], 6), policy) is None


def test_forced_level_0_goes_to_the_lowest_free_level():
    policy = _policy(200, 1, 5, force_level_0=True)
    assert _picked(_levels([(0, 1), (5, 1000)], 6), policy) == (1, 4)
    assert _picked(_levels([(0, 1), (4, 500), (5, 1000)], 6), policy) == (1, 3)
    assert _picked(_levels([(4, 500), (5, 1000)], 6), policy) is None


def test_forcing_the_file_number_always_merges_something():
    policy = _policy(10_000, 0, 5)
    assert _picked(_levels([(0, 1), (5, 1000)], 6), policy) is None
    assert _picked(_levels([(0, 1), (5, 1000)], 6), policy, force_file_number=True) == (2, 5)
    assert _picked(_levels([(5, 1000)], 6), policy, force_file_number=True) is None


@pytest.mark.parametrize(
    ("start", "end", "hour", "ratio"),
    [
        (-1, -1, 3, 1),
        (0, 8, 3, 31),
        (0, 8, 8, 1),
        (22, 6, 23, 31),
        (22, 6, 5, 31),
        (22, 6, 6, 1),
        (0, 8, None, 1),
    ],
)
def test_offpeak_hours_raise_the_size_ratio(start, end, hour, ratio):
    policy = CompactionPolicy(offpeak_start=start, offpeak_end=end, offpeak_ratio=30)
    assert policy.ratio_at(hour) == ratio


def test_the_policy_comes_from_the_options():
    options = TableOptions.from_strings(
        {
            "num-sorted-run.compaction-trigger": "3",
            "compaction.size-ratio": "7",
            "compaction.optimization-interval": "2 s",
            "compaction.force-up-level-0": "true",
        }
    )
    policy = CompactionPolicy.of(options)
    assert policy.trigger == 3
    assert policy.stop_trigger == 6
    assert policy.size_ratio == 7
    assert policy.optimization_interval_ms == 2000
    assert policy.force_level_0


def test_level_0_is_forced_only_when_nothing_else_is_due():
    levels = _levels([(0, 1), (5, 100_000)], 6)
    policy = CompactionPolicy()
    assert _picked(levels, policy) is None
    assert _picked(levels, policy, force_level_0=True) == (1, 4)
    nothing = _levels([(4, 1), (5, 100_000)], 6)
    assert _picked(nothing, policy, force_level_0=True) is None
    due = _levels([(0, 1)] * 5 + [(5, 100_000)], 6)
    assert _picked(due, policy, force_level_0=True) == (5, 4)


def test_forced_level_0_takes_a_larger_run_of_level_1_along():
    # as if the size ratio had been met already: level 1 goes along, and what that makes due
    levels = _levels([(0, 1), (1, 40), (3, 41), (5, 100_000)], 6)
    assert _picked(levels, CompactionPolicy(), force_level_0=True) == (3, 4)


def test_a_full_compaction_of_the_last_level_takes_stale_files_one_by_one():
    files = [file_meta(5, 10 * n, 10 * n + 9, name=f"f{n}") for n in range(3)]
    levels = Levels.of(files, 6, key_of)
    policy = CompactionPolicy()
    assert pick(levels, policy, full=True) is None
    assert pick(levels, policy, full=True, stale=lambda _: False) is None
    unit = pick(levels, policy, full=True, stale=lambda file: file.file_name != "f1")
    assert unit.each_alone
    assert [file.file_name for file in unit.files] == ["f0", "f2"]
    assert (unit.output_level, unit.max_level, unit.drop_deletes) == (5, 5, True)
    more = Levels.of([*files, file_meta(0, 0, 99)], 6, key_of)
    whole = pick(more, policy, full=True, stale=lambda _: True)
    assert (len(whole.files), whole.each_alone) == (4, False)


def test_retractions_never_stay_where_old_rows_are_marked():
    levels = _levels([(0, 1), (5, 100_000)], 6)
    plain = pick(levels, CompactionPolicy(), force_level_0=True)
    marking = pick(levels, CompactionPolicy(deletion_vectors=True), force_level_0=True)
    assert (plain.drop_deletes, marking.drop_deletes) == (False, True)


def test_the_policy_follows_the_options():
    def policy(**raw):
        return CompactionPolicy.of(TableOptions.from_strings({"bucket": "1", **raw}))

    forced = {"compaction.force-up-level-0": "true"}
    assert policy(**forced).force_level_0
    # a table that looks up forces level 0 at its commits, and gently if it is told to
    assert not policy(**forced, **{"changelog-producer": "lookup"}).force_level_0
    assert policy(**{"deletion-vectors.enabled": "true"}).deletion_vectors
    assert not policy().deletion_vectors
