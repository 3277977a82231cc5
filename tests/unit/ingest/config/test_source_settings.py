# SPDX-License-Identifier: Apache-2.0
"""Source settings: round trip, refusals, secrets, and what reaches librdkafka."""

import pytest

from ingest.config.source_settings import (
    FileSourceSettings,
    KafkaSourceSettings,
    selects_topic,
    source_settings_from_json,
)
from ingest.source.kafka_client import admin_config, consumer_config
from storage.errors import InvalidOptionError

SASL = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "SCRAM-SHA-512",
    "sasl.username": "lake",
    "sasl.password": "hunter2",
    "ssl.ca.location": "/etc/ca.pem",
    "ssl.key.password": "hunter3",
    "fetch.wait.max.ms": "7",
}


def kafka(**values) -> KafkaSourceSettings:
    values.setdefault("topics", ("t",))
    return KafkaSourceSettings(bootstrap_servers="broker:9092", **values)


@pytest.mark.parametrize(
    "settings",
    [
        kafka(properties=SASL),
        kafka(
            topics=(),
            topics_pattern=r"shop\..*",
            topics_exclude=(".*outbox",),
            startup_mode="specific-offsets",
            startup_offsets={"shop.a": {"0": 5}},
            fail_on_data_loss=False,
        ),
        FileSourceSettings(path="/events", startup_mode="timestamp", startup_timestamp_ms=5),
    ],
)
def test_json_round_trip(settings):
    assert source_settings_from_json(settings.to_json()) == settings


def test_security_properties_pass_through_to_every_client():
    settings = kafka(properties=SASL)
    consumer, admin = consumer_config(settings), admin_config(settings)
    for name, value in SASL.items():
        assert consumer[name] == value
    for name in SASL.keys() - {"fetch.wait.max.ms"}:
        assert admin[name] == SASL[name]
    assert consumer["bootstrap.servers"] == admin["bootstrap.servers"] == "broker:9092"
    assert "fetch.wait.max.ms" not in admin
    assert "group.id" not in admin


def test_ranges_stay_exact_whatever_the_properties():
    config = consumer_config(kafka(properties={"isolation.level": "read_uncommitted"}))
    assert config["auto.offset.reset"] == "error"
    assert config["enable.partition.eof"] is True
    assert config["enable.auto.commit"] is False
    assert config["isolation.level"] == "read_uncommitted"
    with pytest.raises(InvalidOptionError, match=r"auto\.offset\.reset"):
        kafka(properties={"auto.offset.reset": "earliest"})


def test_secrets_are_never_shown():
    text = repr(kafka(properties=SASL))
    assert "hunter" not in text
    assert "SCRAM-SHA-512" in text


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"topics": (), "topics_pattern": ""}, "source.topics"),
        ({"topics_pattern": "x"}, "source.topics"),
        ({"startup_mode": "newest"}, "newest"),
        ({"startup_mode": "timestamp"}, "timestamp"),
        ({"startup_timestamp_ms": 3}, "timestamp"),
        ({"startup_mode": "specific-offsets"}, "specific-offsets"),
        ({"startup_mode": "specific-offsets", "startup_offsets": {"t": {"x": 1}}}, "partition=`x`"),
        ({"max_records": 0}, "max_records"),
        ({"topics_exclude": ("(",)}, r"excluded=`\(`"),
    ],
)
def test_contradictions_are_refused_by_name(values, named):
    with pytest.raises(InvalidOptionError, match=named):
        kafka(**values)


def test_files_refuse_specific_offsets():
    with pytest.raises(InvalidOptionError, match="specific-offsets"):
        FileSourceSettings(path="/e", startup_mode="specific-offsets")
    with pytest.raises(InvalidOptionError, match="kind"):
        source_settings_from_json('{"kind": "pulsar"}')


def test_topic_selection_matches_whole_names():
    settings = kafka(topics=(), topics_pattern=r"shop\.\w+", topics_exclude=(r".*\.outbox",))
    assert selects_topic(settings, "shop.orders")
    assert not selects_topic(settings, "shop.orders.v2")
    assert not selects_topic(settings, "my.shop.orders")
    assert not selects_topic(settings, "shop.outbox")
    everything = kafka(topics=(), topics_pattern=".*")
    assert not selects_topic(everything, "__consumer_offsets")
    assert selects_topic(kafka(topics=("__audit",)), "__audit")
