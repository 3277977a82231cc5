# SPDX-License-Identifier: Apache-2.0
from storage.lsm.compaction_policy import CompactUnit
from storage.lsm.merge_tree_writer import plan_unit
from tests.unit.storage.file_metas import file_meta, key_of, ranges

_SMALL = 70


def _plan(files, *, output=5, last=5, rewrite_all=False):
    unit = CompactUnit(files=tuple(files), output_level=output, max_level=last, drop_deletes=True)
    plan = plan_unit(unit, key_of, small_file_bytes=_SMALL, rewrite_all=rewrite_all)
    groups = [
        [sorted(pair for run in section for pair in ranges(run.files)) for section in group]
        for group in plan.rewrites
    ]
    return groups, ranges(plan.upgrades), ranges(plan.unchanged)


def test_overlapping_files_are_merged():
    files = [file_meta(0, 0, 5, size=100), file_meta(0, 3, 9, size=100)]
    assert _plan(files) == ([[[[0, 5], [3, 9]]]], [], [])


def test_large_files_alone_in_their_section_are_upgraded():
    files = [file_meta(0, 0, 5, size=100), file_meta(0, 6, 9, size=70)]
    assert _plan(files) == ([], [[0, 5], [6, 9]], [])


def test_small_files_alone_are_rewritten_together():
    files = [file_meta(0, 0, 5, size=10), file_meta(0, 6, 9, size=69)]
    assert _plan(files) == ([[[[0, 5]], [[6, 9]]]], [], [])


def test_one_small_file_without_neighbours_is_upgraded():
    assert _plan([file_meta(0, 0, 5, size=10)]) == ([], [[0, 5]], [])


def test_a_large_file_cuts_the_rewrite_in_two():
    files = [
        file_meta(0, 0, 1, size=10),
        file_meta(0, 2, 3, size=10),
        file_meta(0, 4, 5, size=500),
        file_meta(0, 6, 7, size=10),
        file_meta(0, 8, 9, size=100),
        file_meta(0, 9, 12, size=100),
    ]
    groups, upgrades, kept = _plan(files)
    assert groups == [[[[0, 1]], [[2, 3]]], [[[6, 7]], [[8, 9], [9, 12]]]]
    assert upgrades == [[4, 5]]
    assert kept == []


def test_a_file_already_on_the_output_level_stays():
    files = [file_meta(5, 0, 5, size=100), file_meta(0, 6, 9, size=100)]
    assert _plan(files) == ([], [[6, 9]], [[0, 5]])


def test_retractions_do_not_move_to_the_last_level():
    with_deletes = file_meta(0, 0, 5, size=100, deletes=3)
    unknown = file_meta(0, 6, 9, size=100, deletes=None)
    assert _plan([with_deletes, unknown]) == ([[[[0, 5]]], [[[6, 9]]]], [], [])
    assert _plan([with_deletes, unknown], output=4) == ([], [[0, 5], [6, 9]], [])


def test_rewriting_all_files_leaves_none_as_it_is():
    files = [file_meta(5, 0, 5, size=100), file_meta(0, 6, 9, size=100)]
    assert _plan(files, rewrite_all=True) == ([[[[0, 5]]], [[[6, 9]]]], [], [])
