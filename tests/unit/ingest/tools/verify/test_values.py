# SPDX-License-Identifier: Apache-2.0
"""Values of drivers as Arrow columns, forms of texts, hashes, the join, and SQL by type."""

import datetime
import decimal
import math
import random
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from ingest.tools.verify.compare import (
    KEY_HASH,
    UNFIT,
    Columns,
    Compared,
    Kind,
    column_hashes,
    combined_hashes,
    compare,
    differing_keys,
    first_rows,
    hashed,
)
from ingest.tools.verify.fitting import Form, SourceColumn, canonical, fit, json_text, way_of
from storage.format.types.types import arrow_type, parse_type

moment = datetime.datetime.fromisoformat
INTS = {"type": "ARRAY", "element": "INT"}


def fitted(type_, *values, bits=False):
    parsed = parse_type(type_)
    found = fit(values, parsed, arrow_type(parsed), bits)
    assert found.column.type == arrow_type(parsed)
    return found.column.to_pylist(), dict(found.unfit)


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        ("BOOLEAN", b"\x01", True),
        ("INT", True, 1),
        ("INT", Decimal(7), 7),
        ("BIGINT", b"\x01\x00", 256),
        ("DOUBLE", 3, 3.0),
        ("FLOAT", 0.1, float(np.float32(0.1))),
        ("DECIMAL(5, 2)", 1.1, Decimal("1.10")),
        ("DECIMAL(38, 0)", "1" * 38, Decimal("1" * 38)),
        ("STRING", Decimal("1E+3"), "1000"),
        ("STRING", uuid.UUID(int=5), str(uuid.UUID(int=5))),
        ("STRING", {"a": [1]}, '{"a": [1]}'),
        ("STRING", {"b", "a"}, "a,b"),
        ("STRING", True, "true"),
        ("BYTES", memoryview(b"x"), b"x"),
        ("DATE", moment("2024-01-02"), datetime.date(2024, 1, 2)),
        ("DATE", "0000-00-00", None),
        ("DATE", "2024-01-00", None),
        ("TIME(3)", datetime.timedelta(hours=1, microseconds=1999), datetime.time(1, 0, 0, 1000)),
        ("TIMESTAMP(6)", "0000-00-00 00:00:00", None),
        ("TIMESTAMP(0)", "1969-12-31 23:59:58.9", moment("1969-12-31T23:59:58")),
        ("TIMESTAMP(4)", "2024-01-01 00:00:00.123456", moment("2024-01-01T00:00:00.123400")),
        ("TIMESTAMP(6)", moment("2024-01-01T05:00:00+05:00"), moment("2024-01-01")),
        ("TIMESTAMP(6)", datetime.date(2024, 1, 1), moment("2024-01-01")),
        ("TIMESTAMP_LTZ(6)", "2024-01-01 05:00:00+05:30", moment("2023-12-31T23:30:00+00:00")),
        ("TIMESTAMP_LTZ(6)", moment("2024-01-01"), moment("2024-01-01T00:00:00+00:00")),
        (INTS, [1, None], [1, None]),
        ({"type": "ARRAY", "element": "DATE"}, ["2024-01-02"], [datetime.date(2024, 1, 2)]),
        ("BIGINT", "-12:00:00.5", -43_200_500_000),
        ("BIGINT", "838:59:59", 3_020_399_000_000),
    ],
)
def test_values_fit(type_, value, expected):
    assert fitted(type_, value, None) == ([expected, None], {})


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("BOOLEAN", 2),
        ("TINYINT", 128),
        ("INT", 1.5),
        ("INT", "x"),
        ("FLOAT", 1e300),
        ("DECIMAL(5, 2)", Decimal("1.005")),
        ("DECIMAL(5, 2)", Decimal("1000")),
        ("DECIMAL(5, 2)", Decimal("NaN")),
        ("DECIMAL(5, 2)", True),
        ("STRING", b"\xff"),
        ("DATE", "infinity"),
        ("DATE", moment("2024-01-02T01:00")),
        ("DATE", 7),
        ("TIME(3)", "24:00:00"),
        ("TIME(3)", datetime.timedelta(hours=-1)),
        ("TIMESTAMP(6)", "infinity"),
        ("TIMESTAMP(9)", "0001-01-01 00:00:00"),
        (INTS, 5),
        (INTS, ["x"]),
    ],
)
def test_values_that_do_not_fit_are_unfit(type_, value):
    column, odd = fitted(type_, None, value)
    assert column == [None, None]
    assert odd == {1: str(value)}


def test_years_that_python_does_not_have():
    days = parse_type("DATE")
    found = fit(["0044-03-15 BC", "12345-01-01", "0001-01-01 BC"], days, pa.date32())
    assert found.column.cast(pa.int32()).to_pylist() == [-735_160, 3_789_391, -719_528]
    zoned = parse_type("TIMESTAMP_LTZ(3)")
    texts = ["12345-01-01 12:00:00.1234+02", "0044-03-15 12:00:00+00 BC"]
    found = fit(texts, zoned, arrow_type(zoned))
    counts = [3_789_391 * 86_400_000 + 36_000_123, -735_160 * 86_400_000 + 43_200_000]
    assert found.column.view(pa.int64()).to_pylist() == counts
    assert found.unfit == ()


def test_bit_strings():
    assert fitted("BIGINT", "10110", None, bits=True) == ([22, None], {})
    assert fitted("BOOLEAN", "1", b"\x00", bits=True) == ([True, False], {})
    assert fitted("BYTES", "1" * 9, b"\x01\x02", bits=True) == ([b"\x01\xff", b"\x01\x02"], {})


def test_a_whole_column_and_single_values_convert_alike():
    """The quick way and the exact way agree wherever both can go."""
    rng = random.Random(3)
    begin = moment("0001-01-01")
    steps = [
        datetime.timedelta(microseconds=rng.randrange(315_537_897_599_999_999)) for _ in "x" * 500
    ]
    texts = [str(begin + step) for step in steps]
    for type_ in ("TIMESTAMP(6)", "TIMESTAMP(3)", "TIMESTAMP(1)", "TIMESTAMP_LTZ(6)"):
        whole, _ = fitted(type_, *texts)
        single, odd = fitted(type_, *texts, "infinity")
        assert whole == single[:-1]
        assert list(odd) == [500]
    numbers = [
        Decimal(rng.randint(-(10**12), 10**12)).scaleb(-rng.randint(0, 4)) for _ in range(500)
    ]
    assert fitted("DECIMAL(20, 4)", *numbers) == fitted("DECIMAL(20, 4)", *map(str, numbers))


def test_no_digit_is_lost_whatever_the_context():
    with decimal.localcontext(prec=3):
        assert fitted("DECIMAL(38, 10)", "1234567890123456789012345678.0123456789")[1] == {}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('{"b":1,"a":2}', '{ "a": 2, "b": 1 }'),
        ("[1.50, 1e2, -0]", "[1.5,100,0]"),
        ('"é"', '"\\u00e9"'),
        ("12345678901234567890.10", "12345678901234567890.1"),
    ],
)
def test_equal_json_has_one_text(one, two):
    assert json_text(one) == json_text(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('{"a":1}', '{"a":"1"}'),
        ("[1,2]", "[2,1]"),
        ("1.0000000000000000000000001", "1"),
        ("NaN", "1"),
    ],
)
def test_other_json_has_another_text(one, two):
    assert json_text(one) != json_text(two)


def test_numbers_in_texts_lose_zeros_at_the_end_of_a_fraction():
    column = pa.array(["1.10", "100", "0.00", "-0.0", "-1.", "12.340", None, "NaN", "10.01"])
    found = canonical(column, Form.NUMBER).to_pylist()
    assert found == ["1.1", "100", "0", "0", "-1", "12.34", None, "NaN", "10.01"]


def test_mysqls_timestamp_of_zero_is_null_or_the_epoch():
    way = way_of("mysql", SourceColumn("c", "timestamp"), parse_type("TIMESTAMP_LTZ(6)"))
    lake = pa.array([0, 1, None], pa.int64()).view(pa.timestamp("us", "UTC"))
    assert canonical(lake, way.form).is_null().to_pylist() == [True, False, True]


# --- hashes and ranges


def test_hashes_tell_values_apart_and_slices_do_not_matter():
    columns = [
        pa.array([0.0, -0.0, math.nan, 1.0, None]),
        pa.array(["", "a", "b", "\0", None]),
        pa.array(
            [Decimal(0), Decimal(1), Decimal(-1), Decimal(10**30), None], pa.decimal128(38, 0)
        ),
        pa.array([[], [0], [0, 0], [None], None], pa.list_(pa.int32())),
    ]
    for column in columns:
        hashes = column_hashes(column)
        assert len(set(hashes.tolist())) == 5
        assert column_hashes(column.slice(2)).tolist() == hashes[2:].tolist()
        assert column_hashes(pa.concat_arrays([column, column])[5:]).tolist() == hashes.tolist()
    payload = np.array([0x7FF8000000000001], np.uint64).view(np.float64)
    assert column_hashes(pa.array(payload)) == column_hashes(pa.array([math.nan]))


def test_the_order_of_columns_counts():
    one, two = column_hashes(pa.array([1])), column_hashes(pa.array([2]))
    assert combined_hashes([one, two], 1) != combined_hashes([two, one], 1)


NUMBERS = Columns(
    (Compared("k", parse_type("INT"), "k"),), (Compared("v", parse_type("INT"), "v"),)
)


def hashed_pairs(*pairs):
    arrays = [pa.array(column, pa.int32()) for column in zip(*pairs, strict=True)]
    return hashed(pa.RecordBatch.from_arrays(arrays, schema=NUMBERS.schema), NUMBERS)


def test_keys_are_joined_by_number_and_sum():
    source = hashed_pairs((1, 1), (2, 2), (3, 3), (4, 4), (4, 5), (6, 6), (6, 6))
    lake = hashed_pairs((4, 5), (4, 4), (3, 0), (2, 2), (5, 5), (6, 6))
    found = differing_keys(pa.Table.from_batches([source]), pa.Table.from_batches([lake]))
    names = {}
    for rows in (lake, source):
        names |= dict(
            zip(rows.column(KEY_HASH).to_pylist(), rows.column(0).to_pylist(), strict=True)
        )
    told = {names[key]: kind for key, kind in found.items()}
    assert told == {1: Kind.MISSING, 3: Kind.DIFFERENT, 5: Kind.EXTRA, 6: Kind.MISSING}


class Listed:
    """A side of batches that are there."""

    label = "listed"

    def __init__(self, batches):
        self._batches = batches

    def batches(self):
        return iter(self._batches)


def test_the_comparison_does_not_depend_on_the_order_of_rows(tmp_path):
    rng = np.random.default_rng(1)
    pairs = [(int(k), int(v)) for k, v in rng.integers(-1000, 1000, (3000, 2))]
    one = [hashed_pairs(*pairs[start : start + 50]) for start in range(0, 3000, 50)]
    shuffled = [pairs[i] for i in rng.permutation(3000)]
    limits = {"rows_per_range": 20, "limit": 10, "directory": tmp_path}
    found = compare(Listed(one), Listed([hashed_pairs(*shuffled)]), NUMBERS, **limits)
    assert (found.ranges, found.ranges_differing, found.kinds) == (256, 0, ())
    assert found.source_checksum == found.lake_checksum
    changed = [(k, v + (i == 77)) for i, (k, v) in enumerate(shuffled)]
    found = compare(Listed(one), Listed([hashed_pairs(*changed)]), NUMBERS, **limits)
    assert (found.ranges_differing, found.kinds) == (1, (Kind.DIFFERENT,))
    assert found.candidates.column("k").to_pylist() == [shuffled[77][0]]
    assert found.source_checksum != found.lake_checksum


def test_unfit_values_count_by_their_text():
    columns = Columns((Compared("k", parse_type("INT"), "k"),), ())
    batch = pa.RecordBatch.from_arrays(
        [pa.array([None, None, None], pa.int32())], schema=columns.schema
    )
    found = hashed(batch, columns, [(0, "k", "x"), (1, "k", "y")])
    keys = found.column(KEY_HASH).to_numpy()
    assert len(set(keys.tolist())) == 3
    (row,) = first_rows(pa.Table.from_batches([found]), keys[1:2]).to_pylist()
    assert row[UNFIT] == [("k", "y")]


# --- SQL by type


@pytest.mark.parametrize(
    ("dialect", "source", "lake", "expression", "form"),
    [
        ("postgresql", "jsonb", "STRING", "CAST({} AS text)", Form.JSON),
        ("postgresql", "numeric(10,2)", "DECIMAL(10, 2)", "{}", Form.PLAIN),
        ("postgresql", "numeric", "STRING", "{}", Form.NUMBER),
        (
            "postgresql",
            "timestamp(3) with time zone",
            "TIMESTAMP_LTZ(3)",
            "CAST({} AS text)",
            Form.PLAIN,
        ),
        ("postgresql", "integer[]", INTS, "{}", Form.PLAIN),
        ("postgresql", "mood", "STRING", "CAST({} AS text)", Form.PLAIN),
        ("mysql", "float(7,2)", "FLOAT", "({} * 1e0)", Form.PLAIN),
        ("mysql", "datetime(6)", "TIMESTAMP(6)", "CAST({} AS CHAR)", Form.PLAIN),
        ("mariadb", "decimal(65,30)", "STRING", "{}", Form.NUMBER),
    ],
)
def test_columns_are_read_by_their_type(dialect, source, lake, expression, form):
    way = way_of(dialect, SourceColumn("c", source), parse_type(lake))
    assert (way.expression, way.form, way.refusal) == (expression, form, "")


@pytest.mark.parametrize(
    ("dialect", "source"),
    [
        ("postgresql", "point"),
        ("postgresql", "interval"),
        ("postgresql", "tsquery"),
        ("mysql", "geometry"),
    ],
)
def test_types_without_a_rule_are_left_out(dialect, source):
    way = way_of(dialect, SourceColumn("c", source), parse_type("STRING"))
    assert source in way.refusal


@pytest.mark.parametrize(
    ("source", "expression"),
    [
        ("bit(64)", "lpad(CAST({} AS text), 64, '0')"),
        ("bit varying(100)", "lpad(CAST({} AS text), 100, '0')"),
        ("bit varying", "CAST({} AS text)"),
    ],
)
def test_bit_strings_are_as_long_as_the_column(source, expression):
    way = way_of("postgresql", SourceColumn("c", source), parse_type("BYTES"))
    assert (way.expression, way.bits) == (expression, True)


def test_what_the_pipeline_makes_of_infinities():
    column, lake = SourceColumn("c", "timestamp without time zone"), parse_type("TIMESTAMP(6)")
    null = way_of("postgresql", column, lake, ["infinity-to-null"]).expression
    assert null == "CASE WHEN isfinite({0}) THEN CAST({0} AS text) END"
    bounds = way_of("postgresql", column, lake, ["infinity-to-bounds"]).expression
    assert "WHEN '-infinity' THEN '0001-01-01 00:00:00'" in bounds.format("c")


def test_columns_that_are_text_in_the_lake():
    text = parse_type("STRING")
    assert way_of("mysql", SourceColumn("c", "time(6)"), text).expression.startswith("TRIM")
    assert way_of("mysql", SourceColumn("c", "time"), text).expression == "CAST({} AS CHAR)"
    assert "as text" in way_of("mysql", SourceColumn("c", "longblob"), text).refusal
    assert way_of("postgresql", SourceColumn("c", "integer[]"), text).form is Form.JSON


@pytest.mark.parametrize(
    ("dialect", "source", "pages"),
    [
        ("postgresql", "integer", True),
        ("postgresql", "double precision", False),
        ("postgresql", "uuid", True),
        ("mysql", "bigint(20) unsigned", True),
        ("mysql", "enum('b','a')", False),
        ("mysql", "varchar(20)", True),
        ("oracle", "number(10)", False),
    ],
)
def test_which_keys_make_pages(dialect, source, pages):
    way = way_of(dialect, SourceColumn("c", source), parse_type("BIGINT"))
    assert way.pages == pages
