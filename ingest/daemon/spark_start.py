# SPDX-License-Identifier: Apache-2.0
"""Spark's start, beside what the daemon does until its query begins; the query; local files.

A JVM takes a second until it answers, a session one or two more, the processes of Python workers
and of the data source another two. Meanwhile the main thread imports the product, acquires the
lease, and opens tables and checkpoint. So what this module imports is little.
"""

import atexit
import concurrent.futures.thread  # here: what it registers for forks must precede that of the JVM
import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.daemon.session import JAVA_DEFAULTS, JAVA_OPTIONS, build_session, default_master
from ingest.daemon.worker_daemon import start_prepared
from ingest.errors import SparkGoneError
from ingest.kubernetes.pods import default_parallelism
from ingest.logs import CHILD_VARIABLE, child_settings
from ingest.pipeline.spark_source import CHUNK_SPARK_SCHEMA, LakewardCdcSource
from storage.clock import SystemClock

if TYPE_CHECKING:  # it imports all of a batch, which waits until Spark is starting
    from ingest.pipeline.sink import MicroBatchSink

_PYTHON = "spark.pyspark.python"
_RUN_PREFIX = "lakeward-run-"
_LOCK = ".lock"
_LEFTOVER = ("lakeward-keys-*", "lakeward-left-*")
"""Key indexes that workers keep for tables with key migration; they are rebuilt when missing."""

_LEFTOVER_AGE_S = 24 * 3600.0
_MAKING_S = 60.0
"""A directory without a lock file may be in the making for so long [s]."""


def local_places(conf: Mapping[str, str], environ: Mapping[str, str]) -> list[Path]:
    """Where Spark is to keep local files, in the order of its own rules."""
    text = environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or tempfile.gettempdir()
    return [Path(part.strip()) for part in text.split(",") if part.strip()]


class Scratch:
    """Directories for Spark's local files, one below each place; held until the process ends.

    Spark removes its local files when it ends, but not when it is killed: a process that is killed
    again and again fills the disk. So each process has directories of its own and holds a lock on a
    file in each. The kernel releases the lock of a dead process, in this container or another one
    on the same volume; the next start removes unlocked directories. The directory is locked, too:
    `systemd-tmpfiles`, which removes old files from /tmp, skips locked ones (tmpfiles.d(5)).

    Attributes:
        directories: as many as places.

    Args:
        places: of `local_places`.
    """

    def __init__(self, places: list[Path]) -> None:
        self.directories: list[Path] = []
        self._locks: list[int] = []
        for place in places:
            _clean(place)
            self.directories.append(self._made_directory(place))

    def _made_directory(self, place: Path) -> Path:
        place.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_RUN_PREFIX, dir=place))
        self._lock(directory / _LOCK, os.O_CREAT | os.O_RDWR)
        self._lock(directory, os.O_RDONLY)
        return directory

    def _lock(self, path: Path, flags: int) -> None:
        lock = os.open(path, flags | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._locks.append(lock)

    def remove(self) -> None:
        """Remove the directories; files still written by a child are removed at a later start."""
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)
        for lock in self._locks:
            os.close(lock)
        self.directories, self._locks = [], []


def _clean(place: Path) -> None:
    """Remove directories of dead processes."""
    removed = 0
    for directory in place.glob(f"{_RUN_PREFIX}*"):
        if _abandoned(directory):
            shutil.rmtree(directory, ignore_errors=True)
            removed += 1
    if removed:
        _LOG.info(
            "local files of killed processes are removed",
            extra={"event": "scratch_cleaned", "directories": removed, "place": str(place)},
        )
    for pattern in _LEFTOVER:
        for directory in Path(tempfile.gettempdir()).glob(pattern):
            if _age_s(directory) > _LEFTOVER_AGE_S:
                shutil.rmtree(directory, ignore_errors=True)


def _abandoned(directory: Path) -> bool:
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return _age_s(directory) > _MAKING_S
    except OSError:  # another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _age_s(path: Path) -> float:
    with contextlib.suppress(OSError):
        return SystemClock().now_ms() / 1000 - path.stat().st_mtime
    return 0.0


def start_query(
    stream: DataFrame, settings: Settings, sink: "MicroBatchSink", logs: Path, *, once: bool
) -> StreamingQuery:
    """Start the streaming query.

    Args:
        stream: of `SparkStart.stream`.
        sink: takes the batches.
        logs: directory of Spark's logs.
        once: end when the backlog is done.
    """
    writer = (
        stream.writeStream.queryName(settings.pipeline.name)
        .option("checkpointLocation", str(logs))
        .foreachBatch(sink)
    )
    if once:
        return writer.trigger(availableNow=True).start()
    interval = f"{int(settings.pipeline.trigger_interval_s * 1000)} milliseconds"
    return writer.trigger(processingTime=interval).start()


def end_query(query: StreamingQuery) -> None:
    """Stop the query at once; a running batch is done again."""
    with contextlib.suppress(PySparkException):
        query.stop()


def require_jvm(spark: SparkSession, failure: BaseException) -> None:
    """Verify that Spark's process lives: nothing in this process restarts it.

    Args:
        failure: what was seen.

    Raises:
        SparkGoneError: it does not.
    """
    try:
        alive = spark.sparkContext.startTime > 0
    except (OSError, Py4JError):
        alive = False
    if not alive:
        raise SparkGoneError(
            "Spark's process has ended",
            detail=str(failure).split("\n", maxsplit=1)[0],
            hint="the kernel kills it for lack of memory (see its log or the pod's); a stop signal"
            " must reach the daemon alone (systemd: KillMode=mixed)",
        ) from failure


_LOG = logging.getLogger(__name__)

_POLL_S = 0.2


def parallelism(settings: Settings) -> int:
    """How many tasks of a batch run at once."""
    spark = settings.spark
    return spark.parallelism or default_parallelism(spark.master, spark.conf)


class SparkStart:
    """A session and the stream's DataFrame, in the making.

    Args:
        session: a session to use; None = one of the pipeline's own is started, in a thread.
    """

    def __init__(self, settings: Settings, session: SparkSession | None = None) -> None:
        self._settings = settings
        self._session: Future[SparkSession] = Future()
        self._stream: tuple[Settings, DataFrame] | None = None
        if session is None:
            threading.Thread(target=self._run, name="spark-start", daemon=True).start()
        else:
            session.dataSource.register(LakewardCdcSource)
            self._session.set_result(session)

    def session(self, stop: threading.Event | None = None) -> SparkSession | None:
        """Wait for the session; None if a stop is requested first: the JVM ends with this process.

        Raises:
            SparkStartError: Spark did not start.
        """
        while stop is not None and not self._session.done():
            if stop.is_set():
                return None
            concurrent.futures.wait([self._session], _POLL_S)
        return self._session.result()

    def stream(self, settings: Settings) -> DataFrame:
        """Return the stream's DataFrame; making one takes a process of Spark's half a second.

        Args:
            settings: of the pipeline; they may have been read again.

        Raises:
            PySparkException: Spark could not make the source.
        """
        if self._stream is None or self._stream[0] != settings:
            self._stream = (settings, _load_stream(self._session.result(), settings))
        return self._stream[1]

    def _run(self) -> None:
        try:
            spark = _open_session(self._settings)
            threading.Thread(target=_warm_up, args=[spark], name="warm-up", daemon=True).start()
            # what fails here is seen when it is done again
            with contextlib.suppress(Py4JError, PySparkException):
                self._stream = (self._settings, _load_stream(spark, self._settings))
        except BaseException as error:  # noqa: BLE001 - for the main thread
            self._session.set_exception(error)
        else:
            self._session.set_result(spark)


def _open_session(settings: Settings) -> SparkSession:
    """Start a session of the pipeline's own with the source registered."""
    master, conf = settings.spark.master or default_master(), settings.spark.conf
    conf = _with_logs(conf, settings)
    if master.startswith("local"):  # on a cluster workers choose their own
        conf = _with_scratch(conf)
    if master.startswith("local[") and _PYTHON not in conf:
        directory = Path(conf["spark.local.dir"].partition(",")[0])
        conf = {**conf, _PYTHON: start_prepared(directory, conf)}
    name = f"lakeward-{settings.pipeline.name}"
    spark = build_session(name, master=master, conf=conf, parallelism=parallelism(settings))
    spark.dataSource.register(LakewardCdcSource)
    return spark


def _load_stream(spark: SparkSession, settings: Settings) -> DataFrame:
    return (
        spark.readStream.format(LakewardCdcSource.name())
        .schema(CHUNK_SPARK_SCHEMA)
        .option("settings", settings.source.to_json())
        .option("pipeline", settings.to_json())
        .option("checkpoint", settings.pipeline.checkpoint)
        .load()
    )


def _warm_up(spark: SparkSession) -> None:
    """Have the process started that workers are forked from."""
    try:
        spark.sql("SELECT 1 AS id").mapInArrow(lambda batches: batches, "id int").collect()
    except Exception:  # noqa: BLE001 - a session that is stopped meanwhile fails in many ways
        _LOG.debug("the first worker did not start", exc_info=True)


def _with_logs(conf: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Spark's properties, and this process's environment, so that workers log alike."""
    text = child_settings(
        level=settings.log.level,
        levels=settings.life.log_levels,
        repeats=settings.life.log_repeats,
    )
    os.environ[CHILD_VARIABLE] = text
    return {f"spark.executorEnv.{CHILD_VARIABLE}": text, **conf}


def _with_scratch(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's properties with local files in directories that are deleted at exit."""
    scratch = Scratch(local_places(conf, os.environ))
    atexit.register(scratch.remove)
    text = ",".join(str(directory) for directory in scratch.directories)
    if "SPARK_LOCAL_DIRS" in os.environ:  # it has precedence over Spark's own property
        os.environ["SPARK_LOCAL_DIRS"] = text
    options = conf.get(JAVA_OPTIONS, JAVA_DEFAULTS)
    if "java.io.tmpdir" not in options:
        options = f"{options} -Djava.io.tmpdir={scratch.directories[0]}"
    return {**conf, "spark.local.dir": text, JAVA_OPTIONS: options}
