# SPDX-License-Identifier: Apache-2.0
"""Debezium's schema change messages, and the column names in their statements."""

import dataclasses
import json

import pytest

from ingest.decode.avro.writer_schemas import AvroRecords
from ingest.decode.events import SourceTable
from ingest.decode.registry import RegisteredSchema
from ingest.decode.schema_change_events import (
    ColumnChanges,
    column_changes,
    plain_value,
    read_schema_change,
    schema_changes,
)
from tests.unit.ingest.captured_events import FOLDER, load


@pytest.mark.parametrize(
    ("ddl", "renamed", "dropped", "added"),
    [
        ("ALTER TABLE t RENAME COLUMN a TO b", [("a", "b")], [], []),
        (
            "alter table `shop`.`t` change column `a` `b c` varchar(10) not null",
            [("a", "b c")],
            [],
            [],
        ),
        ("ALTER TABLE t CHANGE a a BIGINT", [], [], []),
        ("ALTER TABLE shop.change DROP COLUMN a", [], ["a"], []),
        ("ALTER TABLE change DROP COLUMN a", [], ["a"], []),
        ("ALTER TABLE t CHANGE COLUMN IF EXISTS a b INT, DROP c", [("a", "b")], ["c"], []),
        (
            "ALTER ONLINE TABLE t DROP COLUMN a, ADD COLUMN b DECIMAL(10,2) AFTER x",
            [],
            ["a"],
            ["b"],
        ),
        (
            "ALTER TABLE t ADD (a INT, b DECIMAL(10, 2) DEFAULT 1), ADD c INT",
            [],
            [],
            ["a", "b", "c"],
        ),
        (
            "ALTER TABLE t DROP PRIMARY KEY, DROP INDEX i, DROP FOREIGN KEY f, DROP KEY k",
            [],
            [],
            [],
        ),
        ("ALTER TABLE t DROP COLUMN `index`", [], ["index"], []),
        ("ALTER TABLE t DROP `key`", [], ["key"], []),
        ("ALTER TABLE t DROP COLUMN period, ADD COLUMN system INT", [], ["period"], ["system"]),
        ("ALTER TABLE t DROP SYSTEM VERSIONING, DROP PERIOD FOR SYSTEM_TIME", [], [], []),
        ("ALTER TABLE t /* drop x, */ DROP COLUMN IF EXISTS a -- drop b\n", [], ["a"], []),
        (
            "ALTER TABLE t ADD COLUMN a VARCHAR(9) DEFAULT 'x, DROP COLUMN b', MODIFY c INT",
            [],
            [],
            ["a"],
        ),
        (
            "ALTER TABLE t ADD INDEX i (a), ADD CONSTRAINT c UNIQUE (b), ADD UNIQUE KEY k (a)",
            [],
            [],
            [],
        ),
        ("ALTER TABLE t RENAME TO u", [], [], []),
        ("ALTER TABLE t RENAME INDEX a TO b", [], [], []),
        ('ALTER TABLE "T" RENAME COLUMN "A" TO "B"', [("A", "B")], [], []),
        ("ALTER TABLE T DROP (a, b)", [], ["a", "b"], []),
        ("ALTER TABLE drop_log ADD x INT", [], [], ["x"]),
        ("CREATE TABLE t (a INT)", [], [], []),
        ("DROP TABLE t", [], [], []),
        ("", [], [], []),
    ],
)
def test_names_in_statements(ddl, renamed, dropped, added):
    assert column_changes(ddl) == ColumnChanges(tuple(renamed), tuple(dropped), tuple(added))


def test_columns_that_swap_names():
    assert column_changes("ALTER TABLE t CHANGE a b INT, CHANGE b a INT").swaps
    assert column_changes("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO c").swaps
    assert not column_changes("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN c TO d").swaps


def value(ddl="ALTER TABLE items RENAME COLUMN qty TO amount", block=False, **change):
    table = {"columns": [{"name": "id", "jdbcType": 4}, {"name": "amount", "jdbcType": 4}]}
    changes = [{"type": "ALTER", "id": '"shop"."items"', "table": table, **change}]
    payload = {
        "source": {"name": "srv", "db": "shop", "table": "items", "ts_ms": 1},
        "databaseName": "shop",
        "schemaName": None,
        "ddl": ddl,
        "tableChanges": changes,
    }
    return json.dumps(
        {"schema": {"type": "struct"}, "payload": payload} if block else payload
    ).encode()


@pytest.mark.parametrize("block", [True, False])
def test_a_message(block):
    (found,) = read_schema_change(value(block=block), "srv", 0, 7)
    assert found.source == SourceTable("shop", "", "items", "srv")
    assert (found.type, found.columns, found.offset) == ("ALTER", ("id", "amount"), 7)
    assert found.changes.renamed == (("qty", "amount"),)


@pytest.mark.parametrize(
    ("identifier", "source"),
    [
        ('"shop"."items"', SourceTable("shop", "", "items", "srv")),
        ('"shop"."old","shop"."new, one"', SourceTable("shop", "", "new, one", "srv")),
        ('"db"."public"."t"', SourceTable("db", "public", "t", "srv")),
        ('"items"', SourceTable("shop", "", "items", "srv")),
        ("shop.items", SourceTable("shop", "", "items", "srv")),
    ],
)
def test_identifiers_of_tables(identifier, source):
    (found,) = read_schema_change(value(id=identifier), "srv", 0, 7)
    assert found.source == source


@pytest.mark.parametrize(
    "odd", [None, b"", b"{", b"[]", b'{"op": "c"}', b'{"source": {}, "ddl": "x"}']
)
def test_other_messages_say_nothing(odd):
    assert read_schema_change(odd, "srv", 0, 7) == []


def test_statements_that_drop_or_create_say_no_names():
    (found,) = read_schema_change(value(type="CREATE"), "srv", 0, 7)
    assert found.changes == ColumnChanges()


def captured(converter):
    """The schema change topic that MariaDB's connector wrote, and a reader of its values."""
    capture = load(FOLDER / f"mariadb.{converter}.jsonl.gz")
    raw = next(batch for batch in capture.batches() if batch.topic == f"maria-{converter}")

    def fetch(schema_id):
        found = capture.schemas[schema_id]
        return RegisteredSchema("AVRO", found["schema"])

    value = plain_value
    if converter == "avro":
        value = AvroRecords(fetch, 4).json_value
    return raw, value


def said(converter):
    """What the topic tells, without the connector's name."""
    return [
        dataclasses.replace(event, topic="", source=dataclasses.replace(event.source, server=""))
        for event in schema_changes(*captured(converter))
    ]


@pytest.mark.parametrize("converter", ["json-schema", "avro"])
def test_statements_are_the_same_in_every_encoding(converter):
    expected = said("json")
    assert {event.type for event in expected} >= {"CREATE", "ALTER"}
    assert any(event.changes.renamed for event in expected)
    assert said(converter) == expected


def test_values_that_are_no_avro_are_no_statements():
    raw, value = captured("avro")
    raw.values[0], raw.values[1] = b"junk", None
    assert [value(raw, 0), value(raw, 1)] == [None, None]
    assert {event.offset for event in schema_changes(raw, value)} <= set(raw.offsets[2:])
