# SPDX-License-Identifier: Apache-2.0
"""What is done to tables beside the stream, and when."""

import contextlib
import os
import pathlib

import pytest

from ingest.config.settings import MaintenanceSettings
from ingest.daemon.maintenance import (
    CLEAN_EVERY_S,
    EXPIRE_EVERY_COMMITS,
    FIRST_CLEAN_S,
    SWEEP_EVERY_S,
    Maintenance,
)
from ingest.observe.metrics.telemetry import Metrics
from ingest.pipeline.batch_report import BatchReport
from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.io.local import LocalFileIO
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.table.tags import all_tags
from tests.faulty_io import Fault, FaultyFileIO
from tests.table_kit import make_table, reopened, write
from tests.unit.ingest.one_table_book import OneTableBook
from tests.unit.storage.table.iceberg.rest_catalog import RefusedError, rest_catalog

FEW = {
    "snapshot.num-retained.min": "1",
    "snapshot.num-retained.max": "1",
    "num-sorted-run.compaction-trigger": "50",
}
EACH_MINUTE = {
    "tag.automatic-creation": "process-time",
    "tag.creation-period-duration": "1 min",
    "tag.num-retained-max": "2",
}


class Upkeep:
    """A table, its clock, and the maintenance of a stream that writes it."""

    def __init__(self, root: pathlib.Path, options: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.table = make_table(root, options=options, clock=self.clock)
        self.book = OneTableBook(reopened(self.table))
        self.metrics = Metrics(ManualClock(), process=False)
        self.maintenance = Maintenance(self.book, self.clock, self.metrics)
        self.commits = 0

    def commit(self) -> None:
        """One batch, and what is due after it, done."""
        self.commits += 1
        write(reopened(self.table), self.commits, [("+I", self.commits, "a")])
        self.maintenance.after_batch(
            BatchReport(
                batch_id=self.commits,
                identifier=self.commits,
                outcome="committed",
                snapshots={"db.t": self.commits},
            )
        )
        self.settle()

    def beat(self, after_s: float = 0) -> None:
        """What is due while nothing is committed, done."""
        self.clock.sleep(after_s)
        self.maintenance.beat()
        self.settle()

    def clean_orphans(self) -> None:
        """Set the cleaning of files that nothing names."""
        self.book.settings.maintenance = MaintenanceSettings(
            snapshot_retain_s=None, orphan_clean_s=7 * 86_400.0
        )

    def settle(self) -> None:
        self.maintenance._submit(lambda: None)
        self.maintenance._pool.submit(lambda: None).result()

    def counted(self, name: str) -> float | None:
        """What a metric of the table says."""
        return self.metrics.registry.get_sample_value(f"lakeward_{name}", {"table": "db.t"})

    @property
    def tags(self) -> list[str]:
        return [tag.name for tag in all_tags(self.table)]

    @property
    def snapshots(self) -> int:
        return len(self.table.snapshots.ids())


@pytest.fixture
def upkeep(tmp_path):
    made = []

    def make(options):
        made.append(Upkeep(tmp_path, options))
        return made[-1]

    yield make
    for each in made:
        each.maintenance.close()


def test_snapshots_expire_now_and_then(upkeep):
    stream = upkeep(FEW)
    for _ in range(EXPIRE_EVERY_COMMITS - 1):
        stream.commit()
    assert stream.snapshots == EXPIRE_EVERY_COMMITS - 1
    stream.commit()
    assert stream.snapshots == 1
    assert stream.counted("snapshots_expired_total") == EXPIRE_EVERY_COMMITS - 1


def test_tables_with_automatic_tags_are_looked_after_at_each_commit(upkeep):
    stream = upkeep(FEW | EACH_MINUTE)
    seen = []
    for _ in range(4):
        stream.commit()
        seen.append(len(stream.tags))
        stream.clock.sleep(61)
    assert seen == [1, 2, 2, 2]
    assert stream.snapshots == 1


def test_a_bounded_run_ends_with_its_tag(upkeep):
    stream = upkeep(
        FEW | {"tag.automatic-creation": "batch", "tag.batch.customized-name": "nightly"}
    )
    stream.commit()
    stream.commit()
    assert stream.tags == []
    stream.maintenance.finish()
    (tag,) = all_tags(stream.table)
    assert (tag.name, tag.snapshot.id) == ("nightly", 2)
    assert stream.snapshots == 1


def test_a_bounded_run_without_rows_makes_no_tag(upkeep):
    stream = upkeep({"tag.automatic-creation": "batch"})
    write(reopened(stream.table), 1, [("+I", 1, "before")])
    stream.maintenance.finish()
    assert stream.tags == []


def test_a_pass_that_fails_is_told_and_made_again(upkeep, caplog):
    stream = upkeep(FEW | EACH_MINUTE)
    sound = stream.book.opened
    counting = FaultyFileIO(LocalFileIO(durable=False))
    reopened(stream.table, file_io=counting)
    first = Fault(len(counting.operations) + 1, "error")
    stream.book.opened = reopened(
        stream.table, file_io=FaultyFileIO(LocalFileIO(durable=False), first)
    )
    stream.book.snapshot_id = lambda name: 0
    stream.commit()
    assert [record.event for record in caplog.records] == ["upkeep_failed"]
    assert caplog.records[0].exc_info[0] is StorageUnavailableError
    stream.book.opened = sound
    stream.commit()
    assert len(stream.tags) == 1


def test_partitions_are_done_while_nothing_is_committed(tmp_path):
    clock = ManualClock()
    options = {"partition.idle-time-to-done": "10 min", "partition.time-interval": "1 d"}
    table = make_table(
        tmp_path,
        columns=(("dt", "STRING"), ("k", "BIGINT")),
        keys=("dt", "k"),
        partitions=("dt",),
        options=options,
        clock=clock,
    )
    write(table, 1, [("+I", "2020-01-01", 1)])
    done = pathlib.Path(table.layout.root) / "dt=2020-01-01" / "_SUCCESS"
    book, watcher = OneTableBook(reopened(table)), Metrics(ManualClock(), process=False)
    with contextlib.closing(Maintenance(book, clock, watcher)) as maintenance:
        for is_done in (False, False, False, True):  # at 0, 5, 10 and 15 minutes
            maintenance.beat()
            maintenance._pool.submit(lambda: None).result()
            assert done.exists() is is_done
            clock.advance(300_000)


def test_an_iceberg_catalog_is_caught_up_with_while_nothing_is_committed(upkeep):
    def away(_method, _path):
        raise RefusedError(503, "away")

    with rest_catalog() as catalog:
        stream = upkeep(
            {
                "metadata.iceberg.storage": "rest-catalog",
                "metadata.iceberg.rest.uri": catalog.uri,
            }
        )
        stream.commit()
        assert stream.counted("iceberg_behind_snapshots") == 0
        catalog.before = away
        stream.commit()
        stream.commit()
        assert stream.counted("iceberg_behind_snapshots") == 2
        assert stream.counted("iceberg_publish_failures_total") == 2
        catalog.before = lambda _method, _path: None
        stream.beat(31)
        assert stream.counted("iceberg_behind_snapshots") == 0
        newest = stream.table.latest_snapshot().id
        assert catalog.tables["db.t"]["current-snapshot-id"] == newest


@pytest.mark.parametrize("options", [{"changelog-producer": "lookup"}, {}])
def test_unused_copies_of_data_files_go_while_the_stream_is_idle(
    upkeep, tmp_path, monkeypatch, options
):
    copies = tmp_path / "copies"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(copies))
    old, young = (copies / "0123456789abcdef" / f"{name}.copy" for name in ("old", "young"))
    old.parent.mkdir(parents=True)
    for path, until_s in ((old, 1), (young, 2**33)):
        path.write_bytes(b"copy")
        os.utime(path, (until_s, until_s))
    stream = upkeep(options)
    stream.beat(SWEEP_EVERY_S - 1)
    assert old.exists()
    stream.beat(1)
    assert old.exists() == (not options)
    assert young.exists()


def left_over(table, name):
    """A file that nothing names, as old as the epoch."""
    (bucket,) = pathlib.Path(table.layout.root).glob("bucket-*")
    path = bucket / name
    path.write_bytes(b"left")
    os.utime(path, (1, 1))
    return path


def test_files_that_nothing_names_go_once_a_day(upkeep, caplog):
    stream = upkeep({})
    stream.commit()
    stream.clean_orphans()
    first = left_over(stream.table, "data-a-0.parquet")
    stream.beat()
    assert first.exists()
    with caplog.at_level("INFO"):
        stream.beat(FIRST_CLEAN_S)
    assert not first.exists()
    assert [r.files for r in caplog.records if r.event == "orphans_removed"] == [1]
    assert stream.counted("orphan_files_removed_total") == 1
    second = left_over(stream.table, "data-b-0.parquet")
    stream.beat(CLEAN_EVERY_S - 1)
    assert second.exists()
    stream.beat(1)
    assert not second.exists()


def test_nothing_is_cleaned_unless_the_settings_say_so(upkeep):
    stream = upkeep({})
    stream.commit()
    path = left_over(stream.table, "data-a-0.parquet")
    stream.beat(10 * CLEAN_EVERY_S)
    assert path.exists()


def test_a_pass_ends_when_the_daemon_does(upkeep):
    stream = upkeep({})
    stream.commit()
    stream.clean_orphans()
    path = left_over(stream.table, "data-a-0.parquet")
    stream.maintenance._closing.set()
    stream.beat(FIRST_CLEAN_S)
    assert path.exists()
