# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoint of the daemon: status page, status as JSON, metrics, probes and control.

`/`, `/api/status`, `/metrics`, `/healthz`, `/readyz`, `/config`; POST only for `control`. Liveness
fails only for conditions that a restart fixes (the main loop is stuck, the JVM has exited);
readiness fails while the pipeline does not process data, with a reason for each failed condition.
Reading needs no authentication: bind it to a private address.
"""

import base64
import dataclasses
import functools
import gzip
import hashlib
import hmac
import http.server
import importlib.resources
import json
import logging
import re
import socket
import sys
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from ingest.observe.metrics.layout_figures import TableLayout
from ingest.observe.metrics.telemetry import Metrics
from ingest.observe.status.status_board import StatusBoard
from ingest.state.request_files import RequestFiles
from storage.clock import Clock
from storage.errors import LakewardError

# Control over HTTP: `POST /api/pause`, `resume`, `reload`, `compact`, `drain`, behind a token.
#
# Disabled unless `control.token` is set. A call becomes a request file like those of the commands
# (`ingest.daemon.requests`), so it survives a crash of the process. Other sites cannot forge calls:
# the token is not a cookie, the body must be JSON, and cross-site calls are refused. Wrong tokens
# are counted by address; after a few the address is blocked for a minute.


_LOG = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Wrong tokens of one address within `LOCKED_S` after which it is blocked."""

LOCKED_S = 60.0
"""Period in which wrong tokens are counted [s]."""

_MAX_ADDRESSES = 1000
_MAX_WAIT_S = 60.0
_POLL_S = 0.2

_MEMBERS: Mapping[str, Mapping[str, type]] = {
    "check": {},
    "pause": {"tables": list, "reason": str},
    "resume": {"tables": list, "skip_missed": bool},
    "reload": {},
    "compact": {"table": str},
    "drain": {},
}
"""Fields of the body by action, with their types; every action also has `wait_s`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a call."""

    status: HTTPStatus
    document: Mapping[str, Any]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class _RefusedCallError(Exception):
    def __init__(self, status: HTTPStatus, error: str, **headers: str) -> None:
        super().__init__(error)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.reply = Reply(status, {"error": error}, fields)


class Control:
    """See the module. Thread-safe.

    Args:
        token: bearer token of callers; None = control is disabled.
        files: request files.
        drain: makes the daemon finish its batch and exit.
        wake: makes the daemon poll for requests immediately.
    """

    def __init__(
        self,
        token: str | None,
        files: RequestFiles,
        *,
        drain: Callable[[], None],
        wake: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._token = token
        self._files = files
        self._drain = drain
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: dict[str, deque[float]] = {}

    @property
    def enabled(self) -> bool:
        """Whether control is enabled."""
        return self._token is not None

    def use_token(self, token: str | None) -> None:
        """Replace the token."""
        self._token = token

    @staticmethod
    def knows(path: str) -> bool:
        """Return whether a path is that of an action."""
        return path.startswith("/api/") and path[len("/api/") :] in _MEMBERS

    def call(self, path: str, headers: Mapping[str, str], body: bytes, address: str) -> Reply:
        """Answer a POST.

        Args:
            path: path of an action (see `knows`).
            headers: headers of the call; names in any case.
            body: JSON.
            address: address of the caller, for the log and the count of wrong tokens.
        """
        action = path[len("/api/") :]
        try:
            self._admit({name.lower(): value for name, value in headers.items()}, address)
            reply = self._do(action, _members(action, body), address)
        except _RefusedCallError as refused:
            reply = refused.reply
        except (LakewardError, OSError) as error:
            reply = Reply(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)})
        refused_call = reply.status >= HTTPStatus.BAD_REQUEST
        _LOG.log(
            logging.WARNING if refused_call else logging.INFO,
            "control",
            extra={
                "event": "control",
                "action": action,
                "address": address,
                "status": int(reply.status),
                **({"reason": reply.document.get("error", "")} if refused_call else {}),
            },
        )
        return reply

    def _admit(self, headers: Mapping[str, str], address: str) -> None:
        token = self._token
        if token is None:
            raise _RefusedCallError(
                HTTPStatus.NOT_FOUND, "control over HTTP is disabled: set `control.token`"
            )
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise _RefusedCallError(HTTPStatus.FORBIDDEN, "cross-site requests are refused")
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _RefusedCallError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the content type must be application/json"
            )
        if self._locked(address):
            raise _RefusedCallError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many wrong tokens from this address",
                Retry_After=str(int(LOCKED_S)),
            )
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(credentials.strip().encode(), token.encode())
        if scheme.lower() != "bearer" or not matches:
            self._remember(address)
            raise _RefusedCallError(
                HTTPStatus.UNAUTHORIZED,
                "the token is missing or wrong",
                WWW_Authenticate='Bearer realm="lakeward"',
            )

    def _locked(self, address: str) -> bool:
        now_s = self._clock.monotonic_s()
        with self._lock:
            wrong = self._wrong.get(address)
            while wrong and now_s - wrong[0] >= LOCKED_S:
                wrong.popleft()
            return wrong is not None and len(wrong) >= MAX_ATTEMPTS

    def _remember(self, address: str) -> None:
        with self._lock:
            wrong = self._wrong.pop(address, None) or deque(maxlen=MAX_ATTEMPTS)
            wrong.append(self._clock.monotonic_s())
            self._wrong[address] = wrong
            while len(self._wrong) > _MAX_ADDRESSES:
                del self._wrong[next(iter(self._wrong))]

    def _do(self, action: str, members: dict[str, Any], address: str) -> Reply:
        wait_s = float(min(members.pop("wait_s", 0), _MAX_WAIT_S))
        if action == "check":
            return Reply(HTTPStatus.OK, {"state": "done", "text": "the token is valid"})
        if action == "drain":
            self._drain()
            return Reply(
                HTTPStatus.ACCEPTED,
                {"state": "working", "text": "finishing the batch in progress, then exiting"},
            )
        kind, arguments = _request(action, members, address)
        request = self._files.ask(kind, arguments, now_ms=self._clock.now_ms())
        self._wake()
        return self._outcome(request.id, kind, wait_s)

    def _outcome(self, request: str, kind: str, wait_s: float) -> Reply:
        """Return the outcome of a request, waiting for it as long as the caller wants."""
        facts = {"request": request, "kind": kind}
        deadline = self._clock.monotonic_s() + wait_s
        while self._clock.monotonic_s() < deadline:
            answer = self._files.answer(request)
            if answer is not None and answer.final:
                facts |= {"state": answer.state, "text": answer.text, "hint": answer.hint}
                succeeded = answer.state == "done"
                return Reply(HTTPStatus.OK if succeeded else HTTPStatus.CONFLICT, facts)
            self._clock.sleep(_POLL_S)
        text = "request submitted; it is handled between two batches"
        return Reply(HTTPStatus.ACCEPTED, {**facts, "state": "waiting", "text": text})


def _members(action: str, body: bytes) -> dict[str, Any]:
    try:
        members = json.loads(body) if body else {}
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise _RefusedCallError(HTTPStatus.BAD_REQUEST, "the body must be one JSON object")
    allowed: dict[str, type | tuple[type, ...]] = {**_MEMBERS[action], "wait_s": (int, float)}
    for name, value in members.items():
        kind = allowed.get(name)
        if kind is None:
            names = ", ".join(sorted(allowed))
            raise _RefusedCallError(
                HTTPStatus.BAD_REQUEST, f"unknown field `{name}`; known fields: {names}"
            )
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _RefusedCallError(HTTPStatus.BAD_REQUEST, f"wrong type of the field `{name}`")
    return members


def _request(action: str, members: dict[str, Any], address: str) -> tuple[str, dict[str, Any]]:
    """Return kind and arguments of a request: for the whole stream, unless tables are named."""
    if action in ("reload", "compact"):
        return action, members
    if "tables" not in members:
        if action == "pause":
            reason = members.get("reason") or f"paused over HTTP from {address}"
            return "pause_stream", {"reason": reason}
        return "resume_stream", {}
    if action == "pause":
        members.setdefault("reason", f"paused over HTTP from {address}")
    return action, members


MAX_TABLES = 2000
"""Maximum number of tables in the document; parked and busy ones come first."""


def status_document(
    board: StatusBoard, metrics: Metrics, more: Mapping[str, Any], *, most: int = MAX_TABLES
) -> dict[str, Any]:
    """Return the document.

    Args:
        metrics: freshness and lag.
        more: further fields.
        most: maximum number of tables.
    """
    document = board.document()
    tables: dict[str, dict[str, Any]] = document["tables"]
    freshness = metrics.freshness_s()
    for table, seconds in freshness.items():
        tables.setdefault(table, {})["freshness_s"] = round(seconds, 3)
    for table, layout in metrics.layouts().items():
        tables.setdefault(table, {})["layout"] = _layout(layout)
    flowing = [s for name, s in freshness.items() if tables[name].get("state") != "parked"]
    lags = metrics.lag()
    for (topic, partition), lag in lags.items():
        parts = document["source"].setdefault(topic, {})
        parts.setdefault(str(partition), {})["lag"] = lag
    history = board.history.document()
    document["summary"] = {
        "lag_records": sum(lags.values()) if lags else None,
        "freshness_s": round(max(flowing), 3) if flowing else None,
        "records_per_s": _last(history.get("records_per_s")),
        "rows_per_s": _last(history.get("rows_per_s")),
        "tables": len(tables),
        "parked": sum(facts.get("state") == "parked" for facts in tables.values()),
    }
    document["history"] = history
    for table, values in board.history.sparks("rows_per_s").items():
        if table in tables:
            tables[table]["spark"] = values
    document["tables_left_out"] = max(0, len(tables) - most)
    if len(tables) > most:
        document["tables"] = dict(sorted(tables.items(), key=_first)[:most])
    return {**document, **more}


def table_document(board: StatusBoard, metrics: Metrics, table: str) -> dict[str, Any] | None:
    """Return the status of one table; None = unknown table."""
    document = status_document(board, metrics, {}, most=sys.maxsize)
    facts = document["tables"].get(table)
    if facts is None:
        return None
    changes = [change for change in document["schema_changes"] if change["table"] == table]
    return {
        "api": document["api"],
        "pipeline": document["pipeline"],
        "now": document["now"],
        "table": table,
        **{name: value for name, value in facts.items() if name != "spark"},
        "history": board.history.of_table(table),
        "quarantine": document["quarantine"]["by_table"].get(table, {}),
        "schema_changes": changes,
    }


def _layout(layout: TableLayout) -> dict[str, Any]:
    return {
        "snapshot_id": layout.snapshot_id,
        "files": layout.files,
        "bytes": layout.bytes,
        "records": layout.records,
        "buckets": layout.buckets,
        "partitions": layout.partitions,
        "levels": [
            {"level": level, "files": files, "bytes": size} for level, files, size in layout.levels
        ],
        "runs_max": max(layout.runs, default=None),
        "runs_compact": layout.compaction_trigger,
        "runs_stop": layout.stop_trigger,
        "debt_bytes": layout.debt_bytes,
        "snapshots": layout.snapshots,
    }


def _first(entry: tuple[str, Mapping[str, Any]]) -> tuple[bool, float, str]:
    name, facts = entry
    calm = facts.get("state", "running") == "running"
    return calm, -float(facts.get("rows_per_s") or 0.0), name


def _last(values: list[float | None] | None) -> float | None:
    return values[-1] if values else None


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """The page and its content security policy."""

    body: bytes
    policy: str


@functools.cache
def status_page() -> Page:
    """The page; the same for every pipeline."""
    text = (
        importlib.resources.files("ingest.observe.status").joinpath("status_page.html").read_text()
    )
    style, script = (
        " ".join(_hash(block) for block in re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
        for tag in ("style", "script")
    )
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(text.encode(), policy)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_MAX_BODY = 64 * 1024
_GZIP_FROM = 4096


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request: header names in lower case; the last value of each query parameter."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    address: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class HttpServer:
    """Serves metrics, status and control on a daemon thread; context manager of `start`, `close`.

    The constructor binds the port, so that a port in use is an error at start.

    Args:
        metrics: metrics of `/metrics`.
        board: status of the other pages.
        host: address to listen on.
        port: port; 0 = a free one, see `port`.
        control: handler of POST; None = none.
        more: further fields of `/api/status`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self,
        metrics: Metrics,
        board: StatusBoard,
        *,
        host: str,
        port: int,
        control: Control | None = None,
        more: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._metrics = metrics
        self._board = board
        self._control = control
        self._more = more
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
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> "HttpServer":
        """Start serving."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop serving and release the port."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> "HttpServer":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _answer(self, call: _Call) -> _Answer:
        if call.method == "POST":
            return self._post(call)
        page = self._pages().get(call.path)
        if page is None:
            if Control.knows(call.path):
                status, text = HTTPStatus.METHOD_NOT_ALLOWED, "method not allowed: use POST\n"
                return _Answer(status, _TEXT, text.encode(), {"Allow": "POST"})
            hint = f"try {' '.join(self._pages())}\n"
            return _Answer(HTTPStatus.NOT_FOUND, _TEXT, hint.encode())
        return page(call)

    def _pages(self) -> Mapping[str, Callable[[_Call], _Answer]]:
        return {
            "/": self._page,
            "/metrics": self._exposition,
            "/healthz": lambda call: _json(*self._board.health()),
            "/readyz": lambda call: _json(*self._board.readiness()),
            "/api/status": self._status,
            "/config": lambda call: _json(True, self._board.settings()),
        }

    def _page(self, call: _Call) -> _Answer:
        del call
        page = status_page()
        return _Answer(
            HTTPStatus.OK,
            "text/html; charset=utf-8",
            page.body,
            {"Content-Security-Policy": page.policy},
        )

    def _exposition(self, call: _Call) -> _Answer:
        body, content_type = self._metrics.exposition(call.headers.get("accept", ""))
        return _Answer(HTTPStatus.OK, content_type, body)

    def _status(self, call: _Call) -> _Answer:
        if "table" in call.query:
            table = table_document(self._board, self._metrics, call.query["table"])
            if table is None:
                return _Answer(HTTPStatus.NOT_FOUND, _JSON, _compact({"error": "no such table"}))
            return _Answer(HTTPStatus.OK, _JSON, _compact(table))
        more = {"control": {"enabled": self._control is not None and self._control.enabled}}
        more |= {} if self._more is None else self._more()
        document = status_document(self._board, self._metrics, more)
        return _Answer(HTTPStatus.OK, _JSON, _compact(document))

    def _post(self, call: _Call) -> _Answer:
        if self._control is None or not Control.knows(call.path):
            status = HTTPStatus.METHOD_NOT_ALLOWED if call.path in self._pages() else None
            text = b"no such endpoint for POST\n"
            return _Answer(status or HTTPStatus.NOT_FOUND, _TEXT, text)
        if len(call.body) > _MAX_BODY:
            return _Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TEXT, b"the body is too large\n")
        reply = self._control.call(call.path, call.headers, call.body, call.address)
        return _Answer(reply.status, _JSON, _compact(reply.document), reply.headers)


def _json(ok: bool, document: Mapping[str, Any]) -> _Answer:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return _Answer(status, _JSON, (json.dumps(document, indent=2, default=str) + "\n").encode())


def _compact(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, separators=(",", ":"), default=str) + "\n").encode()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], answer: Callable[[_Call], _Answer]) -> None:
        self.answer = answer
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error: the base class writes to standard error, even for lost connections."""
        del request
        disconnected = isinstance(sys.exception(), (ConnectionError, TimeoutError))
        _LOG.log(
            logging.DEBUG if disconnected else logging.ERROR,
            "an HTTP request failed",
            extra={"event": "http_failed", "client": client_address},
            exc_info=True,
        )


class _Handler(http.server.BaseHTTPRequestHandler):
    """Handles GET, HEAD and POST; the base class answers other methods with 501."""

    server: _Server
    server_version = "lakeward"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        """Answer with a page."""
        self._send("GET", b"")

    def do_HEAD(self) -> None:
        """Answer with the headers of a page."""
        self._send("HEAD", b"")

    def do_POST(self) -> None:
        """Answer a control call."""
        length = self.headers.get("Content-Length", "0")
        count = int(length) if length.isdecimal() else 0
        self._send("POST", self.rfile.read(min(count, _MAX_BODY + 1)))

    def _send(self, method: str, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        answer = self.server.answer(
            _Call(
                method=method,
                path=path,
                query=dict(urllib.parse.parse_qsl(query)),
                headers={name.lower(): value for name, value in self.headers.items()},
                body=body,
                address=str(self.client_address[0]),
            )
        )
        headers = {
            "Content-Type": answer.content_type,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            **answer.headers,
        }
        data = answer.body
        if len(data) >= _GZIP_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            data = gzip.compress(data, compresslevel=2)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        self.send_response(answer.status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if method != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log requests at debug level."""
        _LOG.debug("http request", extra={"request": format % args})
