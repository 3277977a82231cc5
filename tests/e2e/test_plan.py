# SPDX-License-Identifier: Apache-2.0
"""`lakeward plan` and `validate --check` against a real broker."""

import json
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.cli import main as cli
from tests.unit.ingest.debezium_events import dumps, event

pytestmark = pytest.mark.kafka


@pytest.fixture
def config(kafka_broker, tmp_path):
    """A compacted topic of two partitions with 500 snapshot rows, and an empty topic."""
    prefix = f"plan{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": kafka_broker})
    topics = [
        NewTopic(f"{prefix}.orders", 2, 1, config={"cleanup.policy": "compact"}),
        NewTopic(f"{prefix}.empty", 1, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result()
    producer = Producer({"bootstrap.servers": kafka_broker, "enable.idempotence": True})
    for number in range(500):
        producer.produce(
            f"{prefix}.orders",
            dumps(event("r", None, {"id": number, "name": f"order {number}"})),
            dumps({"id": number}),
            partition=number % 2,
        )
    producer.flush()
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"source: {{type: kafka, bootstrap.servers: '{kafka_broker}', "
        f"topics.pattern: '{prefix}[.].*'}}\n"
        f"sink: {{warehouse: {tmp_path / 'lake'}, table.properties: {{bucket: 4}}}}\n"
        "pipeline: {name: shop}\n"
    )
    return path, prefix, admin


def test_a_plan_of_kafka_topics(config, capsys):
    path, prefix, admin = config
    assert cli.main(["plan", "-c", str(path), "--json", "--estimate", "--sample", "100"]) == 0
    plan = json.loads(capsys.readouterr().out)
    topics = {topic["name"]: topic for topic in plan["topics"]}
    orders = topics[f"{prefix}.orders"]
    assert (orders["partitions"], orders["records"], orders["sampled"]) == (2, 500, 100)
    assert orders["cleanup_policy"] == "compact"
    assert topics[f"{prefix}.empty"]["records"] == 0
    (table,) = plan["tables"]
    assert (table["name"], table["state"], table["primary_key"]) == ("shop.orders", "new", ["id"])
    assert table["estimate"]["rows"] == 500
    codes = {(each["code"], each["about"]) for each in plan["warnings"]}
    assert codes == {
        ("compacted", f"{prefix}.orders"),
        ("empty", f"{prefix}.empty"),
        ("few_partitions", "shop.orders"),
        ("untyped", "shop.orders"),
    }
    assert not path.with_name("lake").exists()
    groups = admin.list_consumer_groups().result().valid
    assert not [group for group in groups if group.group_id.startswith(("shop", "lakeward"))]
