# SPDX-License-Identifier: Apache-2.0
"""Upsert streams in Avro: wire bytes in, change batches out."""

import json

import pytest

from ingest.decode.avro.debezium import UpsertAvroDecoder
from ingest.decode.events import SourceTable, Target
from ingest.decode.json.envelopes import DialectOptions
from ingest.decode.registry import RegisteredSchema
from storage.errors import RetryableError
from tests.unit.ingest.avro_events import Schemas, Writer, batch, decimal, key_schema, optional
from tests.unit.ingest.debezium_events import classes, schema
from tests.unit.ingest.dialect_decoders import changes, observed

TOPIC = "shop.users"
TABLE = schema(("id", "BIGINT"), ("name", "STRING"), ("paid", "DECIMAL(38, 2)"))


def user(**fields):
    listed = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": "User", "namespace": "com.acme", "fields": listed}


USER = user(id="long", name=optional("string"), paid=optional(decimal(2)))


@pytest.fixture
def schemas():
    return Schemas()


@pytest.fixture
def writer(schemas):
    def register(schema_id, written):
        schemas.known[schema_id] = RegisteredSchema("AVRO", json.dumps(written))
        return Writer(written, schema_id)

    return register


def decoder(schemas, table=TABLE, origin=(), **options):
    def resolve(source: SourceTable, topic: str) -> Target:
        assert topic == TOPIC
        return Target(f"{source.database}.{source.table}", table, origin=origin)

    return UpsertAvroDecoder(schemas, 4, DialectOptions(**options), resolve)


def test_rows_and_deletes(schemas, writer):
    key, value = writer(1, key_schema(id="long")), writer(2, USER)
    values = [
        value({"id": 1, "name": "Zoë", "paid": (1250).to_bytes(2, "big")}),
        value({"id": 2, "name": None, "paid": None}),
        None,
    ]
    raw = batch(values, [key({"id": 1}), key({"id": 2}), key({"id": 1})], topic=TOPIC)
    one = decoder(schemas)
    result = one.decode(raw)
    found = changes(result, "id", "name", "paid")
    assert [(*row[:3], row[3] and str(row[3])) for row in found] == [
        ("+U", 1, "Zoë", "12.50"),
        ("+U", 2, None, None),
        ("-D", 1, None, None),
    ]
    assert result.changes[0].rows.column("_OFFSET").to_pylist() == [100, 101, 102]
    assert result.counts == {"op.u": 2, "op.d": 1}
    assert [one.operation_at(raw, at) for at in range(3)] == ["op.u", "op.u", "op.d"]
    assert [one.key_columns(raw, at) for at in range(3)] == [{"id"}] * 3
    again = one.decode(raw)
    assert again.changes[0].rows.equals(result.changes[0].rows)
    assert sorted(schemas.asked) == [1, 2]


def test_a_table_is_asked_for_with_its_types(schemas, writer):
    key, value = writer(1, key_schema(id="long")), writer(2, USER)
    message = value({"id": 1, "name": "a", "paid": None})
    result = decoder(schemas, None).decode(batch([message], [key({"id": 1})], topic=TOPIC))
    [delta] = result.deltas
    assert (delta.target, delta.primary_key) == ("shop.users", ("id",))
    assert delta.fields == observed(id="BIGINT", name="STRING", paid="DECIMAL(38, 2)")
    assert result.counts == {"pending": 1}


def test_metadata_of_rows(schemas, writer):
    key, value = writer(1, key_schema(id="long")), writer(2, USER)
    values = [b"junk", value({"id": 1, "name": "a", "paid": None}), None]
    keys = [key({"id": 1})] * 3
    raw = batch(values, keys, {1: [("trace", b"1")]}, topic=TOPIC)
    one = decoder(schemas, origin=("op", "table", "offset", "timestamp", "key"))
    [change] = one.decode(raw).changes
    found = [
        (row["op"], row["table"], row["offset"], row["key"]) for row in change.origin.to_pylist()
    ]
    assert found == [("u", "users", 101, keys[1]), ("d", "users", 102, keys[2])]
    assert change.origin["timestamp"][0].as_py().microsecond == 1_000
    assert change.origin.num_rows == change.rows.num_rows
    assert one.origins(raw, [2], ("op",))["op"].to_pylist() == ["d"]


def test_a_text_key_is_as_none(schemas, writer):
    value = writer(2, USER)
    row = value({"id": 7, "name": "a", "paid": None})
    result = decoder(schemas).decode(batch([row, None, None], [b"7", b"7", None], topic=TOPIC))
    assert changes(result, "id") == [("+U", 7)]
    assert [(b.offset, b.error_class) for b in result.bad] == [
        (101, "avro"),
        (102, "no_primary_key"),
    ]


def test_bad_records_come_whole(schemas, writer):
    key, value = writer(1, key_schema(id="long")), writer(2, USER)
    good = value({"id": 1, "name": "a", "paid": None})
    wrong = writer(3, user(id="string", name="string"))
    values = [good[:-3], b"{}", b"\0\0\0\0\x09x", wrong({"id": "x", "name": "b"}), good]
    headers = {1: [("trace", b"1")]}
    raw = batch(values, [key({"id": 1})] * 5, headers, topic=TOPIC)
    result = decoder(schemas).decode(raw)
    assert classes(result) == ["avro", "avro", "schema_id", "type"]
    assert [b.value for b in result.bad] == values[:4]
    assert result.bad[1].error.endswith("; it is JSON")
    assert result.bad[1].headers == (("trace", b"1"),)
    assert result.bad[1].timestamp_ms == 7_001
    assert "subject=`shop.users-value`" in result.bad[2].error
    assert changes(result, "id") == [("+U", 1)]


def test_the_registry_fails_the_call_and_no_record(writer):
    value = Writer(USER, 2)

    def away(_):
        raise RetryableError("away")

    one = decoder(away)
    with pytest.raises(RetryableError):
        one.decode(batch([value({"id": 1, "name": "a", "paid": None})], topic=TOPIC))
