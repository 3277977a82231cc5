# SPDX-License-Identifier: Apache-2.0
import pathlib
from collections.abc import Sequence

import pyarrow as pa
import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, UpdateType
from storage.format.types.types import VALUE_KIND, RowKind, parse_type
from storage.io.local import LocalFileIO
from storage.table.scan.scan import changelog_entries
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog

_GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "data" / "public"
_KINDS = {kind.short: kind.value for kind in RowKind}


@pytest.fixture
def table(tmp_path: pathlib.Path) -> FileStoreTable:
    catalog = FileSystemCatalog(str(tmp_path), file_io=LocalFileIO(durable=False))
    catalog.create_database("db")
    schema = new_schema(
        [("k", parse_type("INT")), ("v", parse_type("INT"))],
        primary_keys=["k"],
        options={"bucket": "1"},
        now_ms=0,
    )
    return catalog.create_table("db.t", schema)


def _commit(table: FileStoreTable, identifier: int, rows: Sequence[tuple[str, int, int]]) -> None:
    kinds, keys, values = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_pydict(
        {
            "k": pa.array(keys, pa.int32()),
            "v": pa.array(values, pa.int32()),
            VALUE_KIND: pa.array([_KINDS[kind] for kind in kinds], pa.int8()),
        }
    )
    with table.new_write("u") as writer:
        writer.write(batch)
        messages = writer.prepare_commit()
    table.new_commit("u").commit(messages, identifier)


def _changes(table: FileStoreTable, snapshot_id: int) -> list[tuple[object, ...]]:
    found = read_snapshot_changelog(table, snapshot_id)
    kinds = [RowKind(kind).short for kind in found.column(VALUE_KIND).to_pylist()]
    values = [column.to_pylist() for column in found.columns[1:]]
    return list(zip(kinds, *values, strict=True))


def test_without_a_producer_an_append_snapshot_gives_what_was_flushed(
    table: FileStoreTable,
) -> None:
    _commit(table, 1, [("+I", 1, 1), ("+I", 2, 2), ("+U", 1, 5)])
    _commit(table, 2, [("-D", 2, 2), ("-D", 9, 9)])
    assert _changes(table, 1) == [("+U", 1, 5), ("+I", 2, 2)]
    assert _changes(table, 2) == [("-D", 2, 2), ("-D", 9, 9)]


def test_a_compaction_brings_no_changes(table: FileStoreTable) -> None:
    for identifier in range(1, 6):
        _commit(table, identifier, [("+I", 1, identifier)])
    snapshots = [table.snapshots.read(i) for i in table.snapshots.ids()]
    changes = [_changes(table, s.id) for s in snapshots]
    assert [len(c) for c in changes] == [int(s.commit_kind.value == "APPEND") for s in snapshots]
    assert any(s.commit_kind.value == "COMPACT" for s in snapshots)


def test_old_changes_come_in_the_columns_of_today(table: FileStoreTable) -> None:
    _commit(table, 1, [("+I", 1, 1)])
    table.alter([UpdateType("v", parse_type("BIGINT")), AddColumn("w", parse_type("STRING"))])
    reopened = FileStoreTable.open(table.layout.root)
    found = read_snapshot_changelog(reopened, 1)
    assert found.schema.names == [VALUE_KIND, "k", "v", "w"]
    assert found.schema.field("v").type == pa.int64()
    assert _changes(reopened, 1) == [("+I", 1, 1, None)]


def test_a_table_with_a_producer_gives_its_changelog_files() -> None:
    table = FileStoreTable.open(str(_GOLDEN / "changelog_lookup" / "table"))
    with_files = [
        snapshot_id
        for snapshot_id in table.snapshots.ids()
        if changelog_entries(table, table.snapshots.read(snapshot_id))
    ]
    for snapshot_id in table.snapshots.ids():
        found = read_snapshot_changelog(table, snapshot_id)
        count = table.snapshots.read(snapshot_id).changelog_record_count or 0
        assert found.num_rows == count
        assert (count > 0) == (snapshot_id in with_files)


def test_an_unknown_snapshot_is_reported(table: FileStoreTable) -> None:
    with pytest.raises(NotFoundError):
        read_snapshot_changelog(table, 7)
