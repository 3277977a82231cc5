# SPDX-License-Identifier: Apache-2.0
"""Debezium events in Avro: wire bytes in, change batches out."""

import datetime
import decimal as decimals
import json
import uuid

import pytest

from ingest.config.source_settings import SchemaRegistrySettings
from ingest.decode.avro import debezium as debezium_avro
from ingest.decode.avro import lanes as avro_lanes
from ingest.decode.events import SourceTable, Target, Toast
from ingest.decode.registry import RegisteredSchema, SchemaRegistry
from storage.clock import ManualClock
from storage.errors import RetryableError
from storage.format.types.types import type_name
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
    source_schema,
)
from tests.unit.ingest.debezium_events import TOPIC, classes, rows, schema
from tests.unit.ingest.stub_registry import stub_registry

VALUE, KEY, OTHER = 1, 2, 3
ORDERS = SourceTable("shop", "public", "orders", "pg")
ID = {"id": "long"}
TABLE = schema(("id", "BIGINT"), ("v", "STRING"))


@pytest.fixture(autouse=True)
def few_messages_in_step(monkeypatch):
    """A handful of events takes the fast path too."""
    monkeypatch.setattr(avro_lanes, "LEAST_MESSAGES", 1)
    monkeypatch.setattr(debezium_avro, "LEAST_MESSAGES", 1)


class Case:
    """Writers of an envelope and a key, and the registry that knows them."""

    def __init__(self, fields, **more):
        self.schemas = Schemas()
        self.value = self.register(VALUE, envelope(fields, **more))
        self.key = self.register(KEY, key_schema(id="long"))

    def register(self, schema_id, written):
        self.schemas.known[schema_id] = RegisteredSchema("AVRO", json.dumps(written))
        return Writer(written, schema_id)

    def decode(self, values, table=TABLE, *, keys=None, headers=None, topic=TOPIC, **more):
        return decoder(self.schemas, table, **more).decode(batch(values, keys, headers, topic))


def record_type(name, **types):
    """A record type."""
    fields = [{"name": field, "type": type_} for field, type_ in types.items()]
    return {"type": "record", "name": name, "fields": fields}


def value_of(type_, avro, value, **more):
    """What one value becomes in a column."""
    case = Case({**ID, "v": ["null", *avro] if isinstance(avro, list) else optional(avro)})
    messages = [case.value(event("c", None, {"id": 1, "v": value}))]
    table = schema(("id", "BIGINT"), ("v", type_))
    result = case.decode(messages, table, **more)
    if result.bad or result.deltas:
        return classes(result) or [type_name(result.deltas[0].fields[0].type)]
    return rows(result)[0]["v"]


def moment(text):
    return datetime.datetime.fromisoformat(text)


NUMERIC = "io.debezium.data.VariableScaleDecimal"


@pytest.mark.parametrize(
    ("type_", "avro", "value", "expected"),
    [
        ("TINYINT", {**named("int", "x"), "connect.type": "int8"}, -5, -5),
        ("BIGINT", "long", -(2**63), -(2**63)),
        ("DOUBLE", "int", 7, 7.0),
        ("FLOAT", "float", 0.5, 0.5),
        ("DOUBLE", "double", float("inf"), float("inf")),
        ("BOOLEAN", "boolean", True, True),
        ("STRING", "string", "ünï", "ünï"),
        ("VARCHAR(2)", "string", "abc", ["type"]),
        ("BYTES", "bytes", b"\0\xff", b"\0\xff"),
        ("BYTES", {"type": "fixed", "name": "F", "size": 2}, b"\0\xff", b"\0\xff"),
        ("STRING", {"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"),
        ("DECIMAL(9, 2)", decimal(2, 9), b"\x30\x39", decimals.Decimal("123.45")),
        ("DECIMAL(9, 2)", decimal(2, 9), b"\xcf\xc7", decimals.Decimal("-123.45")),
        ("DECIMAL(9, 2)", decimal(2, 11), b"\x01", ["DECIMAL(11, 2)"]),
        ("DECIMAL(38, 2)", decimal(2), b"\x80", decimals.Decimal("-1.28")),
        ("STRING", decimal(2, 50), (10**49).to_bytes(21, "big"), "1" + "0" * 47 + ".00"),
        ("DATE", {"type": "int", "logicalType": "date"}, -1, datetime.date(1969, 12, 31)),
        (
            "TIMESTAMP(3)",
            named("long", "org.apache.kafka.connect.data.Timestamp"),
            -1,
            moment("1969-12-31T23:59:59.999"),
        ),
        ({"type": "ARRAY", "element": "INT"}, {"type": "array", "items": "int"}, [3, 4], [3, 4]),
        (
            "STRING",
            {"type": "map", "values": optional("long")},
            {"k": 1, "n": None},
            '{"k":1,"n":null}',
        ),
        ("STRING", ["int", "string"], "x", '{"string":"x"}'),
        ("INT", "string", "7", ["type"]),
    ],
)
def test_a_value_in_a_column(type_, avro, value, expected):
    """Beside those of `test_every_type`, which has each semantic type in Avro."""
    assert value_of(type_, avro, value, evolvable=expected != ["type"]) == expected


def test_nested_records_become_json_and_numerics_digits():
    point = record_type("io.debezium.data.geometry.Point", x="double", wkb=optional("bytes"))
    numeric = {**record_type(NUMERIC, scale="int", value="bytes"), "connect.name": NUMERIC}
    assert (
        value_of("STRING", point, {"x": float("nan"), "wkb": b"\1"}) == '{"x":"NaN","wkb":"AQ=="}'
    )
    assert value_of("STRING", numeric, {"scale": 3, "value": b"\x07"}) == "0.007"
    assert value_of("DECIMAL(9, 4)", numeric, {"scale": 3, "value": b"\xf9"}) == decimals.Decimal(
        "-0.0070"
    )


def test_every_operation_with_offsets_and_stamps():
    case = Case({**ID, "v": optional("string")})
    one, two = {"id": 1, "v": "a"}, {"id": 1, "v": "b"}
    other = {"id": 9, "v": "b"}
    messages = [
        case.value(event("r", None, one, ts_ms=50)),
        case.value(event("u", None, two)),
        case.value(event("u", one, two)),
        case.value(event("u", one, other)),
        case.value(event("d", other, None, ts_ms=70)),
        None,
        case.value(event("t")),
        case.value(event("c", None, one)),
    ]
    result = case.decode(messages)
    assert [(row["kind"], row["offset"], row["id"], row["v"]) for row in rows(result)] == [
        ("+I", 100, 1, "a"),
        ("+U", 101, 1, "b"),
        ("+U", 102, 1, "b"),
        ("-D", 103, 1, "a"),
        ("+I", 103, 9, "b"),
        ("-D", 104, 9, "b"),
        ("+I", 107, 1, "a"),
    ]
    assert result.counts == {"op.r": 1, "op.u": 3, "op.d": 1, "op.c": 1, "op.t": 1, "tombstone": 1}
    (change,) = result.changes
    assert (change.min_source_ts_ms, change.max_source_ts_ms) == (50, 1_000)
    assert case.schemas.asked == [VALUE]


def test_a_key_change_behind_a_damaged_message_is_seen():
    case = Case({**ID, "v": optional("string")})
    update = case.value(event("u", {"id": 1, "v": "a"}, {"id": 2, "v": "a"}))
    result = case.decode([update, update[:-1], update, update])
    assert [row["kind"] for row in rows(result)] == ["-D", "+I"] * 3
    assert classes(result) == ["avro"]


def test_a_delete_without_its_key_takes_the_records_key():
    case = Case({"id": optional("long"), "v": optional("string")})
    bare = {"id": None, "v": None}
    messages = [case.value(event("d", bare, None)), case.value(event("d", None, None))]
    result = case.decode(messages, keys=[case.key({"id": 4}), case.key({"id": 5})])
    assert [(row["kind"], row["id"]) for row in rows(result)] == [("-D", 4), ("-D", 5)]


def test_a_table_that_does_not_exist_takes_the_records_key():
    case = Case({**ID, "price": decimal(2), "v": optional("string")})
    messages = [
        case.value(event("c", None, {"id": n, "price": b"\1", "v": None})) for n in range(5)
    ]
    messages.append(case.value(event("m")))
    result = case.decode(messages, None, keys=[case.key({"id": n}) for n in range(6)])
    (delta,) = result.deltas
    assert [(field.name, type_name(field.type)) for field in delta.fields] == [
        ("id", "BIGINT"),
        ("price", "DECIMAL(38, 2)"),
        ("v", "STRING"),
    ]
    assert delta.primary_key == ("id",)
    assert (delta.source, delta.offset) == (ORDERS, 100)
    assert result.counts == {"pending": 5, "op.m": 1}
    without = case.decode(messages[:5], None)
    assert classes(without) == ["no_primary_key"] * 5
    assert not without.deltas


def test_a_new_column_is_asked_for_or_bad():
    case = Case({**ID, "v": optional("string"), "w": optional("int")})
    messages = [case.value(event("c", None, {"id": n, "v": "", "w": n or None})) for n in range(3)]
    result = case.decode(messages)
    assert [field.name for field in result.deltas[0].fields] == ["w"]
    assert result.counts == {"pending": 3}
    frozen = case.decode(messages, evolvable=False)
    assert [row["id"] for row in rows(frozen)] == [0]
    assert classes(frozen) == ["schema", "schema"]


def test_bad_records_come_whole():
    case = Case({**ID, "v": optional("string")})
    good = case.value(event("c", None, {"id": 1, "v": "a"}))
    odd = good.replace(b"\x02a", b"\x02\xff")
    messages = [b"", b"{}", good[:-3], good + b"\0", b"\0\0\0\0\x63x", odd, good[:5], good]
    headers = {at: [("trace", b"x")] for at in range(len(messages))}
    result = case.decode(messages, headers=headers, keys=[b"k"] * len(messages))
    assert [row["offset"] for row in rows(result)] == [107]
    assert classes(result) == ["avro", "avro", "avro", "avro", "schema_id", "type", "avro"]
    for record, value in zip(result.bad, messages, strict=False):
        assert record.value == value
        assert (record.key, record.headers) == (b"k", (("trace", b"x"),))
        assert record.timestamp_ms == 7_000 + record.offset - 100
    assert "4 bytes follow" not in result.bad[3].error
    assert "1 bytes follow the value" in result.bad[3].error


def test_json_in_a_topic_that_should_have_avro_is_said_to_be_json():
    case = Case({**ID, "v": optional("string")})
    envelope = json.dumps(event("c", None, {"id": 1, "v": "a"})).encode()
    result = case.decode([envelope, b'{"id":1}', b"other"])
    assert classes(result) == ["avro"] * 3
    said = [record.error.partition("; ")[2] for record in result.bad]
    assert said == [
        "it looks like an envelope of Debezium: set source.format: debezium-json",
        "it is JSON",
        "",
    ]


def test_one_bad_value_does_not_cost_its_neighbours():
    case = Case({**ID, "v": "string"})
    table = schema(("id", "BIGINT"), ("v", "VARCHAR(3)"))
    messages = [
        case.value(event("c", None, {"id": n, "v": "long" if n % 7 == 3 else "ok"}))
        for n in range(40)
    ]
    result = case.decode(messages, table)
    assert [row["id"] for row in rows(result)] == [n for n in range(40) if n % 7 != 3]
    assert classes(result) == ["type"] * 6
    assert result.counts == {"op.c": 34}


@pytest.mark.parametrize(
    ("avro", "value", "type_"),
    [
        ("string", "__debezium_unavailable_value", "STRING"),
        ("bytes", b"__debezium_unavailable_value", "BYTES"),
        (
            {"type": "array", "items": "int"},
            list(b"__debezium_unavailable_value"),
            {"type": "ARRAY", "element": "INT"},
        ),
        (
            {"type": "map", "values": "string"},
            {"__debezium_unavailable_value": "__debezium_unavailable_value"},
            "STRING",
        ),
    ],
)
def test_the_placeholder_of_an_unavailable_value_is_never_stored(avro, value, type_):
    assert value_of(type_, avro, value) == ["unavailable_value"]


@pytest.mark.parametrize("in_step", [True, False])
@pytest.mark.parametrize("toast", Toast)
def test_what_becomes_of_an_unavailable_value(toast, in_step, monkeypatch):
    if not in_step:
        monkeypatch.setattr(avro_lanes.EnvelopeLanes, "of", lambda _: None)
    case = Case({**ID, "v": "string"})
    absent = {"id": 1, "v": "__debezium_unavailable_value"}
    messages = [
        case.value(event("u", None, absent)),
        case.value(event("u", None, {"id": 2, "v": "x"})),
        case.value(event("c", None, absent)),
        case.value(event("d", absent, None)),
    ]
    result = case.decode(messages, targets={"orders": Target("a.b", TABLE, toast=toast)})
    found = [(row["offset"], row["v"], row.get("_UNAVAILABLE")) for row in rows(result)]
    marks = [TABLE.fields[1].id] if toast is Toast.KEEP else None
    expected = [(100, None, marks), (101, "x", None), (102, None, None), (103, None, None)]
    refused = {Toast.KEEP: [102], Toast.NULL: [], Toast.FAIL: [100, 102]}[toast]
    assert found == [row for row in expected if row[0] not in refused]
    assert [record.offset for record in result.bad] == refused


def test_messages_that_are_no_row_events():
    case = Case({**ID, "v": "string"})
    name = "io.debezium.connector.common.Heartbeat"
    beat = case.register(OTHER, {**record_type(name, ts_ms="long"), "connect.name": name})
    transaction = record_type("TransactionMetadataValue", status="string", id="string")
    transaction = case.register(4, transaction)
    change = record_type("V", databaseName=optional("string"), ddl=optional("string"))
    change = case.register(5, change)
    unknown = case.register(6, record_type("V"))
    text = case.register(7, "string")
    messages = [
        beat({"ts_ms": 1}),
        transaction({"status": "BEGIN", "id": "7"}),
        change({"databaseName": "shop", "ddl": "drop"}),
        unknown({}),
        text("hello"),
    ]
    result = case.decode(messages)
    assert result.counts == {"heartbeat": 1, "transaction": 1, "schema_change": 1}
    assert classes(result) == ["envelope", "envelope"]


def test_several_source_tables_in_one_topic():
    case = Case({**ID, "v": "string"})
    targets = {
        "orders": Target("shop.orders", TABLE),
        "archive": Target("shop.archive", TABLE),
    }
    tables = ["orders", "archive", "unwanted"]
    messages = [
        case.value(event("c", None, {"id": n, "v": ""}, table=tables[n % 3])) for n in range(30)
    ]
    result = case.decode(messages, targets=targets)
    found = {change.target: change.rows.column("id").to_pylist() for change in result.changes}
    assert found == {"shop.orders": [*range(0, 30, 3)], "shop.archive": [*range(1, 30, 3)]}
    assert result.counts == {"op.c": 20, "unrouted": 10}


def test_large_events_are_decoded_in_smaller_pieces(monkeypatch):
    monkeypatch.setattr(debezium_avro, "_CHUNK_BYTES", 1_000)
    case = Case({**ID, "v": "string"})
    messages = [case.value(event("c", None, {"id": n, "v": "x" * 300})) for n in range(9)]
    result = case.decode([*messages, None])
    assert [row["id"] for row in rows(result)] == [*range(9)]
    assert result.counts == {"op.c": 9, "tombstone": 1}


def test_a_schema_that_changes_within_a_batch():
    case = Case({**ID, "v": "string"})
    later = case.register(OTHER, envelope({"v": "string", "id": "long"}, ts_us=optional("long")))
    row = {"id": 1, "v": "a"}
    messages = [
        writer({**event("c", None, row), "ts_us": None}) for writer in [case.value, later] * 5
    ]
    result = case.decode(messages)
    assert [entry["offset"] for entry in rows(result)] == [*range(100, 110)]


def test_ids_in_headers():
    case = Case({**ID, "v": "string"})
    guid = uuid.UUID(int=7)
    case.schemas.known[guid] = case.schemas.known[VALUE]
    row = event("c", None, {"id": 1, "v": "a"})
    datum = case.value.datum(row)
    value = {
        0: ("__value_schema_id", b"\0\0\0\0\1"),
        1: ("__value_schema_id", b"\1" + guid.bytes),
        2: ("apicurio.value.contentId", (1).to_bytes(8, "big")),
        3: ("__value_schema_id", b"junk"),
        5: ("__value_schema_id", b"\0\0\0\0\1"),
    }
    headers = {at: [pair] for at, pair in value.items()}
    messages = [datum, datum, datum, datum, case.value(row), datum]
    result = case.decode(messages, headers=headers)
    assert [entry["offset"] for entry in rows(result)] == [100, 101, 102, 104, 105]
    assert [(b.offset, b.error_class) for b in result.bad] == [(103, "avro")]
    keyed = {0: [("__key_schema_id", b"\0\0\0\0\2"), ("__value_schema_id", b"\0\0\0\0\1")]}
    deleted = case.value.datum(event("d", None, None))
    found = case.decode([deleted], keys=[case.key.datum({"id": 8})], headers=keyed)
    assert rows(found)[0]["id"] == 8


def test_a_header_in_the_middle_of_a_batch_is_found_when_the_rest_fails():
    case = Case({**ID, "v": "string"})
    row = event("c", None, {"id": 1, "v": "a"})
    headers = {1: [("__value_schema_id", b"\0\0\0\0\1")]}
    result = case.decode([case.value(row), case.value.datum(row), case.value(row)], headers=headers)
    assert [entry["offset"] for entry in rows(result)] == [100, 101, 102]


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([("apicurio.value.globalId", (1).to_bytes(8, "big"))], "use-id=contentId"),
        (
            [
                ("apicurio.value.contentId", (1).to_bytes(8, "big")),
                ("apicurio.value.encoding", b"JSON"),
            ],
            "encoding=BINARY",
        ),
        ([("apicurio.value.contentId", b"1")], "holds no schema id"),
    ],
)
def test_headers_that_name_no_schema_we_can_ask_for_are_refused_with_advice(headers, wanted):
    case = Case({**ID, "v": "string"})
    datum = case.value.datum(event("c", None, {"id": 1, "v": "a"}))
    result = case.decode([datum], headers={0: headers})
    assert [(b.error_class, wanted in b.error) for b in result.bad] == [("avro", True)]
    mixed = case.decode(
        [case.value(event("c", None, {"id": 1, "v": "a"})), datum] * 2,
        headers={1: headers, 3: headers},
    )
    assert len(rows(mixed)) == 2
    assert all(wanted in b.error for b in mixed.bad)


def test_a_binary_encoding_may_be_told():
    case = Case({**ID, "v": "string"})
    headers = [
        ("apicurio.value.contentId", (1).to_bytes(8, "big")),
        ("apicurio.value.encoding", b"BINARY"),
    ]
    datum = case.value.datum(event("c", None, {"id": 1, "v": "a"}))
    assert len(rows(case.decode([datum], headers={0: headers}))) == 1


def test_ids_of_eight_bytes():
    case = Case({**ID, "v": "string"})
    datum = case.value.datum(event("c", None, {"id": 1, "v": "a"}))
    result = case.decode([b"\0" + (1).to_bytes(8, "big") + datum], id_bytes=8)
    assert len(rows(result)) == 1


def test_schemas_that_cannot_be_decoded_make_bad_records():
    case = Case({**ID, "v": "string"})
    loop = record_type("L", next=optional("L"))
    known = {
        10: RegisteredSchema("PROTOBUF", "syntax"),
        11: RegisteredSchema("AVRO", "{"),
        12: RegisteredSchema("AVRO", json.dumps(loop)),
        13: RegisteredSchema("AVRO", '"nobody"'),
    }
    case.schemas.known.update(known)
    messages = [b"\0\0\0\0" + bytes([schema_id]) + b"x" for schema_id in known]
    result = case.decode(messages)
    assert classes(result) == ["avro"] * 4
    assert "PROTOBUF, not Avro, which is not supported" in result.bad[0].error
    assert "contains itself" in result.bad[2].error


def test_names_from_referenced_schemas():
    case = Case({**ID, "v": "string"})
    source = {**source_schema(), "name": "Origin", "namespace": "own"}
    written = envelope({**ID, "v": "string"}, source="own.Origin")
    case.schemas.known[OTHER] = RegisteredSchema(
        "AVRO",
        json.dumps(written),
        (RegisteredSchema("AVRO", json.dumps(source)),) * 2,
    )
    writer = Writer(envelope({**ID, "v": "string"}, source=source), OTHER)
    result = case.decode([writer(event("c", None, {"id": 1, "v": "a"}))])
    assert len(rows(result)) == 1


def test_with_a_registry_behind_it():
    case = Case({**ID, "v": "string"})
    with stub_registry() as stub:
        stub.add(VALUE, case.value.schema)
        settings = SchemaRegistrySettings(urls=(stub.url,), retry_for_s=1)
        registry = SchemaRegistry(settings, ManualClock())
        one = decoder(registry.schema, TABLE)
        message = case.value(event("c", None, {"id": 1, "v": "a"}))
        for _ in range(3):
            assert len(rows(one.decode(batch([message] * 3)))) == 3
        assert [path for path, _ in stub.requests] == ["/schemas/ids/1"]
        [bad] = one.decode(batch([b"\0\0\0\0\x63"])).bad
        assert bad.error_class == "schema_id"
        assert "id=`99` subject=`pg.public.orders-value`" in bad.error
        stub.failures = [(503, {})] * 20
        with pytest.raises(RetryableError):
            one.decode(batch([b"\0\0\0\0\x64"]))


def test_single_records_for_the_check_of_keys():
    case = Case({**ID, "v": "string"})
    case.register(OTHER, key_schema(id="long", region="string"))
    records = decoder(case.schemas, TABLE)
    keys = [case.key({"id": 1}), b"\0\0\0\0\3", None, b"junk"]
    values = [case.value(event("u", None, {"id": 1, "v": "a"})), None, b"junk", b"\0\0\0\0\2\2"]
    raw = batch(values, keys)
    assert [records.key_columns(raw, at) for at in range(4)] == [
        {"id"},
        {"id", "region"},
        None,
        None,
    ]
    assert records.json_key(raw, 0) == b'{"schema":null,"payload":{"id":1}}'
    assert [records.operation_at(raw, at) for at in range(4)] == ["op.u", "op.", "op.", "op."]
