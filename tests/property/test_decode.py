# SPDX-License-Identifier: Apache-2.0
"""The column-wise path and the reference path give the same rows, bad records and counts."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.decode.types.semantic_types import TypeMapping
from tests.property.awkward_values import AWKWARD
from tests.property.profiles import profile
from tests.unit.ingest.debezium_events import (
    batch,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    schema,
)
from tests.unit.ingest.every_way import by_reference
from tests.unit.ingest.walking import walking

INTEGERS = st.one_of(st.integers(-130, 130), st.integers(-(2**70), 2**70)).map(str)
ZONES = st.sampled_from(["Z", "z", "", "+02:00", "-0030", "+05", "+25:00", "+02:60", "+00:00:10"])
MOMENTS = st.datetimes()
TOKENS = st.one_of(
    st.sampled_from(AWKWARD),
    INTEGERS,
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-10_000, 10_000, places=3).map(lambda number: format(number, "f")),
    st.decimals(-(10**9), 10**9, places=2).map(lambda number: f'"{number:f}"'),
    st.decimals(-(10**14), 10**14, places=4).map(lambda number: f"{number:f}"),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.binary(max_size=18).map(lambda data: json.dumps(base64.b64encode(data).decode())),
    st.builds(lambda moment, zone: f'"{moment.isoformat()}{zone}"', MOMENTS, ZONES),
    st.builds(lambda moment, zone: f'"{moment.isoformat(" ", "minutes")}{zone}"', MOMENTS, ZONES),
)

TYPES = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "VARCHAR(5)"),
    *("BYTES", "VARBINARY(3)", "DECIMAL(9,2)", "DECIMAL(38,10)", "DATE", "TIME(3)", "TIME(6)"),
    *("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    *("TIMESTAMP(3) WITH LOCAL TIME ZONE", "STRING NOT NULL"),
    {"type": "ARRAY", "element": "INT"},
    {"type": "ARRAY", "element": "STRING NOT NULL"},
    {"type": "ARRAY", "element": "DECIMAL(9,2)"},
    {"type": "ARRAY", "element": "DOUBLE"},
    {"type": "MAP", "key": "STRING", "value": "INT"},
    *("DECIMAL(38,30)", "CHAR(3)", "BINARY(2)"),
]
MODES = [
    {},
    {"decimal_handling_mode": "string", "binary_handling_mode": "hex"},
    {"decimal_handling_mode": "double", "binary_handling_mode": "base64-url-safe"},
    {"time_precision_mode": "connect"},
    {"time_precision_mode": "isostring"},
    {"time_precision_mode": "adaptive_time_microseconds"},
    {
        "time_precision_mode": "isostring",
        "type_mapping": TypeMapping.of(["cut-fractions", "infinity-to-null"]),
    },
]
DECIMAL = "org.apache.kafka.connect.data.Decimal"
BLOCK_FIELDS = [
    connect_field("v", "int16"),
    connect_field("v", "int64"),
    connect_field("v", "float"),
    connect_field("v", "double"),
    connect_field("v", "string"),
    connect_field("v", "bytes"),
    connect_field("v", "bytes", DECIMAL, parameters={"scale": "2"}),
    connect_field("v", "struct", "io.debezium.data.VariableScaleDecimal"),
    connect_field("v", "int32", "io.debezium.time.Date"),
    connect_field("v", "int32", "io.debezium.time.Time"),
    connect_field("v", "int64", "io.debezium.time.MicroTime"),
    connect_field("v", "int64", "io.debezium.time.NanoTime"),
    connect_field("v", "int64", "io.debezium.time.Timestamp"),
    connect_field("v", "int64", "io.debezium.time.MicroTimestamp"),
    connect_field("v", "int64", "io.debezium.time.NanoTimestamp"),
    connect_field("v", "string", "io.debezium.time.ZonedTimestamp"),
    connect_field("v", "string", "io.debezium.time.IsoDate"),
    connect_field("v", "string", "io.debezium.time.IsoTime"),
    connect_field("v", "string", "io.debezium.time.IsoTimestamp"),
    connect_field("v", "bytes", "io.debezium.data.Bits", parameters={"length": "9"}),
    connect_field("v", "bytes", "io.debezium.data.Bits", parameters={"length": "90"}),
    connect_field("v", "struct", fields=[{"type": "int32", "field": "a"}]),
    connect_field("v", "array", items={"type": "string"}),
]
OPS = st.sampled_from(["c", "r", "u", "d", "u", "C"])


def image(key: str, token: str, extra: str) -> str:
    return f'{{"id":{key},"v":{token}{extra}}}'


KEYS = st.sampled_from(["1", "2", "2", "null", '"x"'])
EXTRAS = st.sampled_from(
    ["", "", "", ',"z":null', ',"z":7', ',"v":"twice"', ',"z":8,"y":"s"', ",}"]
)
IMAGES = st.one_of(st.just("null"), *[st.builds(image, KEYS, TOKENS, EXTRAS)] * 4)


@st.composite
def messages(draw, block):
    value = json.dumps(event(draw(OPS), "@b", "@a"), separators=(",", ":"))
    before = draw(st.one_of(st.just("null"), IMAGES))
    value = value.replace('"@b"', before).replace('"@a"', draw(IMAGES))
    if block is not None:
        value = f'{{"schema":{dumps(block).decode()},"payload":{value}}}'
    return value.encode("utf-8", "surrogatepass")


def decoded(table, options, evolvable, values, calls):
    one = decoder(table, evolvable=evolvable, **options)
    keys = [b'{"id":5}' if index % 3 else None for index in range(len(values))]
    return [one.decode(batch(*values, keys=keys)) for _ in range(calls)]


def assert_paths_agree(table, options, evolvable, values):
    typed = decoded(table, options, evolvable, values, 2)
    with walking():
        walked = decoded(table, options, evolvable, values, 3)
    with by_reference():
        (slow,) = decoded(table, options, evolvable, values, 1)
    for result in typed + walked:
        assert [(c.target, c.schema_id) for c in result.changes] == [
            (c.target, c.schema_id) for c in slow.changes
        ]
        for mine, other in zip(result.changes, slow.changes, strict=True):
            mine.rows.validate(full=True)
            assert mine.rows.equals(other.rows) or repr(mine.rows.to_pydict()) == repr(
                other.rows.to_pydict()
            )
            assert mine.min_source_ts_ms == other.min_source_ts_ms
        assert [(b.offset, b.error_class) for b in result.bad] == [
            (b.offset, b.error_class) for b in slow.bad
        ]
        assert result.counts == slow.counts
        assert result.deltas == slow.deltas


@pytest.mark.parametrize("type_", TYPES, ids=str)
@profile(short=5, long=100)
@given(data=st.data())
def test_without_schema_block(type_, data):
    table = schema(("id", "BIGINT"), ("v", type_))
    options = data.draw(st.sampled_from(MODES))
    values = data.draw(st.lists(messages(None), min_size=1, max_size=12))
    assert_paths_agree(table, options, data.draw(st.booleans()), values)


@pytest.mark.parametrize(
    "field", BLOCK_FIELDS, ids=lambda field: field.get("name") or field["type"]
)
@profile(short=5, long=50)
@given(data=st.data())
def test_with_schema_block(field, data):
    block = connect_block(connect_field("id", "int64"), field)
    table = schema(("id", "BIGINT"), ("v", data.draw(st.sampled_from(TYPES))))
    values = data.draw(st.lists(messages(block), min_size=1, max_size=12))
    assert_paths_agree(table, {}, data.draw(st.booleans()), values)


def awkward_messages(block):
    values = []
    for number, token in enumerate(AWKWARD):
        text = json.dumps(event("c", None, "@a"), separators=(",", ":"))
        text = text.replace('"@a"', f'{{"id":{number},"v":{token}}}')
        if block is not None:
            text = f'{{"schema":{dumps(block).decode()},"payload":{text}}}'
        values.append(text.encode())
    return values


def telling_modes(type_):
    """The default mode, and those that say how values of a type are written."""
    text = str(type_)
    word = "time_precision" if text.startswith(("DATE", "TIME")) else None
    if "DECIMAL" in text or "BYTES" in text or "BINARY" in text:
        word = "binary_handling"
    return [mode for mode in MODES if not mode or (word and f"{word}_mode" in mode)]


FIRST_OF_KIND = ("BYTES", "DECIMAL(9,2)", "DATE", "TIME(6)", "TIMESTAMP(6)", TYPES[24])


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_awkward_value_without_schema_block(type_):
    table = schema(("id", "BIGINT"), ("v", type_))
    for options in telling_modes(type_) if type_ in FIRST_OF_KIND else MODES[:1]:
        assert_paths_agree(table, options, True, awkward_messages(None))


@pytest.mark.full
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_awkward_value_in_modes_for_other_types(type_):
    table = schema(("id", "BIGINT"), ("v", type_))
    for options in MODES[1:]:
        if type_ not in FIRST_OF_KIND or options not in telling_modes(type_):
            assert_paths_agree(table, options, True, awkward_messages(None))


@pytest.mark.full
@pytest.mark.parametrize(
    "field", BLOCK_FIELDS, ids=lambda field: field.get("name") or field["type"]
)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_awkward_value_with_schema_block(type_, field):
    table = schema(("id", "BIGINT"), ("v", type_))
    block = connect_block(connect_field("id", "int64"), field)
    for evolvable in (True, False):
        assert_paths_agree(table, {}, evolvable, awkward_messages(block))
