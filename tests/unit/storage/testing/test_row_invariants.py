# SPDX-License-Identifier: Apache-2.0
"""Invariants that read rows: what deletion vectors hold, and keys that are seen twice."""

import pathlib
from unittest import mock

import msgspec
import pytest

from storage.errors import InternalError
from storage.format.metadata.file_meta import IndexFileMeta
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from storage.table.commit.live_files import index_entries, index_path
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table, vector_contents, violations
from tests.table_kit import make_table, rows_of, write


@pytest.fixture
def table(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> FileStoreTable:
    """Three rows in one file, and one of them marked as deleted for a newer one."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "lookup"))
    made = make_table(tmp_path, options={"deletion-vectors.enabled": "true"})
    write(made, 1, [("+I", k, "a") for k in range(3)])
    write(made, 2, [("+U", 1, "b")])
    return made


def _index_file(table: FileStoreTable) -> tuple[str, IndexFileMeta, str]:
    (entry,) = index_entries(table, table.latest_snapshot())
    assert entry.file.deletion_vectors is not None
    name = entry.file.deletion_vectors[0].data_file_name
    return index_path(table, entry.partition, entry.bucket, entry.file), entry.file, name


def test_a_sound_table_passes(table: FileStoreTable) -> None:
    check_table(table, rows=True)
    path, file, name = _index_file(table)
    assert list(vector_contents(table, path, file, {name: 3})) == []


def test_marks_beyond_the_rows_of_the_file_are_told(table: FileStoreTable) -> None:
    path, file, name = _index_file(table)
    assert list(vector_contents(table, path, file, {name: 1})) == [
        f"marks 1 rows of {name}, which has 1"
    ]


def test_another_cardinality_than_recorded_is_told(table: FileStoreTable) -> None:
    path, file, name = _index_file(table)
    assert file.deletion_vectors is not None
    wrong = msgspec.structs.replace(file.deletion_vectors[0], cardinality=2)
    other = msgspec.structs.replace(file, deletion_vectors=(wrong,))
    (text,) = vector_contents(table, path, other, {name: 3})
    assert "another number of rows than recorded" in text


def test_a_key_that_is_seen_twice_is_told(table: FileStoreTable, tmp_path: pathlib.Path) -> None:
    other = make_table(tmp_path / "other", options=table.schema.options)
    write(other, 1, [("+I", k, "a") for k in range(3)])
    with mock.patch("storage.lsm.changelog._mark"):
        write(other, 2, [("+U", 1, "b")])
    assert len(rows_of(other)) == 4
    assert list(violations(other)) == []
    assert list(violations(other, rows=True)) == [
        "snapshot 4: 1 rows have a key that is there already"
    ]
    with pytest.raises(InternalError, match="there already"):
        check_table(other, rows=True)
