# SPDX-License-Identifier: Apache-2.0
"""Waiting until the lake has what the source had; keys that move while they are read again."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ingest.daemon.configuration import load_settings
from ingest.source.open import LagProbe
from ingest.state.ownership import BatchNote, Owner, Ownership, Parking
from ingest.state.stream_state import CheckpointState, commit_properties
from ingest.tools.verify import runs
from ingest.tools.verify.runs import KafkaLag, LagWait, Request, StatusLag
from storage.clock import ManualClock
from storage.errors import InvalidRequestError, RetryableError
from tests.table_kit import prepared
from tests.unit.ingest.tools.verify.kit import Pair

COLUMNS = (("id", "INT"), ("v", "INT"))


class Topics:
    """A lake that takes some time to reach the ends of the topics."""

    def __init__(self, *lags):
        self.lags = list(lags)
        self.calls = []

    def note_ends(self):
        self.calls.append("ends")

    def lag(self):
        self.calls.append("behind")
        lag = self.lags.pop(0) if len(self.lags) > 1 else self.lags[0]
        return {"topic/0": lag} if lag else {}


def wait_with(topics, clock, **given):
    return LagWait(progress=topics, position=lambda: "0/1", is_confirmed=None, clock=clock, **given)


def test_the_position_comes_first_then_the_ends_then_the_lake():
    clock, topics = ManualClock(), Topics(5, 3, 0)
    begun_s = clock.monotonic_s()
    assert wait_with(topics, clock, settle_s=7)() == "0/1"
    assert topics.calls == ["ends", "behind", "behind", "behind"]
    assert clock.monotonic_s() - begun_s >= 7 + 2


def test_a_slot_that_confirms_the_position_replaces_the_pause():
    clock, answers = ManualClock(), [False, False, True]
    wait = LagWait(
        progress=Topics(0),
        position=lambda: "0/9",
        is_confirmed=lambda at: answers.pop(0) and at == "0/9",
        clock=clock,
        settle_s=1000,
    )
    begun_s = clock.monotonic_s()
    assert wait() == "0/9"
    assert clock.monotonic_s() - begun_s < 100


def test_it_gives_up_and_says_what_is_missing():
    with pytest.raises(RetryableError, match="topic/0 by 4") as caught:
        wait_with(Topics(4), ManualClock(), timeout_s=20)()
    assert caught.value.context["position"] == "0/1"


# --- the lake's offsets


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    config = tmp_path / "shop.yaml"
    document = {
        "pipeline": {"name": "shop", "checkpoint": str(tmp_path / "checkpoint")},
        "source": {
            "type": "kafka",
            "bootstrap.servers": "nowhere:1",
            "topics.pattern": ".*",
            "format": "debezium-json",
        },
        "sink": {"type": "paimon", "warehouse": str(tmp_path / "warehouse")},
    }
    config.write_text(json.dumps(document))
    ends = {("a", 0): (0, 10), ("a", 1): (7, 7), ("b", 0): (0, 99)}
    monkeypatch.setattr(LagProbe, "__init__", lambda self, settings: None)
    monkeypatch.setattr(LagProbe, "poll", lambda self: dict(ends))
    monkeypatch.setattr(LagProbe, "close", lambda self: None)
    pair = Pair(tmp_path)
    table = pair.lake(COLUMNS)
    return load_settings(config), table, tmp_path


def commit(table, identifier, end):
    properties, _ = commit_properties("shop", {}, {"a": {"0": (0, end), "1": (0, 7)}}, ["a"])
    messages = prepared(table, [["+I", identifier, 0]])
    table.new_commit("shop").commit(messages, identifier, properties=properties)


def test_the_lake_is_behind_until_its_snapshots_reach_the_ends(pipeline):
    settings, table, _ = pipeline
    commit(table, 1, 4)
    lag = KafkaLag(settings, table, "shop.t")
    lag.note_ends()
    assert lag.lag() == {"a/0": 6}  # topic b feeds other tables, a/1 is empty
    commit(table, 2, 10)
    assert lag.lag() == {}


def test_batches_that_bring_the_table_nothing_count(pipeline):
    settings, table, folder = pipeline
    commit(table, 1, 4)
    lag = KafkaLag(settings, table, "shop.t")
    lag.note_ends()
    place = (table.file_io, settings.sink.warehouse, "shop")
    ownership = Ownership(*place, Owner.this_process(0))
    ownership.acquire(None, note=None, settled=True)
    batch = BatchNote(identifier=2, start={"a": {"0": 5}}, end={"a": {"0": 8}}, tables=("shop.t",))
    ownership.record_batch(batch)
    assert lag.lag() == {"a/0": 5}  # the batch is on its way into the table
    ownership.record_batch(
        BatchNote(identifier=2, start={"a": {"0": 5}}, end={"a": {"0": 8}}, tables=("shop.x",))
    )
    assert lag.lag() == {"a/0": 2}
    CheckpointState(stream="shop", base=0, initial={}, floors={}).save(folder / "checkpoint")
    for name in ("offsets", "commits"):
        (folder / "checkpoint" / name).mkdir(parents=True)
        (folder / "checkpoint" / name / "3").write_text('v1\n{}\n{"a":{"0":10}}')
    assert lag.lag() == {}


def test_offsets_of_a_topic_that_was_created_anew_are_no_evidence(pipeline):
    settings, table, _ = pipeline
    commit(table, 1, 40)
    lag = KafkaLag(settings, table, "shop.t")
    lag.note_ends()
    assert lag.lag() == {}
    parking = Parking(table.file_io, settings.sink.warehouse, "shop")
    parking.met({}, {"a": {"0": 40}}, {"a": {"0": 3}}, 2)
    assert lag.lag() == {"a/0": 10}


def test_parked_tables_are_not_waited_for(pipeline):
    settings, table, _ = pipeline
    commit(table, 1, 4)
    lag = KafkaLag(settings, table, "shop.t")
    lag.note_ends()
    parking = Parking(table.file_io, settings.sink.warehouse, "shop")
    parking.load()
    parking.park("shop.t", reason="a file is gone", by="stream", since={}, now_ms=0)
    with pytest.raises(InvalidRequestError, match="parked") as caught:
        lag.lag()
    assert caught.value.detail == "a file is gone"


def test_a_table_that_was_never_written_waits_for_all_topics(pipeline):
    settings, table, _ = pipeline
    lag = KafkaLag(settings, table, "shop.t")
    lag.note_ends()
    assert lag.lag() == {"a/0": 10, "b/0": 99}


# --- the status page


@pytest.fixture
def page():
    documents = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = documents.pop(0) if len(documents) > 1 else documents[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"source": body}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", documents
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_status_page_must_have_looked_since(page):
    url, documents = page
    documents += [
        {"a": {"0": {"lag": 3}, "1": {"lag": 0}}},
        {"a": {"0": {}}},
        {"a": {"0": {"lag": 0}}},
    ]
    clock = ManualClock()
    lag = StatusLag(url, clock)
    begun_s = clock.monotonic_s()
    lag.note_ends()
    assert lag.lag() == {"a/0": 3}
    assert clock.monotonic_s() - begun_s > 15
    assert lag.lag() == {"a/0": 1}
    assert lag.lag() == {}


def test_a_status_page_that_does_not_answer_is_an_error():
    lag = StatusLag("http://127.0.0.1:9", ManualClock())
    with pytest.raises(RetryableError, match="does not answer"):
        lag.lag()


# --- keys that are read again


def verified(pair, clock, **given):
    database = runs.opened_database(runs.SourceUrl.of(pair.url, {}))
    request = Request(source_table="t", recheck_wait_s=1.0, **given)
    try:
        [outcome] = runs.verify_tables(
            pair.catalog, [("shop.t", True)], request, database=database, settings=None, clock=clock
        )
    finally:
        database.close()
    return outcome


class BusyClock(ManualClock):
    """Something happens while anybody sleeps."""

    def __init__(self, *happenings):
        super().__init__()
        self._happenings = list(happenings)

    def sleep(self, seconds):
        super().sleep(seconds)
        if self._happenings:
            self._happenings.pop(0)()


@pytest.fixture
def pair(tmp_path):
    made = Pair(tmp_path)
    made.table = made.lake(COLUMNS, [(i, 0) for i in range(10)])
    made.source("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)")
    made.source(rows=[(i, 0) for i in range(10)])
    return made


def test_keys_that_the_lake_takes_in_meanwhile_are_not_reported(pair):
    pair.source("UPDATE t SET v = 5 WHERE id = 3", "DELETE FROM t WHERE id = 4")

    def catch_up():
        pair.put(pair.table, [(3, 5)])
        pair.put(pair.table, [(4, 0)], kind="-D")

    found = verified(pair, BusyClock(catch_up))
    assert (found.outcome, found.confirmed.settled, found.confirmed.moving) == ("equal", 2, 0)


def test_keys_that_move_whenever_they_are_read_are_not_differences(pair):
    pair.source("UPDATE t SET v = 5 WHERE id = 3")
    moves = [lambda: pair.source("UPDATE t SET v = v + 1 WHERE id = 3")] * 3
    found = verified(pair, BusyClock(*moves), rechecks=2)
    differing = sum(found.confirmed.counts.values())
    assert (found.outcome, found.confirmed.moving, differing) == ("moving", 1, 0)
    assert runs.TableOutcome is type(found)
    found = verified(pair, BusyClock(*moves[:1]), rechecks=2)
    differing = sum(found.confirmed.counts.values())
    assert (found.outcome, found.confirmed.moving, differing) == ("different", 0, 1)


def test_without_rechecks_every_candidate_is_reported(pair):
    pair.source("UPDATE t SET v = 5 WHERE id = 3")
    found = verified(pair, BusyClock(lambda: pair.put(pair.table, [(3, 5)])), rechecks=0)
    assert found.outcome == "different"
    assert "not read again" in found.notes[0]


def test_an_error_of_one_table_leaves_the_others(pair):
    database = runs.opened_database(runs.SourceUrl.of(pair.url, {}))
    tables = [("shop.none", True), ("shop.t", True)]
    request = Request(source_table="t")
    found = list(
        runs.verify_tables(
            pair.catalog, tables, request, database=database, settings=None, clock=ManualClock()
        )
    )
    database.close()
    assert [each.outcome for each in found] == ["failed", "equal"]
