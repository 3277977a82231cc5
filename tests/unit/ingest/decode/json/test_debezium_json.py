# SPDX-License-Identifier: Apache-2.0
import decimal
import json

import pytest

from ingest.decode.events import Target, parse_block
from tests.unit.ingest.debezium_events import (
    ORDERS,
    batch,
    classes,
    connect_block,
    connect_field,
    decoder,
    dumps,
    event,
    message,
    raw_after,
    rows,
    schema,
    with_block,
)
from tests.unit.ingest.dialect_decoders import observed

TABLE = schema(("id", "BIGINT"), ("name", "STRING"), ("amount", "DECIMAL(8,2)"))
TEXT_DECIMALS = {"decimal_handling_mode": "string"}


def row(key, name=None, amount=None):
    return {"id": key, "name": name, "amount": amount}


def test_each_op_becomes_its_row_kind_in_offset_order():
    result = decoder(TABLE, **TEXT_DECIMALS).decode(
        batch(
            message("r", None, row(1, "a", "1.50")),
            message("c", None, row(2, "b", "2.00"), ts_ms=500),
            message("u", row(2, "b"), row(2, "c"), ts_ms=9_000),
            message("d", row(1, "a", "1.50")),
            None,
        )
    )
    assert [(r["kind"], r["id"], r["name"], r["offset"]) for r in rows(result)] == [
        ("+I", 1, "a", 10),
        ("+I", 2, "b", 12),
        ("+U", 2, "c", 14),
        ("-D", 1, "a", 16),
    ]
    assert result.counts == {"op.r": 1, "op.c": 1, "op.u": 1, "op.d": 1, "tombstone": 1}
    change = result.changes[0]
    assert (change.target, change.schema_id) == ("shop.orders", 0)
    assert (change.min_source_ts_ms, change.max_source_ts_ms) == (500, 9_000)
    assert change.rows.schema.names == ["id", "name", "amount", "_VALUE_KIND", "_OFFSET"]


def test_schema_block_is_parsed_once(monkeypatch):
    block = connect_block(connect_field("id", "int64"), connect_field("name", "string"))
    parsed = []

    def counted(raw):
        parsed.append(raw)
        return parse_block(raw)

    monkeypatch.setattr("ingest.decode.events.parse_block", counted)
    table = schema(("id", "BIGINT"), ("name", "STRING"))
    one = decoder(table)
    for _ in range(2):
        values = [with_block(block, event("c", None, {"id": n, "name": "x"})) for n in range(5)]
        assert len(rows(one.decode(batch(*values)))) == 5
    assert len(parsed) == 1


def test_schema_block_in_other_layouts():
    block = connect_block(connect_field("id", "int64"), connect_field("name", "string"))
    payload = event("c", None, {"id": 1, "name": "x"})
    values = [
        with_block(block, payload),
        json.dumps({"schema": block, "payload": payload}, indent=1).encode(),
        dumps({"payload": payload, "schema": block}),
        dumps({"schema": None, "payload": payload}),
        dumps(payload),
        with_block(block, payload) + b"\n",
    ]
    result = decoder(schema(("id", "BIGINT"), ("name", "STRING"))).decode(batch(*values))
    assert [r["offset"] for r in rows(result)] == [10, 12, 14, 16, 18, 20]
    assert not result.bad


def test_missing_member_is_null_and_order_of_members_is_free():
    result = decoder(TABLE).decode(batch(raw_after('{"name":"x","id":3}')))
    assert rows(result)[0]["id"] == 3
    assert rows(result)[0]["amount"] is None


def test_key_change_in_an_update_is_delete_and_insert():
    result = decoder(TABLE).decode(
        batch(message("u", row(1, "a"), row(2, "a")), message("u", row(2, "a"), row(2, "b")))
    )
    assert [(r["kind"], r["id"], r["offset"]) for r in rows(result)] == [
        ("-D", 1, 10),
        ("+I", 2, 10),
        ("+U", 2, 12),
    ]
    assert result.counts == {"op.u": 2}


def test_update_whose_before_lacks_the_key_is_no_key_change():
    result = decoder(TABLE).decode(batch(message("u", {"name": "a"}, row(2, "b"))))
    assert [(r["kind"], r["id"]) for r in rows(result)] == [("+U", 2)]


@pytest.mark.parametrize("before", [None, {"id": None, "name": None}, {"name": "x"}])
@pytest.mark.parametrize(
    "key", [b'{"id":7}', b'{"schema":{"type":"struct","fields":[]},"payload":{"id":7}}']
)
def test_delete_takes_the_key_from_the_record_key(before, key):
    result = decoder(TABLE).decode(batch(message("d", before), keys=[key]))
    assert [(r["kind"], r["id"]) for r in rows(result)] == [("-D", 7)]


def test_delete_without_any_key_is_bad():
    result = decoder(TABLE).decode(batch(message("d", None), message("c", None, row(None))))
    assert classes(result) == ["no_primary_key", "no_primary_key"]


def test_other_messages_of_the_topic_are_counted():
    heartbeat_block = {"type": "struct", "fields": [], "name": "io.debezium.X.Heartbeat"}
    result = decoder(TABLE).decode(
        batch(
            dumps({"ts_ms": 5}),
            dumps({"schema": heartbeat_block, "payload": {"ts_ms": 5}}),
            dumps({"status": "BEGIN", "id": "7", "ts_ms": 5}),
            dumps(
                {"source": {"db": "shop"}, "databaseName": "shop", "ddl": "x", "tableChanges": []}
            ),
            dumps({"id": "1", "type": "STARTED", "aggregate_type": "Initial Snapshot"}),
            dumps({"id": "1", "type": "COMPLETED", "aggregate_type": "X", "additional_data": {}}),
            dumps({"type": "execute-snapshot", "data": {"data-collections": ["a.b"]}}),
            dumps({"id": "x", "type": "stop-snapshot", "data": None}),
            dumps({"status": "END", "id": "7", "event_count": 1, "data_collections": []}),
            dumps({"source": {"db": "shop"}, "databaseName": "", "tableChanges": [{}]}),
            dumps({"source": {"db": "shop", "table": "orders"}, "op": "t", "ts_ms": 1}),
            dumps({"source": {"db": "shop"}, "op": "m", "message": {"prefix": "p"}, "ts_ms": 1}),
            dumps({"schema": None, "payload": None}),
            None,
        )
    )
    assert result.counts == {
        "heartbeat": 2,
        "transaction": 2,
        "schema_change": 2,
        "notification": 2,
        "signal": 2,
        "op.t": 1,
        "op.m": 1,
        "tombstone": 2,
    }
    assert not result.bad
    assert not result.changes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "json"),
        (b"{", "json"),
        (b"\xef\xbb\xbf{}", "json"),
        (b"17", "envelope"),
        (b'"text"', "envelope"),
        (b"[]", "envelope"),
        (b"{}", "envelope"),
        (dumps({"id": 1, "__op": "c"}), "envelope"),
        # rows of a topic of another format, which only look like messages of the connector
        (dumps({"id": 1, "status": "NEW"}), "envelope"),
        (dumps({"id": 1, "ddl": "x"}), "envelope"),
        (dumps({"id": 1, "ddl": None, "source": "web"}), "envelope"),
        (dumps({"id": 1, "op": "t"}), "envelope"),
        (dumps({"id": 1, "type": "a", "data": 1, "more": 2}), "envelope"),
        (dumps({"specversion": "1.0", "data": {}}), "envelope"),
        (message("x", None, row(1)), "envelope"),
        (message("c", None, None), "envelope"),
        (message("c", None, '{"_id":1}'), "envelope"),
        (message("c", None, [1]), "envelope"),
        (dumps({"op": "c", "after": row(1)}), "envelope"),
    ],
)
def test_unknown_shapes_are_bad_records(value, expected):
    good = message("c", None, row(1))
    result = decoder(TABLE).decode(batch(good, value, good))
    assert classes(result) == [expected]
    assert [r["offset"] for r in rows(result)] == [10, 14]
    record = result.bad[0]
    assert (record.offset, record.value, record.timestamp_ms) == (12, value, -1)
    assert record.error


def test_two_tables_in_one_topic():
    targets = {
        "orders": Target("shop.orders", TABLE),
        "users": Target("shop.users", schema(("id", "INT"), ("email", "STRING"))),
        "audit": None,
    }
    one = decoder(targets)
    values = []
    for n in range(6):
        values += [
            message("c", None, row(n)),
            message("c", None, {"id": n, "email": "e"}, table="users"),
            message("c", None, {"whatever": n}, table="audit"),
        ]
    result = one.decode(batch(*values))
    assert {c.target: c.rows.num_rows for c in result.changes} == {
        "shop.orders": 6,
        "shop.users": 6,
    }
    assert result.counts == {"op.c": 12, "unrouted": 6}


def test_target_of_another_source_table_is_a_conflict():
    table = schema(("id", "BIGINT"), **{"lakeward.source-table": "shop.public.orders"})
    one = decoder(table)
    result = one.decode(
        batch(message("c", None, {"id": 1}), message("c", None, {"id": 2}, schema="audit"))
    )
    assert classes(result) == ["source_table_conflict"]
    assert [r["id"] for r in rows(result)] == [1]


def test_table_without_primary_key_is_refused():
    result = decoder(schema(("id", "BIGINT"), key=())).decode(batch(message("c", None, {"id": 1})))
    assert classes(result) == ["no_primary_key"]


# --- schema deltas


def test_missing_table_without_block_asks_for_inferred_columns():
    values = [
        message("c", None, {"id": 1, "b": True, "f": 1.5, "s": "x", "o": {"a": [1]}, "n": None}),
        message("c", None, {"id": 2, "b": None, "f": 2, "s": "y", "o": None, "late": 3}),
    ]
    result = decoder(None).decode(batch(*values, keys=[b'{"id":1}', b'{"id":2}']))
    assert not result.changes
    assert not result.bad
    assert result.counts == {"pending": 2}
    (delta,) = result.deltas
    assert (delta.target, delta.source, delta.primary_key) == ("shop.orders", ORDERS, ("id",))
    assert delta.offset == 10
    assert delta.fields == observed(
        id="BIGINT", b="BOOLEAN", f="DOUBLE", s="STRING", o="STRING", late="BIGINT"
    )


def test_missing_table_with_block_asks_for_the_blocks_columns():
    block = connect_block(
        connect_field("id", "int32"), connect_field("at", "int64", "io.debezium.time.Timestamp")
    )
    value = with_block(block, event("c", None, {"id": 1, "at": None}))
    result = decoder(None).decode(batch(value, value, keys=[b'{"id":1}', b'{"id":1}']))
    (delta,) = result.deltas
    assert delta.fields == observed(id="INT", at="TIMESTAMP(3)")
    assert result.counts == {"pending": 2}


def test_configured_primary_key_wins_and_records_need_no_key():
    one = decoder(None, primary_keys=lambda target: ("id",) if target == "shop.orders" else ())
    result = one.decode(batch(message("c", None, {"id": 1, "x": 2})))
    assert result.deltas[0].primary_key == ("id",)


@pytest.mark.parametrize("key", [None, b"", b"text", b'"k"', b"{}"])
def test_missing_table_without_key_is_bad(key):
    result = decoder(None).decode(batch(message("c", None, {"id": 1}), keys=[key]))
    assert classes(result) == ["no_primary_key"]
    assert not result.deltas


def test_events_that_give_no_ground_for_a_table_are_bad_not_lost():
    values = [message("c", None, {}), message("c", None, {"id": None})]
    result = decoder(None).decode(batch(*values, keys=[b'{"k":null}'] * 2))
    assert classes(result) == ["no_primary_key"] * 2


def test_new_column_without_block_is_one_delta_and_the_other_rows_stay():
    one = decoder(TABLE)
    values = [
        message("c", None, row(1)),
        message("c", None, {**row(2), "extra": 5}),
        message("c", None, {**row(3), "extra": 6, "more": "x"}),
        message("c", None, {**row(4), "extra": None}),
    ]
    result = one.decode(batch(*values))
    assert [r["id"] for r in rows(result)] == [1, 4]
    (delta,) = result.deltas
    assert delta.fields == observed(extra="BIGINT", more="STRING")
    assert (delta.offset, delta.primary_key) == (12, ("id",))
    assert result.counts == {"op.c": 2, "pending": 2}
    assert one.decode(batch(*values)).deltas == result.deltas


def test_a_bad_value_beside_a_new_column_is_still_bad():
    one = decoder(TABLE, **TEXT_DECIMALS)
    one.decode(batch(message("c", None, {**row(2), "extra": 5})))
    result = one.decode(batch(message("c", None, row(3, "x", "1.234"))))
    assert classes(result) == ["type"]
    assert not result.deltas


def test_new_and_wider_columns_with_block():
    table = schema(("id", "BIGINT"), ("n", "INT"), ("d", "DECIMAL(6,2)"), ("keep", "STRING"))
    decimal = {"parameters": {"scale": "4", "connect.decimal.precision": "9"}}
    block = connect_block(
        connect_field("id", "int64"),
        connect_field("n", "int64"),
        connect_field("d", "bytes", "org.apache.kafka.connect.data.Decimal", **decimal),
        connect_field("keep", "string"),
        connect_field("extra", "boolean"),
    )
    value = with_block(block, event("c", None, {"id": 1, "n": 2}))
    result = decoder(table).decode(batch(value, value))
    (delta,) = result.deltas
    assert delta.fields == observed(n="BIGINT", d="DECIMAL(9,4)", extra="BOOLEAN")
    assert result.counts == {"pending": 2}


def test_frozen_table_takes_what_fits_and_quarantines_the_rest():
    table = schema(("id", "BIGINT"), ("n", "INT"))
    block = connect_block(
        connect_field("id", "int64"), connect_field("n", "int64"), connect_field("extra", "int32")
    )
    values = [
        with_block(block, event("c", None, {"id": 1, "n": 5, "extra": None})),
        with_block(block, event("c", None, {"id": 2, "n": 2**40, "extra": None})),
        with_block(block, event("c", None, {"id": 3, "n": 5, "extra": 1})),
        message("c", None, {"id": 4, "n": 1, "extra": 1}),
    ]
    result = decoder(table, evolvable=False).decode(batch(*values))
    assert [r["id"] for r in rows(result)] == [1]
    assert classes(result) == ["type", "schema", "schema"]
    assert not result.deltas
    missing = decoder(None, evolvable=False).decode(batch(message("c", None, {"id": 1})))
    assert classes(missing) == ["schema"]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (None, "the table does not exist and could not be created: the lake is closed"),
        (schema(("id", "BIGINT")), "the table has no column n: the lake is closed"),
    ],
)
def test_records_of_a_frozen_table_tell_why_it_is_frozen(table, text):
    frozen = decoder(table, evolvable=False, why_frozen="the lake is closed")
    values = [message("c", None, {"id": 1, "n": 2}), message("c", None, {"id": 2, "n": None})]
    result = frozen.decode(batch(*values, keys=[b'{"id": 1}', b'{"id": 2}']))
    assert result.bad[0].error == text
    assert result.bad[0].error_class == "schema"


def test_key_column_never_widens():
    table = schema(("id", "INT"), ("n", "INT"))
    block = connect_block(connect_field("id", "int64"), connect_field("n", "int32"))
    values = [with_block(block, event("c", None, {"id": n, "n": 1})) for n in (5, 2**33)]
    result = decoder(table).decode(batch(*values))
    assert [r["id"] for r in rows(result)] == [5]
    assert classes(result) == ["type"]


def test_new_schema_of_the_target_is_used_from_the_next_call():
    targets = {"orders": Target("shop.orders", schema(("id", "BIGINT")))}
    one = decoder(targets)
    value = message("c", None, {"id": 1, "extra": 5})
    assert one.decode(batch(value)).deltas
    targets["orders"] = Target("shop.orders", schema(("id", "BIGINT"), ("extra", "BIGINT")))
    result = one.decode(batch(value))
    assert not result.deltas
    assert rows(result)[0]["extra"] == 5


# --- placeholders


def test_configured_placeholder():
    one = decoder(schema(("id", "BIGINT"), ("v", "STRING")), unavailable_value_placeholder="???")
    values = [message("c", None, {"id": n, "v": v}) for n, v in enumerate(["???", "a???", "b"])]
    result = one.decode(batch(*values))
    assert classes(result) == ["unavailable_value"]
    assert [r["v"] for r in rows(result)] == ["a???", "b"]


# --- adaptation


def test_columns_of_objects_are_kept_as_sent_and_learned():
    one = decoder(schema(("id", "BIGINT"), ("v", "STRING")))
    text = '{"a": [1, 2.50],  "b":"\\u00e9"}'
    values = [raw_after(f'{{"id":{n},"v":{text}}}') for n in range(3)] + [
        raw_after('{"id":9,"v":"s"}')
    ]
    for _ in range(2):
        assert [r["v"] for r in rows(one.decode(batch(*values)))] == [text] * 3 + ["s"]


def test_numeric_decimals_keep_all_digits():
    one = decoder(schema(("id", "BIGINT"), ("v", "DECIMAL(38,10)")))
    text = "1234567890123456789012345678.0123456789"
    values = [raw_after(f'{{"id":1,"v":{text}}}'), raw_after('{"id":2,"v":"MDk="}')]
    for _ in range(2):
        assert [str(r["v"]) for r in rows(one.decode(batch(*values)))] == [text, "0.0000012345"]


def test_many_chunks_and_bad_ones_in_between():
    one = decoder(TABLE, **TEXT_DECIMALS)
    values = [
        message("c", None, row(n, "x", "bad" if n % 700 == 3 else "1.00")) if n % 50 else None
        for n in range(5_000)
    ]
    result = one.decode(batch(*values))
    expected = [n for n in range(5_000) if n % 50 and n % 700 != 3]
    assert [r["id"] for r in rows(result)] == expected
    assert [record.offset for record in result.bad] == [
        10 + 2 * n for n in range(5_000) if n % 700 == 3 and n % 50
    ]
    assert result.counts == {"op.c": len(expected), "tombstone": 100}


def test_bits_that_a_decimal_column_does_not_hold_are_bad():
    bits = connect_field("v", "bytes", "io.debezium.data.Bits", parameters={"length": "9"})
    block = connect_block(connect_field("id", "int64"), bits)
    values = [with_block(block, event("c", None, {"id": 1, "v": v})) for v in ("AQ==", "abcdefgh")]
    result = decoder(schema(("id", "BIGINT"), ("v", "DECIMAL(9,2)")), evolvable=False).decode(
        batch(*values)
    )
    assert [row["v"] for row in rows(result)] == [decimal.Decimal("1.00")]
    assert classes(result) == ["type"]


def test_a_delete_whose_key_does_not_fit_and_whose_other_columns_are_no_text_is_bad():
    table = schema(("id", "INT"), ("v", "STRING"))
    value = message("d", {"id": 2**40, "v": "@"}, None).replace(b'"@":', b'"\xff":')
    value = value.replace(b'"v"', b'"\x8e"')
    assert classes(decoder(table, evolvable=False).decode(batch(value))) == ["type"]


def test_a_decimal_of_any_scale_that_is_no_text_is_bad():
    free = connect_field("v", "struct", "io.debezium.data.VariableScaleDecimal")
    block = connect_block(connect_field("id", "int64"), free)
    value = with_block(block, event("c", None, {"id": 1, "v": {"scale": 1, "value": "@@"}}))
    table = schema(("id", "BIGINT"), ("v", "STRING"))
    result = decoder(table, evolvable=False).decode(batch(value.replace(b"@@", b"Cw=\xd0")))
    assert classes(result) == ["type"]


@pytest.mark.parametrize("part", ["OLD_AND_NEW_VALUES", "NEW_VALUES"])
@pytest.mark.parametrize("whole", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_updates_of_spanner_that_lack_unchanged_columns_are_refused(whole, part):
    """They have null there, as columns that were set to null do."""
    table = schema(("id", "BIGINT"), ("a", "STRING"), ("b", "STRING"))
    spanner = {"connector": "spanner", "value_capture_type": whole}
    sound = [message("u", None, {"id": n, "a": "x", "b": "y"}, **spanner) for n in range(300)]
    spanner["value_capture_type"] = part
    partial = [message("u", {"id": 1, "a": "x"}, {"id": 1, "a": "z", "b": None}, **spanner)] * 3
    others = [
        message("c", None, {"id": 7, "a": "n", "b": None}, **spanner),
        message("d", {"id": 8}, None, **spanner),
    ]
    result = decoder(table).decode(batch(*sound, *partial, *others))
    assert [(r["kind"], r["id"], r["a"]) for r in rows(result)] == [
        *(("+U", n, "x") for n in range(300)),
        ("+I", 7, "n"),
        ("-D", 8, None),
    ]
    assert classes(result) == ["envelope"] * 3
    assert "value_capture_type = 'NEW_ROW'" in result.bad[0].error


def test_the_keyspace_of_vitess_is_the_database():
    vitess = {"connector": "vitess", "db": "", "schema": None, "sequence": None}
    values = [
        message("c", None, {"id": n, "name": "a"}, **vitess, keyspace=f"ks{n // 100}")
        for n in range(200)
    ]
    result = decoder(TABLE).decode(batch(*values))
    counts = [(change.target, change.rows.num_rows) for change in result.changes]
    assert counts == [("ks0.orders", 100), ("ks1.orders", 100)]
    assert not result.bad
