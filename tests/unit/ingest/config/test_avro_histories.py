# SPDX-License-Identifier: Apache-2.0
"""Streams in Avro that die while the registry changes its mind: no record is lost."""

import dataclasses

import pytest

from ingest.config.source_settings import AvroSettings, SchemaRegistrySettings
from ingest.decode import registry as client
from storage.clock import ManualClock
from tests.unit.ingest.avro_events import TOPIC, Writer, envelope, event, key_schema
from tests.unit.ingest.simulated_stream import QUARANTINE, SimulatedStream
from tests.unit.ingest.stub_registry import stub_registry

KEY = Writer(key_schema(id="long"), 1)
KNOWN = Writer(envelope({"id": "long", "n": "long"}), 2)
LATE = Writer(envelope({"id": "long", "n": "long"}), 3)
STEPS = 8
"""Durable steps of a batch with two tables: before and after its note, each commit, the whole."""


@pytest.fixture
def stub():
    with stub_registry() as running:
        running.add(1, KEY.schema)
        running.add(2, KNOWN.schema)
        yield running


@pytest.fixture
def stream(tmp_path, monkeypatch, stub):
    monkeypatch.setattr(client, "SystemClock", ManualClock)
    made = SimulatedStream(tmp_path, monkeypatch)
    registry = SchemaRegistrySettings(urls=(stub.url,), retry_for_s=0)
    avro = AvroSettings(registry=registry)
    made.settings = dataclasses.replace(made.settings, format="debezium-avro", avro=avro)
    made.open()
    return made


def rows(stream, name):
    return stream.catalog.table(name).to_arrow().to_pylist()


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_schema_that_is_registered_between_a_death_and_the_replay(stream, stub, step):
    for number in range(6):
        writer = LATE if number % 2 else KNOWN
        value = writer(event("c", None, {"id": number, "n": number}))
        stream.topics.add(TOPIC, 0, KEY({"id": number}), value)
    stream.batch()  # the topic is found
    stream.fuse.left = step
    while stream.batch() is not False:
        stub.add(3, LATE.schema)
    stream.fuse.left = None

    found = {row["id"] for row in rows(stream, "shop.orders")}
    held = {row["offset"] for row in rows(stream, QUARANTINE)}
    assert stream.deaths == (step < STEPS)
    assert found >= {0, 2, 4}
    assert found | held == set(range(6)), "a record is in its table or in quarantine"
