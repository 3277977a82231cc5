# SPDX-License-Identifier: Apache-2.0
"""Compaction beside the stream: a race that a batch's compaction loses costs that compaction."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.daemon.compact_runs import Selection, compact_tables, selected
from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from ingest.state.stream_position import StreamPosition
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.snapshot import CommitKind
from storage.table.compaction.compact_table import CompactRequest
from storage.testing.invariants import check_table
from tests.e2e.daemon_process import files_config
from tests.e2e.shop_stream import open_tables, snapshots, sorted_rows
from tests.soak.replay import replayed, rows_by_key
from tests.soak.soak import Load

pytestmark = pytest.mark.spark
NAME = "shop.customers"


class Rival:
    """Somebody who compacts everything between a batch's job and its commits."""

    def __init__(self, warehouse, monkeypatch):
        self.compacted = 0
        noted = StreamPosition.note

        def note(position, *arguments):
            noted(position, *arguments)
            self.compact(FileSystemCatalog(warehouse))

        monkeypatch.setattr(StreamPosition, "note", note)

    def compact(self, catalog):
        names = selected(catalog, Selection(database="shop"))
        with ThreadPoolExecutor(1) as executor:
            runs = compact_tables(catalog, names, CompactRequest(), executor, parallelism=1)
        assert all(run.error is None for run in runs), runs
        self.compacted += sum(run.report.compacted for run in runs)


def config_of(directory, **properties):
    return files_config(
        directory,
        name="beside",
        trigger={"interval": "100ms", "max.records": 300},
        table_properties={
            "bucket": "1",
            "num-sorted-run.compaction-trigger": "2",
            "snapshot.num-retained.min": "1000",
            **properties,
        },
    )


def written(directory, changes):
    """A directory of events of one table, some files of them."""
    load = Load(directory / "events", seed=41, per_file=0)
    for events in load.shop.insert("customers", 150, snapshot=True):
        load._write(events)
    for _ in range(changes // 250):
        for events in load.shop.change("customers", 250):
            load._write(events)
    return load.shop


def test_a_lost_race_drops_the_compaction_and_neither_append_nor_stream(
    spark, tmp_path, monkeypatch
):
    shop = written(tmp_path, changes=750)
    config = config_of(tmp_path, **{"changelog-producer": "lookup"})
    reports = []
    settings = load_settings(config)
    rival = Rival(settings.sink.warehouse, monkeypatch)
    daemon = Daemon(settings, once=True, session=spark, on_batch=reports.append)

    assert daemon.run() == 0

    assert rival.compacted > 0
    assert sum(report.compactions_dropped.get(NAME, 0) for report in reports) > 0
    assert daemon._observer.metrics.registry.get_sample_value(
        "lakeward_compactions_total", {"table": NAME, "kind": "minor", "outcome": "dropped"}
    )
    table = open_tables(tmp_path / "warehouse")["customers"]
    check_table(table)
    expected = sorted_rows(shop.expected("customers"), table.schema.primary_keys[0])
    found = sorted_rows(table.to_arrow(), table.schema.primary_keys[0])
    assert found.select(expected.column_names).equals(expected)
    users = {s.commit_user for s in snapshots(table) if s.commit_kind is CommitKind.COMPACT}
    assert any(user.startswith("compact-") for user in users)
    replay = replayed(table)
    assert replay.wrong == []
    assert replay.rows == rows_by_key(table)
