# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from storage.clock import local_of_epoch_ms
from storage.errors import NotFoundError, UnsupportedFeatureError
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import VALUE_KIND, parse_type
from storage.table.branches import create_branch, drop_branch
from storage.table.inspect.statistics import Statistics
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.inspect.system.row_tables import (
    audit_log_table,
    binlog_batches,
    binlog_schema,
    read_optimized_table,
    refuse_streaming_read_optimized,
)
from storage.table.retention.consumers import write_consumer
from storage.table.scan.predicate import parse_predicate
from storage.table.tags import create_tag
from storage.table.write.rows.row_changes import delete_where
from tests.table_kit import KINDS, make_table, rows_batch, write


def rows(found: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    wanted = names or tuple(found.schema.names)
    return [tuple(row[name] for name in wanted) for row in found.to_pylist()]


def test_snapshots(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    assert system_table(table, "snapshots").num_rows == 0
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 2, "b"), ("+I", 3, "c")])
    found = system_table(table, "snapshots")
    names = ("snapshot_id", "commit_user", "commit_identifier", "commit_kind", "schema_id")
    assert rows(found, *names) == [(1, "user", 1, "APPEND", 0), (2, "user", 2, "APPEND", 0)]
    assert rows(found, "total_record_count", "delta_record_count") == [(1, 1), (3, 2)]
    assert found.schema.field("commit_time").type == pa.timestamp("ms")
    assert not found.schema.field("snapshot_id").nullable
    assert found.schema.names[-3:] == ["next_row_id", "operation", "writer_version"]
    first = table.snapshots.read(1)
    assert found["commit_time"].cast(pa.int64())[0].as_py() == local_of_epoch_ms(first.time_ms)
    assert found["base_manifest_list"][0].as_py() == first.base_manifest_list


def test_schemas_and_options(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"snapshot.time-retained": "5 h"})
    table = table.alter([AddColumn("w", parse_type("INT"))])
    found = system_table(table, "schemas")
    assert rows(found, "schema_id", "partition_keys", "primary_keys") == [
        (0, "[]", '["k"]'),
        (1, "[]", '["k"]'),
    ]
    fields = json.loads(found["fields"][1].as_py())
    assert [field["name"] for field in fields] == ["k", "v", "w"]
    assert ("snapshot.time-retained", "5 h") in rows(system_table(table, "options"))


def test_files(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=[("p", "INT"), ("d", "DATE"), ("v", "STRING"), ("n", "BIGINT")],
        keys=["p", "d", "v"],
        partitions=["p", "d"],
    )
    write(table, 1, [("+I", 1, 19857, "b", None), ("+I", 1, 19857, "a", 7), ("+I", 2, 0, "c", 3)])
    table = table.alter([AddColumn("w", parse_type("INT"))])
    write(table, 2, [("+I", 1, 19857, "d", 1, 2)])
    found = system_table(table, "files")
    assert found.schema.names[:5] == [
        "partition",
        "bucket",
        "file_path",
        "file_format",
        "schema_id",
    ]
    assert set(rows(found, "partition", "bucket", "record_count", "schema_id")) == {
        ("{1, 2024-05-14}", 0, 2, 0),
        ("{2, 1970-01-01}", 0, 1, 0),
        ("{1, 2024-05-14}", 0, 1, 1),
    }
    row = next(row for row in found.to_pylist() if row["record_count"] == 2)
    assert (row["min_key"], row["max_key"]) == ("[a]", "[b]")
    assert row["null_value_counts"] == "{d=0, n=1, p=0, v=0, w=2}"
    assert row["min_value_stats"] == "{d=19857, n=7, p=1, v=a, w=null}"
    assert row["file_format"] == "parquet"
    assert row["file_source"] == "APPEND"
    assert row["file_size_in_bytes"] == table.file_io.size(row["file_path"])
    assert system_table(table, "files", {"scan.snapshot-id": "1"}).num_rows == 2
    ranges = system_table(table, "file_key_ranges")
    assert rows(ranges, "file_path", "max_key") == rows(found, "file_path", "max_key")


def test_partitions_and_buckets(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=[("p", "STRING"), ("k", "INT")],
        keys=["p", "k"],
        partitions=["p"],
        options={"bucket": "2"},
    )
    write(table, 1, [("+I", "x", 1), ("+I", "x", 2), ("+I", "y", 1)])
    write(table, 2, [("+I", "x", 1), ("+I", "x", 2)])
    found = system_table(table, "partitions")
    assert rows(found, "partition", "record_count", "total_buckets") == [
        ("p=x", 4, 2),
        ("p=y", 1, 2),
    ]
    buckets = system_table(table, "buckets")
    assert {row[0] for row in rows(buckets)} == {"{x}", "{y}"}
    assert sum(buckets["record_count"].to_pylist()) == 5
    assert sum(buckets["file_count"].to_pylist()) == sum(found["file_count"].to_pylist())


def test_tags_branches_and_consumers(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    create_tag(table, "t1", 1)
    create_tag(table, "t0", 1, time_retained_ms=3_723_500)
    create_branch(table, "b", tag="t1")
    write_consumer(table, "c", 5)
    found = system_table(table, "tags")
    assert rows(found, "tag_name", "snapshot_id", "record_count", "time_retained", "branches") == [
        ("t0", 1, 1, "PT1H2M3.5S", "[]"),
        ("t1", 1, 1, None, "[b]"),
    ]
    create_branch(table, "a", tag="t1")
    assert system_table(table, "tags")["branches"].to_pylist() == ["[]", "[a, b]"]
    drop_branch(table, "a")
    assert rows(system_table(table, "branches"), "branch_name") == [("b",)]
    assert rows(system_table(table, "consumers")) == [("c", 5)]


def test_manifests_follow_time_travel(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, partitions=["v"], keys=["k", "v"])
    assert system_table(table, "manifests").num_rows == 0
    write(table, 1, [("+I", 1, "a")])
    create_tag(table, "t", 1)
    write(table, 2, [("+I", 1, "b")])
    found = system_table(table, "manifests")
    assert rows(found, "num_added_files", "min_partition_stats") == [(1, "{a}"), (1, "{b}")]
    for options in ({"scan.snapshot-id": "1"}, {"scan.tag-name": "t"}):
        assert system_table(table, "manifests", options).num_rows == 1


def test_table_indexes(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, keys=[], options={"bucket": "-1", "deletion-vectors.enabled": "true"}
    )
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    delete_where(table, parse_predicate("k = 1"), "user")
    found = system_table(table, "table_indexes")
    assert rows(found, "partition", "bucket", "index_type") == [("{}", 0, "DELETION_VECTORS")]
    assert found["dv_ranges"][0].as_py()[0]["_CARDINALITY"] == 1
    assert rows(system_table(table, "partitions"), "deleted_record_count") == [(1,)]


def test_hash_indexes_have_no_vectors(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "-1"})
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b"), ("+I", 3, "c")])
    found = system_table(table, "table_indexes")
    names = ("index_type", "file_size", "row_count", "dv_ranges")
    assert rows(found, *names) == [("HASH", 12, 3, None)]


def test_statistics(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    assert system_table(table, "statistics").num_rows == 0
    statistics = Statistics(snapshot_id=1, schema_id=0, merged_record_count=1, merged_record_size=9)
    table.new_commit("user").update_statistics(statistics, 2)
    found = system_table(table, "statistics")
    assert rows(found)[0][:4] == (1, 0, 1, 9)


def test_aggregation_fields(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=[("k", "BIGINT NOT NULL"), ("v", "INT")],
        options={
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.v.ignore-retract": "true",
        },
    )
    assert rows(system_table(table, "aggregation_fields")) == [
        ("k", "BIGINT NOT NULL", "[]", "[]", None),
        ("v", "INT", "[sum, true]", "[fields.v.aggregate-function, fields.v.ignore-retract]", None),
    ]


def test_the_audit_log_shows_retracted_keys_until_they_are_compacted(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    write(table, 2, [("-D", 2, "b"), ("+U", 1, "A")])
    assert rows(system_table(table, "audit_log")) == [("+U", 1, "A"), ("-D", 2, "b")]
    assert rows(audit_log_table(table, parse_predicate("k = 2"))) == [("-D", 2, "b")]
    assert rows(system_table(table, "binlog")) == [("+U", [1], ["A"]), ("-D", [2], ["b"])]
    earlier = system_table(table, "audit_log", {"scan.snapshot-id": "1"})
    assert rows(earlier) == [("+I", 1, "a"), ("+I", 2, "b")]
    write(table, 3, [("+I", 3, "c")], full=True)
    assert [row[1] for row in rows(system_table(table, "audit_log"))] == [1, 3]


def test_the_audit_log_may_show_sequence_numbers(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"table-read.sequence-number.enabled": "true"})
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 1, "b")])
    found = system_table(table, "audit_log")
    assert found.schema.names == ["rowkind", "_SEQUENCE_NUMBER", "k", "v"]
    assert rows(found) == [("+I", 1, 1, "b")]
    assert rows(system_table(table, "binlog")) == [("+I", 1, [1], ["b"])]


def test_the_audit_log_of_an_append_table(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, keys=[], options={"bucket": "-1"})
    assert system_table(table, "audit_log").num_rows == 0
    write(table, 1, [("+I", 1, "a")])
    assert rows(system_table(table, "audit_log")) == [("+I", 1, "a")]


def test_the_binlog_packs_images_across_batches(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    changes = [
        ("+I", 1, "a"),
        ("-U", 1, "a"),
        ("+U", 1, "b"),
        ("-U", 2, "x"),
        ("+U", 2, None),
        ("-D", 1, "b"),
        ("-U", 3, "y"),
    ]
    whole = rows_batch(table, changes)
    expected = [
        ("+I", [1], ["a"]),
        ("+U", [1, 1], ["a", "b"]),
        ("+U", [2, 2], ["x", None]),
        ("-D", [1], ["b"]),
        ("-U", [3], ["y"]),
    ]
    for size in (1, 2, 3, 7):
        pieces = [whole.slice(at, size) for at in range(0, whole.num_rows, size)]
        packed = pa.Table.from_batches(binlog_batches(table, pieces), schema=binlog_schema(table))
        assert rows(packed) == expected
    assert set(whole.column(VALUE_KIND).to_pylist()) == set(KINDS.values())


def test_read_optimized_shows_what_was_fully_compacted(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    assert system_table(table, "ro").num_rows == 0
    write(table, 1, [("+I", 1, "a")], full=True)
    write(table, 2, [("+I", 1, "A"), ("+I", 2, "b")])
    assert rows(system_table(table, "ro")) == [(1, "a")]
    assert rows(read_optimized_table(table, ["v"], parse_predicate("v = 'A'"))) == []
    with pytest.raises(UnsupportedFeatureError, match="Unsupported streaming scan"):
        refuse_streaming_read_optimized(table)
    append = make_table(tmp_path / "append", keys=[], options={"bucket": "-1"})
    write(append, 1, [("+I", 1, "a")])
    assert rows(system_table(append, "ro")) == [(1, "a")]
    refuse_streaming_read_optimized(append)


def test_unknown_names_and_empty_tables(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    with pytest.raises(NotFoundError, match="no system table"):
        system_table(table, "nonsense")
    for name in SYSTEM_TABLES:
        assert system_table(table, name).num_columns
