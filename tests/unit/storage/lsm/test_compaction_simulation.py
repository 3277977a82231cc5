# SPDX-License-Identifier: Apache-2.0
"""The simulator: figures that can be worked out by hand, and what must hold for all."""

import dataclasses

import pytest

from storage.lsm.compaction_policy import CompactionPolicy, Workload, simulate

SMALL = Workload(commits=60, commit_rows=100, keys=2_000, update_share=0.9)
NEVER = CompactionPolicy(trigger=1_000)


def test_without_compaction_every_row_is_written_once():
    outcome = simulate(SMALL, NEVER, num_levels=6)
    assert outcome.write_amplification == 1.0
    assert outcome.runs == tuple(range(2, 62))
    assert outcome.compactions == 0
    assert outcome.space_amplification > 1.5


def test_full_compaction_at_each_commit_keeps_one_run_and_no_garbage():
    outcome = simulate(SMALL, NEVER, num_levels=6, delta_commits=1)
    assert set(outcome.runs) == {1}
    assert outcome.space_amplification == 1.0
    assert outcome.compactions == 60
    assert outcome.largest_compaction == outcome.stored_bytes


def test_only_new_rows_are_counted_exactly():
    workload = Workload(commits=10, commit_rows=50, keys=0, update_share=0.5, row_bytes=7)
    outcome = simulate(workload, NEVER, num_levels=6)
    # the first commit finds nothing to update; each later one has 25 new rows at least
    assert outcome.runs[-1] == 10
    assert outcome.written_bytes == outcome.stored_bytes
    assert outcome.written_bytes % 7 == 0


@pytest.mark.parametrize("trigger", [2, 5, 10])
@pytest.mark.parametrize("lookup", [False, True])
def test_runs_stay_at_the_trigger_and_space_is_bounded(trigger, lookup):
    outcome = simulate(
        SMALL, CompactionPolicy(trigger=trigger), num_levels=trigger + 1, lookup=lookup
    )
    assert max(outcome.runs) <= trigger
    assert outcome.most_space <= 3.01  # twice the oldest run may lie above it
    assert outcome.write_amplification >= 1.0


def test_higher_triggers_write_less_and_read_more():
    outcomes = [simulate(SMALL, CompactionPolicy(trigger=t), num_levels=t + 1) for t in (2, 5, 10)]
    written = [one.write_amplification for one in outcomes]
    runs = [one.mean_runs for one in outcomes]
    assert written == sorted(written, reverse=True)
    assert runs == sorted(runs)


def test_the_interval_rule_follows_the_simulated_time():
    policy = dataclasses.replace(NEVER, optimization_interval_ms=299_000)
    outcome = simulate(SMALL, policy, num_levels=6)  # a commit each 30 s: about every tenth
    assert 5 <= outcome.compactions <= 7


def test_large_histories_are_scaled_and_ratios_stay():
    large = Workload(commits=60, commit_rows=20_000, keys=400_000, update_share=0.9)
    assert large.scale > 1
    small = dataclasses.replace(large, commit_rows=2_000, keys=40_000)
    policy = CompactionPolicy(trigger=5)
    one, two = (simulate(each, policy, num_levels=6) for each in (large, small))
    assert one.write_amplification == pytest.approx(two.write_amplification, rel=0.02)
    assert one.stored_bytes == pytest.approx(10 * two.stored_bytes, rel=0.02)


def test_the_same_seed_gives_the_same():
    policy = CompactionPolicy(trigger=3)
    assert simulate(SMALL, policy, num_levels=4) == simulate(SMALL, policy, num_levels=4)
