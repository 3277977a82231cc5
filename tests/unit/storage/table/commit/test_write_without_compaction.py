# SPDX-License-Identifier: Apache-2.0
"""Tables with a primary key and deletion vectors: what level 0 holds is seen once compacted."""

import pathlib

import pytest

from storage.table.commit.live_files import index_entries
from storage.table.table import FileStoreTable
from tests.table_kit import index_files_on_disk, reopened, rows_of, write
from tests.table_kit import make_table as make
from tests.unit.storage.newest_files import newest_entries

VECTORS = {"deletion-vectors.enabled": "true"}
ROWS = [("+I", 1, "a"), ("+I", 2, "b")]


@pytest.mark.parametrize("bucket", ["1", "3", "-1"])
@pytest.mark.parametrize("by_option", [True, False])
def test_rows_go_to_level_0_where_batch_reads_do_not_look(
    tmp_path: pathlib.Path, bucket: str, by_option: bool
) -> None:
    options = {**VECTORS, "bucket": bucket, **({"write-only": "true"} if by_option else {})}
    table = make(tmp_path, options=options)
    for number in range(1, 9):  # more than the stop trigger
        result = write(table, number, [("+I", 1, f"v{number}")], compaction=by_option)
        assert result.compact_snapshot_id is None
    write(table, 9, [*ROWS, ("-D", 2, "b")], compaction=by_option)
    assert set(_levels(table)) == {0}
    assert len(_levels(table)) >= 9
    assert rows_of(table) == []
    merging = table.with_options({"deletion-vectors.merge-on-read": "true"})
    assert rows_of(merging) == [(1, "a")]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_another_job_compacts(tmp_path: pathlib.Path, full: bool, bucket: str) -> None:
    table = make(tmp_path, options={**VECTORS, "bucket": bucket, "write-only": "true"})
    write(table, 1, ROWS)
    _compact(table, 1, full=full)
    assert rows_of(table) == [(1, "a"), (2, "b")]
    write(table, 2, [("+I", 1, "c"), ("-D", 2, "b"), ("+I", 3, "d")])
    assert rows_of(table) == [(1, "a"), (2, "b")]
    _compact(table, 2, full=full)
    assert rows_of(table) == [(1, "c"), (3, "d")]
    assert rows_of(table, snapshot=3) == [(1, "a"), (2, "b")]
    assert sum(_vectors(table).values()) == (0 if full else 2)
    assert 0 not in _levels(table)


def test_a_full_compaction_rewrites_files_that_lost_rows(tmp_path: pathlib.Path) -> None:
    options = {**VECTORS, "num-levels": "3"}
    table = make(tmp_path, options=options)
    write(table, 1, [("+I", key, "x" * 50) for key in range(100)], full=True)
    write(table, 2, [("+U", 1, "a"), ("-D", 2, "")])
    assert sum(_vectors(table).values()) == 2
    assert rows_of(table)[0] == (0, "x" * 50)
    write(table, 3, [], full=True)
    assert _vectors(table) == {}
    assert len(rows_of(table)) == 99
    levels = _levels(table)
    assert set(levels) == {2}


def _compact(table: FileStoreTable, identifier: int, *, full: bool) -> None:
    with reopened(table).new_write("compactor") as writer:
        assert writer.compact(full=full)
        messages = writer.prepare_commit()
    assert all(message.data.empty for message in messages)
    result = table.new_commit("compactor").commit(messages, identifier)
    assert result.compact_snapshot_id is not None


def _levels(table: FileStoreTable) -> list[int]:
    return [entry.file.level for entry in newest_entries(table)]


def _vectors(table: FileStoreTable) -> dict[str, int]:
    """Deleted rows per data file."""
    found = index_entries(table, table.latest_snapshot())
    assert {entry.file.file_name for entry in found} <= index_files_on_disk(table)
    return {
        vector.data_file_name: vector.cardinality or 0
        for entry in found
        for vector in entry.file.deletion_vectors or ()
    }
