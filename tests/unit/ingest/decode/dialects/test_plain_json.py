# SPDX-License-Identifier: Apache-2.0
import datetime

import pytest

from ingest.decode.events import SourceTable
from tests.unit.ingest.debezium_events import batch, classes, connect_field, dumps, rows, schema
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TOPIC = "web.clicks"
TABLE = schema(("user", "BIGINT"), ("page", "STRING"), ("took", "DOUBLE"), key=())


def decode(*values, table=TABLE, **options):
    return dialect_decoder("json", table, **options).decode(batch(*values, topic=TOPIC))


def test_every_record_is_an_insert():
    same = dumps({"user": 1, "page": "/ü", "took": 0.5})
    result = decode(same, same, None, dumps({"page": None}), b"{}")
    assert changes(result, "user", "page", "took", "offset") == [
        ("+I", 1, "/ü", 0.5, 10),
        ("+I", 1, "/ü", 0.5, 12),
        ("+I", None, None, None, 16),
        ("+I", None, None, None, 18),
    ]
    assert result.counts == {"op.c": 4, "tombstone": 1}
    assert result.changes[0].target == "web.clicks"


def test_a_new_table_needs_no_key():
    values = [dumps({"user": 1, "page": "x", "deep": {"a": [1]}}), dumps({"user": 2, "late": True})]
    result = decode(*values, table=None)
    (delta,) = result.deltas
    assert delta.fields == observed(user="BIGINT", page="STRING", deep="STRING", late="BOOLEAN")
    assert (delta.primary_key, delta.source) == ((), SourceTable("web", "", "clicks"))
    assert result.counts == {"pending": 2}


def test_a_configured_key_makes_a_primary_key_table():
    options = {"primary_keys": lambda _: ("user",)}
    (delta,) = decode(dumps({"user": 1}), table=None, **options).deltas
    assert delta.primary_key == ("user",)
    keyed = schema(("user", "BIGINT"), ("page", "STRING"), key=("user",))
    result = decode(dumps({"user": 1}), dumps({"page": "x"}), table=keyed, **options)
    assert changes(result, "user") == [("+I", 1)]
    assert classes(result) == ["no_primary_key"]


def test_values_of_every_type():
    table = schema(
        ("n", "DECIMAL(38,10)"),
        ("at", "TIMESTAMP(3)"),
        ("zoned", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("day", "DATE"),
        ("raw", "BYTES"),
        ("list", {"type": "ARRAY", "element": "INT"}),
        key=(),
    )
    value = (
        b'{"n":1234567890123456789012345678.0123456789,"at":"2024-05-06T07:08:09.123Z",'
        b'"zoned":"2024-05-06T07:08:09+02:00","day":"2024-05-06","raw":"AAE=","list":[1,"2",null]}'
    )
    (found,) = rows(decode(value, table=table))
    assert str(found["n"]) == "1234567890123456789012345678.0123456789"
    assert found["at"] == datetime.datetime.fromisoformat("2024-05-06T07:08:09.123")
    assert found["zoned"] == datetime.datetime(2024, 5, 6, 5, 8, 9, tzinfo=datetime.UTC)
    assert found["day"] == datetime.date(2024, 5, 6)
    assert found["raw"] == b"\x00\x01"
    assert found["list"] == [1, 2, None]


def test_times_as_numbers_are_configured():
    table = schema(("at", "TIMESTAMP(3)"), key=())
    value = dumps({"at": 1_000})
    assert classes(decode(value, table=table)) == ["type"]
    (found,) = rows(decode(value, table=table, time_precision_mode="adaptive"))
    assert found["at"] == datetime.datetime.fromisoformat("1970-01-01T00:00:01")


def test_new_columns_again_and_again():
    one = dialect_decoder("json", TABLE)
    values = [dumps({"user": n, "extra": n}) for n in range(5)] + [dumps({"user": 9})]
    for _ in range(2):
        result = one.decode(batch(*values, topic=TOPIC))
        assert changes(result, "user") == [("+I", 9)]
        assert result.deltas[0].fields == observed(extra="BIGINT")
        assert result.counts == {"op.c": 1, "pending": 5}


def test_columns_called_schema_and_payload_are_columns():
    table = schema(("schema", "STRING"), ("payload", "STRING"), ("n", "INT"), key=())
    values = [
        dumps({"schema": "public", "payload": "x"}),
        dumps({"schema": None, "payload": "y", "n": 1}),
        dumps({"schema": {"a": 1}, "payload": [2], "n": 2}),
        dumps({"schema": None, "payload": "z"}),
        dumps({"schema": {"a": 1}, "payload": {"b": 2}}),
        dumps({"schema": {"type": "struct"}, "payload": [3]}),
    ]
    assert changes(decode(*values, table=table), "schema", "payload", "n") == [
        ("+I", "public", "x", None),
        ("+I", None, "y", 1),
        ("+I", '{"a":1}', "[2]", 2),
        ("+I", None, "z", None),
        ("+I", '{"a":1}', '{"b":2}', None),
        ("+I", '{"type":"struct"}', "[3]", None),
    ]


def test_schema_block():
    described = {"type": "struct", "fields": [connect_field("user", "int32")], "name": "x"}
    value = dumps({"schema": described, "payload": {"user": 1}})
    (delta,) = decode(value, table=None).deltas
    assert (delta.fields, delta.primary_key) == (observed(user="INT"), ())
    assert changes(decode(value), "user", "page") == [("+I", 1, None)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "json"),
        (b"{]", "json"),
        (b'{"page":"\xff"}', "type"),
        (b"[]", "envelope"),
        (b"5", "envelope"),
        (dumps({"user": "x"}), "type"),
        (dumps({"page": 5}), "type"),
    ],
)
def test_what_cannot_be_decoded_is_bad(value, expected):
    good = dumps({"user": 5})
    result = decode(good, value, good)
    assert classes(result) == [expected]
    assert result.bad[0].error
    assert [r["offset"] for r in rows(result)] == [10, 14]
