# SPDX-License-Identifier: Apache-2.0
"""Apache Paimon's Spark connector, run by the interpreter that has its Spark installed.

Takes one JSON object a line: `{"views": {name: Parquet file}, "iceberg": {name: [directory of an
Iceberg table, options of the read]}, "statements": [SQL, …], "query": SQL
or null, "output": Parquet file for the query's rows}`; the answer is a line `{"error": null or a
text}`. The first line is `{"jar": …, "warehouse": …, "scratch": …}`. Nothing of Lakeward is
imported here. Spark 3.5 adds the `--add-opens` flags that a JVM of 17 needs by itself.
"""

import json
import pathlib
import shutil
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession

EXTENSIONS = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"


def session(settings: dict[str, Any]) -> Any:
    options = {
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": settings["jar"],
        "spark.local.dir": settings["scratch"],
        "spark.sql.warehouse.dir": settings["scratch"],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.readSideCharPadding": "false",  # or DELETE fails on tables with CHAR
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
        "spark.sql.catalog.paimon.warehouse": f"file://{settings['warehouse']}",
        "spark.sql.catalog.paimon.cache-enabled": "false",
        "spark.sql.defaultCatalog": "paimon",
        "spark.log.level": "ERROR",
    }
    builder: Any = SparkSession.builder.appName("peer")
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sql("CREATE DATABASE IF NOT EXISTS db")
    return spark


def answer(spark: Any, order: dict[str, Any]) -> None:
    for name, path in order.get("views", {}).items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    for name, (path, options) in order.get("iceberg", {}).items():
        spark.read.format("iceberg").options(**options).load(path).createOrReplaceTempView(name)
    for statement in order.get("statements", ()):
        spark.sql(statement)
    if order.get("query"):
        folder = pathlib.Path(order["output"] + ".d")
        spark.sql(order["query"]).coalesce(1).write.mode("overwrite").parquet(f"file://{folder}")
        next(folder.glob("*.parquet")).rename(order["output"])
        shutil.rmtree(folder)


def main() -> None:
    replies = sys.stdout
    sys.stdout = sys.stderr
    spark = None
    for line in sys.stdin:
        error = None
        try:
            order = json.loads(line)
            if spark is None:
                spark = session(order)
            else:
                answer(spark, order)
        except Exception as failure:
            lines = "".join(traceback.format_exception(failure)).splitlines()
            error = "\n".join(line for line in lines if not line.startswith("\tat "))[-3000:]
        replies.write(json.dumps({"error": error}) + "\n")
        replies.flush()
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
