# SPDX-License-Identifier: Apache-2.0
"""Collect metrics of the machine and of Spark periodically.

Values that are unavailable (no /proc, a JVM that is exiting) are absent from the metrics.
"""

import dataclasses
import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.observe.metrics.instruments import Instruments
from storage.io.resolve import is_local

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
        for progress in query.recentProgress:
            at = (progress["runId"], progress["timestamp"])
            if at[0] == self._last_progress[0] and at[1] <= self._last_progress[1]:
                continue
            self._last_progress = at
            for step, spent_ms in progress["durationMs"].items():
                self._into.add("query_step_seconds_total", max(0, spent_ms) / 1000, step)

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
