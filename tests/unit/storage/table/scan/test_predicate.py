# SPDX-License-Identifier: Apache-2.0
import datetime
import decimal
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import InvalidRequestError
from storage.format.row.row_codec import Timestamp
from storage.table.scan.predicate import (
    And,
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    Range,
    columns_of,
    conjuncts,
    could_match,
    mask,
    parse_predicate,
    row_value,
)
from tests.predicates import combined, compares

TIME = datetime.datetime(2024, 5, 14, 12, 0, 0, 123456)  # noqa: DTZ001 - TIMESTAMP has no zone
EARLY = datetime.datetime(1969, 12, 31)  # noqa: DTZ001
BATCH = pa.RecordBatch.from_pydict(
    {
        "i": pa.array([1, 2, None, 4], pa.int8()),
        "l": pa.array([2**53, 2**53 + 1, None, -1], pa.int64()),
        "s": pa.array(["a", "bb", None, ""], pa.string()),
        "f": pa.array([1.5, math.nan, None, -0.0], pa.float64()),
        "d": pa.array(
            [decimal.Decimal("1.50"), decimal.Decimal("-2.00"), None, decimal.Decimal(0)],
            pa.decimal128(10, 2),
        ),
        "b": pa.array([True, False, None, True], pa.bool_()),
        "day": pa.array([datetime.date(2024, 5, 14), None, datetime.date(1970, 1, 1), None]),
        "t": pa.array([TIME, None, None, EARLY], pa.timestamp("us")),
        "z": pa.array([TIME, None, None, TIME], pa.timestamp("ms", tz="UTC")),
        "y": pa.array([b"\x00", b"\xff", None, b""], pa.binary()),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("i = 2", [1]),
        ("i <> 2", [0, 3]),
        ("i != 2", [0, 3]),
        ("i > 1 and i <= 4", [1, 3]),
        ("i in (1, 4)", [0, 3]),
        ("i not in (1, 4)", [1]),
        ("i not in (1, null)", []),
        ("i in (1, null)", [0]),
        ("i between 2 and 4", [1, 3]),
        ("i not between 2 and 4", [0]),
        ("not i = 2", [0, 3]),
        ("i is null", [2]),
        ("i is not null", [0, 1, 3]),
        ("i = null", []),
        ("i = 1000", []),
        ("i < 1000", [0, 1, 3]),
        ("i > 1.5", [1, 3]),
        ("i = 2.0", [1]),
        ("l = 9007199254740993", [1]),
        ("l > 9007199254740992.5", [1]),
        ("s = 'a' or s = ''", [0, 3]),
        ("s > 'a'", [1]),
        ("s like '_b%'", [1]),
        ("s not like 'b%'", [0, 3]),
        ("s = 'it''s'", []),
        ("f = 1.5", [0]),
        ("f > 1", [0, 1]),
        ("f = 0", [3]),
        ("f <= 0", [3]),
        ("d = 1.5", [0]),
        ("d < 1", [1, 3]),
        ("d > 1.499", [0]),
        ("d = 1.501", []),
        ("b = true", [0, 3]),
        ("b <> true", [1]),
        ("day = date '2024-05-14'", [0]),
        ("day < '2000-01-01'", [2]),
        ("t >= timestamp '2024-05-14 12:00:00'", [0]),
        ("t < timestamp '1970-01-01 00:00:00'", [3]),
        ('`i` = 1 AND ("s" IS NOT NULL OR i = 4)', [0]),
        ("not (i = 1 or i = 2)", [3]),
        ("(i = 1 or s is null) and not i = 4", [0]),
        ("2 <= i", [1, 3]),
        ("1 = (i)", [0]),
        ("y = X'ff'", [1]),
        ("i > -1", [0, 1, 3]),
    ],
)
def test_rows_for_which_a_filter_is_true(text: str, rows: list[int]) -> None:
    found = mask(parse_predicate(text), BATCH).to_pylist()
    assert [index for index, wanted in enumerate(found) if wanted] == rows


def test_nan_equals_itself_and_is_the_greatest() -> None:
    expected = {
        Op.EQ: [1],
        Op.NE: [0, 3],
        Op.LT: [0, 3],
        Op.LE: [0, 1, 3],
        Op.GT: [],
        Op.GE: [1],
    }
    for op, rows in expected.items():
        found = mask(Compare(op, "f", math.nan), BATCH).to_pylist()
        assert [index for index, wanted in enumerate(found) if wanted] == rows, op


def test_bytes_and_python_values_are_literals() -> None:
    assert mask(Compare(Op.EQ, "y", b"\xff"), BATCH).to_pylist() == [False, True, False, False]
    day = Compare(Op.EQ, "day", datetime.date(1970, 1, 1))
    assert mask(day, BATCH).to_pylist() == [False, False, True, False]
    utc = TIME.replace(tzinfo=datetime.UTC, microsecond=123000)
    assert mask(Compare(Op.EQ, "z", utc), BATCH).to_pylist() == [True, False, False, True]


@pytest.mark.parametrize(
    "text",
    ["i = 'x'", "missing = 1", "b = 1", "s = 5", "day = 'never'", "i < 1e400", "i in (1, 1e400)"],
)
def test_a_filter_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        mask(parse_predicate(text), BATCH)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "i",
        "i =",
        "= 5",
        "i = 5 and",
        "(i = 5",
        "i = 5)",
        "i in ()",
        "i in 5",
        "i is 5",
        "i not 5",
        "i between 1",
        "i = 'x",
        "i ; drop",
        "and = 1",
        "i = b",
        "i + 1 = 2",
        "upper(s) = 'A'",
        "i <=> 1",
        "s ilike 'a'",
        "i in (1, b)",
        "day > interval '1' day",
        "not " * 3_000 + "i = 1",
    ],
)
def test_text_that_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be parsed"):
        parse_predicate(text)


def test_structure_of_a_predicate() -> None:
    predicate = parse_predicate("a = 1 and (b = 2 or not c is null) and d like 'x%'")
    assert columns_of(predicate) == {"a", "b", "c", "d"}
    assert conjuncts(predicate) == (
        Compare(Op.EQ, "a", 1),
        Or((Compare(Op.EQ, "b", 2), Not(IsNull("c")))),
        Like("d", "x%"),
    )
    assert conjuncts(None) == ()


def test_chains_and_numbers_may_be_long() -> None:
    digits = "9" * 5_000
    assert parse_predicate(f"i < {digits}") == Compare(Op.LT, "i", decimal.Decimal(digits))
    assert mask(parse_predicate(f"f < {digits}"), BATCH).to_pylist() == [True, False, False, True]
    predicate = parse_predicate(" or ".join(f"i = {number}" for number in range(5_000)))
    assert predicate == Or(tuple(Compare(Op.EQ, "i", number) for number in range(5_000)))


NUMBERS = st.one_of(st.none(), st.integers(-3, 3))


def predicates(literals: st.SearchStrategy[Any]) -> st.SearchStrategy[Predicate]:
    leaf = st.one_of(
        st.builds(Compare, st.sampled_from(Op), st.sampled_from(["x", "y"]), literals),
        st.builds(In, st.just("x"), st.lists(literals, min_size=1, max_size=3).map(tuple)),
        st.builds(Between, st.just("y"), literals, literals),
        st.builds(IsNull, st.sampled_from(["x", "y"])),
    )
    return combined(leaf, max_leaves=6)


def truth(predicate: Predicate, row: dict[str, Any]) -> bool | None:
    """Three-valued logic, one row at a time."""
    match predicate:
        case And(parts):
            values = [truth(part, row) for part in parts]
            return False if False in values else None if None in values else True
        case Or(parts):
            values = [truth(part, row) for part in parts]
            return True if True in values else None if None in values else False
        case Not(part):
            value = truth(part, row)
            return None if value is None else not value
        case IsNull(column):
            return row[column] is None
        case In(column, literals):
            return truth(Or(tuple(Compare(Op.EQ, column, one) for one in literals)), row)
        case Between(column, low, high):
            return truth(And((Compare(Op.GE, column, low), Compare(Op.LE, column, high))), row)
        case Compare(op, column, literal):
            left = row[column]
            if left is None or literal is None:
                return None
            return compares(op, left, literal)
    raise AssertionError(predicate)


@given(predicates(NUMBERS), st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8))
def test_evaluation_and_pruning_agree_with_the_logic_row_by_row(
    predicate: Predicate, rows: list[tuple[int | None, int | None]]
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "x": pa.array([x for x, _ in rows], pa.int32()),
            "y": pa.array([y for _, y in rows], pa.int32()),
        }
    )
    expected = [truth(predicate, {"x": x, "y": y}) is True for x, y in rows]
    assert mask(predicate, batch).to_pylist() == expected
    ranges = {}
    for name, values in (("x", [x for x, _ in rows]), ("y", [y for _, y in rows])):
        present = [value for value in values if value is not None]
        ranges[name] = Range(
            low=min(present, default=None),
            high=max(present, default=None),
            null_count=len(values) - len(present),
            row_count=len(values),
        )
    types = {"x": pa.int32(), "y": pa.int32()}
    if not could_match(predicate, ranges.get, types):
        assert not any(expected)
    assert could_match(predicate, lambda _: None, types) or not any(expected)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("t = '1970-01-01 00:00:00.000001'", True),
        ("t < '1970-01-01'", False),
        ("t > '1970-01-01 00:00:01'", True),
        ("t > '1970-01-01 00:00:02'", False),
        ("t is null", False),
        ("f = 5", True),
        ("s >= 'b'", True),
        ("s = 'zz'", False),
        ("s <> 'b'", True),
        ("s = 'a' or t < '1960-01-01'", False),
        ("n = 1", False),
        ("n is not null", False),
        ("n is null", True),
        ("unknown = 1", True),
        ("s like 'zz%'", True),
    ],
)
def test_pruning_by_ranges(text: str, matches: bool) -> None:
    known = {
        "t": Range(low=Timestamp(0, 1000), high=Timestamp(2000, 0), null_count=0, row_count=9),
        "f": Range(low=1.0, high=2.0, null_count=0, row_count=9),  # NaN may hide
        "s": Range(low="b", high="c", null_count=None, row_count=9),
        "n": Range(null_count=9, row_count=9),
    }
    types = {
        "t": pa.timestamp("us"),
        "f": pa.float64(),
        "s": pa.string(),
        "n": pa.int32(),
    }
    assert could_match(parse_predicate(text), known.get, types) == matches


def test_row_value_is_the_form_of_decoded_rows() -> None:
    assert row_value(pa.scalar(TIME, pa.timestamp("us"))).nanos_of_milli == 456_000
    before = pa.scalar(-1, pa.timestamp("ns"))
    assert row_value(before) == Timestamp(-1, 999_999)
    assert row_value(pa.scalar(datetime.date(1970, 1, 3))) == 2
    assert row_value(pa.scalar(5_000, pa.time32("ms"))) == 5_000


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        (r"C:\\dir%", [0]),
        (r"%\\a", [1]),
        (r"%\%%", [2]),
        (r"a\_b", [3]),
        (r"%\\%", [0, 1]),
        ("a_b", [3, 4]),
    ],
)
def test_a_backslash_makes_the_next_letter_of_a_pattern_plain(
    pattern: str, rows: list[int]
) -> None:
    batch = pa.record_batch({"s": ["C:\\dir\\x\n", "y\\a", "50%", "a_b", "a\nb"]})
    found = mask(Like("s", pattern), batch).to_pylist()
    assert [index for index, wanted in enumerate(found) if wanted] == rows
