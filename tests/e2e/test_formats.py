# SPDX-License-Identifier: Apache-2.0
"""Events of other tools than Debezium's envelopes, from a directory into tables, on Spark."""

import json

import pytest

from tests.e2e.daemon_process import drain
from tests.e2e.test_routing import config, rows, write_topics

pytestmark = [pytest.mark.spark]


def record(value, key=None):
    return json.dumps({"key": key, "value": value})


def canal(kind, row, old=None):
    return record(
        {
            "data": [row],
            "old": old and [old],
            "type": kind,
            "isDdl": False,
            "database": "app",
            "table": "users",
            "pkNames": ["id"],
            "mysqlType": {"id": "bigint", "name": "varchar(20)", "paid": "decimal(12,2)"},
            "es": 1_000,
            "ts": 2_000,
        }
    )


FLAT = [
    record({"id": 1, "name": "a", "__op": "c", "__table": "users", "__db": "app"}, {"id": 1}),
    record({"id": 2, "name": "b", "__op": "c", "__table": "users", "__db": "app"}, {"id": 2}),
    record({"id": 1, "name": "c", "__op": "u", "__table": "users", "__db": "app"}, {"id": 1}),
    record(None, {"id": 2}),
]
CANAL = [
    canal("INSERT", {"id": "1", "name": "a", "paid": "12345678.90"}),
    canal("INSERT", {"id": "2", "name": "b", "paid": None}),
    canal("UPDATE", {"id": "3", "name": "b", "paid": "0.10"}, {"id": "2", "paid": None}),
    record({"isDdl": True, "type": "ALTER", "sql": "alter table users …", "database": "app"}),
]


@pytest.mark.parametrize(
    ("name", "topic", "lines", "expected"),
    [
        pytest.param("debezium-flat", "shop.app.users", FLAT, [("1", "c")], marks=pytest.mark.full),
        ("canal-json", "anything", CANAL, [("1", "a", "12345678.90"), ("3", "b", "0.10")]),
    ],
)
def test_rows_of_other_formats(spark, tmp_path, name, topic, lines, expected):
    write_topics(tmp_path / "events", {topic: lines})
    source = {"type": "files", "path": str(tmp_path / "events"), "format": name}
    source["lines"] = "archived" if name == "debezium-flat" else "auto"

    drain(config(tmp_path, source=source), spark)

    found = [tuple(str(value) for value in row) for row in rows(tmp_path, "app.users")]
    assert (found, rows(tmp_path, "lakeward._quarantine")) == (expected, [])


def test_plain_records_are_appended_to_a_table_without_a_key(spark, tmp_path):
    clicks = [record({"page": f"p{number % 2}", "user": number}) for number in range(4)]
    write_topics(tmp_path / "events", {"web.clicks": [*clicks, clicks[0], "not json"]})
    source = {"type": "files", "path": str(tmp_path / "events"), "format": "json"}
    source["lines"] = "archived"
    path = config(tmp_path, source=source)

    drain(path, spark)
    write_topics(tmp_path / "events", {"web.clicks2": [record({"page": "q", "user": 9})]})
    drain(path, spark)

    clicks = [("p0", 0), ("p0", 0), ("p0", 2), ("p1", 1), ("p1", 3)]
    assert rows(tmp_path, "web.clicks") == clicks
    assert rows(tmp_path, "web.clicks2") == [("q", 9)]
    assert len(rows(tmp_path, "lakeward._quarantine")) == 1
