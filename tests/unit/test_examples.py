# SPDX-License-Identifier: Apache-2.0
"""Every file of docs/examples loads, and pipelines give the rows that their comments promise."""

import json
import pathlib
import re

import pytest
import yaml

from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import topic_waits
from ingest.source.records import RawBatch
from tests.unit.ingest.debezium_events import connect_block, connect_field
from tests.unit.ingest.local_stream import LocalStream

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
GUIDE = ROOT / "docs" / "guides" / "debezium-connectors.md"
CHART = "kubernetes-values.yaml"
PIPELINES = sorted(path.name for path in EXAMPLES.glob("*.yaml") if path.name != CHART)
WITHOUT_ROWS = {
    "debezium-avro.yaml": "tests/e2e/test_examples.py: needs a registry",
    "kafka.yaml": "tests/e2e/test_examples.py: needs a broker",
    "s3.yaml": "tests/e2e/test_examples.py: needs a store",
}
"""Examples that run against real parts only, and where."""


def settings(name, directory, monkeypatch, **overrides):
    """Those of an example, with secrets and the warehouse below `directory`."""
    for secret in ("registry", "s3"):
        (directory / secret).write_text("user:password", encoding="utf-8")
    monkeypatch.setenv("S3_ACCESS_KEY", "lake")
    path = directory / name
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    path.write_text(text.replace("/secrets/", f"{directory}/"), encoding="utf-8")
    return load_settings(path, overrides)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_loads(name, tmp_path, monkeypatch):
    found = settings(name, tmp_path, monkeypatch)
    assert found.pipeline.name


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_says_what_it_shows_and_how_it_is_run(path):
    head = re.match(r"(?:#.*\n)+", path.read_text(encoding="utf-8"))
    assert head is not None
    assert re.search(rf"#   \S.*{re.escape(path.name)}", head[0])


def test_every_example_is_listed():
    listed = set(re.findall(r"\]\(([^)]+)\)", (EXAMPLES / "README.md").read_text("utf-8")))
    files = {path.name for path in EXAMPLES.glob("*.yaml")}
    files |= {f"connectors/{path.name}" for path in EXAMPLES.glob("connectors/*.json")}
    assert files <= listed


def test_the_guide_shows_the_connectors_as_they_are():
    text = GUIDE.read_text(encoding="utf-8")
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    shown = {block["connector.class"]: block for block in blocks if "connector.class" in block}
    files = [json.loads(path.read_text()) for path in EXAMPLES.glob("connectors/*.json")]
    assert shown == {connector["connector.class"]: connector for connector in files}
    assert len(files) == 5
    assert all(isinstance(value, str) for connector in files for value in connector.values())


def test_the_chart_knows_the_values():
    values = yaml.safe_load((EXAMPLES / CHART).read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "helm/lakeward/values.schema.json").read_text(encoding="utf-8"))
    assert list(unknown(values, schema)) == []


def test_the_charts_configuration_loads(tmp_path):
    values = yaml.safe_load((EXAMPLES / CHART).read_text(encoding="utf-8"))
    path = tmp_path / "pipeline.yaml"
    path.write_text(yaml.safe_dump(values["config"]), encoding="utf-8")
    found = load_settings(path, {"pipeline.checkpoint": "/state"})  # the chart sets this one
    assert found.sink.warehouse == values["config"]["sink"]["warehouse"]


def unknown(values, schema, where=""):
    """Keys of values that the chart's schema does not have."""
    if not isinstance(values, dict) or "properties" not in schema:
        return
    for key, value in values.items():
        if key not in schema["properties"]:
            if schema.get("additionalProperties") is False:
                yield f"{where}{key}"
            continue
        yield from unknown(value, schema["properties"][key], f"{where}{key}.")


def test_a_key_that_the_chart_does_not_know_is_found():
    schema = json.loads((ROOT / "helm/lakeward/values.schema.json").read_text(encoding="utf-8"))
    assert list(unknown({"state": {"persistance": {}}}, schema)) == ["state.persistance"]


def event(table, op, row, *, db="shop", before=None, ts_ms=1):
    """A change of MySQL as Debezium writes it, with its key `id`."""
    source = {"connector": "mysql", "name": "shop", "db": db, "table": table, "ts_ms": ts_ms}
    after, before = (None, row) if op == "d" else (row, before)
    value = {"op": op, "before": before, "after": after, "source": source, "ts_ms": ts_ms}
    key = {"id": row["id"]} if "id" in row else None
    return f"shop.{db}.{table}", key, value


class Example:
    """The pipeline of an example, without Spark and Kafka."""

    def __init__(self, name, directory, monkeypatch):
        self._directory = directory
        warehouse = {"sink.warehouse": str(directory / "lake")}
        self.stream = LocalStream.of(settings(name, directory, monkeypatch, **warehouse))
        self._batches = 0
        self._ends = {}

    def take(self, *records):
        """A micro-batch of records (topic, key, value)."""
        batch = {}
        for topic, key, value in records:
            offset = self._ends.get(topic, 0)
            self._ends[topic] = offset + 1
            raw = RawBatch(topic, 0, [offset], [encoded(key)], [encoded(value)])
            batch.setdefault((topic, 0), []).append(raw)
        self.stream.run(self._batches, batch)
        self._batches += 1
        return self

    def rows(self, table, *columns):
        """Rows of a table as tuples of columns."""
        return [tuple(row[c] for c in columns) for row in self.stream.rows(table)]

    def tables(self):
        """Names of the tables that hold rows of sources."""
        found = (f"{p.parent.stem}.{p.name}" for p in self._directory.glob("lake/*.db/*"))
        return sorted(name for name in found if not name.startswith("lakeward."))


def encoded(value):
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


@pytest.fixture
def example(tmp_path, monkeypatch):
    return lambda name: Example(name, tmp_path, monkeypatch)


def test_files(example):
    [path] = EXAMPLES.glob("events/*.jsonl")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    topic = path.name.removesuffix(".jsonl")
    found = example("files.yaml").take(*((topic, line["key"], line["value"]) for line in lines))
    assert found.rows("inventory.customers", "id", "name") == [(1, "Anna"), (2, "Bob")]


def test_routes(example):
    found = example("routes.yaml").take(
        event("customers", "c", {"id": 1}, db="inventory"),
        event("orders", "c", {"id": 2}, db="inventory"),
        event("secrets", "c", {"id": 3}, db="hr"),
    )
    assert found.tables() == ["ods.inv_customers", "ods.inv_orders"]
    assert found.rows("ods.inv_customers", "id") == [(1,)]


def test_shards(example):
    found = example("shards.yaml").take(
        event("orders", "c", {"id": 1, "item": "tea"}, db="orders_00"),
        event("orders", "c", {"id": 1, "item": "cup"}, db="orders_01"),
        event("orders", "d", {"id": 1, "item": "tea"}, db="orders_00"),
    )
    assert found.stream.table("ods.orders").schema.primary_keys == ("_shard", "id")
    assert found.rows("ods.orders", "_shard", "id", "item") == [("orders_01", 1, "cup")]


def test_partial_update(example):
    found = example("partial-update.yaml").take(
        event("payments", "c", {"id": 1, "amount": 5, "paid_ts": 20}),
        event("orders", "c", {"id": 1, "item": "tea", "order_ts": 10}),
        event("payments", "u", {"id": 1, "amount": 4, "paid_ts": 19}),  # late: 20 was newer
        event("orders", "d", {"id": 1, "item": "tea", "order_ts": 30}),
    )
    assert found.tables() == ["dwd.order_wide"]
    assert found.rows("dwd.order_wide", "id", "item", "amount") == [(1, "tea", 5)]


def test_aggregation(example):
    found = example("aggregation.yaml")
    found.take(event("stock_moves", "c", {"item": "tea", "qty": 5, "moved_at": 10}))
    found.take(
        event("stock_moves", "c", {"item": "tea", "qty": -2, "moved_at": 9}),
        event("stock_moves", "c", {"item": "cup", "qty": 1, "moved_at": 11}),
    )
    rows = found.rows("shop.stock_moves", "item", "qty", "moved_at")
    assert rows == [("cup", 1, 11), ("tea", 3, 10)]


def test_soft_deletes(example):
    found = example("soft-deletes.yaml").take(
        event("customers", "c", {"id": 1, "name": "Ann"}),
        event("customers", "c", {"id": 2, "name": "Bob"}),
        event("customers", "d", {"id": 1, "name": "Ann"}),
    )
    columns = ("id", "name", "_cdc_deleted")
    assert found.rows("shop.customers", *columns) == [(1, "Ann", True), (2, "Bob", False)]
    found.take(event("customers", "c", {"id": 1, "name": "Eve"}))
    assert found.rows("shop.customers", *columns)[0] == (1, "Eve", False)


def test_quarantine(example):
    found = example("quarantine.yaml")
    topic, key, _ = event("orders", "c", {"id": 1})
    clicks, _, _ = event("clicks", "c", {"id": 1})
    found.take(event("orders", "c", {"id": 2}), event("clicks", "c", {"id": 1}))
    wrong = event("clicks", "u", {"id": 1, "_KEY_a": 1})
    found.take((topic, key, b"{"), (clicks, *wrong[1:]))
    assert found.rows("shop.orders", "id") == [(2,)]
    bad = found.rows("ops.bad_records", "topic", "value", "error_class")
    assert bad == [(topic, b"{", "json")]
    assert found.stream.settings.bad_records.max_ratio == 0.05


def test_partitions(example):
    times = connect_field("ordered_on", "int64", "io.debezium.time.Timestamp")
    schema = connect_block(connect_field("id", "int32"), times)
    first, second = 1_795_219_200_000, 1_795_305_600_000  # two days, from midnight to midnight

    def typed(op, number, at=None):
        topic, key, value = event("orders", op, {"id": number, "ordered_on": at})
        return topic, key, {"schema": schema, "payload": value}

    found = example("partitions.yaml").take(typed("c", 1, first), typed("c", 2, first + 1))
    assert found.rows("shop.orders", "id", "dt") == [(1, "2026-11-21"), (2, "2026-11-21")]
    found.take(typed("u", 1, second), typed("d", 2))
    assert found.stream.table("shop.orders").schema.partition_keys == ("dt",)
    assert found.rows("shop.orders", "id", "dt") == [(1, "2026-11-22")]


def test_many_tables(example):
    found = example("many-tables.yaml")
    feeds = {"erp.orders": ["orders"], "erp.countries": ["countries"]}
    assert topic_waits(found.stream.settings, feeds, ()) == {"countries": 600.0}


def test_metadata_columns(example):
    found = example("metadata-columns.yaml").take(
        event("orders", "c", {"id": 1}), event("orders", "u", {"id": 1}, ts_ms=7)
    )
    columns = ("id", "_cdc_op", "_cdc_source_ts_ms", "_cdc_topic", "_cdc_offset")
    assert found.rows("shop.orders", *columns) == [(1, "u", 7, "shop.shop.orders", 1)]


def test_upsert_json(example):
    found = example("upsert-json.yaml").take(
        ("prices", {"sku": "a"}, {"sku": "a", "price": 1.5}),
        ("prices", {"sku": "b"}, {"sku": "b", "price": 2.5}),
        ("prices", {"sku": "a"}, None),
    )
    assert found.rows("market.prices", "sku", "price") == [("b", 2.5)]


def test_canal(example):
    def message(kind, row, old=None):
        types = {"id": "bigint(20)", "name": "varchar(20)"}
        head = {"database": "shop", "table": "customers", "pkNames": ["id"], "isDdl": False}
        value = {"type": kind, "data": [row], "old": old, "mysqlType": types, "es": 1, "ts": 1}
        return "canal-shop", None, {**head, **value}

    found = example("canal.yaml").take(
        message("INSERT", {"id": "1", "name": "Ann"}),
        message("INSERT", {"id": "2", "name": "Bob"}),
        message("UPDATE", {"id": "1", "name": "Anna"}, [{"name": "Ann"}]),
    )
    assert found.rows("shop.customers", "id", "name") == [(1, "Anna"), (2, "Bob")]


def test_every_pipeline_is_run_somewhere():
    tests = {name.removeprefix("test_").replace("_", "-") for name in globals()}
    missing = {name for name in PIPELINES if name.removesuffix(".yaml") not in tests}
    assert missing == set(WITHOUT_ROWS)
    for where in WITHOUT_ROWS.values():
        assert (ROOT / where.partition(":")[0]).exists()
