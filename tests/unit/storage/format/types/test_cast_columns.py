# SPDX-License-Identifier: Apache-2.0
"""Casts of columns give what Java's cast rules give; every allowed cast has a kernel."""

import datetime
import decimal
import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest

from storage.format.types.casts import CastError, can_cast, column_cast, to_text
from storage.format.types.types import arrow_type, parse_type

D = decimal.Decimal
UTC = datetime.UTC
WALL = datetime.datetime.fromisoformat
NAN, INFINITY = math.nan, math.inf


def cast(source, target, values):
    """The values cast as a slice with a null behind, so that offsets and nulls are exercised."""
    old, new = parse_type(source), parse_type(target)
    type_ = arrow_type(old)
    column = pa.array([values[0], *values, None], type_).slice(1)
    result = column_cast(old, new)(column)
    result.validate(full=True)
    assert result.type == arrow_type(new)
    assert result[-1].as_py() is None
    return result.to_pylist()[:-1]


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        # integers wrap
        ("BIGINT", "INT", [2**31, 5, -(2**63), 2**40 + 7], [-(2**31), 5, 0, 7]),
        ("INT", "TINYINT", [383, -129], [127, 127]),
        ("BIGINT", "FLOAT", [16_777_217], [16_777_216.0]),
        # floating numbers are cut and held at the ends of INT and BIGINT before they wrap
        ("DOUBLE", "INT", [1e20, NAN, -1.9, -INFINITY], [2**31 - 1, 0, -1, -(2**31)]),
        ("DOUBLE", "TINYINT", [300.7, 1e20], [44, -1]),
        ("DOUBLE", "BIGINT", [1e30, -1e30, 123.9], [2**63 - 1, -(2**63), 123]),
        ("DOUBLE", "FLOAT", [1e300, 0.5], [INFINITY, 0.5]),
        # decimals are rounded half up, and null where they do not fit
        ("INT", "DECIMAL(5, 2)", [999, 1000, -999], [D("999.00"), None, D("-999.00")]),
        ("DECIMAL(5, 3)", "DECIMAL(4, 2)", [D("1.005"), D("99.999")], [D("1.01"), None]),
        ("DECIMAL(5, 3)", "DECIMAL(4, 2)", [D("-1.005")], [D("-1.01")]),
        ("DECIMAL(5, 2)", "DECIMAL(38, 36)", [D("1.25"), D("100.00")], [D("1.25"), None]),
        ("DOUBLE", "DECIMAL(10, 2)", [1.005, 2.675, 1e20, 1e-300],
         [D("1.01"), D("2.68"), None, D("0.00")]),
        ("FLOAT", "DECIMAL(20, 10)", [0.1], [D("0.1000000015")]),
        ("DOUBLE", "DECIMAL(38, 38)", [0.5, 1.0], [D("0.5"), None]),
        ("DECIMAL(38, 0)", "INT", [D(2**33 + 5), D(-7)], [5, -7]),
        ("DECIMAL(5, 3)", "BIGINT", [D("-1.999")], [-1]),
        ("DECIMAL(5, 3)", "DOUBLE", [D("1.005")], [1.005]),
        ("DECIMAL(30, 3)", "DOUBLE", [D("123456789012345678901.005")], [123456789012345678901.005]),
        # booleans
        ("BOOLEAN", "DECIMAL(2, 2)", [True, False], [None, D("0.00")]),
        ("BOOLEAN", "BIGINT", [True, False], [1, 0]),
        ("SMALLINT", "BOOLEAN", [0, -5], [False, True]),
        ("STRING", "BOOLEAN", ["T", "no", "1", "YES"], [True, False, True, True]),
    ],
)  # fmt: skip
def test_numbers(source, target, values, expected):
    assert cast(source, target, values) == expected


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        ("DOUBLE", [1.0, 1e10, 1e7, 9_999_999.0, 0.001, 0.00099, -0.0, -123.456],
         ["1.0", "1.0E10", "1.0E7", "9999999.0", "0.001", "9.9E-4", "-0.0", "-123.456"]),
        ("DOUBLE", [NAN, INFINITY, -INFINITY, 5e-324, 1e-323, 1.7976931348623157e308],
         ["NaN", "Infinity", "-Infinity", "4.9E-324", "9.9E-324", "1.7976931348623157E308"]),
        ("FLOAT", [0.1, 1e10, 0.001, 16_777_216.0, 1e-45],
         ["0.1", "1.0E10", "0.001", "1.6777216E7", "1.4E-45"]),
        ("DECIMAL(20, 10)", [D("0.0000000001"), D("-12.5")], ["0.0000000001", "-12.5000000000"]),
        ("DECIMAL(5, 0)", [D(-12)], ["-12"]),
        ("BOOLEAN", [True, False], ["true", "false"]),
        ("DATE", [0, -1], ["1970-01-01", "1969-12-31"]),
        ("TIME(3)", [0, 500, 12_345_678, 12_345_600],
         ["00:00:00.0", "00:00:00.5", "03:25:45.678", "03:25:45.6"]),
        ("TIME(0)", [1000], ["00:00:01"]),
        ("TIMESTAMP(3)", [1500, -1], ["1970-01-01 00:00:01.500", "1969-12-31 23:59:59.999"]),
        ("TIMESTAMP(0)", [1000], ["1970-01-01 00:00:01"]),
        ("TIMESTAMP(5)", [10], ["1970-01-01 00:00:00.00001"]),
        ("TIMESTAMP(9)", [1], ["1970-01-01 00:00:00.000000001"]),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", [10], ["1970-01-01 00:00:00.000010"]),
        ("BYTES", [b"ab"], ["ab"]),
    ],
)  # fmt: skip
def test_texts_have_the_form_of_java(source, values, expected):
    assert cast(source, "STRING", values) == expected


def test_texts_are_cut_and_filled_by_characters():
    assert cast("VARCHAR(10)", "CHAR(4)", ["é", "abcdef"]) == ["é   ", "abcd"]
    assert cast("BIGINT", "VARCHAR(3)", [12345, -1]) == ["123", "-1"]
    assert cast("BOOLEAN", "CHAR(6)", [True]) == ["true  "]
    assert cast("BYTES", "BINARY(3)", [b"ab", b"abcd"]) == [b"ab\0", b"abc"]
    assert cast("STRING", "VARBINARY(2)", ["abc"]) == [b"ab"]


def test_nested_values_have_texts():
    row = {
        "type": "ROW",
        "fields": [
            {"id": 1, "name": "a", "type": "INT"},
            {"id": 2, "name": "b", "type": {"type": "ARRAY", "element": "DOUBLE"}},
        ],
    }
    values = [{"a": 1, "b": [1.0, None]}, {"a": None, "b": None}]
    assert cast(row, "STRING", values) == ["{1, [1.0, null]}", "{null, null}"]
    entries = {"type": "MAP", "key": "STRING", "value": "DATE"}
    assert cast(entries, "STRING", [[("a", 0), ("b", None)], []]) == [
        "{a -> 1970-01-01, b -> null}",
        "{}",
    ]
    with pytest.raises(CastError, match="UTF-8"):
        to_text(pa.array([b"\xff"]), parse_type("BYTES"))


@pytest.mark.parametrize(
    ("target", "texts", "expected"),
    [
        ("INT", ["5", "-5.9", "+7", ".", ".5", "000000000000000000005"], [5, -5, 7, 0, 0, 5]),
        ("BIGINT", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
        ("DOUBLE", [" 1.5 ", "+1e3", "Infinity", "-Infinity", "1.0f", "1e400", ".5d", "5."],
         [1.5, 1000.0, INFINITY, -INFINITY, 1.0, INFINITY, 0.5, 5.0]),
        ("DECIMAL(5, 2)", ["1.005", "1e2", "-.5", "999.995", "1e-400", "1e999999999999"],
         [D("1.01"), D("100.00"), D("-0.50"), None, D("0.00"), None]),
        ("DECIMAL(5, 2)", ["0." + "1" * 100], [D("0.11")]),
        ("DATE", ["2024-2-29", "2024-05", "2017-12-12 09:30:00.0", "19000", "-5", "0001-01-01"],
         [datetime.date(2024, 2, 29), datetime.date(2024, 5, 1), datetime.date(2017, 12, 12),
          datetime.date(2022, 1, 8), datetime.date(1969, 12, 27), datetime.date(1, 1, 1)]),
        ("TIME(3)", ["12:30", "12:30:15.1235", "1000", "12:30:15+01:30"],
         [datetime.time(12, 30), datetime.time(12, 30, 15, 124_000), datetime.time(0, 0, 1),
          datetime.time(14, 0, 15)]),
        ("TIMESTAMP(3)", ["2024-01-02", "2024-1-2 3:4:5.6789", "2024-02-30T01:02", "1500"],
         [WALL("2024-01-02 00:00:00"), WALL("2024-01-02 03:04:05.678000"),
          WALL("2024-02-29 01:02:00"), WALL("1970-01-01 00:00:01.500000")]),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", ["2024-01-02 01:00:00"],
         [datetime.datetime(2024, 1, 2, 1, tzinfo=UTC)]),
    ],
)  # fmt: skip
def test_texts_are_parsed(target, texts, expected):
    assert cast("STRING", target, texts) == expected


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("INT", "x"),
        ("INT", ""),
        ("INT", "-"),
        ("INT", " 5"),
        ("INT", "2147483648"),
        ("TINYINT", "128"),
        ("BIGINT", "9" * 30),
        ("DOUBLE", "inf"),
        ("DOUBLE", "1,5"),
        ("DECIMAL(5, 2)", " 1"),
        ("DECIMAL(5, 2)", "NaN"),
        ("BOOLEAN", "maybe"),
        ("DATE", "2023-02-29"),
        ("DATE", "2023-13-01"),
        ("DATE", "yesterday"),
        ("TIME(0)", "12h"),
        ("TIMESTAMP(3)", "2024-01-02 25:00:00"),
        ("TIMESTAMP(3)", "2024-01-02 10:00"),
        ("TIMESTAMP(9)", "9999-01-01"),
        ("TIMESTAMP(2)", "1500"),
    ],
)
def test_a_text_that_is_no_value_is_named(target, text):
    with pytest.raises(CastError) as failure:
        cast("STRING", target, [text])
    assert failure.value.value == text


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        ("TIMESTAMP(3)", "DATE", [-1, 86_400_000], [datetime.date(1969, 12, 31),
                                                  datetime.date(1970, 1, 2)]),
        ("TIMESTAMP(3)", "TIME(3)", [-1], [datetime.time(23, 59, 59, 999_000)]),
        ("TIMESTAMP(3)", "BIGINT", [-1500, 2999], [-1, 2]),
        ("TIMESTAMP(6)", "TIMESTAMP(3)", [-1, 1_234_567],
         [WALL("1969-12-31 23:59:59.999000"),
          WALL("1970-01-01 00:00:01.234000")]),
        ("TIMESTAMP(3)", "TIMESTAMP(0)", [-1500, -1000],
         [WALL("1969-12-31 23:59:59"), WALL("1969-12-31 23:59:59")]),
        ("TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", [1],
         [datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)]),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(3)", [1],
         [WALL("1970-01-01 00:00:00.001000")]),
        ("DATE", "TIMESTAMP(3)", [1], [WALL("1970-01-02 00:00:00")]),
        ("TIME(3)", "TIMESTAMP(3)", [5], [WALL("1970-01-01 00:00:00.005000")]),
        ("BIGINT", "TIMESTAMP(3)", [5, -1], [WALL("1970-01-01 00:00:05"),
                                             WALL("1969-12-31 23:59:59")]),
    ],
)  # fmt: skip
def test_times(source, target, values, expected):
    assert cast(source, target, values) == expected


def test_times_out_of_range_are_named():
    with pytest.raises(CastError, match="does not fit"):
        cast("BIGINT", "TIMESTAMP(9)", [10**12])
    with pytest.raises(CastError, match="not a decimal"):
        cast("DOUBLE", "DECIMAL(5, 2)", [NAN])


SAMPLES = {
    "CHAR(3)": "1  ",
    "VARCHAR(5)": "1",
    "STRING": "1",
    "BOOLEAN": True,
    "BINARY(2)": b"12",
    "BYTES": b"1",
    "DECIMAL(9, 2)": D("1.25"),
    "DECIMAL(38, 10)": D("1.25"),
    "TINYINT": 1,
    "SMALLINT": 1,
    "INT": 1,
    "BIGINT": 1,
    "FLOAT": 1.0,
    "DOUBLE": 1.0,
    "DATE": 1,
    "TIME(0)": 1000,
    "TIMESTAMP(0)": 1000,
    "TIMESTAMP(9)": 1000,
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": 1000,
}


TEXTS = [source for source, value in SAMPLES.items() if isinstance(value, str)]


def test_every_allowed_cast_gives_a_column_of_its_type():
    for source, target in itertools.permutations(SAMPLES, 2):
        if source not in TEXTS and can_cast(parse_type(source), parse_type(target)):
            assert len(cast(source, target, [SAMPLES[source]])) == 1


@pytest.mark.parametrize("source", TEXTS)
def test_texts_become_every_type(source):
    fitting = {"TIMESTAMP": "1970-01-02", "TIMESTAMP_LTZ": "1970-01-02"}
    for target in SAMPLES:
        old, new = parse_type(source), parse_type(target)
        if source != target:
            assert can_cast(old, new)
            assert len(cast(source, target, [fitting.get(new.root.value, "1")])) == 1


def test_empty_and_null_columns_can_be_cast():
    for source, target in itertools.permutations(SAMPLES, 2):
        old, new = parse_type(source), parse_type(target)
        if can_cast(old, new):
            assert column_cast(old, new)(pa.nulls(2, arrow_type(old))).null_count == 2
            assert len(column_cast(old, new)(pa.nulls(0, arrow_type(old)))) == 0


def test_which_casts_there_are():
    def allowed(source, target, *, explicit=True):
        return can_cast(parse_type(source), parse_type(target), explicit=explicit)

    assert allowed("DATE", "STRING")
    assert not allowed("DATE", "VARCHAR(20)")
    assert not allowed("TIMESTAMP(3)", "SMALLINT")
    assert not allowed("DOUBLE", "TIMESTAMP(3)")
    assert not allowed("BOOLEAN", "DATE")
    assert not allowed("INT", "BYTES")
    assert not allowed("STRING", {"type": "ARRAY", "element": "INT"})
    assert allowed({"type": "ARRAY", "element": "INT"}, "VARCHAR(3)")
    assert not allowed({"type": "MULTISET", "element": "INT"}, "STRING")
    assert allowed("INT", "BIGINT", explicit=False)
    assert not allowed("BIGINT", "INT", explicit=False)


def _half_up(number, precision, scale):
    """Python's decimals as a model of Java's: None when there are too many digits."""
    if number and number.adjusted() > precision:
        return None
    rounded = number.quantize(D(1).scaleb(-scale), rounding=decimal.ROUND_HALF_UP)
    return rounded if abs(rounded) < D(10) ** (precision - scale) else None


@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (38, 0), (38, 38), (38, 37), (18, 18)])
def test_random_texts_become_the_decimals_of_a_model(precision, scale):
    draw = random.Random(precision * 100 + scale)
    texts = ["0", "-0", "9.995", "5e-39", "4.9e-39", "9" * 38, "9" * 39, "0." + "9" * 60]
    for _ in range(1500):
        whole = "".join(draw.choices("0123456789", k=draw.choice([1, 3, 10, 40, 80])))
        fraction = "".join(draw.choices("0123456789", k=draw.choice([0, 1, 5, 40, 80])))
        power = draw.choice(["", "", f"e{draw.choice([-60, -38, -5, 0, 2, 38])}"])
        texts.append(f"{draw.choice(['', '-', '+'])}{whole}.{fraction}{power}")
    with decimal.localcontext(prec=400):
        expected = [_half_up(D(text), precision, scale) for text in texts]
    assert cast("STRING", f"DECIMAL({precision}, {scale})", texts) == expected


def test_random_decimals_are_rescaled_as_by_a_model():
    draw = random.Random(4)
    for (p, s), (q, t) in itertools.permutations([(20, 10), (12, 3), (38, 38), (38, 0), (5, 2)], 2):
        with decimal.localcontext(prec=100):
            limits = [10 ** draw.randint(1, p) for _ in range(200)]
            values = [D(draw.randint(1 - n, n - 1)).scaleb(-s) for n in limits]
            expected = [_half_up(value, q, t) for value in values]
        assert cast(f"DECIMAL({p}, {s})", f"DECIMAL({q}, {t})", values) == expected
        plain = [format(value, "f") for value in values]
        assert cast(f"DECIMAL({p}, {s})", "STRING", values) == plain


def test_random_doubles_have_the_shortest_text_and_come_back():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**62, 5000).view(np.float64)
    numbers = [x for x in [*bits, *np.round(rng.normal(size=5000) * 1e4, 3)] if abs(x) > 1e-300]
    texts = cast("DOUBLE", "STRING", numbers)
    assert cast("STRING", "DOUBLE", texts) == numbers
    for number, text in zip(numbers, texts, strict=True):
        exponential = not (1e-3 <= abs(number) < 1e7 or number == 0)
        assert ("E" in text) == exponential
        digits = {t.replace(".", "").strip("-0") for t in (text.partition("E")[0],)}
        assert digits == {repr(float(number)).partition("e")[0].replace(".", "").strip("-0")}


def test_random_dates_and_times_come_back():
    rng = np.random.default_rng(2)
    days = rng.integers(-719_162, 2_932_896, 3000).tolist()
    dates = cast("STRING", "DATE", cast("DATE", "STRING", days))
    assert [(date - datetime.date(1970, 1, 1)).days for date in dates] == days
    millis = pa.array(rng.integers(-62_135_596_800_000, 253_402_300_799_999, 3000))
    stamps = millis.cast(pa.timestamp("ms")).to_pylist()
    assert cast("STRING", "TIMESTAMP(3)", cast("TIMESTAMP(3)", "STRING", stamps)) == stamps
