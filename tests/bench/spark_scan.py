# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")` in Spark: throughput against Spark's own Parquet reader, and what is opened.

The peer reads the live data files of the same compacted table, the same columns of them, in the
same session, so that decoding and Spark's part are on both sides. A third way,
`bare_source`, shows what Spark's interface to Python costs without us. Ratios are of CPU seconds of
the JVM and its workers (wall times are in the notes): on two cores others decide who waits. Then a
table of many files: how many of them a key lookup and a partition filter plan, and open.
"""

import collections
import functools
import os
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions

from changelog.spark_source.batch_scan import batch_scan, counts_of
from ingest.daemon.session import build_session
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.commit.live_files import live_entries
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from tests.bench import workload
from tests.bench.bare_source import BareSource
from tests.bench.measure import Figure, interleaved, rate, tree_cpu_s
from tests.e2e.conftest import AUTOMATIC

ROWS = 5_000_000
PIECE = 500_000
_FULL_GOAL, _AGGREGATE_GOAL, _BARE_GOAL = 0.6, 0.45, 0.9
_USERS = {"spark.driver.extraJavaOptions": "-Xss16m"}
"""The JVM of a user's job compiles everything; the daemon's, which starts often, does not."""


def run(*, quick: bool, scratch: Path) -> list[Figure]:
    """All figures of this part."""
    rows, rounds = (ROWS // 10, 3) if quick else (ROWS, 5)
    return [*_pruning(2 * rows, scratch), *_throughput(rows, rounds, scratch)]


def _throughput(rows: int, rounds: int, scratch: Path) -> list[Figure]:
    table = _compacted(rows, scratch / "scan")
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(AUTOMATIC)]))
    # as users have it: in the daemon's own home sources are not found by their names
    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    spark = build_session("bench", master="local[2,4]", conf=_USERS, parallelism=2)
    try:
        return _against_parquet(spark, table, rows, rounds)
    finally:
        spark.stop()


def _against_parquet(
    spark: SparkSession, table: FileStoreTable, rows: int, rounds: int
) -> list[Figure]:
    snapshot = table.latest_snapshot()
    if snapshot is None:
        raise RuntimeError("nothing was committed")
    files = [
        table.data_path(entry.partition, entry.bucket, entry.file.file_name)
        for entry in live_entries(table, snapshot)
    ]
    names = list(workload.ARROW_SCHEMA.names)

    def ours(columns: list[str]) -> DataFrame:
        reader = spark.read.format("lakeward").option("columns", ",".join(columns))
        return reader.load(table.layout.root)

    def parquet(columns: list[str]) -> DataFrame:
        return spark.read.parquet(*files).select(*columns)

    spark.dataSource.register(BareSource)
    types = {field.name: field for field in spark.read.parquet(*files).schema}

    def bare(columns: list[str]) -> DataFrame:
        ddl = ",".join(f"{name} {types[name].dataType.simpleString()}" for name in columns)
        reader = spark.read.format(BareSource.name()).option("ddl", ddl)
        return reader.option("files", "\n".join(files)).load()

    def whole(read: Callable[[list[str]], DataFrame]) -> None:
        read(names).write.format("noop").mode("overwrite").save()

    def aggregate(read: Callable[[list[str]], DataFrame]) -> list[tuple]:
        found = read(["status", "amount"]).groupBy("status").agg(spark_functions.sum("amount"))
        return sorted(tuple(row) for row in found.collect())

    if aggregate(ours) != aggregate(parquet):
        raise RuntimeError("the aggregates differ")
    figures = []
    works = (("full rows", whole, _FULL_GOAL), ("two-column aggregate", aggregate, _AGGREGATE_GOAL))
    for what, work, goal in works:
        ways = {"lakeward": ours, "parquet": parquet, "bare source": bare}
        samples = interleaved(
            rounds,
            {name: functools.partial(work, read) for name, read in ways.items()},
            cpu_of=tree_cpu_s,
        )
        walls = ", ".join(
            f"{name} {statistics.median(one.wall_s for one in taken):.2f} s"
            for name, taken in samples.items()
        )
        for versus, wanted in (("parquet", goal), ("bare source", _BARE_GOAL)):
            figures.append(
                rate(
                    f"Spark scan of a compacted table, {what}, against {versus}",
                    samples,
                    "lakeward",
                    rows,
                    versus=versus,
                    unit="rows/CPU s",
                    cpu=True,
                    goal=wanted,
                    note=f"{len(files)} files; wall times: {walls}",
                )
            )
    return figures


def _compacted(rows: int, warehouse: Path) -> FileStoreTable:
    """Fully compacted, two buckets."""
    table = _orders(warehouse, {"bucket": "2"})
    rng = np.random.default_rng(3)
    ids = rng.permutation(rows) + 1
    with table.new_write("bench") as writer:
        for start in range(0, rows, PIECE):
            drawn = workload.draw_rows(rng, ids[start : start + PIECE], 1)
            writer.write(_batch(drawn))
        writer.compact(full=True)
        table.new_commit("bench").commit(writer.prepare_commit(), 1)
    return table


def _batch(rows: pa.Table) -> pa.RecordBatch:
    found: pa.RecordBatch = (
        rows.select(workload.ARROW_SCHEMA.names).combine_chunks().to_batches()[0]
    )
    return found


def _orders(warehouse: Path, options: dict[str, str]) -> FileStoreTable:
    catalog = FileSystemCatalog(str(warehouse))
    catalog.create_database("db")
    catalog.create_table("db.t", workload.table_schema(options))
    return catalog.table("db.t")


class _Counting(LocalFileIO):
    """Counts the data files that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: collections.Counter[str] = collections.Counter()

    def open_input(self, path: str) -> pa.NativeFile:
        if "/bucket-" in path:
            self.opened[path] += 1
        return super().open_input(path)


def _pruning(rows: int, scratch: Path) -> list[Figure]:
    """200 files in 20 partitions, 10 level-0 files each, whose keys overlap in part."""
    columns = [("day", parse_type("INT NOT NULL")), ("id", parse_type("BIGINT NOT NULL"))]
    columns += [("amount", parse_type("DOUBLE")), ("note", parse_type("STRING"))]
    schema = new_schema(
        columns,
        primary_keys=("day", "id"),
        partition_keys=("day",),
        options={"bucket": "1", "write-only": "true", "source.split.target-size": "1 mb"},
    )
    catalog = FileSystemCatalog(str(scratch / "pruning"))
    catalog.create_database("db")
    written = catalog.create_table("db.t", schema)
    share = rows // 200
    rng = np.random.default_rng(5)
    for number in range(10):
        ids = np.arange(number * share, (number + 1) * share)
        with written.new_write("bench", compaction=False) as writer:
            for day in range(20):
                drawn = {
                    "day": np.full(share, day, np.int32),
                    "id": ids,
                    "amount": rng.random(share),
                    "note": pa.array([f"note {n}" for n in range(share)]),
                }
                writer.write(pa.RecordBatch.from_pydict(drawn))
            written.new_commit("bench").commit(writer.prepare_commit(), number)
    figures = []
    cases = [
        ("key lookup", f"day = 7 and id = {3 * share + 5}", 2),
        ("partition filter", "day = 7", 10),
    ]
    for what, condition, goal in cases:
        counting = _Counting()
        table = FileStoreTable.open(written.layout.root, counting)
        scan = batch_scan(table, None, None, parse_predicate(condition))
        pieces = scan.plan(None)
        found = sum(batch.num_rows for piece in pieces for batch in scan.read(piece, None))
        expected = 1 if goal == 2 else rows // 20
        if found != expected:
            raise RuntimeError(f"{what}: {found} rows instead of {expected}")
        counts = counts_of(pieces)
        figures.append(
            Figure(
                name=f"files opened of 200, {what}, {rows:,} rows",
                value=len(counting.opened),
                unit="files",
                lower=True,
                goal=goal,
                note=f"{counts.partitions} partitions and {counts.files} files planned",
            )
        )
    return figures
