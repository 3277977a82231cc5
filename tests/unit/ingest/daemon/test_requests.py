# SPDX-License-Identifier: Apache-2.0
"""Requests through files: asked once, handled once, answered, and what dies in between."""

import dataclasses

import pytest

from ingest.daemon.configuration import load_settings
from ingest.daemon.requests.registry import Outcome, RequestKind, tables_argument, text_argument
from ingest.daemon.requests.request_client import RequestOptions, request_and_wait, request_files
from ingest.daemon.requests.request_handler import (
    KINDS,
    POLL_EVERY_S,
    RequestHandler,
    fixed_changes,
)
from ingest.errors import AccessDeniedError, ExitCode, SchemaStopError, exit_code_of
from ingest.state.request_files import RETENTION_MS, RequestFiles
from storage.clock import ManualClock
from storage.errors import (
    InvalidRequestError,
    LakewardError,
    RetryableError,
    StorageUnavailableError,
)
from storage.io.local import LocalFileIO


@pytest.fixture
def clock():
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def files(tmp_path):
    return RequestFiles(LocalFileIO(durable=False), str(tmp_path), "shop")


def said(pipeline, arguments):
    pipeline("half way")
    return Outcome("said " + text_argument(arguments, "word"), {"word": arguments["word"]})


def fails(pipeline, arguments):
    raise StorageUnavailableError("away", hint="wait", store="s3")


def breaks(pipeline, arguments):
    raise KeyError("bug")


def is_forbidden(pipeline, arguments):
    raise SchemaStopError("forbidden", hint="alter the table")


def is_denied(pipeline, arguments):
    raise PermissionError("/state")


TEST_KINDS = {
    "forbid": RequestKind("forbid", is_forbidden),
    "deny": RequestKind("deny", is_denied),
    "say": RequestKind("say", said),
    "fail": RequestKind("fail", fails),
    "break": RequestKind("break", breaks),
    "stop": RequestKind("stop", lambda pipeline, arguments: Outcome("stopped"), stops=True),
}


def handler_of(files, clock):
    return RequestHandler(files, clock, TEST_KINDS)


def serve(handler, *, stopped=True):
    return handler.serve(lambda progress: progress, stopped=stopped)


def settings_of(tmp_path, **more):
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"source: {{type: files, path: {tmp_path}}}\n"
        f"sink: {{warehouse: {tmp_path / 'lake'}}}\n"
        "pipeline: {name: shop}\nmetrics: {enabled: false}\n"
    )
    return load_settings(path, more)


class AnsweringClock(ManualClock):
    """A daemon works whenever the command sleeps."""

    def __init__(self, work):
        super().__init__(1_700_000_000_000)
        self.work = work

    def sleep(self, seconds):
        self.work(self)
        super().sleep(seconds)


def test_a_request_is_handled_and_answered_once(files, clock):
    handler = handler_of(files, clock)
    request = files.ask("say", {"word": "ho"}, now_ms=clock.now_ms())
    assert files.answer(request.id) is None
    assert serve(handler) == 1
    answer = files.answer(request.id)
    assert (answer.state, answer.text, answer.result) == ("done", "said ho", {"word": "ho"})
    assert files.pending() == []
    assert serve(handler) == 0


def test_requests_are_handled_oldest_first(files, clock):
    asked = []
    for word in "abc":
        asked.append(files.ask("say", {"word": word}, now_ms=clock.now_ms()))
        clock.advance(1)
    assert [request.id for request in files.pending()] == [request.id for request in asked]


def test_a_failure_is_answered_with_its_hint_and_the_stream_goes_on(files, clock):
    request = files.ask("fail", {}, now_ms=clock.now_ms())
    serve(handler_of(files, clock))
    answer = files.answer(request.id)
    assert (answer.state, answer.error, answer.hint) == (
        "failed",
        "StorageUnavailableError",
        "wait",
    )
    assert answer.text == "away (store = s3)"


@pytest.mark.parametrize(
    ("kind", "error", "code"),
    [
        ("fail", StorageUnavailableError, ExitCode.UNAVAILABLE),
        ("forbid", SchemaStopError, ExitCode.DATA),
        ("deny", AccessDeniedError, ExitCode.ACCESS),
    ],
)
def test_a_command_ends_as_if_it_had_happened_here(tmp_path, kind, error, code):
    settings = settings_of(tmp_path)
    files = request_files(settings)
    served = AnsweringClock(lambda clock: serve(handler_of(files, clock)))
    options = RequestOptions(say=lambda text: None, clock=served)
    with pytest.raises(LakewardError) as caught:
        request_and_wait(settings, kind, {}, options)
    assert type(caught.value) is error
    assert exit_code_of(caught.value) == code


def test_a_bug_is_answered_and_the_request_is_not_tried_for_ever(files, clock):
    request = files.ask("break", {}, now_ms=clock.now_ms())
    with pytest.raises(KeyError):
        serve(handler_of(files, clock))
    assert files.answer(request.id).state == "failed"
    assert serve(handler_of(files, clock)) == 1, "answered before: only removed"
    assert files.pending() == []


def test_a_request_whose_daemon_died_is_handled_again(files, clock):
    request = files.ask("say", {"word": "ho"}, now_ms=clock.now_ms())
    handler = handler_of(files, clock)
    handler._progress(request, "half way")
    assert not files.answer(request.id).final
    serve(handler_of(files, clock))
    assert files.answer(request.id).text == "said ho"


def test_only_a_stopped_query_serves_what_wants_it_stopped_and_order_is_kept(files, clock):
    handler = handler_of(files, clock)
    for kind in ("say", "stop", "say"):
        files.ask(kind, {"word": "x"}, now_ms=clock.now_ms())
        clock.advance(1)
    assert [kind.stops for kind in handler.poll()] == [False, True, False]
    assert serve(handler, stopped=False) == 1
    assert serve(handler, stopped=True) == 2


def test_unknown_unreadable_and_old_requests_are_answered_not_done(files, clock, tmp_path):
    unknown = files.ask("dance", {}, now_ms=clock.now_ms())
    old = files.ask("say", {"word": "x"}, now_ms=clock.now_ms() - RETENTION_MS - 1)
    (tmp_path / ".lakeward/shop/requests/20260101T000000000-abc.json").write_text("{")
    assert serve(handler_of(files, clock)) == 3
    assert "no such request" in files.answer(unknown.id).text
    assert "expired" in files.answer(old.id).text
    assert files.pending() == []


def test_the_store_is_asked_every_few_seconds_and_its_own_requests_at_once(files, clock):
    handler = handler_of(files, clock)
    assert handler.poll() == []
    files.ask("say", {"word": "x"}, now_ms=clock.now_ms())
    assert handler.poll() == []
    clock.advance(int(POLL_EVERY_S * 1000))
    assert len(handler.poll()) == 1
    serve(handler)
    handler.add("stop")
    handler.add("stop")
    assert [kind.name for kind in handler.poll()] == ["stop"]
    assert serve(handler) == 1
    assert handler.poll() == []


def test_answers_go_after_a_week(files, clock, tmp_path):
    request = files.ask("say", {"word": "x"}, now_ms=clock.now_ms())
    serve(handler_of(files, clock))
    answer = tmp_path / f".lakeward/shop/answers/{request.id}.json"
    files.clean(answer.stat().st_mtime_ns // 1_000_000 + RETENTION_MS - 1_000)
    assert files.answer(request.id) is not None
    files.clean(answer.stat().st_mtime_ns // 1_000_000 + RETENTION_MS + 1_000)
    assert files.answer(request.id) is None


def test_a_command_waits_for_the_answer_and_tells_progress(tmp_path):
    settings = settings_of(tmp_path)
    files, heard = request_files(settings), []

    served = AnsweringClock(lambda clock: serve(handler_of(files, clock)))
    options = RequestOptions(clock=served, say=heard.append)
    answer = request_and_wait(settings, "say", {"word": "ho"}, options)
    assert answer.text == "said ho"
    assert "will be handled when one runs or starts" in heard[0]
    with pytest.raises(StorageUnavailableError, match="hint: wait"):
        request_and_wait(settings, "fail", {}, options)


def test_without_an_answer_the_command_says_that_the_request_stays(tmp_path):
    settings = settings_of(tmp_path)
    options = RequestOptions(
        clock=AnsweringClock(lambda clock: None), say=lambda text: None, timeout_s=5
    )
    with pytest.raises(RetryableError, match="the request stays"):
        request_and_wait(settings, "say", {"word": "ho"}, options)
    assert len(request_files(settings).pending()) == 1
    assert request_and_wait(settings, "say", {}, dataclasses.replace(options, wait=False)) is None


def test_tables_of_a_request_are_checked():
    assert tables_argument({"tables": ["b.x", "a.y", "b.x"]}) == ("a.y", "b.x")
    for wrong in ({}, {"tables": []}, {"tables": ["orders"]}, {"tables": ["a.b.c"]}):
        with pytest.raises(InvalidRequestError):
            tables_argument(wrong)


def test_kinds_go_by_their_names():
    assert all(kind.name == name for name, kind in KINDS.items())
    assert {"pause", "resume", "reload"} <= set(KINDS)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("pipeline.name", "other", ["pipeline.name", "pipeline.checkpoint"]),
        ("source.format", "canal-json", ["source.format"]),
        ("metrics.port", "9999", ["metrics"]),
        ("spark.parallelism", "7", ["spark"]),
        ("pipeline.trigger.interval", "7s", []),
        ("source.topics.pattern", "shop.*", []),
    ],
)
def test_what_cannot_change_while_it_runs_is_named(tmp_path, key, value, named):
    old, new = settings_of(tmp_path), settings_of(tmp_path, **{key: value})
    assert fixed_changes(old, new, {}) == named
