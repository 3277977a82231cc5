# SPDX-License-Identifier: Apache-2.0
"""Send JSON to webhooks from a separate thread, so that no batch waits for them.

Best effort: the queue is bounded, and events that do not fit are dropped and counted; a failed call
is retried a few times with backoff. So an event may be lost, and one whose answer was lost is
delivered twice. Addresses and headers are secrets: logs contain only the host, and redirects are
not followed, because they would forward the headers.
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
"""Maximum number of queued events."""

_BACKOFF_S = (1.0, 5.0, 30.0, 120.0)
"""Delays before retries [s]: long enough for a restart of the receiver."""

_TIMEOUT_S = 10.0
_RETRIED = frozenset({408, 425, 429})
_CLOSE_S = 5.0


@dataclasses.dataclass(slots=True)
class Counts:
    """Counts of events, per address: sent, failed after retries, dropped from the queue."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Refuse redirects: they count as failures."""


class WebhookSender:
    """See the module. `send` may be called by any thread and returns immediately.

    Args:
        settings: addresses and headers.
        clock: clock.
        counted: called with every outcome: `sent`, `failed`, `dropped`.
        waits_s: delays before retries [s].
    """

    def __init__(
        self,
        settings: AlertSettings,
        clock: Clock,
        counted: Callable[[str], None],
        waits_s: tuple[float, ...] = _BACKOFF_S,
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
        """Queue an event, or drop it if the queue is full."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._count("dropped")
            _LOG.warning(
                "the queue of webhook events is full, an event is dropped",
                extra={"event": "alert_dropped", "kind": event.get("event")},
            )

    def close(self, within_s: float = _CLOSE_S) -> None:
        """Send queued events for at most `within_s`, without retries; drop the rest."""
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
            body = text.encode(errors="replace")  # file names may not be valid UTF-8
            for url in self._settings.urls:
                self._deliver(url, body, str(event.get("event")))

    def _deliver(self, url: str, body: bytes, kind: str) -> None:
        reason = ""
        for wait_s in (*self._waits_s, None):
            reason, retryable = self._post(url, body)
            if not reason:
                self._count("sent")
                return
            if not retryable or wait_s is None or self._closing.wait(wait_s):
                break
        self._count("failed")
        self.last_error = f"{redacted_url(url)}: {reason}"
        _LOG.warning(
            "sending an event to a webhook failed",
            extra={
                "event": "alert_failed",
                "kind": kind,
                "address": redacted_url(url),
                "reason": reason,
            },
        )

    def _post(self, url: str, body: bytes) -> tuple[str, bool]:
        """Return the failure, empty if none, and whether it is retryable."""
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
            return f"HTTP {error.code}", error.code >= 500 or error.code in _RETRIED
        except urllib.error.URLError as error:
            return type(error.reason).__name__, True
        except (OSError, http.client.HTTPException, ValueError) as error:
            return type(error).__name__, not isinstance(error, ValueError)

    def _count(self, outcome: str) -> None:
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)
        self._counted(outcome)
