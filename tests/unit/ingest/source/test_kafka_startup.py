# SPDX-License-Identifier: Apache-2.0
"""Where a new stream begins in Kafka."""

import pytest

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka import KafkaSource
from storage.errors import RetryableError

LOWS, HIGHS = {("t", "0"): 0, ("t", "1"): 0}, {("t", "0"): 50, ("t", "1"): 60}


@pytest.mark.parametrize(
    ("found", "start"),
    [
        ({("t", "0"): 7, ("t", "1"): 9}, {"0": 7, "1": 9}),
        ({("t", "0"): 7, ("t", "1"): -1}, {"0": 7, "1": 60}),  # no record is that young
        ({("t", "0"): 7}, None),  # a leader did not answer
    ],
)
def test_a_timestamp_is_looked_for_in_every_partition(monkeypatch, found, start):
    settings = KafkaSourceSettings(
        bootstrap_servers="nowhere:1",
        topics=("t",),
        startup_mode="timestamp",
        startup_timestamp_ms=1_700_000_000_000,
    )
    source, answers = KafkaSource(settings), iter([LOWS, HIGHS, found])
    monkeypatch.setattr(source, "_discover", lambda: None)
    monkeypatch.setattr(source, "_list_offsets", lambda specs: next(answers))
    source._pairs = (("t", "0"), ("t", "1"))
    if start is None:
        with pytest.raises(RetryableError, match="all partitions"):
            source.initial()
    else:
        assert source.initial() == {"t": start}
