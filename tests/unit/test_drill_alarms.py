# SPDX-License-Identifier: Apache-2.0
"""Samples of a drill, stretched for the shipped alert rules."""

import time

import pytest

from tests.drills.alarms import available, can_fire, firing
from tests.drills.watching import Sample

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not available(), reason="promtool is not installed"),
]

NOW = time.time()
CALM = {
    "state": {frozenset({("state", "running")}): 1.0},
    "source_lag_seconds": {frozenset({("topic", "t")}): 0.0},
    "last_success_timestamp_seconds": {frozenset(): NOW - 20},
    "source_offsets_poll_timestamp_seconds": {frozenset(): NOW - 5},
    "start_timestamp_seconds": {frozenset(): NOW - 100},
    "query_failures_total": {frozenset(): 0.0},
}


def sample(at: float, **values: dict) -> Sample:
    return Sample(at, NOW + at, 1, {**CALM, **values}, True, ())


def test_what_stands_still_or_grows_fires_and_a_calm_daemon_does_not():
    later = {"source_offsets_poll_timestamp_seconds": {frozenset(): NOW + 25}}
    later["last_success_timestamp_seconds"] = {frozenset(): NOW + 10}
    assert firing([sample(0)], [sample(30, **later)], gone=False) == {}
    stuck = {"source_lag_seconds": {frozenset({("topic", "t")}): 28.0}}
    stuck["query_failures_total"] = {frozenset(): 2.0}
    found = firing([sample(0)], [sample(30, **stuck)], gone=False)
    assert found == dict.fromkeys(
        ("LakewardNoCommit", "LakewardQueryFailing", "LakewardSourcePollFailing"), False
    )


def test_a_commit_between_the_last_calm_look_and_the_fault_does_not_make_it_go_on():
    behind = {"source_lag_seconds": {frozenset({("topic", "t")}): 28.0}}
    behind["last_success_timestamp_seconds"] = {frozenset(): NOW + 2}
    during = [sample(at, **behind) for at in (5, 10, 20, 30)]
    assert "LakewardNoCommit" in firing([sample(0)], during, gone=False)
    going_on = [
        sample(at, **{**behind, "last_success_timestamp_seconds": {frozenset(): NOW + at - 1}})
        for at in (5, 10, 20, 30)
    ]
    assert "LakewardNoCommit" not in firing([sample(0)], going_on, gone=False)


def test_a_lag_that_the_source_was_asked_for_late_grows_as_fast_as_it_did_since():
    during = [
        sample(at, source_lag_seconds={frozenset({("topic", "t")}): max(0.0, at - 26.0)})
        for at in range(1, 31)
    ]
    assert "LakewardNoCommit" in firing([sample(0)], during, gone=False)
    standing = [
        sample(at, source_lag_seconds={frozenset({("topic", "t")}): 4.0}) for at in range(1, 31)
    ]
    assert "LakewardNoCommit" not in firing([sample(0)], standing, gone=False)


def test_a_process_that_is_gone_or_starts_again_and_again():
    found = firing([sample(0)], [], gone=True)
    assert found == {"LakewardDown": False, "LakewardCrashLooping": False}
    assert can_fire("LakewardDown")
    assert can_fire("LakewardNoCommit")
