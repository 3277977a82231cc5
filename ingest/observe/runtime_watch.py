# SPDX-License-Identifier: Apache-2.0
"""Looks at the machine and at Spark every quarter of a minute, for the metrics.

What cannot be had (no /proc, a JVM that is about to end) is left out of the metrics until it can.
"""

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
from ingest.observe.process_tree import ProcessTree
from storage.io.resolve import is_local

__all__ = ["LOOK_EVERY_S", "RuntimeWatch", "digest_of", "java_version"]

_LOG = logging.getLogger(__name__)

LOOK_EVERY_S = 15.0
"""Between two looks [s]."""


class RuntimeWatch:
    """See the module.

    1. `start`; 2. `use_session`, `use_query` whenever there is another one; 3. `forget_session`
    before it is stopped; 4. `close`.

    Args:
        instruments: what takes the figures.
        paths: directories whose disks are watched, by label value.
    """

    def __init__(self, instruments: Instruments, paths: Mapping[str, Path]) -> None:
        self._into = instruments
        self._paths = dict(paths)
        self._tree = ProcessTree()
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._seen: tuple[str, str] = ("", "")
        self._counted: dict[str, float] = {}
        self._closing = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runtime", daemon=True)

    @staticmethod
    def paths_of(checkpoint: str, warehouse: str) -> dict[str, Path]:
        """The directories of a pipeline."""
        paths = {"state": Path(checkpoint), "tmp": Path(tempfile.gettempdir())}
        if is_local(warehouse):
            paths["warehouse"] = Path(warehouse.removeprefix("file://").removeprefix("file:"))
        return paths

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def use_session(self, spark: SparkSession) -> None:
        """Look at this session too."""
        with self._lock:
            self._spark = spark
        self._wake.set()

    def use_query(self, query: StreamingQuery) -> None:
        """Take what Spark says of this query's batches."""
        with self._lock:
            self._query = query

    def forget_session(self) -> None:
        """The session is about to be stopped; a last look at the query."""
        with self._lock:
            self._guarded(self._look_at_query)
            self._spark = self._query = None
        for name in _OF_SPARK:
            self._into.replace(name, {})

    def close(self) -> None:
        """End."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            self.look()
            self._wake.wait(LOOK_EVERY_S)

    def look(self) -> None:
        """Take all figures."""
        self._guarded(self._look_at_disks)
        self._guarded(self._look_at_processes)
        with self._lock:
            if self._spark is not None:
                self._guarded(self._look_at_jvm)
                self._guarded(self._look_at_executors)
                self._guarded(self._look_at_query)

    def _guarded(self, look: Callable[[], None]) -> None:
        try:
            look()
        except _NOT_TO_BE_HAD as error:
            # these are figures for people: without them the pipeline is as well as with them
            _LOG.debug("figures are not known", extra={"what": look.__name__}, exc_info=error)

    def _look_at_disks(self) -> None:
        free: dict[tuple[str, ...], float] = {}
        size: dict[tuple[str, ...], float] = {}
        for name, path in self._paths.items():
            there = next((each for each in (path, *path.parents) if each.exists()), None)
            if there is not None:
                found = os.statvfs(there)
                free[(name,)] = found.f_bavail * found.f_frsize
                size[(name,)] = found.f_blocks * found.f_frsize
        self._into.replace("disk_free_bytes", free)
        self._into.replace("disk_size_bytes", size)

    def _look_at_processes(self) -> None:
        use = self._tree.use()
        if use is None:
            return
        self._into.replace("resident_memory_bytes", {(g,): n for g, n in use.resident.items()})
        for group, seconds in use.cpu_s.items():
            self._grown("cpu_seconds_total", seconds, group)

    def _look_at_jvm(self) -> None:
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
        self._grown("jvm_gc_seconds_total", spent_ms / 1000)

    def _look_at_executors(self) -> None:
        spark = self._spark
        if spark is None:
            return
        context = spark.sparkContext
        found = context._jsc.sc().statusStore().executorList(False)
        local = context.master == "local" or context.master.startswith("local[")
        states, failed = {"active": 0, "dead": 0}, 0
        for each in _of_scala(found):
            failed += each.failedTasks()
            if local or each.id() != "driver":
                states["active" if each.isActive() else "dead"] += 1
        self._into.replace("executors", {(state,): n for state, n in states.items()})
        self._grown("task_failures_total", failed)

    def _look_at_query(self) -> None:
        query = self._query
        if query is None:
            return
        for progress in query.recentProgress:
            at = (progress["runId"], progress["timestamp"])
            if at[0] == self._seen[0] and at[1] <= self._seen[1]:
                continue
            self._seen = at
            for step, spent_ms in progress["durationMs"].items():
                self._into.add("query_step_seconds_total", max(0, spent_ms) / 1000, step)

    def _grown(self, name: str, value: float, *labels: str) -> None:
        """Raise a counter to what something else has counted."""
        key = "/".join((name, *labels))
        before = self._counted.get(key, 0.0)
        if value > before:
            self._into.add(name, value - before, *labels)
            self._counted[key] = value


def java_version(spark: SparkSession) -> str:
    """Of the driver's JVM; empty when it does not say."""
    try:
        return str(spark.sparkContext._jvm.java.lang.System.getProperty("java.version"))
    except (Py4JError, AttributeError, TypeError):
        return ""


def digest_of(settings: Settings) -> str:
    """The same for the same settings."""
    return hashlib.sha256(settings.to_json().encode()).hexdigest()[:12]


def _of_scala(found: Any) -> Iterable[Any]:
    for index in range(found.size()):
        yield found.apply(index)


_OF_SPARK = ("jvm_memory_bytes", "jvm_heap_limit_bytes", "executors")

_NOT_TO_BE_HAD = (
    OSError,
    Py4JError,
    PySparkException,
    AttributeError,
    TypeError,
    KeyError,
    ValueError,
)
"""What a session or a query that is about to end answers with."""
