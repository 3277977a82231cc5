# SPDX-License-Identifier: Apache-2.0
"""Spark's start, beside what the daemon does until its query begins.

A JVM takes a second until it answers, a session one or two more, the processes of Python workers
and of the data source another two. Meanwhile the main thread imports the product, acquires the
lease, and opens tables and checkpoint. So what this module imports is little.
"""

import atexit
import concurrent.futures.thread  # here: what it registers for forks must precede that of the JVM
import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ingest.config.settings import Settings
from ingest.daemon.scratch import Scratch, local_places
from ingest.daemon.session import JAVA_DEFAULTS, JAVA_OPTIONS, build_session, default_master
from ingest.kubernetes.pods import default_parallelism
from ingest.logs import CHILD_VARIABLE, child_settings
from ingest.pipeline.spark_source import CHUNK_SPARK_SCHEMA, LakewardCdcSource

__all__ = ["SparkStart", "parallelism"]

_LOG = logging.getLogger(__name__)

_POLL_S = 0.2


def parallelism(settings: Settings) -> int:
    """How many tasks of a batch run at once."""
    spark = settings.spark
    return spark.parallelism or default_parallelism(spark.master, spark.conf)


class SparkStart:
    """A session and the stream's DataFrame, in the making.

    Args:
        settings: of the pipeline.
        given: a session to use; None = one of the pipeline's own is started, in a thread.
    """

    def __init__(self, settings: Settings, given: SparkSession | None = None) -> None:
        self._settings = settings
        self._session: Future[SparkSession] = Future()
        self._stream: tuple[Settings, DataFrame] | None = None
        if given is None:
            threading.Thread(target=self._run, name="spark-start", daemon=True).start()
        else:
            given.dataSource.register(LakewardCdcSource)
            self._session.set_result(given)

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
    if master.startswith("local"):  # on a cluster workers choose their own
        conf = _with_scratch(conf)
    conf = _with_logs(conf, settings)
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
