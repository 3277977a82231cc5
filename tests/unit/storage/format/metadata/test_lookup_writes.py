# SPDX-License-Identifier: Apache-2.0
"""Commits of tables whose compaction looks up: both snapshots, their changelog and vectors."""

import hashlib
import pathlib
from collections import Counter
from typing import Any

import pytest

from storage.format.metadata.file_meta import EMPTY_ROW
from storage.format.metadata.snapshot import CommitKind
from storage.table.commit.live_files import index_entries
from storage.table.table import FileStoreTable
from storage.table.write.write import buckets_due
from tests.changelog_kit import changelog_of_commit
from tests.table_kit import (
    data_files,
    index_files_named,
    index_files_on_disk,
    make_table,
    named_files,
    prepared,
    reopened,
    rows_batch,
    rows_of,
    write,
)
from tests.unit.storage.newest_files import newest_entries

LOOKUP = {"changelog-producer": "lookup"}
VECTORS = {"deletion-vectors.enabled": "true"}
ENGINES = {
    "lookup": LOOKUP,
    "vectors": VECTORS,
    "both": {**LOOKUP, **VECTORS},
    "forced": {"force-lookup": "true"},
}


BASE = [("+I", key, f"{hashlib.sha256(b'%d' % key).hexdigest()}") for key in range(100, 800)]
"""So many rows that a few more do not make it worth merging them with these."""
BASE_ROWS = sorted((row[1:] for row in BASE), key=repr)


def vectors(table: FileStoreTable) -> int:
    """Rows that deletion vectors mark."""
    return sum(
        vector.cardinality or 0
        for entry in index_entries(table, table.latest_snapshot())
        for vector in entry.file.deletion_vectors or ()
    )


def levels(table: FileStoreTable) -> Counter[int]:
    return Counter(entry.file.level for entry in newest_entries(table))


def nothing_is_lost_or_left(table: FileStoreTable) -> None:
    """Every file on disk is named by a snapshot, and the other way round."""
    data, _ = named_files(table)
    on_disk = {name for name in data_files(table) if not name.startswith("changelog-")}
    assert on_disk == data
    assert index_files_on_disk(table) == index_files_named(table)


@pytest.mark.parametrize("options", ENGINES.values(), ids=ENGINES)
def test_a_commit_appends_and_compacts(tmp_path: pathlib.Path, options: dict[str, str]) -> None:
    table = make_table(tmp_path, options=options)
    first = write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")], stream=True)
    assert (first.append_snapshot_id, first.compact_snapshot_id) == (1, 2)
    second = write(reopened(table), 2, [("+U", 1, "c"), ("-D", 2, "b")], stream=True)
    assert (second.append_snapshot_id, second.compact_snapshot_id) == (3, 4)
    assert levels(table)[0] == 0
    assert rows_of(table) == [(1, "c")]
    changes = changelog_of_commit(table, 2)
    if "changelog-producer" in options:
        assert changelog_of_commit(table, 1) == [("+I", 1, "a"), ("+I", 2, "b")]
        assert changes == [("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, "b")]
    else:
        assert changes == []
    nothing_is_lost_or_left(table)


def test_rows_of_one_commit_are_told_once(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, "write-buffer-size": "1 b"})
    with table.new_write("user") as writer:  # every batch is flushed by itself
        for value in "abc":
            writer.write(rows_batch(table, [("+I", 1, value)]))
        messages = writer.prepare_commit(1)
    table.new_commit("user").commit(messages, 1)
    assert changelog_of_commit(table, 1) == [("+I", 1, "c")]
    nothing_is_lost_or_left(table)


def test_a_long_job_tells_every_change_once(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, **VECTORS})
    write(table, 0, BASE, full=True)
    state: dict[int, str] = dict(BASE_ROWS)
    for number in range(1, 25):
        rows: list[tuple[Any, ...]] = [
            ("+I", (number * step) % 70 * 3, f"v{number}-{step}") for step in (1, 2, 50)
        ]
        rows = list({row[1]: row for row in rows}.values())
        if number % 5 == 0:
            rows.append(("-D", 100 + number, ""))
        write(reopened(table), number, rows, stream=True)
        for kind, key, value in changelog_of_commit(table, number):
            if kind in ("-U", "-D"):
                assert state.pop(key) == value
            else:
                assert key not in state
                state[key] = value
        assert rows_of(table) == sorted(state.items(), key=repr)
        assert levels(table)[0] == 0
        assert levels(table)[5] == 1
    assert vectors(table) > 10
    nothing_is_lost_or_left(table)


def test_commits_that_need_not_wait_leave_level_0(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, "lookup-wait": "false"})
    for number in (1, 2, 3):
        result = write(table, number, [("+I", number, "a")], stream=True)
        assert result.compact_snapshot_id is None
    assert levels(table) == {0: 3}
    for number in range(4, 20):  # the runs make it due
        write(table, number, [("+I", number, "a")], stream=True)
        assert sum(levels(table).values()) <= table.options.stop_trigger
    write(table, 20, [("+I", 20, "a")])  # a batch job waits
    assert levels(table)[0] == 0
    told = [row for number in range(1, 21) for row in changelog_of_commit(table, number)]
    assert sorted(told) == [("+I", number, "a") for number in range(1, 21)]


def test_a_forced_compaction_waits_anyway(tmp_path: pathlib.Path) -> None:
    options = {**LOOKUP, "lookup-wait": "false", "commit.force-compact": "true"}
    table = make_table(tmp_path, options=options)
    assert write(table, 1, [("+I", 1, "a")], stream=True).compact_snapshot_id == 2


def test_gentle_compactions_come_by_identifier(tmp_path: pathlib.Path) -> None:
    options = {**LOOKUP, "lookup-compact": "gentle", "num-sorted-run.compaction-trigger": "8"}
    options["lookup-compact.max-interval"] = "8"
    columns, keys = (("p", "INT"), ("k", "INT"), ("v", "STRING")), ("p", "k")
    table = make_table(tmp_path, columns=columns, keys=keys, partitions=("p",), options=options)
    write(table, 6, [("+I", 1, 1, "a")], stream=True)
    write(table, 7, [("+I", 2, 1, "b")], stream=True)
    assert levels(table) == {0: 2}
    write(table, 8, [("+I", 3, 1, "c")], stream=True)
    assert levels(table)[0] == 0
    assert [row[1] for row in changelog_of_commit(table, 8)] == [1, 2, 3]


def test_a_lost_compaction_is_made_up_for(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, **VECTORS})
    write(table, 1, BASE, stream=True)
    write(table, 2, [("+I", 1, "a"), ("+I", 2, "b")], stream=True)
    ours = prepared(table, [("+U", 1, "c"), ("-D", 100, "")], identifier=3)
    write(table, 3, [("+U", 2, "d"), ("-D", 101, "")], user="other", stream=True)
    result = table.new_commit("user").commit(ours, 3)
    assert result.append_snapshot_id is not None
    assert result.compaction_dropped
    assert levels(table)[0] == 1
    assert vectors(table) > 0
    told = [("-U", 2, "b"), ("+U", 2, "d"), ("-D", *BASE[1][1:])]
    assert changelog_of_commit(table, 3) == told
    nothing_is_lost_or_left(table)
    # level 0 does not show yet
    assert rows_of(table) == sorted([(1, "a"), (2, "d"), BASE_ROWS[0], *BASE_ROWS[2:]], key=repr)
    assert len(buckets_due(table, table.latest_snapshot(), 4, resuming=True)) == 1
    assert buckets_due(table, table.latest_snapshot(), 4) == ()
    with reopened(table).new_write("user") as writer:  # the first commit of a job looks for it
        messages = writer.prepare_commit(4)
    table.new_commit("user").commit(messages, 4)
    told = [("-U", 1, "a"), ("+U", 1, "c"), ("-D", *BASE[0][1:])]
    assert changelog_of_commit(table, 4) == told
    assert rows_of(table) == sorted([(1, "c"), (2, "d"), *BASE_ROWS[2:]], key=repr)
    assert vectors(table) > 1
    nothing_is_lost_or_left(table)


def test_a_writer_that_is_left_removes_everything(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, **VECTORS})
    write(table, 1, BASE)
    before = data_files(table), index_files_on_disk(table)
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+U", 101, "c")]))
        writer.compact()
    assert (data_files(table), index_files_on_disk(table)) == before
    messages = prepared(table, [("+U", 101, "c")])
    assert len(data_files(table)) > len(before[0])
    assert len(index_files_on_disk(table)) == 1
    table.delete_uncommitted(messages)
    assert (data_files(table), index_files_on_disk(table)) == before


def test_vectors_of_files_that_come_and_go_in_one_commit(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=VECTORS)
    result = write(table, 1, [("+I", 1, "a")], [("+I", 1, "b")], [("+I", 1, "c"), ("-D", 1, "")])
    assert result.compact_snapshot_id == 2
    assert rows_of(table) == []
    write(table, 2, [("+I", 1, "a"), ("+I", 2, "b")], [("+I", 1, "d")], [], full=True)
    assert rows_of(table) == [(1, "d"), (2, "b")]
    named = index_entries(table, table.latest_snapshot())
    assert [e for e in named if e.file.deletion_vectors] == []
    nothing_is_lost_or_left(table)


def test_an_overwrite_starts_over_without_vectors(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, **VECTORS})
    write(table, 1, BASE)
    write(table, 2, [("+U", 101, "c")])
    assert vectors(table) == 1
    messages = prepared(table, [("+I", 3, "d")], overwrite=True)
    table.new_commit("user").overwrite(messages, 3)
    assert rows_of(table) == [(3, "d")]
    assert changelog_of_commit(table, 3) == []
    assert levels(table)[0] == 0
    assert vectors(table) == 0
    write(table, 4, [("+U", 3, "e")])
    assert changelog_of_commit(table, 4) == [("-U", 3, "d"), ("+U", 3, "e")]
    nothing_is_lost_or_left(table)


@pytest.mark.parametrize("bitmap64", ["true", "false"])
def test_the_form_of_vectors_may_change(tmp_path: pathlib.Path, bitmap64: str) -> None:
    table = make_table(tmp_path, options={**VECTORS, "deletion-vectors.bitmap64": bitmap64})
    write(table, 1, BASE)
    write(table, 2, [("-D", 101, "")])
    other = "false" if bitmap64 == "true" else "true"
    table = table.with_options({"deletion-vectors.bitmap64": other})
    write(table, 3, [("-D", 103, "")])
    assert vectors(table) == 2
    assert rows_of(table) == [BASE_ROWS[0], BASE_ROWS[2], *BASE_ROWS[4:]]


def test_first_rows_stay(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**LOOKUP, "merge-engine": "first-row"})
    write(table, 1, [("+I", 1, "a"), ("+I", 1, "b")])
    write(table, 2, [("+I", 1, "c"), ("+I", 2, "d")])
    assert rows_of(table) == [(1, "a"), (2, "d")]
    assert changelog_of_commit(table, 1) == [("+I", 1, "a")]
    assert changelog_of_commit(table, 2) == [("+I", 2, "d")]
    write(table, 3, [("+I", 2, "e")], compaction=False)
    assert rows_of(table) == [(1, "a"), (2, "d")]
    write(table, 4, [], full=True)
    assert rows_of(table) == [(1, "a"), (2, "d")]
    assert changelog_of_commit(table, 4) == []


def test_the_producer_full_compaction_tells_at_every_commit_of_a_stream(
    tmp_path: pathlib.Path,
) -> None:
    table = make_table(tmp_path, options={"changelog-producer": "full-compaction"})
    write(table, 1, [("+I", 1, "a")], stream=True)
    write(table, 2, [("+U", 1, "b"), ("+I", 2, "c")], stream=True)
    assert changelog_of_commit(table, 1) == [("+I", 1, "a")]
    assert changelog_of_commit(table, 2) == [("-U", 1, "a"), ("+U", 1, "b"), ("+I", 2, "c")]
    assert levels(table) == {5: 1}


def test_both_snapshots_are_of_one_commit(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=LOOKUP)
    write(table, 7, [("+I", 1, "a")], stream=True)
    kinds = [table.snapshots.read(i) for i in (1, 2)]
    assert [one.commit_kind for one in kinds] == [CommitKind.APPEND, CommitKind.COMPACT]
    assert {one.commit_identifier for one in kinds} == {7}
    assert [one.changelog_record_count for one in kinds] == [None, 1]
    again = table.new_commit("user").commit(prepared(table, [("+I", 1, "b")]), 7)
    assert again.already_committed
    nothing_is_lost_or_left(table)


@pytest.mark.parametrize(
    "options",
    [{}, {**LOOKUP, "lookup-wait": "false"}, {**VECTORS, "lookup-compact": "gentle"}],
)
def test_a_writer_stalls_before_sorted_runs_pile_up(
    tmp_path: pathlib.Path, options: dict[str, str]
) -> None:
    more = {
        "write-buffer-size": "1 b",  # every batch is flushed by itself
        "num-sorted-run.compaction-trigger": "3",
        "num-sorted-run.stop-trigger": "4",
    }
    table = make_table(tmp_path, options={**options, **more})
    write(table, 1, BASE, full=True)
    with table.bucket_writer(EMPTY_ROW, 0, 2) as writer:
        for number in range(20):
            writer.write(rows_batch(table, [("+I", number, "a" * number)]))
            assert writer.sorted_run_count <= 4
        message = writer.prepare_commit(1)
    table.new_commit("user").commit([message], 2)
    assert len(rows_of(table.with_options({"deletion-vectors.merge-on-read": "true"}))) == 720
    nothing_is_lost_or_left(table)


def test_forcing_level_0_up_needs_no_lookup(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"compaction.force-up-level-0": "true"})
    for number in range(1, 4):
        assert write(table, number, [("+I", number, "a")]).compact_snapshot_id == 2 * number
        assert levels(table)[0] == 0
