# SPDX-License-Identifier: Apache-2.0
"""A paused stream: the note that says so, the requests that write it, the source that obeys."""

import dataclasses
from types import SimpleNamespace

import pytest

from ingest.daemon.daemon import Daemon
from ingest.daemon.requests.request_handler import KINDS
from ingest.pipeline.spark_source import LakewardCdcReader
from ingest.source.open import draining, write_control
from ingest.source.records import normalize
from ingest.state.ownership import Pausing
from ingest.state.stream_state import StateFormatError
from storage.clock import ManualClock
from storage.errors import CorruptDataError, InvalidRequestError
from storage.io.local import LocalFileIO
from tests.unit.ingest.lake_settings import lake_settings

COMPACT, PAUSE_STREAM, RESUME_STREAM = (
    KINDS[name] for name in ("compact", "pause_stream", "resume_stream")
)


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


@pytest.fixture
def start(tmp_path):
    started = []

    def another():
        started.append(Daemon(lake_settings(tmp_path)))
        started[-1]._pausing.load()
        return started[-1]

    yield another
    for each in started:
        with each._signals:
            pass  # frees what it opened


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


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1, "reason": "x"}'])
def test_a_note_that_cannot_be_read_is_not_taken_for_none(pausing, tmp_path, text):
    path = tmp_path / ".lakeward/shop/paused.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CorruptDataError, match="paused"):
        pausing.load()


def test_a_note_of_a_later_version_is_refused(pausing, tmp_path):
    path = tmp_path / ".lakeward/shop/paused.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"version": 999, "reason": "x", "since_ms": 1}')
    with pytest.raises(StateFormatError):
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


def test_a_daemon_that_starts_over_a_pause_lets_nothing_flow_until_it_is_resumed(start):
    first = start()
    first._update_source()
    assert not draining(first._checkpoint)
    first._pausing.set("the database moves", now_ms=1)
    first._update_source()
    assert draining(first._checkpoint)
    write_control(first._checkpoint, drain=False)  # as a start begins

    second = start()
    second._open_source()
    assert draining(second._checkpoint), "a pause outlives the process"
    board = second._observer.board
    assert board.document()["state"] == "paused"
    assert board.readiness()[1]["reasons"][-1] == "the stream is paused: the database moves"
    second._pausing.clear()
    second._update_source()
    assert not draining(second._checkpoint)
    assert board.document()["state"] == "running"


def test_a_stop_is_not_taken_back_by_a_stream_that_goes_on(start):
    daemon = start()
    daemon.request_stop()
    daemon._update_source()
    assert draining(daemon._checkpoint)


def test_a_paused_source_stays_where_it_is(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "events/orders.0.jsonl").write_text('{"value": {}}\n')
    settings = lake_settings(tmp_path).source
    settings = dataclasses.replace(settings, path=str(tmp_path / "events"), topics_pattern=".*")
    reader = LakewardCdcReader({"settings": settings.to_json(), "checkpoint": str(tmp_path / "c")})
    start = normalize({"orders": {}})
    limit = reader.getDefaultReadLimit()
    write_control(tmp_path / "c", drain=True)
    assert reader.latestOffset(start, limit) == start
    write_control(tmp_path / "c", drain=False)
    assert reader.latestOffset(start, limit) != start
    reader.stop()
