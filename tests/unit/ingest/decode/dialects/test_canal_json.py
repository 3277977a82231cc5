# SPDX-License-Identifier: Apache-2.0
import datetime
from decimal import Decimal

import pytest

from ingest.decode.events import SourceTable, Target
from ingest.decode.types.semantic_types import TypeMapping
from storage.format.types.types import type_name
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


MYSQL_TYPES = {
    "bigint(20) unsigned": "DECIMAL(20,0)",
    "BIGINT(20) UNSIGNED ZEROFILL": "DECIMAL(20,0)",
    "int unsigned": "BIGINT",
    "smallint unsigned": "INT",
    "tinyint unsigned": "SMALLINT",
    "tinyint(1)": "TINYINT",
    "bit(1)": "BOOLEAN",
    "bit(9)": "BIGINT",
    "decimal(38,10)": "DECIMAL(38,10)",
    "DECIMAL( 8 , 3 ) unsigned": "DECIMAL(8,3)",
    "DECIMAL(65,30)": "STRING",
    "NUMERIC": "DECIMAL(20,0)",
    "float(7,4)": "FLOAT",
    "float(53)": "DOUBLE",
    "DOUBLE(10,2)": "DOUBLE",
    "double precision unsigned": "DOUBLE",
    "date": "DATE",
    "time(3)": "TIME(3)",
    "datetime(6)": "TIMESTAMP(6)",
    "timestamp": "TIMESTAMP(0)",
    "year(4)": "INT",
    "YEAR": "INT",
    "char(3)": "VARCHAR(3)",
    "varbinary(16)": "VARBINARY(16)",
    "longblob": "BYTES",
    "json": "STRING",
    "JSON": "STRING",
    "enum('s','m')": "STRING",
    "set('a)','unsigned')": "STRING",
    "point": "BYTES",
    "something new(5)": "STRING",
}


def test_types_of_a_new_table_come_from_mysql_type():
    names = [f"c{number}" for number in range(len(MYSQL_TYPES))]
    types = {"id": "int", **dict(zip(names, MYSQL_TYPES, strict=True))}
    result = decode(message("INSERT", [dict.fromkeys(types)], mysqlType=types), table=None)
    (delta,) = result.deltas
    columns = dict(zip(names, MYSQL_TYPES.values(), strict=True))
    assert delta.fields == observed(id="INT", **columns)
    assert (delta.primary_key, delta.source) == (("id",), SourceTable("shop", "", "items"))
    assert result.counts == {"pending": 1}


TICDC = {
    "id": ("bigint unsigned", "18446744073709551615", "DECIMAL(20,0)"),
    "name": ("varchar", "more than one letter", "STRING"),
    "code": ("char", "abc", "STRING"),
    "price": ("decimal", "1234567890123.45", "DECIMAL(22,2)"),
    "raw": ("varbinary", "\x00ÿé", "BYTES"),
    "fixed": ("binary", "\x01\x02", "BYTES"),
    "at": ("datetime", "2024-02-29 23:59:58.123456", "TIMESTAMP(6)"),
    "seen": ("timestamp", "2024-02-29 23:59:58.5", "TIMESTAMP(1)"),
    "clock": ("time", "10:11:12.25", "TIME(2)"),
    "bits": ("bit", "81", "BIGINT"),
    "one": ("bit", "1", "BIGINT"),
    "y": ("year", "2024", "INT"),
    "doc": ("json", '{"a": 1}', "STRING"),
    "mood": ("enum", "2", "STRING"),
    "f": ("double", "1.5", "DOUBLE"),
}
"""Types as TiCDC writes them, a value of each, and the columns that they make."""


def test_types_without_a_length_take_no_limit_and_are_as_wide_as_seen():
    types = {name: type_ for name, (type_, _, _) in TICDC.items()}
    sent = {name: text for name, (_, text, _) in TICDC.items()}
    value = message("INSERT", [sent], mysqlType=types)
    (delta,) = decode(value, table=None).deltas
    assert delta.fields == observed(**{name: column for name, (_, _, column) in TICDC.items()})
    table = schema(*((each.name, type_name(each.type)) for each in delta.fields))
    result = decode(value, table=table)
    assert not result.bad
    (found,) = rows(result)
    assert (found["name"], found["code"], found["mood"]) == ("more than one letter", "abc", "2")
    assert (found["price"], found["raw"]) == (Decimal("1234567890123.45"), b"\x00\xff\xe9")
    assert found["at"] == datetime.datetime.fromisoformat("2024-02-29 23:59:58.123456")
    assert (found["bits"], found["y"]) == (81, 2024)


def test_the_widest_of_the_rows_seen_makes_the_column():
    types = {"id": "int", "d": "decimal", "at": "datetime"}
    seen = [("1.5", None), ("12345678901234567890123", "2024-02-29 00:00:00"), (None, "x")]
    data = [{"id": str(at), "d": d, "at": moment} for at, (d, moment) in enumerate(seen)]
    value = message("INSERT", data, mysqlType=types)
    (delta,) = decode(value, table=None).deltas
    assert delta.fields == observed(id="INT", d="DECIMAL(24,1)", at="TIMESTAMP(0)")


def test_a_value_of_an_open_type_asks_for_a_wider_column():
    table = schema(("id", "INT"), ("d", "DECIMAL(10,0)"), ("at", "TIMESTAMP(0)"))
    types = {"id": "int", "d": "decimal", "at": "datetime"}

    def value(key, d, at="2024-02-29 00:00:00"):
        return message("INSERT", [{"id": key, "d": d, "at": at}], mysqlType=types)

    fits = [value("1", "10"), value("2", "11.00")]
    grows = [
        value("3", "1.25"),
        value("4", "1.5", "2024-02-29 00:00:00.123456"),
        value("5", "12345678901"),
    ]
    result = decode(*fits, *grows, value("6", "no number"), table=table)
    assert changes(result, "id", "d") == [("+I", 1, 10), ("+I", 2, 11)]
    (delta,) = result.deltas
    assert delta.fields == observed(d="DECIMAL(22,2)", at="TIMESTAMP(6)")
    assert result.counts == {"op.c": 2, "pending": 3}
    assert classes(result) == ["type"]
    for options in ({"evolvable": False}, {"type_mapping": TypeMapping.of(["no-change"])}):
        frozen = decode(*grows, table=table, **options)
        assert classes(frozen) == ["type"] * 3
        assert not frozen.deltas


ENUM_TYPES = {
    "id": "int",
    "size": "enum('small','it''s, big','a\\\\b (x)')",
    "tags": "SET('red','green','blue')",
}


def test_numbers_of_enum_and_set_members_become_their_names():
    table = schema(("id", "INT"), ("size", "STRING"), ("tags", "STRING"))
    seen = [
        ("1", "0"),
        ("2", "1"),
        ("3", "5"),
        ("0", "7"),
        (2, 6),
        ("small", "red,blue"),
        (None, None),
        ("", ""),
    ]
    data = [{"id": str(at), "size": s, "tags": t} for at, (s, t) in enumerate(seen)]
    value = message("INSERT", data, mysqlType=ENUM_TYPES)
    result = decode(value, message("DELETE", data[1:2], mysqlType=ENUM_TYPES), table=table)
    assert not result.bad
    assert changes(result, "size", "tags") == [
        ("+I", "small", ""),
        ("+I", "it's, big", "red"),
        ("+I", "a\\b (x)", "red,blue"),
        ("+I", "", "red,green,blue"),
        ("+I", "it's, big", "green,blue"),
        ("+I", "small", "red,blue"),
        ("+I", None, None),
        ("+I", "", ""),
        ("-D", "it's, big", "red"),
    ]
    (delta,) = decode(value, table=None).deltas
    assert delta.fields == observed(id="INT", size="STRING", tags="STRING")


def test_numbers_of_members_that_are_not_there():
    table = schema(("id", "INT"), ("size", "STRING"), ("tags", "STRING"))
    types = {"id": "int", "size": "enum('10','20')", "tags": "set('10','20')"}

    def value(size, tags):
        return message("INSERT", [{"id": "1", "size": size, "tags": tags}], mysqlType=types)

    result = decode(value("20", "10"), value("3", "1"), value("1", "4"), table=table)
    assert changes(result, "size", "tags") == [("+I", "20", "10")]
    assert classes(result) == ["type", "type"]
    assert "column size" in result.bad[0].error
    numbers = schema(("id", "INT"), ("size", "INT"), ("tags", "STRING"))
    assert changes(decode(value("2", "1"), table=numbers), "size", "tags") == [("+I", 2, "10")]


def test_an_enum_in_the_key_is_its_name():
    table = schema(("size", "STRING"), ("n", "INT"), key=("size",))
    types = {"size": "enum('s','m')", "n": "int"}
    value = message("UPDATE", [{"size": "2", "n": "5"}], [{"size": "1"}], mysqlType=types)
    assert changes(decode(value, table=table), "size", "n") == [("-D", "s", 5), ("+I", "m", 5)]


def test_without_types_columns_are_text_and_numbers_are_their_text():
    bare = {"mysqlType": None, "sqlType": None}
    data = [{"id": 1, "n": 1.50, "ok": True, "t": "a", "doc": {"a": [1]}}]
    first = message("INSERT", data, **bare)
    (delta,) = decode(first, table=None).deltas
    assert delta.fields == observed(id="STRING", n="STRING", ok="STRING", t="STRING", doc="STRING")
    table = schema(*((name, "STRING") for name in data[0]))
    more = message(
        "INSERT", [{"id": "2", "n": "x", "ok": "1", "t": 12345678901234567890123}], **bare
    )
    one = dialect_decoder("canal-json", table)
    for _ in range(2):
        result = one.decode(batch(first, more, first, topic=TOPIC))
        assert not result.bad
        assert changes(result, *data[0]) == [
            ("+I", "1", "1.5", "true", "a", '{"a":[1]}'),
            ("+I", "2", "x", "1", "12345678901234567890123", None),
            ("+I", "1", "1.5", "true", "a", '{"a":[1]}'),
        ]


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
