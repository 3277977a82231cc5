# SPDX-License-Identifier: Apache-2.0
import pytest

from ingest.decode.events import BadRecord, SourceTable
from tests.unit.ingest.debezium_events import batch, classes, connect_field, dumps, rows, schema
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TOPIC = "shop.users"
TABLE = schema(("region", "STRING"), ("id", "INT"), ("name", "STRING"), key=("region", "id"))


def key(region, number):
    return dumps({"region": region, "id": number})


def decode(*values, keys, table=TABLE, topic=TOPIC, **options):
    one = dialect_decoder("upsert-json", table, **options)
    return one.decode(batch(*values, keys=list(keys), topic=topic))


def test_values_and_deletes():
    result = decode(
        dumps({"region": "eu", "id": 1, "name": "Zoë"}),
        dumps({"region": "eu", "id": "2", "name": None}),
        None,
        b"null",
        keys=[key("eu", 1), key("eu", 2), key("eu", 1), key("eu", 2)],
    )
    assert changes(result, "region", "id", "name") == [
        ("+U", "eu", 1, "Zoë"),
        ("+U", "eu", 2, None),
        ("-D", "eu", 1, None),
        ("-D", "eu", 2, None),
    ]
    assert result.counts == {"op.u": 2, "op.d": 2}
    assert result.changes[0].target == "shop.users"


def test_key_columns_may_be_in_the_key_alone():
    values = [
        dumps({"name": "a"}),
        dumps({"id": 2, "name": "b"}),
        dumps({"name": "c", "new": None}),
    ]
    result = decode(*values, keys=[key("eu", 1), key("us", 2), key("as", 3)])
    assert changes(result, "region", "id", "name") == [
        ("+U", "eu", 1, "a"),
        ("+U", "us", 2, "b"),
        ("+U", "as", 3, "c"),
    ]
    missing = decode(dumps({"name": "a"}), dumps({"name": "b"}), keys=[None, b'{"region":"x"}'])
    assert classes(missing) == ["no_primary_key"] * 2


def test_a_delete_has_the_key_alone_whatever_else_the_records_key_holds():
    long_key = dumps({"region": "eu", "id": 1, "name": "Zoë"})
    assert changes(decode(None, keys=[long_key]), "region", "id", "name") == [("-D", "eu", 1, None)]


def test_what_a_record_was_counted_as():
    one = dialect_decoder("upsert-json", TABLE)
    assert one.key_is_row
    for value, expected in [(dumps({"name": "a"}), "op.u"), (None, "op.d")]:
        record = BadRecord(1, -1, key("eu", 1), value, (), "x", "x")
        assert one.operation(TOPIC, record) == expected


def test_a_new_table_has_the_keys_columns():
    result = decode(dumps({"name": "a", "n": 1.5}), keys=[key("eu", 1)], table=None)
    (delta,) = result.deltas
    assert delta.fields == observed(name="STRING", n="DOUBLE", region="STRING", id="BIGINT")
    assert (delta.primary_key, delta.source) == (("region", "id"), SourceTable("shop", "", "users"))
    assert classes(decode(dumps({"name": "a"}), keys=[None], table=None)) == ["no_primary_key"]


def test_a_new_column_and_a_delete_beside_it():
    values = [dumps({"region": "eu", "id": 1, "extra": [1]}), None]
    result = decode(*values, keys=[key("eu", 1), key("eu", 2)])
    assert changes(result, "id") == [("-D", 2)]
    assert result.deltas[0].fields == observed(extra="STRING")


def test_schema_blocks_of_key_and_value():
    def described(*fields):
        return {"type": "struct", "fields": list(fields), "name": "x"}

    value = {
        "schema": described(connect_field("id", "int64"), connect_field("day", "int32", DATE)),
        "payload": {"id": 1, "day": 19_000},
    }
    record_key = {"schema": described(connect_field("id", "int64")), "payload": {"id": 1}}
    table = schema(("id", "BIGINT"), ("day", "DATE"))
    result = decode(dumps(value), None, keys=[dumps(record_key)] * 2, table=table)
    assert [(r["kind"], r["id"], str(r["day"])) for r in rows(result)] == [
        ("+U", 1, "2022-01-08"),
        ("-D", 1, "None"),
    ]
    (delta,) = decode(dumps(value), keys=[dumps(record_key)], table=None).deltas
    assert (delta.fields, delta.primary_key) == (observed(id="BIGINT", day="DATE"), ("id",))


DATE = "org.apache.kafka.connect.data.Date"


@pytest.mark.parametrize(
    ("value", "record_key", "expected"),
    [
        (None, None, "no_primary_key"),
        (None, b"", "no_primary_key"),
        (None, b"null", "no_primary_key"),
        (None, b"text", "json"),
        (None, b"5", "envelope"),
        (None, b'{"region":"eu"}', "no_primary_key"),
        (None, b'{"region":"eu","id":"x"}', "type"),
        (b"{", key("eu", 1), "json"),
        (b"[1]", key("eu", 1), "envelope"),
        (dumps({"region": "eu", "id": 2**31}), key("eu", 1), "type"),
    ],
)
def test_what_cannot_be_decoded_is_bad(value, record_key, expected):
    good = dumps({"region": "eu", "id": 5})
    result = decode(good, value, good, keys=[None, record_key, None])
    assert classes(result) == [expected]
    assert result.bad[0].error
    assert [r["offset"] for r in rows(result)] == [10, 14]


@pytest.mark.parametrize(
    ("record_key", "said"),
    [
        (b"5", "the key of a tombstone is a single value"),
        (b'"text"', "the key of a tombstone is a single value"),
        (b"Struct{id=5}", "key of a tombstone: JSON is malformed"),
    ],
)
def test_a_tombstone_whose_key_names_no_columns(record_key, said):
    (bad,) = decode(None, keys=[record_key]).bad
    assert said in bad.error
