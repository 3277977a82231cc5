# SPDX-License-Identifier: Apache-2.0
"""Figures about the files of a table, as its commits left them."""

from concurrent.futures import ThreadPoolExecutor

from ingest.upkeep.layout_figures import layout_of
from storage.table.compact_plan import CompactRequest
from storage.table.compact_table import compact_table
from tests.table_kit import make_table, write


def rows(*keys):
    return [("+I", key, "v") for key in keys]


def test_levels_and_what_is_to_compact_follow_commits_and_compactions(tmp_path):
    table = make_table(tmp_path, options={"num-sorted-run.compaction-trigger": "9"})
    assert layout_of(table) is None
    for number in range(3):
        write(table, number, rows(*range(number * 10, number * 10 + 10)))
    layout = layout_of(table)
    ((level, files, size),) = layout.levels
    assert (level, files, size) == (0, 3, layout.bytes)
    assert (layout.files, layout.records, layout.buckets) == (3, 30, 1)
    assert layout.runs == (3,)
    assert 0 < layout.debt_bytes < layout.bytes, "all but the largest file"
    with ThreadPoolExecutor(1) as pool:
        compact_table(table, CompactRequest(full=True), pool, user_prefix="test")
    layout = layout_of(table)
    ((level, files, _),) = layout.levels
    assert (level, files, layout.debt_bytes) == (table.options.num_levels - 1, 1, 0)
    write(table, 7, rows(1, 2))
    layout = layout_of(table)
    assert [level for level, _, _ in layout.levels] == [0, table.options.num_levels - 1]
    assert layout.debt_bytes == layout.levels[0][2]
    assert layout.snapshot_id == table.snapshots.latest_id()


def test_tables_without_keys_have_files_and_no_debt(tmp_path):
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    write(table, 1, rows(1, 2))
    write(table, 2, rows(3))
    layout = layout_of(table)
    assert (layout.files, layout.runs, layout.debt_bytes) == (2, (), 0)
