# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of the running daemon, also inside commit and compaction, and a lost checkpoint."""

import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.daemon_process import (
    DaemonProcess,
    drain,
    eventually,
    kafka_config,
    newest_snapshot,
)
from tests.e2e.shop_stream import (
    PATTERN,
    TABLES,
    ShopStream,
    assert_identifiers_never_repeat,
    assert_no_file_missing,
    assert_tables_equal_model,
    open_tables,
    quarantined,
)
from tests.sessions import session_processes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

# Where to kill: after a random time, when a commit has begun to write metadata, or when a bucket
# got a second new file since the table's newest snapshot: level 0, then a compaction's output.
MOMENTS = ("random", "commit", "compaction")


def wait_for_moment(warehouse: Path, moment: str, rng: random.Random, timeout: float) -> bool:
    """Return at the chosen moment of the daemon's work; False if it did not come in time."""
    if moment == "random":
        time.sleep(rng.uniform(0.0, min(4.0, timeout)))
        return True
    deadline = time.monotonic() + timeout
    tables = [warehouse / "shop.db" / name for name in TABLES]
    begun = (commit_begins if moment == "commit" else compaction_writes)(tables)
    while time.monotonic() < deadline:
        if next(begun):
            return True
        time.sleep(0.002)
    return False


def commit_begins(tables: list[Path]) -> Iterator[bool]:
    """Whether a manifest came that no snapshot can name yet."""
    known = {path for table in tables for path in table.glob("manifest/*")}
    while True:
        yield any(path not in known for table in tables for path in table.glob("manifest/*"))


def compaction_writes(tables: list[Path]) -> Iterator[bool]:
    """Whether a bucket has two files more than when its table was last committed."""
    seen: dict[Path, tuple[int, set[Path]]] = {}
    while True:
        found = False
        for table in tables:
            files = set(table.glob("bucket-*/*"))
            newest = newest_snapshot(table.parents[1], f"shop.{table.name}")
            at, known = seen.setdefault(table, (newest, files))
            if at != newest:
                seen[table] = (newest, files)
                continue
            buckets = [path.parent for path in files - known]
            found |= len(buckets) > len(set(buckets))
        yield found


@pytest.mark.parametrize(
    "kills",
    [pytest.param(3, id="short"), pytest.param(20, id="long", marks=pytest.mark.full)],
)
def test_killed_daemon_loses_nothing_and_repeats_nothing(kafka_broker, spark, tmp_path, kills):
    rng = random.Random(20261121 + kills)
    stream = ShopStream(kafka_broker, seed=21)
    stream.snapshot(300)
    stream.corruption()
    config = kafka_config(
        tmp_path,
        kafka_broker,
        PATTERN,
        max_records=1_500,
        interval="100ms",
        table_properties={"bucket": "2", "snapshot.num-retained.min": "1000"},
    )
    warehouse = tmp_path / "warehouse"
    stop = threading.Event()
    hits = Counter()
    producing = threading.Thread(target=_produce, args=(stream, stop, kills))
    producing.start()
    try:
        for number in range(kills):
            before = sum(newest_snapshot(warehouse, f"shop.{name}") for name in TABLES)
            with DaemonProcess(config) as daemon:
                eventually(
                    lambda daemon=daemon, before=before: (
                        not daemon.alive
                        or sum(newest_snapshot(warehouse, f"shop.{n}") for n in TABLES) > before
                    ),
                    timeout=120,
                    interval=0.02,
                    what=f"a commit of run {number}\n{daemon.log_tail()}",
                )
                assert daemon.alive, daemon.log_tail()
                moment = MOMENTS[number % len(MOMENTS)]
                hits[moment] += wait_for_moment(warehouse, moment, rng, timeout=15)
                if number % 2:
                    daemon.kill()
                else:
                    daemon.kill_all()
            if number == kills // 2:
                shutil.rmtree(tmp_path / "checkpoint")
    finally:
        stop.set()
        producing.join(120)

    drain(config, spark, pipeline_trigger_max_records=50_000)

    assert set(+hits) == set(MOMENTS), f"moments that never came: {hits}"
    assert_tables_equal_model(warehouse, stream.shop)
    assert quarantined(warehouse) == stream.corrupt
    for table in open_tables(warehouse).values():
        assert_identifiers_never_repeat(table)
        assert_no_file_missing(table)


def _produce(stream: ShopStream, stop: threading.Event, kills: int) -> None:
    """Keep changes coming while the daemon lives and dies."""
    for _ in range(kills * 40):
        if stop.is_set():
            return
        stream.changes(500)
        stop.wait(0.3)


def test_sigterm_finishes_the_batch_and_exits_clean_without_a_warning(
    kafka_broker, spark, tmp_path
):
    stream = ShopStream(kafka_broker, seed=22)
    stream.snapshot(500)
    stream.changes(8_000)
    config = kafka_config(tmp_path, kafka_broker, PATTERN, max_records=2_000, interval="100ms")
    with config.open("a") as file:
        file.write("log: {format: json}\n")
    warehouse = tmp_path / "warehouse"
    with DaemonProcess(config) as daemon:
        eventually(
            lambda: newest_snapshot(warehouse, "shop.orders") >= 2 or not daemon.alive,
            timeout=120,
            what=daemon.log_tail(),
        )
        assert daemon.alive, daemon.log_tail()
        leader = daemon.process.pid
        processes = [pid for pid, _ in session_processes(leader)]
        assert len(processes) > 2, "Java and workers"
        # what is sent to the group, as `timeout` does, reaches the daemon alone
        assert [pid for pid in processes if os.getpgid(pid) == leader] == [leader]
        assert daemon.terminate() == 0, daemon.log_tail()
    lines = daemon.log_lines()
    assert [line for line in lines if line["level"] not in {"debug", "info"}] == []
    assert {"starting", "running", "batch"} <= {line.get("event") for line in lines}
    offsets, commits = (
        max(
            int(path.name)
            for path in (tmp_path / "checkpoint" / part).iterdir()
            if path.name.isdigit()
        )
        for part in ("offsets", "commits")
    )
    assert commits >= offsets - 1
    identifiers = {t.snapshots.latest().commit_identifier for t in open_tables(warehouse).values()}
    assert max(identifiers) <= commits, "a batch was committed that Spark did not record"
    drain(config, spark, pipeline_trigger_max_records=50_000)
    assert_tables_equal_model(warehouse, stream.shop)
