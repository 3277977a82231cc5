# SPDX-License-Identifier: Apache-2.0
"""How a table lies in its newest snapshot, by manifests alone."""

import dataclasses

from ingest.daemon.maintenance import LayoutWatch
from ingest.observe.metrics.layout_figures import layout_of
from storage.clock import ManualClock
from tests.table_kit import make_table, reopened, write
from tests.unit.ingest.one_table_book import OneTableBook


def test_a_table_without_snapshots_has_no_figures(tmp_path):
    assert layout_of(make_table(tmp_path)) is None


def test_runs_are_files_of_level_0_and_further_levels(tmp_path):
    table = make_table(tmp_path, options={"num-sorted-run.compaction-trigger": "4"})
    write(table, 1, [("+I", n, "a") for n in range(10)], full=True)
    for number in (2, 3):
        write(reopened(table), number, [("+I", number, "b")], compaction=False)
    found = layout_of(reopened(table))
    assert (found.files, found.buckets, found.partitions) == (3, 1, 1)
    assert (found.runs, found.level0) == ((3,), (2,))
    assert found.records == 12
    assert found.compaction_trigger == 4
    assert found.stop_trigger == 7
    assert found.snapshots == reopened(table).latest_snapshot().id
    figures = found.figures()
    assert figures["sorted_runs_max"] == 3
    assert figures["level0_files_avg"] == 2


def test_append_tables_have_files_but_no_runs(tmp_path):
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    write(table, 1, [("+I", 1, "a")])
    figures = layout_of(reopened(table)).figures()
    assert figures["files"] == 1
    assert not [name for name in figures if "runs" in name or "level0" in name]


def test_several_buckets_have_a_maximum_and_a_mean(tmp_path):
    table = make_table(tmp_path, options={"bucket": "2"})
    write(table, 1, [("+I", n, "a") for n in range(20)])
    found = layout_of(reopened(table))
    uneven = dataclasses.replace(found, runs=(1, 5), level0=(0, 4)).figures()
    assert found.buckets == 2
    assert (uneven["sorted_runs_max"], uneven["sorted_runs_avg"]) == (5, 3)


def test_only_tables_that_changed_are_looked_at_and_a_broken_one_harms_none(tmp_path):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    seen = []
    watch = LayoutWatch(OneTableBook(reopened(table)), ManualClock(), lambda *one: seen.append(one))
    watch.measure()
    assert seen == []
    watch.schedule(["db.t"])
    watch.measure()
    watch.measure()
    assert [(name, layout.files) for name, layout in seen] == [("db.t", 1)]
    for manifest in (tmp_path / "db.db" / "t" / "snapshot").iterdir():
        manifest.write_bytes(b"{")
    watch.schedule(["db.t"])
    watch.measure()
    assert len(seen) == 1
