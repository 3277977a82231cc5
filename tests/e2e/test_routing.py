# SPDX-License-Identifier: Apache-2.0
"""Source tables of a directory of events into the tables that routes name, on Spark."""

import json

import pytest
import yaml

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.daemon_process import drain

pytestmark = [pytest.mark.spark]


def event(database, table, op, row, offset):
    source = {"name": "shop", "db": database, "table": table, "ts_ms": offset}
    before, after = (row, None) if op == "d" else (None, row)
    key = {"id": row["id"]}
    value = {"before": before, "after": after, "source": source, "op": op}
    return json.dumps({"key": key, "value": value})


def write_topics(directory, topics):
    for topic, lines in topics.items():
        folder = directory / topic
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "events.jsonl").write_text("\n".join(lines) + "\n")


def config(directory, **sections):
    raw = {
        "pipeline": {"name": "shop"},
        "source": {"type": "files", "path": str(directory / "events")},
        "sink": {"warehouse": str(directory / "lake")},
        "metrics": {"port": 0},
        **sections,
    }
    path = directory / "shop.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def rows(directory, name):
    table = FileSystemCatalog(str(directory / "lake")).table(name)
    return sorted(map(tuple, (row.values() for row in table.to_arrow().to_pylist())))


def test_shards_with_equal_keys_stay_apart_in_one_table(spark, tmp_path):
    topics = {
        f"shop.orders_{shard}.orders": [
            event(f"orders_{shard}", "orders", "c", {"id": 1, "v": f"s{shard}"}, 1),
            event(f"orders_{shard}", "orders", "c", {"id": 2, "v": "gone"}, 2),
            event(f"orders_{shard}", "orders", "u", {"id": 1, "v": f"s{shard}!"}, 3),
            event(f"orders_{shard}", "orders", "d", {"id": 2, "v": "gone"}, 4),
        ]
        for shard in (1, 2)
    }
    topics["shop.crm.people"] = [event("crm", "people", "c", {"id": 9, "v": "x"}, 1)]
    topics["shop.inventory.items"] = [event("inventory", "items", "c", {"id": 5, "v": "y"}, 1)]
    write_topics(tmp_path / "events", topics)
    path = config(
        tmp_path,
        route=[
            {"source-table": "shop.inventory.(.*)", "sink-table": "ods.inv_$1"},
            {
                "source-table": r"shop\.orders_[0-9]+\.orders",
                "sink-table": "ods.orders",
                "shard": {"column": "_shard", "value": "${source.db}"},
            },
        ],
    )

    drain(path, spark)

    assert rows(tmp_path, "ods.orders") == [(1, "s1!", "orders_1"), (1, "s2!", "orders_2")]
    table = FileSystemCatalog(str(tmp_path / "lake")).table("ods.orders")
    assert table.schema.primary_keys == ("_shard", "id")
    assert rows(tmp_path, "ods.inv_items") == [(5, "y")]
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    assert sorted(catalog.list_databases()) == ["lakeward", "ods"]
    assert rows(tmp_path, "lakeward._quarantine") == []

    folder = tmp_path / "events" / "shop.orders_3.orders"  # one more shard, with one more column
    write_topics(
        tmp_path / "events",
        {folder.name: [event("orders_3", "orders", "c", {"id": 1, "v": "s3", "w": 7}, 1)]},
    )
    drain(path, spark)
    assert rows(tmp_path, "ods.orders")[-1] == (1, "s3", "orders_3", 7)


def test_servers_with_equal_table_names_do_not_overwrite_each_other(spark, tmp_path):
    line = event("app", "users", "c", {"id": 1, "v": "mine"}, 1)
    other = line.replace('"name": "shop"', '"name": "elsewhere"').replace("mine", "theirs")
    write_topics(tmp_path / "events", {"shop.app.users": [line], "zoo.app.users": [other]})

    drain(config(tmp_path), spark)

    assert rows(tmp_path, "app.users") == [(1, "mine")]
    (bad,) = (
        FileSystemCatalog(str(tmp_path / "lake"))
        .table("lakeward._quarantine")
        .to_arrow()
        .to_pylist()
    )
    assert (bad["topic"], bad["error_class"]) == ("zoo.app.users", "source_table_conflict")
