# SPDX-License-Identifier: Apache-2.0
"""`sink.type.mapping`: each word, in every encoding, column by column and value by value."""

import datetime
from decimal import Decimal

import pytest

from ingest.config.choices import MAPPING_WORDS
from ingest.decode.types.semantic_types import TypeMapping
from storage.errors import InvalidOptionError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type, type_name
from tests.unit.ingest.debezium_events import connect_field
from tests.unit.ingest.dialect_decoders import dialect_decoder
from tests.unit.ingest.every_way import BARE, EveryWay, by_reference, stored

T = "io.debezium.time."
DECIMAL = "org.apache.kafka.connect.data.Decimal"
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
UTC = datetime.UTC
FIRST, LAST = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
FIRST_MOMENT = datetime.datetime(1, 1, 1)  # noqa: DTZ001
LAST_MOMENT = datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
ID = connect_field("id", "int64")


def table(column):
    columns = [("id", parse_type("BIGINT")), ("v", parse_type(column))]
    return new_schema(columns, primary_keys=("id",), options={}, now_ms=0)


def made(field, *words):
    """The column that a new table gets."""
    (delta,) = EveryWay([ID, field], [{"id": 1, "v": None}], None, mapping=words).block().deltas
    return delta.fields[1].type


def decoded(field, column, values, *words, bare=True, op="c", **options):
    """(values, error classes) of every way, which must all be the same."""
    rows = [{"id": n, "v": value} for n, value in enumerate(values)]
    ways = EveryWay([ID, field], rows, table(column), mapping=words, op=op, **options)
    results = ways.all()
    found = {
        name: (stored(result), [record.error_class for record in result.bad])
        for name, result in results.items()
        if bare or name not in BARE
    }
    one = found["block"]
    assert all(each == one for each in found.values()), found
    errors = {record.error for result in results.values() for record in result.bad}
    return *one, errors


INFINITE = [
    (
        connect_field("v", "int32", T + "Date"),
        "DATE",
        [-622_191_234, 2_146_033_979, -2_147_472_692],
        [622_191_232, 622_191_233, -2_147_472_691],
        (LAST, FIRST),
    ),
    (
        connect_field("v", "int64", T + "MicroTimestamp"),
        "TIMESTAMP(6)",
        [2**63 - 1, 9_223_372_036_825_200_000],
        [-(2**63), -9_223_372_036_832_400_000],
        (LAST_MOMENT, FIRST_MOMENT),
    ),
    (
        connect_field("v", "int64", T + "Timestamp"),
        "TIMESTAMP(3)",
        [2**63 - 1, 9_223_372_036_825_200, 9_223_372_036_854_775],
        [-(2**63), -9_223_372_036_832_400, -9_223_372_036_854_775],
        (LAST_MOMENT.replace(microsecond=999_000), FIRST_MOMENT),
    ),
    (
        connect_field("v", "string", T + "ZonedTimestamp"),
        LTZ,
        ["infinity"],
        ["-infinity"],
        (LAST_MOMENT.replace(tzinfo=UTC), FIRST_MOMENT.replace(tzinfo=UTC)),
    ),
]
LABELS = ["date", "micros", "millis", "zoned"]


@pytest.mark.parametrize(("field", "column", "plus", "minus", "_"), INFINITE, ids=LABELS)
def test_infinities_are_refused_by_default_and_say_what_to_choose(field, column, plus, minus, _):
    values, classes, errors = decoded(field, column, [*plus, *minus, None])
    assert values == [None]
    assert classes == ["unrepresentable"] * (len(plus) + len(minus))
    for error in errors:
        assert error.startswith(f"column v ({type_name(parse_type(column))}): ")
        assert "infinity-to-null" in error
    signs = {"-infinity" in error for error in errors}
    assert signs == {True, False}


@pytest.mark.parametrize(("field", "column", "plus", "minus", "bounds"), INFINITE, ids=LABELS)
def test_infinities_as_null_and_as_bounds(field, column, plus, minus, bounds):
    values = [*plus, None, *minus]
    assert decoded(field, column, values, "infinity-to-null")[:2] == ([None] * len(values), [])
    first, last = [bounds[0]] * len(plus), [bounds[1]] * len(minus)
    found = decoded(field, column, values, "infinity-to-bounds")
    assert found[:2] == ([*first, None, *last], [])


def test_infinite_nanoseconds_become_the_ends_of_nanoseconds():
    field = connect_field("v", "int64", T + "NanoTimestamp")
    rows = [{"id": n, "v": v} for n, v in enumerate([2**63 - 1, -(2**63), 2**63 - 2])]
    ways = EveryWay([ID, field], rows, table("TIMESTAMP(9)"), mapping=["infinity-to-bounds"])
    for result in ways.all().values():
        (change,) = result.changes
        found = change.rows.column("v").cast("int64").to_pylist()
        assert found == [2**63 - 1, -(2**63) + 1, 2**63 - 2]


def test_dates_that_only_look_far_are_kept():
    """44 BC, the year 12345, the first and the last day of PostgreSQL's."""
    field = connect_field("v", "int64", T + "MicroTimestamp")
    rows = [{"id": n, "v": v} for n, v in enumerate([-63_517_780_800_000_000, 2**62])]
    for result in EveryWay([ID, field], rows, table("TIMESTAMP(6)")).all().values():
        assert not result.bad
    field = connect_field("v", "int32", T + "Date")
    rows = [{"id": n, "v": v} for n, v in enumerate([-2_440_588, 2_145_042_905])]
    for result in EveryWay([ID, field], rows, table("DATE")).all().values():
        assert result.changes[0].rows.column("v").cast("int32").to_pylist() == [
            -2_440_588,
            2_145_042_905,
        ]


def test_infinities_in_arrays():
    field = connect_field(
        "v", "array", items={"type": "int32", "optional": True, "name": T + "Date"}
    )
    column = {"type": "ARRAY", "element": "DATE"}
    values, classes, errors = decoded(field, column, [[0, 2_146_033_979], [0]])
    assert (values, classes) == ([[datetime.date(1970, 1, 1)]], ["unrepresentable"])
    assert "infinity" in errors.pop()
    values, classes, _ = decoded(field, column, [[2_146_033_979]], "infinity-to-bounds")
    assert (values, classes) == ([[LAST]], [])


def test_a_delete_does_not_fail_for_a_value_that_has_no_counterpart():
    field = connect_field("v", "int32", T + "Date")
    assert decoded(field, "DATE", [2_146_033_979], op="d")[:2] == ([None], [])


@pytest.mark.parametrize("value", [86_400_000_000, -1, 3_020_399_000_000])
def test_times_outside_of_a_day_are_refused_by_default(value):
    field = connect_field("v", "int64", T + "MicroTime")
    values, classes, errors = decoded(field, "TIME(6)", [value, 1_000])
    assert (values, classes) == ([datetime.time(0, 0, 0, 1_000)], ["unrepresentable"])
    assert "time-to-bigint" in errors.pop()


TIMES = [
    ("int32", "Time", 43_200_001, 43_200_001_000, "12:00:00.001"),
    ("int64", "MicroTime", -43_200_000_000, -43_200_000_000, "-12:00:00"),
    ("int64", "MicroTime", 3_020_399_000_001, 3_020_399_000_001, "838:59:59.000001"),
    ("int64", "NanoTime", 1_000, 1, "00:00:00.000001"),
]


@pytest.mark.parametrize(("literal", "name", "value", "micros", "text"), TIMES)
def test_times_as_numbers_and_as_text(literal, name, value, micros, text):
    field = connect_field("v", literal, T + name)
    assert made(field, "time-to-bigint") == parse_type("BIGINT")
    assert made(field, "time-to-string") == parse_type("STRING")
    found = decoded(field, "BIGINT", [value, None], "time-to-bigint", bare=False)
    assert found[:2] == ([micros, None], [])
    found = decoded(field, "STRING", [value, None], "time-to-string", bare=False)
    assert found[:2] == ([text, None], [])
    # a column that exists keeps its type, and its rules
    if 0 <= micros < 86_400_000_000:
        assert decoded(field, "TIME(6)", [value], "time-to-bigint", bare=False)[1] == []


def test_times_that_are_text_stay_as_sent():
    field = connect_field("v", "string", T + "IsoTime")
    assert made(field, "time-to-string") == parse_type("STRING")
    assert made(field, "time-to-bigint") == parse_type("TIME(6)")
    sent = ["04:05:11.789001Z", "24:00:00Z", None]
    found = decoded(field, "STRING", sent, "time-to-string", bare=False)
    assert found[:2] == (sent, [])


def test_microseconds_do_not_hold_nanoseconds():
    field = connect_field("v", "int64", T + "NanoTime")
    found = decoded(field, "BIGINT", [1_001], "time-to-bigint", bare=False)
    assert found[:2] == ([], ["type"])


UNSIGNED = {"__debezium.source.column.type": "BIGINT UNSIGNED"}


def test_unsigned_numbers_of_64_bits():
    field = connect_field("v", "int64", parameters=UNSIGNED)
    assert made(field) == parse_type("BIGINT")
    values, classes, errors = decoded(field, "BIGINT", [-1, 5], bare=False)
    assert (values, classes) == ([5], ["unrepresentable"])
    error = errors.pop()
    assert "18446744073709551615" in error
    assert "unsigned-bigint-to-decimal" in error
    word = "unsigned-bigint-to-decimal"
    assert made(field, word) == parse_type("DECIMAL(20,0)")
    values, classes, _ = decoded(field, "DECIMAL(20,0)", [-1, -(2**63), 5, None, 2**63 - 1], word)
    assert classes == []
    assert values == [Decimal(2**64 - 1), Decimal(2**63), 5, None, Decimal(2**63 - 1)]


def test_unsigned_numbers_that_come_as_decimals():
    field = connect_field("v", "bytes", DECIMAL, parameters={"scale": "0", **UNSIGNED})
    assert made(field) == parse_type("DECIMAL(38,0)")
    assert made(field, "unsigned-bigint-to-decimal") == parse_type("DECIMAL(20,0)")
    word = "bigint-unsigned-to-bigint"
    assert made(field, word) == parse_type("BIGINT")
    values, classes, _ = decoded(field, "BIGINT", ["BQ==", "AP//////////", None], word, bare=False)
    assert (values, classes) == ([5, None], ["type"])


def test_a_signed_number_stays_signed():
    field = connect_field("v", "int64", parameters={"__debezium.source.column.type": "BIGINT"})
    assert made(field, "unsigned-bigint-to-decimal") == parse_type("BIGINT")
    assert decoded(field, "BIGINT", [-1], "unsigned-bigint-to-decimal")[0] == [-1]


def test_bits_without_schema_are_taken_by_choice_only():
    rows = [{"id": n, "v": value} for n, value in enumerate(["pQE=", 7, None, "AQ=="])]
    field = connect_field("v", "bytes", "io.debezium.data.Bits", parameters={"length": "9"})
    plain = EveryWay([ID, field], rows, table("BIGINT")).bare()
    assert [record.error_class for record in plain.bad] == ["type", "type"]
    chosen = EveryWay([ID, field], rows, table("BIGINT"), mapping=["bits-to-bigint"])
    assert stored(chosen.bare()) == [421, 7, None, 1]


def test_a_decimal_of_its_own_scale_without_schema_is_its_digits():
    rows = [
        {"id": n, "v": value}
        for n, value in enumerate(
            [
                {"scale": 3, "value": "MDk="},
                {"scale": 3, "value": "MDk=", "more": 1},
                {"scale": "3", "value": "MDk="},
                {"value": "MDk=", "scale": -2},
                "text",
                {"scale": 1, "value": "no base64"},
            ]
        )
    ]
    field = connect_field("v", "struct", "io.debezium.data.VariableScaleDecimal")
    ways = EveryWay([ID, field], rows, table("STRING"))
    assert stored(ways.bare()) == [
        "12.345",
        '{"scale":3,"value":"MDk=","more":1}',
        '{"scale":"3","value":"MDk="}',
        "1234500",
        "text",
        '{"scale":1,"value":"no base64"}',
    ]


TEXTS = [
    (connect_field("v", "int32"), -5, "-5"),
    (connect_field("v", "boolean"), True, "true"),
    (connect_field("v", "double"), 0.5, "0.5"),
    (connect_field("v", "string"), "x", "x"),
    (connect_field("v", "bytes"), "3q2+7w==", "3q2+7w=="),
    (connect_field("v", "bytes", DECIMAL, parameters={"scale": "2"}), "MDk=", "123.45"),
    (connect_field("v", "int32", T + "Date"), 17424, "2017-09-15"),
    (connect_field("v", "int64", T + "MicroTime"), -1, "-00:00:00.000001"),
    (
        connect_field("v", "int64", T + "MicroTimestamp"),
        1_562_639_337_123_456,
        "2019-07-09 02:28:57.123456",
    ),
    (connect_field("v", "string", T + "ZonedTimestamp"), "2019-07-09T02:28:57Z", None),
    (connect_field("v", "array", items={"type": "int32"}), [1, 2], "[1,2]"),
    (
        connect_field("v", "bytes", "io.debezium.data.Bits", parameters={"length": "9"}),
        "pQE=",
        "421",
    ),
]


@pytest.mark.parametrize(("field", "value", "text"), TEXTS)
def test_everything_as_text(field, value, text):
    assert made(field, "to-string") == parse_type("STRING")
    found = decoded(field, "STRING", [value, None], "to-string", bare=False)
    assert found[:2] == ([text or value, None], [])


def test_everything_as_text_without_schema_is_as_it_was_sent():
    rows = [{"id": n, "v": v} for n, v in enumerate([5, -0.5, True, "x", None, {"a": 1}, [1]])]
    ways = EveryWay([ID, connect_field("v", "int32")], rows, table("STRING"), mapping=["to-string"])
    wanted = ["5", "-0.5", "true", "x", None, '{"a":1}', "[1]"]
    with by_reference():
        one_by_one = stored(ways.bare())
    assert [stored(ways.bare()), one_by_one] == [wanted, wanted]


def test_a_column_that_exists_is_filled_as_if_there_were_no_mapping():
    field = connect_field("v", "int32")
    assert decoded(field, "INT", [5], "to-string")[:2] == ([5], [])
    assert decoded(field, "BIGINT", [5], "to-string")[:2] == ([5], [])


def test_long_texts_as_bytes():
    field = connect_field("v", "string", parameters={"__debezium.source.column.type": "LONGTEXT"})
    assert made(field) == parse_type("STRING")
    assert made(field, "longtext-to-bytes") == parse_type("BYTES")
    found = decoded(field, "BYTES", ["é", None], "longtext-to-bytes", bare=False)
    assert found[:2] == (["é".encode(), None], [])
    other = connect_field("v", "string", parameters={"__debezium.source.column.type": "TEXT"})
    assert made(other, "longtext-to-bytes") == parse_type("STRING")


@pytest.mark.parametrize("word", ["no-change", "decimal-no-change"])
def test_decimals_that_do_not_change(word):
    field = connect_field(
        "v", "bytes", DECIMAL, parameters={"scale": "2", "connect.decimal.precision": "5"}
    )
    rows = [{"id": 1, "v": "MDk="}, {"id": 2, "v": "AIA="}]
    wider = EveryWay([ID, field], rows, table("DECIMAL(4,2)"))
    assert wider.block().deltas
    kept = EveryWay([ID, field], rows, table("DECIMAL(4,2)"), mapping=[word])
    for result in (kept.block(), kept.avro()):
        assert result.deltas == []
        assert stored(result) == [Decimal("1.28")]
        assert [record.error_class for record in result.bad] == ["type"]


def test_only_no_change_keeps_integers():
    rows = [{"id": 1, "v": 2**40}, {"id": 2, "v": 5}]
    field = connect_field("v", "int64")
    assert EveryWay([ID, field], rows, table("INT"), mapping=["decimal-no-change"]).block().deltas
    kept = EveryWay([ID, field], rows, table("INT"), mapping=["no-change"]).block()
    assert (kept.deltas, stored(kept)) == ([], [5])


def canal(type_, *words):
    decoder = dialect_decoder("canal-json", None, type_mapping=TypeMapping.of(words))
    value = (
        b'{"type":"INSERT","database":"d","table":"t","pkNames":["id"],"data":[{"id":"1","v":"2"}],'
        b'"mysqlType":{"id":"int","v":"%b"}}' % type_.encode()
    )
    (delta,) = decoder.decode(_one(value)).deltas
    return delta.fields[1].type


def _one(value):
    return EveryWay([], [], None)._raw([value])


def test_words_that_other_formats_know():
    assert canal("varchar(9)") == parse_type("VARCHAR(9)")
    assert canal("varchar(9)", "char-to-string") == parse_type("STRING")
    assert canal("bigint unsigned") == parse_type("DECIMAL(20,0)")
    assert canal("bigint unsigned", "bigint-unsigned-to-bigint") == parse_type("BIGINT")
    assert canal("int", "to-string") == parse_type("STRING")


def test_words_are_checked():
    assert TypeMapping.of(["To-Nullable", " tinyint1-not-bool"]).words == {
        "to-nullable",
        "tinyint1-not-bool",
    }
    with pytest.raises(InvalidOptionError, match="unknown type mapping") as raised:
        TypeMapping.of(["tinyint-not-bool"])
    assert "tinyint1-not-bool" in str(raised.value)
    with pytest.raises(InvalidOptionError, match="contradict"):
        TypeMapping.of(["infinity-to-null", "infinity-to-bounds"])
    for word in MAPPING_WORDS:
        assert word in TypeMapping.of([word])


def test_keys_are_mapped_too():
    field = connect_field("id", "int64")
    ways = EveryWay([field], [{"id": 1}], None, mapping=["to-string"])
    (delta,) = ways.block().deltas
    assert delta.fields[0].type == parse_type("STRING")
