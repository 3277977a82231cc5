# SPDX-License-Identifier: Apache-2.0
"""One port for people and machines: `/metrics`, `/healthz`, `/readyz`, `/api/status`, and `/`.

Liveness says only what a restart can heal (the main loop still beats); readiness says whether the
pipeline does its work, with a reason for each condition that does not hold. There is no
authentication: bind it to a private address.
"""

import html
import http.server
import json
import logging
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from ingest.observing.status_board import StatusBoard
from ingest.observing.telemetry import Metrics

__all__ = ["HttpServer", "StatusBoard"]

_LOG = logging.getLogger(__name__)

_JSON = "application/json; charset=utf-8"

Answer = tuple[HTTPStatus, str, bytes]


class HttpServer:
    """Serves metrics and status on a daemon thread.

    1. The constructor binds the port, so that a taken port is an error at start.
    2. `start` begins to answer; `close` ends it. It is also a context manager of both.

    Args:
        metrics: what `/metrics` shows.
        board: what the other pages show.
        host: address to listen on.
        port: port; 0 = any free one, see `port`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, metrics: Metrics, board: StatusBoard, *, host: str, port: int) -> None:
        self._metrics = metrics
        self._board = board
        self._server = _Server((host, port), self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="http", daemon=True, args=(0.2,)
        )

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Base address of the pages."""
        return f"http://{self._server.server_address[0]!s}:{self.port}"

    def start(self) -> "HttpServer":
        """Begin to answer."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop answering and free the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> "HttpServer":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        if path == "/metrics":
            body, content_type = self._metrics.exposition(headers.get("Accept", ""))
            return HTTPStatus.OK, content_type, body
        if path == "/healthz":
            healthy, document = self._board.health()
            return _json(document, ok=healthy)
        if path == "/readyz":
            ready, document = self._board.readiness()
            return _json(document, ok=ready)
        if path == "/api/status":
            return _json(self._status(), ok=True)
        if path == "/":
            page = _page(self._status())
            return HTTPStatus.OK, "text/html; charset=utf-8", page.encode()
        return None

    def _status(self) -> dict[str, Any]:
        document = self._board.document()
        for table, seconds in self._metrics.freshness_s().items():
            document["tables"].setdefault(table, {})["freshness_s"] = round(seconds, 3)
        for (topic, partition), lag in self._metrics.lag().items():
            parts = document["source"].setdefault(topic, {})
            parts.setdefault(str(partition), {})["lag"] = lag
        return document


def _json(document: Mapping[str, Any], *, ok: bool) -> Answer:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return status, _JSON, (json.dumps(document, indent=2, default=str) + "\n").encode()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[str, Mapping[str, str]], Answer | None],
    ) -> None:
        self.answer = answer
        super().__init__(address, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    """GET and HEAD only; everything else is answered by the base class with 501."""

    server: _Server
    server_version = "lakeward"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        """Answer a page."""
        self._send(body_too=True)

    def do_HEAD(self) -> None:
        """Answer a page's headers."""
        self._send(body_too=False)

    def _send(self, *, body_too: bool) -> None:
        path = self.path.partition("?")[0]
        answer = self.server.answer(path, dict(self.headers))
        if answer is None:
            hint = b"try / /metrics /healthz /readyz /api/status\n"
            answer = (HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", hint)
        status, content_type, body = answer
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if body_too:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are debug noise."""
        _LOG.debug("http request", extra={"request": format % args})


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .8rem .2rem 0;"
    "border-bottom:1px solid #8884}.bad{color:#b00020}h1 small{font-weight:400;color:#777}"
)


def _page(status: Mapping[str, Any]) -> str:
    """The status page: reloads itself, needs nothing from elsewhere."""
    rows = [
        [
            table,
            facts.get("state", "running"),
            facts.get("snapshot_id", ""),
            facts.get("rows", 0),
            facts.get("freshness_s", ""),
        ]
        for table, facts in sorted(status["tables"].items())
    ]
    offsets = [
        [topic, partition, facts.get("committed", ""), facts.get("lag", "")]
        for topic, parts in sorted(status["source"].items())
        for partition, facts in sorted(parts.items())
    ]
    reasons = [c["reason"] for c in status["conditions"].values() if not c["ok"]]
    reasons += [
        f"{table} is parked: {facts.get('reason', '')}"
        for table, facts in sorted(status["tables"].items())
        if facts.get("state") == "parked"
    ]
    batch = status["batch"]
    latest = batch.get("last") or {}
    errors = [[e["at"], e["type"], e["message"]] for e in status["errors"]]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>",
        f"<title>{_e(status['pipeline'])} · Lakeward</title><style>{_STYLE}</style>",
        f"<h1>{_e(status['pipeline'])} <small>{_e(status['state'])}</small></h1>",
        "".join(f"<p class=bad>{_e(reason)}</p>" for reason in reasons),
        f"<p>Batch {_e(latest.get('batch_id', '–'))}: {_e(latest.get('outcome', 'none yet'))}, "
        f"{_e(latest.get('events', 0))} events in {_e(latest.get('duration_s', 0))} s. "
        f"Up {_e(status['uptime_s'])} s, version {_e(status['version'])}.</p>",
        _html_table(["table", "state", "snapshot", "rows written", "freshness [s]"], rows),
        _html_table(["topic", "partition", "next offset", "lag"], offsets),
        _html_table(["errors", "type", "message"], errors) if errors else "",
        "<p><a href=/metrics>metrics</a> · <a href=/api/status>status as JSON</a> · "
        "<a href=/readyz>readiness</a> · <a href=/healthz>health</a></p></html>",
    ]
    return "\n".join(parts)


def _html_table(head: list[str], rows: list[list[Any]]) -> str:
    titles = "".join(f"<th>{_e(each)}" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{_e(cell)}" for cell in row) for row in rows)
    return f"<h2>{_e(head[0])}</h2><table><tr>{titles}{body}</table>" if rows else ""


def _e(value: object) -> str:
    return html.escape(str(value))
