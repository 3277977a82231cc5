# SPDX-License-Identifier: Apache-2.0
"""Batch reads of what changed between two snapshots, tags or times."""

import json
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from storage.clock import ManualClock
from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.inspect.system.row_tables import audit_log_table, binlog_table
from storage.table.read.read import TableRead
from storage.table.scan.predicate import Compare, Op, Predicate
from storage.table.scan.scan import TableScan
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from storage.table.write.rows.row_changes import delete_where
from tests.table_kit import make_table, prepared, rows_of, write

_GOLDEN = pathlib.Path(__file__).parents[4] / "golden" / "data" / "public"
_START_MS = 1_700_000_000_000
_COMMITS = [
    [("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "a")],
    [("+I", 1, "b")],
    [("-D", 2, "a")],
    [("+I", 4, "a"), ("+U", 5, "a")],
]


def _history(tmp_path: pathlib.Path, **options: str) -> FileStoreTable:
    """Snapshots 1 to 4, committed 1 to 4 s after the start."""
    clock = ManualClock(_START_MS)
    table = make_table(tmp_path, clock=clock, options=options)
    for number, rows in enumerate(_COMMITS, 1):
        clock.advance(1_000)
        write(table, number, rows)
    return table


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> FileStoreTable:
    """For tests that only read."""
    return _history(tmp_path_factory.mktemp("history"))


def _between(value: str, mode: str = "auto") -> dict[str, str]:
    return {"incremental-between": value, "incremental-between-scan-mode": mode}


def _read_changes(
    table: FileStoreTable, columns: list[str] | None = None, predicate: Predicate | None = None
) -> pa.Table:
    read = TableRead(table, columns, predicate, kinds=True)
    return read.to_table(TableScan(table).with_filter(predicate).plan_changes())


def _changes(table: FileStoreTable, options: dict[str, str]) -> list[tuple[Any, ...]]:
    found = _read_changes(table.with_options(dict(options)))
    kinds = [RowKind(kind).short for kind in found.column(VALUE_KIND).to_pylist()]
    values = [column.to_pylist() for column in found.columns[1:]]
    return list(zip(kinds, *values, strict=True))


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (_between("0,4"), [*_COMMITS[0], *_COMMITS[1], *_COMMITS[2], *_COMMITS[3]]),
        (_between("1,3"), [*_COMMITS[1], *_COMMITS[2]]),
        (_between("1,3", "delta"), [*_COMMITS[1], *_COMMITS[2]]),
        (_between("1,3", "changelog"), []),
        (_between("2,2"), []),
        (
            _between("1,4", "diff"),
            [("+I", 1, "b"), ("-D", 2, "a"), ("+I", 4, "a"), ("+U", 5, "a")],
        ),
        (_between("3,4", "diff"), _COMMITS[3]),
        ({"scan.mode": "latest-delta"}, _COMMITS[3]),
        (
            {"incremental-between-timestamp": f"{_START_MS + 1_000},{_START_MS + 2_500}"},
            _COMMITS[1],
        ),
        ({"incremental-between-timestamp": f"0,{_START_MS + 1_000}"}, _COMMITS[0]),
        ({"incremental-between-timestamp": "5,9"}, []),
        ({"incremental-between-timestamp": "2023-01-01,2023-02-01"}, []),
    ],
)
def test_what_changed(
    history: FileStoreTable, options: dict[str, str], changes: list[tuple[Any, ...]]
) -> None:
    assert _changes(history, options) == changes
    plain = [row[1:] for row in changes if row[0].startswith("+")]
    assert rows_of(history.with_options(dict(options))) == sorted(plain, key=repr)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (_between("3,1"), InvalidRequestError, "Ending snapshotId should"),
        (_between("1,9"), InvalidRequestError, "out of available snapshotId range"),
        (_between("a,b"), InvalidRequestError, "Didn't find two tags"),
        (_between("7"), InvalidOptionError, "must specific start"),
        ({"incremental-between-timestamp": "9,5"}, InvalidRequestError, "Ending timestamp"),
        ({"incremental-between-timestamp": "x,y"}, InvalidOptionError, "not a date"),
        ({"incremental-to-auto-tag": "mine"}, InvalidRequestError, "not an auto-created tag"),
    ],
)
def test_what_cannot_be_read(
    history: FileStoreTable, options: dict[str, str], error: type[Exception], text: str
) -> None:
    table = history.with_options(dict(options))
    with pytest.raises(error, match=text):
        table.to_arrow()


def test_changes_are_no_state(history: FileStoreTable) -> None:
    table = history.with_options({"incremental-between": "1,2"})
    with pytest.raises(UnsupportedFeatureError, match="changes and not a state"):
        table.new_scan().plan()
    with pytest.raises(InvalidOptionError, match="must be null"):
        table.with_options({"scan.snapshot-id": "1"})
    assert len(rows_of(table, snapshot=1)) == 3


def test_between_tags(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    for name, snapshot_id in (("a", 1), ("b", 4)):
        create_tag(table, name, snapshot_id)
    assert _changes(table, _between("a,b")) == _changes(table, _between("1,4", "diff"))
    by_snapshot = {**_between("a,b"), "incremental-between-tag-to-snapshot": "true"}
    assert _changes(table, by_snapshot) == _changes(table, _between("1,4"))
    assert _changes(table, _between("a,a")) == []
    with pytest.raises(InvalidRequestError, match="should be >= tag start"):
        _changes(table, _between("b,a"))


def test_to_an_automatic_tag(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    for name, snapshot_id in (("2024-01-01", 1), ("2024-01-03", 3), ("other", 2)):
        create_tag(table, name, snapshot_id)
    expected = [("+I", 1, "b"), ("-D", 2, "a")]
    assert _changes(table, {"incremental-to-auto-tag": "2024-01-03"}) == expected
    assert _changes(table, {"incremental-to-auto-tag": "2024-01-01"}) == []
    assert _changes(table, {"incremental-to-auto-tag": "2024-01-04"}) == []


def test_overwrites_and_compactions_do_not_count(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    table.new_commit("user").overwrite(prepared(table, [("+I", 7, "o")], overwrite=True), 8)
    write(table, 9, [("+I", 8, "n")], full=True)
    newest = table.snapshots.latest_id()
    assert _changes(table, _between(f"4,{newest}")) == [("+I", 8, "n")]
    gone = [("-D", key, value) for key, value in ((1, "b"), (3, "a"), (4, "a"), (5, "a"))]
    compared = _changes(table, _between(f"4,{newest}", "diff"))
    assert sorted(compared) == sorted([*gone, ("+I", 7, "o"), ("+I", 8, "n")])


def test_a_producer_gives_its_changelog() -> None:
    directory = _GOLDEN / "changelog_lookup"
    expected = json.loads((directory / "expected" / "changelog.json").read_text())
    table = FileStoreTable.open(str(directory / "table"))
    newest = table.snapshots.latest_id()
    found = [list(row) for row in _changes(table, _between(f"0,{newest}"))]
    assert found == [row for rows in expected.values() for row in rows]
    assert _changes(table, _between("4,5")) == []  # the changelog of 5 comes with 6


def test_the_difference_of_golden_states() -> None:
    for case in ("changelog_lookup", "pk_partition_odd", "partial_update", "aggregation", "dv_v1"):
        directory = _GOLDEN / case
        table = FileStoreTable.open(str(directory / "table"))
        ids = table.snapshots.ids()
        keys = table.schema.primary_keys
        for first, last in zip(ids, reversed(ids), strict=True):
            if first >= last:
                continue
            before, after = (
                {tuple(row[key] for key in keys): row for row in _whole_state(table, one)}
                for one in (first, last)
            )
            options = _between(f"{first},{last}", "diff")
            found = _read_changes(table.with_options(dict(options))).to_pylist()
            for row in found:
                kind, key = row.pop(VALUE_KIND), tuple(row[key] for key in keys)
                if kind == RowKind.DELETE:
                    assert before.pop(key) == row
                else:
                    assert before.get(key) != row
                    before[key] = row
            assert repr(sorted(before.items(), key=repr)) == repr(sorted(after.items(), key=repr))


def _whole_state(table: FileStoreTable, snapshot_id: int) -> list[dict[str, Any]]:
    """Rows of level 0 too where plain reads leave them out."""
    scan = table.new_scan().with_all_levels().with_snapshot(snapshot_id)
    return list(table.new_read().to_table(scan.plan()).to_pylist())


def test_buckets_where_nothing_differs_are_not_read(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"bucket": "4"})
    write(table, 1, [("+I", key, "a") for key in range(20)])
    write(table, 2, [("+I", 3, "b")])
    read = table.with_options(_between("1,2", "diff"))
    (split,) = TableScan(read).plan_changes()
    assert split.row_count < 20
    assert _changes(table, _between("1,2", "diff")) == [("+I", 3, "b")]


def test_columns_and_filters(history: FileStoreTable) -> None:
    for mode in ("delta", "diff"):
        read = history.with_options(_between("1,4", mode))
        only = _read_changes(read, ["v"], Compare(Op.EQ, "k", 1))
        assert only.to_pylist() == [{VALUE_KIND: RowKind.INSERT, "v": "b"}]
        assert rows_of(read, columns=["k"], filter=Compare(Op.EQ, "v", "a")) == [(4,), (5,)]


def test_system_tables_show_the_changes(history: FileStoreTable) -> None:
    read = history.with_options(_between("1,3"))
    expected = [{"rowkind": "+I", "k": 1, "v": "b"}, {"rowkind": "-D", "k": 2, "v": "a"}]
    assert audit_log_table(read).to_pylist() == expected
    numbered = read.with_options({"table-read.sequence-number.enabled": "true"})
    assert audit_log_table(numbered).column("_SEQUENCE_NUMBER").to_pylist() == [3, 4]
    assert binlog_table(read).to_pylist() == [
        {"rowkind": "+I", "k": [1], "v": ["b"]},
        {"rowkind": "-D", "k": [2], "v": ["a"]},
    ]


def test_append_tables(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    for number in range(1, 4):
        write(table, number, [("+I", number, "a")])
    for mode in ("delta", "diff"):
        assert _changes(table, _between("1,3", mode)) == [("+I", 2, "a"), ("+I", 3, "a")]
    read = table.with_options(_between("1,3"))
    assert _read_changes(read, []).schema.names == [VALUE_KIND]


def test_rows_deleted_by_vectors_do_not_repeat_the_others(tmp_path: pathlib.Path) -> None:
    options = {"bucket": "-1", "deletion-vectors.enabled": "true"}
    table = make_table(tmp_path, keys=(), options=options)
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "a")])
    delete_where(table, "k = 1", "user")
    write(table, 3, [("+I", 3, "a")])
    for mode in ("delta", "diff"):
        assert _changes(table, _between("1,3", mode)) == [("+I", 3, "a")]


def test_a_table_without_snapshots(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    assert _changes(table, _between("1,2")) == []
    assert _changes(table, {"scan.mode": "latest-delta"}) == []
    assert _changes(table, {"incremental-between-timestamp": "1,2"}) == []
