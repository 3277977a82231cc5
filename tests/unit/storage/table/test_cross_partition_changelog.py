# SPDX-License-Identifier: Apache-2.0
"""Keys that move between partitions: what the changelog of each engine and producer says."""

import pathlib
from typing import Any

import pytest

from storage.table.table import FileStoreTable
from tests.changelog_kit import changelog_of_commit
from tests.table_kit import make_table, reopened, rows_batch, rows_of, write

COLUMNS = (("p", "INT"), ("k", "INT"), ("v", "INT"))
DEDUPLICATE: dict[str, str] = {}
PARTIAL = {"merge-engine": "partial-update"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
FIRST = {"merge-engine": "first-row"}
ROWS = (
    [("+I", 1, 1, 1), ("+I", 2, 2, 2)],
    [("+I", 2, 1, 10), ("+I", 2, 2, 20), ("+I", 3, 3, 30)],
)


def table_of(warehouse: pathlib.Path, options: dict[str, str]) -> FileStoreTable:
    return make_table(
        warehouse,
        columns=COLUMNS,
        keys=("k",),
        partitions=("p",),
        options={"bucket": "-1", **options},
    )


def in_order(changes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(changes, key=lambda change: (change[2], change[1]))


EXPECTED = {
    "deduplicate": (
        DEDUPLICATE,
        [("-D", 1, 1, 1), ("+I", 2, 1, 10), ("-U", 2, 2, 2), ("+U", 2, 2, 20), ("+I", 3, 3, 30)],
        [(2, 1, 10), (2, 2, 20), (3, 3, 30)],
    ),
    "partial-update": (
        PARTIAL,
        [("-U", 1, 1, 1), ("+U", 1, 1, 10), ("-U", 2, 2, 2), ("+U", 2, 2, 20), ("+I", 3, 3, 30)],
        [(1, 1, 10), (2, 2, 20), (3, 3, 30)],
    ),
    "aggregation": (
        SUM,
        [("-U", 1, 1, 1), ("+U", 1, 1, 11), ("-U", 2, 2, 2), ("+U", 2, 2, 22), ("+I", 3, 3, 30)],
        [(1, 1, 11), (2, 2, 22), (3, 3, 30)],
    ),
    "first-row": (FIRST, [("+I", 3, 3, 30)], [(1, 1, 1), (2, 2, 2), (3, 3, 30)]),
}


@pytest.mark.parametrize(
    ("engine", "vectors"),
    [
        (name, marks)
        for name in EXPECTED
        for marks in (False, True)
        if name != "first-row" or not marks
    ],
)
def test_lookups_tell_where_a_key_went(tmp_path: pathlib.Path, engine: str, vectors: bool) -> None:
    options, changes, rows = EXPECTED[engine]
    if vectors:
        options = {**options, "deletion-vectors.enabled": "true"}
    table = table_of(tmp_path, {**options, "changelog-producer": "lookup"})
    write(table, 1, ROWS[0], stream=True)
    assert in_order(changelog_of_commit(table, 1)) == ROWS[0]
    write(reopened(table), 2, ROWS[1], stream=True)
    assert in_order(changelog_of_commit(table, 2)) == changes
    assert rows_of(table) == rows


def test_the_input_is_told_as_it_was_placed(tmp_path: pathlib.Path) -> None:
    table = table_of(tmp_path, {"changelog-producer": "input"})
    write(table, 1, ROWS[0])
    write(table, 2, ROWS[1])
    assert in_order(changelog_of_commit(table, 2)) == [
        ("-D", 1, 1, 10),
        ("+I", 2, 1, 10),
        ("+I", 2, 2, 20),
        ("+I", 3, 3, 30),
    ]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_key_may_wander_within_one_commit(tmp_path: pathlib.Path, producer: str) -> None:
    table = table_of(tmp_path, {"changelog-producer": producer})
    state: dict[tuple[int, int], int] = {}
    with table.new_write("user") as writer:
        for number, path in enumerate(([1], [2, 3], [1, 2, 1], [1, 1], [3]), 1):
            for step, partition in enumerate(path):
                writer.write(rows_batch(table, [("+I", partition, 7, 10 * number + step)]))
            table.new_commit("user").commit(writer.prepare_commit(number), number)
            for kind, partition, key, value in changelog_of_commit(table, number):
                if kind in ("-U", "-D"):
                    assert state.pop((partition, key)) == value
                else:
                    state[partition, key] = value
            assert state == {(path[-1], 7): 10 * number + len(path) - 1}
            assert rows_of(table) == [(path[-1], 7, 10 * number + len(path) - 1)]


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, FIRST])
def test_keys_that_batch_reads_do_not_see_are_known(
    tmp_path: pathlib.Path, options: dict[str, str]
) -> None:
    table = table_of(tmp_path, options)
    write(table, 1, [("+I", 1, 1, 1)], compaction=False)
    assert rows_of(table) == []
    write(reopened(table), 2, [("+I", 2, 1, 2)], compaction=False)
    with reopened(table).new_write("compactor") as writer:
        writer.compact()
        table.new_commit("compactor").commit(writer.prepare_commit(), 1)
    assert rows_of(table) == ([(1, 1, 1)] if options is FIRST else [(2, 1, 2)])
