# SPDX-License-Identifier: Apache-2.0
"""Webhooks: what is sent when, what a dead receiver costs, and that nobody waits for one."""

import http.server
import json
import threading
import time

import pytest

from ingest.config.choices import ChangeKind
from ingest.config.settings import AlertSettings
from ingest.observe.alerts import QUEUE_LIMIT, QUIET_S, WINDOW_S, Alerts, WebhookSender
from ingest.pipeline.batch_report import BatchReport
from ingest.schema.routing import Outcome, Verdict
from storage.clock import ManualClock, SystemClock
from storage.errors import StorageUnavailableError


class Receiver:
    """A webhook on this machine; answers `codes` in turn, then 200."""

    def __init__(self):
        self.codes, self.bodies, self.headers = [], [], []
        self.gate = threading.Event()
        self.gate.set()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.gate.wait(10)
                receiver.bodies.append(json.loads(body))
                receiver.headers.append(dict(self.headers))
                code = receiver.codes.pop(0) if receiver.codes else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/T0/s3cret"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def await_count(self, count):
        deadline = time.monotonic() + 5
        while len(self.bodies) < count:
            assert time.monotonic() < deadline, self.bodies
            time.sleep(0.01)


@pytest.fixture
def receiver():
    one = Receiver()
    yield one
    one.gate.set()
    one.server.shutdown()
    one.server.server_close()


@pytest.fixture
def outcomes():
    return []


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def alerts(receiver, clock, outcomes):
    one = Alerts("shop", AlertSettings(urls=(receiver.url,)), clock, outcomes.append)
    yield one
    one.close()


def sender_of(receiver, outcomes, **settings):
    return WebhookSender(
        AlertSettings(urls=(receiver.url,), **settings),
        SystemClock(),
        outcomes.append,
        waits_s=(0.01, 0.01),
    )


def verdict(outcome):
    return Verdict(kind=ChangeKind.ADD_COLUMN, column="c", old="", new="INT", outcome=outcome)


def report(*, outcome="committed", **facts):
    return BatchReport(batch_id=1, identifier=1, outcome=outcome, **facts)


def test_a_parked_table_is_told_once_and_its_resume_too(alerts, receiver):
    alerts.tables({"s.a": "running", "s.old": "parked"}, {"s.old": "long ago"})
    alerts.tables({"s.a": "parked", "s.old": "parked"}, {"s.a": "a file is lost"})
    alerts.tables({"s.a": "parked", "s.old": "parked"}, {"s.a": "a file is lost"})
    alerts.tables({"s.a": "behind", "s.old": "parked"}, {})
    alerts.tables({"s.a": "running", "s.old": "parked"}, {})
    receiver.await_count(2)
    parked, resumed = receiver.bodies
    assert (parked["event"], parked["table"]) == ("table_parked", "s.a")
    assert parked["reason"] == "a file is lost"
    assert parked["text"] == "[shop] s.a is parked: a file is lost"
    assert (parked["version"], parked["pipeline"]) == (1, "shop")
    assert parked["at"] == "2023-11-14T22:13:20.000Z"
    assert (resumed["event"], resumed["text"]) == ("table_resumed", "[shop] s.a is resumed")


def test_schema_changes_are_told_but_not_those_that_settings_ignore(alerts, receiver):
    said = [("s.a", verdict(one)) for one in (Outcome.APPLIED, Outcome.IGNORED, Outcome.REFUSED)]
    alerts.batch(report(schema_verdicts=tuple(said)))
    receiver.await_count(2)
    assert [each["event"] for each in receiver.bodies] == ["schema_applied", "schema_refused"]
    assert receiver.bodies[1]["outcome"] == "refused"
    assert "add column c: INT" in receiver.bodies[0]["text"]


def test_quarantine_is_told_from_the_threshold_on_and_once_in_a_window(receiver, clock, outcomes):
    settings = AlertSettings(urls=(receiver.url,), quarantine_records=5)
    alerts = Alerts("shop", settings, clock, outcomes.append)
    for _ in range(4):
        alerts.batch(report(bad_by_table={"s.a": {"json": 1, "type": 2}}))
    clock.advance(int(WINDOW_S * 1000) + 1000)
    alerts.batch(report(bad_by_table={"s.a": {"json": 1}}))
    alerts.batch(report(bad_by_table={"": {"json": 7}}))
    receiver.await_count(2)
    alerts.close()
    first, second = receiver.bodies
    assert (first["table"], first["records"]) == ("s.a", 6)
    assert (second["table"], second["records"]) == ("", 7)


def test_bad_records_of_a_replay_are_counted_when_no_report_has_them_yet(receiver, clock, outcomes):
    settings = AlertSettings(urls=(receiver.url,), quarantine_records=5)
    alerts = Alerts("shop", settings, clock, outcomes.append)
    replay = report(outcome="replayed", bad_by_table={"s.a": {"json": 3}})
    alerts.batch(replay)
    alerts.batch(replay, again=True)
    partly = {"outcome": "replayed", "snapshots": {"s.b": 2}}
    alerts.batch(report(bad_by_table={"s.a": {"json": 4}}, **partly))
    receiver.await_count(1)
    alerts.close()
    assert receiver.bodies[0]["records"] == 7


def test_names_that_corrupt_records_made_up_are_forgotten(alerts, receiver, clock):
    for number in range(30):
        alerts.batch(report(bad_by_table={f"s.t{number}": {"json": 1}}))
        clock.advance(60_000)
    assert len(alerts._bad) <= 11


def test_a_replayed_batch_counts_no_bad_records_again(alerts, receiver):
    alerts.batch(
        BatchReport(batch_id=1, identifier=1, outcome="replayed", bad_by_table={"s": {"x": 9}})
    )
    alerts.close()
    assert receiver.bodies == []


def test_failures_are_told_with_what_to_do_and_not_at_every_try(alerts, receiver, clock):
    error = StorageUnavailableError("the store is away", host="lake")
    for _ in range(3):
        alerts.failed(error, fatal=False)
    clock.advance(int(QUIET_S * 1000) + 1)
    alerts.failed(error, fatal=False)
    alerts.failed(error, fatal=True)
    receiver.await_count(3)
    assert [e["event"] for e in receiver.bodies] == [
        "stream_failed",
        "stream_failed",
        "stream_fatal",
    ]
    assert receiver.bodies[-1]["exit_code"] == 69
    assert "check the store" in receiver.bodies[-1]["text"]


def test_a_failure_with_the_number_of_a_request_is_told_once(alerts, receiver, clock):
    for number in range(40):
        text = f"503 slow down, request {number:016X}-{number}, after {number} s"
        alerts.failed(StorageUnavailableError(text), fatal=False)
        clock.sleep(5)
    alerts.failed(StorageUnavailableError("another text"), fatal=False)
    receiver.await_count(2)
    assert [each["message"][:9] for each in receiver.bodies] == ["503 slow ", "another t"]


def test_only_wanted_events_are_sent(receiver, clock, outcomes):
    settings = AlertSettings(urls=(receiver.url,), events=("stream_resumed",))
    alerts = Alerts("shop", settings, clock, outcomes.append)
    for reason in (None, "maintenance", None):
        alerts.paused(reason)
    receiver.await_count(1)
    alerts.close()
    assert [each["event"] for each in receiver.bodies] == ["stream_resumed"]


def test_a_text_that_is_no_unicode_does_not_silence_those_after_it(alerts, receiver):
    for name in ("no \udcff text", "text"):
        alerts.failed(StorageUnavailableError(name), fatal=False)
    receiver.await_count(2)
    assert [each["message"].split("`")[0] for each in receiver.bodies] == ["no ? text", "text"]


def test_a_receiver_that_stumbles_is_tried_again_and_headers_are_sent(receiver, outcomes):
    receiver.codes = [503, 429]
    sender = sender_of(receiver, outcomes, headers={"Authorization": "Bearer x"})
    sender.send({"event": "e", "text": "ä"})
    receiver.await_count(3)
    sender.close()
    assert outcomes == ["sent"]
    assert receiver.headers[0]["Authorization"] == "Bearer x"
    assert receiver.bodies[0]["text"] == "ä"


@pytest.mark.parametrize("code", [400, 404, 302])
def test_a_receiver_that_refuses_is_not_asked_again_and_not_followed(
    receiver, outcomes, code, caplog
):
    receiver.codes = [code]
    sender = sender_of(receiver, outcomes)
    sender.send({"event": "e"})
    receiver.await_count(1)
    sender.close()
    assert outcomes == ["failed"]
    assert len(receiver.bodies) == 1
    assert "s3cret" not in caplog.text + str([vars(each) for each in caplog.records])
    assert "s3cret" not in sender.last_error


def test_nobody_waits_for_a_receiver_that_hangs(receiver, outcomes):
    receiver.gate.clear()
    sender = sender_of(receiver, outcomes)
    began = time.monotonic()
    for number in range(QUEUE_LIMIT + 20):
        sender.send({"event": "e", "n": number})
    assert time.monotonic() - began < 1
    assert outcomes.count("dropped") >= 19
    sender.close(within_s=0.2)
    assert time.monotonic() - began < 2


def test_what_waits_at_the_end_is_still_sent(receiver, clock, outcomes):
    alerts = Alerts("shop", AlertSettings(urls=(receiver.url,)), SystemClock(), outcomes.append)
    alerts.failed(RuntimeError("bug"), fatal=True)
    alerts.close()
    assert [each["event"] for each in receiver.bodies] == ["stream_fatal"]
    assert outcomes == ["sent"]


def test_without_addresses_nothing_runs(clock, outcomes):
    before = threading.active_count()
    alerts = Alerts("shop", AlertSettings(), clock, outcomes.append)
    alerts.failed(RuntimeError("bug"), fatal=True)
    assert threading.active_count() == before
    assert alerts.document() == {"enabled": False}


def test_a_reload_changes_who_is_told(alerts, receiver):
    other = Receiver()
    alerts.paused(None)
    alerts.use_settings(AlertSettings(urls=(other.url,)))
    alerts.paused("because")
    other.await_count(1)
    other.server.shutdown()
    other.server.server_close()
    assert receiver.bodies == []
