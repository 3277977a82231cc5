# SPDX-License-Identifier: Apache-2.0
"""What an error of the Kafka client means for the process and its metrics."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from ingest.daemon.retry import error_in, is_final
from ingest.errors import ExitCode, exit_code_of
from ingest.observe.observe import Observer
from ingest.source.kafka_client import broker_error
from ingest.source.open import LagProbe
from storage.clock import ManualClock
from tests.unit.ingest.lake_settings import lake_settings

DENIED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not you"))


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (KafkaError._AUTHENTICATION, ExitCode.ACCESS),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ExitCode.ACCESS),
        (KafkaError._INVALID_ARG, ExitCode.CONFIG),
        (KafkaError._TRANSPORT, ExitCode.UNAVAILABLE),
    ],
)
def test_exit_codes(code, exit_code):
    assert exit_code_of(broker_error(KafkaError(code, "no"))) == exit_code


def test_a_refusal_in_a_task_is_the_same_in_the_daemon():
    error = broker_error(DENIED, topic="t", partition=3)
    name = f"{type(error).__module__}.{type(error).__name__}"
    found = error_in(f"Traceback\n  File …\n{name}: {error}\n\n\tat org.apache")
    assert type(found) is type(error)
    assert is_final(found)
    assert exit_code_of(found) == ExitCode.ACCESS


def test_polls_that_are_refused_are_counted_as_such(tmp_path, monkeypatch):
    observer = Observer(lake_settings(tmp_path), ManualClock())

    def poll(probe, committed):
        del probe, committed
        observer._changed.set()
        raise broker_error(DENIED)

    monkeypatch.setattr(LagProbe, "poll", poll)
    observer._poll_source(observer._settings.source)
    value = observer.metrics.registry.get_sample_value
    assert value("lakeward_source_errors_total", {"reason": "auth"}) == 1
