# SPDX-License-Identifier: Apache-2.0
"""The driver's own look at the source."""

from ingest.config.source_settings import FileSourceSettings, KafkaSourceSettings
from ingest.source.kafka import KafkaSource
from ingest.source.open import LagProbe
from storage.clock import ManualClock


def test_partitions_that_no_leader_answers_for_are_told_apart_from_those_that_went(monkeypatch):
    there = [("t", "0"), ("t", "1")]
    answers = {("t", "0"): 7, ("t", "1"): 9}

    def discover(source):
        source._pairs = tuple(there)
        source._discovered_s = None

    monkeypatch.setattr(KafkaSource, "_discover", discover)
    monkeypatch.setattr(
        KafkaSource,
        "_list_offsets",
        lambda source, wanted: {pair: answers[pair] for pair in wanted if pair in answers},
    )
    clock = ManualClock()
    settings = KafkaSourceSettings(bootstrap_servers="nowhere:1", topics=("t",))
    with LagProbe(settings, clock) as probe:
        assert probe.poll() == {("t", 0): (7, 7), ("t", 1): (9, 9)}
        assert probe.silent() == frozenset()
        del answers["t", "1"]
        clock.advance(15_000)
        assert probe.poll() == {("t", 0): (7, 7)}
        assert probe.silent() == {("t", 1)}
        there.remove(("t", "1"))
        clock.advance(15_000)
        assert probe.poll() == {("t", 0): (7, 7)}
        assert probe.silent() == frozenset()


def test_files_have_no_leaders(tmp_path):
    with LagProbe(FileSourceSettings(path=str(tmp_path)), ManualClock()) as probe:
        probe.poll()
        assert probe.silent() == frozenset()
