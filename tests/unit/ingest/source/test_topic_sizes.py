# SPDX-License-Identifier: Apache-2.0
"""Bytes of events in topics of a broker: offsets times the mean size of records."""

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source import open as sources


def test_offsets_count_with_the_mean_size_of_their_topics_records(monkeypatch):
    seen = {}

    class Broker:
        def __init__(self, settings):
            seen["topics"] = settings.topics

        def watermarks(self):
            return {("a", "0"): (100, 1100), ("a", "1"): (5, 5), ("b", "0"): (0, 10)}

        def close(self):
            seen["closed"] = True

    class Sizes:
        def __init__(self, settings, clock):
            pass

        def weights(self, backlogs, max_bytes):
            seen["backlogs"] = backlogs
            return {("a", "0"): 600.0, ("b", "0"): 50.0}

        def close(self):
            pass

    monkeypatch.setattr(sources, "KafkaSource", Broker)
    monkeypatch.setattr(sources, "RecordSizes", Sizes)
    settings = KafkaSourceSettings(
        bootstrap_servers="k:9092",
        topics_pattern=".*",
        startup_mode="specific-offsets",
        startup_offsets={"c": {"0": 1}},
    )
    assert sources.topic_bytes(settings, {"b", "a"}) == 600_500
    assert seen == {
        "topics": ("a", "b"),
        "backlogs": {("a", "0"): (100, 1000), ("b", "0"): (0, 10)},
        "closed": True,
    }
