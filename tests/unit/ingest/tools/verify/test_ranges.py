# SPDX-License-Identifier: Apache-2.0
"""Offsets as values: canonical text, fair limits, balanced tasks, recovery."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.source.records import (
    SourceRange,
    fair_shares,
    initial_from_stored,
    normalize,
    offsets_to_store,
    pack,
    plan_end,
    resume_token,
    split_ranges,
)

offset_maps = st.dictionaries(
    st.text("abc.", min_size=1, max_size=4),
    st.dictionaries(st.integers(0, 12).map(str), st.integers(0, 10**6), min_size=1),
    max_size=5,
)


def records(tasks: list[list[SourceRange]]) -> int:
    return sum(piece.end - piece.start for task in tasks for piece in task)


def test_equal_offsets_give_equal_text_whatever_their_order():
    one = {"b": {"10": 1, "2": 2}, "a": {"0": 3}}
    other = {"a": {"0": 3}, "b": {"2": 2, "10": 1}}
    # Spark writes the text without sorting: the order of the dict itself must be the sorted one
    assert json.dumps(normalize(one)) == json.dumps(normalize(other))
    assert json.dumps(normalize(one)) == '{"a": {"0": 3}, "b": {"10": 1, "2": 2}}'


def test_a_range_pickles_as_a_value():
    piece = SourceRange("t", 3, 5, 9, ("file",))
    assert pickle.loads(pickle.dumps(piece)) == piece


@given(st.lists(st.integers(0, 1000)), st.integers(0, 5000))
def test_shares_are_complete_bounded_and_starve_nobody(backlogs, budget):
    shares = fair_shares(backlogs, budget)
    waiting = sum(1 for backlog in backlogs if backlog)
    assert sum(shares) == min(max(budget, waiting), sum(backlogs))
    for backlog, share in zip(backlogs, shares, strict=True):
        assert 0 <= share <= backlog
        assert (share > 0) == (backlog > 0)


def test_small_backlogs_are_served_whole_and_large_ones_share_equally():
    assert fair_shares([1000, 10, 1000], 210) == [100, 10, 100]


def test_limits_in_rows():
    start = {"t": {"0": 0, "1": 100}, "u": {"0": 5}}
    latest = {"t": {"0": 1000, "1": 1100}, "u": {"0": 10}}
    assert plan_end(start, latest) == latest
    assert plan_end(start, latest, max_records=205) == {
        "t": {"0": 100, "1": 200},
        "u": {"0": 10},
    }


def test_limits_in_bytes_use_the_mean_record_size():
    start = {"t": {"0": 0, "1": 0}}
    latest = {"t": {"0": 1000, "1": 1000}}
    weights = {("t", "0"): 10.0, ("t", "1"): 1000.0}
    end = plan_end(start, latest, max_bytes=50_000, weights=weights)
    assert end == {"t": {"0": 1000, "1": 40}}
    # a mean that is no whole number does not cost a small backlog its last record
    uneven = {("t", "0"): 75.3, ("t", "1"): 1000.0}
    end = plan_end(start, {"t": {"0": 333, "1": 1000}}, max_bytes=60_000, weights=uneven)
    assert end["t"]["0"] == 333
    # a limit below one record still makes progress everywhere
    assert plan_end(start, latest, max_bytes=1, weights=weights) == {"t": {"0": 1, "1": 1}}


def test_a_partition_without_a_start_is_not_advanced_and_none_goes_back():
    assert plan_end({"t": {"0": 7}}, {"t": {"0": 3, "1": 9}, "u": {"0": 1}}) == {"t": {"0": 7}}


@given(offset_maps, offset_maps, st.integers(1, 9), st.integers(1, 1000))
def test_tasks_cover_the_batch_exactly_once_in_order(start, end, parallelism, min_records):
    tasks = split_ranges(start, end, parallelism=parallelism, min_records=min_records)
    assert tasks == split_ranges(start, end, parallelism=parallelism, min_records=min_records)
    assert len(tasks) <= parallelism
    assert all(tasks)
    covered: dict[tuple[str, int], tuple[int, int]] = {}
    for piece in (piece for task in tasks for piece in task):
        assert piece.start < piece.end
        place = (piece.topic, piece.partition)
        if place in covered:
            assert covered[place][1] == piece.start
            covered[place] = (covered[place][0], piece.end)
        else:
            covered[place] = (piece.start, piece.end)
    expected = {}
    for topic, entry in end.items():
        for key, last in entry.items():
            first = start.get(topic, {}).get(key)
            if first is None or first == last:
                continue
            first = first if first < last else 0  # created anew
            if first < last:
                expected[topic, int(key)] = (first, last)
    assert covered == expected


def test_one_partition_with_a_large_backlog_is_split_and_small_ones_are_packed():
    start = {"big": {"0": 0}, "small": {str(n): 0 for n in range(100)}}
    end = {"big": {"0": 300_000}, "small": {str(n): 1000 for n in range(100)}}
    tasks = split_ranges(start, end, parallelism=4)
    sizes = [sum(piece.end - piece.start for piece in task) for task in tasks]
    assert len(tasks) == 4
    assert max(sizes) - min(sizes) <= 20_000
    assert [piece.topic for piece in tasks[0]] == ["big"]
    assert len(tasks[3]) > 50


def test_little_work_makes_few_tasks():
    end = {"t": {str(n): 10 for n in range(8)}}
    start = {"t": {str(n): 0 for n in range(8)}}
    assert len(split_ranges(start, end, parallelism=8)) == 1
    assert split_ranges(start, start, parallelism=8) == []


def test_no_sliver_is_cut_off():
    tasks = split_ranges({"t": {"0": 0, "1": 0}}, {"t": {"0": 101_000, "1": 99_000}}, parallelism=2)
    assert tasks == [[SourceRange("t", 0, 0, 101_000)], [SourceRange("t", 1, 0, 99_000)]]


def test_ranges_are_cut_only_where_they_can_be():
    def tens(piece: SourceRange, wanted: int) -> int:
        return min(piece.end, -(-wanted // 10) * 10)

    tasks = pack([SourceRange("t", 0, 0, 95)], parallelism=3, min_length=1, cut=tens)
    assert [(p.start, p.end) for task in tasks for p in task] == [(0, 40), (40, 70), (70, 95)]


def test_recovery_takes_the_smallest_offset_of_each_partition():
    stored = [{"t": {"0": 10, "1": 5}}, {"t": {"0": 7, "1": 9}}]
    assert initial_from_stored(stored) == {"t": {"0": 7, "1": 5}}


@pytest.mark.parametrize(
    ("complete", "expected"),
    [(True, {"t": {"0": 7}}), (False, {"t": {"0": 7, "1": 5}, "u": {"0": 3}})],
)
def test_a_partition_that_a_table_never_saw_is_read_from_its_beginning(complete, expected):
    stored = [{"t": {"0": 10, "1": 5}}, {"t": {"0": 7}, "u": {"0": 3}}]
    assert initial_from_stored(stored, complete=complete) == expected


def test_file_offsets_store_the_last_file_and_recover_with_it():
    end = {"t": {"0": (2 << 40) | 9, "files": [["a", 4, 8, 8], ["b", 0, 9, 20]]}}
    stored = offsets_to_store(end)
    assert stored == {"t": {"0": (2 << 40) | 9, "files": [["b", 0, 9, 20]]}}
    assert resume_token(end) == {"t": {"0": (2 << 40) | 9}}
    older = {"t": {"0": (1 << 40) | 8, "files": [["a", 0, 8, 8]]}}
    assert initial_from_stored([stored, older]) == older
