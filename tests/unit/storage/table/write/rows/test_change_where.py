# SPDX-License-Identifier: Apache-2.0
import dataclasses
import multiprocessing
import pathlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from storage.errors import FileConflictError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import CommitKind
from storage.format.types.types import VALUE_KIND
from storage.table.commit.commit import FileStoreCommit
from storage.table.read.read import TableRead
from storage.table.scan.scan import TableScan
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.changelog_replay import changelog_faults, replay
from tests.table_kit import (
    data_files,
    make_table,
    prepared,
    reopened,
    rows_batch,
    rows_of,
    write,
)
from tests.unit.storage.newest_files import newest_entries

COLUMNS = (("k", "BIGINT"), ("p", "STRING"), ("v", "BIGINT"))
MARKED = {"deletion-vectors.enabled": "true"}
FORMS: dict[str, dict[str, Any]] = {
    "append": {"keys": (), "options": {"bucket": "-1"}},
    "append with vectors": {"keys": (), "options": {"bucket": "-1", **MARKED}},
    "buckets": {"keys": (), "options": {"bucket": "2", "bucket-key": "k"}},
    "buckets with vectors": {"keys": (), "options": {"bucket": "2", "bucket-key": "k", **MARKED}},
    "partitions": {"keys": (), "options": {"bucket": "-1"}, "partitions": ("p",)},
    "key": {"keys": ("k",)},
    "key with vectors": {"keys": ("k",), "options": MARKED},
    "dynamic buckets": {"keys": ("k",), "options": {"bucket": "-1"}},
    "key in partitions": {"keys": ("p", "k"), "partitions": ("p",)},
    "key across partitions": {"keys": ("k",), "partitions": ("p",), "options": {"bucket": "-1"}},
    "key, input": {"keys": ("k",), "options": {"changelog-producer": "input"}},
    "key, lookup": {"keys": ("k",), "options": {"changelog-producer": "lookup"}},
    "key, full": {"keys": ("k",), "options": {"changelog-producer": "full-compaction"}},
}
POSTPONED = {"bucket": "-2", "postpone.default-bucket-num": "2"}
SIX = [("+I", k, "ab"[k % 2], k * 10) for k in range(6)]


@pytest.fixture(params=FORMS, ids=str)
def table(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> FileStoreTable:
    table = make_table(tmp_path, columns=COLUMNS, **FORMS[request.param])
    write(table, 1, SIX[:4])
    write(table, 2, SIX[4:])
    return table


def changelog(table: FileStoreTable) -> list[pa.RecordBatch]:
    """All changes that the snapshots brought."""
    reader = TableRead(table, kinds=True)
    found = []
    for snapshot_id in table.snapshots.ids():
        snapshot = table.snapshots.read(snapshot_id)
        for split in TableScan(table).plan_changelog(snapshot):
            found += reader.to_batches(split)
    return found


def test_deleted_rows_do_not_come_back(table: FileStoreTable) -> None:
    assert table.count_where("v >= 20 and v < 50") == 3
    result = table.delete_where("v >= 20 and v < 50", "me")
    assert (result.deleted, result.row_count) == (3, 3)
    assert rows_of(table) == [(0, "a", 0), (1, "b", 10), (5, "b", 50)]
    assert table.delete_where("v = 20", "me").snapshot_id is None
    assert table.delete_where("k >= 0", "me").deleted == 3
    assert rows_of(table) == []
    check_table(table, rows=True)


def test_updated_rows_are_there_once(table: FileStoreTable) -> None:
    def more(rows: pa.RecordBatch) -> pa.Array:
        return pc.add(rows.column("v"), 1)

    assert table.update_where({"v": more}, "k in (1, 4, 7)", "me").updated == 2
    assert table.update_where({"v": more}, "k = 1", "me").updated == 1
    assert table.update_where({"v": None}, "k = 0", "me").updated == 1
    expected = [
        (0, "a", None),
        (1, "b", 12),
        (2, "a", 20),
        (3, "b", 30),
        (4, "a", 41),
        (5, "b", 50),
    ]
    assert rows_of(table) == expected
    check_table(table, rows=True)


def test_a_row_goes_to_another_partition(tmp_path: pathlib.Path) -> None:
    for form in ("partitions", "key across partitions"):
        table = make_table(tmp_path / form, columns=COLUMNS, **FORMS[form])
        write(table, 1, SIX)
        table.update_where({"p": "c"}, "k < 2", "me")
        assert rows_of(table, filter="p = 'c'") == [(0, "c", 0), (1, "c", 10)]
        assert len(rows_of(table)) == 6
        check_table(table, rows=True)


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_tells_every_change(tmp_path: pathlib.Path, producer: str) -> None:
    table = make_table(tmp_path, columns=COLUMNS, options={"changelog-producer": producer})
    write(table, 1, SIX, full=True)
    table.update_where({"v": 7}, "k < 3", "me")
    table.delete_where("k = 1 or k = 5", "me")
    changes = changelog(table)
    assert not changelog_faults(changes, ["k"])
    replayed = replay(changes, ["k"]).select(["k", "p", "v"]).sort_by("k").to_pylist()
    assert [tuple(row.values()) for row in replayed] == rows_of(table)
    kinds = pc.value_counts(pa.concat_arrays([b.column(VALUE_KIND) for b in changes])).to_pylist()
    assert {one["values"]: one["counts"] for one in kinds} == {0: 6, 1: 3, 2: 3, 3: 2}


def test_only_touched_files_are_written_anew(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=COLUMNS, **FORMS["append"])
    write(table, 1, SIX[:3])
    write(table, 2, SIX[3:])
    before = data_files(table)
    table.delete_where("k = 4", "me")
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.commit_kind is CommitKind.OVERWRITE
    live = {entry.file.file_name for entry in table.new_scan().live_entries(snapshot)}
    assert len(live & before) == 1
    table.delete_where("k > 2", "me")
    assert newest_entries(table)[0].file.file_name in before


def test_partial_updates_and_deletes_follow_the_options(tmp_path: pathlib.Path) -> None:
    partial = {"merge-engine": "partial-update"}
    table = make_table(tmp_path / "a", columns=COLUMNS, options=partial)
    write(table, 1, SIX)
    table.update_where({"v": 5}, "k = 1", "me")
    with pytest.raises(UnsupportedFeatureError, match="doesn't support batch delete by default"):
        table.delete_where("k = 1", "me")
    assert rows_of(table)[1] == (1, "b", 5)
    partial["partial-update.remove-record-on-delete"] = "true"
    table = make_table(tmp_path / "b", columns=COLUMNS, options=partial)
    write(table, 1, SIX)
    assert table.delete_where("k < 5", "me").deleted == 5
    assert rows_of(table) == [(5, "b", 50)]


TOTALS = {
    "sum": ("BIGINT", 2, 3),
    "product": ("BIGINT", 2, 3),
    "max": ("BIGINT", 2, 3),
    "last_value": ("BIGINT", 2, 3),
    "last_non_null_value": ("BIGINT", 2, 3),
    "first_value": ("BIGINT", 2, 3),
    "listagg": ("STRING", "a", "b"),
    "collect": ("ARRAY<INT>", [1], [1]),
    "merge_map": ("MAP<STRING, INT>", [("a", 1)], [("b", 2)]),
    "nested_update": ("ARRAY<ROW<a INT>>", [{"a": 1}], [{"a": 1}]),
    "bool_and": ("BOOLEAN", True, False),
}


@pytest.mark.parametrize("function", TOTALS)
def test_an_update_of_another_column_leaves_totals_as_they_are(
    tmp_path: pathlib.Path, function: str
) -> None:
    kind, first, second = TOTALS[function]
    columns = (("k", "BIGINT"), ("g", "BIGINT"), ("total", kind), ("v", "BIGINT"))
    options = {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "total",
        "fields.total.aggregate-function": function,
    }
    table = make_table(tmp_path, columns=columns, options=options)
    write(table, 1, [("+I", 1, 1, first, 1)])
    write(table, 2, [("+I", 1, 2, second, 1)])
    ((_, _, total, _),) = rows_of(table)
    table.update_where({"v": 5}, "k = 1", "me")
    assert rows_of(table) == [(1, 2, total, 5)]
    table.update_where({"g": 7}, "k = 1", "me")
    assert rows_of(table) == [(1, 7, total, 5)]


AGGREGATION = {"merge-engine": "aggregation"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge-engine": "first-row"}, "first-row can not support batch delete"),
        (AGGREGATION, "doesn't support batch delete by default.*aggregation.remove-record"),
        ({"ignore-delete": "true"}, "would change nothing.*RESET"),
    ],
)
def test_tables_that_take_no_deletes_say_so(
    tmp_path: pathlib.Path, options: dict[str, str], message: str
) -> None:
    table = make_table(tmp_path, columns=COLUMNS, options=options)
    write(table, 1, SIX)
    before = table.snapshots.latest_id()
    with pytest.raises(UnsupportedFeatureError, match=message):
        table.delete_where("k = 1", "me")
    assert table.snapshots.latest_id() == before


def test_aggregates_are_deleted_where_the_table_says_so(tmp_path: pathlib.Path) -> None:
    options = {**AGGREGATION, "aggregation.remove-record-on-delete": "true"}
    table = make_table(tmp_path, columns=COLUMNS, options=options)
    write(table, 1, SIX)
    assert table.delete_where("v > 10", "me").deleted == 4
    assert [row[0] for row in rows_of(table)] == [0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.update_where({"k": 1}, "v = 0", "me"), "Updates to primary keys.*`k`"),
        (lambda t: t.update_where({"w": 1}, None, "me"), "no such column.*k, p, v.*|column=`w`"),
        (lambda t: t.update_where({}, None, "me"), "nothing is set"),
        (lambda t: t.delete_where("w = 1", "me"), "no such column"),
        (lambda t: t.delete_where("k === 1", "me"), "filter"),
        (
            lambda t: t.update_where({"v": lambda r: r.column("p")}, None, "me"),
            "column=`v` row=`1`",
        ),
    ],
)
def test_bad_requests_change_nothing(
    tmp_path: pathlib.Path, change: Callable[[FileStoreTable], Any], message: str
) -> None:
    table = make_table(tmp_path, columns=COLUMNS)
    write(table, 1, SIX)
    files, before = data_files(table), table.snapshots.latest_id()
    with pytest.raises(InvalidRequestError, match=message):
        change(table)
    assert (data_files(table), table.snapshots.latest_id()) == (files, before)


@pytest.mark.parametrize("engine", ["aggregation", "first-row"])
def test_engines_without_updates_say_so(tmp_path: pathlib.Path, engine: str) -> None:
    table = make_table(tmp_path, columns=COLUMNS, options={"merge-engine": engine})
    with pytest.raises(UnsupportedFeatureError, match=f"{engine} can not support batch update"):
        table.update_where({"v": 1}, None, "me")


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_statements_on_postponed_tables_are_visible_at_once(
    tmp_path: pathlib.Path, producer: str
) -> None:
    options = {**POSTPONED, "changelog-producer": producer}
    table = make_table(tmp_path, columns=COLUMNS, options=options)
    table.append_rows([rows_batch(table, SIX)])
    table.update_where({"v": 7}, "k < 2", "me")
    table.delete_where("k = 5", "me")
    assert rows_of(table) == [(0, "a", 7), (1, "b", 7), (2, "a", 20), (3, "b", 30), (4, "a", 40)]
    check_table(table)


def test_rows_that_wait_for_their_buckets_are_not_written_over(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=COLUMNS)
    (message,) = prepared(table, SIX)
    waiting = dataclasses.replace(message, bucket=POSTPONE_BUCKET, total_buckets=POSTPONE_BUCKET)
    table.new_commit("other").commit([waiting], 1)
    with pytest.raises(UnsupportedFeatureError, match=r"wait for their buckets.*sys\.compact"):
        table.update_where({"v": 1}, "k = 1", "me")
    assert table.snapshots.latest_id() == 1


def test_a_value_that_another_wrote_meanwhile_is_not_lost(
    table: FileStoreTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival commits after the statement has read and before it commits."""
    rivals = iter([lambda: reopened(table).update_where({"v": 1_000}, "k = 1", "rival")])
    commit = FileStoreCommit.commit

    def late(self: FileStoreCommit, *given: Any, **more: Any) -> Any:
        rival = next(rivals, None)
        if rival is not None:
            rival()
        return commit(self, *given, **more)

    monkeypatch.setattr(FileStoreCommit, "commit", late)
    table.update_where({"v": lambda rows: pc.add(rows.column("v"), 1)}, "k = 1", "me")
    assert (1, "b", 1_001) in rows_of(table)
    assert len(rows_of(table)) == 6
    check_table(table, rows=True)


def test_a_statement_that_loses_each_time_changes_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, columns=COLUMNS, options={"commit.max-retries": "1"})
    write(table, 1, SIX)
    commit = FileStoreCommit.commit
    count = iter(range(100))

    def late(self: FileStoreCommit, *given: Any, **more: Any) -> Any:
        rival = reopened(table)
        with rival.new_write("rival") as writer:
            writer.write(pa.RecordBatch.from_pydict({"k": [1], "p": ["b"], "v": [next(count)]}))
            messages = writer.prepare_commit()
        commit(rival.new_commit("rival"), messages, next(count))
        return commit(self, *given, **more)

    monkeypatch.setattr(FileStoreCommit, "commit", late)
    with pytest.raises(FileConflictError, match="others wrote to the same rows"):
        table.update_where({"v": 7}, "k = 1", "me")
    monkeypatch.undo()
    assert (1, "b", 2) in rows_of(table)
    check_table(table)


def _add(root: str, start: Any, times: int) -> None:
    table = FileStoreTable.open(root)
    start.wait()
    for _ in range(times):
        table.update_where({"v": lambda rows: pc.add(rows.column("v"), 1)}, "k < 4", "process")


def _compact(root: str, start: Any, times: int) -> None:
    start.wait()
    for number in range(times):
        table = FileStoreTable.open(root)
        with table.new_write(f"compactor-{number}") as writer:
            writer.compact(full=True)
            messages = writer.prepare_commit()
        if messages:
            table.new_commit(f"compactor-{number}").commit(messages, number)


@pytest.mark.parametrize("form", ["append", "append with vectors", "key", "key with vectors"])
def test_two_processes_and_a_compaction_lose_nothing(tmp_path: pathlib.Path, form: str) -> None:
    options = {"commit.max-retries": "200", **FORMS[form].get("options", {})}
    table = make_table(tmp_path, columns=COLUMNS, **{**FORMS[form], "options": options})
    write(table, 1, SIX[:4])
    write(table, 2, SIX[4:])
    context = multiprocessing.get_context("fork")
    start = context.Barrier(3)
    root, times = table.layout.root, 4
    jobs = [
        *(context.Process(target=_add, args=(root, start, times)) for _ in range(2)),
        context.Process(target=_compact, args=(root, start, times)),
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(timeout=120)
    assert [job.exitcode for job in jobs[:2]] == [0, 0]
    expected = [(k, p, v + (2 * times if k < 4 else 0)) for _, k, p, v in SIX]
    assert rows_of(reopened(table)) == expected
    check_table(table, rows=True)
