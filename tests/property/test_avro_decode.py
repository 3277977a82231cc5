# SPDX-License-Identifier: Apache-2.0
"""Avro: decoding in step gives what the reference path gives, and that is what fastavro reads."""

import base64
import contextlib
import dataclasses
import io
import json
import math
from unittest import mock

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.decode.avro import debezium as debezium_avro
from ingest.decode.avro import lanes as avro_lanes
from ingest.decode.avro.connect_schema import parse_schema
from ingest.decode.avro.lanes import AvroValueError, reader_of, to_json
from ingest.decode.events import Target, Toast
from ingest.decode.registry import RegisteredSchema
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.property.profiles import profile
from tests.unit.ingest.avro_events import (
    Schemas,
    Writer,
    batch,
    decimal,
    decoder,
    envelope,
    event,
    key_schema,
    named,
    optional,
)

INTS = st.one_of(st.integers(-70, 70), st.integers(-(2**31), 2**31 - 1))
LONGS = st.one_of(INTS, st.integers(-(2**63), 2**63 - 1))
MOMENTS = st.one_of(LONGS, st.integers(0, 86_400_000_000_000).map(lambda n: n // 1000))
PLACEHOLDER = "__debezium_unavailable_value"
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", PLACEHOLDER, "1.50", "-7", "NaN", "2024-02-29", "é" * 5, "ffA0", "AAE="]),
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
)
BYTES = st.one_of(st.binary(max_size=20), st.just(PLACEHOLDER.encode()))
NUMBERS = st.integers(-(2**130), 2**130).map(
    lambda n: (n >> 60).to_bytes(17, "big", signed=True).lstrip(b"\0") or b"\0"
)
FLOATS = st.floats(width=32)
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
POINT = {
    "type": "record",
    "name": "Point",
    "namespace": "io.debezium.data.geometry",
    "fields": [
        {"name": "x", "type": "double"},
        {"name": "wkb", "type": optional("bytes")},
        {"name": "more", "type": {"type": "array", "items": optional("string")}},
    ],
    "connect.name": "io.debezium.data.geometry.Point",
}
MOOD = {"type": "enum", "name": "Mood", "symbols": ["low", "high"]}
FIXED = {"type": "fixed", "name": "Five", "size": 5}

KINDS = [
    (named("int", "x") | {"connect.type": "int8"}, st.integers(-130, 130)),
    ("int", INTS),
    ("long", LONGS),
    ("boolean", st.booleans()),
    ("float", FLOATS),
    ("double", st.floats()),
    ("string", TEXTS),
    ("bytes", BYTES),
    (FIXED, st.binary(min_size=5, max_size=5)),
    (MOOD, st.sampled_from(MOOD["symbols"])),
    (decimal(2, 9), st.one_of(NUMBERS, st.binary(max_size=4))),
    (decimal(10), NUMBERS),
    (VARIABLE, st.fixed_dictionaries({"scale": st.integers(-3, 6), "value": NUMBERS})),
    (named("int", "io.debezium.time.Date"), INTS),
    (named("int", "io.debezium.time.Time"), INTS),
    (named("long", "io.debezium.time.MicroTime"), MOMENTS),
    (named("long", "io.debezium.time.Timestamp"), MOMENTS),
    (named("long", "io.debezium.time.MicroTimestamp"), MOMENTS),
    (named("long", "io.debezium.time.NanoTimestamp"), MOMENTS),
    ({"type": "long", "logicalType": "timestamp-micros"}, MOMENTS),
    (named("string", "io.debezium.time.ZonedTimestamp"), TEXTS),
    (named("string", "io.debezium.time.IsoDate"), TEXTS),
    (named("bytes", "io.debezium.data.Bits", length=9), st.binary(max_size=9)),
    ({"type": "array", "items": "int"}, st.lists(INTS, max_size=3)),
    (
        {"type": "array", "items": optional("string")},
        st.lists(st.one_of(st.none(), TEXTS), max_size=3),
    ),
    (
        {"type": "map", "values": optional("double")},
        st.dictionaries(TEXTS, st.floats(), max_size=3),
    ),
    (
        POINT,
        st.fixed_dictionaries({"x": st.floats(), "wkb": st.one_of(st.none(), BYTES)}).map(
            lambda point: {**point, "more": ["a", None]}
        ),
    ),
    (["null", "int", "string"], st.one_of(INTS, st.text(max_size=3))),
]
TYPES = [
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "VARCHAR(5)"),
    *("BYTES", "VARBINARY(3)", "DECIMAL(9,2)", "DECIMAL(38,10)", "DATE", "TIME(3)", "TIME(6)"),
    *("TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    {"type": "ARRAY", "element": "INT"},
    {"type": "ARRAY", "element": "STRING NOT NULL"},
    *("DECIMAL(38,30)", "CHAR(3)", "STRING NOT NULL"),
]
LIKELY = {
    "boolean": "BOOLEAN",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BYTES",
    "decimal": "DECIMAL(20,4)",
}


@st.composite
def cases(draw):
    """(schema of rows, table columns, events as values, bytes to damage)."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    fields, values, columns, named_types = {"id": "long"}, {"id": LONGS}, [("id", "BIGINT")], set()
    for index, (kind, value) in enumerate(kinds):
        own = kind["name"] if isinstance(kind, dict) and "name" in kind else None
        if own in named_types:
            continue
        named_types.add(own)
        nullable = isinstance(kind, list) or draw(st.booleans())
        name = f"c{index}"
        fields[name] = optional(kind) if nullable and not isinstance(kind, list) else kind
        values[name] = st.one_of(st.none(), value) if nullable else value
        if draw(st.integers(0, 9)):
            columns.append((name, draw(st.sampled_from(TYPES))))
    row = st.fixed_dictionaries(values)
    events = draw(
        st.lists(st.tuples(st.sampled_from("crudutm"), row, row), min_size=1, max_size=30)
    )
    damage = draw(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 400), st.integers(0, 255))))
    return fields, columns, events, damage[:2]


def messages(writer, events, damage):
    found = []
    for op, old, new in events:
        before = old if op in "ud" else None
        after = new if op in "cru" else None
        if op == "u" and len(found) % 2:
            before = {**new, "id": old["id"] if len(found) % 3 else new["id"]}
        table = "other" if len(found) % 7 == 5 else "orders"
        found.append(writer(event(op, before, after, table=table)))
    for at, where, byte in damage:
        if at < len(found):
            data = bytearray(found[at])
            place = 5 + where % (len(data) - 5)
            if byte % 5:
                data[place] = byte
            else:
                del data[place:]
            found[at] = bytes(data)
    return found


def shown(result):
    def column(array):
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.int64())
        return [str(value) for value in array.to_pylist()]

    return {
        "rows": [
            (
                (c.target, c.min_source_ts_ms, c.max_source_ts_ms),
                {name: column(c.rows.column(name)) for name in c.rows.schema.names},
            )
            for c in result.changes
        ],
        "bad": [(r.offset, r.error_class, r.value) for r in result.bad],
        "deltas": [dataclasses.replace(delta) for delta in result.deltas],
        "counts": dict(sorted(result.counts.items())),
    }


@profile(short=25, long=400)
@given(cases(), st.booleans(), st.sampled_from(Toast), st.integers(1, 40))
def test_decoding_in_step_equals_the_reference_path(case, evolvable, toast, chunk):
    fields, columns, events, damage = case
    writer, key = Writer(envelope(fields), 1), Writer(key_schema(id="long"), 2)
    schemas = Schemas()
    schemas.known[1] = RegisteredSchema("AVRO", json.dumps(writer.schema))
    schemas.known[2] = RegisteredSchema("AVRO", json.dumps(key.schema))
    table = new_schema(
        [(name, parse_type(type_)) for name, type_ in columns],
        primary_keys=("id",),
        options={"bucket": "1"},
        now_ms=0,
    )
    targets = {"orders": Target("shop.orders", table, evolvable, toast=toast)}
    raw = batch(messages(writer, events, damage), [key({"id": 5})] * len(events))
    with (
        mock.patch.object(avro_lanes, "LEAST_MESSAGES", 1),
        mock.patch.object(debezium_avro, "LEAST_MESSAGES", 1),
        mock.patch.object(debezium_avro, "_CHUNK", chunk),
    ):
        fast = decoder(schemas, None, targets=targets).decode(raw)
    with mock.patch.object(avro_lanes.EnvelopeLanes, "of", return_value=None):
        slow = decoder(schemas, None, targets=targets).decode(raw)
    assert shown(fast) == shown(slow)
    assert sum(fast.counts.values()) + len(fast.bad) == len(events)


def as_json(schema, value):
    """What fastavro read, as the reference path gives it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(schema, list):
        if len(schema) == 3 and value is not None:
            return {"int" if isinstance(value, int) else "string": value}
        return None if value is None else as_json(schema[1], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {f["name"]: as_json(f["type"], value[f["name"]]) for f in schema["fields"]}
    if kind == "array":
        return [as_json(schema["items"], item) for item in value]
    if kind == "map":
        return {key: as_json(schema["values"], item) for key, item in value.items()}
    return value


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_reference_reader_reads_what_fastavro_reads(data):
    kind, values = data.draw(st.sampled_from(KINDS))
    writer = Writer(kind, 1)
    content = writer.datum(data.draw(values))
    expected = fastavro.schemaless_reader(io.BytesIO(content), writer.parsed, None)
    found = json.loads(to_json(reader_of(parse_schema(json.dumps(kind)).tree), content, 0))
    assert repr(found) == repr(as_json(kind, expected))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(kind, content):
    read = reader_of(parse_schema(json.dumps(kind[0])).tree)
    with contextlib.suppress(AvroValueError):
        json.loads(to_json(read, content, 0).decode(errors="replace"))
