# SPDX-License-Identifier: Apache-2.0
"""Going back in Kafka: only as far as retention has left the records."""

import dataclasses

import pytest

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka import KafkaSource
from storage.errors import DataLossError, RetryableError

POSITION = {"t": {"0": 50, "1": 40}, "u": {"0": 9}}


@pytest.fixture
def source(monkeypatch):
    source = KafkaSource(KafkaSourceSettings(bootstrap_servers="nowhere:1", topics=("t", "u")))
    marks = {("t", "0"): (20, 60), ("t", "1"): (40, 40), ("u", "0"): (0, 9)}
    monkeypatch.setattr(source, "watermarks", lambda: marks)
    return source


def test_what_the_log_still_has_can_be_read_again(source):
    start = {"t": {"0": 20, "1": 40}, "u": {"0": 9}}
    assert source.rewind(start, POSITION) == start
    assert source.rewind({"t": {"0": 20, "1": 40}}, POSITION) == {"t": {"0": 20, "1": 40}}


@pytest.mark.parametrize("start", [{"t": {"0": 19}}, {"t": {"1": 39}}])
def test_what_retention_took_is_said_with_what_to_do(source, start):
    with pytest.raises(DataLossError, match="`lakeward resnapshot`"):
        source.rewind(start, POSITION)


def test_a_topic_that_is_gone_cannot_be_read_again(source):
    with pytest.raises(DataLossError, match="topic=`gone`"):
        source.rewind({"gone": {"0": 3}}, {"gone": {"0": 8}})
    assert source.rewind({"gone": {"0": 8}}, {"gone": {"0": 8}}) == {"gone": {"0": 8}}


def test_who_accepts_losses_goes_on_with_what_is_left(source, caplog):
    source._settings = dataclasses.replace(source._settings, fail_on_data_loss=False)
    assert source.rewind({"t": {"0": 5}}, POSITION) == {"t": {"0": 5}}
    assert "while it was parked" in caplog.text


def test_a_partition_whose_leader_does_not_answer_has_lost_nothing(source):
    source._pairs = (("t", "2"),)
    with pytest.raises(RetryableError, match="all partitions"):
        source.rewind({"t": {"2": 3}}, {"t": {"2": 8}})
    assert source.rewind({"t": {"2": 8}}, {"t": {"2": 8}}) == {"t": {"2": 8}}, "not read again"
