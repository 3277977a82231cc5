# SPDX-License-Identifier: Apache-2.0
"""Events that need attention, sent to webhooks (`alerts.*`; status-api.md lists them).

Each event is a change: a table was parked, a query failed. Lasting conditions (lag, freshness) are
left to metrics and their alert rules. Nothing here blocks or raises.
"""

import dataclasses
import http.client
import json
import logging
import queue
import re
import secrets
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from ingest.config.setting import redacted_url
from ingest.config.settings import AlertSettings
from ingest.errors import kind_of
from ingest.observe.status.status_board import iso
from ingest.pipeline.batch_report import BatchReport
from ingest.schema.routing import Outcome
from storage.clock import Clock

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
    """Sends JSON to webhooks from a separate thread, so that no batch waits for them.

    Best effort: the queue is bounded, and events that do not fit are dropped and counted; a failed
    call is retried a few times with backoff. So an event may be lost, and one whose answer was lost
    is delivered twice. Addresses and headers are secrets: logs contain only the host, and redirects
    are not followed, because they would forward the headers. `send` may be called by any thread.

    Args:
        settings: addresses and headers.
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


WINDOW_S = 600.0
"""Period in which quarantined records are counted, and `quarantine` is sent once per table [s]."""

QUIET_S = 300.0
"""Minimum interval of `stream_failed` with the same text [s]."""

_VARIES = re.compile(r"[0-9A-Fa-f-]{8,}|\d+")
"""Parts of a text that are ignored when texts are compared: numbers, request ids of a store."""

_BODY_VERSION = 1


class Alerts:
    """See the module. Used by the threads that report to `Observer`, one at a time.

    Args:
        settings: settings `alerts.*`.
        counted: called with the outcome of every event: `sent`, `failed`, `dropped`.
    """

    def __init__(
        self,
        pipeline: str,
        settings: AlertSettings,
        clock: Clock,
        counted: Callable[[str], None],
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._clock = clock
        self._counted = counted
        self._sender: WebhookSender | None = None
        self._states: dict[str, str] | None = None
        self._paused: bool | None = None
        self._bad: dict[str, deque[tuple[float, int]]] = {}
        self._quiet_until_s: dict[str, float] = {}
        self._open()

    def _open(self) -> None:
        if self._settings.urls:
            self._sender = WebhookSender(self._settings, self._clock, self._counted)

    def use_settings(self, settings: AlertSettings) -> None:
        """Apply new settings; queued events are sent to the previous addresses or dropped."""
        if settings != self._settings:
            self.close()
            self._settings = settings
            self._open()

    def close(self) -> None:
        """Send queued events, for a few seconds at most."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def document(self) -> dict[str, Any]:
        """Return counts of events since the start of the process."""
        sender = self._sender
        if sender is None:
            return {"enabled": False}
        counts = sender.counts
        return {
            "enabled": True,
            "sent": counts.sent,
            "failed": counts.failed,
            "dropped": counts.dropped,
            "last_error": sender.last_error,
        }

    def batch(self, report: BatchReport, *, again: bool = False) -> None:
        """Send schema changes and quarantined records; `again`: see `BatchReport.is_new`."""
        if self._sender is None:
            return
        for table, decision in report.schema_verdicts:
            change = decision.text
            if decision.outcome is Outcome.APPLIED:
                self._send("schema_applied", f"{table}: {change}", table=table, change=change)
            elif decision.outcome is not Outcome.IGNORED:
                outcome = decision.outcome.value
                text = f"{table}: schema change {outcome}: {change}"
                self._send("schema_refused", text, table=table, change=change, outcome=outcome)
        if report.is_new(again=again):
            self._count_bad(report)

    def _count_bad(self, report: BatchReport) -> None:
        now_s = self._clock.monotonic_s()
        since_s = now_s - WINDOW_S
        self._bad = {t: counts for t, counts in self._bad.items() if counts[-1][0] >= since_s}
        for table, classes in report.bad_by_table.items():
            counts = self._bad.setdefault(table, deque(maxlen=1000))
            counts.append((now_s, sum(classes.values())))
            while counts and counts[0][0] < since_s:
                counts.popleft()
            total = sum(count for _, count in counts)
            if total < self._settings.quarantine_records:
                continue
            target = table or "unknown tables"
            most_frequent = max(classes, key=lambda name: classes[name])
            self._send(
                "quarantine",
                f"{total} records of {target} went to quarantine in ten minutes, "
                f"mostly of class {most_frequent}",
                quiet_s=WINDOW_S,
                key=f"quarantine {table}",
                table=table,
                records=total,
                classes=dict(classes),
            )

    def tables(self, states: Mapping[str, str], reasons: Mapping[str, str]) -> None:
        """Send changes of parked tables; the first call after the start sends nothing."""
        before, self._states = self._states, dict(states)
        if before is None:
            return
        for table, state in sorted(states.items()):
            previous = before.get(table, "running")
            if state == "parked" != previous:
                reason = reasons.get(table, "")
                self._send(
                    "table_parked", f"{table} is parked: {reason}", table=table, reason=reason
                )
            elif previous == "parked" != state:
                self._send("table_resumed", f"{table} is resumed", table=table)

    def paused(self, reason: str | None) -> None:
        """Send a change of the paused state (None = not paused); the first call sends nothing."""
        before, self._paused = self._paused, reason is not None
        if before is None or before == self._paused:
            return
        if reason is not None:
            self._send("stream_paused", f"the stream is paused: {reason}", reason=reason)
        else:
            self._send("stream_resumed", "the stream is resumed")

    def failed(self, error: BaseException, *, fatal: bool) -> None:
        """Send a failure of the query that is retried, or one that ends the process."""
        kind = kind_of(error)
        message = str(error).split("\n", maxsplit=1)[0]
        facts: dict[str, Any] = {"error": type(error).__name__, "message": message}
        facts |= {"action": kind.action, "exit_code": int(kind.exit_code)}
        if fatal:
            text = f"the stream has stopped: {message} (action: {kind.action})"
            self._send("stream_fatal", text, **facts)
            return
        text = f"a batch failed and is retried: {message}"
        key = "failed " + _VARIES.sub("#", message)
        self._send("stream_failed", text, quiet_s=QUIET_S, key=key, **facts)

    def _send(
        self, event: str, text: str, *, quiet_s: float = 0.0, key: str = "", **facts: Any
    ) -> None:
        if self._sender is None or event not in self._settings.events:
            return
        if quiet_s:
            now_s = self._clock.monotonic_s()
            if now_s < self._quiet_until_s.get(key, 0.0):
                return
            self._quiet_until_s = {k: s for k, s in self._quiet_until_s.items() if s > now_s}
            self._quiet_until_s[key] = now_s + quiet_s
        self._sender.send(
            {
                "version": _BODY_VERSION,
                "id": secrets.token_hex(8),
                "event": event,
                "pipeline": self._pipeline,
                "at": iso(self._clock.now_ms()),
                "text": f"[{self._pipeline}] {text}",
                **facts,
            }
        )
