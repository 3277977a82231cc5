# SPDX-License-Identifier: Apache-2.0
"""`lakeward resnapshot` through a real broker; the test answers as Debezium does."""

import json
import threading
import time

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ingest.cli import main as cli

CONFIG = """
source:
  type: kafka
  bootstrap.servers: {broker}
  topics: [shop.public.orders]
  debezium: {{signal.topic: signals-{run}, notification.topic: told-{run}}}
sink: {{warehouse: {lake}}}
pipeline: {{name: shop}}
"""


def answer(broker, run, failures):
    """Waits for the signal, then tells of a snapshot as the connector would."""
    try:
        consumer = Consumer({"bootstrap.servers": broker, "group.id": f"connector-{run}"})
        consumer.assign([TopicPartition(f"signals-{run}", 0, 0)])  # of any, it reads this one
        message, deadline = None, time.monotonic() + 60
        while (message is None or message.error()) and time.monotonic() < deadline:
            message = consumer.poll(1.0)
        consumer.close()
        assert message.key() == b"shop"
        signal = orjson.loads(message.value())
        assert signal["data"]["data-collections"] == ["public.orders"]
        producer = Producer({"bootstrap.servers": broker})
        scan = {"scanned_collection": "public.orders", "total_rows_scanned": "12"}
        for type_, more in (("STARTED", {}), ("TABLE_SCAN_COMPLETED", scan), ("COMPLETED", {})):
            note = {
                "id": signal["id"],
                "aggregate_type": "Incremental Snapshot",
                "type": type_,
                "additional_data": {"connector_name": "shop", **more},
            }
            producer.produce(f"told-{run}", value=orjson.dumps(note))
        assert producer.flush(30) == 0
    except BaseException as error:
        failures.append(error)
        raise


def test_the_signal_goes_out_and_the_notifications_come_back(kafka_broker, tmp_path, capsys):
    run = str(time.time_ns())
    config = tmp_path / "shop.yaml"
    config.write_text(CONFIG.format(broker=kafka_broker, run=run, lake=tmp_path / "lake"))
    admin = AdminClient({"bootstrap.servers": kafka_broker})
    topics = [NewTopic(name, 3, 1) for name in (f"signals-{run}", f"told-{run}")]
    for created in admin.create_topics(topics).values():
        created.result()
    failures = []
    connector = threading.Thread(target=answer, args=(kafka_broker, run, failures))
    connector.start()
    names = ["--server", "shop", "--collection", "public.orders"]
    code = cli.main(
        ["resnapshot", "-c", str(config), "shop.orders", *names, "--json", "--timeout", "90"]
    )
    connector.join(60)
    printed = capsys.readouterr()
    assert failures == []
    assert code == 0, printed.err
    told = json.loads(printed.out)
    assert (told["state"], told["rows"]) == ("complete", {"public.orders": 12})
    assert "the connector has begun" in printed.err
