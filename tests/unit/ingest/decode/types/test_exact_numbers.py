# SPDX-License-Identifier: Apache-2.0
"""Numbers that come without a declared type are stored as they are, or not at all."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as sized
from hypothesis import strategies as st

from ingest.decode.types.exact_numbers import exact_numbers, number_type
from ingest.source.records import RawBatch
from storage.format.types.types import type_name
from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    connect_block,
    connect_field,
    decoder,
    event,
    raw_after,
    rows,
    schema,
    with_block,
)
from tests.unit.ingest.dialect_decoders import dialect_decoder
from tests.unit.ingest.every_way import by_columns, by_reference
from tests.unit.ingest.row_streams import DIALECTS, ItemStream

LONG = "1234567890123456.7891"
LONGER = "12345678901234567890.1234567890"
UNDECLARED = [form for form in [*DIALECTS, "upsert-json"] if form != "canal-json"]
"""Canal declares its types, or keeps the texts of all values."""

EVERY = pytest.mark.parametrize("form", UNDECLARED)


def row(key, number):
    return f'{{"id":{key},"n":{number}}}'


@EVERY
def test_a_new_column_holds_its_numbers_exactly(tmp_path, form):
    one = ItemStream(tmp_path, form)
    one.put(row(1, LONG), row(2, "1.5"), row(3, "7"))
    assert one.types() == {"id": "BIGINT", "n": "DECIMAL(24, 4)"}
    assert one.rows() == [(1, Decimal(LONG)), (2, Decimal("1.5")), (3, Decimal(7))]
    one.put(row(4, "0.12345"), row(5, LONGER))
    assert one.types()["n"] == "DECIMAL(30, 10)"
    assert one.rows()[3:] == [(4, Decimal("0.12345")), (5, Decimal(LONGER))]
    assert one.bad() == []


@pytest.mark.parametrize("form", ["json", "debezium-json"])
@pytest.mark.parametrize(
    ("numbers", "type_"),
    [("1 9223372036854775808", "DECIMAL(20, 0)"), ("1 -22598330314252089856826", "DECIMAL(23, 0)")],
)
def test_a_later_integer_beyond_64_bits_is_asked_for_at_once(form, numbers, type_):
    texts = [row(key, number).encode() for key, number in enumerate(numbers.split())]
    if form == "debezium-json":
        texts = [b'{"after":%s,"source":{"db":"d","table":"t"},"op":"c"}' % text for text in texts]
    keys = [b'{"id":%d}' % key for key in range(len(texts))]
    for way in (by_columns, by_reference):
        with way():
            result = dialect_decoder(form, None).decode(RawBatch("d.t", 0, [0, 1], keys, texts))
        (delta,) = result.deltas
        assert [type_name(field.type) for field in delta.fields] == ["BIGINT", type_]
        assert result.counts == {"pending": 2}


@pytest.mark.parametrize("number", [b"0e99999", b"1.5", b'"2.5"'])
def test_texts_of_numbers_in_a_column_refuse_no_other_value_of_it(number):
    alone = exact_numbers([number], pa.float64(), loose=True)
    beside = exact_numbers([number, b'"1.5"', None], pa.float64(), loose=True)
    assert beside.to_pylist() == [*alone.to_pylist(), 1.5, None]


@EVERY
def test_a_later_number_of_the_first_batch_decides_too(tmp_path, form):
    one = ItemStream(tmp_path, form)
    one.put(row(1, "1.5"), row(2, LONG), row(3, "2"))
    assert one.types()["n"] == "DECIMAL(24, 4)"
    assert [number for _, number in one.rows()] == [Decimal("1.5"), Decimal(LONG), Decimal(2)]


@EVERY
def test_a_double_column_never_holds_another_number(tmp_path, form):
    one = ItemStream(tmp_path, form)
    one.put(row(1, "1.5"))
    assert one.types()["n"] == "DOUBLE"
    one.put(row(2, LONG), row(3, "9007199254740993"), row(4, "1.10"), row(5, "0.1000"))
    one.put(row(6, "9007199254740992"), row(7, "1e400"), row(8, "0.30000000000000004"))
    assert one.bad() == ["type", "type", "type"]
    assert "would become 1234567890123456.8" in one.errors()[0]
    assert one.rows() == [
        (1, 1.5),
        (4, 1.1),
        (5, 0.1),
        (6, 9007199254740992.0),
        (8, 0.30000000000000004),
    ]


@EVERY
def test_a_rule_makes_room_for_the_number(tmp_path, form):
    text = ItemStream(tmp_path / "text", form, rule=", on.incompatible: string")
    beside = ItemStream(tmp_path / "beside", form, rule=", on.incompatible: new_column")
    for one in (text, beside):
        one.put(row(1, "1.5"))
        one.put(row(2, LONG))
        one.put(row(3, "2.5"))
        assert one.bad() == []
    assert text.rows() == [(1, "1.5"), (2, LONG), (3, "2.5")]
    assert beside.types() == {"id": "BIGINT", "n": "DOUBLE", "n_1": "DECIMAL(24, 4)"}
    assert beside.rows() == [(1, 1.5, None), (2, None, Decimal(LONG)), (3, 2.5, None)]


@EVERY
def test_integers_beyond_64_bits_widen_the_column(tmp_path, form):
    one = ItemStream(tmp_path, form)
    one.put(row(1, 7), row(2, 2**63 - 1))
    assert one.types()["n"] == "BIGINT"
    one.put(row(3, 2**64 - 1), row(4, 8), row(5, -(2**63)))
    assert one.types()["n"] == "DECIMAL(20, 0)"
    assert [int(number) for _, number in one.rows()] == [7, 2**63 - 1, 2**64 - 1, 8, -(2**63)]
    one.update(row(1, 7), row(1, 2**64 - 1))
    assert one.rows()[0] == (1, Decimal(2**64 - 1))
    assert one.bad() == []


def test_a_new_column_of_large_integers(tmp_path):
    one = ItemStream(tmp_path, "maxwell-json")
    one.put(row(1, 7), row(2, 2**64 - 1))
    assert one.types()["n"] == "DECIMAL(20, 0)"
    one.put(row(3, 10**39), row(4, 1))
    assert one.bad() == ["type"]  # no DECIMAL has so many digits
    assert [key for key, _ in one.rows()] == [1, 2, 4]


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"pipeline": ", schema.change.behavior: ignore"}, "BIGINT"),
        ({"sink": ", type.mapping: [no-change]"}, "BIGINT"),
        ({"pipeline": ", schema.change.behavior: try_evolve"}, "DECIMAL(20, 0)"),
        ({"pipeline": ", schema.change.behavior: evolve"}, "DECIMAL(20, 0)"),
    ],
)
def test_widening_follows_the_policy(tmp_path, more, kept):
    one = ItemStream(tmp_path, "upsert-json", **more)
    one.put(row(1, 7))
    one.put(row(2, 2**63), row(3, 8))
    assert one.types()["n"] == kept
    assert one.bad() == ([] if kept != "BIGINT" else ["type"])
    assert [key for key, _ in one.rows()] == ([1, 2, 3] if kept != "BIGINT" else [1, 3])


def test_numbers_with_a_sign_are_not_taken_for_wrapped_ones(tmp_path):
    one = ItemStream(tmp_path, "debezium-json", sink=", type.mapping: [unsigned-bigint-to-decimal]")
    one.put('{"id":1,"n":7,"m":18446744073709551615}')
    one.put('{"id":2,"n":18446744073709551615,"m":7}', '{"id":3,"n":-5,"m":-6}')
    assert one.types() == {"id": "BIGINT", "n": "DECIMAL(21, 0)", "m": "DECIMAL(21, 0)"}
    assert [[int(value) for value in found] for found in one.rows()] == [
        [1, 7, 2**64 - 1],
        [2, 2**64 - 1, 7],
        [3, -5, -6],
    ]


def test_a_key_is_not_widened(tmp_path):
    one = ItemStream(tmp_path, "upsert-json")
    one.put(row(1, 7))
    one.put(row(2**63, 7), row(2, 8))
    assert (one.types()["id"], one.bad(), len(one.rows())) == ("BIGINT", ["type"], 2)


def test_columns_of_numbers_widen_without_loss():
    table = schema(("id", "BIGINT"), ("i", "INT"), ("f", "FLOAT"), ("d", "DECIMAL(4,2)"))
    value = raw_after('{"id":1,"i":2147483648,"f":0.123456789,"d":123.456}')
    (delta,) = decoder(table).decode(batch(value)).deltas
    asked = {field.name: type_name(field.type) for field in delta.fields}
    assert asked == {"i": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(23, 3)"}


def test_declared_types_are_what_their_values_are():
    block = connect_block(connect_field("id", "int64"), connect_field("v", "double"))
    value = with_block(block, event("c", None, "@")).replace(
        b'"@"', f'{{"id":1,"v":{LONG}}}'.encode()
    )
    result = decoder(schema(("id", "BIGINT"), ("v", "DOUBLE"))).decode(batch(value))
    assert [found["v"] for found in rows(result)] == [float(LONG)]
    narrow = decoder(schema(("id", "BIGINT"), ("v", "FLOAT")), evolvable=False)
    values = [value.replace(LONG.encode(), n) for n in (b"0.5", b"0.1", b"0.123456789")]
    result = narrow.decode(batch(*values))
    assert [found["v"] for found in rows(result)] == [0.5, pytest.approx(0.1)]
    assert classes(result) == ["type"]


def test_canals_declared_doubles_are_not_checked():
    table = schema(("id", "BIGINT"), ("v", "DOUBLE"))
    text = (
        '{"type":"INSERT","database":"d","table":"t","data":[{"id":"1","v":"%s"}],"mysqlType":%s}'
    )
    declared, other = '{"id":"bigint","v":"double"}', '{"id":"bigint","v":"decimal(20,4)"}'
    values = [(text % (LONG, types)).encode() for types in (declared, other, "null")]
    one = dialect_decoder("canal-json", table, evolvable=False)
    result = one.decode(batch(*values, topic="d.t"))
    assert ([found["v"] for found in rows(result)], classes(result)) == (
        [float(LONG)],
        ["type", "type"],
    )


def test_what_java_prints_of_a_double_is_a_double():
    printed = [
        "4.9E-324",
        "5.7646075230342349E17",
        "2.8421709430404007E-14",
        "8.5408298743460826E17",
    ]
    values = [raw_after(row(1, number)) for number in printed]
    result = decoder(schema(("id", "BIGINT"), ("n", "DOUBLE"))).decode(batch(*values))
    assert [found["n"] for found in rows(result)] == [float(number) for number in printed]


@pytest.mark.parametrize("column", ["DOUBLE", "FLOAT", {"type": "ARRAY", "element": "DOUBLE"}])
def test_usual_doubles_stay_on_the_fast_path(column):
    numbers = ["0.1", "1.10", "-12.345", "7", "null", "1E5", "0.00001"]
    if column != "FLOAT":
        numbers += ["0.30000000000000004", "-1234567.8901234567", "1.2345678901234567E19"]
    if isinstance(column, dict):
        numbers = [f"[{number},null]" for number in numbers]
    table = schema(("id", "BIGINT"), ("n", column))
    values = [raw_after(row(1, number)) for number in numbers]
    with by_columns(strictly=True):
        result = decoder(table).decode(batch(*values))
    assert (len(rows(result)), result.bad) == (len(numbers), [])


NUMBERS = st.one_of(
    st.decimals(-(10**12), 10**12, places=4).map(lambda number: f"{number:f}"),
    st.decimals(-(10**16), 10**16, places=6).map(lambda number: f"{number:f}"),
    st.integers(-(2**66), 2**66).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.builds("{}.{}e{}".format, st.integers(1, 9), st.integers(0, 10**17), st.integers(-330, 310)),
)


@sized(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_what_is_stored_is_what_was_sent(numbers):
    for form in ("debezium-flat", "upsert-json"):
        table = schema(("id", "BIGINT"), ("n", "DOUBLE"))
        values = [row(at, number).encode() for at, number in enumerate(numbers)]
        result = dialect_decoder(form, table).decode(batch(*values, topic="d.t"))
        stored = {found["id"]: found["n"] for found in rows(result)}
        for at, number in enumerate(numbers):
            sent = Decimal(number)
            fits = abs(sent) < Decimal("1.8e308") and sent in (
                Decimal(repr(float(number))),
                Decimal(float(number)),
            )
            assert (at in stored) == fits, number
            assert not fits or stored[at] == float(number)


@pytest.mark.parametrize(
    ("number", "type_"),
    [
        ("5", "BIGINT"),
        ("-9223372036854775808", "BIGINT"),
        ("-9223372036854775809", "DECIMAL(20, 0)"),
        ("18446744073709551615", "DECIMAL(20, 0)"),
        ("123456789012345678901234", "DECIMAL(24, 0)"),
        ("1.10", "DOUBLE"),
        ("1e300", "DOUBLE"),
        (LONG, "DECIMAL(24, 4)"),
        (LONGER, "DECIMAL(30, 10)"),
        ("0.1000000000000000000000000000001", "DECIMAL(38, 31)"),
    ],
)
def test_types_of_new_columns(number, type_):
    assert type_name(number_type(number.encode())) == type_
