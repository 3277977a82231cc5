# SPDX-License-Identifier: Apache-2.0
"""Apache Paimon's Spark connector, run by the interpreter that has its Spark installed.

Takes one JSON object a line: `{"views": {name: Parquet file}, "iceberg": {name: [directory of an
Iceberg table, options of the read]}, "settings": {key: value}, "statements": [SQL, …], "query": SQL
or null, "output": Parquet file for the query's rows}`; the answer is a line `{"error": null or a
text}`. The first line is `{"jar": …, "warehouse": …, "scratch": …}`. Nothing of Lakeward is
imported here. Spark 3.5 adds the `--add-opens` flags that a JVM of 17 needs by itself.

Single statements are judged in a session of their own: `{"fresh": warehouse}` starts one with the
database `db`; after it, `{"outcome": SQL, "settings": {key: value}}` answers with `outcome`:
columns, types and rows, or the class and text of the failure; `{"state": true}` answers with
`state`: columns, types and rows of every table of `db`. An order with `"own": true` runs there.
"""

import base64
import datetime
import decimal
import json
import os
import pathlib
import shutil
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as t

EXTENSIONS = "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"


def session(settings: dict[str, Any]) -> Any:
    options = {
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": (
            "-Duser.timezone=UTC -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        ),
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


def fresh(spark: Any, warehouse: str) -> Any:
    """A session with its own settings, and a catalog of its own."""
    own = spark.newSession()
    own.conf.set("spark.sql.catalog.paimon.warehouse", f"file://{warehouse}")
    own.sql("CREATE DATABASE IF NOT EXISTS paimon.db")
    own.sql("USE paimon.db")
    return own


def plain(value: Any, type_: Any) -> Any:
    """A value as `ingest.observe.text_table.plain` writes it."""
    if value is None:
        return None
    match type_:
        case t.BinaryType():
            return base64.b64encode(bytes(value)).decode("ascii")
        case t.DecimalType():
            return str(decimal.Decimal(value))
        case t.TimestampType():
            return value.replace(tzinfo=datetime.UTC).isoformat()
        case t.TimestampNTZType() | t.DateType():
            return value.isoformat()
        case t.ArrayType():
            return [plain(item, type_.elementType) for item in value]
        case t.MapType():
            pairs = ([plain(k, type_.keyType), plain(v, type_.valueType)] for k, v in value.items())
            return sorted(pairs, key=repr)
        case t.StructType():
            found = zip(type_.fields, value, strict=True)
            return {field.name: plain(item, field.dataType) for field, item in found}
        case t.DayTimeIntervalType():
            return value.total_seconds()
    return value


def rows_of(frame: Any) -> dict[str, Any]:
    types = [field.dataType for field in frame.schema.fields]
    rows = [
        [plain(v, type_) for v, type_ in zip(row, types, strict=True)] for row in frame.collect()
    ]
    return {"columns": frame.columns, "types": [x.simpleString() for x in types], "rows": rows}


def outcome(spark: Any, statement: str, settings: dict[str, str]) -> dict[str, Any]:
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        return rows_of(spark.sql(statement))
    except Exception as failure:
        text = "\n".join(x for x in str(failure).splitlines() if not x.startswith("\tat "))
        return {"failure": type(failure).__name__, "text": text[:600]}
    finally:
        for key in settings:
            spark.conf.unset(key)


def state(spark: Any, warehouse: str, known: dict[str, Any]) -> dict[str, Any]:
    """The tables of `db`; those without a new snapshot or schema are not read again."""
    found = {}
    for name in sorted(row.tableName for row in spark.sql("SHOW TABLES IN paimon.db").collect()):
        folder = pathlib.Path(warehouse, "db.db", name)
        parts = [path for path in (folder / "snapshot", folder / "schema") if path.exists()]
        signature = [(path.name, sorted(os.listdir(path)), path.stat().st_mtime) for path in parts]
        if name not in known or known[name][0] != signature:
            quoted = name.replace("`", "``")
            known[name] = signature, outcome(spark, f"SELECT * FROM paimon.db.`{quoted}`", {})
        found[name] = known[name][1]
    return found


def answer(spark: Any, order: dict[str, Any]) -> None:
    for name, path in order.get("views", {}).items():
        spark.read.parquet(path).createOrReplaceTempView(name)
    for name, (path, options) in order.get("iceberg", {}).items():
        spark.read.format("iceberg").options(**options).load(path).createOrReplaceTempView(name)
    for key, value in order.get("settings", {}).items():
        spark.conf.set(key, value)
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
    spark = own = None
    warehouse, known = "", {}
    for line in sys.stdin:
        reply: dict[str, Any] = {"error": None}
        try:
            order = json.loads(line)
            if spark is None:
                spark = session(order)
            elif "fresh" in order:
                warehouse, known = order["fresh"], {}
                own = fresh(spark, warehouse)
            elif "outcome" in order:
                reply["outcome"] = outcome(own, order["outcome"], order["settings"])
            elif "state" in order:
                reply["state"] = state(own, warehouse, known)
            else:
                answer(own if order.get("own") else spark, order)
        except Exception as failure:
            lines = "".join(traceback.format_exception(failure)).splitlines()
            text = "\n".join(line for line in lines if not line.startswith("\tat "))
            reply["error"] = text[-3000:]
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
