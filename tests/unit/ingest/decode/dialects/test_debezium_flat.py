# SPDX-License-Identifier: Apache-2.0
import datetime
import json
from decimal import Decimal

import pytest

from ingest.decode.events import SourceTable, Target, Toast
from tests.unit.ingest.debezium_events import (
    batch,
    classes,
    connect_field,
    dumps,
    event,
    rows,
    schema,
    with_block,
)
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TOPIC = "pg.shop.orders"
TABLE = schema(("id", "BIGINT"), ("name", "STRING"), ("amount", "DECIMAL(8,2)"))


def row(key, name="a", amount=None, **metadata):
    return {"id": key, "name": name, "amount": amount, **{f"__{k}": v for k, v in metadata.items()}}


def block(*fields, name="pg.shop.orders.Value"):
    return {"type": "struct", "fields": list(fields), "optional": False, "name": name}


def key(number):
    return dumps({"id": number})


def decode(*values, table=TABLE, keys=None, topic=TOPIC, **options):
    one = dialect_decoder("debezium-flat", table, **options)
    return one.decode(batch(*values, keys=keys, topic=topic))


def test_rows_and_tombstones():
    result = decode(
        dumps(row(1, "Ünï", "MDk=")),
        dumps(row(2)),
        None,
        dumps({"schema": None, "payload": None}),
        keys=[key(1), key(2), key(1), with_block(block(connect_field("id", "int64")), {"id": 2})],
    )
    assert changes(result, "id", "name", "amount") == [
        ("+U", 1, "Ünï", Decimal("123.45")),
        ("+U", 2, "a", None),
        ("-D", 1, None, None),
        ("-D", 2, None, None),
    ]
    assert result.counts == {"op.u": 2, "op.d": 2}
    assert result.changes[0].target == "shop.orders"


def test_rewritten_deletes():
    values = [
        dumps(row(1, deleted="false", op="r", source_ts_ms=5_000_000_000_000)),
        dumps(row(1, deleted="true", op="d", source_ts_ms="4000000000000")),
        dumps({"id": 2, "name": None, "__deleted": True}),
        None,
    ]
    keys = [key(1), key(1), key(2), key(2)]
    result = decode(*values, keys=keys, tombstones="skip")
    assert changes(result, "id", "name") == [("+I", 1, "a"), ("-D", 1, "a"), ("-D", 2, None)]
    assert result.counts == {"op.r": 1, "op.d": 2, "tombstone": 1}
    change = result.changes[0]
    assert (change.min_source_ts_ms, change.max_source_ts_ms) == (4 * 10**12, 5 * 10**12)
    assert decode(*values, keys=keys).counts == {"op.r": 1, "op.d": 3}


def test_metadata_may_be_anywhere_in_the_message():
    """Serializers behind the connector may sort members: a delete must not become an upsert."""
    orders = [
        ["__op", "id", "name", "__ts_ms"],
        ["id", "__op", "name", "__ts_ms"],
        ["__deleted", "__ts_ms", "id", "name"],
        ["__ts_ms", "__op"],
    ]
    metadata = {"__op": "d", "__deleted": "true", "__ts_ms": 5, "name": "x"}
    for names in orders:
        for separators in [(",", ":"), (", ", ": ")]:
            events = [{name: {"id": n, **metadata}[name] for name in names} for n in range(40)]
            values = [json.dumps(each, separators=separators).encode() for each in events]
            result = decode(*values, keys=[key(n) for n in range(40)])
            assert changes(result, "id") == [("-D", n) for n in range(40)]
            assert not result.deltas


@pytest.mark.parametrize("prefix", ["meta_", ""])
@pytest.mark.parametrize("described", [True, False])
def test_deletes_are_marked_by_one_name_whatever_the_prefix(prefix, described):
    """`add.fields.prefix` holds for added fields, not for `__deleted`."""
    fields = [connect_field("id", "int64"), connect_field("name", "string")]
    if prefix:
        fields.append(connect_field(f"{prefix}op", "string"))
    fields.append(connect_field("__deleted", "string"))
    values = []
    for n in range(40):
        event_row = {"id": n, "name": "x"} | ({f"{prefix}op": "r"} if prefix else {})
        event_row["__deleted"] = "true" if n % 2 else "false"
        value = with_block(block(*fields), event_row) if described else dumps(event_row)
        values.append(value)
    result = decode(*values, keys=[key(n) for n in range(40)], metadata_prefix=prefix)
    kind = "+I" if prefix else "+U"
    assert changes(result, "id") == [("-D" if n % 2 else kind, n) for n in range(40)]
    assert not result.deltas
    (asked,) = decode(*values[:1], table=None, keys=[key(0)], metadata_prefix=prefix).deltas
    assert [field.name for field in asked.fields] == ["id", "name"]


def test_a_rewritten_delete_without_row_takes_the_key_of_the_record():
    value = dumps({"name": None, "__deleted": "true"})
    assert changes(decode(value, keys=[key(7)]), "id") == [("-D", 7)]
    assert classes(decode(value)) == ["no_primary_key"]


@pytest.mark.parametrize("described", [None, b"", b"null", b"{}", b"text", b'"k"', b"[1]"])
def test_a_null_value_without_key_is_bad(described):
    result = decode(None, keys=[described])
    assert len(result.bad) == 1
    assert result.bad[0].error_class in ("no_primary_key", "json", "envelope")


def test_metadata_is_no_column_wherever_it_stands():
    values = [
        dumps({"__op": "c", **row(1)}),
        dumps({"id": 2, "__op": "c", "name": "a"}),
        dumps({**row(3), "__op": "u", "__lsn": 5}),
        b' { "id" : 4, "name" : "x,\\"__op", "__op" : "c" } ',
        dumps({"id": 5, "name": {"k": 1, "__inner": 2}, "__op": "c"}),
        dumps({"id": 6, "name": {"k": 1, "__inner": 2}}),
    ]
    assert changes(decode(*values), "id", "name") == [
        ("+I", 1, "a"),
        ("+I", 2, "a"),
        ("+U", 3, "a"),
        ("+I", 4, 'x,"__op'),
        ("+I", 5, '{"k":1,"__inner":2}'),
        ("+U", 6, '{"k":1,"__inner":2}'),
    ]


def test_metadata_that_is_asked_for_is_a_column():
    values = [dumps(row(1, op="c", lsn=7, deleted="false"))]
    (delta,) = decode(*values, metadata_columns=("__op", "__lsn")).deltas
    assert delta.fields == observed(__op="STRING", __lsn="BIGINT")
    described = block(
        connect_field("id", "int64"), connect_field("__op", "string"), connect_field("__x", "int32")
    )
    table = schema(("id", "BIGINT"), ("__op", "STRING"))
    value = with_block(described, {"id": 1, "__op": "c", "__x": 5})
    result = decode(value, table=table, metadata_columns=("__op",))
    assert changes(result, "id", "__op") == [("+I", 1, "c")]


def test_another_prefix():
    value = dumps({"id": 1, "name": "a", "__op": "x", "meta.op": "c"})
    table = schema(("id", "BIGINT"), ("name", "STRING"), ("__op", "STRING"))
    result = decode(value, table=table, metadata_prefix="meta.")
    assert changes(result, "id", "__op") == [("+I", 1, "x")]
    plain = decode(dumps({"id": 1, "__op": "x"}), table=table, metadata_prefix="")
    assert changes(plain, "id", "__op") == [("+U", 1, "x")]


@pytest.mark.parametrize(
    ("topic", "metadata", "expected"),
    [
        ("orders", {}, SourceTable("", "", "orders")),
        ("shop.orders", {}, SourceTable("shop", "", "orders")),
        ("pg.shop.orders", {}, SourceTable("shop", "", "orders", "pg")),
        ("ms.db.dbo.orders", {}, SourceTable("db", "dbo", "orders", "ms")),
        ("all", {"db": "a", "table": "b"}, SourceTable("a", "", "b")),
        (
            "pg.x.y",
            {"source_db": "a", "source_schema": "s", "source_table": "b"},
            SourceTable("a", "s", "b", "pg"),
        ),
        ("pg.shop.all", {"table": "b"}, SourceTable("shop", "", "b", "pg")),
        ("pg.public.t", {"schema": "public", "table": "t"}, SourceTable("", "public", "t", "pg")),
    ],
)
def test_the_source_table_comes_from_metadata_or_the_topic(topic, metadata, expected):
    value = dumps(row(1, **metadata))
    (delta,) = decode(value, keys=[key(1)], topic=topic, table=None).deltas
    assert delta.source == expected


def test_schema_block_gives_types_and_encodings():
    described = block(
        connect_field("id", "int32"),
        connect_field("at", "int64", "io.debezium.time.MicroTimestamp"),
        connect_field(
            "d",
            "bytes",
            "org.apache.kafka.connect.data.Decimal",
            parameters={"scale": "2", "connect.decimal.precision": "30"},
        ),
        connect_field("__op", "string"),
        connect_field("__deleted", "string"),
    )
    payload = {"id": 1, "at": 1_000_001, "d": "MDk=", "__op": "c", "__deleted": "false"}
    value = with_block(described, payload)
    (delta,) = decode(value, table=None, keys=[key(1)]).deltas
    assert delta.fields == observed(id="INT", at="TIMESTAMP(6)", d="DECIMAL(30,2)")
    assert delta.primary_key == ("id",)
    table = schema(("id", "INT"), ("at", "TIMESTAMP(6)"), ("d", "DECIMAL(30,2)"))
    result = decode(value, value, table=table)
    expected = datetime.datetime.fromisoformat("1970-01-01T00:00:01.000001")
    assert changes(result, "id", "at", "d") == [("+I", 1, expected, Decimal("123.45"))] * 2
    narrow = schema(("id", "INT"), ("at", "TIMESTAMP(6)"), ("d", "DECIMAL(10,2)"))
    (delta,) = decode(value, table=narrow).deltas
    assert delta.fields == observed(d="DECIMAL(30,2)")


def test_new_columns_without_block():
    values = [dumps(row(1)), dumps({**row(2, op="c"), "extra": True})]
    result = decode(*values)
    assert changes(result, "id") == [("+U", 1)]
    assert result.deltas[0].fields == observed(extra="BOOLEAN")
    (delta,) = decode(dumps(row(1, "x", 1.5)), None, table=None, keys=[key(1), key(2)]).deltas
    assert delta.fields == observed(id="BIGINT", name="STRING", amount="DOUBLE")
    assert delta.primary_key == ("id",)
    assert classes(decode(dumps(row(1)), table=None)) == ["no_primary_key"]


def test_other_messages_of_the_connector():
    result = decode(
        with_block(block(name="io.debezium.connector.common.Heartbeat"), {"ts_ms": 5}),
        with_block(block(name="io.debezium.connector.mysql.SchemaChangeValue"), {"ddl": "x"}),
        with_block(
            block(name="io.debezium.connector.common.TransactionMetadataValue"), {"id": "1"}
        ),
    )
    assert result.counts == {"heartbeat": 1, "schema_change": 1, "transaction": 1}
    beat = decode(dumps({"ts_ms": 1}), topic="__debezium-heartbeat.pg")
    assert beat.counts == {"heartbeat": 1}
    begin = {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None}
    border = decode(dumps(begin), dumps({**begin, "ts_ms": 5}), topic="pg.transaction")
    assert border.counts == {"transaction": 2}


def test_a_table_called_transaction_has_rows():
    table = schema(("id", "BIGINT"), ("status", "STRING"))
    values = [dumps({"id": 1, "status": "BEGIN"}), dumps({"id": 2, "status": "paid"})]
    result = decode(*values, table=table, topic="pg.shop.transaction")
    assert changes(result, "id", "status") == [("+U", 1, "BEGIN"), ("+U", 2, "paid")]


def test_placeholders_are_refused():
    value = dumps(row(1, "__debezium_unavailable_value", op="u"))
    assert classes(decode(value)) == ["unavailable_value"]
    kept = decode(value, dumps(row(2)), toast=Toast.KEEP)
    assert changes(kept, "name", "_UNAVAILABLE") == [("+U", None, [1]), ("+U", "a", None)]
    new = dumps(row(1, "__debezium_unavailable_value", op="c"))
    assert classes(decode(new, toast=Toast.KEEP)) == ["unavailable_value"]


def test_two_tables_of_one_topic():
    targets = {"a": Target("s.a", TABLE), "b": Target("s.b", TABLE), "c": None}
    values = [dumps(row(n, db="s", table=name)) for n, name in enumerate("abcab")]
    result = decode(*values, table=targets)
    assert {c.target: c.rows.column("id").to_pylist() for c in result.changes} == {
        "s.a": [0, 3],
        "s.b": [1, 4],
    }
    assert result.counts == {"op.u": 4, "unrouted": 1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "json"),
        (b"{", "json"),
        (b'{"id":1,"__op":"c"', "json"),
        (b"17", "envelope"),
        (b"[]", "envelope"),
        (dumps(event("c", None, {"id": 1})), "envelope"),
        (dumps(row(None)), "no_primary_key"),
        (dumps(row("x")), "type"),
        (dumps(row(1, "a", "?")), "type"),
        (dumps({"schema": {"type": 5}, "payload": {"id": 1}}), "envelope"),
    ],
)
def test_what_cannot_be_decoded_is_bad(value, expected):
    good = dumps(row(5, op="c"))
    result = decode(good, value, good)
    assert classes(result) == [expected]
    assert result.bad[0].error
    assert [r["offset"] for r in rows(result)] == [10, 14]
