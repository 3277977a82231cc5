# SPDX-License-Identifier: Apache-2.0
"""Drills with the schema registry, the clock, and a schema that does not fit."""

import json
import time

import pytest

from ingest.cli import main as cli
from tests.drills.avro_stream import AvroStream
from tests.drills.clock_shift import ClockShift
from tests.unit.ingest.stub_registry import stub_registry

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.full]

BACK_S = 7_200
DATE = "io.debezium.time.Date"


def test_registry_is_down(stage, broker):
    """It is not the records' fault: they wait, none goes to quarantine."""
    with stub_registry() as registry:
        stream = AvroStream(broker.address, registry)
        settings = {
            "topics.pattern": stream.topics[0],
            "format": "debezium-avro",
            "schema.registry": {"url": registry.url, "retry.for": "2s"},
        }
        on = stage(stream=stream, source=settings)
        stream.changes(2_000)
        on.start()
        on.caught_up()
        with on.fault():
            registry.away = True
            stream.widen()
            stream.changes(500)
            on.until(lambda: len(on.log("outage")) >= 2, "it fails, and fails again", 150)
            on.lag_is_seen()
        registry.away = False
        on.caught_up()
        assert not on.quarantine_rows()
        on.finish()


def test_clock_is_set_back(stage, tmp_path):
    """Two hours, in the middle of the run, and forward again."""
    clock = ClockShift(tmp_path)
    on = stage(environment=clock.environment)
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.fault():
        clock.set(-BACK_S)
        time.sleep(3.0)
        on.produce(2_000)
        on.caught_up()
        on.until(
            lambda: on.shows("last_success_timestamp_seconds") < time.time() - BACK_S / 2,
            "the clock is seen",
        )
    clock.set(0)
    time.sleep(3.0)
    on.produce(1_000)
    on.caught_up()
    for table in on.tables().values():
        times = [table.snapshots.read(number).time_ms for number in sorted(table.snapshots.ids())]
        assert times == sorted(times), "snapshots are not in the order of their times"
    on.finish()


def poisoned(value: bytes) -> bytes:
    """An event of `customers` whose `vip` is a date, and says so in its schema."""
    found = json.loads(value)
    for image in found["schema"]["fields"]:
        for field in image.get("fields", ()):
            if field["field"] == "vip":
                field |= {"type": "int32", "name": DATE, "version": 1}
    found["payload"]["after"]["vip"] = 20_000
    return json.dumps(found).encode()


def test_schema_poison_on_one_table(stage, capsys):
    rule = {"match": "shop.customers", "on.incompatible": "quarantine_table"}
    on = stage(more={"tables": [rule]})
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    rows = on.tables()["customers"].to_arrow().num_rows
    with on.fault():
        shop = on.stream.shop
        key = shop.live_keys("customers")[0]
        [(_, name, value, _)] = shop.update_row("customers", key)
        on.stream.corruption([poisoned(value)], key=name)
        on.produce(2_000)
        on.caught_up()
        on.until(
            lambda: on.shows("table_state", table="shop.customers", state="parked") == 1, "parked"
        )
        assert on.tables()["customers"].to_arrow().num_rows == rows
        for other in ("orders", "products"):
            assert on.shows("table_state", table=f"shop.{other}", state="running") == 1
    # the row of the event that does not fit goes to quarantine, and the table catches up
    on.configure(tables=[{**rule, "on.incompatible": "quarantine_rows"}])
    capsys.readouterr()
    assert cli.main(["reload", "-c", str(on.config)]) == 0, on.running.log_tail()
    assert cli.main(["resume", "-c", str(on.config), "shop.customers"]) == 0
    on.rewound = True
    on.produce(500)
    on.until(
        lambda: on.shows("table_state", table="shop.customers", state="running") == 1, "level again"
    )
    on.caught_up()
    on.finish()
