# SPDX-License-Identifier: Apache-2.0
"""A job that keeps sums by group from the changelogs of tables; a process that can be killed.

python -m tests.e2e.downstream_job '{"orders": [TABLE, TARGET, PLACE, GROUP, VALUE], …}'
"""

import json
import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
SIGN = "if(_row_kind in ('+I', '+U'), 1, -1)"


def sums(changes: DataFrame, group: str, value: str) -> DataFrame:
    """Total and number of rows by group."""
    return (
        changes.selectExpr(f"{group} as name", f"{value} * {SIGN} as value", f"{SIGN} as one")
        .groupBy("name")
        .agg({"value": "sum", "one": "sum"})
        .selectExpr("name", "cast(`sum(value)` as decimal(30,2)) as total", "`sum(one)` as count")
    )


def start(
    spark: SparkSession,
    table: str,
    target: str,
    place: str,
    group: str,
    value: str,
    *,
    snapshots: int = 50,
    after: Callable[[int], None] = lambda batch: None,
    **trigger,
) -> StreamingQuery:
    """Begin, or go on at the checkpoint `place`.

    Args:
        spark: the session.
        table: directory of the table with the changelog.
        target: directory of the table that holds the sums.
        place: directory of the checkpoint.
        group: expression.
        value: expression.
        snapshots: taken in by one batch at most.
        after: called when a batch is written, before Spark knows.
        trigger: of Spark.
    """
    reader = spark.readStream.format("lakeward").option("read.changelog", "true")
    reader = reader.option("consumer-id", "sums").option("max.snapshots.per.trigger", snapshots)

    def keep(changed: DataFrame, batch: int) -> None:
        changed.write.format("lakeward").mode("append").option("commit.user", "sums").save(target)
        after(batch)

    writer = sums(reader.load(table), group, value).writeStream.outputMode("update")
    writer = writer.option("checkpointLocation", place).foreachBatch(keep)
    return writer.trigger(**trigger).start()


def main() -> None:
    """Run all queries, in a session like anybody's, until one of them fails."""
    builder = SparkSession.builder.master("local[2,4]").appName("sums")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for arguments in json.loads(sys.argv[1]).values():
        start(spark, *arguments, processingTime="300 milliseconds")
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
