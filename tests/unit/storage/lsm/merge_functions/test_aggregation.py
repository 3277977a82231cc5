# SPDX-License-Identifier: Apache-2.0
"""The aggregation and first-row merge engines: examples of SEMANTICS.md §B.3 and §B.4."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema_changes import SetOption
from storage.lsm.merge_functions.segments import FirstRow
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog
from tests.table_kit import make_table, reopened, rows_of, write

COLUMNS = (("k", "INT"), ("a", "INT"), ("b", "INT"), ("c", "STRING"))


def aggregated(root: pathlib.Path, options: dict[str, str] | None = None) -> FileStoreTable:
    return make_table(
        root, columns=COLUMNS, options={"merge-engine": "aggregation", **(options or {})}
    )


def test_functions_are_found_in_order(tmp_path: pathlib.Path) -> None:
    options = {"fields.a.aggregate-function": "sum", "fields.default-aggregate-function": "max"}
    table = aggregated(tmp_path, options)
    write(table, 1, [("+I", 1, 1, 9, "b")], compaction=False)
    write(table, 2, [("+I", 1, 2, 3, "a")], compaction=False)
    assert rows_of(table) == [(1, 3, 9, "b")]
    other = aggregated(tmp_path / "2", {"fields.a.aggregate-function": "sum"})
    write(other, 1, [("+I", 1, 1, 9, "b"), ("+I", 1, 2, None, None)])
    assert rows_of(other) == [(1, 3, 9, "b")]


def test_a_sequence_column_ends_as_the_largest(tmp_path: pathlib.Path) -> None:
    options = {
        "sequence.field": "b",
        "fields.a.aggregate-function": "sum",
        "fields.default-aggregate-function": "last_value",
    }
    table = aggregated(tmp_path, options)
    write(table, 1, [("+I", 1, 1, 9, "new"), ("+I", 1, 2, 3, "old")])
    assert rows_of(table) == [(1, 3, 9, "new")]


def test_remove_record_on_delete(tmp_path: pathlib.Path) -> None:
    options = {
        "aggregation.remove-record-on-delete": "true",
        "fields.a.aggregate-function": "sum",
        "fields.b.aggregate-function": "first_value",
    }
    table = aggregated(tmp_path, options)
    write(table, 1, [("+I", 1, 5, 1, "x"), ("-D", 1, 4, 2, "x")])
    assert rows_of(table) == []
    write(table, 2, [("+I", 2, 5, 1, "x"), ("-D", 2, 4, 2, "y"), ("+I", 2, 7, 3, None)])
    # the deleted values stay where the rows meet in one merge
    assert rows_of(table) == [(2, 11, 2, "y")]


def test_retractions_that_are_not_possible(tmp_path: pathlib.Path) -> None:
    table = aggregated(tmp_path, {"fields.a.aggregate-function": "max"})
    write(table, 1, [("-D", 1, 5, 1, "x")], compaction=False)
    message = r"'max' does not support retraction field=`a` key=`k=1`.*ignore-retract"
    with pytest.raises(InvalidRequestError, match=message):
        write(table, 2, [("+I", 1, 5, 1, "x"), ("-U", 1, 5, 1, "x")])


def test_ignored_retractions(tmp_path: pathlib.Path) -> None:
    options = {"fields.a.aggregate-function": "max", "fields.a.ignore-retract": "true"}
    table = aggregated(tmp_path, options)
    write(table, 1, [("+I", 1, 5, 1, "x"), ("-U", 1, 9, 1, "x")])
    assert rows_of(table) == [(1, 5, None, None)]


def test_count_is_refused_with_what_to_use(tmp_path: pathlib.Path) -> None:
    """Paimon has it no more, and where it had it, it gave other numbers after a compaction."""
    table = aggregated(tmp_path, {"fields.a.aggregate-function": "sum"})
    for change in (
        lambda: aggregated(tmp_path / "other", {"fields.a.aggregate-function": "count"}),
        lambda: table.alter([SetOption("fields.a.aggregate-function", "count")]),
        lambda: table.alter([SetOption("fields.default-aggregate-function", "count")]),
    ):
        with pytest.raises(InvalidOptionError, match="unsupported aggregation: count") as caught:
            change()
        assert "`sum`" in caught.value.hint


def test_a_table_that_counted_is_read_as_the_sum_that_it_holds(tmp_path: pathlib.Path) -> None:
    table = aggregated(tmp_path, {"fields.a.aggregate-function": "sum"})
    write(table, 1, [("+I", 1, 1, 1, "x")], compaction=False)
    write(table, 2, [("+I", 1, 1, 1, "x")], compaction=False)
    newest = table.schema
    options = {**newest.options, "fields.a.aggregate-function": "count"}
    assert table.schemas.publish(dataclasses.replace(newest, id=1, options=options))
    counted = reopened(table)
    with pytest.raises(InvalidOptionError, match="count"):
        rows_of(counted)
    repaired = counted.alter([SetOption("fields.a.aggregate-function", "sum")])
    assert rows_of(repaired) == [(1, 2, 1, "x")]


def first_row_batch(*rows: tuple[int, int, str]) -> tuple[pa.RecordBatch, np.ndarray[Any, Any]]:
    keys = np.array([row[0] for row in rows])
    batch = pa.RecordBatch.from_pydict(
        {
            "_VALUE_KIND": pa.array([row[1] for row in rows], pa.int8()),
            "k": pa.array(keys),
            "v": [row[2] for row in rows],
        }
    )
    return batch, np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])


def test_the_first_row_stays_with_its_kind() -> None:
    batch, starts = first_row_batch((1, 2, "a"), (1, 0, "b"), (2, 3, "c"), (3, 0, "d"), (3, 0, "e"))
    found = FirstRow(("k",)).reduce(batch, starts)
    assert found["v"].to_pylist() == ["a", "c", "d"]
    assert found["_VALUE_KIND"].to_pylist() == [2, 3, 0]


def test_first_rows_cannot_be_taken_back() -> None:
    batch, starts = first_row_batch((1, 0, "a"), (2, 3, "b"), (2, 0, "c"))
    with pytest.raises(InvalidRequestError, match=r"DELETE/UPDATE_BEFORE records key=`k=2`"):
        FirstRow(("k",)).reduce(batch, starts)
    found = FirstRow(("k",), ignore_delete=True).reduce(batch, starts)
    assert found["v"].to_pylist() == ["a", "c"]


def test_a_deleted_row_is_kept_as_it_came(tmp_path: pathlib.Path) -> None:
    """A -D that removes the record is no input of a function, which might pass over a blank."""
    remove = {"aggregation.remove-record-on-delete": "true"}
    table = aggregated(tmp_path, {"fields.c.aggregate-function": "listagg", **remove})
    write(table, 1, [("+I", 1, 1, 1, "x"), ("-D", 1, 2, 2, " ")], compaction=False)
    (row,) = read_snapshot_changelog(table, 1).to_pylist()
    assert row == {"_VALUE_KIND": 3, "k": 1, "a": 2, "b": 2, "c": " "}


@pytest.mark.parametrize("function", ["last_non_null_value", "sum", "last_value"])
def test_a_column_of_the_partition_is_never_taken_back(
    tmp_path: pathlib.Path, function: str
) -> None:
    """Where the primary key lacks it; a null there would contradict the directory of the row."""
    table = make_table(
        tmp_path,
        columns=(("p", "INT"), ("k", "INT"), ("v", "INT")),
        partitions=("p",),
        options={
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.p.aggregate-function": function,
        },
    )
    write(table, 1, [("+I", 1, 1, 1), ("+I", 1, 1, 2), ("-U", 1, 1, 1)])
    write(table, 2, [("-D", 1, 1, 4)])
    assert rows_of(table) == [(1, 1, -2)]
