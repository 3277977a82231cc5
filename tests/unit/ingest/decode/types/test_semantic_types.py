# SPDX-License-Identifier: Apache-2.0
"""Values on their way into columns that exist (what new columns get: test_every_type)."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    message,
    rows,
    schema,
    with_block,
)

UTC = datetime.UTC
DECIMAL = "org.apache.kafka.connect.data.Decimal"
D = "io.debezium.time."
MICROS = 1_562_639_337_123_456
MOMENT = datetime.datetime(2019, 7, 9, 2, 28, 57, 123456)  # noqa: DTZ001
MILLI_MOMENT = MOMENT.replace(microsecond=123_000)
TIME = datetime.time(4, 5, 11, 789_000)
TIME_MS = 14_711_789


def scale(digits, precision=None):
    parameters = {"scale": str(digits)}
    if precision:
        parameters["connect.decimal.precision"] = str(precision)
    return {"parameters": parameters}


def test_nanoseconds_and_the_largest_timestamps():
    block = connect_block(
        connect_field("id", "int64"),
        connect_field("n", "int64", D + "NanoTimestamp"),
        connect_field("u", "int64", D + "MicroTimestamp"),
    )
    table = schema(("id", "BIGINT"), ("n", "TIMESTAMP(9)"), ("u", "TIMESTAMP(6)"))
    row = {"id": 1, "n": 2**63 - 2, "u": 9_223_372_036_825_199_999}
    result = decoder(table).decode(batch(with_block(block, event("c", None, row))))
    stored = result.changes[0].rows
    assert stored.column("n").cast(pa.int64()).to_pylist() == [2**63 - 2]
    assert stored.column("u").cast(pa.int64()).to_pylist() == [9_223_372_036_825_199_999]


@pytest.mark.parametrize(
    ("field", "column", "value", "stored"),
    [
        (connect_field("v", "int32"), "BIGINT", 5, 5),
        (connect_field("v", "int32"), "DECIMAL(12,2)", 5, Decimal("5.00")),
        (connect_field("v", "int32"), "DOUBLE", 5, 5.0),
        # what the database makes of it when it widens the column
        (connect_field("v", "float"), "DOUBLE", 0.1, 0.10000000149011612),
        (connect_field("v", "float"), "DOUBLE", -3.4e38, -3.3999999521443642e38),
        (connect_field("v", "float"), "DOUBLE", "-Infinity", float("-inf")),
        (connect_field("v", "string"), "DECIMAL(10,2)", "5.5", Decimal("5.50")),
        (connect_field("v", "string"), "VARCHAR(3)", "abc", "abc"),
        (
            connect_field("v", "bytes", DECIMAL, **scale(1, 5)),
            "DECIMAL(8,3)",
            "MDk=",
            Decimal("1234.5"),
        ),
        (
            connect_field("v", "bytes", DECIMAL, **scale(1)),
            "DECIMAL(8,3)",
            "MDk=",
            Decimal("1234.5"),
        ),
        (
            connect_field("v", "int64", D + "Timestamp"),
            "TIMESTAMP(6)",
            MICROS // 1000,
            MILLI_MOMENT,
        ),
        (
            connect_field("v", "struct", "io.debezium.data.VariableScaleDecimal"),
            "DECIMAL(8,3)",
            {"scale": 1, "value": "MDk="},
            Decimal("1234.5"),
        ),
    ],
)
def test_lossless_conversions_towards_the_column(field, column, value, stored):
    block = connect_block(connect_field("id", "int64"), field)
    table = schema(("id", "BIGINT"), ("v", column))
    result = decoder(table).decode(
        batch(with_block(block, event("c", None, {"id": 1, "v": value})))
    )
    assert [r["v"] for r in rows(result)] == [stored]


@pytest.mark.parametrize(
    ("field", "column", "value"),
    [
        (connect_field("v", "string"), "INT", "5"),
        (connect_field("v", "int32"), "STRING", 5),
        (connect_field("v", "boolean"), "STRING", True),
        (connect_field("v", "int64"), "DOUBLE", 5),
        (connect_field("v", "int32"), "BOOLEAN", 1),
        (connect_field("v", "int32", D + "Date"), "TIMESTAMP(3)", 5),
        (connect_field("v", "string"), "VARCHAR(3)", "abcd"),
        (connect_field("v", "int32"), {"type": "ARRAY", "element": "INT"}, 5),
        (connect_field("v", "bytes", DECIMAL, **scale(2)), "DECIMAL(4,2)", "MDkw"),
    ],
)
def test_what_does_not_convert_is_bad_and_null_still_passes(field, column, value):
    block = connect_block(connect_field("id", "int64"), field)
    table = schema(("id", "BIGINT"), ("v", column))
    values = [
        with_block(block, event("c", None, {"id": n, "v": v})) for n, v in ((1, value), (2, None))
    ]
    result = decoder(table).decode(batch(*values))
    assert classes(result) == ["type"]
    assert "column v" in result.bad[0].error
    assert [r["id"] for r in rows(result)] == [2]


@pytest.mark.parametrize(
    ("options", "column", "value", "stored"),
    [
        ({}, "DOUBLE", 5, 5.0),
        ({}, "DOUBLE", "Infinity", float("inf")),
        ({"decimal_handling_mode": "string"}, "DECIMAL(10,2)", "12.3", Decimal("12.30")),
        ({"decimal_handling_mode": "double"}, "DECIMAL(10,2)", 12.3, Decimal("12.30")),
        ({"binary_handling_mode": "hex"}, "BYTES", "deadBEEF", b"\xde\xad\xbe\xef"),
        ({"binary_handling_mode": "base64-url-safe"}, "BYTES", "3q2-7w==", b"\xde\xad\xbe\xef"),
        ({"time_precision_mode": "adaptive_time_microseconds"}, "TIME(3)", TIME_MS * 1000, TIME),
        ({"time_precision_mode": "connect"}, "TIME(6)", TIME_MS, TIME),
        ({"time_precision_mode": "connect"}, "TIMESTAMP(6)", MICROS // 1000, MILLI_MOMENT),
        ({"time_precision_mode": "microseconds"}, "TIMESTAMP(3)", MICROS - 456, MILLI_MOMENT),
        ({"time_precision_mode": "microseconds"}, "TIME(3)", TIME_MS * 1000, TIME),
        ({"time_precision_mode": "nanoseconds"}, "TIMESTAMP(6)", MICROS * 1000, MOMENT),
        ({"time_precision_mode": "nanoseconds"}, "TIME(6)", TIME_MS * 1_000_000, TIME),
        (
            {},
            "TIMESTAMP(3) WITH LOCAL TIME ZONE",
            "2019-07-09T02:28:57.123Z",
            MILLI_MOMENT.replace(tzinfo=UTC),
        ),
    ],
)
def test_values_without_schema_block_follow_the_column(options, column, value, stored):
    """As far as `test_every_type` does not tell it."""
    table = schema(("id", "BIGINT"), ("v", column))
    result = decoder(table, **options).decode(batch(message("c", None, {"id": 1, "v": value})))
    assert [r["v"] for r in rows(result)] == [stored]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("STRING", 5),
        ("STRING", True),
        ("INT", "5"),
        ("INT", 5.0),
        ("INT", True),
        ("DOUBLE", "five"),
        ("DECIMAL(4,2)", "MDkw"),
        ("TIMESTAMP(6)", "2026-01-01T00:00:00Z"),
        ("STRING NOT NULL", None),
        ({"type": "MAP", "key": "STRING", "value": "INT"}, {"a": 1}),
    ],
)
def test_nothing_is_guessed_without_schema_block(column, value):
    table = schema(("id", "BIGINT"), ("v", column))
    result = decoder(table).decode(batch(message("c", None, {"id": 1, "v": value})))
    assert classes(result) == ["type"]


@pytest.mark.parametrize(
    ("field", "options", "values"),
    [
        (connect_field("t", "int64", D + "MicroTime"), {}, [TIME_MS * 1000, TIME_MS * 1000 + 1]),
        (connect_field("t", "string", D + "IsoTime"), {}, ["04:05:11.789Z", "04:05:11.789001Z"]),
        (None, {}, [TIME_MS * 1000, TIME_MS * 1000 + 1]),
        (None, {"time_precision_mode": "isostring"}, ["04:05:11.789Z", "04:05:11.7890001Z"]),
    ],
)
@pytest.mark.parametrize("count", [1, 40])
def test_two_keys_of_the_source_never_become_one(field, options, values, count):
    """TIME has milliseconds: a finer time in a key would be the row of another one."""
    table = schema(("t", "TIME(6)"), ("cut", "TIME(6)"), key=("t",))
    fields = [] if field is None else [field, {**field, "field": "cut"}]
    events = [
        event(op, image if op == "d" else None, None if op == "d" else image)
        for value in values
        for image in [{"t": value, "cut": values[1]}]
        for op in ("c", "d")
        for _ in range(count)
    ]
    block = connect_block(*fields)
    messages = [dumps(e) if field is None else with_block(block, e) for e in events]
    result = decoder(table, **options).decode(batch(*messages))
    assert [(row["t"], row["cut"]) for row in rows(result)] == [(TIME, TIME)] * 2 * count
    assert classes(result) == ["unrepresentable"] * 2 * count
    assert "column t" in result.bad[0].error
    assert "time-to-string (or time-to-bigint" in result.bad[0].error


def test_text_in_a_column_of_bytes_is_decoded_only_as_the_settings_say():
    """A source column that became text is not base64, though `test` is."""
    table = schema(("id", "BIGINT"), ("v", "BYTES"))
    block = connect_block(connect_field("id", "int64"), connect_field("v", "string"))
    value = with_block(block, event("c", None, {"id": 1, "v": "test"}))
    result = decoder(table).decode(batch(value))
    assert classes(result) == ["type"]
    result = decoder(table, binary_handling_mode="base64").decode(batch(value))
    assert [row["v"] for row in rows(result)] == [b"\xb5\xeb\x2d"]
