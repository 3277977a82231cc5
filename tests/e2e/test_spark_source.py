# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")` under Spark: batch reads, and streams that are stopped and go on."""

import decimal

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.table.branches import create_branch
from storage.table.retention.consumers import all_consumers
from storage.table.retention.expire import expire_snapshots
from storage.table.tags import create_tag
from tests.table_kit import make_table, write

pytestmark = pytest.mark.spark

LOOKUP = {"changelog-producer": "lookup"}
PUSH = "spark.sql.python.filterPushdown.enabled"


def frame(spark: SparkSession, table, mark: str = "", **options: str):
    """A batch read; `_` in names of options is a dot."""
    reader = spark.read.format("lakeward")
    for key, value in options.items():
        reader = reader.option(key.replace("__", "-").replace("_", "."), value)
    return reader.load(f"{table.layout.root}{mark}")


def rows(found) -> list[tuple]:
    return sorted(tuple(row) for row in found.collect())


@pytest.fixture
def pushing(spark):
    spark.conf.set(PUSH, "true")
    yield
    spark.conf.set(PUSH, "false")


@pytest.fixture
def table(tmp_path):
    """Two partitions, three snapshots."""
    table = make_table(
        tmp_path,
        columns=(("dt", "STRING"), ("k", "BIGINT"), ("v", "STRING")),
        keys=("dt", "k"),
        partitions=("dt",),
        options=LOOKUP,
    )
    write(table, 1, [("+I", "a", 1, "x"), ("+I", "a", 2, "y"), ("+I", "b", 3, "z")])
    write(table, 2, [("-D", "a", 2, "y"), ("+U", "b", 3, "zz")])
    return table


def test_a_table_is_read_without_registration(spark, table):
    found = frame(spark, table)
    assert found.dtypes == [("dt", "string"), ("k", "bigint"), ("v", "string")]
    assert rows(found) == [("a", 1, "x"), ("b", 3, "zz")]


def test_columns_and_filters_by_option(spark, table):
    found = frame(spark, table, columns="v,k", filter="dt = 'b' and k > 2")
    assert found.columns == ["v", "k"]
    assert rows(found) == [("zz", 3)]


def test_a_schema_chooses_columns(spark, table):
    reader = spark.read.format("lakeward").schema("v string, dt string")
    assert rows(reader.load(table.layout.root)) == [("x", "a"), ("zz", "b")]


@pytest.mark.full
def test_filters_are_taken_from_spark_where_its_setting_allows(spark, table, pushing):
    found = frame(spark, table).where("dt = 'b' and v like 'z%' and k is not null and k + 1 = 4")
    assert rows(found) == [("b", 3, "zz")]
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "StartsWith" not in plan
    assert "= 4" in plan


@pytest.mark.full
def test_time_travel_tags_branches_and_system_tables(spark, table):
    create_tag(table, "first", snapshot_id=2)
    create_branch(table, "dev", tag="first")
    old = [("a", 1, "x"), ("a", 2, "y"), ("b", 3, "z")]
    assert rows(frame(spark, table, scan_snapshot__id="2")) == old
    assert rows(frame(spark, table, scan_tag__name="first")) == old
    assert rows(frame(spark, table, "$branch_dev")) == old
    assert frame(spark, table, "$branch_dev$snapshots").count() == 1
    audit = frame(spark, table, "$audit_log", incremental__between="2,4", filter="rowkind <> '-U'")
    assert rows(audit) == [("+U", "b", 3, "zz"), ("-D", "a", 2, "y")]
    assert rows(frame(spark, table, incremental__between="2,4")) == [("b", 3, "zz")]
    told = frame(spark, table, incremental__between="2,4", read_changelog="true")
    assert told.columns[0] == "_row_kind"
    assert sorted(row[0] for row in told.collect()) == ["+U", "-D", "-U"]


@pytest.mark.full
def test_format_tables(spark, tmp_path):
    types = {"a": "INT", "d": "DECIMAL(5, 2)", "p": "STRING"}
    columns = [(name, parse_type(text)) for name, text in types.items()]
    options = {"type": "format-table", "file.format": "json"}
    schema = new_schema(columns, partition_keys=["p"], options=options, now_ms=0)
    table = FileSystemCatalog(str(tmp_path)).create_table("db.t", schema)
    given = [{"a": n, "d": decimal.Decimal(n), "p": "xy"[n % 2]} for n in range(4)]
    table.append_rows([pa.RecordBatch.from_pylist(given, schema=schema.arrow_schema)])
    read = spark.read.format("lakeward")
    by_path = read.load(f"{tmp_path}/db.db/t")
    assert rows(by_path) == [tuple(row.values()) for row in given]
    by_name = read.option("warehouse", str(tmp_path)).option("table", "db.t").load()
    assert [row[0] for row in rows(by_name.where("p = 'y'"))] == [1, 3]


def test_mistakes_are_named(spark, table):
    with pytest.raises(AnalysisException, match=r"did you mean `scan\.snapshot-id`"):
        frame(spark, table, scan_snapshot__ids="1").collect()
    with pytest.raises(AnalysisException, match="no such column"):
        frame(spark, table, columns="w").collect()
    with pytest.raises(StreamingQueryException, match="needs row kinds"):
        Stream(spark, table, table.layout.root + "-checkpoint").run()


class Stream:
    """A query with a place of its own that remembers what each batch held."""

    def __init__(self, spark, table, checkpoint, **options) -> None:
        self.spark, self.table, self.checkpoint = spark, table, str(checkpoint)
        self.options = options
        self.batches: dict[int, list[tuple]] = {}
        self.fail_in: int | None = None

    def on_batch(self, found, number: int) -> None:
        self.batches[number] = sorted(tuple(row) for row in found.collect())
        if number == self.fail_in:
            raise RuntimeError("planned failure")

    def run(self) -> dict[int, list[tuple]]:
        """Take in what is there; the batches of this run."""
        self.batches = {}
        reader = self.spark.readStream.format("lakeward")
        for key, value in self.options.items():
            reader = reader.option(key.replace("__", "-").replace("_", "."), value)
        writer = reader.load(self.table.layout.root).writeStream
        writer = writer.option("checkpointLocation", self.checkpoint).foreachBatch(self.on_batch)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()
        return self.batches


@pytest.fixture
def changing(tmp_path):
    table = make_table(tmp_path / "warehouse", options=LOOKUP)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    return table


@pytest.mark.full
def test_a_stream_begins_with_the_whole_state_and_goes_on_where_it_was(spark, changing, tmp_path):
    stream = Stream(spark, changing, tmp_path / "place", read_changelog="true")
    assert list(stream.run().values()) == [[("+I", 1, "a"), ("+I", 2, "b")]]
    write(changing, 2, [("+U", 1, "aa")])
    write(changing, 3, [("-D", 2, "b")])
    told = [row for rows in stream.run().values() for row in rows]
    assert sorted(told) == [("+U", 1, "aa"), ("-D", 2, "b"), ("-U", 1, "a")]
    assert [row for rows in stream.run().values() for row in rows] == []


@pytest.mark.full
def test_a_failed_first_batch_is_read_again_as_it_was(spark, changing, tmp_path):
    stream = Stream(spark, changing, tmp_path / "place", read_changelog="true")
    stream.fail_in = 0
    with pytest.raises(StreamingQueryException, match="planned failure"):
        stream.run()
    first, stream.fail_in = stream.batches[0], None
    write(changing, 2, [("+U", 1, "aa")])
    again = stream.run()
    assert again.pop(0) == first == [("+I", 1, "a"), ("+I", 2, "b")]
    assert list(again.values()) == [[("+U", 1, "aa"), ("-U", 1, "a")]]


@pytest.mark.full
def test_batches_are_limited_by_snapshots(spark, changing, tmp_path):
    for number in range(2, 6):
        write(changing, number, [("+U", 1, f"a{number}")])
    options = {"scan_snapshot__id": "1", "max_snapshots_per_trigger": "2"}
    stream = Stream(spark, changing, tmp_path / "place", read_changelog="true", **options)
    assert [len(rows) for rows in stream.run().values()] == [4, 4, 2]


def expire(table) -> None:
    now = table.clock.now_ms()
    expire_snapshots(table, now_ms=now, retain_max=1, retain_min=1, time_retained_ms=0)


@pytest.mark.full
def test_a_consumer_keeps_what_is_not_read_and_what_expired_is_said(spark, changing, tmp_path):
    consumer = Stream(spark, changing, tmp_path / "one", read_changelog="true", consumer__id="sums")
    consumer.run()
    other = Stream(spark, changing, tmp_path / "two", read_changelog="true")
    other.run()
    for number in range(2, 7):
        write(changing, number, [("+U", 1, f"a{number}")])
    consumer.run()  # tells the table of the first run's end
    assert all_consumers(changing) == {"sums": 3}
    expire(changing)
    assert changing.snapshots.ids()[0] == 3
    changing.file_io.delete(changing.layout.consumer_file("sums"))
    expire(changing)
    with pytest.raises(StreamingQueryException, match=r"snapshot with id 3 has expired.*hint"):
        other.run()


@pytest.mark.full
def test_views_of_sql(spark, table):
    options = f"path '{table.layout.root}', `scan.snapshot-id` '2'"
    spark.sql(f"create temporary view old using lakeward options ({options})")
    try:
        assert rows(spark.sql("select v from old where k = 2")) == [("y",)]
    finally:
        spark.sql("drop view old")
