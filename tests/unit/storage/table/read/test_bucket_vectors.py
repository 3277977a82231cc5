# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors of a bucket that are changed again and again."""

import pathlib

import numpy as np
import pytest

from storage.format.metadata.file_meta import EMPTY_ROW
from storage.table.read.deletion_vectors import BucketVectors
from storage.table.table import FileStoreTable
from tests.table_kit import index_files_on_disk, make_table


@pytest.fixture
def table(tmp_path: pathlib.Path) -> FileStoreTable:
    return make_table(tmp_path, options={"deletion-vectors.enabled": "true"})


def _vectors(table: FileStoreTable, files=()) -> BucketVectors:
    return BucketVectors(table, EMPTY_ROW, 0, files)


def _rows(vectors: BucketVectors, name: str) -> list[int] | None:
    found = vectors.vector_of(name)
    return None if found is None else list(found)


def test_each_call_tells_what_changed_since_the_last(table: FileStoreTable) -> None:
    vectors = _vectors(table)
    assert vectors.changes() == ((), ())
    assert vectors.mark("a", np.array([3, 1])) == 2
    (first,), replaced = vectors.changes()
    assert replaced == ()
    assert vectors.changes() == ((), ())
    assert vectors.mark("a", [1]) == 0
    assert vectors.changes() == ((), ())
    assert vectors.mark("b", [0]) == 1
    (second,), replaced = vectors.changes()
    assert replaced == (first,)
    again = _vectors(table, [second])
    assert (_rows(again, "a"), _rows(again, "b"), _rows(again, "c")) == ([1, 3], [0], None)
    assert (_rows(vectors, "a"), _rows(vectors, "b")) == ([1, 3], [0])


def test_the_index_files_of_a_snapshot_are_gone_on_from(table: FileStoreTable) -> None:
    vectors = _vectors(table)
    vectors.mark("a", [1])
    vectors.mark("b", [2])
    (live,), _ = vectors.changes()
    vectors = _vectors(table, [live])
    vectors.drop("a")
    (new,), replaced = vectors.changes()
    assert replaced == (live,)
    assert [one.data_file_name for one in new.deletion_vectors or ()] == ["b"]
    vectors.drop("b")
    (empty,), replaced = vectors.changes()
    assert (replaced, empty.row_count) == ((new,), 0)
    vectors.drop("b")
    assert vectors.changes() == ((), ())


def test_what_comes_and_goes_between_two_calls_is_no_change(table: FileStoreTable) -> None:
    vectors = _vectors(table)
    vectors.mark("a", [1])
    vectors.drop("a")
    assert vectors.vector_of("a") is None
    assert vectors.changes() == ((), ())
    assert index_files_on_disk(table) == set()
