# SPDX-License-Identifier: Apache-2.0
"""A job downstream keeps sums from a changelog; however often it dies, they are right."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException

from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.retention.consumers import all_consumers
from storage.table.table import FileStoreTable
from tests.e2e.conftest import AUTOMATIC
from tests.e2e.daemon_process import (
    ROOT,
    DaemonProcess,
    eventually,
    files_config,
    newest_snapshot,
    run_once,
)
from tests.e2e.downstream_job import start
from tests.soak.soak import Load
from tests.table_kit import make_table, write

pytestmark = pytest.mark.spark

PRODUCERS = {
    "lookup": {"changelog-producer": "lookup"},
    "full-compaction": {
        "changelog-producer": "full-compaction",
        "full-compaction.delta-commits": "3",
    },
}


def target_of(directory: Path) -> FileStoreTable:
    columns = (("name", "STRING"), ("total", "DECIMAL(30,2)"), ("count", "BIGINT"))
    return make_table(directory, columns=columns, keys=("name",))


def kept(target: FileStoreTable) -> dict[str, tuple[Decimal, int]]:
    """What the job has made of the changelog."""
    found = target.latest().to_arrow().to_pylist()
    return {row["name"]: (row["total"], row["count"]) for row in found if row["count"]}


def summed(table: FileStoreTable, group: str, value: str) -> dict[str, tuple[Decimal, int]]:
    """The same of the rows."""
    rows = table.latest().to_arrow(columns=[group, value])
    found = rows.group_by(group).aggregate([(value, "sum"), (value, "count")]).to_pylist()
    # a null adds nothing but is a row
    counts = rows.group_by(group).aggregate([([], "count_all")]).to_pylist()
    count_of = {row[group]: row["count_all"] for row in counts}
    cent = Decimal("0.01")
    return {
        row[group]: (Decimal(row[f"{value}_sum"] or 0).quantize(cent), count_of[row[group]])
        for row in found
    }


def compact_fully(table: FileStoreTable) -> None:
    """Bring everything into the changelog, also what waits for the next full compaction."""
    with ThreadPoolExecutor(1) as executor:
        report = compact_table(table.latest(), CompactRequest(full=True), executor)
    assert report.complete


@pytest.mark.parametrize(
    "producer", ["lookup", pytest.param("full-compaction", marks=pytest.mark.full)]
)
def test_sums_survive_failures_between_batch_and_checkpoint(spark, tmp_path, producer):
    columns = (("k", "BIGINT"), ("g", "STRING"), ("v", "BIGINT"))
    table = make_table(tmp_path / "w", columns=columns, options=PRODUCERS[producer])
    target, place = target_of(tmp_path / "t"), str(tmp_path / "place")
    rng, live = np.random.default_rng(3), {}
    failing = random.Random(4)

    def fail(batch: int) -> None:
        if failing.random() < 0.5:
            raise RuntimeError("planned failure")

    for number in range(1, 10):
        rows = []
        for key in rng.integers(0, 60, 25).tolist():
            gone = live.pop(key, None)
            if gone is not None and rng.random() < 0.4:
                rows.append(("-D", *gone))
                continue
            live[key] = (key, f"g{rng.integers(0, 4)}", int(rng.integers(-50, 50)))
            rows.append(("+I", *live[key]))
        write(table, number, rows, stream=True)
        if number % 3 == 0:
            query = start(
                spark,
                table.layout.root,
                target.layout.root,
                place,
                "g",
                "v",
                after=fail if number < 9 else lambda batch: None,
                snapshots=2,
                availableNow=True,
            )
            with contextlib.suppress(StreamingQueryException):
                query.awaitTermination(60)
            query.stop()
    assert number % 3 == 0, "the last commit made a full compaction"
    assert kept(target) == summed(table, "g", "v")
    assert len(live) == sum(count for _, count in kept(target).values())


class Job:
    """The job as a process."""

    def __init__(self, directory: Path, queries: dict[str, list[str]]) -> None:
        self._path = directory / "downstream.log"
        self._queries = queries
        self._start()

    def _start(self) -> None:
        self._log = self._path.open("wb")
        path = os.pathsep.join([str(ROOT), str(AUTOMATIC)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.downstream_job", json.dumps(self._queries)],
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )

    def has_begun(self, before: dict[str, int], places: dict[str, str]) -> bool:
        """Whether each query has planned a batch that it had not planned before."""
        if self.process.poll() is not None:
            log = self._path.read_text(errors="replace")
            # Spark gives a worker ten seconds to start, which a busy machine may not have
            assert "Python worker failed to connect back" in log, log[-8_000:]
            self.kill()
            self._start()
        return all(planned(place) > before[name] for name, place in places.items())

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._log.close()


def planned(place: str) -> int:
    """Batches that a query has begun."""
    return sum(path.name.isdecimal() for path in Path(place, "offsets").glob("*"))


@pytest.mark.full
def test_sums_survive_five_kills_while_the_daemon_writes(tmp_path):
    rng = random.Random(11)
    load = Load(tmp_path / "events", seed=5, per_file=50)
    load.begin(400)
    kinds = {"orders": PRODUCERS["lookup"], "products": PRODUCERS["full-compaction"]}
    config = files_config(
        tmp_path,
        trigger={"interval": "1s", "max.records": 2_000},
        table_properties={"bucket": "2", "snapshot.num-retained.max": "30"},
        tables=[{"match": f"shop.{one}", "table.properties": kind} for one, kind in kinds.items()],
    )
    shape = {"orders": ("status", "amount"), "products": ("category", "price")}
    targets = {name: target_of(tmp_path / f"sums-{name}") for name in shape}
    queries = {
        name: [
            str(tmp_path / "warehouse/shop.db" / name),
            targets[name].layout.root,
            str(tmp_path / f"place-{name}"),
            *shape[name],
        ]
        for name in shape
    }
    places = {name: arguments[2] for name, arguments in queries.items()}
    with DaemonProcess(config) as daemon:
        eventually(
            lambda: all(newest_snapshot(tmp_path / "warehouse", f"shop.{one}") for one in shape),
            timeout=240,
            what="first commits",
        )
        load.start()
        for _ in range(5):
            before = {name: planned(place) for name, place in places.items()}
            job = Job(tmp_path, queries)
            eventually(
                lambda job=job, before=before: job.has_begun(before, places),
                timeout=300,
                what="batches of the job",
            )
            time.sleep(rng.uniform(0.0, 3.0))
            assert daemon.alive, daemon.log_tail()
            job.kill()
        load.stop()
        assert daemon.terminate(300) == 0
    run_once(config)
    tables = {name: FileStoreTable.open(queries[name][0]) for name in shape}
    for table in tables.values():
        compact_fully(table)
        assert "sums" in all_consumers(table)
        assert table.snapshots.ids()[0] > 1, "snapshots expired while the job was away"
    job = Job(tmp_path, queries)
    try:
        for name, table in tables.items():
            expected = summed(table, *shape[name])
            eventually(
                lambda name=name, expected=expected: kept(targets[name]) == expected,
                timeout=600,
                what=f"the sums of {name}: {expected}",
            )
    finally:
        job.kill()
    newest = {name: table.snapshots.latest_id() for name, table in tables.items()}
    print(f"{load.events} events, newest snapshots {newest}")
