# SPDX-License-Identifier: Apache-2.0
import base64
import datetime
from decimal import Decimal

import pytest

from ingest.decode.events import SourceTable
from tests.unit.ingest.debezium_events import batch, classes, dumps, rows, schema
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TABLE = schema(("id", "BIGINT"), ("m", "DOUBLE"), ("comment", "STRING"))


def message(type_, data, old=None, **more):
    value = {
        "database": "test",
        "table": "e",
        "type": type_,
        "ts": 1_477_053_217,
        "xid": 23_396,
        "commit": True,
        "position": "binlog.000006:800911",
        "data": data,
    }
    if old is not None:
        value["old"] = old
    return dumps({**value, **more})


def row(key, m=4.25, comment="light ✓"):
    return {"id": key, "m": m, "comment": comment}


def decode(*values, table=TABLE, keys=None, **options):
    one = dialect_decoder("maxwell-json", table, **options)
    return one.decode(batch(*values, keys=keys, topic="maxwell"))


def test_each_type_becomes_its_row_kind():
    result = decode(
        message("bootstrap-start", {}),
        message("bootstrap-insert", row(1)),
        message("bootstrap-complete", {}),
        message("insert", row(2)),
        message("update", row(2, 5.5), {"m": 4.25}),
        message("delete", row(1)),
        None,
    )
    assert changes(result, "id", "m", "comment") == [
        ("+I", 1, 4.25, "light ✓"),
        ("+I", 2, 4.25, "light ✓"),
        ("+U", 2, 5.5, "light ✓"),
        ("-D", 1, 4.25, "light ✓"),
    ]
    assert result.counts == {
        "notification": 2,
        "op.r": 1,
        "op.c": 1,
        "op.u": 1,
        "op.d": 1,
        "tombstone": 1,
    }
    assert result.changes[0].target == "test.e"
    assert result.changes[0].max_source_ts_ms == 1_477_053_217_000


def test_change_of_key_is_delete_and_insert():
    result = decode(message("update", row(7, 1.0), {"id": 6, "m": 2.0}))
    assert changes(result, "id", "m", "comment") == [
        ("-D", 6, 2.0, "light ✓"),
        ("+I", 7, 1.0, "light ✓"),
    ]


def test_values_of_every_type():
    table = schema(
        ("id", "BIGINT"),
        ("big", "DECIMAL(20,0)"),
        ("d", "DECIMAL(38,10)"),
        ("at", "TIMESTAMP(6)"),
        ("day", "DATE"),
        ("raw", "BYTES"),
        ("tags", {"type": "ARRAY", "element": "STRING"}),
        ("doc", "STRING"),
    )
    value = message("insert", "@").replace(
        b'"@"',
        b'{"id":1,"big":18446744073709551615,"d":1234567890123456789012345678.0123456789,'
        b'"at":"2016-10-21 05:33:37.523000","day":"0000-00-00","raw":"AAH/",'
        b'"tags":["b_val","c_val"],"doc":{"a":1.10}}',
    )
    (found,) = rows(decode(value, table=table))
    assert found["big"] == Decimal(18_446_744_073_709_551_615)
    assert str(found["d"]) == "1234567890123456789012345678.0123456789"
    assert found["at"] == datetime.datetime.fromisoformat("2016-10-21 05:33:37.523")
    assert found["day"] is None
    assert found["raw"] == base64.b64decode("AAH/")
    assert found["tags"] == ["b_val", "c_val"]
    assert found["doc"] == '{"a":1.10}'


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"primary_key_columns": ["id", "m"]}, None),
        ({}, b'{"database":"test","table":"e","pk.id":1,"pk.m":4.25}'),
        ({}, b'["test","e",[{"id":1},{"m":4.25}]]'),
    ],
)
def test_a_new_table_takes_types_from_values_and_the_key_from_where_it_is(more, key):
    value = message("insert", {**row(1), "none": None, "flag": True}, **more)
    (delta,) = decode(value, table=None, keys=[key]).deltas
    assert delta.fields == observed(id="BIGINT", m="DOUBLE", comment="STRING", flag="BOOLEAN")
    assert delta.primary_key == ("id", "m")
    assert delta.source == SourceTable("test", "", "e")


@pytest.mark.parametrize("key", [None, b"", b"text", b"5", b'{"database":"test"}', b"[1,2,3]"])
def test_a_new_table_without_key_is_refused(key):
    result = decode(message("insert", row(1)), table=None, keys=[key])
    assert classes(result) == ["no_primary_key"]
    configured = decode(
        message("insert", row(1)), table=None, keys=[key], primary_keys=lambda _: ("id",)
    )
    assert configured.deltas[0].primary_key == ("id",)


def test_a_new_column_is_a_delta_and_the_other_rows_stay():
    values = [
        message("insert", row(1)),
        message("update", {**row(1), "torvalds": 2**40}, {"m": 1.0}),
        message("insert", {**row(3), "torvalds": 5}),
        message("insert", {**row(4), "torvalds": None}),
    ]
    result = decode(*values)
    assert changes(result, "id") == [("+I", 1), ("+I", 4)]
    (delta,) = result.deltas
    assert (delta.fields, delta.offset) == (observed(torvalds="BIGINT"), 12)
    assert result.counts == {"op.c": 2, "pending": 2}
    assert classes(decode(*values, evolvable=False)) == ["schema", "schema"]


def test_ddl_is_counted():
    kinds = ("table-create", "table-alter", "table-drop", "database-create", "database-drop")
    result = decode(*[dumps({"type": kind, "database": "test", "sql": "x"}) for kind in kinds])
    assert result.counts == {"schema_change": 5}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"{", "json"),
        (b"\xff", "json"),
        (b'"x"', "envelope"),
        (dumps({"id": 1}), "envelope"),
        (message("replace", row(1)), "envelope"),
        (message("insert", None), "envelope"),
        (message("insert", [1]), "envelope"),
        (message("insert", row(1), table=None), "envelope"),
        (message("insert", None, encrypted={"iv": "x"}), "envelope"),
        (message("insert", {"m": 1.0}), "no_primary_key"),
        (message("insert", row(1, "much")), "type"),
        (message("insert", row(1.5)), "type"),
        (message("update", row(1), [5]), "envelope"),
    ],
)
def test_what_cannot_be_decoded_is_bad(value, expected):
    good = message("insert", row(5))
    result = decode(good, value, good)
    assert classes(result) == [expected]
    assert result.bad[0].offset == 12
    assert [r["offset"] for r in rows(result)] == [10, 14]
