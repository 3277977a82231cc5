# SPDX-License-Identifier: Apache-2.0
"""Tables that pass on their input as changelog."""

import pathlib

import pytest

from tests.changelog_kit import changes_of
from tests.table_kit import data_files, make_table, prepared, rows_batch, rows_of, write

_INPUT = {"changelog-producer": "input"}


def test_every_row_is_told_by_key_and_in_order(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=_INPUT)
    rows = [("+I", 2, "a"), ("-U", 1, "x"), ("+U", 1, "y"), ("-D", 3, "z"), ("+I", 2, "b")]
    result = write(table, 1, rows)
    assert result.append_snapshot_id == 1
    assert changes_of(table, 1) == [
        ("-U", 1, "x"),
        ("+U", 1, "y"),
        ("+I", 2, "a"),
        ("+I", 2, "b"),
        ("-D", 3, "z"),
    ]
    assert table.snapshots.read(1).changelog_record_count == 5
    assert rows_of(table) == [(1, "y"), (2, "b")]


def test_rows_of_a_key_follow_the_sequence_field(tmp_path: pathlib.Path) -> None:
    columns = (("k", "INT"), ("s", "INT"))
    table = make_table(tmp_path, columns=columns, options={**_INPUT, "sequence.field": "s"})
    write(table, 1, [("+I", 1, 5), ("+I", 1, 3), ("+I", 1, 4)])
    assert [row[2] for row in changes_of(table, 1)] == [3, 4, 5]


def test_kinds_that_are_dropped_are_not_told(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**_INPUT, "ignore-delete": "true"})
    write(table, 1, [("+I", 1, "a"), ("-D", 1, "a"), ("-U", 2, "b")])
    assert changes_of(table, 1) == [("+I", 1, "a")]


def test_a_changelog_that_merges_to_nothing_is_committed(tmp_path: pathlib.Path) -> None:
    columns = (("k", "INT"), ("v", "INT"))
    options = {**_INPUT, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = make_table(tmp_path, columns=columns, options=options)
    write(table, 1, [("+I", 1, 4), ("+I", 1, 5)])
    assert changes_of(table, 1) == [("+I", 1, 4), ("+I", 1, 5)]


def test_compactions_tell_nothing(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=_INPUT)
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+U", 1, "b")], full=True)
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.commit_kind.value == "COMPACT"
    assert changes_of(table, newest.id) == []


def test_an_overwrite_tells_nothing_and_leaves_no_file(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=_INPUT)
    write(table, 1, [("+I", 1, "a")])
    before = data_files(table)
    messages = prepared(table, [("+I", 2, "b")], overwrite=True)
    table.new_commit("user").overwrite(messages, 2)
    assert rows_of(table) == [(2, "b")]
    assert changes_of(table, 2) == []
    assert [name for name in data_files(table) - before if name.startswith("changelog-")] == []


def test_files_have_the_format_of_changelog_files(tmp_path: pathlib.Path) -> None:
    options = {
        **_INPUT,
        "changelog-file.format": "avro",
        "changelog-file.prefix": "told-",
        "changelog-file.compression": "zstd",
    }
    table = make_table(tmp_path, options=options)
    write(table, 1, [("+I", 1, "a"), ("-D", 1, "a")])
    (told,) = [name for name in data_files(table) if name.startswith("told-")]
    assert told.endswith(".avro")
    assert [row[0] for row in changes_of(table, 1)] == ["+I", "-D"]


@pytest.mark.parametrize("full", [False, True])
def test_a_writer_that_is_left_removes_its_changelog(tmp_path: pathlib.Path, full: bool) -> None:
    table = make_table(tmp_path, options=_INPUT)
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", 1, "a")]))
        writer.compact(full=full)
        assert len(data_files(table)) == 2
    assert data_files(table) == set()
