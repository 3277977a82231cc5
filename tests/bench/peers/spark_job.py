# SPDX-License-Identifier: Apache-2.0
"""The job of `spark.py`, in the virtualenv of Paimon's Spark connector: Kafka to a Paimon table.

`spark_job.py JOB.json` reads what is in the topic and ends. Nothing of Lakeward is imported here.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

_EVENT = (
    "op STRING, before STRUCT<id: BIGINT>, after STRUCT<id: BIGINT, user_id: BIGINT, "
    "amount: DECIMAL(12,2), status: STRING, note: STRING, updated_at: BIGINT>"
)
_ROW = (
    "coalesce(e.after.id, e.before.id) AS id",
    "e.after.user_id",
    "e.after.amount",
    "e.after.status",
    "e.after.note",
    "CAST(timestamp_micros(e.after.updated_at) AS TIMESTAMP_NTZ) AS updated_at",
    "CASE e.op WHEN 'd' THEN '-D' ELSE '+I' END AS rk",
)


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.appName("peer")
    for key, value in job["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sql("CREATE DATABASE IF NOT EXISTS paimon.shop")
    options = ", ".join(f"'{key}' = '{value}'" for key, value in job["options"].items())
    spark.sql(
        "CREATE TABLE paimon.shop.orders (id BIGINT NOT NULL, user_id BIGINT, amount DECIMAL(12,2),"
        " status STRING, note STRING, updated_at TIMESTAMP_NTZ, rk STRING)"
        f" TBLPROPERTIES ('primary-key' = 'id', {options})"
    )
    stream = spark.readStream.format("kafka").options(**job["source"]).load()
    event = f.from_json(f.col("value").cast("string"), _EVENT).alias("e")
    rows = stream.where("value IS NOT NULL").select(event).selectExpr(*_ROW)
    writer = rows.writeStream.format("paimon").option("checkpointLocation", job["checkpoint"])
    writer.trigger(availableNow=True).start(job["table"]).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
