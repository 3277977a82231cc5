# SPDX-License-Identifier: Apache-2.0
import pathlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import RowKind
from storage.table.commit.commit import FileStoreCommit
from storage.table.table import FileStoreTable
from storage.table.write.rows.row_changes import MergeClause, When
from storage.testing.invariants import check_table
from tests.table_kit import make_table, reopened, rows_of, write
from tests.unit.storage.table.write.rows.test_change_where import COLUMNS, FORMS, SIX

UPDATE = MergeClause(when=When.MATCHED, kind=RowKind.UPDATE_AFTER)
DELETE = MergeClause(when=When.MATCHED, kind=RowKind.DELETE)
INSERT = MergeClause(when=When.NOT_MATCHED, kind=RowKind.INSERT)


@pytest.fixture(params=FORMS, ids=str)
def table(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> FileStoreTable:
    table = make_table(tmp_path, columns=COLUMNS, **FORMS[request.param])
    write(table, 1, SIX[:4])
    write(table, 2, SIX[4:])
    return table


def source(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table({"k": columns[0], "p": columns[1], "v": columns[2]})


def test_clauses_are_asked_in_their_order(table: FileStoreTable) -> None:
    clauses = [
        MergeClause(
            when=When.MATCHED,
            kind=RowKind.DELETE,
            condition=lambda rows: pc.equal(rows["s.v"], 0),
        ),
        MergeClause(
            when=When.MATCHED,
            kind=RowKind.UPDATE_AFTER,
            columns={"v": lambda rows: pc.add(rows["t.v"], rows["s.v"])},
            condition=lambda rows: pc.greater(rows["s.v"], 1),
        ),
        MergeClause(
            when=When.NOT_MATCHED,
            kind=RowKind.INSERT,
            columns={"k": "k", "p": "p"},
            condition=lambda rows: pc.greater(rows["s.v"], 1),
        ),
        MergeClause(
            when=When.NOT_MATCHED_BY_SOURCE,
            kind=RowKind.UPDATE_AFTER,
            columns={"v": lambda rows: pa.scalar(-1)},
            condition=lambda rows: pc.equal(rows["t.p"], "b"),
        ),
    ]
    rows = source([(0, "a", 0), (1, "b", 1), (2, "a", 2), (8, "a", 8), (9, "b", 1)])
    result = table.merge(rows, ["k"], clauses, "me")
    assert (result.deleted, result.updated, result.inserted) == (1, 3, 1)
    found = [(1, "b", 10), (2, "a", 22), (3, "b", -1), (4, "a", 40), (5, "b", -1), (8, "a", None)]
    assert rows_of(table) == found
    check_table(table, rows=True)


def test_whole_rows_are_taken_by_name(table: FileStoreTable) -> None:
    rows = source([(1, "b", 100), (7, "b", 70)]).select(["v", "k", "p"])
    result = table.merge(rows, ["k"], [UPDATE, INSERT], "me")
    assert result.row_count == 2
    assert [row for row in rows_of(table) if row[0] in (1, 7)] == [(1, "b", 100), (7, "b", 70)]
    assert len(rows_of(table)) == 7


def test_a_merge_into_nothing_inserts(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=COLUMNS)
    table.merge(source([(1, "a", None), (None, "a", 1)][:1]), ["k"], [UPDATE, INSERT], "me")
    assert rows_of(table) == [(1, "a", None)]
    assert table.merge(source([(2, "a", 1)]), ["k"], [UPDATE, DELETE], "me").snapshot_id is None


def test_null_equals_nothing(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=COLUMNS, **FORMS["append"])
    write(table, 1, [("+I", None, "a", 1)])
    table.merge(source([(None, "a", 2)]), ["k"], [DELETE, INSERT], "me")
    assert rows_of(table) == [(None, "a", 1), (None, "a", 2)]


@pytest.mark.parametrize("form", ["append", "append with vectors", "key"])
def test_a_row_with_two_partners_is_refused(tmp_path: pathlib.Path, form: str) -> None:
    table = make_table(tmp_path, columns=COLUMNS, **FORMS[form])
    write(table, 1, SIX)
    twice = source([(1, "a", 1), (1, "a", 2)])
    never = MergeClause(
        when=When.MATCHED, kind=RowKind.DELETE, condition=lambda rows: pa.scalar(False)
    )
    for clause in (UPDATE, DELETE, never):
        with pytest.raises(InvalidRequestError, match="match more than one source rows"):
            table.merge(twice, ["k"], [clause], "me")
    assert len(rows_of(table)) == 6


@pytest.mark.parametrize(
    ("on", "clauses", "message"),
    [
        (["k"], [], "no clause"),
        (["x"], [UPDATE], "no such column"),
        ([], [UPDATE], "merge on"),
        (["k"], [MergeClause(when=When.MATCHED, kind=RowKind.INSERT)], "cannot INSERT"),
        (["k"], [MergeClause(when=When.NOT_MATCHED, kind=RowKind.DELETE)], "cannot UPDATE or"),
        (["p"], [UPDATE], "Updates to primary keys"),
        (
            ["k"],
            [MergeClause(when=When.MATCHED, kind=RowKind.UPDATE_AFTER, columns={"v": "x"})],
            "no such column of the source",
        ),
        (
            ["k"],
            [MergeClause(when=When.MATCHED, kind=RowKind.UPDATE_AFTER, columns={"v": "p"})],
            "column=`v` row=`1` value=`c`",
        ),
    ],
)
def test_bad_merges_change_nothing(
    tmp_path: pathlib.Path, on: list[str], clauses: list[MergeClause], message: str
) -> None:
    table = make_table(tmp_path, columns=COLUMNS)
    write(table, 1, [("+I", 1, "c", 5)])
    with pytest.raises(InvalidRequestError, match=message):
        table.merge(source([(1, "c", 1)] if on != ["p"] else [(2, "c", 1)]), on, clauses, "me")
    assert rows_of(table) == [(1, "c", 5)]


def test_engines_without_updates_take_no_merge(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=COLUMNS, options={"merge-engine": "aggregation"})
    with pytest.raises(UnsupportedFeatureError, match="aggregation can not support batch merge"):
        table.merge(source([(1, "c", 1)]), ["k"], [INSERT], "me")


@pytest.mark.parametrize("form", ["append", "append with vectors", "key", "dynamic buckets"])
def test_two_merges_insert_a_row_once(
    tmp_path: pathlib.Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival inserts the same rows after the merge has read."""
    table = make_table(tmp_path, columns=COLUMNS, **FORMS[form])
    rows = source([(1, "a", 1), (2, "a", 2)])
    add = MergeClause(
        when=When.MATCHED,
        kind=RowKind.UPDATE_AFTER,
        columns={"v": lambda joined: pc.add(joined["t.v"], joined["s.v"])},
    )
    rivals = iter([lambda: reopened(table).merge(rows, ["k"], [add, INSERT], "rival")])
    commit = FileStoreCommit.commit

    def late(self: FileStoreCommit, *given: Any, **more: Any) -> Any:
        rival = next(rivals, None)
        if rival is not None:
            rival()
        return commit(self, *given, **more)

    monkeypatch.setattr(FileStoreCommit, "commit", late)
    result = table.merge(rows, ["k"], [add, INSERT], "me")
    assert (result.updated, result.inserted) == (2, 0)
    assert rows_of(table) == [(1, "a", 2), (2, "a", 4)]
