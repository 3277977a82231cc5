# SPDX-License-Identifier: Apache-2.0
"""Spark's part of a pipeline: session, streaming query, its end, and whether Spark lives."""

import atexit
import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.daemon.scratch import Scratch, local_places
from ingest.daemon.session import JAVA_DEFAULTS, JAVA_OPTIONS, build_session, default_master
from ingest.errors import SparkGoneError
from ingest.kubernetes.pods import default_parallelism
from ingest.logs import CHILD_VARIABLE, child_settings
from ingest.pipeline.chunk import CHUNK_SPARK_SCHEMA
from ingest.pipeline.sink import MicroBatchSink
from ingest.pipeline.spark_source import LakewardCdcSource

__all__ = ["end_query", "open_session", "parallelism", "require_jvm", "start_query"]


def parallelism(settings: Settings) -> int:
    """How many tasks of a batch run at once."""
    spark = settings.spark
    return spark.parallelism or default_parallelism(spark.master, spark.conf)


def open_session(
    settings: Settings, given: SparkSession | None, *, parallelism: int
) -> SparkSession:
    """A session with the source registered: the given one, or one of the pipeline's own."""
    master, conf = settings.spark.master or default_master(), settings.spark.conf
    if given is None and master.startswith("local"):  # on a cluster workers choose their own
        conf = _with_scratch(conf)
    if given is None:
        conf = _with_logs(conf, settings)
    spark = given or build_session(
        f"lakeward-{settings.pipeline.name}",
        master=master,
        conf=conf,
        parallelism=parallelism,
    )
    if given is None:
        threading.Thread(target=_warm_up, args=[spark], name="warm-up", daemon=True).start()
    spark.dataSource.register(LakewardCdcSource)
    return spark


def _warm_up(spark: SparkSession) -> None:
    """Have the process started that workers are forked from, while the query is being planned."""
    with contextlib.suppress(Py4JError, PySparkException):
        spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()


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


def start_query(
    spark: SparkSession, settings: Settings, sink: MicroBatchSink, logs: Path, *, once: bool
) -> StreamingQuery:
    """Start the streaming query.

    Args:
        spark: of `open_session`.
        settings: of the pipeline.
        sink: takes the batches.
        logs: directory of Spark's logs.
        once: end when the backlog is done.
    """
    stream = (
        spark.readStream.format(LakewardCdcSource.name())
        .schema(CHUNK_SPARK_SCHEMA)
        .option("settings", settings.source.to_json())
        .option("pipeline", settings.to_json())
        .option("checkpoint", settings.pipeline.checkpoint)
        .load()
    )
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
        spark: the session.
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
            hint="mostly the system killed it for lack of memory: see the kernel's or pod's log",
        ) from failure
