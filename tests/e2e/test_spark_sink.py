# SPDX-License-Identifier: Apache-2.0
"""`format("lakeward")` under Spark: what it writes, in batches and from streams."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions

from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.table_kit import data_files, make_table, named_files, rows_of, write

pytestmark = pytest.mark.spark


def save(frame, table, mode="append", **options: str) -> None:
    writer = frame.write.format("lakeward").mode(mode)
    for key, value in options.items():
        writer = writer.option(key.replace("_", "."), value)
    writer.save(table.layout.root)


def test_tasks_that_share_buckets_upsert_and_the_changelog_is_whole(spark, tmp_path):
    table = make_table(tmp_path, options={"bucket": "2", "changelog-producer": "lookup"})
    write(table, 1, [("+I", 1, "old"), ("+I", 7, "gone")])
    frame = spark.sql(
        "select id as k, concat('v', id) as v, if(id = 7, '-D', '+I') as _row_kind from range(10)"
    )
    save(frame.repartition(4), table)
    expected = [(k, f"v{k}") for k in range(10) if k != 7]
    assert rows_of(table) == expected
    last = changes_of(table, table.snapshots.latest_id())
    assert sorted(last) == sorted(
        [("-U", 1, "old"), ("+U", 1, "v1"), ("-D", 7, "gone")]
        + [("+I", k, f"v{k}") for k in range(10) if k not in (1, 7)]
    )
    check_table(table)


def test_of_a_key_in_several_partitions_the_later_one_wins(spark, tmp_path):
    table = make_table(tmp_path)
    frame = spark.sql("select 1L as k, cast(id as string) as v from range(0, 40, 1, 4)")
    save(frame, table)
    assert rows_of(table) == [(1, "39")]


def test_overwrites_take_the_place_of_partitions_or_of_all(spark, tmp_path):
    columns = (("dt", "STRING"), ("k", "BIGINT"))
    table = make_table(tmp_path, columns=columns, keys=("dt", "k"), partitions=("dt",))
    write(table, 1, [("+I", "a", 1), ("+I", "b", 2)])
    frame = spark.sql("select 'a' as dt, 5L as k")
    save(frame, table, "overwrite")
    assert rows_of(table) == [("a", 5), ("b", 2)]
    save(spark.sql("select 'b' as dt, 6L as k"), table, "overwrite", overwrite_partition="dt=b")
    assert rows_of(table) == [("a", 5), ("b", 6)]
    static = {"dynamic-partition-overwrite": "false"}
    save(frame, table, "overwrite", **static)
    assert rows_of(table) == [("a", 5)]


def test_a_named_batch_is_written_once(spark, tmp_path):
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    frame = spark.sql("select 1L as k, 'a' as v")
    for _ in range(2):
        save(frame, table, commit_user="job", commit_identifier="3")
    assert rows_of(table) == [(1, "a")]
    assert data_files(table) == named_files(table)[0]


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "-1", "dynamic-bucket.assigner-parallelism": "3"},
        {"bucket": "-2", "postpone.target-row-num-per-bucket": "10"},
    ],
)
def test_tasks_write_tables_whose_buckets_are_found_later(spark, tmp_path, options):
    table = make_table(tmp_path, options=options)
    for text in ("x", "y"):
        save(spark.range(100).selectExpr("id as k", f"'{text}' as v").repartition(3), table)
    assert rows_of(table) == sorted(((k, "y") for k in range(100)), key=repr)
    assert data_files(table) == named_files(table)[0]


@pytest.mark.full
def test_what_cannot_be_written_is_named_and_leaves_nothing(spark, tmp_path):
    moving = make_table(tmp_path / "moving", partitions=("v",), options={"bucket": "-1"})
    frame = spark.range(100).selectExpr("id as k", "'x' as v").repartition(3)
    with pytest.raises(Exception, match=r"single writer.*coalesce\(1\)"):
        save(frame, moving)
    assert data_files(moving) == set()
    save(frame.coalesce(1), moving)
    assert len(rows_of(moving)) == 100
    plain = make_table(tmp_path / "plain")
    with pytest.raises(Exception, match="the table has no such column column=`w`"):
        save(spark.sql("select 1L as k, 'a' as w"), plain)
    with pytest.raises(Exception, match="a row has no valid row kind"):
        save(spark.sql("select 1L as k, 'a' as v, 'x' as _row_kind"), plain)
    assert plain.latest_snapshot() is None


def copy(spark: SparkSession, source, target, checkpoint, mode="append", frame=None):
    reader = spark.readStream.format("lakeward").option("read.changelog", "true")
    frame = frame or (lambda found: found)
    writer = frame(reader.load(source.layout.root)).writeStream.format("lakeward").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint)).option("path", target.layout.root)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    return query


@pytest.mark.full
def test_a_stream_carries_changes_from_table_to_table(spark, tmp_path):
    source = make_table(tmp_path / "source", options={"changelog-producer": "lookup"})
    target = make_table(tmp_path / "target", options={"changelog-producer": "input"})
    write(source, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    copy(spark, source, target, tmp_path / "place")
    write(source, 2, [("+U", 1, "aa"), ("-D", 2, "b")])
    query = copy(spark, source, target, tmp_path / "place")
    assert rows_of(target) == [(1, "aa")]
    newest = target.latest_snapshot()
    assert (newest.commit_user, newest.commit_identifier) == (f"spark-{query.id}", 1)


@pytest.mark.full
def test_a_batch_that_is_repeated_after_its_commit_changes_nothing(spark, tmp_path):
    source = make_table(tmp_path / "source", options={"changelog-producer": "lookup"})
    target = make_table(tmp_path / "target", keys=(), options={"bucket": "-1"})
    place = tmp_path / "place"

    def values(found):
        return found.select("k", "v")

    write(source, 1, [("+I", 1, "a")])
    copy(spark, source, target, place, frame=values)
    (place / "commits" / "0").unlink()
    (place / "commits" / ".0.crc").unlink(missing_ok=True)
    copy(spark, source, target, place, frame=values)
    assert rows_of(target) == [(1, "a")]
    assert data_files(target) == named_files(target)[0]


def count_by_value(found):
    signs = found.selectExpr("v", "if(_row_kind in ('+I', '+U'), 1L, -1L) as sign")
    return signs.groupBy("v").agg(functions.sum("sign").alias("keys"))


@pytest.mark.full
def test_a_complete_result_takes_the_place_of_all_rows(spark, tmp_path):
    source = make_table(tmp_path / "source", options={"changelog-producer": "lookup"})
    columns = (("v", "STRING"), ("keys", "BIGINT"))
    target = make_table(
        tmp_path / "target", columns=columns, keys=(), partitions=("v",), options={"bucket": "-1"}
    )
    write(source, 1, [("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "b")])
    write(target, 1, [("+I", "c", 9)])
    copy(spark, source, target, tmp_path / "place", "complete", count_by_value)
    assert rows_of(target) == [("a", 2), ("b", 1)]
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        copy(spark, source, target, tmp_path / "other", "update", count_by_value)
