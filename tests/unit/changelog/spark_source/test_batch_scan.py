# SPDX-License-Identifier: Apache-2.0
"""Reads in pieces give what the same reads in one give, and read no more than they must."""

import pickle

import pyarrow as pa
import pytest

from changelog.spark_source.batch_scan import batch_scan, counts_of
from changelog.spark_source.data_source import LakewardDataSource
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import InvalidRequestError, NotFoundError, UnsupportedFeatureError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.table.branches import create_branch
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.table_kit import make_table, rows_batch, write

COLUMNS = (("dt", "STRING"), ("k", "BIGINT"), ("v", "STRING"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Only to be read; with a clock and names that can be sent to workers."""
    tmp_path = tmp_path_factory.mktemp("warehouse")
    options = {"bucket": "2", "changelog-producer": "lookup", "source.split.target-size": "1 b"}
    table = make_table(
        tmp_path, columns=COLUMNS, keys=("dt", "k"), partitions=("dt",), options=options
    )
    for number in range(1, 5):
        rows = [("+I", f"d{k % 3}", k, f"{number}") for k in range(number, number + 6)]
        write(table, number, [*rows, ("-D", "d0", 3, "x")])
    create_tag(table, "old", snapshot_id=4)
    return FileStoreTable.open(table.layout.root)


def whole(scan, predicate=None) -> pa.Table:
    """What workers read, each with a scan of its own."""
    batches = []
    for piece in pickle.loads(pickle.dumps(scan.plan(predicate))):
        batches += pickle.loads(pickle.dumps(scan)).read(piece, predicate)
    return pa.Table.from_batches(batches, schema=scan.schema)


def in_order(rows: pa.Table) -> list[dict]:
    return sorted(rows.to_pylist(), key=repr)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scan.snapshot-id": "3"},
        {"scan.tag-name": "old"},
        {"incremental-between": "2,6"},
        {"incremental-between": "2,6", "incremental-between-scan-mode": "delta"},
        {"incremental-between": "2,6", "incremental-between-scan-mode": "diff"},
    ],
)
@pytest.mark.parametrize("condition", [None, "dt = 'd1' and k > 3", "v = '2'"])
def test_rows_in_pieces_are_the_rows(table, options, condition):
    table = table.with_options(options)
    predicate = parse_predicate(condition) if condition else None
    expected = table.to_arrow(columns=["v", "k"], filter=predicate)
    scan = batch_scan(table, None, ["v", "k"])
    assert in_order(whole(scan, predicate)) == in_order(expected)
    split = batch_scan(table, None, ["v", "k"], predicate)
    assert in_order(whole(split)) == in_order(expected)
    assert scan.schema == expected.schema


@pytest.mark.parametrize("options", [{}, {"incremental-between": "2,6"}])
@pytest.mark.parametrize("name", list(SYSTEM_TABLES))
def test_system_tables_in_pieces_are_the_system_tables(table, name, options):
    table = table.with_options(options if name in ("audit_log", "binlog") else {})
    scan = batch_scan(table, name)
    expected = system_table(table, name)
    assert scan.schema.names == expected.schema.names
    assert in_order(whole(scan)) == in_order(expected)


def test_kinds_on_request_and_conditions_on_them(table):
    changes = table.with_options({"incremental-between": "2,8"})
    audit = in_order(system_table(changes, "audit_log"))
    scan = batch_scan(changes, kinds=True)
    assert scan.schema.names == ["_row_kind", "dt", "k", "v"]
    renamed = [{"_row_kind": row.pop("rowkind"), **row} for row in audit]
    assert in_order(whole(scan)) == renamed
    gone = whole(batch_scan(changes, None, ["k"], parse_predicate("_row_kind = '-U'"), kinds=True))
    assert gone.num_rows == sum(row["_row_kind"] == "-U" for row in renamed) > 0
    state = whole(batch_scan(table, kinds=True))
    assert set(state["_row_kind"].to_pylist()) == {"+I"}
    assert state.drop_columns(["_row_kind"]).num_rows == table.to_arrow().num_rows


def test_a_fallback_branch_lends_partitions(tmp_path):
    table = make_table(tmp_path, columns=COLUMNS, keys=("dt", "k"), partitions=("dt",))
    create_branch(table, "spare")
    spare = table.at_branch("spare")
    write(spare, 1, [("+I", "a", 1, "spare"), ("+I", "b", 2, "spare")])
    write(table, 1, [("+I", "a", 3, "own")])
    table = FileStoreTable.open(table.layout.root).with_options({"scan.fallback-branch": "spare"})
    found = whole(batch_scan(table))
    assert in_order(found) == in_order(table.to_arrow())
    assert found["v"].to_pylist() == ["own", "spare"]


def test_a_key_opens_one_file_and_a_partition_its_own(tmp_path):
    """What must not be read is not planned: 4 partitions, 5 files each."""
    table = make_table(
        tmp_path,
        columns=COLUMNS,
        keys=("dt", "k"),
        partitions=("dt",),
        options={"write-only": "true", "source.split.target-size": "1 b"},
    )
    for number in range(5):
        with table.new_write("w", compaction=False) as writer:
            for dt in range(4):
                rows = [("+I", f"d{dt}", number * 10 + k, "x") for k in range(10)]
                writer.write(rows_batch(table, rows))
            table.new_commit("w").commit(writer.prepare_commit(), number)
    scan = batch_scan(table)

    def counted(condition: str | None):
        found = counts_of(scan.plan(parse_predicate(condition) if condition else None))
        return found.partitions, found.files

    assert counted(None) == (4, 20)
    assert counted("dt = 'd2'") == (1, 5)
    assert counted("dt = 'd2' and k = 17") == (1, 1)
    assert counted("k = 17") == (4, 4)
    assert counted("dt in ('d1', 'd3') and k between 8 and 11") == (2, 4)
    assert counted("v = 'y'") == (0, 0)


def test_system_tables_of_the_catalog(table):
    warehouse = table.layout.root.removesuffix("/db.db/t")
    options = {"warehouse": warehouse, "table": "sys.all_table_options"}
    found = LakewardDataSource(options)
    assert found.schema().names == ["database_name", "table_name", "key", "value"]
    only = {**options, "columns": "value", "filter": "key = 'changelog-producer'"}
    source = LakewardDataSource(only)
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    assert [batch.to_pylist() for batch in reader.read(partition)] == [[{"value": "lookup"}]]


def test_mistakes_are_named(table):
    with pytest.raises(NotFoundError, match="there is no system table of this name"):
        batch_scan(table, "snapshotz")
    for system in (None, "audit_log", "snapshots"):
        with pytest.raises(InvalidRequestError, match="no such column"):
            batch_scan(table, system, ["nope"])
        with pytest.raises(InvalidRequestError, match="no such column"):
            batch_scan(table, system, None, parse_predicate("nope = 1"))


def test_a_format_table_is_read_file_by_file(tmp_path):
    schema = new_schema(
        [("a", parse_type("INT")), ("p", parse_type("STRING"))],
        partition_keys=["p"],
        options={"type": "format-table", "file.format": "csv"},
        now_ms=0,
    )
    table = FileSystemCatalog(str(tmp_path)).create_table("db.t", schema)
    given = [{"a": number, "p": "xy"[number % 2]} for number in range(4)]
    table.append_rows([pa.RecordBatch.from_pylist(given, schema=schema.arrow_schema)])
    scan = pickle.loads(pickle.dumps(batch_scan(table, columns=["a"])))
    splits = scan.plan(parse_predicate("p = 'y'"))
    counts = counts_of(splits)
    assert (counts.splits, counts.partitions, counts.files, counts.bytes) == (1, 1, 1, 4)
    found = pa.Table.from_batches(scan.read(splits[0], parse_predicate("a > 1")))
    assert found.to_pylist() == [{"a": 3}]
    with pytest.raises(UnsupportedFeatureError, match="neither system tables"):
        batch_scan(table, "files")
