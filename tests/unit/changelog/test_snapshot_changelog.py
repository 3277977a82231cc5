# SPDX-License-Identifier: Apache-2.0
import pathlib

import pyarrow as pa
import pytest

from storage.errors import NotFoundError
from storage.format.metadata.schema_changes import AddColumn, UpdateType
from storage.format.types.types import VALUE_KIND, parse_type
from storage.table.scan.scan import changelog_entries
from storage.table.table import FileStoreTable
from tests.changelog_kit import changes_of, read_snapshot_changelog
from tests.table_kit import make_table, write

_GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "data" / "public"


@pytest.fixture
def table(tmp_path: pathlib.Path) -> FileStoreTable:
    return make_table(tmp_path, columns=(("k", "INT"), ("v", "INT")))


def test_without_a_producer_an_append_snapshot_gives_what_was_flushed(
    table: FileStoreTable,
) -> None:
    write(table, 1, [("+I", 1, 1), ("+I", 2, 2), ("+U", 1, 5)])
    write(table, 2, [("-D", 2, 2), ("-D", 9, 9)])
    assert changes_of(table, 1) == [("+U", 1, 5), ("+I", 2, 2)]
    assert changes_of(table, 2) == [("-D", 2, 2), ("-D", 9, 9)]


def test_a_compaction_brings_no_changes(table: FileStoreTable) -> None:
    for identifier in range(1, 6):
        write(table, identifier, [("+I", 1, identifier)])
    snapshots = [table.snapshots.read(i) for i in table.snapshots.ids()]
    changes = [changes_of(table, s.id) for s in snapshots]
    assert [len(c) for c in changes] == [int(s.commit_kind.value == "APPEND") for s in snapshots]
    assert any(s.commit_kind.value == "COMPACT" for s in snapshots)


def test_old_changes_come_in_the_columns_of_today(table: FileStoreTable) -> None:
    write(table, 1, [("+I", 1, 1)])
    table.alter([UpdateType("v", parse_type("BIGINT")), AddColumn("w", parse_type("STRING"))])
    reopened = FileStoreTable.open(table.layout.root)
    found = read_snapshot_changelog(reopened, 1)
    assert found.schema.names == [VALUE_KIND, "k", "v", "w"]
    assert found.schema.field("v").type == pa.int64()
    assert changes_of(reopened, 1) == [("+I", 1, 1, None)]


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
