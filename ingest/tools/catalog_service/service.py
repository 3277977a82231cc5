# SPDX-License-Identifier: Apache-2.0
"""The service: one catalog, its limits, and the application with the routes of both protocols.

Every request passes the gateway: it is authenticated before it is routed, so that no path, known or
unknown, answers without a token where there are tokens; it is counted, timed and logged. Calls of
the catalog run in a pool of threads of bounded size with a bounded queue.
"""

import asyncio
import contextlib
import dataclasses
import functools
import ipaddress
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ingest.observe.metrics.instruments import Instruments
from ingest.observe.metrics.metric_table import CATALOG_METRICS
from ingest.tools.catalog_service import iceberg_routes, paimon_routes
from ingest.tools.catalog_service.access import EVERYBODY, Principal, Tokens
from ingest.tools.catalog_service.protected import (
    PRINCIPAL,
    Answer,
    Call,
    Failure,
    Protected,
    failure_of,
    protected,
    response_of,
)
from storage.catalog.catalog import Catalog
from storage.errors import InternalError, InvalidOptionError

_LOG = logging.getLogger(__name__)

HEALTH = "/healthz"
METRICS = "/metrics"
IN_FLIGHT = "catalog_requests_in_flight"
_READ_ON = 4
"""Multiple of the largest body up to which a larger one is received and discarded.

A connection that is closed while the client sends is reset: the client does not see the response.
"""

_ERROR_FORMS: Mapping[str, Callable[[Failure], Any]] = {
    paimon_routes.PREFIX: paimon_routes.error_document,
    iceberg_routes.PREFIX: iceberg_routes.error_document,
}
"""Form of errors by path prefix; of other paths the first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of requests.

    Attributes:
        body_bytes: largest body; beyond 413.
        seconds: longest time of a request; beyond 504, but a commit in progress continues.
        threads: calls of the catalog at a time.
        waiting: requests that wait for a thread; beyond 503.
    """

    body_bytes: int = 32 << 20
    seconds: float = 60.0
    threads: int = 16
    waiting: int = 256


@dataclasses.dataclass(frozen=True)
class CatalogService:
    """One served catalog; must be closed.

    Attributes:
        catalog: of any kind.
        tokens: None: no authentication.
        limits: of requests.
        prefix: of the path of resources, after the version.
        hand_out_credentials: whether clients get the options of the object store.
    """

    catalog: Catalog
    tokens: Tokens | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    prefix: str = "lakeward"
    hand_out_credentials: bool = False

    @functools.cached_property
    def metrics(self) -> Instruments:
        """Metrics of the service."""
        return Instruments(CATALOG_METRICS)

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.limits.threads, thread_name_prefix="catalog")

    @functools.cached_property
    def _running(self) -> set["Future[Any]"]:
        return set()

    @property
    def in_flight(self) -> int:
        """Requests in progress."""
        return int(self.metrics.get(IN_FLIGHT) or 0)

    def close(self) -> None:
        """Wait for running calls of the catalog."""
        self._threads.shutdown(wait=True)

    def authenticate(self, headers: Mapping[str, str]) -> Principal:
        """The principal of a request.

        Raises:
            Failure: the request has no valid token.
        """
        if self.tokens is None:
            return EVERYBODY
        scheme, _, token = headers.get("authorization", "").partition(" ")
        principal = self.tokens.principal(token.strip()) if scheme.lower() == "bearer" else None
        if principal is None:
            raise Failure(401, "the request needs a valid token: `Authorization: Bearer …`")
        return principal

    async def run(self, call: Callable[[], Any]) -> Any:
        """Run a call of the catalog in a thread.

        Raises:
            Failure: too many wait for one (503), or it takes too long (504) and continues.
        """
        if len(self._running) >= self.limits.threads + self.limits.waiting:
            raise Failure(503, "the service is busy: try again later")
        future = self._threads.submit(call)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        waited = asyncio.wrap_future(future)
        waited.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await self._in_time(asyncio.shield(waited))

    async def body_of(self, request: Request) -> bytes:
        """The body of a request.

        Raises:
            Failure: it is too large (413), or comes too slowly (504).
        """
        return bytes(await self._in_time(self._read(request)))

    async def _in_time(self, awaitable: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await awaitable
        except TimeoutError as error:
            raise Failure(504, f"no answer within {self.limits.seconds:g} s") from error

    async def _read(self, request: Request) -> bytearray:
        most = self.limits.body_bytes
        length = request.headers.get("content-length", "")
        body = bytearray()
        received = int(length) if length.isdecimal() else 0
        if received <= _READ_ON * most:
            received = 0
            async for chunk in request.stream():
                received += len(chunk)
                if received <= most:
                    body += chunk
                elif received > _READ_ON * most:
                    break
        if received > most:
            raise Failure(413, f"the body has more than {most} bytes")
        return body


class _Gateway:
    """Authenticates, counts and logs requests; turns exceptions into responses."""

    def __init__(self, app: ASGIApp, service: CatalogService) -> None:
        self._app = app
        self._service = service
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        response = _RequestRecord(send)
        self._count(1)
        try:
            await self._answer(scope, receive, response)
        except Exception as error:  # noqa: BLE001 - every error gets a response
            if not response.status:
                await _error_response(scope, failure_of(error))(scope, receive, response)
        finally:
            self._count(-1)
            self._record(scope, response, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if raw:  # clients use form encoding: a space is `+`
            scope["path"] = unquote_plus(raw.partition(b"?")[0].decode("latin-1"))
        if scope["path"] == HEALTH and scope["method"] in ("GET", "HEAD"):
            await response_of({"status": "ok"})(scope, receive, send)
            return
        scope[PRINCIPAL] = self._service.authenticate(Request(scope).headers)
        await self._app(scope, receive, send)

    def _count(self, by: int) -> None:
        self._in_flight += by
        self._service.metrics.set(IN_FLIGHT, self._in_flight)

    def _record(self, scope: Scope, request: "_RequestRecord", seconds: float) -> None:
        endpoint = scope.get("endpoint")
        template = endpoint.template if isinstance(endpoint, Protected) else "other"
        if scope["path"] == HEALTH:
            template = HEALTH
        method, status = scope["method"], str(request.status or 500)
        method = method if method in _METHODS else "other"
        metrics = self._service.metrics
        metrics.add("catalog_requests_total", 1, template, method, status)
        metrics.observe("catalog_request_duration_seconds", seconds, template, method)
        principal = scope.get(PRINCIPAL)
        _LOG.log(
            logging.DEBUG if template in (HEALTH, METRICS) else logging.INFO,
            "%s %s %s",
            scope["method"],
            scope["path"],
            status,
            extra={
                "event": "catalog_request",
                "method": scope["method"],
                "path": scope["path"],
                "principal": None if principal is None else principal.name,
                "status": int(status),
                "ms": round(seconds * 1000, 2),
                "bytes": request.bytes,
            },
        )


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _RequestRecord:
    """Status and size of a response that is being sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
        self.bytes += len(message.get("body", b""))
        await self._send(message)


def _error_response(scope: Scope, failure: Failure) -> Response:
    form = next(
        (form for prefix, form in _ERROR_FORMS.items() if scope["path"].startswith(f"{prefix}/")),
        paimon_routes.error_document,
    )
    headers = {
        401: {"WWW-Authenticate": "Bearer"},
        413: {"Connection": "close"},
        503: {"Retry-After": "1"},
    }
    return response_of(Answer(form(failure), failure.status, headers.get(failure.status, {})))


async def _http_failed(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise InternalError("not an HTTP error", detail=repr(error))
    return _error_response(
        request.scope, Failure(error.status_code, error.detail, resource="RESOURCE")
    )


def create_app(service: CatalogService) -> Starlette:
    """The application with all routes.

    Raises:
        InternalError: a route does not declare the access that it requires.
    """

    def metrics(call: Call) -> Answer:
        body, content_type = service.metrics.exposition(call.headers.get("accept", ""))
        return Answer(body, headers={"Content-Type": content_type})

    anyone = protected(service, access="read", database=None)
    routes = [
        Route(METRICS, anyone(metrics), methods=["GET"]),
        *paimon_routes.paimon_routes(service),
        *iceberg_routes.iceberg_routes(service),
    ]
    for route in routes:
        if not isinstance(route.endpoint, Protected):
            raise InternalError("a route does not declare its required access", path=route.path)
        route.endpoint.template = route.path
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Gateway, service=service)],
        exception_handlers={HTTPException: _http_failed},
    )


# The HTTP server of the catalog service: uvicorn, with TLS, ended gracefully by SIGTERM.


logging.getLogger("uvicorn").setLevel(logging.WARNING)  # what it says the service says itself

_POLL_S = 0.1
_GRACE_S = 0.5
"""How long requests on their way have to arrive, and answers to be sent."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclasses.dataclass(frozen=True, slots=True)
class Listening:
    """Where the service listens.

    Attributes:
        host: address or name of this machine.
        port: 0: a free one.
        certificate: PEM file of the certificate and its chain; None: no TLS.
        key: PEM file of its key.
        drain_s: how long requests under way may take after SIGTERM [s].
    """

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    drain_s: int = 20

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Server(uvicorn.Server):
    """Uvicorn's server; signals are those of `serve`, after which the process ends with code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See uvicorn."""
        yield


def serve(
    service: CatalogService,
    at: Listening,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT: no new connections, those under way are finished.

    Args:
        service: closed at the end.
        at: where to listen.
        started: called with the address when requests are taken.

    Raises:
        InvalidOptionError: certificate or key cannot be used, or the address cannot be bound.
    """
    config = uvicorn.Config(
        create_app(service),
        http="h11",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ssl_certfile=at.certificate,
        ssl_keyfile=at.key,
        timeout_graceful_shutdown=at.drain_s,
        timeout_keep_alive=65,
    )
    try:
        config.load()
    except OSError as error:  # of TLS
        raise InvalidOptionError(
            "certificate or key cannot be used",
            detail=str(error),
            hint="both are PEM files; the first holds the whole chain",
            certificate=at.certificate,
            key=at.key,
        ) from error
    with contextlib.closing(_bound(at)) as bound, contextlib.closing(service):
        scheme = "http" if at.certificate is None else "https"
        host, port = bound.getsockname()[:2]
        address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

        def announce() -> None:
            _LOG.info("serving %s", address, extra={"event": "catalog_serving", "address": address})
            if started is not None:
                started(address)

        asyncio.run(_serve(_Server(config), bound, announce, service))
    _LOG.info("stopped", extra={"event": "catalog_stopped"})


async def _serve(
    server: _Server, bound: socket.socket, started: Callable[[], object], service: CatalogService
) -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        with contextlib.suppress(ValueError):  # not the main thread: a test ends it otherwise
            loop.add_signal_handler(number, server.handle_exit, number, None)
    serving = asyncio.create_task(server.serve([bound]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        started()
    ending = asyncio.create_task(_end_idle(server, service))
    await serving
    ending.cancel()


async def _end_idle(server: _Server, service: CatalogService) -> None:
    """End connections on which nothing is under way: a client with TLS may keep one for long."""
    while not server.should_exit:
        await asyncio.sleep(_POLL_S)
    await asyncio.sleep(_GRACE_S)
    while service.in_flight:
        await asyncio.sleep(_POLL_S)
    await asyncio.sleep(_GRACE_S)
    server.force_exit = True


def _bound(at: Listening) -> socket.socket:
    try:
        family = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((at.host, at.port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidOptionError(
            "the address cannot be bound",
            detail=str(error),
            hint="another process may listen there: choose another --port",
            host=at.host,
            port=at.port,
        ) from error
    return bound
