# SPDX-License-Identifier: Apache-2.0
"""A table gets another number of buckets; its rows stay, beside writers too."""

import contextlib
import itertools

import pytest

from storage.errors import CommitConflictError, InvalidRequestError
from storage.format.metadata.snapshot import CommitKind
from storage.io.local import LocalFileIO
from storage.table.compaction import rescale as rescale_module
from storage.table.compaction.rescale import rescale, rescaled_partitions
from storage.testing.invariants import check_table
from tests.changelog_kit import read_snapshot_changelog
from tests.faulty_io import IN_TURN, Fault, FaultyFileIO, SimulatedCrash
from tests.table_kit import data_files, make_table, named_files, prepared, reopened, rows_of, write
from tests.unit.storage.newest_files import newest_entries

COLUMNS = (("p", "STRING"), ("k", "INT"), ("v", "STRING"))
ROWS = [("+I", p, k, f"{p}{k}") for p in "ab" for k in range(40)]


def partitioned(tmp_path, **options):
    table = make_table(
        tmp_path, columns=COLUMNS, keys=("p", "k"), partitions=("p",), options=options
    )
    write(table, 1, ROWS)
    write(table, 2, [("+U", "a", 0, "new"), ("-D", "b", 0, "")])
    return table


def expected():
    rows = [row[1:] for row in ROWS if row[1:3] != ("b", 0)]
    return sorted((row if row[:2] != ("a", 0) else ("a", 0, "new") for row in rows), key=repr)


def buckets_of(table):
    return {(one.total_buckets, one.bucket) for one in newest_entries(table)}


def test_rows_find_their_new_buckets(tmp_path):
    table = partitioned(tmp_path)
    told = rescaled_partitions(table, 4)
    assert [(one.files.name, one.before) for one in told] == [("p=a", 1), ("p=b", 1)]
    assert rescale(table, 4) == told
    table = reopened(table)
    assert rows_of(table) == expected()
    assert buckets_of(table) == {(4, number) for number in range(4)}
    assert table.latest_snapshot().commit_kind is CommitKind.OVERWRITE
    check_table(table)
    write(table, 3, [("+U", "a", 1, "later"), ("-D", "a", 2, "")])
    assert ("a", 1, "later") in rows_of(table)
    assert len(rows_of(table)) == len(expected()) - 1
    assert rescale(reopened(table), 4) == []


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true"},
        {"changelog-producer": "lookup"},
        {"write-only": "true"},
        {"merge-engine": "first-row"},
    ],
)
def test_tables_of_every_kind(tmp_path, options):
    table = make_table(
        tmp_path, columns=COLUMNS, keys=("p", "k"), partitions=("p",), options=options
    )
    write(table, 1, ROWS)
    before = rows_of(table)
    rescale(reopened(table), 3)
    table = reopened(table)
    if "write-only" not in options:
        assert len(before) == len(ROWS)
    assert rows_of(table) == before
    check_table(table)


@pytest.mark.parametrize(
    "options",
    [
        {"deletion-vectors.enabled": "true"},
        {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"merge-engine": "first-row"},
    ],
)
def test_rows_that_no_compaction_has_seen_are_kept_and_told(tmp_path, options):
    table = make_table(
        tmp_path, columns=COLUMNS, keys=("p", "k"), partitions=("p",), options=options
    )
    write(table, 1, [("+I", "a", 1, "old")], full=True)
    write(table, 2, [("+I", "a", 2, "new"), ("+I", "b", 3, "new")], compaction=False)
    before = table.latest_snapshot().id
    rescale(reopened(table), 3)
    table = reopened(table)
    assert rows_of(table) == [("a", 1, "old"), ("a", 2, "new"), ("b", 3, "new")]
    if "changelog-producer" in options:
        ids = range(before, table.latest_snapshot().id + 1)
        told = [read_snapshot_changelog(table, one).to_pylist() for one in ids]
        assert sorted(row["k"] for rows in told for row in rows) == [2, 3]


def test_an_append_table_with_buckets(tmp_path):
    options = {"bucket-key": "k"}
    table = make_table(tmp_path, columns=COLUMNS, keys=(), options=options)
    write(table, 1, ROWS)
    rescale(table, 5)
    table = reopened(table)
    assert rows_of(table) == sorted((row[1:] for row in ROWS), key=repr)
    assert len(buckets_of(table)) == 5


def test_one_partition_by_itself(tmp_path):
    table = partitioned(tmp_path)
    rescale(table, 4, [{"p": "a"}])
    table = reopened(table)
    assert rows_of(table) == expected()
    write(table, 3, [("+I", "a", 100, "x")])
    with pytest.raises(InvalidRequestError, match="new bucket num 4"):
        write(table, 4, [("+I", "b", 100, "x")])
    rescale(table, 4)
    write(reopened(table), 4, [("+I", "b", 100, "x")])
    assert len(rows_of(reopened(table))) == len(expected()) + 2


def test_a_writer_that_does_not_know_is_stopped(tmp_path):
    table = partitioned(tmp_path)
    stale = reopened(table)
    messages = prepared(stale, [("+I", "a", 200, "late")])
    rescale(table, 4)
    with pytest.raises(CommitConflictError, match="number of buckets"):
        stale.new_commit("stale").commit(messages, 1)
    assert rows_of(reopened(table)) == expected()


def test_a_stale_writer_may_write_what_was_not_rescaled(tmp_path):
    table = partitioned(tmp_path)
    stale = reopened(table)
    messages = prepared(stale, [("+I", "b", 200, "late")])
    rescale(table, 4, [{"p": "a"}])
    stale.new_commit("stale").commit(messages, 1)
    assert ("b", 200, "late") in rows_of(reopened(table))


def test_rows_that_come_meanwhile_are_not_lost(tmp_path, monkeypatch):
    table = partitioned(tmp_path)
    other = reopened(table)
    messages = prepared(other, [("+I", "a", 300, "meanwhile")])
    settled = rescale_module._with_compaction
    told = []

    def late(core, message):
        if messages:  # commits when the first partition has been read and written
            commit = other.new_commit("other")
            commit.commit([messages.pop()], 1)
        return settled(core, message)

    monkeypatch.setattr(rescale_module, "_with_compaction", late)
    # the other one commits with the old number of buckets, before the rescale does
    rescale(table, 4, on_progress=told.append)
    table = reopened(table)
    assert rows_of(table) == sorted([*expected(), ("a", 300, "meanwhile")], key=repr)
    assert told[-1].retries == 1
    check_table(table)


def test_a_partition_that_changes_all_the_time_is_given_up(tmp_path, monkeypatch):
    table = partitioned(tmp_path)
    settled = rescale_module._with_compaction
    numbers = itertools.count(10)

    def late(core, message):
        write(table, next(numbers), [("+I", "a", 7, "x")], compaction=False)
        return settled(core, message)

    monkeypatch.setattr(rescale_module, "_with_compaction", late)
    with pytest.raises(CommitConflictError, match="changed the partition during every attempt"):
        rescale(reopened(table), 4)
    assert data_files(table) == named_files(table)[0]
    assert len(rows_of(reopened(table))) == len(expected())


def test_what_has_no_fixed_buckets_is_refused(tmp_path):
    table = make_table(tmp_path, options={"bucket": "-1"})
    with pytest.raises(InvalidRequestError, match="fixed number"):
        rescale(table, 4)


def test_zero_buckets_are_refused(tmp_path):
    with pytest.raises(InvalidRequestError, match="at least one"):
        rescale(make_table(tmp_path), 0)


@pytest.mark.parametrize("modes", IN_TURN)
def test_killed_anywhere_it_is_finished_by_the_next(tmp_path, modes):
    counting = FaultyFileIO(LocalFileIO(durable=False))
    table = partitioned(tmp_path / "whole")
    rescale(reopened(table, file_io=counting), 3)
    steps = range(1, len(counting.operations), 8)
    for step in steps:
        table = partitioned(tmp_path / f"{step}")
        faulty = FaultyFileIO(LocalFileIO(durable=False), Fault(step, modes[step % len(modes)]))
        with contextlib.suppress(SimulatedCrash):
            rescale(reopened(table, file_io=faulty), 3)
        assert rows_of(reopened(table)) == expected()
        rescale(reopened(table), 3)
        table = reopened(table)
        assert rows_of(table) == expected()
        assert {total for total, _ in buckets_of(table)} == {3}
        check_table(table)
