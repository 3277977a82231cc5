# SPDX-License-Identifier: Apache-2.0
"""What databases have and columns have not, by each policy: hundreds of new columns at once,
infinite moments, years and fractions beyond a column's."""

import datetime
import time

import pytest

from ingest.decode.types.semantic_types import TypeMapping
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
from tests.unit.ingest.dialect_decoders import dialect_decoder
from tests.unit.ingest.every_way import EveryWay
from tests.unit.ingest.row_streams import ItemStream, changed

ZONED = "io.debezium.time.ZonedTimestamp"
MICROS = "io.debezium.time.MicroTimestamp"
UTC = datetime.UTC
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"

# --- several hundred columns at once


def wide(key, count, **more):
    kinds = [lambda n: n, lambda n: n + 0.5, lambda n: f"t{n}", lambda n: n % 8 == 3]
    row = {"id": key} | {f"c{n}": kinds[n % 4](n) for n in range(count)} | more
    return dumps(row).decode()


@pytest.mark.parametrize("mode", ["lenient", "evolve"])
def test_hundreds_of_new_columns(tmp_path, mode):
    one = ItemStream(tmp_path, "upsert-json", pipeline=f", schema.change.behavior: {mode}")
    one.put('{"id":1}', '{"id":2}')
    before = one.table.schema.id
    started = time.monotonic()
    one.put(*(wide(key, 600) for key in range(3, 100)), '{"id":100}')
    assert time.monotonic() - started < 60
    assert one.table.schema.id == before + 1  # all in one version
    assert list(one.types().values())[1:5] == ["BIGINT", "DOUBLE", "STRING", "BOOLEAN"]
    assert (len(one.types()), len(one.rows()), one.bad()) == (601, 100, [])
    assert one.rows()[2][1:5] == (0, 1.5, "t2", True)
    assert set(one.rows()[0][1:]) == {None}


def test_one_refused_column_among_hundreds(tmp_path):
    one = ItemStream(tmp_path, "upsert-json")
    one.put('{"id":1}')
    one.put(wide(2, 300), wide(3, 300, _KEY_x=5), wide(4, 300, _KEY_x=None))
    assert len(one.types()) == 301
    assert ([found[0] for found in one.rows()], one.bad()) == ([1, 2, 4], ["schema"])


def test_hundreds_of_columns_that_are_not_wanted(tmp_path):
    one = ItemStream(tmp_path, "upsert-json", pipeline=", schema.change.behavior: ignore")
    one.put('{"id":1}')
    one.put(wide(2, 600), wide(3, 600))
    assert (one.rows(), one.bad()) == ([(1,), (2,), (3,)], [])


def test_hundreds_of_columns_with_a_schema_block(tmp_path):
    def value(key, count):
        fields = [connect_field("id", "int64")]
        fields += [connect_field(f"c{n}", "int32") for n in range(count)]
        row = {"id": key} | {f"c{n}": n for n in range(count)}
        source = {"name": "src", "db": "shop", "schema": "", "table": "items"}
        return with_block(connect_block(*fields), event("c", None, row, **source))

    one = ItemStream(tmp_path, "debezium-json")
    one.run(value(1, 1))
    one.run(value(2, 600), value(3, 1), value(4, 600))
    assert (len(one.types()), len(one.rows()), one.bad()) == (601, 4, [])


# --- infinite moments


RULES = ["", ", on.incompatible: string", ", on.incompatible: new_column"]


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        # every mode and every rule, but not each rule in each
        pytest.param(mode, rule, marks=() if number % len(RULES) == at else pytest.mark.full)
        for number, mode in enumerate(["evolve", "try_evolve", "lenient", "ignore"])
        for at, rule in enumerate(RULES)
    ],
)
def test_infinities_are_no_change_of_the_schema(tmp_path, mode, rule):
    pipeline = f", schema.change.behavior: {mode}"
    one = ItemStream(tmp_path, "debezium-json", pipeline=pipeline, rule=rule)
    one.run(moment(1, 0, "2024-03-01T09:00:00Z"))
    types = one.types()
    one.run(moment(2, 2**63 - 1, None), moment(3, None, "infinity"), moment(4, 5, None))
    one.run(moment(1, -(2**63), "-infinity", "d"))  # a delete needs its key
    assert one.bad() == ["unrepresentable", "unrepresentable"]
    assert (one.types(), [found[0] for found in one.rows()]) == (types, [4])


@pytest.mark.parametrize("mode", ["lenient", "try_evolve", "ignore"])
@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("infinity-to-null", (None, None)),
        (
            "infinity-to-bounds",
            (
                datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC).replace(tzinfo=None),
                datetime.datetime(1, 1, 1, tzinfo=UTC),
            ),
        ),
    ],
)
def test_infinities_by_word(tmp_path, mode, word, stored):
    pipeline, sink = f", schema.change.behavior: {mode}", f", type.mapping: [{word}]"
    one = ItemStream(tmp_path, "debezium-json", pipeline=pipeline, sink=sink)
    one.run(moment(1, 0, None), moment(2, 2**63 - 1, "-infinity"))
    assert (one.rows()[1], one.bad()) == ((2, *stored), [])


def moment(key, micros, text, op="c"):
    fields = [connect_field("id", "int64"), connect_field("at", "int64", MICROS)]
    fields.append(connect_field("zoned", "string", ZONED))
    row = {"id": key, "at": micros, "zoned": text}
    source = {"name": "src", "db": "shop", "schema": "", "table": "items"}
    images = (row, None) if op == "d" else (None, row)
    return with_block(connect_block(*fields), event(op, *images, **source))


# --- zoned timestamps

FINE = "2024-03-01T09:00:00.1234567+02:00"
CUT = datetime.datetime(2024, 3, 1, 7, 0, 0, 123456, UTC)
FIELDS = [connect_field("id", "int64"), connect_field("at", "string", ZONED)]


def test_seven_digits_of_a_second_are_not_cut_unasked():
    way = EveryWay(FIELDS, [{"id": 1, "at": FINE}], schema(("id", "BIGINT"), ("at", LTZ)))
    for name, result in way.all().items():
        assert classes(result) == ["type"], name
        assert "cut-fractions" in result.bad[0].error, name
    zeros = [{"id": 1, "at": "2024-03-01T07:00:00.1234560Z"}]
    for name, result in (
        EveryWay(FIELDS, zeros, schema(("id", "BIGINT"), ("at", LTZ))).all().items()
    ):
        assert rows(result)[0]["at"] == CUT, name


def test_seven_digits_fit_a_column_of_nanoseconds():
    table = schema(("id", "BIGINT"), ("at", "TIMESTAMP(7) WITH LOCAL TIME ZONE"))
    for name, result in EveryWay(FIELDS, [{"id": 1, "at": FINE}], table).all().items():
        (change,) = result.changes
        assert change.rows.column("at").cast("int64").to_pylist() == [1_709_276_400_123_456_700], (
            name
        )


def test_fractions_are_cut_by_word():
    table, mapping = schema(("id", "BIGINT"), ("at", LTZ)), ["cut-fractions"]
    images = [{"id": 1, "at": FINE}, {"id": 2, "at": "1969-12-31T23:59:59.9999999Z"}]
    images += [{"id": 3, "at": "2024-03-01T07:00:00Z"}, {"id": 4, "at": None}]
    expected = [CUT, datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)]
    expected += [datetime.datetime(2024, 3, 1, 7, tzinfo=UTC), None]
    way = EveryWay(FIELDS, images, table, mapping=mapping)
    for name, result in way.all().items():
        assert [found["at"] for found in rows(result)] == expected, name
    assert [found["at"] for found in rows(way.block())] == expected


@pytest.mark.parametrize("form", ["upsert-json", "aws-dms-json"])
def test_fractions_of_local_timestamps_are_cut_by_word(form):
    table = schema(("id", "BIGINT"), ("at", "TIMESTAMP(3)"))
    value = changed(form, "c", '{"id":1,"at":"2024-03-01 09:00:00.9999999"}')
    for words, found in ((["cut-fractions"], 999), ([], None)):
        one = dialect_decoder(form, table, type_mapping=TypeMapping.of(words))
        result = one.decode(batch(value, topic="shop.items"))
        stored = [row["at"].microsecond // 1000 for row in rows(result)]
        assert stored == ([] if found is None else [found])
        assert classes(result) == ([] if found else ["type"])


def test_zoned_timestamps_are_text_by_word(tmp_path):
    one = ItemStream(tmp_path, "debezium-json", sink=", type.mapping: [zoned-to-string]")
    one.run(moment(1, 0, FINE), moment(2, 0, "infinity"))
    assert one.types()["zoned"] == "STRING"
    assert [found[2] for found in one.rows()] == [FINE, "infinity"]


YEARS = {
    "+10000-01-01T00:00:00Z": 253_402_300_800_000_000,
    "-0043-03-15T12:00:00.5Z": -63_517_780_799_500_000,
    "+294276-12-31T23:59:59.999999Z": 9_224_318_015_999_999_999,
    "0000-02-29T00:00:00Z": -62_162_121_600_000_000,
}


def test_years_of_more_and_fewer_than_four_digits():
    table = schema(("id", "BIGINT"), ("at", LTZ))
    images = [{"id": key, "at": text} for key, text in enumerate(YEARS)]
    for name, result in EveryWay(FIELDS, images, table).all().items():
        found = [v for c in result.changes for v in c.rows.column("at").cast("int64").to_pylist()]
        fits = [micros for micros in YEARS.values() if micros < 2**63]
        assert found == fits, name
        assert classes(result) == ["type"] * (len(YEARS) - len(fits)), name


@pytest.mark.parametrize(
    "text", ["10000-01-01T00:00:00Z", "+1-01-01T00:00:00Z", "+10000-02-30T00:00:00Z"]
)
def test_years_are_not_guessed(text):
    table = schema(("id", "BIGINT"), ("at", LTZ))
    assert classes(decoder(table).decode(batch(message("c", None, {"id": 1, "at": text})))) == [
        "type"
    ]
