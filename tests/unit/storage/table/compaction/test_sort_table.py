# SPDX-License-Identifier: Apache-2.0
"""Rows of append tables are put in an order that lets filters skip files; none is lost."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError
from storage.format.metadata.snapshot import CommitKind
from storage.table.compaction import sort_table as sort_module
from storage.table.compaction.compact_table import CompactRequest
from storage.table.compaction.sort_table import SortCodes, SortOrder, sort_table
from storage.table.scan.predicate import parse_predicate
from storage.testing.invariants import check_table
from tests.table_kit import make_table, reopened, rows_of, write
from tests.unit.storage.newest_files import newest_entries

COLUMNS = (("p", "STRING"), ("x", "INT"), ("y", "INT"))
SMALL = {"bucket": "-1", "target-file-size": "1 kb", "write-buffer-size": "1 mb"}


def filled(tmp_path, rows=2000, **options):
    table = make_table(
        tmp_path, columns=COLUMNS, keys=(), partitions=("p",), options=SMALL | options
    )
    random = np.random.default_rng(1)
    for commit in range(4):
        values = random.integers(0, 1000, (rows // 4, 2)).tolist()
        write(table, commit, [("+I", "ab"[commit % 2], x, y) for x, y in values], compaction=False)
    write(table, 9, [("+I", "a", None, 5), ("+I", "a", 5, None)], compaction=False)
    return table


def x_in_order(table):
    snapshot = table.latest_snapshot()
    found = []
    for split in table.new_scan().plan(snapshot).splits:
        for batch in table.new_read().to_batches(split):
            found += [(row["p"], row["x"]) for row in batch.to_pylist()]
    return found


def test_rows_are_in_order_and_none_is_lost(tmp_path):
    table = filled(tmp_path)
    before = rows_of(table)
    report = sort_table(table, ["x", "y"])
    table = reopened(table)
    assert rows_of(table) == before
    assert (report.compacted, report.lost) == (2, 0)
    assert table.latest_snapshot().commit_kind is CommitKind.COMPACT
    rows = x_in_order(table)
    for partition in "ab":
        values = [-1 if x is None else x for p, x in rows if p == partition]
        assert values == sorted(values)
    check_table(table)


@pytest.mark.parametrize("order", list(SortOrder))
def test_a_part_at_a_time_gives_the_same_rows(tmp_path, monkeypatch, order):
    monkeypatch.setattr(sort_module, "_IN_MEMORY", 4_000)
    table = filled(tmp_path)
    before = rows_of(table)
    sort_table(table, ["x", "y"], order)
    table = reopened(table)
    assert rows_of(table) == before
    if order is SortOrder.ORDER:
        values = [-1 if x is None else x for p, x in x_in_order(table) if p == "a"]
        assert values == sorted(values)
    check_table(table)


@pytest.mark.parametrize("order", [SortOrder.ZORDER, SortOrder.HILBERT])
def test_filters_on_either_column_skip_files(tmp_path, order):
    table = filled(tmp_path, rows=20_000, **{"target-file-row-num": "200"})
    sort_table(table, ["x", "y"], order)
    table = reopened(table)
    whole = len(newest_entries(table))
    for text in ("x < 50", "y < 50"):
        scan = table.new_scan().with_filter(parse_predicate(text))
        left = sum(len(split.files) for split in scan.plan().splits)
        assert left < 0.45 * whole, (text, left, whole)


def test_one_partition(tmp_path):
    table = filled(tmp_path)
    report = sort_table(table, ["x"], request=CompactRequest(partitions=({"p": "b"},)))
    assert report.planned == report.compacted == 1


def test_deleted_rows_stay_deleted(tmp_path):
    table = filled(tmp_path, **{"deletion-vectors.enabled": "true"})
    table.delete_where(parse_predicate("x > 500"), "someone")
    before = rows_of(table)
    sort_table(table, ["y"])
    table = reopened(table)
    assert rows_of(table) == before
    check_table(table)


def test_a_lost_race_is_tried_again(tmp_path, monkeypatch):
    table = filled(tmp_path, **{"deletion-vectors.enabled": "true"})
    sorted_ = sort_module._sorted
    races = [1]

    def late(*arguments):
        message = sorted_(*arguments)
        if races.pop() if races else 0:
            table.delete_where(parse_predicate("x < 100"), "someone")
        return message

    monkeypatch.setattr(sort_module, "_sorted", late)
    report = sort_table(table, ["x"])
    assert (report.dropped, report.compacted, report.lost) == (1, 2, 0)
    assert min(row[1] or 999 for row in rows_of(reopened(table))) >= 100
    check_table(reopened(table))


def test_rows_that_come_meanwhile_stay(tmp_path, monkeypatch):
    table = filled(tmp_path)
    before = rows_of(table)
    sorted_ = sort_module._sorted
    numbers = itertools.count(100)

    def late(*arguments):
        message = sorted_(*arguments)
        write(reopened(table), next(numbers), [("+I", "a", 1, 1)], compaction=False)
        return message

    monkeypatch.setattr(sort_module, "_sorted", late)
    assert sort_table(table, ["x"]).dropped == 0
    assert len(rows_of(reopened(table))) == len(before) + 2


@pytest.mark.parametrize("order", list(SortOrder))
@pytest.mark.parametrize("producer", ["none", "lookup", "full-compaction"])
def test_dynamic_buckets_get_ranges_of_rows(tmp_path, order, producer):
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "100", "write-buffer-size": "1 mb"}
    table = make_table(
        tmp_path,
        columns=(("p", "STRING"), ("k", "INT"), ("x", "INT")),
        keys=("p", "k"),
        partitions=("p",),
        options={**options, "changelog-producer": producer},
    )
    random = np.random.default_rng(2)
    rows = [("+I", p, k, int(x)) for p in "ab" for k, x in enumerate(random.permutation(400))]
    for number in range(4):
        write(table, number, rows[number::4])
    write(table, 9, [("-D", "a", 0, 0), ("+U", "a", 1, 1000)])
    before = rows_of(table)
    report = sort_table(table, ["x"], order, CompactRequest(partitions=({"p": "a"},)))
    assert (report.planned, report.compacted, report.lost) == (1, 1, 0)
    table = reopened(table)
    assert rows_of(table) == before
    assert table.latest_snapshot().commit_kind is CommitKind.OVERWRITE
    ranges = {}
    for split in table.new_scan().plan(table.latest_snapshot()).splits:
        for batch in table.new_read().to_batches(split):
            x = batch.column("x").to_numpy()
            ranges.setdefault((split.partition_path, split.bucket), []).extend(x.tolist())
    sorted_ = sorted((min(x), max(x)) for (p, _), x in ranges.items() if p == "p=a")
    assert len(sorted_) == 4
    assert all(left[1] < right[0] for left, right in itertools.pairwise(sorted_))
    assert any(min(x) < 50 and max(x) > 350 for (p, _), x in ranges.items() if p == "p=b")
    write(table, 10, [("+U", "a", k, -1) for k in range(5)])
    assert len(rows_of(table, filter="p = 'a' and x = -1")) == 5
    assert len(rows_of(table)) == len(before) + 1
    check_table(table, rows=True)


def test_a_writer_that_comes_between_has_its_rows_sorted_too(tmp_path, monkeypatch):
    table = make_table(tmp_path, options={"bucket": "-1"})
    write(table, 1, [("+I", k, str(9 - k)) for k in range(10)])
    in_order, numbers = sort_module._in_order, itertools.count(50)

    def late(*arguments):
        number = next(numbers)
        if number < 52:
            write(reopened(table), number, [("+I", number, "a")])
        return in_order(*arguments)

    monkeypatch.setattr(sort_module, "_in_order", late)
    assert sort_table(table, ["v"]).compacted == 1
    assert len(rows_of(reopened(table))) == 12
    check_table(table, rows=True)


def test_tables_with_keys_or_buckets_are_refused(tmp_path):
    for number, options in enumerate(({"keys": ("k",)}, {"keys": ()})):
        bucket = {"bucket": "2", "bucket-key": "k"}
        table = make_table(tmp_path / str(number), options=bucket, **options)
        with pytest.raises(InvalidRequestError, match="can be sorted"):
            sort_table(table, ["k"])
    with pytest.raises(InvalidRequestError, match="no such column"):
        sort_table(filled(tmp_path / "third", rows=4), ["z"])


def test_hilbert_neighbours_are_neighbours():
    x, y = np.meshgrid(np.arange(16), np.arange(16))
    columns = [pa.array(x.ravel()), pa.array(y.ravel())]
    codes = SortCodes(SortOrder.HILBERT, columns).of(columns)
    assert len(np.unique(codes)) == 256
    path = np.argsort(codes)
    steps = np.abs(np.diff(x.ravel()[path])) + np.abs(np.diff(y.ravel()[path]))
    assert steps.max() == 1


def test_bits_take_turns():
    x, y = np.meshgrid(np.arange(4), np.arange(4))
    columns = [pa.array(x.ravel()), pa.array(y.ravel())]
    path = np.argsort(SortCodes(SortOrder.ZORDER, columns).of(columns))
    found = list(zip(x.ravel()[path].tolist(), y.ravel()[path].tolist(), strict=True))
    assert found[:8] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
