# SPDX-License-Identifier: Apache-2.0
"""Drills with a warehouse in an object store that errs or is slow."""

import time

import pytest

from storage.catalog.catalog import FileSystemCatalog
from tests.e2e.lossy_proxy import LossyProxy, Rule
from tests.e2e.s3_server import options_for

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.s3, pytest.mark.full]

IMPATIENT = {"store.retry-timeout": "3 s", "store.max-retries": "3"}
LATENCY_S = 5.0


@pytest.fixture
def proxy(s3_server):
    with LossyProxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def on(stage, s3_server, proxy):
    place = f"{s3_server.new_place()}/warehouse"
    return stage(
        sink={"options": {**options_for(proxy.endpoint), **IMPATIENT}},
        warehouse=place,
        lake=lambda: FileSystemCatalog(place, options=s3_server.options),
    )


def test_store_answers_500(on, proxy):
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    proxy.rules.append(Rule("", "", "500", times=2))  # a few are not even noticed
    on.produce(200)
    on.caught_up()
    assert not on.log("restart") + on.log("outage")
    with on.fault():
        proxy.rules[:] = [Rule("", "", "500")]
        on.produce(2_000)
        on.until(lambda: len(on.log("outage")) >= 2, "it fails, and fails again", 150)
        on.lag_is_seen()
    proxy.rules[:] = []
    on.caught_up()
    on.finish()


def test_store_is_slow(on, proxy):
    on.produce(1_000, snapshot=300)
    on.start()
    on.caught_up()
    with on.fault():
        proxy.rules[:] = [Rule("", "", "delay", seconds=LATENCY_S)]
        on.produce(2_000)
        on.batch_begins()
        time.sleep(4 * LATENCY_S)
        assert on.running.alive
    proxy.rules[:] = []
    on.caught_up()
    assert not on.log("restart") + on.log("outage")
    slowest = max(line["duration_s"] for line in on.log("batch", since_fault=True))
    assert slowest > LATENCY_S
    on.finish()
