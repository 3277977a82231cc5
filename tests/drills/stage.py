# SPDX-License-Identifier: Apache-2.0
"""The stage of a drill: broker, stream of events with its model, daemon, watch, and the judgement.

    with stage("broker_restarts") as on:
        on.produce(2_000)
        on.start()
        on.caught_up()
        with on.fault():
            broker.kill()
            ...
        on.caught_up()
        on.finish()          # SIGTERM, exit code 0, then everything that must hold

What must hold: the tables' rows are the model's, value by value and type by type; the changelog
replayed from empty gives the same rows, every change fitting the state that it meets; snapshots
form a chain without gap and every file that one names is there; no batch was committed twice; bad
records are in quarantine, once each; the batches that the log tells of, each counted once, have
read as many records as were written to the topics; and the counters say so, too. Then what the
drill's row of the catalogue says of metrics, readiness and log.
"""

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from storage.catalog.catalog import FileSystemCatalog
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.drills.alarms import available, can_fire, firing
from tests.drills.catalogue import DRILLS, Drill, Shown
from tests.drills.drill_broker import DrillBroker, Place
from tests.drills.evidence import Evidence
from tests.drills.watching import Sample, Watch, log_lines
from tests.e2e.daemon_process import DaemonProcess, eventually
from tests.e2e.shop_stream import (
    PATTERN,
    ShopStream,
    assert_identifiers_never_repeat,
    quarantined_places,
)
from tests.soak.replay import replayed, rows_by_key

TABLE_PROPERTIES = {
    "bucket": "2",
    "changelog-producer": "lookup",
    "snapshot.num-retained.min": "10000",
}
SEED = 20261122


class Stream(Protocol):
    """What feeds the topics, and the rows that the tables must have."""

    topics: list[str]
    corrupt: set[Place]

    def changes(self, count: int) -> None:
        """Write so many changes."""

    def assert_rows(self, tables: Mapping[str, FileStoreTable]) -> None:
        """The tables have the rows, values and types."""


class Stage:
    """See the module.

    Args:
        drill: name of its row.
        directory: everything local goes below it.
        broker: runs.
        pipeline, source, sink, more: of the configuration, over what is here by default.
        warehouse: where the daemon finds it; default below `directory`.
        lake: opens the catalog from this process's side; None = `warehouse` as it is.
        inside: words before the daemon's command line.
        environment: added to the daemon's.
        stream: feeds the topics; None = the demo shop.
    """

    def __init__(
        self,
        drill: str,
        directory: Path,
        broker: DrillBroker,
        *,
        pipeline: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        sink: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
        warehouse: str | None = None,
        lake: Callable[[], FileSystemCatalog] | None = None,
        inside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        stream: Stream | None = None,
    ) -> None:
        self.drill: Drill = DRILLS[drill]
        self.directory = directory
        self.broker = broker
        self.checkpoint = Path((pipeline or {}).get("checkpoint", directory / "checkpoint"))
        self.stream: Any = stream or ShopStream(
            broker.address, seed=SEED, partitions=2, time_ms=int(time.time() * 1000)
        )
        self.topics = [topic for topic in self.stream.topics if not topic.startswith("__")]
        self.config = directory / "shop.yaml"
        self.log_path = directory / "shop.log"
        place = warehouse or str(directory / "warehouse")
        self._lake = lake or (lambda: FileSystemCatalog(place))
        self._raw: dict[str, Any] = {
            "pipeline": {
                "name": "shop",
                "checkpoint": str(self.checkpoint),
                "trigger": {"interval": "500ms", "max.records": 2_000},
                **(pipeline or {}),
            },
            "source": {
                "type": "kafka",
                "bootstrap.servers": broker.address,
                "topics.pattern": PATTERN,
                "format": "debezium-json",
                "topic.discovery.interval": "1s",
                **(source or {}),
            },
            "sink": {
                "type": "paimon",
                "warehouse": place,
                "table.properties": TABLE_PROPERTIES,
                **(sink or {}),
            },
            "metrics": {"port": 0},
            "log": {"format": "json"},
            **(more or {}),
        }
        self.configure()
        self._inside = list(inside)
        self._environment = dict(environment or {})
        self.watch = Watch()
        self.daemon: DaemonProcess | None = None
        self.evidence = Evidence(drill)
        self._began = time.monotonic()
        self._runs: list[int] = []  # offset in the log of each start
        self._clean: set[int] = set()  # starts whose last figures were looked at
        self._fault_at: float | None = None
        self._fault_log = 0
        self._fault_ended: float | None = None
        self.rewound = False  # a table was resumed: records are read again, by batches of their own
        self._logs = [self.log_path]
        self._gone: dict[Place, int] = {}
        self._before = 0  # records of topics that were deleted since

    # --- the daemon

    def configure(self, *, tables: Sequence[Any] = (), **sections: Mapping[str, Any]) -> None:
        """Write the configuration again with other values in some sections."""
        for name, values in sections.items():
            self._raw[name] = {**self.section(name), **values}
        if tables:
            self._raw["tables"] = list(tables)
        self.config.write_text(yaml.safe_dump(self._raw))

    def start(self, *arguments: str) -> None:
        """Start the daemon; its log goes on in the same file."""
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._runs.append(offset)
        self.evidence.starts += 1
        self.daemon = DaemonProcess(
            self.config, *arguments, inside=self._inside, environment=self._environment
        )
        self.watch.follow(len(self._runs), self.log_path, offset)

    def start_other(self, name: str, **pipeline: Any) -> DaemonProcess:
        """Start another daemon of the same stream, with other settings and a log of its own.

        It is not watched and must be ended by the test.
        """
        path = self.directory / f"{name}.yaml"
        raw = {**self._raw, "pipeline": {**self.section("pipeline"), **pipeline}}
        path.write_text(yaml.safe_dump(raw))
        made = DaemonProcess(path, inside=self._inside, environment=self._environment)
        self._logs.append(made.log_path)
        return made

    def becomes(self, other: DaemonProcess) -> None:
        """The other one is the daemon from now on."""
        self.daemon, self.log_path = other, other.log_path
        self._runs.append(0)
        self.watch.follow(len(self._runs), other.log_path, 0)

    @property
    def running(self) -> DaemonProcess:
        """The daemon, which must have been started."""
        assert self.daemon is not None
        return self.daemon

    def ended(self, timeout: float = 120.0) -> int:
        """Wait until the daemon ends by itself; its exit code."""
        code = self.running.wait(timeout)
        self.evidence.exits.append(code)
        return code

    def goes_on(self) -> None:
        """What the platform does: a daemon that has given up is started again."""
        if not self.running.alive:
            self.ended(30)
            self.start()

    def terminate(self, timeout: float = 180.0) -> None:
        """SIGTERM; it must end clean."""
        self._clean.add(len(self._runs))
        code = self.running.terminate(timeout)
        assert code == 0, f"exit code {code}\n{self.running.log_tail()}"

    def section(self, name: str) -> dict[str, Any]:
        """Of the configuration, as it is."""
        return dict(self._raw.get(name, {}))

    # --- events

    def produce(self, changes: int, *, snapshot: int = 0) -> None:
        """Rows that were there before, then changes."""
        if snapshot:
            self.stream.snapshot(snapshot)
        self.stream.changes(changes)

    @contextlib.contextmanager
    def producing(self, each: int = 100, every_s: float = 0.25) -> Iterator[None]:
        """Changes all the time while the context lasts."""
        stop = threading.Event()

        def produce() -> None:
            while not stop.is_set():
                self.stream.changes(each)
                stop.wait(every_s)

        thread = threading.Thread(target=produce, name="produce", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(120)
            assert not thread.is_alive(), "the producer hangs"

    def lost(self, places: Mapping[Place, int]) -> None:
        """So many records per partition are gone for good: they are not expected."""
        for place, count in places.items():
            self._gone[place] = self._gone.get(place, 0) + count

    def topics_go(self, topics: Sequence[str]) -> None:
        """The topics are about to be deleted: what was in them was read, and counts."""
        for end in self.broker.ends(list(topics)).values():
            self._before += end

    # --- what is seen

    def until(
        self, check: Callable[[], Any], what: str, timeout: float = 180.0, *, alive: bool = True
    ) -> Any:
        """Poll; a daemon that ends meanwhile is a failure, unless `alive` says otherwise."""

        def checked() -> Any:
            if alive:
                assert self.running.alive, f"the daemon ended before {what}"
            return check()

        try:
            return eventually(checked, timeout=timeout, interval=0.1, what=what)
        except AssertionError as error:
            tail = self.running.log_tail(40)
            raise AssertionError(f"{error}\n{self.watch.status()}\n{tail}") from error

    def sample(self) -> Sample | None:
        """The newest look at the running daemon."""
        return self.watch.samples[-1] if self.watch.samples else None

    def shows(self, name: str, **labels: str) -> float:
        """A metric, now, of the running daemon; 0 when nobody answers."""
        sample = self.watch.look()
        return sample.total(name, **labels) if sample else 0.0

    def skipped(self, place: Place) -> int:
        """Offsets of a partition that the stream went past, as its counter says."""
        return int(
            self.shows("source_skipped_offsets_total", topic=place[0], partition=str(place[1]))
        )

    def lag_is_seen(self) -> None:
        """The source was asked since records came, and says for some seconds that they wait."""

        def seen() -> bool:
            sample = self.watch.look()
            return sample is not None and max(sample.series("source_lag_seconds"), default=0) > 3.0

        self.until(seen, "lag is seen", 120, alive=False)

    def caught_up(self, timeout: float = 240.0) -> None:
        """Everything in the topics is committed."""
        ends = {place: end for place, end in self.broker.ends(self.topics).items() if end}

        def reached() -> bool:
            status = self.watch.status()
            source = status.get("source", {})
            return not status.get("batch", {"in_progress": True})["in_progress"] and all(
                source.get(topic, {}).get(str(number), {}).get("committed", 0) == end
                for (topic, number), end in ends.items()
            )

        self.until(reached, "all is committed", timeout)
        self.watch.look()
        if self._fault_ended is not None and self.evidence.recovered_s is None:
            self.evidence.recovered_s = round(time.monotonic() - self._fault_ended, 1)

    def batch_begins(self, timeout: float = 150.0) -> None:
        """A batch is being worked on, and was not a moment ago."""
        done = self.shows("batch_start_timestamp_seconds")
        self.until(
            lambda: (
                self.shows("batch_in_progress") == 1
                and self.shows("batch_start_timestamp_seconds") > done
            ),
            "a batch begins",
            timeout,
        )

    @contextlib.contextmanager
    def fault(self) -> Iterator[None]:
        """The time of the fault; what the catalogue says is looked for from here on."""
        self.watch.look()
        self._fault_at = time.monotonic()
        self._fault_log = self.log_path.stat().st_size if self.log_path.exists() else 0
        yield
        self._fault_ended = time.monotonic()

    def log(
        self, event: str = "", *, since_fault: bool = False, this_run: bool = False
    ) -> list[dict[str, Any]]:
        """Lines of the daemon's log, of one event or all, from some place on."""
        begin = self._runs[-1] if this_run else self._fault_log if since_fault else 0
        lines = log_lines(self.log_path, begin)
        return [line for line in lines if event in ("", line.get("event"))]

    # --- the judgement

    def finish(self) -> None:
        """End the daemon and judge."""
        self.terminate()
        self.judge()

    def judge(self) -> None:
        """Everything that must hold; see the module."""
        self.watch.close()
        self.judge_tables()
        self.judge_counts()
        self.judge_row()
        self.evidence.seconds = round(time.monotonic() - self._began, 1)

    def tables(self) -> dict[str, FileStoreTable]:
        """Every table of the shop's database."""
        catalog = self._lake()
        return {name: catalog.table(f"shop.{name}") for name in catalog.list_tables("shop")}

    def commit_users(self) -> set[str]:
        """Of all snapshots."""
        return {
            table.snapshots.read(number).commit_user
            for table in self.tables().values()
            for number in table.snapshots.ids()
        }

    def judge_tables(self) -> None:
        """Rows, changelog, chains, files, identifiers, quarantine."""
        tables = self.tables()
        self.stream.assert_rows(tables)
        for name, table in tables.items():
            check_table(table, rows=True)
            assert_identifiers_never_repeat(table)
            ids = sorted(table.snapshots.ids())
            assert ids == list(range(1, len(ids) + 1)), (name, ids)
            replay = replayed(table)
            assert not replay.wrong, (name, replay.wrong[:5])
            assert replay.rows == rows_by_key(table), name
        assert self.quarantine_rows() == self.stream.corrupt

    def quarantine_rows(self) -> set[Place]:
        """Where the records came from that are in quarantine."""
        table = self._lake().table("lakeward._quarantine")
        check_table(table)
        return quarantined_places(table)

    def judge_counts(self) -> None:
        """Batches of the log, and the counters, against what was written to the topics."""
        written = self._before + sum(self.broker.ends(self.topics).values())
        written -= sum(self._gone.values())
        batches = self.batches()
        read = sum(batches.values())
        assert read == written or (self.rewound and read > written), (
            f"the log's batches read {read} records, the topics have {written}"
        )
        self.evidence.records, self.evidence.batches = written, len(batches)
        for run in sorted(self._clean):
            counted = [sample for sample in self.watch.samples if sample.run == run]
            assert counted, f"start {run} was never looked at"
            total = counted[-1].total("source_records_total")
            # what an earlier process committed but did not record is done again, and not counted
            expected = sum(self.batches(run, replayed=self.evidence.starts == 1).values())
            assert total == expected, f"start {run}: counter {total}, log {expected}"

    def batches(self, run: int | None = None, *, replayed: bool = True) -> dict[int, int]:
        """Records by commit identifier, of all starts or of one; no batch is done twice."""
        logs = self._logs if run is None else [self.log_path]
        first, last = 0, None
        if run is not None:
            first = self._runs[run - 1]
            last = next((at for at in self._runs[run:] if at > first), None)
        lines = itertools.chain.from_iterable(log_lines(path, first, last) for path in logs)
        records: dict[int, int] = {}
        for entry in lines:
            if entry.get("event") != "batch":
                continue
            number = entry["identifier"]
            if entry["outcome"] == "replayed" and not replayed:
                continue
            if number in records:
                assert entry["outcome"] == "replayed", f"batch {number} was done twice: {entry}"
                assert entry["events"] == records[number], entry
            records[number] = entry["events"]
        return records

    def judge_row(self) -> None:
        """What the catalogue says: metrics, log, readiness, exit codes."""
        row = self.drill
        before = [s for s in self.watch.samples if s.at <= (self._fault_at or 0.0)]
        after = [s for s in self.watch.samples if s.at > (self._fault_at or 0.0)]
        for shown in row.shown:
            self._judge_metric(shown, before, after)
        counts = {event: self._told(event) for event in row.events}
        self.evidence.events = counts
        assert all(counts.values()), f"log lines that did not come: {counts}"
        reasons = sorted({reason for sample in after for reason in sample.reasons})
        self.evidence.unready = [reason for reason in reasons if "not ready yet" not in reason]
        if row.unready:
            assert any(row.unready in reason for reason in reasons), reasons
        elif row.unready is not None:
            assert all(s.ready for s in after), reasons
        assert tuple(self.evidence.exits) == row.exits, self.evidence.exits
        if available():
            end = self._fault_ended or math.inf
            calm = [s for s in before if s.ready and not _busy(s)]
            during = [s for s in after if s.at <= end]
            fired = firing(calm or before, during, gone=row.dies)
            self.evidence.alerts = sorted(fired)
            early = {name for name, already in fired.items() if already and calm}
            assert not early, f"alerts that fire without any fault: {early}"
            silent = {name for name in row.alerts if name not in fired and can_fire(name)}
            assert not silent, f"alerts that do not fire: {silent}; these do: {sorted(fired)}"

    def _told(self, event: str) -> int:
        """Lines of an event since the fault; of daemons that were started meanwhile, all."""
        first, *others = self._logs
        lines = list(log_lines(first, self._fault_log))
        lines += itertools.chain.from_iterable(map(log_lines, others))
        return sum(line.get("event") == event for line in lines)

    def _judge_metric(self, shown: Shown, before: list[Sample], after: list[Sample]) -> None:
        labels = dict(shown.labels)
        first = before[-1].total(shown.metric, **labels) if before else 0.0
        values = [sample.total(shown.metric, **labels) for sample in after]
        least, most = min(values, default=0.0), max(values, default=0.0)
        held = {
            "rises": most > first,
            "falls": least < first,
            "is set": most > 0,
        }[shown.how]
        name = shown.metric + "".join(f" {key}={value}" for key, value in shown.labels)
        self.evidence.shown[name] = f"{first:g} -> {least:g}..{most:g}"
        assert held, f"{name} does not do this: {shown.how}; {self.evidence.shown[name]}"

    def close(self) -> None:
        """Leave nothing running."""
        self.watch.close()
        if self.daemon is not None and self.daemon.alive:
            self.daemon.kill_all()


def _busy(sample: Sample) -> bool:
    return bool(sample.total("source_lag_records") or sample.total("batch_in_progress"))
