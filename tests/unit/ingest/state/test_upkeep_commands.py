# SPDX-License-Identifier: Apache-2.0
"""Commands that look after tables: what they do, what they print, what they refuse."""

import json
import os
import pathlib

import pyarrow as pa
import pytest
from pyarrow import parquet

from ingest.cli.main import main
from ingest.state.ownership import Parking
from ingest.state.stream_state import OFFSETS_PROPERTY, ROLLBACK_OPTION, rolled_back_topics
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import SetOption
from storage.format.types.types import parse_type
from storage.table.branches import create_branch
from storage.table.commit.live_files import live_entries
from storage.table.retention.consumers import write_consumer
from storage.table.tags import all_tags, create_tag
from tests.table_kit import rows_of, write

COLUMNS = [("p", parse_type("STRING")), ("k", parse_type("BIGINT")), ("v", parse_type("STRING"))]
NAME = "shop.orders"


@pytest.fixture
def warehouse(tmp_path):
    """shop.orders with four snapshots, shop.clicks without keys."""
    catalog = FileSystemCatalog(str(tmp_path))
    schema = new_schema(
        COLUMNS, primary_keys=("p", "k"), partition_keys=("p",), options={"bucket": "1"}, now_ms=0
    )
    table = catalog.create_table(NAME, schema)
    for number in range(4):
        rows = [("+I", p, number, f"{number}") for p in "ab"]
        write(table, number, rows, compaction=False)
    clicks = new_schema(COLUMNS, partition_keys=("p",), options={"bucket": "-1"}, now_ms=0)
    table = catalog.create_table("shop.clicks", clicks)
    for number in range(3):
        write(table, number, [("+I", "a", 9 - number, "x")], compaction=False)
    return tmp_path


@pytest.fixture
def run(warehouse, capsys):
    """A command's exit code and what it printed, as documents."""

    def done(*words):
        code = main([*map(str, words), "--json"])
        captured = capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return done


@pytest.fixture
def on_table(run, warehouse):
    """The same of `lakeward table …` on shop.orders; words before and after both."""

    def done(words, *rest, table=NAME):
        return run("table", *words.split(), warehouse, table, *rest)

    return done


def table_of(warehouse, name=NAME):
    return FileSystemCatalog(str(warehouse)).table(name)


def ids(warehouse, name=NAME):
    return table_of(warehouse, name).snapshots.ids()


# ------------------------------------------------------------------------------- reading


def test_system_tables_are_scanned(on_table):
    code, rows, _ = on_table("scan", table=f"{NAME}$snapshots")
    assert code == 0
    assert [row["snapshot_id"] for row in rows] == [1, 2, 3, 4]
    _, rows, _ = on_table(
        "scan", "--filter", "level = 0", "--columns", "bucket,level", table=f"{NAME}$files"
    )
    assert rows == [{"bucket": 0, "level": 0}] * 8
    _, rows, _ = on_table("scan", "--filter", "key = 'bucket'", table="sys.all_table_options")
    assert {(row["table_name"], row["value"]) for row in rows} == {
        ("orders", "1"),
        ("clicks", "-1"),
    }
    assert on_table("scan", table=f"{NAME}$nothing")[0] == 78
    assert on_table("scan", "--columns", "z", table=f"{NAME}$files")[0] == 78
    assert on_table("scan", table=f"{NAME}$files$x")[0] == 78


def test_branches_have_system_tables(on_table, warehouse):
    create_branch(table_of(warehouse), "b", snapshot_id=2)
    _, rows, _ = on_table("scan", table=f"{NAME}$branch_b$snapshots")
    assert [row["snapshot_id"] for row in rows] == [2]
    _, rows, _ = on_table("scan", table=f"{NAME}$branch_b")
    assert len(rows) == 4


def test_reading_travels_and_reads_changes(on_table, warehouse):
    create_tag(table_of(warehouse), "early", 1)
    assert len(on_table("scan", "--tag", "early")[1]) == 2
    time_ms = table_of(warehouse).snapshots.read(3).time_ms
    assert len(on_table("scan", "--timestamp", time_ms)[1]) == 6
    _, rows, _ = on_table("scan", "--option", "incremental-between=2,4")
    assert {row["k"] for row in rows} == {2, 3}
    _, rows, _ = on_table("scan", "--option", "incremental-between=3,4", table=f"{NAME}$audit_log")
    assert {(row["rowkind"], row["k"]) for row in rows} == {("+I", 3)}
    assert on_table("scan", "--tag", "missing")[0] == 78


# ------------------------------------------------------------------------ tags, consumers


def test_tags(on_table):
    assert on_table("tag create", "t1", "--snapshot", 2, "--retain", "90d")[0] == 0
    assert on_table("tag create", "t1")[0] == 78
    assert on_table("tag create", "t1", "--if-not-exists")[1] == [{"tag": "t1", "snapshot": 2}]
    on_table("tag rename", "t1", "t2")
    on_table("tag replace", "t2", "--snapshot", 3)
    _, rows, _ = on_table("tag ls")
    assert [(row["tag"], row["snapshot"], row["retain_s"]) for row in rows] == [("t2", 3, None)]
    assert on_table("tag delete", "t2", "--dry-run")[1] == [
        {"tag": "t2", "snapshot": 3, "deleted": False}
    ]
    assert on_table("tag delete", "t2", "missing")[0] == 78  # then none of them goes
    assert on_table("tag delete", "t2")[0] == 0
    assert on_table("tag delete", "t2")[0] == 78
    assert on_table("tag ls")[1] == []


def test_consumers(on_table):
    on_table("consumer set", "reader", 3)
    assert on_table("consumer ls")[1] == [{"consumer": "reader", "next_snapshot": 3}]
    assert on_table("consumer delete", "reader", "--dry-run")[1] == [
        {"consumer": "reader", "next_snapshot": 3, "deleted": False}
    ]
    assert on_table("consumer delete", "reader")[0] == 0
    assert on_table("consumer delete", "reader")[0] == 78


# ---------------------------------------------------------------------- branches, rollback


def test_branches(on_table, warehouse):
    on_table("branch create", "b", "--snapshot", 2)
    on_table("branch rename", "b", "c")
    _, rows, _ = on_table("branch ls")
    assert [(row["branch"], row["snapshot"]) for row in rows] == [("c", 2)]
    write(table_of(warehouse).at_branch("c"), 50, [("+I", "a", 77, "branch")])
    _, told, _ = on_table("branch forward", "c", "--dry-run")
    assert told[0]["lost_snapshots"] == 3
    assert ids(warehouse) == [1, 2, 3, 4]
    assert on_table("branch forward", "c")[0] == 0
    assert ids(warehouse) == [1, 2, 3]
    assert ("a", 77, "branch") in rows_of(table_of(warehouse))
    assert on_table("branch delete", "c", "--dry-run")[1][0]["snapshots"] == 2
    assert on_table("branch delete", "c")[0] == 0
    assert on_table("branch ls")[1] == []


def test_a_rollback_says_what_goes_and_does_it(on_table, warehouse):
    create_tag(table_of(warehouse), "late", 4)
    _, told, _ = on_table("rollback", "--snapshot", 2, "--dry-run")
    assert told == [{"snapshot": 2, "lost_snapshots": 2, "lost_tags": 1}]
    assert ids(warehouse) == [1, 2, 3, 4]
    assert on_table("rollback", "--snapshot", 2)[1] == told
    assert ids(warehouse) == [1, 2]
    assert all_tags(table_of(warehouse)) == []
    assert ROLLBACK_OPTION not in table_of(warehouse).schema.options


def by_stream(warehouse, offset):
    properties = {OFFSETS_PROPERTY + "shop": json.dumps({"topic": {"0": offset}})}
    table_of(warehouse).new_commit("shop").commit(
        [], offset, properties=properties, ignore_empty=False
    )


def test_what_a_pipeline_writes_is_taken_back_with_a_note_for_it(on_table, warehouse):
    by_stream(warehouse, 5)
    code, _, err = on_table("rollback", "--snapshot", 2)
    assert code == 78
    assert "a pipeline writes this table" in err
    assert ids(warehouse) == [1, 2, 3, 4, 5]
    assert on_table("rollback", "--snapshot", 2, "--writers-stopped")[0] == 0
    options = {NAME: table_of(warehouse).schema.options}
    assert rolled_back_topics(options, "shop") == {NAME: ("topic",)}
    assert rolled_back_topics(options, "other") == {}


def test_the_note_survives_a_fast_forward(on_table, warehouse):
    create_branch(table_of(warehouse), "b", snapshot_id=2)
    by_stream(warehouse, 5)
    assert on_table("branch forward", "b")[0] == 78
    assert on_table("branch forward", "b", "--writers-stopped")[0] == 0
    assert rolled_back_topics({NAME: table_of(warehouse).schema.options}, "shop")


def test_a_parked_table_is_not_taken_back(on_table, warehouse):
    by_stream(warehouse, 5)
    parking = Parking(table_of(warehouse).file_io, str(warehouse), "shop")
    parking.park(NAME, reason="x", by="person", since={"topic": {"0": 5}}, now_ms=0)
    code, _, err = on_table("rollback", "--snapshot", 2, "--writers-stopped")
    assert code == 78
    assert "parked" in err
    assert ids(warehouse) == [1, 2, 3, 4, 5]


# ------------------------------------------------------------------------------ partitions


def test_partitions_are_dropped_and_tables_emptied(on_table, warehouse):
    _, told, _ = on_table("drop-partition", "--partition", "p=a", "--dry-run")
    assert [(row["partition"], row["files"], row["rows"]) for row in told] == [("p=a", 4, 4)]
    assert len(rows_of(table_of(warehouse))) == 8
    assert on_table("drop-partition", "--partition", "p=a")[1] == told
    assert {row[0] for row in rows_of(table_of(warehouse))} == {"b"}
    on_table("truncate", "--dry-run")
    assert len(rows_of(table_of(warehouse))) == 4
    on_table("truncate")
    assert rows_of(table_of(warehouse)) == []


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_file_takes_the_place_of_a_partition(on_table, warehouse, tmp_path, kind):
    file = tmp_path / f"rows.{kind}"
    rows = [{"p": "a", "k": 100, "v": "new"}, {"p": "a", "k": 101, "v": None}]
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), file)
    elif kind == "csv":
        file.write_text("k,p,v\n100,a,new\n101,a,\n")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert on_table("overwrite", file, "--partition", "p=a")[1][0]["rows"] == 2
    found = rows_of(table_of(warehouse))
    assert [row for row in found if row[0] == "a"] == [("a", 100, "new"), ("a", 101, None)]
    assert len(found) == 6
    assert on_table("overwrite", file, "--partition", "p=b")[0] == 78
    assert rows_of(table_of(warehouse)) == found


def test_files_that_do_not_fit_are_refused(on_table, tmp_path):
    (tmp_path / "rows.csv").write_text("k,p\n1,a\n")
    assert on_table("overwrite", tmp_path / "rows.csv")[0] == 78
    (tmp_path / "bad.csv").write_text("k,p,v\nnan,a,x\n")
    assert on_table("overwrite", tmp_path / "bad.csv")[0] == 78
    assert on_table("overwrite", tmp_path / "missing.csv")[0] == 78
    (tmp_path / "rows.txt").write_text("x")
    assert on_table("overwrite", tmp_path / "rows.txt")[0] == 78


# ---------------------------------------------------------------------------- whole tables


def test_buckets(on_table, warehouse):
    before = rows_of(table_of(warehouse))
    _, told, _ = on_table("rescale", "--buckets", 3, "--dry-run")
    assert [(row["buckets_before"], row["buckets"]) for row in told] == [(1, 3), (1, 3)]
    assert table_of(warehouse).options.bucket == 1
    assert on_table("rescale", "--buckets", 3)[0] == 0
    assert table_of(warehouse).options.bucket == 3
    assert rows_of(table_of(warehouse)) == before
    assert on_table("rescale", "--buckets", 3)[1] == []


def test_statistics(on_table):
    _, told, _ = on_table("analyze", "--columns", "k,v")
    assert (told[0]["rows"], told[0]["columns"]) == (8, ["k", "v"])
    _, rows, _ = on_table("scan", table=f"{NAME}$statistics")
    assert rows[0]["mergedRecordCount"] == 8


def test_indexes(on_table, warehouse):
    table_of(warehouse).alter([SetOption("file-index.bloom-filter.columns", "v")])
    assert on_table("rewrite-index", "--dry-run")[1][0]["files"] == 8
    assert on_table("rewrite-index")[1][0]["snapshot"] == 5
    assert on_table("rewrite-index", "--dry-run")[1][0]["files"] == 0
    assert on_table("rewrite-index")[1][0]["snapshot"] is None


def test_hints(on_table, warehouse):
    hint = pathlib.Path(table_of(warehouse).layout.latest_hint)
    hint.write_text("2")
    assert on_table("repair", "--dry-run")[1][0]["right"] == 4
    assert hint.read_text() == "2"
    on_table("repair")
    assert hint.read_text() == "4"
    assert on_table("repair")[1] == []


def test_clicks_are_sorted(run, warehouse):
    words = ["compact", "--warehouse", warehouse, "shop.clicks", "--order-by", "k"]
    _, told, _ = run(*words, "--dry-run")
    assert [row["takes_files"] for row in told] == [3]
    code, told, _ = run(*words)
    assert (code, told[0]["kind"], told[0]["compacted"]) == (0, "order", 1)
    table = table_of(warehouse, "shop.clicks")
    assert table.to_arrow().column("k").to_pylist() == [7, 8, 9]
    assert len(live_entries(table, table.latest_snapshot())) == 1
    assert run("compact", "--warehouse", warehouse, NAME, "--order-by", "k")[0] == 78


# ---------------------------------------------------------------------- expiry and orphans


def test_snapshots_expire_up_to_what_is_needed(run, warehouse):
    table = table_of(warehouse)
    create_tag(table, "kept", 1)
    write_consumer(table, "reader", 3)
    words = ["expire", "--warehouse", warehouse, NAME, "--only", "snapshots"]
    words += ["--retain-min", "1", "--retain-max", "1"]
    code, told, _ = run(*words, "--dry-run")
    assert (code, told) == (
        0,
        [{"table": NAME, "what": "snapshots", "count": 2, "names": ["1", "2"]}],
    )
    assert ids(warehouse) == [1, 2, 3, 4]
    assert run(*words)[1] == told
    assert ids(warehouse) == [3, 4]
    assert len(rows_of(table_of(warehouse), tag="kept")) == 2
    assert run(*words)[1] == []


def test_the_snapshot_that_tells_a_streams_offsets_stays(run, warehouse):
    by_stream(warehouse, 5)
    for number in range(60, 63):
        write(table_of(warehouse), number, [("+I", "a", number, "x")], compaction=False)
    words = ["expire", "--warehouse", warehouse, NAME, "--retain-min", "1", "--retain-max", "1"]
    assert run(*words)[0] == 0
    assert ids(warehouse) == [5, 6, 7, 8]


def test_everything_that_has_had_its_time(run, warehouse):
    table = table_of(warehouse)
    create_tag(table, "short", 2, time_retained_ms=1)
    write_consumer(table, "gone", 1)
    os.utime(table.layout.consumer_file("gone"), (0, 0))
    words = ["expire", "--warehouse", warehouse, "--database", "shop"]
    words += ["--option", "consumer.expiration-time=1d", "--option"]
    words += ["partition.expiration-time=1 d", "--older-than", "0s", "--retain-min", "1"]
    _, told, _ = run(*words)
    assert {(row["table"], row["what"], row["count"]) for row in told} == {
        (NAME, "tags", 1),
        (NAME, "consumers", 1),
        (NAME, "snapshots", 3),
        ("shop.clicks", "snapshots", 2),
    }


def test_a_table_that_fails_does_not_keep_the_others_from_it(run, warehouse):
    for file in pathlib.Path(table_of(warehouse).layout.snapshot_dir).glob("snapshot-*"):
        file.write_text("{")
    words = ["expire", "--warehouse", warehouse, "--database", "shop", "--retain-min", "1"]
    code, told, _ = run(*words, "--older-than", "0s")
    assert code == 65
    assert [row["table"] for row in told] == ["shop.clicks"]


def test_orphans_of_some_age_go(run, warehouse):
    table = table_of(warehouse)
    bucket = pathlib.Path(
        table.data_path(live_entries(table, table.latest_snapshot())[0].partition, 0, "x")
    )
    old, young = bucket.with_name("data-old-0.parquet"), bucket.with_name("data-young-0.parquet")
    for file in (old, young):
        file.write_bytes(b"left")
    os.utime(old, (0, 0))
    words = ["orphans", "--warehouse", warehouse, "--database", "shop"]
    _, told, _ = run(*words, "--dry-run")
    assert {row["table"]: row["paths"] for row in told} == {NAME: [str(old)], "shop.clicks": []}
    assert old.exists()
    assert run(*words)[0] == 0
    assert not old.exists()
    assert run(*words, "--older-than", "1s")[0] == 78
    assert young.exists()
    os.utime(young, (young.stat().st_mtime - 60,) * 2)
    assert run(*words, "--older-than", "1s", "--force")[0] == 0
    assert not young.exists()
    assert len(rows_of(table_of(warehouse))) == 8


def test_people_read_it_too(warehouse, capsys):
    base = ["--warehouse", str(warehouse), NAME]
    assert main(["expire", *base, "--retain-min", "1", "--older-than", "0s", "--dry-run"]) == 0
    assert main(["orphans", *base, "--dry-run"]) == 0
    assert main(["table", "rescale", str(warehouse), NAME, "--buckets", "2"]) == 0
    assert main(["table", "analyze", str(warehouse), NAME, "--all-columns"]) == 0
    assert main(["table", "truncate", str(warehouse), NAME]) == 0
    out = capsys.readouterr().out
    for text in ("1, 2, 3", "(nothing was changed)", "(2 rescaled)", "8 rows", "2 partitions"):
        assert text in out
