# SPDX-License-Identifier: Apache-2.0
"""A daemon under load, `lakeward compact`, `expire` and `orphans` beside it, some of it killed.

Three tables, one for each way to a changelog: looked up by the batch's own compaction, looked up
with deletion vectors and compaction in the background, and made by full compactions. Compaction
jobs race with the daemon and with each other all the time. Snapshots would expire all the time,
too, but for a consumer that still needs the first; files that nothing names are removed when they
are older than a minute. At the end the rows must be those of the model, and the changelog of all
snapshots, replayed from empty, must give the same. Then the consumer goes, everything but the
newest snapshot expires, and a tag from the middle must still be read as it was.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from ingest.tools.demo.shop import DemoShop, Mix, archive_line
from storage.table.retention.consumers import delete_consumer, write_consumer
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.testing.invariants import violations
from tests.e2e.daemon_process import (
    ROOT,
    DaemonProcess,
    eventually,
    files_config,
    newest_snapshot,
)
from tests.e2e.shop_stream import TABLES, assert_tables_equal_model, open_tables
from tests.soak.memory import MemorySamples
from tests.soak.replay import replayed, rows_by_key

MIX = Mix(insert=0.2, update=0.68, delete=0.1, key_change=0.02)
COMMON = {
    "bucket": "2",
    "snapshot.num-retained.min": "3",
    "snapshot.num-retained.max": "8",
    "num-sorted-run.compaction-trigger": "3",
}
KINDS = {
    "customers": {"changelog-producer": "lookup"},
    "products": {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"},
    "orders": {
        "changelog-producer": "lookup",
        "deletion-vectors.enabled": "true",
        "lookup-wait": "false",
    },
}
JOBS = {
    "full": ("--full", "--watch", "400ms"),
    "minor": ("--minor", "--watch", "300ms"),
}
KILL_EVERY_S = 15.0
UPKEEP_EVERY_S = 10.0
ORPHAN_AGE = "60s"
"""Longer than any batch or compaction takes here."""
CONSUMER = "soak"
TAG = "half"


@dataclasses.dataclass(kw_only=True)
class Result:
    """What was seen; `failures` is empty when all is well."""

    minutes: float
    seed: int
    events: int = 0
    snapshots: dict[str, int] = dataclasses.field(default_factory=dict)
    compact_snapshots: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    changelog_rows: dict[str, int] = dataclasses.field(default_factory=dict)
    dropped_by_daemon: int = 0
    dropped_by_background: int = 0
    dropped_by_jobs: int = 0
    compact_jobs_killed: int = 0
    stream_restarts: int = 0
    upkeep_runs: dict[str, int] = dataclasses.field(default_factory=dict)
    orphans_removed: int = 0
    orphan_bytes: int = 0
    snapshots_expired: int = 0
    tagged_rows: dict[str, int] = dataclasses.field(default_factory=dict)
    check_seconds: float = 0.0
    memory_mb: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    log_levels: dict[str, int] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    failures: list[str] = dataclasses.field(default_factory=list)

    @property
    def dropped(self) -> int:
        """Compactions that lost a race, all together."""
        return self.dropped_by_daemon + self.dropped_by_background + self.dropped_by_jobs


class Load(threading.Thread):
    """Writes files of events, a few each quarter of a second, until told to stop."""

    def __init__(self, directory: Path, seed: int, per_file: int) -> None:
        super().__init__(name="load", daemon=True)
        self.shop = DemoShop(seed, schema_block=True)
        self.events = 0
        self._directory = directory
        self._per_file = per_file
        self._files = itertools.count(1)
        self._stopping = threading.Event()

    def begin(self, rows: int) -> None:
        """Rows that were there before."""
        for table in TABLES:
            for events in self.shop.insert(table, rows, snapshot=True):
                self._write(events)

    def change(self, count: int) -> None:
        """So many changes, in one file a topic."""
        self._write(list(itertools.chain.from_iterable(self.shop.stream(count, MIX))))

    def run(self) -> None:
        while not self._stopping.is_set():
            self.change(self._per_file)
            self._stopping.wait(0.25)

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)

    def _write(self, events: list) -> None:
        by_topic: dict[str, list[bytes]] = {}
        for event in events:
            by_topic.setdefault(event[0], []).append(archive_line(event))
        number = next(self._files)
        for topic, lines in by_topic.items():
            folder = self._directory / topic
            folder.mkdir(parents=True, exist_ok=True)
            hidden = folder / f".{number:07d}.jsonl"
            hidden.write_bytes(b"".join(lines))
            hidden.rename(folder / f"{number:07d}.jsonl")
            self.events += len(lines)


class CompactJob:
    """`lakeward compact` as a process that goes on until it is told to stop."""

    def __init__(self, directory: Path, name: str) -> None:
        self._command = [
            *(sys.executable, "-m", "ingest.cli.main", "compact"),
            *("--warehouse", str(directory / "warehouse"), "--database", "shop"),
            *("--parallelism", "1", "--json", *JOBS[name]),
        ]
        self.log = directory / f"compact-{name}.log"
        self.killed = 0
        self._start()

    def _start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL in the middle of whatever it does, and another one in its place."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.killed += 1
        self._start()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise

    def events(self, name: str) -> int:
        """Log lines with this event."""
        return self.log.read_text(errors="replace").count(f'"event": "{name}"')


def write_config(directory: Path, max_records: int) -> Path:
    """The pipeline; its metrics port is taken from the log."""
    return files_config(
        directory,
        name="soak",
        trigger={"interval": "500ms", "max.records": max_records},
        table_properties=COMMON,
        tables=[
            {"match": f"shop.{name}", "table.properties": kind} for name, kind in KINDS.items()
        ],
        metrics={"port": 0},
        log={"format": "json"},
    )


def run_soak(directory: Path, *, minutes: float, seed: int = 1, per_file: int = 120) -> Result:
    """Run it, check it, and say what was seen.

    Args:
        directory: empty; everything goes below it.
        minutes: how long there is load.
        seed: of the events and of the kills.
        per_file: changes written each quarter of a second.
    """
    directory.mkdir(parents=True, exist_ok=True)
    result = Result(minutes=minutes, seed=seed)
    rng = random.Random(seed)
    load = Load(directory / "events", seed, per_file)
    load.begin(400)
    config = write_config(directory, max_records=max(2_000, 8 * per_file))
    warehouse = directory / "warehouse"
    jobs: dict[str, CompactJob] = {}
    with DaemonProcess(config) as daemon, contextlib.ExitStack() as stack:
        eventually(
            lambda: (
                not daemon.alive or all(newest_snapshot(warehouse, f"shop.{t}") for t in TABLES)
            ),
            timeout=180,
            what="the first commits",
        )
        for table in open_tables(warehouse).values():
            write_consumer(table, CONSUMER, 1)
        load.start()
        stack.callback(load.stop)
        for name in JOBS:
            jobs[name] = CompactJob(directory, name)
            stack.callback(_end, jobs[name])
        memory = MemorySamples(daemon.process.pid)
        upkeep = Upkeep(directory, result)
        _soak(daemon, jobs, rng, minutes, memory, upkeep)
        result.memory_mb = memory.by_part(4, max)
        load.stop()
        result.metrics = _metrics(daemon)
        if not daemon.alive:
            result.failures.append(f"the daemon ended by itself\n{daemon.log_tail()}")
        elif (code := daemon.terminate(300)) != 0:
            result.failures.append(f"the daemon ended with {code}\n{daemon.log_tail()}")
    log = daemon.log_path.read_text(errors="replace")
    result.stream_restarts = log.count('"event": "restart"')
    with DaemonProcess(config, "--once") as rest:
        if rest.wait(600) != 0:
            result.failures.append(f"the backlog could not be worked off\n{rest.log_tail()}")
    result.events = load.events
    _count_drops(result, log, jobs)
    began = time.monotonic()
    _compact_everything(directory, result)
    _check(warehouse, load.shop, result)
    upkeep.expire_all()
    result.check_seconds = time.monotonic() - began
    return result


def _soak(
    daemon: DaemonProcess,
    jobs: dict,
    rng: random.Random,
    minutes: float,
    memory: MemorySamples,
    upkeep: "Upkeep",
) -> None:
    until = time.monotonic() + minutes * 60
    half = time.monotonic() + minutes * 30
    next_upkeep = time.monotonic() + UPKEEP_EVERY_S
    next_kill = time.monotonic() + KILL_EVERY_S
    while time.monotonic() < until and daemon.alive:
        time.sleep(0.5)
        memory.take()
        if time.monotonic() >= next_kill:
            jobs[rng.choice(sorted(jobs))].kill()
            next_kill = time.monotonic() + KILL_EVERY_S * rng.uniform(0.5, 1.5)
        if time.monotonic() >= half and not upkeep.tagged:
            upkeep.tag_all()
        if time.monotonic() >= next_upkeep:
            upkeep.run(rng.choice(("expire", "orphans", "orphans")))
            next_upkeep = time.monotonic() + UPKEEP_EVERY_S
        _require_first(upkeep)


def _require_first(upkeep: "Upkeep") -> None:
    """The consumer keeps the first snapshot, whoever expires."""
    for name, table in upkeep.tables().items():
        if not table.snapshots.exists(1):
            text = f"{name}: a snapshot expired that a consumer still needs"
            if text not in upkeep.result.failures:
                upkeep.result.failures.append(text)


class Upkeep:
    """`lakeward expire` and `lakeward orphans` beside the daemon, and a tag.

    Args:
        directory: of the soak.
        result: takes what was seen.
    """

    def __init__(self, directory: Path, result: Result) -> None:
        self.result = result
        self._warehouse = directory / "warehouse"
        self.tagged: dict[str, dict] = {}

    def tables(self) -> dict:
        return open_tables(self._warehouse)

    def run(self, command: str, *arguments: str) -> None:
        """One pass over the tables; what it says counts."""
        words = {
            "expire": ("--retain-min", "1", "--retain-max", "2"),
            "orphans": ("--older-than", ORPHAN_AGE, "--force"),
        }[command]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "ingest.cli.main", command, "--json"),
                *("--warehouse", str(self._warehouse), "--database", "shop"),
                *(arguments or words),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        result = self.result
        result.upkeep_runs[command] = result.upkeep_runs.get(command, 0) + 1
        if done.returncode != 0:
            result.failures.append(f"{command} ended with {done.returncode}\n{done.stderr}")
        for told in map(json.loads, done.stdout.splitlines()):
            if command == "orphans":
                result.orphans_removed += told["files"]
                result.orphan_bytes += told["size"]
            elif told["what"] == "snapshots":
                result.snapshots_expired += told["count"]

    def tag_all(self) -> None:
        """Tag every table, and keep what the tags keep."""
        for name, table in self.tables().items():
            create_tag(table, TAG)
            self.tagged[name] = _tagged_rows(table)
            self.result.tagged_rows[name] = len(self.tagged[name])

    def expire_all(self) -> None:
        """Without the consumer everything goes but the newest snapshots; tags stay readable."""
        if self.result.snapshots_expired:
            self.result.failures.append("snapshots expired beside a consumer")
        for table in self.tables().values():
            delete_consumer(table, CONSUMER)
        self.run("expire")
        if not self.result.snapshots_expired:
            self.result.failures.append("nothing expired without the consumer")
        time.sleep(2)
        self.run("orphans", "--older-than", "1s", "--force")
        for name, table in self.tables().items():
            if _tagged_rows(table) != self.tagged.get(name):
                self.result.failures.append(f"{name}: a tag does not keep its rows")
            found = itertools.islice(violations(table, rows=True), 5)
            self.result.failures += [f"{name} after expiry: {text}" for text in found]


def _tagged_rows(table: FileStoreTable) -> dict:
    rows = table.to_arrow(tag=TAG)
    keys = table.schema.primary_keys
    return {tuple(row[key] for key in keys): row for row in rows.to_pylist()}


def _end(job: CompactJob) -> None:
    if job.process.poll() is None:
        job.stop()


def _count_drops(result: Result, daemon_log: str, jobs: dict[str, CompactJob]) -> None:
    for line in daemon_log.splitlines():
        if (level := re.search(r'"level": ?"(\w+)"', line)) is not None:
            result.log_levels[level.group(1)] = result.log_levels.get(level.group(1), 0) + 1
        if '"a compaction is dropped' in line:
            result.dropped_by_daemon += 1
        if '"compaction_dropped"' in line:
            result.dropped_by_background += 1
    result.dropped_by_jobs = sum(job.events("compaction_dropped") for job in jobs.values())
    result.compact_jobs_killed = sum(job.killed for job in jobs.values())
    if result.stream_restarts:
        result.failures.append(f"the stream was restarted {result.stream_restarts} times")
    if not result.dropped:
        result.failures.append("no compaction lost a race: nothing was tested")
    for name, job in jobs.items():
        if "Traceback" in job.log.read_text(errors="replace"):
            result.failures.append(f"compact --{name} had an error, see {job.log}")


def _compact_everything(directory: Path, result: Result) -> None:
    """What is still in level 0 has not told its changes yet."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ingest.cli.main", "compact", "--json", "--full"),
            *("--warehouse", str(directory / "warehouse"), "--database", "shop"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        result.failures.append(f"the last compaction ended with {done.returncode}\n{done.stderr}")


def _check(warehouse: Path, shop: DemoShop, result: Result) -> None:
    try:
        assert_tables_equal_model(warehouse, shop)
    except AssertionError as error:
        result.failures.append(f"rows differ from the model: {error}")
    for name, table in sorted(open_tables(warehouse).items()):
        found = list(itertools.islice(violations(table, rows=True), 5))
        result.failures += [f"{name}: {text}" for text in found]
        rows = rows_by_key(table)
        replay = replayed(table)
        result.rows[name] = len(rows)
        result.changelog_rows[name] = replay.changes
        if replay.rows != rows:
            differing = {
                k for k in rows.keys() | replay.rows.keys() if rows.get(k) != replay.rows.get(k)
            }
            result.failures.append(f"{name}: the changelog differs in {len(differing)} rows")
        result.failures += [f"{name}: {text}" for text in replay.wrong[:3]]
        kinds: dict[str, int] = {}
        for number in table.snapshots.ids():
            snapshot = table.snapshots.read(number)
            user = re.sub(r"-[0-9a-f]{8}-.*", "", snapshot.commit_user)
            kind = f"{user} {snapshot.commit_kind.value.lower()}"
            kinds[kind] = kinds.get(kind, 0) + 1
        result.compact_snapshots[name] = kinds
        result.snapshots[name] = sum(kinds.values())


def _metrics(daemon: DaemonProcess) -> dict[str, float]:
    """Sums of the daemon's counters of compactions, changelog and lookups."""
    found = re.search(r'"url": "(http://[^"]+)"', daemon.log_path.read_text(errors="replace"))
    if found is None or not daemon.alive:
        return {}
    with urllib.request.urlopen(f"{found.group(1)}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    sums: dict[str, float] = {}
    names = "compaction|lookup|source_lag|table_changelog|table_sorted"
    wanted = re.compile(rf"lakeward_((?:{names})\w*)(\{{[^}}]*\}})? (\S+)")
    for line in text.splitlines():
        match = wanted.match(line)
        if match is None:
            continue
        outcome = re.search(r'outcome="(\w+)"', match.group(2) or "")
        name = match.group(1) + (f"[{outcome.group(1)}]" if outcome else "")
        sums[name] = sums.get(name, 0.0) + float(match.group(3))
    return sums
