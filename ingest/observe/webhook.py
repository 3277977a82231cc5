# SPDX-License-Identifier: Apache-2.0
"""Sends JSON to webhooks from a thread of its own, so that no batch waits for them.

Best effort: the queue is bounded, what does not fit is dropped and counted; a call that fails is
tried again a few times, waiting longer each time, and then given up. So an event may be
lost, and one whose answer was lost comes twice. Addresses and headers are secrets: logs name the
host alone, and redirects are not followed, for they would carry the headers elsewhere.
"""

import dataclasses
import http.client
import json
import logging
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from ingest.config.setting import redacted_url
from ingest.config.setting_values import AlertSettings
from storage.clock import Clock

__all__ = ["QUEUE_LIMIT", "Counts", "WebhookSender"]

_LOG = logging.getLogger(__name__)

QUEUE_LIMIT = 500
"""Events that wait at most; a stream with more news than that is not helped by more messages."""

_WAITS_S = (1.0, 5.0, 30.0, 120.0)
"""Before each further try [s]: a receiver that restarts is back by then."""

_TIMEOUT_S = 10.0
_AGAIN = frozenset({408, 425, 429})
_CLOSE_S = 5.0


@dataclasses.dataclass(slots=True)
class Counts:
    """What became of events, one for each address: sent, given up, dropped unsent."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Refuse: the answer counts as a failure."""


class WebhookSender:
    """See the module. `send` may be called by any thread and returns at once.

    Args:
        settings: addresses and headers.
        clock: time.
        counted: told of every outcome: `sent`, `failed`, `dropped`.
        waits_s: before each further try [s].
    """

    def __init__(
        self,
        settings: AlertSettings,
        clock: Clock,
        counted: Callable[[str], None],
        waits_s: tuple[float, ...] = _WAITS_S,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._counted = counted
        self._waits_s = waits_s
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(QUEUE_LIMIT)
        self._closing = threading.Event()
        self._abandoned = False
        self._opener = urllib.request.build_opener(_NoRedirect())
        self.counts = Counts()
        self.last_error = ""
        self._thread = threading.Thread(target=self._work, name="webhooks", daemon=True)
        self._thread.start()

    def send(self, event: Mapping[str, Any]) -> None:
        """Queue an event, or drop it if too many wait."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._count("dropped")
            _LOG.warning(
                "too many events wait for webhooks, one is dropped",
                extra={"event": "alert_dropped", "kind": event.get("event")},
            )

    def close(self, within_s: float = _CLOSE_S) -> None:
        """Send what waits, for so long; the rest is dropped. Nothing is tried again."""
        self._closing.set()
        deadline = self._clock.monotonic_s() + within_s
        while self._thread.is_alive() and self._clock.monotonic_s() < deadline:
            try:
                self._queue.put_nowait(None)
                break
            except queue.Full:
                self._clock.sleep(0.05)
        self._thread.join(max(0.1, deadline - self._clock.monotonic_s()))
        self._abandoned = True

    def _work(self) -> None:
        while (event := self._queue.get()) is not None and not self._abandoned:
            text = json.dumps(event, ensure_ascii=False, default=str)
            body = text.encode(errors="replace")  # names of files may hold what UTF-8 does not
            for url in self._settings.urls:
                self._deliver(url, body, str(event.get("event")))

    def _deliver(self, url: str, body: bytes, kind: str) -> None:
        trouble = ""
        for wait_s in (*self._waits_s, None):
            trouble, again = self._post(url, body)
            if not trouble:
                self._count("sent")
                return
            if not again or wait_s is None or self._closing.wait(wait_s):
                break
        self._count("failed")
        self.last_error = f"{redacted_url(url)}: {trouble}"
        _LOG.warning(
            "a webhook was not told",
            extra={
                "event": "alert_failed",
                "kind": kind,
                "address": redacted_url(url),
                "reason": trouble,
            },
        )

    def _post(self, url: str, body: bytes) -> tuple[str, bool]:
        """What went wrong, if anything; whether trying again may help."""
        headers = {"Content-Type": "application/json", "User-Agent": "lakeward"}
        request = urllib.request.Request(
            url, data=body, headers={**headers, **self._settings.headers}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                answer.read(1024)
            return "", False
        except urllib.error.HTTPError as error:
            error.close()
            return f"HTTP {error.code}", error.code >= 500 or error.code in _AGAIN
        except urllib.error.URLError as error:
            return type(error.reason).__name__, True
        except (OSError, http.client.HTTPException, ValueError) as error:
            return type(error).__name__, not isinstance(error, ValueError)

    def _count(self, outcome: str) -> None:
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)
        self._counted(outcome)
