# SPDX-License-Identifier: Apache-2.0
import datetime
from decimal import Decimal

import pytest

from ingest.formats.events import SourceTable, Target
from tests.unit.ingest.debezium_events import batch, classes, dumps, rows, schema
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder, observed

TOPIC = "shop_binlog"
TABLE = schema(("id", "INT"), ("name", "STRING"), ("price", "DECIMAL(10,2)"))
TYPES = {"id": "int(11)", "name": "varchar(64)", "price": "decimal(10,2)"}
SQL_TYPES = {"id": 4, "name": 12, "price": 3}


def message(type_, data, old=None, **more):
    return dumps(
        {
            "data": data,
            "database": "shop",
            "es": 1_700_000_000_000,
            "id": 7,
            "isDdl": False,
            "mysqlType": TYPES,
            "old": old,
            "pkNames": ["id"],
            "sql": "",
            "sqlType": SQL_TYPES,
            "table": "items",
            "ts": 1_700_000_000_350,
            "type": type_,
            **more,
        }
    )


def row(key, name="a", price="1.50"):
    return {"id": key, "name": name, "price": price}


def decode(*values, table=TABLE, **options):
    return dialect_decoder("canal-json", table, **options).decode(batch(*values, topic=TOPIC))


def test_insert_update_and_delete_of_several_rows_in_order():
    result = decode(
        message("INSERT", [row("1"), row("2", "Größe ✓", "99999999.99")]),
        message("UPDATE", [row("1", "b"), row("2", None)], [{"name": "a"}, {"name": "Größe ✓"}]),
        message("DELETE", [row("1", "b")]),
        None,
    )
    assert changes(result, "id", "name", "price", "offset") == [
        ("+I", 1, "a", Decimal("1.50"), 10),
        ("+I", 2, "Größe ✓", Decimal("99999999.99"), 10),
        ("+U", 1, "b", Decimal("1.50"), 12),
        ("+U", 2, None, Decimal("1.50"), 12),
        ("-D", 1, "b", Decimal("1.50"), 14),
    ]
    assert result.counts == {"op.c": 1, "op.u": 1, "op.d": 1, "tombstone": 1}
    assert not result.bad
    change = result.changes[0]
    assert (change.target, change.min_source_ts_ms) == ("shop.items", 1_700_000_000_000)


def test_change_of_key_is_delete_of_the_old_row_and_insert():
    result = decode(
        message("UPDATE", [row("3", "c"), row("8")], [{"id": "2", "name": "b"}, {"price": "1.00"}])
    )
    assert changes(result, "id", "name", "price") == [
        ("-D", 2, "b", Decimal("1.50")),
        ("+I", 3, "c", Decimal("1.50")),
        ("+U", 8, "a", Decimal("1.50")),
    ]
    assert result.counts == {"op.u": 1}


def test_shifted_keys_of_one_statement_keep_their_order():
    result = decode(
        message("UPDATE", [row("3"), row("2")], [{"id": "2"}, {"id": "1"}]),
    )
    assert changes(result, "id") == [("-D", 2), ("+I", 3), ("-D", 1), ("+I", 2)]


def test_part_of_a_composite_key_changes():
    table = schema(("a", "INT"), ("b", "INT"), key=("a", "b"))
    value = message("UPDATE", [{"a": "1", "b": "5"}], [{"b": "4"}], mysqlType=None, sqlType=None)
    assert changes(decode(value, table=table), "a", "b") == [("-D", 1, 4), ("+I", 1, 5)]


def test_types_of_a_new_table_come_from_mysql_type():
    types = {
        "id": "bigint(20) unsigned",
        "small": "smallint unsigned",
        "flag": "tinyint(1)",
        "bit1": "bit(1)",
        "bits": "bit(9)",
        "d": "decimal(38,10)",
        "huge": "DECIMAL(65,30)",
        "n": "NUMERIC",
        "f": "float(7,4)",
        "day": "date",
        "clock": "time(3)",
        "at": "datetime(6)",
        "seen": "timestamp",
        "y": "year(4)",
        "code": "char(3)",
        "raw": "varbinary(16)",
        "blob": "longblob",
        "doc": "json",
        "size": "enum('s','m')",
        "place": "point",
        "odd": "something new(5)",
    }
    result = decode(message("INSERT", [dict.fromkeys(types)], mysqlType=types), table=None)
    (delta,) = result.deltas
    assert delta.fields == observed(
        id="DECIMAL(20,0)",
        small="INT",
        flag="TINYINT",
        bit1="BOOLEAN",
        bits="BIGINT",
        d="DECIMAL(38,10)",
        huge="STRING",
        n="DECIMAL(10,0)",
        f="FLOAT",
        day="DATE",
        clock="TIME(3)",
        at="TIMESTAMP(6)",
        seen="TIMESTAMP(0)",
        y="INT",
        code="VARCHAR(3)",
        raw="VARBINARY(16)",
        blob="BYTES",
        doc="STRING",
        size="STRING",
        place="BYTES",
        odd="STRING",
    )
    assert (delta.primary_key, delta.source) == (("id",), SourceTable("shop", "", "items"))
    assert result.counts == {"pending": 1}


def test_values_of_every_type():
    table = schema(
        ("id", "BIGINT"),
        ("flag", "TINYINT"),
        ("bit1", "BOOLEAN"),
        ("d", "DECIMAL(38,10)"),
        ("big", "DECIMAL(20,0)"),
        ("f", "FLOAT"),
        ("x", "DOUBLE"),
        ("day", "DATE"),
        ("clock", "TIME(3)"),
        ("at", "TIMESTAMP(6)"),
        ("raw", "BYTES"),
        ("doc", "STRING"),
    )
    value = {
        "id": "00042",
        "flag": "1",
        "bit1": "1",
        "d": "-1234567890123456789012345678.0123456789",
        "big": "18446744073709551615",
        "f": "5.18",
        "x": "1.0E-10",
        "day": "2024-02-29",
        "clock": "23:59:58.250",
        "at": "2016-10-21 05:33:37.523000",
        "raw": "\x00ÿé\x7f",
        "doc": '{"a": 1.10}',
    }
    (found,) = rows(decode(message("INSERT", [value], mysqlType=None, sqlType=None), table=table))
    assert found["id"] == 42
    assert (found["flag"], found["bit1"], found["doc"]) == (1, True, '{"a": 1.10}')
    assert str(found["d"]) == value["d"]
    assert str(found["big"]) == value["big"]
    assert (round(found["f"], 5), found["x"]) == (5.18, 1e-10)
    assert found["day"] == datetime.date(2024, 2, 29)
    assert found["clock"] == datetime.time(23, 59, 58, 250_000)
    assert found["at"] == datetime.datetime.fromisoformat("2016-10-21 05:33:37.523")
    assert found["raw"] == b"\x00\xff\xe9\x7f"


def test_zero_dates_are_null_and_half_zero_dates_are_bad():
    table = schema(("id", "INT"), ("day", "DATE"), ("at", "TIMESTAMP(3)"))
    types = {"id": "int", "day": "date", "at": "datetime(3)"}
    values = [
        message("INSERT", [{"id": "1", "day": day, "at": at}], mysqlType=types)
        for day, at in [
            ("0000-00-00", "0000-00-00 00:00:00"),
            ("2020-00-00", None),
            (None, "0000-00-00 00:00:00.000"),
        ]
    ]
    result = decode(*values, table=table)
    assert changes(result, "day", "at", "offset") == [
        ("+I", None, None, 10),
        ("+I", None, None, 14),
    ]
    assert classes(result) == ["type"]


def test_new_and_wider_columns_are_one_delta():
    types = {"id": "bigint", "name": "varchar(64)", "price": "decimal(12,4)", "n": "int unsigned"}
    table = schema(("id", "INT"), ("name", "VARCHAR(20)"), ("price", "DECIMAL(10,2)"))
    value = message("INSERT", [{**row("1"), "n": "4294967295"}], mysqlType=types)
    result = decode(value, value, table=table)
    (delta,) = result.deltas
    assert delta.fields == observed(name="VARCHAR(64)", price="DECIMAL(12,4)", n="BIGINT")
    assert result.counts == {"pending": 2}
    wider = schema(
        *(("id", "INT"), ("name", "VARCHAR(64)"), ("price", "DECIMAL(12,4)"), ("n", "BIGINT"))
    )
    assert changes(decode(value, table=wider), "id", "n") == [("+I", 1, 4_294_967_295)]


def test_narrower_and_other_families_are_checked_by_value():
    table = schema(("id", "BIGINT"), ("name", "INT"), ("price", "DECIMAL(20,4)"))
    result = decode(
        message("INSERT", [row("1", "12")]), message("INSERT", [row("2", "twelve")]), table=table
    )
    assert changes(result, "id", "name") == [("+I", 1, 12)]
    assert classes(result) == ["type"]
    assert "column name" in result.bad[0].error
    assert not result.deltas


def test_a_frozen_table_takes_what_fits():
    types = {**TYPES, "extra": "int"}
    result = decode(
        message("INSERT", [{**row("1"), "extra": None}], mysqlType=types),
        message("INSERT", [{**row("2"), "extra": "5"}], mysqlType=types),
        evolvable=False,
    )
    assert changes(result, "id") == [("+I", 1)]
    assert classes(result) == ["schema"]


def test_jdbc_types_and_no_types_at_all():
    value = message(
        "INSERT", [{**row("1"), "b": "5"}], mysqlType=None, sqlType={**SQL_TYPES, "b": -5}
    )
    (delta,) = decode(value, table=None).deltas
    assert delta.fields == observed(id="BIGINT", name="STRING", price="STRING", b="BIGINT")
    (delta,) = decode(
        message("INSERT", [row("1", None)], mysqlType=None, sqlType=None), table=None
    ).deltas
    assert delta.fields == observed(id="STRING", price="STRING")
    (delta,) = decode(
        message("INSERT", [{**row("1"), "late": "x"}], mysqlType=None, sqlType=None)
    ).deltas
    assert delta.fields == observed(late="STRING")


def test_a_table_without_key_needs_a_configured_one():
    value = message("INSERT", [row("1")], pkNames=None)
    assert classes(decode(value, table=None)) == ["no_primary_key"]
    (delta,) = decode(value, table=None, primary_keys=lambda _: ("id",)).deltas
    assert delta.primary_key == ("id",)


def test_ddl_and_other_messages_are_counted():
    ddl = {"isDdl": True, "mysqlType": None, "pkNames": None, "sql": "ALTER TABLE items ADD c INT"}
    result = decode(
        message("ALTER", None, **ddl),
        message("CREATE", None, **ddl),
        message("QUERY", None, **{**ddl, "table": ""}),
        message("TRUNCATE", None, **ddl),
        message("TIDB_WATERMARK", None, _tidb={"watermarkTs": 1}),
    )
    assert result.counts == {"schema_change": 3, "op.t": 1, "heartbeat": 1}
    assert not result.bad


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "json"),
        (b"{", "json"),
        (b"[]", "envelope"),
        (b"{}", "envelope"),
        (message("INSERT", None), "envelope"),
        (message("INSERT", []), "envelope"),
        (message("INSERT", "x"), "envelope"),
        (message("INSERT", [5]), "envelope"),
        (message("INSERT", [row("1")], table=None), "envelope"),
        (message("QUERY", [row("1")]), "envelope"),
        (message("UPDATE", [row("1")], []), "envelope"),
        (message("INSERT", [row("1")], mysqlType={"id": {}}), "envelope"),
        (message("INSERT", [row(None)]), "no_primary_key"),
        (message("DELETE", [{"name": "x"}]), "no_primary_key"),
        (message("INSERT", [row("1"), row("x")]), "type"),
        (message("INSERT", [row("1", "a", "1.234")]), "type"),
        (message("INSERT", [row("1", "a", "123456789.00")]), "type"),
        (message("INSERT", [row("99999999999")]), "type"),
    ],
)
def test_what_cannot_be_decoded_is_bad_as_a_whole(value, expected):
    good = message("INSERT", [row("5")])
    result = decode(good, value, good)
    assert classes(result) == [expected]
    assert result.bad[0].value == value
    assert result.bad[0].error
    assert [r["offset"] for r in rows(result)] == [10, 14]


def test_minimal_row_images_can_be_refused():
    value = message("UPDATE", [{"id": "1", "name": "b"}], [{"name": "a"}])
    assert changes(decode(value), "id", "price") == [("+U", 1, None)]
    result = decode(value, missing_columns="unchanged")
    assert classes(result) == ["unavailable_value"]
    assert "price" in result.bad[0].error


def test_tables_of_one_topic_and_a_table_that_is_not_wanted():
    targets = {"items": Target("shop.items", TABLE), "audit": None}
    result = decode(
        message("INSERT", [row("1")]), message("INSERT", [row("2")], table="audit"), table=targets
    )
    assert changes(result, "id") == [("+I", 1)]
    assert result.counts == {"op.c": 1, "unrouted": 1}


def test_a_message_with_a_wrong_row_and_one_that_is_none_is_bad_as_a_whole():
    result = decode(
        message("INSERT", [row("one"), None]), message("INSERT", [row("2")]), evolvable=False
    )
    assert changes(result, "id") == [("+I", 2)]
    assert len(result.bad) == 1
