# SPDX-License-Identifier: Apache-2.0
"""Control over HTTP: who is let in, what is asked of the daemon, and how it is answered."""

import http.client
import json
import threading

import pytest

from ingest.observe.http_server import LOCKED_S, MAX_ATTEMPTS, Control, HttpServer
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard
from ingest.state.request_files import Answer, RequestFiles
from storage.clock import ManualClock
from storage.io.local import LocalFileIO

TOKEN = "a-token-of-some-length"


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def files(tmp_path):
    return RequestFiles(LocalFileIO(durable=False), str(tmp_path), "shop")


@pytest.fixture
def drained():
    return threading.Event()


@pytest.fixture
def control(files, clock, drained):
    return Control(TOKEN, files, drain=drained.set, wake=lambda: None, clock=clock)


@pytest.fixture
def post(control, clock):
    board, metrics = StatusBoard("shop", clock), Metrics(clock, process=False)
    with HttpServer(metrics, board, host="127.0.0.1", port=0, control=control) as server:

        def request(path, body=None, *, token=TOKEN, method="POST", raw=None, **headers):
            given = {"Content-Type": "application/json"}
            if token is not None:
                given["Authorization"] = f"Bearer {token}"
            given |= {name.replace("_", "-"): value for name, value in headers.items()}
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
            try:
                sent = raw if raw is not None else json.dumps(body or {})
                connection.request(method, path, sent, given)
                answer = connection.getresponse()
                text = answer.read().decode()
                is_json = answer.headers["Content-Type"].startswith("application/json")
                return answer.status, json.loads(text) if is_json else text, answer.headers
            finally:
                connection.close()

        yield request


def test_the_right_token_pauses_the_whole_stream_by_a_request_file(post, files, caplog):
    with caplog.at_level("INFO"):
        status, told, _ = post("/api/pause", {"reason": "vacuum"})
    assert (status, told["state"]) == (202, "waiting")
    (waiting,) = files.pending()
    assert (waiting.id, waiting.kind) == (told["request"], "pause_stream")
    assert waiting.arguments == {"reason": "vacuum"}
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "control"]
    assert (record.action, record.address, record.status) == ("pause", "127.0.0.1", 202)
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("path", "body", "kind", "arguments"),
    [
        ("/api/resume", {}, "resume_stream", {}),
        ("/api/resume", {"tables": ["a.b"]}, "resume", {"tables": ["a.b"]}),
        ("/api/reload", {}, "reload", {}),
        ("/api/compact", {"table": "a.b"}, "compact", {"table": "a.b"}),
        (
            "/api/pause",
            {"tables": ["a.b"]},
            "pause",
            {"tables": ["a.b"], "reason": "paused over HTTP from 127.0.0.1"},
        ),
    ],
)
def test_actions_are_the_requests_of_the_commands(post, files, path, body, kind, arguments):
    assert post(path, body)[0] == 202
    (waiting,) = files.pending()
    assert (waiting.kind, waiting.arguments) == (kind, arguments)


def test_drain_is_done_at_once_and_check_does_nothing(post, drained, files):
    assert post("/api/check")[0] == 200
    assert not drained.is_set()
    assert post("/api/drain")[0] == 202
    assert drained.is_set()
    assert files.pending() == []


@pytest.mark.parametrize("given", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", "ä" * 20])
def test_a_missing_or_wrong_token_asks_nothing(control, files, given):
    headers = {"Content-Type": "application/json"}
    if given is not None:
        headers["Authorization"] = f"Bearer {given}"
    reply = control.call("/api/pause", headers, b"{}", "10.0.0.1")
    assert reply.status == 401
    assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    assert files.pending() == []


def test_wrong_tokens_lock_an_address_out_for_a_while_and_no_other(control, files, clock):
    def call(token, address):
        headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
        return int(control.call("/api/pause", headers, b"", address).status)

    assert [call("wrong", "10.0.0.1") for _ in range(MAX_ATTEMPTS)] == [401] * MAX_ATTEMPTS
    assert call(TOKEN, "10.0.0.1") == 429, "the right one tells nothing now"
    assert call(TOKEN, "10.0.0.2") == 202
    clock.advance(int(LOCKED_S * 1000))
    assert call(TOKEN, "10.0.0.1") == 202


def test_a_page_from_elsewhere_cannot_ask(post, files):
    assert post("/api/drain", Sec_Fetch_Site="cross-site")[0] == 403
    assert post("/api/drain", Content_Type="text/plain")[0] == 415
    assert post("/api/drain", Content_Type="application/x-www-form-urlencoded")[0] == 415
    assert post("/api/drain", method="OPTIONS")[0] == 501, "no preflight is answered"
    assert files.pending() == []


@pytest.mark.parametrize(
    "raw", ["[]", "{", "7", '{"table": 7}', '{"tables": ["a.b"]}', '{"wait_s": true}']
)
def test_a_body_that_is_not_meant_for_the_action_is_refused_with_a_reason(post, files, raw):
    status, told, _ = post("/api/compact", raw=raw)
    assert status == 400
    assert told["error"]
    assert files.pending() == []


def test_who_waits_hears_the_outcome(control, files, clock):
    headers = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}

    class Daemon(ManualClock):
        def sleep(self, seconds):
            super().sleep(seconds)
            (waiting,) = files.pending()
            state = "failed" if waiting.kind == "reload" else "done"
            text = {"failed": "no", "done": "yes"}[state]
            files.write(Answer(id=waiting.id, kind=waiting.kind, state=state, text=text, hint="h"))
            files.remove(waiting)

    control._clock = Daemon(clock.now_ms())
    good = control.call("/api/pause", headers, b'{"wait_s": 5}', "::1")
    assert (good.status, good.document["text"]) == (200, "yes")
    bad = control.call("/api/reload", headers, b'{"wait_s": 5}', "::1")
    assert (bad.status, bad.document["text"], bad.document["hint"]) == (409, "no", "h")


def test_without_a_token_setting_control_is_off(post, control, files):
    control.use_token(None)
    status, told, _ = post("/api/pause", token="None")
    assert status == 404
    assert "control.token" in told["error"]
    assert json.loads(json.dumps(post("/api/status", method="GET")[1]))["control"] == {
        "enabled": False
    }


def test_actions_are_for_post_and_pages_are_not(post):
    status, _, headers = post("/api/pause", method="GET")
    assert (status, headers["Allow"]) == (405, "POST")
    assert post("/metrics")[0] == 405
    assert post("/api/dance")[0] == 404


def test_a_store_that_is_away_is_said(control, files, monkeypatch):
    def away(*arguments, **named):
        raise OSError("disk is full")

    monkeypatch.setattr(files, "ask", away)
    headers = {"content-type": "application/json", "authorization": f"bearer {TOKEN}"}
    reply = control.call("/api/pause", headers, b"", "::1")
    assert (reply.status, reply.document["error"]) == (503, "disk is full")
