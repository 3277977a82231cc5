# SPDX-License-Identifier: Apache-2.0
"""Spark's part of a pipeline: its start (`spark_start`), the query, its end, whether it lives."""

import contextlib
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingest.config.settings import Settings
from ingest.daemon.spark_start import SparkStart, parallelism
from ingest.errors import SparkGoneError
from ingest.pipeline.sink import MicroBatchSink

__all__ = ["SparkStart", "end_query", "parallelism", "require_jvm", "start_query"]


def start_query(
    stream: DataFrame, settings: Settings, sink: MicroBatchSink, logs: Path, *, once: bool
) -> StreamingQuery:
    """Start the streaming query.

    Args:
        stream: of `SparkStart.stream`.
        settings: of the pipeline.
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
