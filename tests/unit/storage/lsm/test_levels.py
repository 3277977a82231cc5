# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptDataError, InternalError
from storage.lsm.levels import Levels, SortedRun, sections
from tests.unit.storage.file_metas import file_meta, key_of, ranges


def test_level_0_is_newest_first_and_upper_levels_are_ordered_by_key():
    old, new, tied = file_meta(sequence=5), file_meta(sequence=9), file_meta(sequence=9)
    right, left = file_meta(2, 10, 20), file_meta(2, 0, 9)
    levels = Levels.of([right, old, tied, left, new], 6, key_of)
    newest = sorted([new.file_name, tied.file_name])
    assert [file.file_name for file in levels.level0] == [*newest, old.file_name]
    assert levels.upper[1] == SortedRun(2, (left, right))
    assert [run.level for run in levels.runs()] == [0, 0, 0, 2]
    assert levels.run_count == 4
    assert levels.max_level == 5
    assert levels.highest_non_empty_level == 2


def test_ties_in_level_0_go_by_smaller_least_sequence_then_time_then_name():
    by_least = [file_meta(sequence=9, min_sequence=m) for m in (3, 1, 2)]
    assert [f.min_sequence_number for f in Levels.of(by_least, 2, key_of).level0] == [1, 2, 3]
    by_time = [file_meta(sequence=9, min_sequence=1, creation_time_ms=t) for t in (7, 4)]
    assert [f.creation_time_ms for f in Levels.of(by_time, 2, key_of).level0] == [4, 7]


def test_no_files_are_no_runs():
    levels = Levels.of([], 6, key_of)
    assert levels.runs() == ()
    assert levels.run_count == 0
    assert levels.highest_non_empty_level == -1
    assert sections(levels.files(), key_of) == ()


def test_level_0_alone_is_the_highest_level():
    assert Levels.of([file_meta()], 6, key_of).highest_non_empty_level == 0


def test_a_file_above_the_last_level_raises_the_number_of_levels():
    assert Levels.of([file_meta(9)], 3, key_of).max_level == 9


@pytest.mark.parametrize("second", [(5, 9), (3, 4), (0, 9)])
def test_overlap_in_an_upper_level_is_corrupt(second):
    with pytest.raises(CorruptDataError, match="overlap"):
        Levels.of([file_meta(1, 0, 5), file_meta(1, *second)], 6, key_of)


def test_files_of_level_0_may_overlap():
    assert Levels.of([file_meta(0, 0, 5), file_meta(0, 3, 9)], 6, key_of).run_count == 2


def test_replacing_takes_files_out_and_puts_files_in():
    first, second, kept = file_meta(0, 0, 5), file_meta(0, 3, 9), file_meta(5, 100, 200)
    levels = Levels.of([first, second, kept], 6, key_of)
    merged = file_meta(5, 0, 9)
    after = levels.replace([first, second], [merged], key_of)
    assert after.files() == (merged, kept)
    assert after.max_level == levels.max_level


def test_an_upgrade_replaces_a_file_by_itself():
    file = file_meta(0, 0, 5)
    after = Levels.of([file], 6, key_of).replace([file], [file.at_level(5)], key_of)
    assert [(f.file_name, f.level) for f in after.files()] == [(file.file_name, 5)]


def test_replacing_a_file_that_is_not_live_is_a_bug():
    file = file_meta(0, 0, 5)
    with pytest.raises(InternalError, match="not live"):
        Levels.of([file], 6, key_of).replace([file.at_level(1)], [], key_of)


def test_runs_of_a_section_are_ordered_oldest_first():
    newest, oldest = file_meta(0, 0, 5, sequence=20), file_meta(3, 4, 9, sequence=10)
    (section,) = sections([newest, oldest], key_of)
    assert [run.files[0] for run in section] == [oldest, newest]
    assert [run.level for run in section] == [3, 0]


_range = st.tuples(st.integers(0, 60), st.integers(0, 15)).map(lambda r: (r[0], r[0] + r[1]))


@given(st.lists(_range, max_size=25))
@settings(max_examples=60, deadline=None)
def test_sections_share_no_key_and_runs_do_not_overlap(pairs):
    files = [file_meta(0, *pair) for pair in pairs]
    found = sections(files, key_of)
    taken = [file for section in found for run in section for file in run.files]
    assert sorted(f.file_name for f in taken) == sorted(f.file_name for f in files)
    reach = -1
    for section in found:
        pieces = [pair for run in section for pair in ranges(run.files)]
        assert min(least for least, _ in pieces) > reach
        reach = max(most for _, most in pieces)
        for run in section:
            bounds = ranges(run.files)
            assert all(a[1] < b[0] for a, b in itertools.pairwise(bounds))
        # as few runs as files cover one key
        deepest = max(sum(a <= key <= b for a, b in pieces) for key in range(reach + 1))
        assert len(section) == deepest
