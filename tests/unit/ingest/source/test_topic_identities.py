# SPDX-License-Identifier: Apache-2.0
"""A re-created topic is distinguished from the one that the offsets belong to."""

import pytest

from ingest.config.source_settings import KafkaSourceSettings
from ingest.source.kafka import KafkaSource, TopicIdentities
from ingest.source.records import SourceRange
from storage.clock import ManualClock
from storage.errors import CorruptDataError, DataLossError

START = {"t": {"0": 5, "1": 7}, "u": {"0": 1}}


def test_the_same_topics_are_nothing_new_and_new_ones_are_noted(tmp_path):
    one = TopicIdentities(tmp_path)
    assert one.renewed({}, {"t": "a"}, allowed=False) == frozenset()
    assert one.renewed(START, {"t": "a", "u": "b"}, allowed=False) == frozenset()
    again = TopicIdentities(tmp_path)
    assert again.renewed(START, {"t": "a", "u": "b"}, allowed=False) == frozenset()
    assert again.renewed(START, {}, allowed=False) == frozenset()  # away for a moment


def test_another_topic_is_refused_at_every_start(tmp_path):
    TopicIdentities(tmp_path).renewed(START, {"t": "a"}, allowed=False)
    for _ in range(2):
        with pytest.raises(DataLossError, match="re-created"):
            TopicIdentities(tmp_path).renewed(START, {"t": "c"}, allowed=False)


def test_a_stream_that_may_goes_over_once_and_a_crash_before_changes_nothing(tmp_path):
    TopicIdentities(tmp_path).renewed(START, {"t": "a", "u": "b"}, allowed=True)
    now = {"t": "c", "u": "b"}
    for _ in range(2):  # the end that was planned was not logged: asked again
        assert TopicIdentities(tmp_path).renewed(START, now, allowed=True) == {"t"}
    moved = {**START, "t": {"0": 4, "1": 6}}
    assert TopicIdentities(tmp_path).renewed(moved, now, allowed=True) == frozenset()
    # the offsets of old come again, and are of the new one this time
    assert TopicIdentities(tmp_path).renewed(START, now, allowed=False) == frozenset()


@pytest.mark.parametrize("text", ["", "[]", '{"t": 1}', '{"t": {}}'])
def test_a_damaged_file_is_not_taken_for_none(tmp_path, text):
    (tmp_path / "topics.json").write_text(text)
    with pytest.raises(CorruptDataError, match="the topics of the offsets"):
        TopicIdentities(tmp_path).renewed(START, {"t": "a"}, allowed=False)


def test_a_lost_file_takes_the_topics_as_they_are(tmp_path):
    TopicIdentities(tmp_path).renewed(START, {"t": "a"}, allowed=False)
    (tmp_path / "topics.json").unlink()
    assert TopicIdentities(tmp_path).renewed(START, {"t": "c"}, allowed=False) == frozenset()


def test_no_partition_keeps_an_offset_of_the_old_topic(tmp_path):
    """Not one whose leader does not answer, nor one that the new topic does not have (yet)."""
    settings = KafkaSourceSettings(
        bootstrap_servers="nowhere:1", topics=("t",), fail_on_data_loss=False
    )
    start = {"t": {"0": 100, "1": 50, "2": 7}}
    TopicIdentities(tmp_path).renewed(start, {"t": "old"}, allowed=True)
    source = KafkaSource(settings, ManualClock(), TopicIdentities(tmp_path))
    source._ids, source._frozen = {"t": "new"}, True
    source._pairs = (("t", "0"), ("t", "1"))
    source._watermarks = {("t", "0"): (0, 500)}
    moved = source.latest(start)
    assert moved == {"t": {"0": 99, "1": 0, "2": 0}}
    source._watermarks |= {("t", "1"): (0, 80), ("t", "2"): (0, 90)}
    source._pairs += (("t", "2"),)
    assert source.latest(moved) == {"t": {"0": 500, "1": 80, "2": 90}}
    assert source.plan(moved, {"t": {"0": 99, "1": 80, "2": 90}}) == [
        [SourceRange("t", 1, 0, 80), SourceRange("t", 2, 0, 90)]
    ]
