# SPDX-License-Identifier: Apache-2.0
"""The service: one catalog, its limits, and the application with the routes of both protocols.

Every request passes the gateway: it is authenticated before it is routed, so that no path, known or
unknown, answers without a token where there are tokens; it is counted, timed and logged. Calls of
the catalog run in a pool of threads of bounded size with a bounded queue.
"""

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote_plus

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
from storage.errors import InternalError

__all__ = ["CatalogService", "Limits", "create_app"]

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
