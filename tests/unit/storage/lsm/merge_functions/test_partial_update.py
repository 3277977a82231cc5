# SPDX-License-Identifier: Apache-2.0
"""The partial-update merge engine; its plain cases are in tests/conformance/cases."""

import pathlib
import pickle
from typing import Any

import pytest

from storage.errors import InvalidOptionError, InvalidRequestError
from storage.lsm.merge_functions import merge_function_for
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, rows_of, write

COLUMNS = (("k", "INT"), ("a", "INT"), ("g", "INT"), ("b", "INT"), ("h", "INT"), ("c", "STRING"))
GROUPS = {"fields.g.sequence-group": "a,b", "fields.h.sequence-group": "c"}
REMOVE_ON = "partial-update.remove-record-on-sequence-group"


def partial(root: pathlib.Path, options: dict[str, str] | None = None) -> FileStoreTable:
    return make_table(
        root, columns=COLUMNS, options={"merge-engine": "partial-update", **(options or {})}
    )


def after(table: FileStoreTable, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """What is read when the rows meet in the buffer; the same must come of separate commits."""
    write(table, 1, rows)
    return rows_of(table)


def test_a_lone_delete_passes_and_one_that_meets_another_row_names_its_key(
    tmp_path: pathlib.Path,
) -> None:
    table = partial(tmp_path)
    write(table, 1, [("-D", 1, 1, 1, 1, 1, "x")], compaction=False)
    assert rows_of(table) == []
    message = "can not accept delete records key=`k=1` table=.*remove-record-on-delete"
    with pytest.raises(InvalidRequestError, match=message):
        write(table, 2, [("+I", 2, 1, 1, 1, 1, "x"), ("+I", 1, 1, 1, 1, 1, "x")], full=True)
    assert table.snapshots.latest_id() == 1


def test_remove_record_on_delete_starts_the_key_anew_with_the_deleted_values(
    tmp_path: pathlib.Path,
) -> None:
    table = partial(tmp_path, {"partial-update.remove-record-on-delete": "true"})
    first, second = (1, 1, 2, 3, 4, "x"), (1, None, None, 9, None, None)
    assert after(table, ("+I", *first), ("-D", *second)) == []
    rows = [("+I", *first), ("-D", *second), ("+I", 1, 7, None, None, None, None)]
    write(table, 2, rows)
    assert rows_of(table) == [(1, 7, None, 9, None, None)]
    write(table, 3, [("-U", 1, 5, 5, 5, 5, "u")])
    assert rows_of(table) == [(1, 7, None, 9, None, None)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # equal order counts as newer, and nulls are taken over
        ([("+I", 1, 1, 2, 1, 1, "x"), ("+I", 1, None, 2, 5, 0, "y")], (1, None, 2, 5, 1, "x")),
        # taking back sets to null; a first retraction starts with its values
        ([("+I", 1, 1, 2, 1, 1, "x"), ("-U", 1, 1, 1, 1, 1, "x")], (1, 1, 2, 1, 1, None)),
        (
            [("-D", 1, 1, 2, 1, None, "x"), ("+I", 1, 5, 1, 5, None, None)],
            (1, None, 2, None, None, "x"),
        ),
    ],
)
def test_sequence_groups(
    tmp_path: pathlib.Path, rows: list[tuple[Any, ...]], expected: tuple[Any, ...]
) -> None:
    assert after(partial(tmp_path, GROUPS), *rows) == [expected]


@pytest.mark.parametrize(
    ("function", "rows", "expected"),
    [
        ("max", [("+I", 5, 2), ("+I", 7, 1)], 7),
        ("first_non_null_value", [("+I", None, 2), ("+I", 7, 3)], 7),
        ("last_non_null_value", [("+I", 5, 2), ("+I", None, 3)], 5),
        ("last_non_null_value", [("+I", None, 2), ("+I", 7, 1)], 7),
        ("last_non_null_value", [("+I", 5, 2), ("-D", 1, 2), ("+I", 6, 1)], 6),
    ],
)
def test_functions_inside_groups(
    tmp_path: pathlib.Path, function: str, rows: list[tuple[Any, ...]], expected: int
) -> None:
    table = partial(tmp_path, {**GROUPS, "fields.a.aggregate-function": function})
    changes = [(kind, 1, a, g, 0, None, None) for kind, a, g in rows]
    assert [row[1] for row in after(table, *changes)] == [expected]


def test_late_texts_come_first_in_a_list(tmp_path: pathlib.Path) -> None:
    table = partial(tmp_path, {**GROUPS, "fields.c.aggregate-function": "listagg"})
    write(table, 1, [("+I", 1, 0, 0, 0, h, c) for h, c in ((5, "a"), (4, "b"), (6, "c"), (1, "d"))])
    assert rows_of(table) == [(1, 0, 0, 0, 6, "d,b,a,c")]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # a late blank finds nothing and stays; the next late one finds a blank and takes over
        ([("+I", 5, " "), ("+I", 4, "  ")], "  "),
        ([("+I", 5, None), ("+I", 4, " "), ("+I", 3, "")], ""),
        ([("+I", 5, " "), ("+I", 4, " "), ("+I", 3, None)], None),
        ([("+I", 5, None), ("+I", 4, " "), ("+I", 6, " "), ("-U", 7, "x")], " "),
        ([("+I", 5, None), ("+I", 4, " "), ("+I", 6, "a")], "a"),
        # what a first -D leaves is blank until a late row comes
        ([("-D", 5, " "), ("+I", 6, None)], " "),
        ([("-D", 5, " "), ("+I", 4, None)], None),
    ],
)
def test_late_blanks_in_a_list(
    tmp_path: pathlib.Path, rows: list[tuple[Any, ...]], expected: str | None
) -> None:
    options = {"fields.c.aggregate-function": "listagg", "fields.c.ignore-retract": "true"}
    changes = [(kind, 1, 0, 0, 0, h, c) for kind, h, c in rows]
    found = after(partial(tmp_path, {**GROUPS, **options}), *changes)
    assert [row[5] for row in found] == [expected]


@pytest.mark.parametrize(
    ("options", "rows", "expected"),
    [
        # two equal nested keys stay when they come late and find nothing, until others come
        ({"nested-key": "a"}, [("+I", 5, None), ("+I", 4, [(1, 1), (1, 2)])], [(1, 1), (1, 2)]),
        (
            {"nested-key": "a"},
            [("+I", 5, None), ("+I", 4, [(1, 1), (1, 2)]), ("+I", 3, None)],
            [(1, 2)],
        ),
        (
            {"nested-key": "a"},
            [("+I", 5, None), ("+I", 4, [(1, 1), (1, 2)]), ("+I", 6, [(2, 3)])],
            [(1, 2), (2, 3)],
        ),
        # no limit for what was there first, or comes late
        (
            {"count-limit": "2"},
            [("+I", 5, [(1, 1)]), ("+I", 4, [(2, 1), (2, 2), (2, 3)]), ("+I", 6, [(3, 1)])],
            [(2, 1), (2, 2), (2, 3)],
        ),
        (
            {"count-limit": "2", "ignore-retract": "true"},
            [("-D", 5, [(1, 1), (1, 2), (1, 3)]), ("+I", 6, [(2, 1)])],
            [(1, 1), (1, 2), (1, 3)],
        ),
        (
            {"count-limit": "2"},
            [("+I", 5, [(1, 1), (1, 2)]), ("+I", 4, [(2, 1)]), ("+I", 6, [(3, 1)])],
            [(2, 1), (1, 1)],
        ),
    ],
)
def test_late_nested_rows(
    tmp_path: pathlib.Path,
    options: dict[str, str],
    rows: list[tuple[Any, ...]],
    expected: list[tuple[int, int]],
) -> None:
    element = {"type": "ROW", "fields": [_member(0, "a"), _member(1, "b")]}
    nested: Any = {"type": "ARRAY", "element": element}
    table = make_table(
        tmp_path,
        columns=(("k", "INT"), ("g", "INT"), ("v", nested)),
        options={
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "nested_update",
            **{f"fields.v.{name}": value for name, value in options.items()},
        },
    )
    changes = [
        (kind, 1, g, None if found is None else [{"a": a, "b": b} for a, b in found])
        for kind, g, found in rows
    ]
    write(table, 1, changes)
    (row,) = table.to_arrow().to_pylist()
    assert [(each["a"], each["b"]) for each in row["v"]] == expected


def _member(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "type": "INT"}


def test_late_arrays_come_first_where_rows_that_take_back_are_passed_over(
    tmp_path: pathlib.Path,
) -> None:
    options = {
        "merge-engine": "partial-update",
        "fields.g.sequence-group": "v",
        "fields.v.aggregate-function": "collect",
    }
    columns = (("k", "INT"), ("g", "INT"), ("v", {"type": "ARRAY", "element": "INT"}))
    rows = [("+I", 1, 5, [1]), ("+I", 1, 4, [2]), ("+I", 1, 6, [3])]
    for name, expected in (("false", [1, 2, 3]), ("true", [2, 1, 3])):
        table = make_table(
            tmp_path / name, columns=columns, options={**options, "fields.v.ignore-retract": name}
        )
        write(table, 1, rows)
        assert [row["v"] for row in table.to_arrow().to_pylist()] == [expected]


def test_a_late_map_that_removed_an_entry_is_not_asked_again(tmp_path: pathlib.Path) -> None:
    value = {"type": "ROW", "fields": [_member(0, "x"), {**_member(1, "t"), "type": "STRING"}]}
    map_type: Any = {"type": "MAP", "key": "INT NOT NULL", "value": value}
    table = make_table(
        tmp_path,
        columns=(("k", "INT"), ("g", "INT"), ("v", map_type)),
        options={
            "merge-engine": "partial-update",
            "fields.g.sequence-group": "v",
            "fields.v.aggregate-function": "merge_map_with_keytime",
        },
    )
    entries = [
        (5, [(1, None), (2, {"x": 1, "t": "2"})]),
        (4, [(1, {"x": 2, "t": "3"})]),
        (3, [(1, {"x": 3, "t": "1"})]),
    ]
    for number, (order, entry) in enumerate(entries, start=1):
        write(table, number, [("+I", 1, order, entry)], compaction=False)
    (row,) = table.to_arrow().to_pylist()
    assert dict(row["v"]) == {1: {"x": 3, "t": "1"}, 2: {"x": 1, "t": "2"}}


def test_a_late_map_fills_what_was_taken_back_before_it_came(tmp_path: pathlib.Path) -> None:
    options = {"merge-engine": "partial-update", "fields.g.sequence-group": "m"}
    map_type: Any = {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}
    table = make_table(
        tmp_path,
        columns=(("k", "INT"), ("g", "INT"), ("m", map_type)),
        options={**options, "fields.m.aggregate-function": "merge_map"},
    )
    rows: list[tuple[Any, ...]] = [
        ("+I", 1, 5, [("a", 1), ("b", 1)]),
        ("+I", 1, 4, [("b", 4), ("c", 4)]),
        ("-D", 1, 5, [("a", 1), ("c", 0)]),
        ("+I", 1, 3, [("a", 3), ("b", 3)]),
        ("+I", 1, 2, [("a", 2), ("d", 2)]),
        ("+I", 2, 1, [("x", 1)]),
        ("+I", 2, 0, [("x", 0), ("y", 0)]),
    ]
    write(table, 1, rows)
    found = {row["k"]: dict(row["m"]) for row in table.to_arrow().to_pylist()}
    assert found == {1: {"a": 3, "b": 1, "d": 2}, 2: {"x": 1, "y": 0}}


def test_a_function_that_cannot_take_back_says_so(tmp_path: pathlib.Path) -> None:
    options = {**GROUPS, "fields.a.aggregate-function": "max"}
    rows = [("+I", 1, 5, 1, 0, 0, "x"), ("-D", 1, 5, 2, 0, 0, "x")]
    with pytest.raises(InvalidRequestError, match=r"'max' does not support retraction.*k=1"):
        after(partial(tmp_path, options), *rows)
    ignoring = partial(tmp_path / "i", {**options, "fields.a.ignore-retract": "true"})
    assert [row[1] for row in after(ignoring, *rows)] == [5]


def test_a_group_may_remove_the_row(tmp_path: pathlib.Path) -> None:
    table = partial(tmp_path, {**GROUPS, REMOVE_ON: "g"})
    start = ("+I", 1, 1, 2, 1, 1, "x")
    assert after(table, start, ("-D", 1, 1, 1, 1, 2, "y")) == [(1, 1, 2, 1, 2, None)]
    write(table, 2, [("-D", 1, 8, 2, 8, 0, "z")])
    assert rows_of(table) == []
    write(table, 3, [("+I", 1, 5, 3, None, None, None)], full=True)
    # what the removing row held is there again where the two meet in one merge
    assert rows_of(table) == [(1, 5, 3, None, 0, "z")]


def test_an_update_before_never_removes(tmp_path: pathlib.Path) -> None:
    table = partial(tmp_path, {**GROUPS, REMOVE_ON: "g"})
    found = after(table, ("+I", 1, 1, 2, 1, 1, "x"), ("-U", 1, 1, 3, 1, None, "x"))
    assert found == [(1, None, 3, None, 1, "x")]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"fields.nope.sequence-group": "a"}, "Field nope can not be found in table schema"),
        ({"fields.g.sequence-group": "k"}, "Primary key columns cannot be put in sequence-group"),
        ({"fields.default-aggregate-function": "max"}, "Must use sequence group for aggregation"),
        (
            {"ignore-delete": "true", "partial-update.remove-record-on-delete": "true"},
            "have conflicting behavior",
        ),
        ({**GROUPS, REMOVE_ON: "a"}, "must be part of sequence groups"),
        ({**GROUPS, "fields.a.aggregate-function": "guess"}, "guess"),
    ],
)
def test_what_contradicts_itself_is_refused_at_creation(
    tmp_path: pathlib.Path, options: dict[str, str], match: str
) -> None:
    with pytest.raises(InvalidOptionError, match=match):
        partial(tmp_path, options)


def test_functions_pickle(tmp_path: pathlib.Path) -> None:
    table = partial(tmp_path, {**GROUPS, "fields.a.aggregate-function": "sum"})
    function = merge_function_for(table.options, table.schema)
    assert pickle.loads(pickle.dumps(function)) == function


def test_a_blank_text_that_a_retraction_brought_stays(tmp_path: pathlib.Path) -> None:
    """A first -U sets all columns as they are; `listagg` passes over blanks only after that."""
    function = {"fields.c.aggregate-function": "listagg", "fields.c.ignore-retract": "true"}
    rows = ("-U", 1, 1, 1, 1, None, " "), ("+U", 1, 2, 2, 2, 5, " ")
    assert after(partial(tmp_path, GROUPS | function), *rows) == [(1, 2, 2, 2, 5, " ")]
