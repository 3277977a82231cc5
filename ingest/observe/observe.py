# SPDX-License-Identifier: Apache-2.0
"""Observability of the daemon: logs, metrics, status board, lag poll, HTTP endpoint.

One object, so that the daemon and the sink report events instead of setting gauges. Nothing here
may stop a batch: a failed lag poll is counted, and its series become absent after a time.
"""

import dataclasses
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings, SourceSettings
from ingest.errors import AccessDeniedError
from ingest.observe.alerts import Alerts
from ingest.observe.http_server import Control, HttpServer
from ingest.observe.metrics.instruments import Instruments, TableNames
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard
from ingest.observe.text_table import human_time
from ingest.pipeline.batch_report import BatchReport
from ingest.schema.routing import Outcome
from ingest.source.kafka_client import consumer_config
from ingest.source.open import LagProbe
from ingest.source.records import OffsetMap
from ingest.state.ownership import ParkedTable, Pause
from ingest.state.request_files import Answer, RequestFiles
from ingest.state.table_registry import TableRegistry
from storage.clock import Clock
from storage.errors import LakewardError
from storage.io.resolve import is_local

# Collect metrics of the machine and of Spark periodically.
#
# Values that are unavailable (no /proc, a JVM that is exiting) are absent from the metrics.


GROUPS = ("driver", "jvm", "workers")

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclasses.dataclass(frozen=True, slots=True)
class TreeUse:
    """Resource usage by group of processes.

    Attributes:
        resident: resident memory by group [bytes].
        cpu_s: CPU time by group, including that of reaped children [s].
    """

    resident: Mapping[str, int]
    cpu_s: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    name: str
    cpu_s: float
    resident: int


class ProcessTree:
    """See the module.

    Args:
        root: id of the root process; None = this one.
        proc: mount point of procfs.
    """

    def __init__(self, root: int | None = None, proc: Path = _PROC) -> None:
        self._root = os.getpid() if root is None else root
        self._proc = proc

    def use(self) -> TreeUse | None:
        """Return the current usage; None if it is unknown."""
        stats = self._stats()
        if self._root not in stats:
            return None
        children: dict[int, list[int]] = {}
        for pid, stat in stats.items():
            children.setdefault(stat.parent, []).append(pid)
        resident, cpu_s = dict.fromkeys(GROUPS, 0), dict.fromkeys(GROUPS, 0.0)
        waiting = [(self._root, "driver")]
        while waiting:
            pid, group = waiting.pop()
            resident[group] += stats[pid].resident
            cpu_s[group] += stats[pid].cpu_s
            for child in children.get(pid, ()):
                kind = "jvm" if group == "driver" and stats[child].name == "java" else "workers"
                waiting.append((child, kind))
        return TreeUse(resident, cpu_s)

    def _stats(self) -> dict[int, _Stat]:
        stats = {}
        try:
            names = [entry.name for entry in self._proc.iterdir() if entry.name.isdigit()]
        except OSError:
            return {}
        for name in names:
            try:
                text = (self._proc / name / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue  # the process has exited
            stats[int(name)] = _parsed(text)
        return stats


def _parsed(text: str) -> _Stat:
    """Parse a line of `stat`: the name is in brackets and may contain brackets and spaces."""
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    ticks = sum(int(rest[index]) for index in (11, 12, 13, 14))
    return _Stat(int(rest[1]), name, ticks / _TICKS, int(rest[21]) * _PAGE)


_LOG = logging.getLogger(__name__)

INTERVAL_S = 15.0
"""Collection interval [s]."""

_STEP = re.compile(r"(\w+)=(-?\d+)")  # of a Java map as text


class RuntimeWatch:
    """See the module.

    Call order: `start`; `use_session` and `use_query` for every new one; `forget_session` before
    the session stops; `close`.

    Args:
        instruments: receive the values.
        paths: directories whose disks are observed, by label value.
    """

    def __init__(self, instruments: Instruments, paths: Mapping[str, Path]) -> None:
        self._into = instruments
        self._paths = dict(paths)
        self._tree = ProcessTree()
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._last_progress: tuple[str, str] = ("", "")
        self._counter_totals: dict[str, float] = {}
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runtime", daemon=True)

    @staticmethod
    def paths_of(checkpoint: str, warehouse: str) -> dict[str, Path]:
        """Return the directories of a pipeline by label value."""
        paths = {"state": Path(checkpoint), "tmp": Path(tempfile.gettempdir())}
        if is_local(warehouse):
            paths["warehouse"] = Path(warehouse.removeprefix("file://").removeprefix("file:"))
        return paths

    def start(self) -> None:
        """Start the collection."""
        self._thread.start()

    def use_session(self, spark: SparkSession) -> None:
        """Collect metrics of this session."""
        with self._lock:
            self._spark = spark
        self._wake.set()

    def use_query(self, query: StreamingQuery) -> None:
        """Collect the progress of this query."""
        with self._lock:
            self._query = query

    def forget_session(self) -> None:
        """Collect the progress of the query once more and forget the session."""
        with self._lock:
            self._guarded(self._collect_query)
            self._spark = self._query = None
        for name in _OF_SPARK:
            self._into.replace(name, {})

    def close(self) -> None:
        """Stop the collection."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            self.collect()
            self._wake.wait(INTERVAL_S)

    def collect(self) -> None:
        """Collect all values."""
        self._guarded(self._collect_disks)
        self._guarded(self._collect_processes)
        with self._lock:
            if self._spark is not None:
                self._guarded(self._collect_jvm)
                self._guarded(self._collect_executors)
                self._guarded(self._collect_query)

    def _guarded(self, collect: Callable[[], None]) -> None:
        try:
            collect()
        except _UNAVAILABLE as error:
            # metrics must not fail the pipeline
            _LOG.debug("metrics unavailable", extra={"what": collect.__name__}, exc_info=error)

    def _collect_disks(self) -> None:
        free: dict[tuple[str, ...], float] = {}
        size: dict[tuple[str, ...], float] = {}
        for name, path in self._paths.items():
            existing = next((parent for parent in (path, *path.parents) if parent.exists()), None)
            if existing is not None:
                disk = os.statvfs(existing)
                free[(name,)] = disk.f_bavail * disk.f_frsize
                size[(name,)] = disk.f_blocks * disk.f_frsize
        self._into.replace("disk_free_bytes", free)
        self._into.replace("disk_size_bytes", size)

    def _collect_processes(self) -> None:
        use = self._tree.use()
        if use is None:
            return
        self._into.replace("resident_memory_bytes", {(g,): n for g, n in use.resident.items()})
        for group, seconds in use.cpu_s.items():
            self._raise_to("cpu_seconds_total", seconds, group)

    def _collect_jvm(self) -> None:
        spark = self._spark
        if spark is None:
            return
        management = spark.sparkContext._jvm.java.lang.management.ManagementFactory
        memory = management.getMemoryMXBean()
        heap = memory.getHeapMemoryUsage()
        used: dict[tuple[str, ...], float] = {
            ("heap",): heap.getUsed(),
            ("nonheap",): memory.getNonHeapMemoryUsage().getUsed(),
        }
        pools = spark.sparkContext._jvm.java.lang.management.BufferPoolMXBean
        kind = spark.sparkContext._jvm.java.lang.Class.forName(pools._fqn)
        for pool in management.getPlatformMXBeans(kind):
            if pool.getName() == "direct":
                used[("direct",)] = pool.getMemoryUsed()
        self._into.replace("jvm_memory_bytes", used)
        self._into.set("jvm_heap_limit_bytes", heap.getMax())
        spent_ms = sum(bean.getCollectionTime() for bean in management.getGarbageCollectorMXBeans())
        self._raise_to("jvm_gc_seconds_total", spent_ms / 1000)

    def _collect_executors(self) -> None:
        spark = self._spark
        if spark is None:
            return
        context = spark.sparkContext
        executors = context._jsc.sc().statusStore().executorList(False)
        local = context.master == "local" or context.master.startswith("local[")
        states, failed = {"active": 0, "dead": 0}, 0
        for executor in _of_scala(executors):
            failed += executor.failedTasks()
            if local or executor.id() != "driver":
                states["active" if executor.isActive() else "dead"] += 1
        self._into.replace("executors", {(state,): n for state, n in states.items()})
        self._raise_to("task_failures_total", failed)

    def _collect_query(self) -> None:
        query = self._query
        if query is None:
            return
        seen, newest = self._last_progress, None
        spent: Counter[str] = Counter()
        # of each only what is asked: as JSON it names every partition of the source three times
        for progress in reversed(query._jsq.recentProgress()):
            at = (progress.runId().toString(), progress.timestamp())
            if at[0] == seen[0] and at[1] <= seen[1]:
                break
            newest = newest or at
            for step, ms in _STEP.findall(progress.durationMs().toString()):
                spent[step] += max(0, int(ms))
        for step, ms in spent.items():
            self._into.add("query_step_seconds_total", ms / 1000, step)
        self._last_progress = newest or seen

    def _raise_to(self, name: str, value: float, *labels: str) -> None:
        """Raise a counter to a total that is counted elsewhere."""
        key = "/".join((name, *labels))
        before = self._counter_totals.get(key, 0.0)
        if value > before:
            self._into.add(name, value - before, *labels)
            self._counter_totals[key] = value


def java_version(spark: SparkSession) -> str:
    """Return the Java version of the driver's JVM; empty if it is unknown."""
    try:
        return str(spark.sparkContext._jvm.java.lang.System.getProperty("java.version"))
    except (Py4JError, AttributeError, TypeError):
        return ""


def digest_of(settings: Settings) -> str:
    """Return a short hash of the settings."""
    return hashlib.sha256(settings.to_json().encode()).hexdigest()[:12]


def _of_scala(sequence: Any) -> Iterable[Any]:
    for index in range(sequence.size()):
        yield sequence.apply(index)


_OF_SPARK = ("jvm_memory_bytes", "jvm_heap_limit_bytes", "executors")

_UNAVAILABLE = (
    OSError,
    Py4JError,
    PySparkException,
    AttributeError,
    TypeError,
    KeyError,
    ValueError,
)
"""Errors of a session or a query that is stopping."""


# `source.offsets.group`: committed offsets mirrored to a Kafka consumer group.
#
# For tools that compute lag from consumer groups. Lakeward never reads them: the offsets of the
# stream are in its tables. It is best effort, on a separate thread: no batch waits for it, only the
# newest offsets are committed if the brokers are slow, and failures are retried with the next ones.
# The group must have no members.


_RETRY_S = 15.0
"""Delay before a retry [s]."""

_CLOSE_S = 3.0
"""Maximum time for the last commit at the exit of the process [s]."""


class OffsetMirror:
    """See the module.

    Args:
        source: settings of the cluster.
        group: name of the consumer group.
        connect: creates the client; for tests.
    """

    def __init__(
        self,
        source: KafkaSourceSettings,
        group: str,
        connect: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self._config = {
            **consumer_config(source),
            "group.id": group,
            "enable.auto.commit": False,
            "socket.timeout.ms": 10_000,
            "log_level": 0,  # the answer to a commit has the error
        }
        self._group = group
        self._connect = connect
        self._lock = threading.Condition()
        self._waiting: dict[tuple[str, int], int] = {}
        self._closing = False
        self._thread: threading.Thread | None = None

    @staticmethod
    def of(settings: Settings) -> "OffsetMirror | None":
        """Create the mirror, if the settings configure one."""
        group, source = settings.life.offsets_group, settings.source
        if group is None or not isinstance(source, KafkaSourceSettings):
            return None
        return OffsetMirror(source, group)

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Queue the next offsets to read by topic and partition; returns immediately."""
        flat = {(t, int(p)): offset for t, parts in offsets.items() for p, offset in parts.items()}
        if not flat:
            return
        with self._lock:
            self._waiting |= flat
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="offsets", daemon=True)
                self._thread.start()
            self._lock.notify_all()

    def close(self) -> None:
        """Commit queued offsets, for a few seconds at most, and end."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        client: Any = None
        while (offsets := self._next()) is not None:
            refused, error = offsets, None
            try:
                client = client or self._connect(self._config)
                positions = [TopicPartition(t, p, offset) for (t, p), offset in offsets.items()]
                answers = client.commit(offsets=positions, asynchronous=False)
                failed = [answer for answer in answers if answer.error]
                refused = {(answer.topic, answer.partition): answer.offset for answer in failed}
                error = failed[0].error if failed else None
            except KafkaException as failure:
                error = failure
            if error is not None:
                _LOG.warning(
                    "committing offsets to the consumer group failed; the stream is not affected",
                    extra={"event": "offsets_group", "group": self._group, "error": str(error)},
                )
                if not self._put_back(refused):
                    break
        if client is not None:
            client.close()

    def _next(self) -> dict[tuple[str, int], int] | None:
        with self._lock:
            self._lock.wait_for(lambda: self._waiting or self._closing)
            offsets, self._waiting = self._waiting, {}
            return offsets or None

    def _put_back(self, offsets: dict[tuple[str, int], int]) -> bool:
        """Keep failed offsets for a retry, unless there are newer ones; False = no retry."""
        with self._lock:
            self._waiting = {**offsets, **self._waiting}
            return not self._lock.wait_for(lambda: self._closing, timeout=_RETRY_S)


LAG_POLL_S = 15.0
"""Interval of polls of the source's offsets [s]; one cheap request per partition."""


SettingsLines = Callable[[], Sequence[tuple[str, str, str]]]
"""Returns the settings in force: key, redacted value, origin."""


class Observer:
    """See the module. Context manager: opens the endpoint on entry and closes it on exit.

    Args:
        settings_lines: returns the settings in force with their origins; None = set by a program.
    """

    def __init__(
        self, settings: Settings, clock: Clock, settings_lines: SettingsLines | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._settings_lines = settings_lines
        self._unfinished: int | None = None  # batch that began here and was not recorded
        self._is_retry = False
        self._case_matches: set[tuple[str, str, str]] = set()
        configured = settings.metrics
        self.metrics = Metrics(
            clock,
            tables=TableNames(per_table=configured.per_table, most=configured.max_tables),
            labels=configured.labels,
        )
        self._set_config(settings)
        paths = RuntimeWatch.paths_of(settings.pipeline.checkpoint, settings.sink.warehouse)
        self._runtime = RuntimeWatch(self.metrics.instruments, paths)
        self.board = StatusBoard(settings.pipeline.name, clock)
        name = settings.pipeline.name
        self._alerts = Alerts(name, settings.alerts, clock, self.metrics.webhook_called)
        self._mirror = OffsetMirror.of(settings)
        self._control: Control | None = None
        self._paused: Pause | None = None
        self._server: HttpServer | None = None
        self._ended = threading.Event()
        self._changed = threading.Event()
        self._poller: threading.Thread | None = None
        self._committed: dict[tuple[str, int], int] = {}

    def __enter__(self) -> "Observer":
        endpoint = self._settings.metrics
        if endpoint.enabled:
            server = HttpServer(
                self.metrics,
                self.board,
                host=endpoint.host,
                port=endpoint.port,
                control=self._control,
                more=lambda: {"alerts": self._alerts.document()},
            )
            self._server = server.start()
            _LOG.info("endpoint open", extra={"event": "endpoint", "url": server.url})
        self._runtime.start()
        self.board.set_condition("configuration", ok=True)
        self._show_settings()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._changed.set()
        if self._poller is not None:
            self._poller.join(timeout=LAG_POLL_S)
        if self._mirror is not None:
            self._mirror.close()
        self._alerts.close()
        self._runtime.close()
        if self._server is not None:
            self._server.close()

    def let_control(
        self, files: RequestFiles, *, drain: Callable[[], None], wake: Callable[[], None]
    ) -> None:
        """Enable control over HTTP, if a token is configured; call it before entering."""
        token = self._settings.control.token
        self._control = Control(token, files, drain=drain, wake=wake, clock=self._clock)

    def answered(self, answer: Answer) -> None:
        """Report that a request was completed or refused."""
        self.board.answered(answer)

    def _show_settings(self) -> None:
        settings = self._settings
        if self._settings_lines is not None:
            lines = self._settings_lines()
        else:
            lines = [(key, text, "program") for key, text in _flat(settings.redacted())]
        self.board.set_settings(lines, settings.pipeline.trigger_interval_s)
        self.board.set_fact("warehouse", settings.sink.warehouse)

    def _set_config(self, settings: Settings) -> None:
        trigger = settings.pipeline.trigger_interval_s
        self.metrics.set_config(settings.pipeline.name, digest_of(settings), trigger)

    def started(self, spark: SparkSession) -> None:
        """Report that the Spark session has started; start to poll the source."""
        self.board.set_condition("session", ok=True)
        self.board.watch_engine(_engine_alive(spark))
        self.board.set_fact("spark", spark.version)
        self.metrics.set_build(java=java_version(spark))
        self._runtime.use_session(spark)
        self._state("running")
        self._poller = threading.Thread(target=self._poll, name="lag", daemon=True)
        self._poller.start()
        _LOG.info(
            "running",
            extra={
                "event": "running",
                "pipeline": self._settings.pipeline.name,
                "warehouse": self._settings.sink.warehouse,
                "master": spark.sparkContext.master,
            },
        )

    def use_settings(self, settings: Settings) -> None:
        """Apply reloaded settings."""
        if self._mirror is not None and settings.source != self._settings.source:
            self._mirror.close()
            self._mirror = OffsetMirror.of(settings)
        self._settings = settings
        self._set_config(settings)
        self._changed.set()
        self._alerts.use_settings(settings.alerts)
        if self._control is not None:
            self._control.use_token(settings.control.token)
        self._show_settings()

    def resuming_at(self, offsets: OffsetMap) -> None:
        """Report the start offsets, so that lag is correct before the first batch."""
        self.metrics.record_committed(offsets)
        self.board.set_offsets(offsets)
        self._remember(offsets)
        self._show(offsets)

    def _show(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        if self._mirror is not None:
            self._mirror.commit(offsets)

    def _remember(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        self._committed |= {
            (topic, int(partition)): offset
            for topic, parts in offsets.items()
            for partition, offset in parts.items()
        }

    def beat(self) -> None:
        """Report that the main loop is alive."""
        self.board.beat()
        if self.board.sample_due:
            lags = self.metrics.lag()
            self.board.sample(sum(lags.values()) if lags else None, self.metrics.freshness_s())

    def batch_started(self, batch_id: int) -> None:
        """Report the start of a batch."""
        self._is_retry = batch_id == self._unfinished
        self._unfinished = batch_id
        self.board.batch_started(batch_id)
        self.metrics.batch_started()

    def batch(self, report: BatchReport) -> None:
        """Report that a batch is committed in all its tables."""
        self.metrics.record(report, again=self._is_retry)
        self._unfinished = None
        self.board.record(report, again=self._is_retry)
        self._alerts.batch(report, again=self._is_retry)
        self._remember(report.end_offsets)
        self._show(report.end_offsets)
        for topic, violations in sorted(report.ordering_violations.items()):
            key, partition, other_partition = min(violations)
            _LOG.warning(
                "a key occurs in two partitions: the order of its changes is undefined; see "
                "source.ordering",
                extra={
                    "event": "ordering_violation",
                    "topic": topic,
                    "key_hash": f"{key:016x}",
                    "partitions": [partition, other_partition],
                    "keys": len(violations),
                },
            )
        _LOG.log(
            logging.DEBUG if report.events == 0 else logging.INFO,
            "batch done",
            extra={
                "event": "batch",
                **report.facts(),
                "quarantined": report.bad_records,
                **{
                    f"{phase}_s": round(seconds, 3)
                    for phase, seconds in report.phases.items()
                    if not phase.startswith("task_")
                },
            },
        )
        for table, decision in report.schema_verdicts:
            _LOG.log(
                logging.INFO if decision.outcome is Outcome.APPLIED else logging.WARNING,
                "schema change %s",
                decision.outcome.value,
                extra={"event": "schema_change", "table": table, "change": decision.text},
            )
        for match in sorted(set(report.case_matches) - self._case_matches):
            self._case_matches.add(match)
            table, member, column = match
            _LOG.warning(
                "a column of events is matched to a column with another spelling "
                "(source.names.case)",
                extra={
                    "event": "column_matched",
                    "table": table,
                    "member": member,
                    "column": column,
                },
            )
        for table, reason in report.parked:
            _LOG.error(
                "table parked, other tables continue",
                extra={"event": "table_parked", "table": table, "reason": reason},
            )

    def tables(self, book: TableRegistry) -> None:
        """Report which tables are running, parked, or catching up."""
        parked = book.parking.parked()
        states: dict[str, str] = dict.fromkeys(book.progresses(), "running")
        states |= dict.fromkeys(book.parking.catching_up, "behind") | dict.fromkeys(
            parked, "parked"
        )
        self.metrics.set_table_states(states)
        feeds = {name: tuple(progress.offsets) for name, progress in book.progresses().items()}
        self.metrics.set_feeds(feeds)
        self.board.set_table_states(
            {
                name: {"state": state, **_park_reason(parked.get(name))}
                for name, state in states.items()
            }
        )
        self._alerts.tables(states, {name: entry.reason for name, entry in parked.items()})

    def querying(self, query: StreamingQuery) -> None:
        """Report the start of a Spark query."""
        self._runtime.use_query(query)

    def failed(self, error: BaseException, *, query: bool = True) -> None:
        """Report a failure of the query, or before it; it is retried or the process exits."""
        if query:
            self.metrics.query_failed()
            self.metrics.batch_failed()
        self.board.failed(error)

    def waiting(self, error: BaseException | None) -> None:
        """Report whether the daemon waits for an unavailable dependency, with its error."""
        self.metrics.set_outage(error is not None)
        self.board.set_fact("waiting_for", None if error is None else str(error).split("\n")[0])

    def recovered(self) -> None:
        """Report recovery from a failure."""
        self.waiting(None)
        self.board.set_condition("last_batch", ok=True)

    def owning(self, epoch: int) -> None:
        """Report ownership of the stream with its epoch."""
        self.board.set_condition("owner", ok=True)
        self.board.set_fact("epoch", epoch)
        self.metrics.set_epoch(epoch)

    def trying_again(self, error: BaseException) -> None:
        """Report that the query is restarted after an error."""
        self._alerts.failed(error, fatal=False)

    def running(self) -> None:
        """Report that the query is running."""
        self._state("running" if self._paused is None else "paused")

    def paused(self, pause: Pause | None) -> None:
        """Report whether the stream is paused."""
        if pause != self._paused:
            self._paused = pause
            self.running()
            _LOG.info(
                "the stream is resumed" if pause is None else "the stream is paused",
                extra={"event": "paused" if pause else "unpaused"}
                | ({"reason": pause.reason} if pause else {}),
            )
        self.board.set_paused(pause)
        self._alerts.paused(None if pause is None else pause.reason)

    def draining(self) -> None:
        """Report that no further batch starts."""
        self._state("draining")

    def stopping(self) -> None:
        """Report that the Spark session is about to stop."""
        self._runtime.forget_session()

    def ended(self, error: BaseException | None = None) -> None:
        """Report that the process is about to exit, possibly with an error."""
        self._state("idle" if error is None else "failed")
        if error is not None:
            self._alerts.failed(error, fatal=True)

    def _state(self, state: str) -> None:
        self.metrics.set_state(state)
        self.board.set_state(state)

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._changed.clear()
            self._poll_source(self._settings.source)

    def _poll_source(self, source: SourceSettings) -> None:
        with LagProbe(source) as probe:
            while not self._ended.is_set():
                try:
                    watermarks = probe.poll(dict(self._committed))
                    self.metrics.record_watermarks(watermarks, probe.silent())
                    self.board.set_condition("source", ok=True)
                except (LakewardError, OSError) as error:
                    denied = isinstance(error, AccessDeniedError)
                    self.metrics.source_error("auth" if denied else "transport")
                    self.board.set_condition("source", ok=False, reason=str(error))
                    _LOG.warning(
                        "polling the source failed", extra={"event": "lag_poll", "error": error}
                    )
                if self._changed.wait(LAG_POLL_S):
                    return


def _park_reason(entry: ParkedTable | None) -> dict[str, str]:
    if entry is None:
        return {}
    return {"reason": entry.reason, "by": entry.by, "parked_at": human_time(entry.parked_ms)}


def _engine_alive(spark: SparkSession) -> Callable[[], bool]:
    """Return a check whether the JVM process of a session is alive; it makes no call to the JVM."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return lambda: process is None or process.poll() is None


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield prefix + name, str(value)
