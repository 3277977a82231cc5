# SPDX-License-Identifier: Apache-2.0
"""Buckets that are finished by several threads give what they give one after the other."""

import pathlib
import threading
from collections.abc import Mapping

import pytest

from storage.errors import StorageUnavailableError
from storage.format.metadata.file_meta import CommitMessage
from storage.io.local import LocalFileIO
from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.table.table import FileStoreTable
from storage.table.write import write as write_module
from storage.table.write.write import TableWrite
from storage.testing.invariants import check_table
from tests.table_kit import make_table, rows_batch, rows_of

ROWS = [("+I", key, f"value {key}") for key in range(200)]
UPDATES = [("-D" if key % 7 == 0 else "+I", key, f"other {key}") for key in range(0, 200, 3)]


@pytest.fixture
def finished_by(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the threads that finished a bucket."""
    names: set[str] = set()
    prepare = MergeTreeWriter.prepare_commit

    def observed(writer: MergeTreeWriter, identifier: int | None = None) -> CommitMessage:
        names.add(threading.current_thread().name.partition("_")[0])
        return prepare(writer, identifier)

    monkeypatch.setattr(MergeTreeWriter, "prepare_commit", observed)
    return names


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are enough for threads."""
    monkeypatch.setattr(write_module, "_ROWS_OF_A_THREAD", 8)


def table_of(root: pathlib.Path, options: Mapping[str, str]) -> FileStoreTable:
    # synced as in production: each thread has files of its own to sync
    return make_table(root, options={"bucket": "4", **options}, file_io=LocalFileIO())


@pytest.mark.parametrize(
    "options",
    [
        {"write-only": "true"},
        {"changelog-producer": "lookup"},
        {"deletion-vectors.enabled": "true"},
    ],
)
@pytest.mark.usefixtures("few_rows")
def test_the_same_files_and_rows(
    tmp_path: pathlib.Path, options: Mapping[str, str], finished_by: set[str]
) -> None:
    shapes, states = [], []
    for threads in (1, 3):
        table = table_of(tmp_path / str(threads), options)
        shape = []
        with TableWrite(table, "user", threads=threads) as writer:
            for identifier, rows in enumerate([ROWS, UPDATES]):
                writer.write(rows_batch(table, rows))
                messages = writer.prepare_commit(identifier)
                table.new_commit("user").commit(messages, identifier)
                shape += [
                    (
                        message.bucket,
                        [file.row_count for file in message.data.new_files],
                        [file.row_count for file in message.compact.compact_after],
                        [file.row_count for file in message.compact.changelog_files],
                    )
                    for message in messages
                ]
        check_table(table)
        shapes.append(shape)
        states.append(rows_of(table))
        assert ("bucket" in finished_by) == (threads > 1)
    assert shapes[0] == shapes[1]
    assert [bucket for bucket, *_ in shapes[0]] == [0, 1, 2, 3] * 2
    assert states[0] == states[1]


@pytest.mark.usefixtures("few_rows")
def test_when_a_bucket_fails_the_files_of_the_others_are_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = MergeTreeWriter.prepare_commit

    def failing(writer: MergeTreeWriter, identifier: int | None = None) -> CommitMessage:
        message = prepare(writer, identifier)
        if message.bucket == 1:
            writer._new_files = list(message.data.new_files)
            raise StorageUnavailableError("no answer")
        return message

    monkeypatch.setattr(MergeTreeWriter, "prepare_commit", failing)
    table = table_of(tmp_path, {})
    with TableWrite(table, "user", threads=3) as writer:
        writer.write(rows_batch(table, ROWS))
        with pytest.raises(StorageUnavailableError, match="no answer"):
            writer.prepare_commit(0)
    assert list(tmp_path.rglob("*.parquet")) == []


def test_few_rows_start_no_threads(tmp_path: pathlib.Path, finished_by: set[str]) -> None:
    table = table_of(tmp_path, {})
    with TableWrite(table, "user", threads=3) as writer:
        writer.write(rows_batch(table, ROWS))
        writer.prepare_commit(0)
    assert finished_by == {threading.current_thread().name}
