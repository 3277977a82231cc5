# SPDX-License-Identifier: Apache-2.0
"""A daemon that carries half of what it can, for long: nothing may grow but the tables.

First a backlog, whose time says what this machine can carry with the load's own process beside it;
then half of that, evenly, from a real broker whose topics forget, into tables with a looked-up
changelog that expire their snapshots. The thread that makes the load stands for other machines, so
the daemon goes before it. After a warm-up memory, lag, files and runs must stay where they are, and
what is written must be visible soon. At the end the rows must be those of the model.
"""

import dataclasses
import os
import statistics
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ingest.tools.demo.shop import TABLES, Mix
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import type_from_arrow
from storage.testing.invariants import violations
from tests.e2e.daemon_process import DaemonProcess, eventually, kafka_config
from tests.e2e.kafka_broker import local_broker
from tests.e2e.shop_stream import (
    HEARTBEAT_TOPIC,
    PATTERN,
    ShopStream,
    assert_rows_equal_model,
    open_tables,
)
from tests.free_ports import free_port
from tests.soak.memory import MemorySamples

MIX = Mix(insert=0.01, update=0.98, delete=0.01, key_change=0.0)
ROWS = 20_000
BACKLOG = 200_000
TRIGGER_MS = 100
"""A batch follows the other without a pause, as long as there are records."""
EVERY_S = 2.0
_AFTER_THE_DAEMON = 5
"""Niceness of the thread that makes the load."""
MOST_PER_S = 35_000
"""More would make the load's own process the one that is measured."""
PROPERTIES = {
    "bucket": "1",
    "changelog-producer": "lookup",
    "snapshot.num-retained.min": "5",
    "snapshot.num-retained.max": "30",
    "snapshot.time-retained": "1 min",
}
RETENTION = {"retention.bytes": "67108864", "segment.bytes": "16777216"}
SHOWN = (
    "source_lag_records",
    "table_source_timestamp_seconds",
    "table_files",
    "table_sorted_runs_max",
)
"""What every look must find: a figure that is missing is not 0."""

SLOPE_GOAL = 1.0
FRESH_GOAL_S = 2.0


@dataclasses.dataclass(kw_only=True)
class Steady:
    """What was seen; `failures` is empty when all is well. Times in seconds, memory in MiB.

    Freshness is the age of the newest visible change of the table that is furthest behind, at each
    look; the delay is from the oldest change of a batch to its commit, as shares of all commits.
    Memory is that of driver, Java machine and workers together, with mapped files; a page that
    processes share is divided among them (`MemorySamples`).
    """

    minutes: float
    capacity_per_s: float = 0.0
    load_per_s: float = 0.0
    carried_per_s: float = 0.0
    events: int = 0
    samples: int = 0
    warm_up_s: float = 0.0
    memory: dict[str, float] = dataclasses.field(default_factory=dict)
    most_by_quarter: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    median_by_twelfth: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    lag_records: dict[str, float] = dataclasses.field(default_factory=dict)
    freshness_s: dict[str, float] = dataclasses.field(default_factory=dict)
    commits: int = 0
    commit_delay_s: dict[str, float] = dataclasses.field(default_factory=dict)
    files: dict[str, float] = dataclasses.field(default_factory=dict)
    runs: dict[str, float] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Sample:
    """One look, `at` seconds after the load began."""

    at: float
    memory_mb: float
    lag: float
    freshness_s: float
    files: float
    runs: float


class SteadyLoad(threading.Thread):
    """Produces so many events a second, of the time when they are made."""

    def __init__(self, stream: ShopStream, per_s: float) -> None:
        super().__init__(name="load", daemon=True)
        self._stream = stream
        self._per_s = per_s
        self._stopping = threading.Event()

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, 0, _AFTER_THE_DAEMON)  # of this thread, on Linux
        began, first = time.monotonic(), self._stream.produced
        while not self._stopping.wait(0.05):
            due = int((time.monotonic() - began) * self._per_s) - self._stream.produced + first
            if due > 0:
                self._stream.shop.at(int(time.time() * 1000))
                for events in self._stream.shop.stream(due, MIX):
                    self._stream.send(events)
        self._stream.flush()

    def stop(self) -> None:
        """End, with everything acknowledged."""
        self._stopping.set()
        self.join(120)


def run_steady(directory: Path, *, minutes: float, seed: int = 1) -> Steady:
    """Run it, check it, and say what was seen.

    Args:
        directory: empty; everything goes below it.
        minutes: how long there is load.
        seed: of the events.
    """
    directory.mkdir(parents=True, exist_ok=True)
    result = Steady(minutes=minutes)
    port = free_port()
    with local_broker() as bootstrap:
        stream = ShopStream(bootstrap, seed=seed, schema_block=False)
        _forget(bootstrap, stream.topics)
        stream.snapshot(ROWS)
        _make_tables(directory / "warehouse")
        config = kafka_config(
            directory,
            bootstrap,
            PATTERN,
            interval=f"{TRIGGER_MS}ms",
            max_records=200_000,
            table_properties=PROPERTIES,
        )
        # the topics forget what was carried; a lag that reaches what is forgotten is a failure
        with DaemonProcess(config, environment={"LAKEWARD__METRICS__PORT": str(port)}) as daemon:
            _level(daemon, port, stream)
            result.capacity_per_s = _capacity(daemon, stream, port)
            result.load_per_s = min(result.capacity_per_s / 2, MOST_PER_S)
            before = stream.produced
            load = SteadyLoad(stream, result.load_per_s)
            load.start()
            memory = MemorySamples(daemon.process.pid)
            samples = _watch(daemon, port, minutes * 60, memory, result)
            result.most_by_quarter = memory.by_part(4, max)
            result.median_by_twelfth = memory.by_part(12, statistics.median)
            load.stop()
            result.carried_per_s = (stream.produced - before) / (minutes * 60)
            if daemon.alive:
                _level(daemon, port, stream)
                if (code := daemon.terminate(300)) != 0:
                    result.failures.append(f"the daemon ended with {code}\n{daemon.log_tail()}")
            else:
                result.failures.append(f"the daemon ended by itself\n{daemon.log_tail()}")
        result.events = stream.produced
    judge(result, samples)
    _check(directory / "warehouse", stream, result)
    return result


def _make_tables(warehouse: Path) -> None:
    """The shop's tables with their types, which bare events do not tell."""
    catalog = FileSystemCatalog(str(warehouse))
    for table in TABLES.values():
        fields = [
            (each.name, type_from_arrow(each.type, each.nullable)) for each in table.arrow_schema
        ]
        keys = (table.columns[0].name,)
        schema = new_schema(fields, primary_keys=keys, options=PROPERTIES)
        catalog.create_table(f"shop.{table.name}", schema)


def _forget(bootstrap: str, topics: list[str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in RETENTION.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kind = ConfigResource.Type.TOPIC
    wanted = [ConfigResource(kind, each, incremental_configs=entries) for each in topics]
    for future in admin.incremental_alter_configs(wanted).values():
        future.result(30)


def _page(port: int) -> list[str]:
    """Lines of the metrics' page; none while nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode()).splitlines()
    except OSError:
        return []


def _metrics(port: int) -> dict[str, list[float]]:
    """Values by name, of all labels; empty while nothing answers."""
    found: dict[str, list[float]] = {}
    for line in _page(port):
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            if HEARTBEAT_TOPIC in name:
                continue
            found.setdefault(name.partition("{")[0].removeprefix("lakeward_"), []).append(
                float(value)
            )
    return found


def _level(daemon: DaemonProcess, port: int, stream: ShopStream) -> None:
    """Wait until all that is in the topics is committed; the lag that is told is seconds old."""
    reader = Consumer({"bootstrap.servers": stream.bootstrap, "group.id": "soak"})
    topics = {name: reader.list_topics(name, timeout=30).topics[name] for name in stream.topics}
    # heartbeats make no rows, so they are not waited for
    places = [
        TopicPartition(name, each)
        for name, topic in topics.items()
        if name != HEARTBEAT_TOPIC
        for each in topic.partitions
    ]
    ends = sum(reader.get_watermark_offsets(place, timeout=30)[1] for place in places)
    reader.close()
    eventually(
        lambda: not daemon.alive or sum(_metrics(port).get("source_committed_offset", [0])) >= ends,
        timeout=240,
        interval=0.5,
        what="the end of the topics",
    )


def _capacity(daemon: DaemonProcess, stream: ShopStream, port: int) -> float:
    """Events a second from a backlog, the second of two, since the first one warms the JVM up."""
    for _ in range(2):
        done = sum(_metrics(port).get("source_records_total", [0.0]))
        began = time.monotonic()
        stream.changes(BACKLOG, mix=MIX)
        wanted = done + BACKLOG
        eventually(
            lambda wanted=wanted: (
                not daemon.alive or sum(_metrics(port).get("source_records_total", [])) >= wanted
            ),
            timeout=300,
            what="the backlog",
        )
    return BACKLOG / (time.monotonic() - began)


def _commits(port: int) -> dict[str, float]:
    """Commits of tables by the most that their oldest change had waited [s]."""
    commits: dict[str, float] = {}
    for line in _page(port):
        if line.startswith("lakeward_table_commit_delay_seconds_bucket"):
            most = line.partition('le="')[2].partition('"')[0]
            commits[most] = commits.get(most, 0.0) + float(line.rpartition(" ")[2])
    return commits


def _watch(
    daemon: DaemonProcess, port: int, seconds: float, memory: MemorySamples, result: Steady
) -> list[Sample]:
    warm_up_s = _warm_up(seconds / 60)
    before: dict[str, float] = {}
    began = time.monotonic()
    samples: list[Sample] = []
    while (at := time.monotonic() - began) < seconds and daemon.alive:
        memory.take()
        if not before and at >= warm_up_s:
            before = _commits(port)
        values = _metrics(port)
        if all(values.get(name) for name in SHOWN):
            resident = sum(memory.taken[-1].values())  # with mapped files, as a pod's limit has it
            samples.append(
                Sample(
                    at=at,
                    memory_mb=resident,
                    lag=sum(values["source_lag_records"]),
                    freshness_s=time.time() - min(values["table_source_timestamp_seconds"]),
                    files=sum(values["table_files"]),
                    runs=max(values["table_sorted_runs_max"]),
                )
            )
        time.sleep(EVERY_S)
    new = {most: count - before.get(most, 0.0) for most, count in _commits(port).items()}
    if new.get("+Inf"):
        result.commits = int(new["+Inf"])
        result.commit_delay_s = {most: count / new["+Inf"] for most, count in new.items()}
    return samples


def _warm_up(minutes: float) -> float:
    """A fifth of the time, at most five minutes [s]."""
    return min(300.0, minutes * 12)


def judge(result: Steady, samples: list[Sample]) -> None:
    """Add the figures after the warm-up, and what is not as it must be."""
    result.warm_up_s = _warm_up(result.minutes)
    warm = [one for one in samples if one.at >= result.warm_up_s]
    result.samples = len(warm)
    looks = (result.minutes * 60 - result.warm_up_s) / EVERY_S
    if len(warm) < max(10, looks / 2):
        result.failures.append(f"only {len(warm)} samples of {looks:.0f} after the warm-up")
        return
    times = np.array([one.at for one in warm]) / 60
    slope = float(np.polyfit(times, [one.memory_mb for one in warm], 1)[0])
    result.memory = _figures([one.memory_mb for one in warm]) | {"slope_per_min": slope}
    result.lag_records = _figures([one.lag for one in warm])
    result.freshness_s = _figures([one.freshness_s for one in warm])
    result.files = _halves([one.files for one in warm])
    result.runs = _halves([one.runs for one in warm])
    wanted = {
        f"memory grows by {slope:.2f} MiB/min": slope <= SLOPE_GOAL,
        f"freshness p95 {result.freshness_s['p95']:.1f} s": result.freshness_s["p95"]
        <= FRESH_GOAL_S,
        f"lag up to {result.lag_records['max']:.0f} records": result.lag_records["max"]
        <= 15 * result.load_per_s,
        f"files: {result.files}": result.files["second"] <= 1.3 * result.files["first"] + 10,
        f"runs: {result.runs}": result.runs["second"] <= result.runs["first"] + 3,
        f"only {result.carried_per_s:.0f} events/s were made": result.carried_per_s
        >= 0.9 * result.load_per_s,
    }
    result.failures += [text for text, good in wanted.items() if not good]


def _figures(values: list[float]) -> dict[str, float]:
    p95 = float(np.percentile(values, 95))
    return {"median": statistics.median(values), "p95": p95, "max": max(values)}


def _halves(values: list[float]) -> dict[str, float]:
    """The most in each half."""
    middle = len(values) // 2
    return {"first": max(values[:middle]), "second": max(values[middle:])}


def _check(warehouse: Path, stream: ShopStream, result: Steady) -> None:
    tables = open_tables(warehouse)
    try:
        assert_rows_equal_model(tables, stream.shop)
    except AssertionError as error:
        result.failures.append(f"rows differ from the model: {error}"[:2_000])
    for name, table in tables.items():
        result.failures += [f"{name}: {each}" for each in violations(table)]
