# SPDX-License-Identifier: Apache-2.0
"""The client of requests: sends one, shows progress, returns the result.

The daemon need not run: the request waits in the warehouse for its next start. The HTTP endpoint
that shows whether one runs may be disabled or unreachable; so the command waits for an answer in
any case, up to its time limit.
"""

import contextlib
import dataclasses
import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ingest.config.settings import Settings
from ingest.errors import error_named
from ingest.state.request_files import Answer, Request, RequestFiles
from storage.clock import Clock, SystemClock
from storage.errors import InvalidRequestError, LakewardError, RetryableError
from storage.io.resolve import resolve_file_io

_POLL_S = 0.5
_SILENT_S = 15.0
"""Silence of the daemon before the command reports what it waits for [s]."""

_HTTP_TIMEOUT_S = 3.0


class RefusedError(LakewardError):
    """The daemon refused the request."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """How a command waits.

    Attributes:
        wait: whether it waits.
        timeout_s: how long [s].
        say: called with progress; None = standard error.
        clock: time.
    """

    wait: bool = True
    timeout_s: float = 120.0
    say: Callable[[str], None] | None = None
    clock: Clock = dataclasses.field(default_factory=SystemClock)


def request_files(settings: Settings) -> RequestFiles:
    """The request files of a pipeline."""
    file_io, root = resolve_file_io(settings.sink.warehouse, settings.sink.options)
    return RequestFiles(file_io, root, settings.pipeline.name)


def request_and_wait(
    settings: Settings, kind: str, arguments: Mapping[str, Any], options: RequestOptions
) -> Answer | None:
    """Send a request to the daemon of a pipeline, and wait for the answer.

    Returns:
        The final answer; None without `wait`.

    Raises:
        LakewardError: the daemon's error; `RefusedError` for one of an unknown class.
        RetryableError: no answer in time; the request remains.
    """
    files = request_files(settings)
    say = options.say or _to_stderr
    request = files.ask(kind, arguments, now_ms=options.clock.now_ms())
    if not options.wait:
        return None
    return _wait(files, request, daemon_status(settings) is not None, say, options)


def _wait(
    files: RequestFiles,
    request: Request,
    running: bool,
    say: Callable[[str], None],
    options: RequestOptions,
) -> Answer:
    clock = options.clock
    began = clock.monotonic_s()
    last_text = ""
    explained = False
    if not running:
        say("no daemon answers here; the request will be handled when one runs or starts")
    while True:
        answer = files.answer(request.id)
        if answer is not None and answer.state == "done":
            return answer
        if answer is not None and answer.final:
            raise _error_of(answer)
        waited = clock.monotonic_s() - began
        if answer is not None and answer.text != last_text:
            last_text = answer.text
            say(last_text)
        if answer is None and running and not explained and waited >= _SILENT_S:
            explained = True
            say("waiting for the batch in progress to end")
        if waited >= options.timeout_s:
            raise RetryableError(
                "the daemon has not answered in time",
                hint="the request stays queued: the daemon handles it after its batch, or at its "
                "next start; `lakeward status` shows it",
                request=request.id,
                waited_s=round(waited),
            )
        clock.sleep(_POLL_S)


def _error_of(answer: Answer) -> LakewardError:
    """The daemon's error, so that exit codes are the same as for a local one."""
    return (error_named(answer.error) or RefusedError)(answer.text, hint=answer.hint)


def daemon_status(settings: Settings, url: str | None = None) -> dict[str, Any] | None:
    """The status of the pipeline's daemon; None when it cannot be reached.

    Args:
        url: its endpoint; None = that of the settings.
    """
    metrics = settings.metrics
    if url is None:
        if not metrics.enabled or not metrics.port:
            return None
        host = "127.0.0.1" if metrics.host in ("", "0.0.0.0", "::") else metrics.host
        host = f"[{host}]" if ":" in host else host
        url = f"http://{host}:{metrics.port}"
    document = status_document_at(url)
    if document is not None and document.get("pipeline") == settings.pipeline.name:
        return document
    return None


def status_document_at(url: str) -> dict[str, Any] | None:
    """The status of a daemon; None when none answers there."""
    address = f"{url.rstrip('/').removesuffix('/api/status')}/api/status"
    if not address.startswith(("http://", "https://")):
        raise InvalidRequestError("not the address of a daemon", hint="http://…", address=url)
    with contextlib.suppress(urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=_HTTP_TIMEOUT_S) as answer:
            document = orjson.loads(answer.read())
        if isinstance(document, dict) and "pipeline" in document:
            return document
    return None


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
