# SPDX-License-Identifier: Apache-2.0
"""SQL expressions: types, values, rows that fail, and what is refused where."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from ingest.transform.functions.time_functions import date_pattern
from ingest.transform.reference_page import PAGE, reference_page
from ingest.transform.rules import FUNCTIONS
from storage.errors import InvalidRequestError
from storage.format.types.types import ArrayType, arrow_type, parse_type, type_name
from storage.table.scan.expression_text import parse_expression
from tests.unit.ingest.transform.evaluation import Expression, result_type

COLUMNS = {
    "id": "BIGINT",
    "qty": "INT",
    "tiny": "TINYINT",
    "status": "STRING",
    "price": "DECIMAL(10, 2)",
    "huge": "DECIMAL(38, 0)",
    "ratio": "DOUBLE",
    "f": "FLOAT",
    "ok": "BOOLEAN",
    "day": "DATE",
    "t": "TIME(3)",
    "at": "TIMESTAMP(6)",
    "at9": "TIMESTAMP(9)",
    "z": "TIMESTAMP_LTZ(3)",
    "blob": "BYTES",
    "text": "STRING",
    "epoch": "BIGINT",
    "order": "INT",
}
TYPES = {name: parse_type(text) for name, text in COLUMNS.items()}
TYPES["tags"] = ArrayType(parse_type("INT"))


def wall(text):
    return dt.datetime.fromisoformat(text)


def instant(text):
    return wall(text).replace(tzinfo=dt.UTC)


def evaluated(expression, /, zone="UTC", now_ms=0, **values):
    """The expression over columns; those that are not given are null."""
    count = max((len(column) for column in values.values()), default=1)
    arrays = [
        pa.array(values.get(name, [None] * count), arrow_type(type_))
        for name, type_ in TYPES.items()
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(TYPES))
    expression = Expression.plan(expression, TYPES, zone)
    found = expression.evaluate(batch, now_ms)
    assert found.values.type == arrow_type(expression.type)
    assert len(found.failed) == len(found.reasons)
    return found


def values(expression, /, **columns):
    found = evaluated(expression, **columns)
    assert not len(found.failed), found.reasons
    return found.values.to_pylist()


def failed(expression, /, **columns):
    return evaluated(expression, **columns).failed.tolist()


class TestLogic:
    def test_three_valued_logic(self):
        truth = {"ok": [True, False, None]}
        assert values("ok AND NULL", **truth) == [None, False, None]
        assert values("ok OR NULL", **truth) == [True, None, None]
        assert values("NOT ok", **truth) == [False, True, None]
        assert values("ok IS TRUE", **truth) == [True, False, False]
        assert values("ok IS NOT FALSE", **truth) == [True, False, True]
        assert values("ok IS DISTINCT FROM true", **truth) == [False, True, True]
        assert values("ok <=> NULL", **truth) == [False, False, True]

    def test_what_is_not_needed_does_not_fail(self):
        qty = {"qty": [0, 4, None]}
        assert values("qty <> 0 AND 10 DIV qty > 2", **qty) == [False, False, None]
        assert values("qty = 0 OR 10 DIV qty > 1", **qty) == [True, True, None]
        assert values("CASE WHEN qty = 0 THEN -1 ELSE 8 DIV qty END", **qty) == [-1, 2, None]
        assert values("if(qty = 0, 0, 8 DIV qty)", **qty) == [0, 2, None]
        assert values("coalesce(nullif(qty, 0), 1 DIV (id - 1))", qty=[5], id=[1]) == [5]
        assert failed("10 DIV qty > 2 AND qty <> 0", **qty) == [0]
        assert failed("coalesce(10 DIV qty, 5)", **qty) == [0]

    def test_a_simple_case_and_one_without_else(self):
        columns = {"status": ["a", "b", None]}
        text = "CASE status WHEN 'a' THEN 1 WHEN 'b' THEN 2.5 END"
        assert values(text, **columns) == [Decimal("1.0"), Decimal("2.5"), None]
        assert type_name(result_type(text, TYPES)) == "DECIMAL(11, 1)"

    def test_in_and_between(self):
        columns = {"qty": [1, 2, None]}
        assert values("qty IN (2, 3)", **columns) == [False, True, None]
        assert values("qty NOT IN (2, NULL)", **columns) == [None, False, None]
        assert values("qty IN (1.0, 9999999999)", **columns) == [True, False, None]
        assert values("qty BETWEEN 2 AND 3", **columns) == [False, True, None]
        assert values("status IN ('ä', '')", status=["ä", "", "a"]) == [True, True, False]


class TestNumbers:
    def test_decimals_are_exact(self):
        columns = {"price": [Decimal("0.10"), Decimal("99999999.99"), None]}
        assert values("price + 0.2", **columns) == [Decimal("0.30"), Decimal("100000000.19"), None]
        assert values("price * price", **columns)[1] == Decimal("9999999998000000.0001")
        assert values("price * 3 = 0.3", **columns) == [True, False, None]
        assert values("huge + 1", huge=[Decimal(10**37)]) == [Decimal(10**37 + 1)]

    @pytest.mark.parametrize(
        ("text", "type_"),
        [
            ("tiny + tiny", "INT"),
            ("qty + id", "BIGINT"),
            ("price + qty", "DECIMAL(13, 2)"),
            ("price * price", "DECIMAL(20, 4)"),
            ("price / 3", "DECIMAL(14, 6)"),
            ("price % 7", "DECIMAL(3, 2)"),
            ("price + ratio", "DOUBLE"),
            ("f * f", "DOUBLE"),
            ("-price", "DECIMAL(10, 2)"),
            ("round(price, 1)", "DECIMAL(10, 1)"),
            ("1e3", "DOUBLE"),
            ("9223372036854775808", "DECIMAL(19, 0)"),
            ("-9223372036854775808", "BIGINT"),
        ],
    )
    def test_types_of_results(self, text, type_):
        assert type_name(result_type(text, TYPES)) == type_

    def test_a_quotient_is_rounded_half_up(self):
        assert values("price / 3", price=[Decimal("2.00"), Decimal("-2.00")]) == [
            Decimal("0.666667"),
            Decimal("-0.666667"),
        ]

    def test_division_of_wide_decimals_is_exact(self):
        one, other = Decimal("9223372036854775807"), Decimal("-99999999999999999999")
        wide = {"huge": [one * 10**19, other], "price": [Decimal("1.00"), None]}
        assert values("huge DIV 99999999999999999999", **wide)[0] == one * 10**19 // abs(other)
        assert values("huge % 99999999999999999999", **wide)[0] == one * 10**19 % abs(other)

    @pytest.mark.parametrize(
        ("text", "column", "reason"),
        [
            ("id + 1", {"id": [1, 2**63 - 1]}, "out of range in `id + 1`"),
            ("id * id", {"id": [3, 2**32]}, "out of range"),
            ("id - -1", {"id": [0, 2**63 - 1]}, "out of range"),
            ("-tiny", {"tiny": [1, -128]}, "out of range"),
            ("1 DIV qty", {"qty": [1, 0]}, "division by zero in `1 DIV qty`"),
            ("price / qty", {"qty": [1, 0], "price": [Decimal(1)] * 2}, "division by zero"),
            ("ratio / 0e0", {"ratio": [None, 1.0]}, "division by zero"),
            ("ratio * 10", {"ratio": [1.0, 1e308]}, "out of range"),
            ("ratio DIV 1e-10", {"ratio": [1.0, 1e308]}, "out of range"),
            ("at9 + INTERVAL '1' YEAR", {"at9": [None, wall("2262-01-01")]}, "no result"),
            ("at9 - INTERVAL '1' YEAR", {"at9": [None, wall("1678-01-01")]}, "no result"),
            ("huge * 10", {"huge": [Decimal(1), Decimal(10**37)]}, "out of range"),
            ("CAST(id AS INT)", {"id": [1, 2**31]}, "out of the range of INT"),
            ("CAST(ratio AS BIGINT)", {"ratio": [-1.9, float("nan")]}, "out of the range"),
            ("CAST(ratio AS DECIMAL(5, 2))", {"ratio": [1.5, 1e9]}, "not a value of DECIMAL(5, 2)"),
            ("CAST(text AS INT)", {"text": ["7", "x"]}, "not a value of INT"),
            ("CAST(text AS DATE)", {"text": ["2024-02-29", "2023-02-29"]}, "not a value of DATE"),
            ("CAST(blob AS STRING)", {"blob": [b"a", b"\xff"]}, "not a value of STRING"),
            ("CAST(at AS TIMESTAMP(9))", {"at": [None, wall("9999-01-01")]}, "TIMESTAMP(9)"),
            ("substring(text, 0, 3)", {"text": ["abc", "ab"]}, "too short"),
        ],
    )
    def test_only_the_row_that_has_no_result_fails(self, text, column, reason):
        found = evaluated(text, **column)
        assert found.failed.tolist() == [1]
        assert reason in found.reasons[0]
        assert found.values[1].as_py() is None
        assert values(f"({text}) IS NULL", **{k: v[:1] for k, v in column.items()}) is not None

    def test_try_cast_gives_null(self):
        assert values("TRY_CAST(text AS INT)", text=["7", "x", None]) == [7, None, None]

    def test_casts_of_many_bad_values_stay_vectorised(self):
        found = evaluated("CAST(text AS DECIMAL(9, 2))", text=["1.5", "x", ""] * 20_000)
        assert len(found.failed) == 40_000

    def test_nan_is_the_greatest_number_and_equal_to_itself(self):
        nan = {"ratio": [float("nan"), float("inf"), None]}
        assert values("ratio = ratio", **nan) == [True, True, None]
        assert values("ratio > 1e308", **nan) == [True, True, None]
        assert values("greatest(ratio, 1e0) = ratio", **nan) == [True, True, None]

    def test_large_integers_compare_exactly_with_decimals(self):
        assert values("id > 9223372036854775806.5", id=[2**63 - 1, 2**63 - 2]) == [True, False]

    def test_large_integers_are_rounded_beside_floating_numbers(self):
        columns = {"id": [2**53 + 1, 1], "ratio": [0.5, 1.0]}
        assert values("id > ratio", **columns) == [True, False]
        assert values("id * ratio", **columns) == [2.0**52, 1.0]
        assert values("id % 2e0", **columns) == [0.0, 1.0]

    def test_paimons_truncate(self):
        assert values("truncate(qty, 10)", qty=[17, -17, None]) == [10, -20, None]
        assert values("truncate(price, 50)", price=[Decimal("10.65"), Decimal("-0.01")]) == [
            Decimal("10.50"),
            Decimal("-0.50"),
        ]
        assert values("truncate(text, 2)", text=["äöü"]) == ["äö"]
        assert failed("truncate(tiny, 100)", tiny=[-100, -128]) == [1]
        assert type_name(result_type("truncate(price, 50)", TYPES)) == "DECIMAL(10, 2)"


class TestTexts:
    def test_characters_count_not_bytes(self):
        text = {"text": ["ä😀x", None]}
        assert values("length(text)", **text) == [3, None]
        assert values("octet_length(text)", **text) == [7, None]
        assert values("substring(text, 1)", **text) == ["😀x", None]
        assert values("substring(text, 1, 2)", **text) == ["😀", None]
        assert values("substr(text, 2, 1)", **text) == ["😀", None]
        assert values("right(text, 2)", **text) == ["😀x", None]
        assert values("upper(text)", **text) == ["Ä😀X", None]
        assert values("lpad(text, 4, '.')", **text) == [".ä😀x", None]

    def test_joining(self):
        columns = {"text": ["a", None], "qty": [1, 2]}
        assert values("text || '-' || qty", **columns) == ["a-1", None]
        assert values("concat(text, qty, price)", **columns) == [None, None]
        assert values("concat_ws('-', text, qty)", **columns) == ["a-1", "2"]
        assert values("concat_ws('-', text, status)", **columns) == ["a", ""]

    def test_like(self):
        columns = {"text": ["a%b", "axb", "a\nb", None]}
        assert values("text LIKE 'a_b'", **columns) == [True, True, True, None]
        assert values(r"text LIKE 'a\%b'", **columns) == [True, False, False, None]
        assert values("text LIKE 'a!%b' ESCAPE '!'", **columns) == [True, False, False, None]
        assert values("text NOT LIKE 'a%'", **columns) == [False, False, False, None]
        assert values("text ILIKE 'A%B'", **columns) == [True, True, True, None]
        assert values("text RLIKE '^a.b$'", **columns) == [True, True, False, None]

    def test_like_with_backslashes(self):
        paths = {"text": ["C:\\my dir.d\\a", "C:\\\\my dir.d", "C:my dir.d", None]}
        found = [True, False, False, None]
        assert values(r"text LIKE 'C:\\my dir.d%'", **paths) == found
        assert values(r"text LIKE '%\\a'", **paths) == found
        assert values(r"text ILIKE 'c:\\MY DIR.D%'", **paths) == found
        assert values(r"text LIKE 'C:\my dir.d%' ESCAPE '!'", **paths) == found
        assert values(r"text LIKE 'C:\my dir.d%'", **paths) == [False, False, True, None]

    def test_parts_and_replacing(self):
        text = {"text": ["a,b,,d", "", None]}
        assert values("split_part(text, ',', 2)", **text) == ["b", "", None]
        assert values("split_part(text, ',', 9)", **text) == ["", "", None]
        assert values("replace(text, ',', '')", **text) == ["abd", "", None]
        assert values("regexp_replace(text, '([a-c])', '<$1>')", **text) == ["<a>,<b>,,d", "", None]

    def test_quotes(self):
        assert values("'it''s'") == ["it's"]
        assert values('"order" + `order`', order=[2]) == [4]
        assert values("blob = X'00ff'", blob=[b"\x00\xff", b""]) == [True, False]


class TestTimes:
    def test_parts_of_all_kinds_of_times(self):
        at = {"at": [wall("2024-02-29T13:04:05.123456"), None]}
        for name, wanted in (
            ("year", 2024), ("quarter", 1), ("month", 2), ("week", 9), ("day", 29),
            ("dayofyear", 60), ("hour", 13), ("minute", 4), ("second", 5),
        ):  # fmt: skip
            assert values(f"{name}(at)", **at) == [wanted, None]
        assert values("EXTRACT(MONTH FROM day)", day=[dt.date(1, 12, 31)]) == [12]
        assert values("hour(day)", day=[dt.date(2024, 1, 1)]) == [0]
        assert values("minute(t)", t=[dt.time(1, 59)]) == [59]
        assert values("year(text)", text=["2024-01-02 03:04:05", "1999-12-31"]) == [2024, 1999]

    @pytest.mark.parametrize(
        ("precision", "factor"), [("0", 1), ("3", 10**3), ("6", 10**6), ("9", 10**9)]
    )
    def test_epochs_have_a_precision(self, precision, factor):
        epoch = {"epoch": [1_700_000_000 * factor, -1 * factor, None]}
        wanted = ["2023-11-14 22:13:20", "1969-12-31 23:59:59", None]
        text = f"date_format(epoch, 'yyyy-MM-dd HH:mm:ss', {precision})"
        assert values(text, **epoch) == wanted
        assert values(f"year(epoch, {precision})", **epoch) == [2023, 1969, None]

    def test_epochs_are_seconds_unless_said_and_take_words(self):
        assert values("year(epoch)", epoch=[1_700_000_000]) == [2023]
        assert values("year(epoch, 'millis')", epoch=[1_700_000_000_000]) == [2023]

    def test_instants_are_looked_at_in_the_zone(self):
        z = {"z": [instant("2024-03-31T00:30:00"), instant("2024-03-31T01:30:00")]}
        text = "date_format(z, 'yyyy-MM-dd HH:mm')"
        assert values(text, **z) == ["2024-03-31 00:30", "2024-03-31 01:30"]
        assert values(text, zone="Europe/Berlin", **z) == ["2024-03-31 01:30", "2024-03-31 03:30"]
        assert values(text, zone="America/New_York", **z)[0] == "2024-03-30 20:30"
        assert values("CAST(z AS DATE)", zone="America/New_York", **z)[0] == dt.date(2024, 3, 30)
        assert values("z > '2024-03-31 02:00:00'", zone="Europe/Berlin", **z) == [False, True]

    def test_wall_clocks_become_instants_as_in_java(self):
        text = "CAST(at AS TIMESTAMP_LTZ(3))"
        at = {"at": [wall("2024-10-27T02:30:00"), wall("2024-03-31T02:30:00")]}  # twice, never
        assert values(text, zone="Europe/Berlin", **at) == [
            instant("2024-10-27T00:30:00"),
            instant("2024-03-31T01:30:00"),
        ]

    def test_wall_clocks_have_no_zone(self):
        at = {"at": [wall("2024-01-01T00:00:00")]}
        for zone in ("UTC", "Asia/Tokyo"):
            assert values("date_format(at, 'yyyy-MM-dd HH')", zone=zone, **at) == ["2024-01-01 00"]

    def test_intervals(self):
        assert values("day + INTERVAL '1' MONTH", day=[dt.date(2024, 1, 31)]) == [
            dt.date(2024, 2, 29)
        ]
        assert values("at - INTERVAL 90 SECONDS", at=[wall("2024-01-01T00:01:00")]) == [
            wall("2023-12-31T23:59:30")
        ]
        spring = {"z": [instant("2024-03-30T12:00:00")]}
        assert values("z + INTERVAL '1' DAY", zone="Europe/Berlin", **spring) == [
            instant("2024-03-31T11:00:00")
        ]

    def test_now_is_given(self):
        assert (
            values("now()", now_ms=1_700_000_000_123, qty=[1, 2])
            == [instant("2023-11-14T22:13:20.123")] * 2
        )
        assert type_name(result_type("now()", TYPES)) == "TIMESTAMP(3) WITH LOCAL TIME ZONE"

    def test_other_functions_of_dates(self):
        at = {"at": [wall("2024-05-17T12:00:00")]}
        assert values("date_trunc('month', at)", **at) == [wall("2024-05-01T00:00:00")]
        assert values("date_trunc('week', day)", day=[dt.date(2024, 5, 17)]) == [
            dt.date(2024, 5, 13)
        ]
        assert values("datediff(at, '2024-05-01')", **at) == [16]
        assert values("date_add(at, 3)", **at) == [dt.date(2024, 5, 20)]
        assert values("unix_timestamp(z)", z=[instant("1970-01-01T00:01:00")]) == [60]
        assert values("to_timestamp_ltz(epoch, 3)", epoch=[1]) == [
            instant("1970-01-01T00:00:00.001")
        ]

    def test_texts_become_the_type_they_are_compared_with(self):
        at = {"at": [wall("2024-01-01T00:00:00.000001")]}
        assert values("at > '2024-01-01'", **at) == [True]
        assert values("at = '2024-01-01 00:00:00.000001'", **at) == [True]
        assert values("z = '2024-01-01 00:00:00.0001'", z=[instant("2024-01-01")]) == [False]
        assert values("day IN ('2024-01-01')", day=[dt.date(2024, 1, 1)]) == [True]


class TestDatePatterns:
    COLUMN = pa.array(
        [wall("2024-02-03T00:04:05.006007"), wall("1969-12-31T12:00:00"), None], pa.timestamp("us")
    )

    @pytest.mark.parametrize(
        ("pattern", "wanted"),
        [
            ("yyyy-MM-dd", ["2024-02-03", "1969-12-31"]),
            ("yy/M/d", ["24/2/3", "69/12/31"]),
            ("uuuuMMddHHmmss", ["20240203000405", "19691231120000"]),
            ("hh:mm a", ["12:04 AM", "12:00 PM"]),
            ("k K h H", ["24 0 12 0", "12 0 12 12"]),
            ("HH:mm:ss.SSSSSS", ["00:04:05.006007", "12:00:00.000000"]),
            ("SSS", ["006", "000"]),
            ("EEEE, d MMMM", ["Saturday, 3 February", "Wednesday, 31 December"]),
            ("EEE MMM", ["Sat Feb", "Wed Dec"]),
            ("DDD QQQ", ["034 Q1", "365 Q4"]),
            ("'year' yyyy''MM", ["year 2024'02", "year 1969'12"]),
            ("'it''s'", ["it's", "it's"]),
        ],
    )
    def test_letters(self, pattern, wanted):
        assert date_pattern(pattern).write(self.COLUMN).to_pylist() == [*wanted, None]

    def test_years_at_the_ends(self):
        years = pa.array([-719_528, -719_163, -719_162, 2_932_896, 2_932_897], pa.int32())
        wanted = ["0001-01-01", "0001-12-31", "0001-01-01", "9999-12-31", "+10000-01-01"]
        assert date_pattern("yyyy-MM-dd").write(years.view(pa.date32())).to_pylist() == wanted
        found = date_pattern("uuuu").write(years.view(pa.date32())).to_pylist()
        assert found == ["0000", "0000", "0001", "9999", "+10000"]

    def test_few_distinct_days_and_many(self):
        days = [dt.date.fromordinal(700_000 + i % 7) for i in range(1000)]
        wanted = [day.isoformat() for day in days]
        assert date_pattern("yyyy-MM-dd").write(pa.array(days)).to_pylist() == wanted
        days = [dt.date.fromordinal(1 + 3_650 * i) for i in range(1000)]
        wanted = [day.isoformat() for day in days]
        assert date_pattern("yyyy-MM-dd").write(pa.array(days)).to_pylist() == wanted

    @pytest.mark.parametrize(
        "pattern", ["YYYY", "", "yyyy-mm-dd z", "'open", "MMMMM", "[yyyy]", "x"]
    )
    def test_what_is_refused(self, pattern):
        with pytest.raises(InvalidRequestError):
            date_pattern(pattern)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("qty >", 6, "found the end"),
        ("qty > > 1", 7, "found `>`"),
        ("(qty", 5, "expected `)`"),
        ("qty qty", 5, "an operator or the end"),
        ("'open", 1, "a string or quoted name has no end"),
        ("qty # 1", 5, "unexpected `#`"),
        ("statu = 'a'", 1, "did you mean `status`"),
        ("status = a", 10, "string literals are written in single quotes: 'a'"),
        ("qty = 1 AND uper(text) = 'A'", 13, "did you mean `upper`"),
        ("status IS NUL", 11, "did you mean `NULL`"),
        ("case when ok then 1", 20, "expected END"),
        ("CAST(qty AS INTT)", 13, "did you mean `INT`"),
        ("CAST(tags AS INT)", 1, "ARRAY<INT> cannot be cast"),
        ("status = 1", 10, "INT and STRING cannot be combined; hint: write CAST(1 AS STRING)"),
        ("at = z", 6, "CAST(… AS TIMESTAMP_LTZ(6))"),
        ("at > 'noon'", 6, "not a value of TIMESTAMP(6)"),
        ("qty AND ok", 1, "`qty` is INT, not a condition; hint: compare it, like: qty <> 0"),
        ("qty + status", 7, "`+` takes numbers, not STRING"),
        ("qty / 2", 1, "write qty DIV 2"),
        ("day - day", 1, "datediff"),
        ("1 DIV 0", 1, "division by zero"),
        ("CAST('x' AS INT)", 1, "not a value of INT"),
        ("upper(qty)", 7, "takes a string, not INT"),
        ("substring(text)", 1, "write it like: substring(text, begin [, end])"),
        ("substring(text, qty)", 17, "not a value per row"),
        ("substring(text, 3, 3)", 20, "at least 4"),
        ("date_format(at, 'YYYY')", 17, "the letter `Y` is not known"),
        ("date_format(at, yyyy)", 17, "there is no column `yyyy`"),
        ("year(epoch, 4)", 13, "use 0 (seconds)"),
        ("year(at, 3)", 10, "a precision applies only to integers"),
        ("text LIKE status", 11, "takes a string such as 'a%'"),
        ("text RLIKE '('", 12, "not a regular expression"),
        ("NULL", 1, "NULL has no type"),
        ("INTERVAL '1' DAY", 1, "NULL has no type"),
        ("tags = tags", 1, "cannot be compared"),
        ("9" * 5_000, 1, "a number of more than 38 digits"),
        ("X'0'", 1, "not a hexadecimal string"),
        ("in = 1", 1, 'is written in double quotes: "in"'),
        ("(" * 200 + "1" + ")" * 200, 101, "nested too deeply"),
    ],
)
def test_refused_at_planning_with_position_and_suggestion(text, position, message):
    with pytest.raises(InvalidRequestError) as caught:
        Expression.plan(text, TYPES)
    assert message in str(caught.value)
    if "INTERVAL" not in text:
        assert f"at character {position}:" in str(caught.value)


def test_long_chains_of_conditions_run_and_deep_trees_are_refused():
    assert values(" OR ".join(f"qty = {n}" for n in range(2_000)), qty=[1_999, 2_000, None]) == [
        True,
        False,
        None,
    ]
    in_list = ", ".join(f"{n}.5" for n in range(900))
    prices = [Decimal("7.50"), Decimal("7.25")]
    assert values(f"price IN ({in_list})", price=prices) == [True, False]
    for text in (" + ".join(["qty"] * 400), "NOT " * 400 + "ok"):
        with pytest.raises(InvalidRequestError, match="nested too deeply"):
            Expression.plan(text, TYPES)


def test_choices_between_nested_values():
    assert values("if(ok, tags, NULL)", ok=[True, False], tags=[[1], [2]]) == [[1], None]
    assert values("coalesce(tags, tags)", tags=[[1, None], None]) == [[1, None], None]
    assert values("CAST(tags AS STRING)", tags=[[1, None], None]) == ["[1, null]", None]


def test_every_order_has_kernels_for_its_types():
    for name in ("greatest", "least"):
        for column in ("price", "day", "t", "at", "z", "tiny", "f", "text"):
            assert values(f"{name}({column}, {column})") == [None]


def test_an_unknown_zone_is_refused():
    with pytest.raises(InvalidRequestError, match="unknown time zone"):
        Expression.plan("z IS NULL", TYPES, "Europe/Bärlin")


def test_constants_and_empty_batches():
    assert values("'a' || 1", qty=[1, 2, 3]) == ["a1"] * 3
    assert values("price * qty + 1", qty=[], price=[]) == []
    assert values("date_format(at, 'yyyy')", at=[]) == []
    assert values("sha256(text)", text=[]) == []


def test_every_function_says_what_it_is():
    assert {"year", "date_format", "substring", "truncate", "cast", "now", "concat", "trim"} <= {
        *FUNCTIONS,
        "cast",
    }
    assert all(function.syntax and function.meaning for function in FUNCTIONS.values())


def test_the_reference_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "run `make docs`"


@pytest.mark.parametrize("text", ["timestamp with time zone", "timestamp(6) with time zone"])
def test_a_zone_in_each_value_is_refused_with_the_type_to_use(text):
    with pytest.raises(InvalidRequestError, match="is no type") as caught:
        parse_expression(f"cast(z as {text})")
    assert "TIMESTAMP(6) WITH LOCAL TIME ZONE" in str(caught.value)
