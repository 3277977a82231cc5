# SPDX-License-Identifier: Apache-2.0
"""Streams of the other formats, message forms as their tools document them, with schema changes:
a column that comes, one that widens, one that goes, and the statements that say so. Real tables."""

import datetime
from decimal import Decimal

import pytest

from ingest.source.records import RawBatch
from tests.unit.ingest.debezium_events import connect_field, dumps
from tests.unit.ingest.local_stream import LocalStream
from tests.unit.ingest.row_streams import TOPIC, ItemStream

CONFIG = """
source: {{type: files, path: /nowhere, format: {format}{source}}}
sink: {{warehouse: "WAREHOUSE"{sink}}}
pipeline: {{name: test}}
tables: [{{match: '*', primary.key: [{key}]{rule}}}]
"""

ROWS = ("op.c", "op.r", "op.u", "op.d", "pending")


class Stream(ItemStream):
    """Batches of (key, value) into one table, each run twice, the second time after a death."""

    def __init__(self, directory, name, source="", key="id", rule="", sink=""):
        config = CONFIG.format(format=name, source=source, key=key, rule=rule, sink=sink)
        self.form = name
        self.local = LocalStream(directory, config)
        self.offset = self.number = 0

    def run(self, *records):
        """The counts of the messages that were no rows."""
        records = [each if isinstance(each, tuple) else (None, each) for each in records]
        keys, values = zip(*records, strict=True)
        offsets = list(range(self.offset, self.offset + len(records)))
        batch = {(TOPIC, 0): [RawBatch(TOPIC, 0, offsets, list(keys), list(values))]}
        report = self.local.run(self.number, batch)
        before = self.everything()
        self.local.start()
        self.local.run(self.number, batch)
        assert self.everything() == before
        self.offset += len(records)
        self.number += 1
        counts = report.counts.get(TOPIC, {})
        return {name: n for name, n in counts.items() if name not in ROWS}

    def everything(self):
        return {name: self.local.rows(name) for name in self.local.book.schema_ids()}

    def keys(self):
        return [row[0] for row in self.rows()]


# --- Canal

CANAL_TYPES = {"id": "int(11)", "name": "varchar(8)", "price": "decimal(10,2)"}


def canal(type_, data=None, old=None, types=None, **more):
    """As Canal's flat messages are; also as TiCDC writes them."""
    return dumps(
        {
            "data": data,
            "database": "shop",
            "es": 1_700_000_000_000,
            "gtid": "",
            "id": 3,
            "isDdl": False,
            "mysqlType": types,
            "old": old,
            "pkNames": ["id"] if data else None,
            "sql": "",
            "sqlType": types and dict.fromkeys(types, 12),
            "table": "items",
            "ts": 1_700_000_000_400,
            "type": type_,
            **more,
        }
    )


def canal_ddl(type_, sql, **more):
    return canal(type_, isDdl=True, sql=sql, **more)


def test_canal(tmp_path):
    one = Stream(tmp_path, "canal-json")
    counts = one.run(
        canal_ddl("QUERY", "CREATE DATABASE `shop`", table=""),
        canal_ddl("CREATE", "CREATE TABLE items (id int primary key, …)"),
        canal_ddl("CINDEX", "CREATE INDEX by_name ON items (name)"),
        canal("QUERY", sql="INSERT INTO items VALUES (1, …), (2, …)"),
        canal(
            "INSERT",
            [{"id": "1", "name": "tea", "price": "3.50"}, {"id": "2", "name": "cup", "price": "8"}],
            types=CANAL_TYPES,
        ),
        canal(
            "UPDATE",
            [{"id": "1", "name": "tea", "price": "3.75"}, {"id": "3", "name": "cup", "price": "8"}],
            [{"price": "3.50"}, {"id": "2"}],
            CANAL_TYPES,
        ),
        canal("XACOMMIT", sql="XA COMMIT 'x'", table=""),
    )
    assert counts == {"schema_change": 3, "notification": 1, "transaction": 1}
    assert one.types() == {"id": "INT", "name": "VARCHAR(8)", "price": "DECIMAL(10, 2)"}
    assert one.rows() == [
        (1, "tea", Decimal("3.75")),
        (3, "cup", Decimal("8.00")),
    ]

    wider = {**CANAL_TYPES, "name": "varchar(40)", "price": "decimal(12,4)", "n": "int unsigned"}
    counts = one.run(
        canal_ddl("ALTER", "ALTER TABLE items ADD n INT UNSIGNED, MODIFY name varchar(40)"),
        canal(
            "INSERT",
            [{"id": "4", "name": "a long name", "price": "0.0001", "n": "4294967295"}],
            types=wider,
        ),
        canal("DELETE", [{"id": "3", "name": "cup", "price": "8.00", "n": None}], types=wider),
    )
    assert counts == {"schema_change": 1}
    assert one.types() == {
        "id": "INT",
        "name": "VARCHAR(40)",
        "price": "DECIMAL(12, 4)",
        "n": "BIGINT",
    }

    dropped = {name: wider[name] for name in ("id", "price", "n")}
    one.run(
        canal_ddl("ALTER", "ALTER TABLE items DROP COLUMN name"),
        canal("INSERT", [{"id": "5", "price": "1", "n": "1"}], types=dropped),
        canal("UPDATE", [{"id": "4", "price": "2", "n": "1"}], [{"price": "1"}], dropped),
    )
    assert one.rows() == [
        (1, "tea", Decimal("3.7500"), None),
        (4, None, Decimal("2.0000"), 1),
        (5, None, Decimal("1.0000"), 1),
    ]
    counts = one.run(
        canal_ddl("RENAME", "RENAME TABLE items TO goods", table="goods"),
        canal_ddl("DINDEX", "DROP INDEX by_name ON items"),
        canal_ddl("TRUNCATE", "TRUNCATE TABLE items"),
        canal_ddl("ERASE", "DROP TABLE items"),
    )
    assert counts == {"schema_change": 3, "op.t": 1}
    assert len(one.rows()) == 3
    assert one.bad() == []


TICDC_TYPES = {"id": "int unsigned", "name": "varchar", "price": "decimal", "at": "datetime"}


def test_canal_as_ticdc_writes_it(tmp_path):
    one = Stream(tmp_path, "canal-json")
    old = {"id": "1", "name": "cup", "price": "8", "at": "2024-02-29 23:59:58"}
    one.run(canal("INSERT", [old], types=TICDC_TYPES))
    assert one.types() == {
        "id": "BIGINT",
        "name": "STRING",
        "price": "DECIMAL(20, 0)",
        "at": "TIMESTAMP(0)",
    }
    new = {"id": "1", "name": "a cup", "price": "8.25", "at": "2024-02-29 23:59:58.123456"}
    one.run(
        canal("UPDATE", [new], [old], TICDC_TYPES),
        canal("INSERT", [{**old, "id": "2"}], types=TICDC_TYPES),
    )
    assert one.types() == {
        "id": "BIGINT",
        "name": "STRING",
        "price": "DECIMAL(22, 2)",
        "at": "TIMESTAMP(6)",
    }
    at = datetime.datetime.fromisoformat("2024-02-29T23:59:58")
    assert one.rows() == [
        (1, "a cup", Decimal("8.25"), at.replace(microsecond=123_456)),
        (2, "cup", Decimal("8.00"), at),
    ]
    assert one.bad() == []


def test_canal_as_ticdc_writes_it_where_columns_may_not_be_widened(tmp_path):
    one = Stream(tmp_path, "canal-json", sink=", exclude.schema.changes: [alter.column.type]")
    old = {"id": "1", "name": "cup", "price": "8", "at": "2024-02-29 23:59:58"}
    one.run(canal("INSERT", [old], types=TICDC_TYPES))
    prices = ["8.25", "8.255", "8.2", "9.00"]
    rows = [{**old, "id": str(at), "price": price} for at, price in enumerate(prices, 2)]
    one.run(*[canal("INSERT", [row], types=TICDC_TYPES) for row in rows])
    assert one.types()["price"] == "DECIMAL(20, 0)"
    assert [row[2] for row in one.rows()] == [8, 9]
    assert one.bad() == ["type"] * 3


def test_canal_messages_that_stand_for_rows_they_do_not_have_are_bad(tmp_path):
    one = Stream(tmp_path, "canal-json")
    row = [{"id": "1", "name": "tea", "price": "3.50"}]
    counts = one.run(
        canal("INSERT", row, types=CANAL_TYPES, _tidb={"commitTs": 4_635_164_000_000}),
        canal("UPDATE", sql="UPDATE items SET price = 2 * price"),
        canal("INSERT", isDdl=True, sql="INSERT INTO items SELECT …"),
        canal("UPDATE", row[:1], types=CANAL_TYPES, _tidb={"onlyHandleKey": True}),
        canal("INSERT", row, types=CANAL_TYPES, _tidb={"claimCheckLocation": "s3://b/x.json"}),
        canal("TIDB_WATERMARK", table="", _tidb={"watermarkTs": 4_635_164_000_000}),
        canal_ddl("QUERY", "ALTER TABLE …", table="", _tidb={"commitTs": 4_635_164_000_000}),
    )
    assert counts == {"heartbeat": 1, "schema_change": 1}
    assert one.bad() == ["envelope", "envelope", "unavailable_value", "unavailable_value"]
    assert len(one.rows()) == 1
    gone = canal("DELETE", [{"id": "1"}], types=CANAL_TYPES, _tidb={"onlyHandleKey": True})
    one.run(gone)
    assert one.rows() == []


# --- Maxwell


def maxwell(type_, data=None, old=None, **more):
    value = {
        "database": "shop",
        "table": "items",
        "type": type_,
        "ts": 1_700_000_000,
        "xid": 23_396,
        "commit": True,
        "position": "master.000006:800911",
        "server_id": 23_042,
        "thread_id": 108,
        **more,
    }
    images = {"data": data, "old": old}
    return dumps({**value, **{name: row for name, row in images.items() if row is not None}})


def maxwell_ddl(type_, sql, *columns, **more):
    """As with `--output_ddl`: `def` and `old` describe tables and are no rows."""
    table = {"database": "shop", "charset": "utf8mb4", "table": "items", "columns": list(columns)}
    value = {"type": type_, "database": "shop", "table": "items", "def": table, **more}
    return dumps({**value, "ts": 1_700_000_000_000, "sql": sql, "position": "master.000006:800050"})


def test_maxwell(tmp_path):
    key = {"primary_key": [1], "primary_key_columns": ["id"]}
    number = {"type": "int", "name": "id", "signed": True}
    one = Stream(tmp_path, "maxwell-json")
    counts = one.run(
        maxwell_ddl("database-create", "create database shop"),
        maxwell_ddl("table-create", "create table items (…)", number, **{"primary-key": ["id"]}),
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {"id": 1, "name": "tea", "price": 3.5}, comment="first"),
        maxwell("bootstrap-complete", {}),
        maxwell("insert", {"id": 2, "name": "cup", "price": 8.25}, **key),
        maxwell("update", {"id": 3, "name": "cup", "price": 8.25}, {"id": 2}, **key),
        maxwell("update", {"id": 1, "name": "tea", "price": None}, {"price": 3.5}, **key),
    )
    assert counts == {"schema_change": 2, "notification": 2}
    assert one.types() == {"id": "BIGINT", "name": "STRING", "price": "DOUBLE"}
    assert one.rows() == [(1, "tea", None), (3, "cup", 8.25)]

    counts = one.run(
        maxwell_ddl(
            "table-alter",
            "alter table items add column n bigint, modify name text",
            number,
            old={"columns": [number]},
        ),
        maxwell("insert", {"id": 4, "name": "x" * 300, "price": 1e300, "n": 2**40}),
        maxwell("insert", {"id": 5, "name": "pot", "price": 1.0, "n": "no number"}),
        maxwell("delete", {"id": 3, "name": "cup", "price": 8.25, "n": None}),
    )
    assert counts == {"schema_change": 1}
    assert one.types()["n"] == "BIGINT"
    assert one.bad() == ["type"]

    counts = one.run(
        maxwell_ddl("table-alter", "alter table items drop column name", number),
        maxwell("insert", {"id": 6, "price": 2.0, "n": 1}),
        maxwell("update", {"id": 4, "price": 2.0, "n": 1}, {"price": 1e300, "n": 2**40}),
        maxwell_ddl("table-drop", "drop table items"),
        maxwell_ddl("database-alter", "alter database shop charset utf8mb4"),
        maxwell_ddl("database-drop", "drop database shop"),
    )
    assert counts == {"schema_change": 4}
    assert one.rows() == [
        (1, "tea", None, None),
        (4, None, 2.0, 1),
        (6, None, 2.0, 1),
    ]


def test_types_that_no_message_names_widen_by_rule(tmp_path):
    one = Stream(tmp_path, "maxwell-json", rule=", on.incompatible: new_column")
    one.run(maxwell("insert", {"id": 1, "n": 5}))
    one.run(maxwell("insert", {"id": 2, "n": 5.5}), maxwell("insert", {"id": 3, "n": "many"}))
    assert [row[:2] for row in one.rows()] == [(1, 5), (2, None), (3, None)]
    rest = [[v for v in row[2:] if v is not None] for row in one.rows()]
    assert rest == [[], [5.5], ["many"]]
    assert one.bad() == []


# --- Oracle GoldenGate


def ogg(op, before=None, after=None, **more):
    return dumps(
        {
            "table": "CDB.SHOP.ITEMS",
            "op_type": op,
            "op_ts": "2013-06-02 22:14:36.000000",
            "current_ts": "2015-09-18T10:17:49.570000",
            "pos": "00000000000000001444",
            "xid": "0.5.6.3",
            "primary_keys": ["ID"],
            "tokens": {"R": "AADPkvAAEAAEqL2AAA", "6": "9.0.80330"},
            "before": before,
            "after": after,
            **more,
        }
    )


def test_golden_gate(tmp_path):
    one = Stream(tmp_path, "ogg-json", key="ID")
    one.run(
        ogg("I", None, {"ID": 1, "NAME": "tea", "NOTE": "green"}),
        ogg("I", None, {"ID": 2, "NAME": "cup", "NOTE": None}),
        ogg("U", {"ID": 1, "NAME": "tea"}, {"ID": 1, "NAME": "Tea"}),
        ogg("U", {"ID": 2, "NAME": "cup", "NOTE": None}, {"ID": 3}),
    )
    assert one.rows() == [(1, "Tea", "green"), (3, "cup", None)]

    one.run(
        ogg("I", None, {"ID": 4, "NAME": "pot", "NOTE": "x", "N": 2**40}),
        ogg("U", {"ID": 1, "N": None}, {"ID": 1, "N": 7}),
        ogg("I", None, {"ID": 5, "NAME": "jug", "NOTE": "x", "N": 2**70}),
        ogg("D", {"ID": 3}),
    )
    columns = {"ID": "BIGINT", "NAME": "STRING", "NOTE": "STRING", "N": "DECIMAL(22, 0)"}
    assert (one.types(), one.bad()) == (columns, [])

    # a column that is gone is in no image: new rows have null, an update does not tell it from
    # one that did not change
    one.run(
        ogg("I", None, {"ID": 6, "NAME": "can", "N": 1}),
        ogg("U", {"ID": 4, "NAME": "pot", "N": 2**40}, {"ID": 4, "NAME": "Pot", "N": 1}),
        ogg("T"),
    )
    assert one.rows() == [
        (1, "Tea", "green", 7),
        (4, "Pot", "x", 1),
        (5, "jug", "x", 2**70),
        (6, "can", None, 1),
    ]


# --- AWS DMS


def dms(operation, data=None, record_type="data", before=None, **metadata):
    value = {
        "metadata": {
            "timestamp": "2024-03-01T09:00:00.000000Z",
            "record-type": record_type,
            "operation": operation,
            "partition-key-type": "schema-table",
            "schema-name": "shop",
            "table-name": "items",
            **metadata,
        }
    }
    images = {"data": data, "before-image": before}
    return dumps({**{name: row for name, row in images.items() if row is not None}, **value})


def dms_control(operation, *columns, **metadata):
    """As with `IncludeControlDetails` and `IncludeTableAlterOperations`."""
    details = {"table-def": {"columns": {name: {"type": "INT32"} for name in columns}}}
    text = dms(operation, None, "control", **metadata)
    return text[:-1] + b',"control":' + dumps(details) + b"}"


def test_dms(tmp_path):
    streamed = {"transaction-id": 25_769_803_777, "commit-timestamp": "2024-03-01T08:59:59.5Z"}
    one = Stream(tmp_path, "aws-dms-json")
    counts = one.run(
        dms_control("create-table", **{"schema-name": "", "table-name": "awsdms_apply_exceptions"}),
        dms_control("drop-table"),
        dms_control("create-table", "id", "name", "price"),
        dms("load", {"id": 1, "name": "tea", "price": 3.5}),
        dms("insert", {"id": 2, "name": "cup", "price": 8.25}, **streamed),
        dms("update", {"id": 3, "name": "cup", "price": 8.25}, before={"id": 2}, **streamed),
        dms("update", {"id": 1, "name": "Tea"}, before={"name": "tea", "price": 3.5}, **streamed),
    )
    assert counts == {"schema_change": 3}
    assert one.rows() == [(1, "Tea", None), (3, "cup", 8.25)]

    counts = one.run(
        dms_control("add-column", "n"),
        dms("insert", {"id": 4, "name": "pot", "price": 1.5, "n": 2**40}),
        dms_control("column-type-change", "name"),
        dms("insert", {"id": 5, "name": "jug", "price": 1.5, "n": 2**70}),
        dms("delete", {"id": 3}),
        dms_control("rename-column", "n"),
        dms_control("change-columns", "n"),
    )
    assert counts == {"schema_change": 4}
    columns = {"id": "BIGINT", "name": "STRING", "price": "DOUBLE", "n": "DECIMAL(22, 0)"}
    assert (one.types(), one.bad()) == (columns, [])

    counts = one.run(
        dms_control("drop-column", "name"),
        dms("insert", {"id": 6, "price": 1.5, "n": 1}),
        dms("update", {"id": 4, "price": 2.5, "n": 1}),
        dms_control("rename-table"),
        dms_control("truncate-table"),
        dms_control("drop-table"),
    )
    assert counts == {"schema_change": 3, "op.t": 1}
    assert one.rows() == [
        (1, "Tea", None, None),
        (4, None, 2.5, 1),
        (5, "jug", 1.5, 2**70),
        (6, None, 1.5, 1),
    ]


# --- all


@pytest.mark.parametrize("known", [True, False])
def test_what_waited_for_a_schema_may_be_bad_all_the_same(tmp_path, known):
    def event(row):
        source = {"name": "src", "db": "shop", "table": "items", "ts_ms": 1}
        return dumps({"before": None, "after": row, "source": source, "op": "c"})

    one = Stream(tmp_path, "debezium-json")
    if known:
        one.run(event({"id": 1}))
    one.run(
        event({"id": 2, "n": 5}), event({"id": 3, "n": "no number"}), event({"id": "x", "n": 6})
    )
    assert one.keys() == ([1, 2] if known else [2])
    assert one.bad() == ["type", "type"]


# --- flattened and upsert


def keyed(number, row, described=None, **metadata):
    """A record with its key; with a schema block where the fields are described."""
    key = {"id": number}
    if row is None:
        return dumps(key), None
    value = {**row, **{f"__{name}": text for name, text in metadata.items()}}
    if described is None:
        return dumps(key), dumps(value)
    fields = [*described, *(connect_field(f"__{name}", "string") for name in metadata)]
    block = {"type": "struct", "fields": fields, "optional": False, "name": "src.shop.items.Value"}
    key_block = {"type": "struct", "fields": fields[:1], "optional": False, "name": "src.Key"}
    return dumps({"schema": key_block, "payload": key}), dumps({"schema": block, "payload": value})


KEPT = {"op": "u", "deleted": "false"}
GONE = {"op": "d", "deleted": "true"}


def rewritten(key, name):
    return keyed(key, {"id": key, "name": name}, **GONE)


DELETES = {
    "tombstone": lambda key: [keyed(key, None)],
    "rewrite": lambda key: [rewritten(key, "cup")],
    "rewrite of a key": lambda key: [rewritten(key, None)],
    "rewrite-with-tombstone": lambda key: [rewritten(key, "cup"), keyed(key, None)],
}
"""Records of a delete by mode: `tombstone` is the default, and as delete-to-tombstone; PostgreSQL's
default replica identity brings the key alone."""


@pytest.mark.parametrize(
    ("source", "modes"),
    [("", [*DELETES]), (", flat.tombstones: skip", ["rewrite-with-tombstone"])],
)
@pytest.mark.parametrize("added", [KEPT, {"deleted": "false"}, {}])
def test_flattened_deletes_of_every_mode(tmp_path, source, modes, added):
    one = Stream(tmp_path, "debezium-flat", source)
    keys = range(2, 2 + len(modes))
    deleted = [
        record for key, mode in zip(keys, modes, strict=True) for record in DELETES[mode](key)
    ]
    one.run(
        keyed(1, {"id": 1, "name": "tea"}, **added),
        *(keyed(key, {"id": key, "name": "cup"}, **added) for key in keys),
        *deleted,
        keyed(9, {"id": 9, "name": "pot"}, **added),
    )
    assert one.keys() == [1, 9]
    one.run(*(keyed(key, {"id": key, "name": "again"}, **added) for key in keys))
    assert [row[1] for row in one.rows()] == ["tea", *["again"] * len(modes), "pot"]
    one.run(*deleted)
    assert one.keys() == [1, 9]
    assert one.types() == {"id": "BIGINT", "name": "STRING"}
    assert one.bad() == []


def test_flattened_deletes_that_do_not_come_leave_rows(tmp_path):
    """Mode `drop`: nothing says that the row went."""
    one = Stream(tmp_path, "debezium-flat", ", flat.tombstones: skip")
    one.run(keyed(1, {"id": 1, "name": "tea"}), keyed(1, None))
    assert one.keys() == [1]


@pytest.mark.parametrize(
    ("name", "metadata"),
    [("debezium-flat", {}), ("debezium-flat", KEPT), ("upsert-json", {})],
)
def test_described_rows_whose_schema_changes(tmp_path, name, metadata):
    def fields(**types):
        return [connect_field(column, *type_) for column, type_ in types.items()]

    day = ("int32", "io.debezium.time.Date") if name == "debezium-flat" else ("string",)
    first = fields(id=("int64",), n=("int32",), name=("string",))
    one = Stream(tmp_path, name)
    one.run(keyed(1, {"id": 1, "n": 7, "name": "tea"}, first, **metadata))
    assert one.types() == {"id": "BIGINT", "n": "INT", "name": "STRING"}

    second = fields(id=("int64",), n=("int64",), name=("string",), day=day)
    value = 19_000 if name == "debezium-flat" else "2022-01-08"
    one.run(
        keyed(2, {"id": 2, "n": 2**40, "name": "cup", "day": value}, second, **metadata),
        keyed(3, {"id": 3, "n": None, "name": None, "day": None}, second, **metadata),
        keyed(1, None, second),
    )
    moment = datetime.date(2022, 1, 8) if name == "debezium-flat" else "2022-01-08"
    assert one.types()["n"] == "BIGINT"
    assert one.rows() == [
        (2, 2**40, "cup", moment),
        (3, None, None, None),
    ]

    third = fields(id=("int64",), n=("int64",), day=day)
    one.run(keyed(2, {"id": 2, "n": 1, "day": value}, third, **metadata))
    assert one.rows()[0] == (2, 1, None, moment)
    assert one.bad() == []


def test_upsert_keys_without_rows(tmp_path):
    one = Stream(tmp_path, "upsert-json")
    one.run(
        keyed(1, {"id": 1, "name": "tea"}),
        keyed(2, {"name": "the key is in the key alone"}),
        keyed(1, None),
        keyed(9, None),
        (None, None),
    )
    assert one.keys() == [2]
    assert one.bad() == ["no_primary_key"]


def test_statements_among_flattened_rows_are_no_rows(tmp_path):
    table = {"type": "ALTER", "id": '"shop"."items"', "table": {"columns": []}}
    statement = {
        "source": {"connector": "mysql", "name": "src", "db": "shop", "table": "items"},
        "ts_ms": 1_700_000_000_000,
        "databaseName": "shop",
        "schemaName": None,
        "ddl": "ALTER TABLE items ADD COLUMN n INT",
        "tableChanges": [table],
    }
    one = Stream(tmp_path, "debezium-flat")
    counts = one.run(
        (dumps({"databaseName": "shop"}), dumps(statement)),
        keyed(1, {"id": 1, "ddl": "a column", "tableChanges": 5}),
    )
    assert counts == {"schema_change": 1}
    assert one.types() == {"id": "BIGINT", "ddl": "STRING", "tableChanges": "BIGINT"}
