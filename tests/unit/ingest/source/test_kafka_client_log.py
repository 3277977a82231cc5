# SPDX-License-Identifier: Apache-2.0
"""What librdkafka says is in our log: why, and not twenty times a second."""

import dataclasses
import logging
import time

import pytest
from confluent_kafka.admin import AdminClient

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka import KafkaSource
from ingest.source.kafka_client import CLIENT_LOG
from storage.errors import RetryableError
from tests.free_ports import free_port


def test_a_client_says_why_it_does_not_connect_and_does_not_repeat_it(caplog, capfd):
    caplog.set_level("DEBUG")
    client = AdminClient(
        {"bootstrap.servers": f"127.0.0.1:{free_port()}", "client.id": "alone"}, logger=CLIENT_LOG
    )
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        client.poll(0.1)
    (record,) = [one for one in caplog.records if one.name == "librdkafka"]
    assert record.levelno == logging.WARNING, "what follows from it, the daemon says"
    assert "Connection refused" in record.getMessage()
    assert (record.event, record.facility) == ("librdkafka", "FAIL")
    assert record.client.startswith("alone#")
    assert capfd.readouterr().err == ""


def test_the_sources_client_is_asked_for_what_it_logged(caplog, capfd, monkeypatch):
    """A client keeps its lines until it is polled: for ever, if nobody does."""
    monkeypatch.setattr("ingest.source.kafka._REQUEST_TIMEOUT_S", 0.5)
    settings = KafkaSourceSettings(
        bootstrap_servers=f"127.0.0.1:{free_port()}",
        topics=("t",),
        properties={"client.id": "source"},
    )
    source = KafkaSource(settings)
    with pytest.raises(RetryableError):
        source.watermarks()
    source.close()
    assert [one for one in caplog.records if one.name == "librdkafka"], "last words"
    caplog.clear()

    source = KafkaSource(dataclasses.replace(settings, properties={"client.id": "another"}))
    for _ in range(2):
        with pytest.raises(RetryableError):
            source.watermarks()
    assert [one for one in caplog.records if one.name == "librdkafka"], "while it lives"
    source.close()
    assert capfd.readouterr().err == ""
