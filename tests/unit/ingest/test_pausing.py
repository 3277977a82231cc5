# SPDX-License-Identifier: Apache-2.0
"""A paused stream: the note that says so, the requests that write it, the source that obeys."""

from types import SimpleNamespace

import pytest

from ingest.requests.kinds import KINDS
from ingest.requests.stream_requests import COMPACT, PAUSE_STREAM, RESUME_STREAM
from ingest.source.control import draining, write_control
from ingest.stream.pausing import Pausing
from storage.clock import ManualClock
from storage.errors import CorruptDataError, InvalidRequestError
from storage.io.local import LocalFileIO


@pytest.fixture
def pausing(tmp_path):
    return Pausing(LocalFileIO(durable=False), str(tmp_path), "shop")


@pytest.fixture
def pipeline(pausing):
    compacted = []
    return SimpleNamespace(
        pausing=pausing,
        clock=ManualClock(1_700_000_000_000),
        book=SimpleNamespace(schema_ids=lambda: {"shop.a": 0}),
        compact=compacted.append,
        compacted=compacted,
    )


def reopened(pausing, tmp_path):
    again = Pausing(LocalFileIO(durable=False), str(tmp_path), "shop")
    return again.load()


def test_a_pause_outlives_the_process_until_it_is_taken_back(pipeline, pausing, tmp_path):
    assert pausing.load() is None
    PAUSE_STREAM.handler(pipeline, {"reason": "the database moves"})
    found = reopened(pausing, tmp_path)
    assert (found.reason, found.since_ms) == ("the database moves", 1_700_000_000_000)
    RESUME_STREAM.handler(pipeline, {})
    assert reopened(pausing, tmp_path) is None


def test_requests_done_again_after_a_crash_come_to_the_same_end(pipeline, pausing, tmp_path):
    PAUSE_STREAM.handler(pipeline, {"reason": "first"})
    assert "already" in PAUSE_STREAM.handler(pipeline, {"reason": "second"}).text
    assert reopened(pausing, tmp_path).reason == "first"
    RESUME_STREAM.handler(pipeline, {})
    assert "not paused" in RESUME_STREAM.handler(pipeline, {}).text


def test_pauses_need_no_query_to_be_stopped_and_are_known_to_the_daemon():
    for kind in (PAUSE_STREAM, RESUME_STREAM, COMPACT):
        assert KINDS[kind.name] is kind
        assert not kind.stops


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2, "reason": "x", "since_ms": 1}'])
def test_a_note_that_cannot_be_read_is_not_taken_for_none(pausing, tmp_path, text):
    path = tmp_path / ".lakeward/shop/paused.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CorruptDataError, match="paused"):
        pausing.load()


def test_a_compaction_is_asked_for_by_the_tables_name(pipeline):
    COMPACT.handler(pipeline, {"table": "shop.a"})
    assert pipeline.compacted == ["shop.a"]
    with pytest.raises(InvalidRequestError, match="no such table"):
        COMPACT.handler(pipeline, {"table": "shop.b"})


def test_the_source_offers_nothing_while_it_is_told_so(tmp_path):
    assert not draining(tmp_path)
    write_control(tmp_path, drain=True)
    assert draining(tmp_path)
