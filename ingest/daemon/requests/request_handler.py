# SPDX-License-Identifier: Apache-2.0
"""The daemon's side of requests: polls for them, runs their handlers, answers.

One request at a time, oldest first. A request that the process died with is handled again unless
its final answer is there.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ingest.daemon.requests.registry import Outcome, Pipeline, RequestKind
from ingest.daemon.requests.reload import RELOAD
from ingest.daemon.requests.replay import DROP_BAD, REPLAY
from ingest.daemon.requests.table_requests import (
    COMPACT,
    PAUSE,
    PAUSE_STREAM,
    RESUME,
    RESUME_STREAM,
)
from ingest.state.request_files import KEPT_MS, Answer, Request, RequestFiles
from storage.clock import Clock
from storage.errors import CorruptDataError, InvalidRequestError, LakewardError, RetryableError

__all__ = ["KINDS", "POLL_EVERY_S", "RequestHandler"]

_LOG = logging.getLogger(__name__)

POLL_EVERY_S = 2.0
"""Time between two polls for requests [s]: one listing, on an object store a paid request."""

_CLEAN_EVERY_S = 3600.0

KINDS: Mapping[str, RequestKind] = {
    kind.name: kind
    for kind in (PAUSE, RESUME, PAUSE_STREAM, RESUME_STREAM, RELOAD, COMPACT, REPLAY, DROP_BAD)
}
"""All kinds of requests. How to write one: `ingest.daemon.requests.registry`."""

OpenPipeline = Callable[[Callable[[str], None]], Pipeline]
"""Makes the handler's view of the stream, from the function that reports progress."""


class RequestHandler:
    """See the module. Used by the daemon's main thread; `add` and `wake` by any.

    Args:
        files: where requests come from.
        kinds: handlers by name.
        on_answer: called with every final answer, those to the process itself included.
    """

    def __init__(
        self,
        files: RequestFiles,
        clock: Clock,
        kinds: Mapping[str, RequestKind] = KINDS,
        on_answer: Callable[[Answer], None] | None = None,
    ) -> None:
        self._files = files
        self._on_answer = on_answer
        self._kinds = kinds
        self._clock = clock
        self._own: list[str] = []
        self._polled_s: float | None = None
        self._cleaned_s: float | None = None

    def add(self, kind: str) -> None:
        """Add a request of this process itself, such as a signal's; its answer is a log line."""
        if kind not in self._own:
            self._own.append(kind)

    def wake(self) -> None:
        """Poll as soon as possible: a request was just written here."""
        self._polled_s = None

    def poll(self) -> list[RequestKind]:
        """Kinds of the waiting requests; none within `POLL_EVERY_S` after the last poll.

        None, too, when the store does not answer: batches will report that.
        """
        now_s = self._clock.monotonic_s()
        soon = self._polled_s is not None and now_s - self._polled_s < POLL_EVERY_S
        if soon and not self._own:
            return []
        self._polled_s = now_s
        try:
            self._clean(now_s)
            return [self._kind(request) for request in self._waiting()]
        except (LakewardError, OSError) as error:
            _LOG.warning(
                "requests cannot be listed", extra={"event": "requests_away", "error": error}
            )
            return []

    def serve(self, open_pipeline: OpenPipeline, *, stopped: bool) -> int:
        """Handle waiting requests; without `stopped`, up to the first that needs the query stopped.

        Returns:
            How many were handled.
        """
        count = 0
        try:
            waiting = self._waiting()
        except (RetryableError, OSError) as error:
            _LOG.warning(
                "requests cannot be listed", extra={"event": "requests_away", "error": error}
            )
            return 0
        for request in waiting:
            kind = self._kind(request)
            if kind.stops and not stopped:
                break
            self._handle(request, kind, open_pipeline)
            count += 1
        return count

    def _waiting(self) -> list[Request]:
        now_ms = self._clock.now_ms()
        own = [Request(id="", kind=kind, arguments={}, made_ms=now_ms) for kind in self._own]
        return own + self._files.waiting()

    def _kind(self, request: Request) -> RequestKind:
        if self._clock.now_ms() - request.made_ms > KEPT_MS:
            return RequestKind(request.kind, _expired)
        return self._kinds.get(request.kind) or RequestKind(request.kind, self._unknown)

    def _unknown(self, pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
        del pipeline, arguments
        raise InvalidRequestError(
            "no such request",
            hint=f"this daemon knows {', '.join(sorted(self._kinds))}; is it of another version?",
        )

    def _handle(self, request: Request, kind: RequestKind, open_pipeline: OpenPipeline) -> None:
        if request.id and self._answered(request):
            self._files.done(request)
            return
        pipeline = open_pipeline(functools.partial(self._progress, request))
        try:
            outcome = kind.handler(pipeline, request.arguments)
        except (LakewardError, OSError) as error:
            self._failed(request, error)
        except BaseException as error:
            self._failed(request, error)
            raise
        else:
            self._answer(request, "done", outcome.text, result=outcome.result)
            _LOG.info(
                "request done",
                extra={"event": "request", "kind": request.kind, "outcome": outcome.text},
            )
        if request.id:
            self._files.done(request)
        else:
            self._own.remove(request.kind)

    def _answered(self, request: Request) -> bool:
        try:
            known = self._files.answer(request.id)
        except CorruptDataError:
            return False
        return known is not None and known.final

    def _failed(self, request: Request, error: BaseException) -> None:
        if isinstance(error, LakewardError):
            facts = ", ".join(f"{key} = {value}" for key, value in error.context.items())
            text = error.message + (f" ({facts})" if facts else "")
            text += f": {error.detail}" if error.detail else ""
        else:
            text = str(error) or type(error).__name__
        hint = error.hint if isinstance(error, LakewardError) else ""
        self._answer(request, "failed", text, error=type(error).__name__, hint=hint)
        _LOG.warning(
            "request failed",
            extra={"event": "request_failed", "kind": request.kind, "error": str(error)},
        )

    def _progress(self, request: Request, text: str) -> None:
        self._answer(request, "working", text)

    def _answer(self, request: Request, state: Any, text: str, **more: Any) -> None:
        now_ms = self._clock.now_ms()
        answer = Answer(
            id=request.id, kind=request.kind, state=state, text=text, at_ms=now_ms, **more
        )
        if request.id:
            self._files.write(answer)
        if answer.final and self._on_answer is not None:
            self._on_answer(answer)

    def _clean(self, now_s: float) -> None:
        if self._cleaned_s is None or now_s - self._cleaned_s >= _CLEAN_EVERY_S:
            self._cleaned_s = now_s
            self._files.clean(self._clock.now_ms())


def _expired(pipeline: Pipeline, arguments: Mapping[str, Any]) -> Outcome:
    del pipeline, arguments
    raise InvalidRequestError("the request has expired", hint="send it again if it still applies")
