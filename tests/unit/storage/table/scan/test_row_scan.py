# SPDX-License-Identifier: Apache-2.0
"""`FileStoreTable.scan`: what is chosen, when it is read, and who can take it."""

import pathlib
import threading
import time

import duckdb
import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError, NotFoundError
from storage.table.branches import create_branch
from storage.table.read.read import read_ahead
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.table_kit import make_table, write

PARTITIONED = [("p", "STRING"), ("k", "INT"), ("v", "INT")]


@pytest.fixture
def table(tmp_path: pathlib.Path) -> FileStoreTable:
    """Two snapshots of three partitions, so several pieces."""
    made = make_table(tmp_path, columns=PARTITIONED, keys=["p", "k"], partitions=["p"])
    write(made, 1, [("+I", part, k, k) for part in "abc" for k in range(4)])
    create_tag(made, "first")
    write(made, 2, [("+U", "b", 1, 10), ("-D", "c", 3, 3)])
    return made


def test_filter_columns_snapshot(table):
    assert table.scan("p = 'b' and v > 2", ["v"]).to_arrow()["v"].to_pylist() == [10, 3]
    assert table.scan("p = 'b' and v > 2", ["v"], snapshot=1).to_arrow()["v"].to_pylist() == [3]
    assert table.scan(tag="first").to_arrow().num_rows == 12
    assert sum(batch.num_rows for batch in table.to_batches("v < 2", ["k"])) == 5


def test_all_readings_of_a_scan_see_the_same_state(table):
    scan = table.scan()
    first = scan.to_arrow()
    write(table, 3, [("+I", "d", 1, 1)])
    assert scan.to_arrow() == first
    assert pa.table(scan) == first
    assert scan.to_reader().read_all() == first
    assert table.scan().to_arrow().num_rows == first.num_rows + 1


def test_others_take_it_over_arrow(table):
    scan = table.scan(columns=["p", "v"])  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.sql("SELECT p, sum(v) AS total FROM scan GROUP BY p ORDER BY p").fetchall()
    assert found == [("a", 6), ("b", 15), ("c", 3)]


def test_changes_and_fallback_branches_come_in_batches_too(table):
    between = table.with_options({"incremental-between": "1,2"})
    assert [row for batch in between.to_batches() for row in batch.to_pylist()] == [
        {"p": "b", "k": 1, "v": 10}
    ]
    create_branch(table, "old", tag="first")
    write(table.at_branch("old"), 9, [("+I", "z", 1, 7)])
    mixed = table.with_options({"scan.fallback-branch": "old"})
    assert mixed.scan("p = 'z'").to_arrow().to_pylist() == [{"p": "z", "k": 1, "v": 7}]


def test_mistakes_are_told_at_once(table):
    with pytest.raises(InvalidRequestError, match="no such column"):
        table.scan(columns=["nothing"])
    with pytest.raises(InvalidRequestError):
        table.scan("v >")
    with pytest.raises(InvalidRequestError, match="one way"):
        table.scan(snapshot=1, tag="first")
    with pytest.raises(NotFoundError):
        table.scan(snapshot=99)


def test_reading_ahead_keeps_the_order_and_stays_bounded():
    ahead, lock = [0], threading.Lock()

    def source(number):
        def items():
            for item in range(20):
                with lock:
                    ahead[0] += 1
                yield number, item

        return items

    taken, most = [], 0
    for item in read_ahead([source(number) for number in range(6)], threads=2, waiting=3):
        time.sleep(0.001)
        taken.append(item)
        most = max(most, ahead[0] - len(taken))
    assert taken == [(number, item) for number in range(6) for item in range(20)]
    assert most <= 3 * 6 + 2


def test_whoever_stops_early_stops_the_readers():
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    reading = read_ahead([endless, endless], threads=2)
    assert next(reading) == 1
    reading.close()
    assert closed.is_set()


def test_a_failure_comes_at_its_place():
    def good():
        yield from "ab"

    def bad():
        yield "c"
        raise ValueError("torn")

    reading = read_ahead([good, bad, good], threads=3)
    assert [next(reading) for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="torn"):
        next(reading)


def _all_rows(found):
    return pa.Table.from_batches(list(found)) if not isinstance(found, pa.Table) else found


@pytest.mark.parametrize("read", ["to_arrow", "to_batches", "scan"])
def test_every_read_takes_its_arguments_in_one_order(tmp_path, read):
    table = make_table(tmp_path)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    write(table, 2, [("+I", 3, "c")])

    def ask(*args, **named):
        found = getattr(table, read)(*args, **named)
        found = found.to_arrow() if read == "scan" else found
        return _all_rows(found).to_pylist()

    assert ask("k > 1", ["v"]) == [{"v": "b"}, {"v": "c"}]
    assert ask(parse_predicate("k > 1"), ["v"], snapshot=1) == [{"v": "b"}]
    assert ask(filter="k = 1", columns=["k"], version="1") == [{"k": 1}]
    with pytest.raises(TypeError):
        ask("k > 1", ["v"], 1)
    with pytest.raises(InvalidRequestError, match="snapshot=1"):
        ask(1)
    with pytest.raises(InvalidRequestError, match="list of names"):
        ask("k > 1", "v")
