# SPDX-License-Identifier: Apache-2.0
"""Sequence fields and row kinds from a column: who wins, wherever rows of a key meet."""

import pathlib
from typing import Any

import pyarrow as pa
import pytest

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.format.metadata.schema_changes import SetOption
from storage.lsm.merge_functions.segments import SequenceOrder, dense_ranks
from storage.table.scan.predicate import Compare, Op
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, rows_of, write

COLUMNS = (("k", "INT"), ("v", "STRING"), ("s", "INT"), ("t", "INT"))
Row = tuple[Any, ...]


def sequenced(root: pathlib.Path, fields: str = "s", **options: str) -> FileStoreTable:
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return make_table(root, columns=COLUMNS, options={"sequence.field": fields, **given})


@pytest.mark.parametrize("place", ["buffer", "levels", "compaction"])
@pytest.mark.parametrize(
    ("fields", "order", "rows", "winner"),
    [
        ("s", "ascending", [("a", 2, 0), ("b", 1, 0)], "a"),
        ("s", "ascending", [("a", 2, 0), ("b", 2, 0)], "b"),
        ("s", "ascending", [("a", 1, 0), ("b", None, 0)], "a"),
        ("s", "ascending", [("a", None, 0), ("b", None, 0)], "b"),
        ("s", "descending", [("a", 1, 0), ("b", 2, 0)], "a"),
        ("s", "descending", [("a", 1, 0), ("b", None, 0)], "a"),
        ("s", "descending", [("a", None, 0), ("b", 5, 0)], "b"),
        ("s,t", "ascending", [("a", 2, 1), ("b", 1, 9)], "a"),
        ("s,t", "ascending", [("a", 2, 1), ("b", 2, None)], "a"),
        ("t,s", "ascending", [("a", 2, 1), ("b", 1, 9)], "b"),
        ("s,t", "descending", [("a", 2, 1), ("b", 2, 2)], "a"),
    ],
)
def test_the_largest_sequence_wins_wherever_rows_meet(
    tmp_path: pathlib.Path,
    place: str,
    fields: str,
    order: str,
    rows: list[Row],
    winner: str,
) -> None:
    table = make_table(
        tmp_path,
        columns=COLUMNS,
        options={"sequence.field": fields, "sequence.field.sort-order": order},
    )
    changes = [("+I", 1, *row) for row in rows]
    if place == "buffer":
        write(table, 1, changes)
    else:
        for number, change in enumerate(changes):
            write(table, number + 1, [change], compaction=False)
        if place == "compaction":
            write(table, 9, [], full=True)
    assert [row[1] for row in rows_of(table)] == [winner]


def test_sequence_columns_are_read_though_nobody_asks_for_them(tmp_path: pathlib.Path) -> None:
    table = sequenced(tmp_path)
    write(table, 1, [("+I", 1, "new", 5, 0)], compaction=False)
    write(table, 2, [("+I", 1, "old", 4, 0)], compaction=False)
    assert rows_of(table, columns=["v"]) == [("new",)]
    assert rows_of(table, columns=["v"], filter=Compare(Op.EQ, "v", "old")) == []


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sequence.field": "nope"}, "'nope' can not be found in table schema"),
        ({"sequence.field": "s,s"}, "'s' is defined repeatedly"),
        ({"rowkind.field": "nope"}, "Rowkind field: 'nope' can not be found"),
        ({"rowkind.field": "s"}, "only support string type"),
        ({"fields.nope.aggregate-function": "sum"}, "Field nope can not be found"),
    ],
)
def test_what_makes_no_sense_is_refused_at_creation(
    tmp_path: pathlib.Path, options: dict[str, str], match: str
) -> None:
    with pytest.raises(InvalidOptionError, match=match):
        make_table(tmp_path, columns=COLUMNS, options=options)


def test_altered_options_are_checked_as_new_ones(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, columns=COLUMNS)
    with pytest.raises(InvalidOptionError, match="'s' is defined repeatedly"):
        table.alter([SetOption("sequence.field", "s,s")])
    assert table.alter([SetOption("sequence.field", "s")]).options.sequence_field == ("s",)


def test_the_kind_comes_from_the_column(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=(("k", "INT"), ("op", "STRING")),
        options={"rowkind.field": "op", "ignore-update-before": "true"},
    )
    write(table, 1, [("-D", 1, "+I"), ("+I", 2, "+U"), ("+I", 3, "+I")])
    write(table, 2, [("+I", 2, "-D"), ("+I", 3, "-U")])
    assert rows_of(table) == [(1, "+I"), (3, "+I")]


@pytest.mark.parametrize(
    ("kind", "match"),
    [(None, "Row kind cannot be null"), ("+X", "Unsupported short string '.X' for row kind")],
)
def test_other_texts_are_no_kinds(tmp_path: pathlib.Path, kind: str | None, match: str) -> None:
    table = make_table(
        tmp_path, columns=(("k", "INT"), ("op", "STRING")), options={"rowkind.field": "op"}
    )
    with pytest.raises(InvalidRequestError, match=match):
        write(table, 1, [("+I", 1, kind)])


def test_texts_of_kinds_may_be_in_lower_case(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, columns=(("k", "INT"), ("op", "STRING")), options={"rowkind.field": "op"}
    )
    write(table, 1, [("+I", 1, "+i"), ("+I", 2, "+u")])
    write(table, 2, [("+I", 1, "-d")])
    assert rows_of(table) == [(2, "+u")]


@pytest.mark.parametrize("prefix", ["", "deduplicate.", "first-row.", "partial-update."])
def test_older_spellings_of_ignore_delete(tmp_path: pathlib.Path, prefix: str) -> None:
    table = make_table(tmp_path, options={f"{prefix}ignore-delete": "true"})
    write(table, 1, [("+I", 1, "a"), ("-D", 1, "a"), ("-U", 1, "a")])
    assert rows_of(table) == [(1, "a")]


def test_ranks_are_dense_and_put_nulls_first() -> None:
    one = pa.array([5, None, 5, -1])
    other = pa.array(["b", "a", "a", None])
    assert dense_ranks([one]).tolist() == [2, 0, 2, 1]
    assert dense_ranks([one, other]).tolist() == [3, 0, 2, 1]


def test_words_of_equal_rows_compare_equal() -> None:
    batch = pa.RecordBatch.from_pydict({"s": pa.array([7, 7, 7])})
    assert SequenceOrder(("s",)).words(batch) == []
