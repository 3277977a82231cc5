# SPDX-License-Identifier: Apache-2.0
"""Table statistics: the file, the ANALYZE commit, and how long snapshots name them."""

import json
import pathlib

import pytest

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.metadata.schema_changes import AddColumn
from storage.format.metadata.snapshot import CommitKind
from storage.format.types.types import parse_type
from storage.table.inspect.statistics import (
    ColumnStatistics,
    Statistics,
    read_statistics,
)
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.table_kit import make_table, reopened, rows_of, write
from tests.unit.storage.golden_tables import GOLDEN

_STATS = Statistics(
    snapshot_id=1,
    schema_id=0,
    merged_record_count=1,
    columns={"k": ColumnStatistics(column_id=0, distinct_count=1, min="1", max="1", null_count=0)},
)


def test_statistics_of_java_are_read_and_written_alike() -> None:
    table = FileStoreTable.open(str(GOLDEN / "statistics" / "table"))
    found = read_statistics(table)
    assert found is not None
    assert found.merged_record_count == 5
    assert found.columns["d"] == ColumnStatistics(
        column_id=3, distinct_count=5, min="19724", max="19728", null_count=0
    )
    (path,) = (GOLDEN / "statistics" / "table" / "statistics").iterdir()
    assert json.loads(found.to_json()) == json.loads(path.read_bytes())
    assert read_statistics(table, table.snapshots.read(1)) is None


def test_members_of_newer_versions_stay() -> None:
    document = {
        "snapshotId": 1,
        "schemaId": 0,
        "colStats": {"k": {"colId": 0, "histogram": [1, 2]}},
        "newer": True,
    }
    assert json.loads(Statistics.from_json(json.dumps(document).encode()).to_json()) == document


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        '{"snapshotId": 1}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": []}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": {"k": 1}}',
        '{"snapshotId": 1, "schemaId": 0, "colStats": {"k": {"colId": 0, "min": 5}}}',
    ],
)
def test_damaged_statistics_are_corrupt(document: str) -> None:
    with pytest.raises(CorruptDataError):
        Statistics.from_json(document.encode())


def test_an_analyze_commit_changes_no_rows(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    table.new_commit("analyst").update_statistics(_STATS, 1)
    latest = table.snapshots.latest()
    assert latest is not None
    assert latest.commit_kind is CommitKind.ANALYZE
    assert (latest.id, latest.delta_record_count, latest.total_record_count) == (2, 0, 1)
    assert read_statistics(table) == _STATS
    assert rows_of(reopened(table)) == [(1, "a")]
    assert table.new_commit("analyst").update_statistics(_STATS, 1).already_committed
    assert len(list(pathlib.Path(table.layout.statistics_dir).iterdir())) == 1
    check_table(reopened(table))
    wrong = Statistics(snapshot_id=1, schema_id=0, columns={"no": ColumnStatistics(column_id=9)})
    with pytest.raises(InvalidRequestError):
        table.new_commit("analyst").update_statistics(wrong, 2)


def test_statistics_are_named_until_the_schema_changes_and_go_with_their_snapshots(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a")])
    table.new_commit("analyst").update_statistics(_STATS, 1)
    write(table, 2, [("+I", 2, "a")])
    assert read_statistics(table) == _STATS
    table = table.alter([AddColumn("w", parse_type("INT"))])
    write(table, 3, [("+I", 3, "a", 1)])
    assert read_statistics(table) is None
    expire_snapshots(table, now_ms=0, retain_max=2, retain_min=1, time_retained_ms=0)
    folder = pathlib.Path(table.layout.statistics_dir)
    kept = table.snapshots.earliest_id()
    assert kept is not None
    assert len(list(folder.iterdir())) == int(table.snapshots.read(kept).statistics is not None)
    expire_snapshots(table, now_ms=0, retain_max=1, retain_min=1, time_retained_ms=0)
    assert not list(folder.iterdir())
