# SPDX-License-Identifier: Apache-2.0
"""Endpoints, the access that each requires, and error responses.

A route's endpoint is made by `protected`, which takes the declaration; `create_app` refuses any
other. Handlers are plain functions of a `Call`: they run in threads, return an `Answer` or its
body, and raise `Failure` or an error of Lakeward.
"""

import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ingest.tools.catalog_service.access import Access, Principal
from storage.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    RetryableError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from ingest.tools.catalog_service.service import CatalogService

_LOG = logging.getLogger(__name__)

PRINCIPAL = "lakeward.principal"
"""Key of a request's scope: the principal, set by the gateway."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: of HTTP.
        principal: of the token.
        path: parameters of the route's path, decoded.
        query: parameters of the query; the last of each name.
        headers: by name in lower case.
        body: the JSON of the body; None: there is none.
    """

    method: str
    principal: Principal
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A response.

    Attributes:
        body: what becomes JSON; bytes as they are; None: nothing.
        status: of HTTP.
        headers: besides the usual.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Failure(Exception):
    """An error response; each protocol has its own form of it.

    Args:
        status: of HTTP.
        message: what happened, for a person.
        resource: kind of the resource concerned, such as `TABLE`.
        name: of that resource.
    """

    def __init__(self, status: int, message: str, *, resource: str = "", name: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.resource = resource
        self.name = name


_RESOURCES = {"database": "DATABASE", "table": "TABLE", "view": "VIEW", "branch": "BRANCH"}
"""Kinds of resources by keys of an error's context."""


def failure_of(error: Exception) -> Failure:
    """The error response of an exception; unexpected ones are logged, without details in it."""
    if isinstance(error, Failure):
        return error
    if not isinstance(error, LakewardError):
        _LOG.error("a request failed", extra={"event": "request_failed"}, exc_info=error)
        return Failure(500, "an internal error; see the log of the service")
    facts = {_RESOURCES[key]: str(error.context[key]) for key in _RESOURCES if key in error.context}
    resource, name = next(iter(facts.items()), ("", ""))
    return Failure(_status_of(error), str(error), resource=resource, name=name)


def _status_of(error: LakewardError) -> int:
    match error:
        case NotFoundError():
            return 404
        case AlreadyExistsError():
            return 409
        case UnsupportedFeatureError():
            return 501
        case InvalidRequestError():
            return 400
        case RetryableError():
            return 503
        case _:
            _LOG.error("a request failed", extra={"event": "request_failed"}, exc_info=error)
            return 500


Handler = Callable[[Call], Any]
Databases = str | Callable[[Call], Sequence[str]] | None
"""The database that a request is about; see `protected`."""


class Protected:
    """An endpoint with the access that it requires. Created by `protected`."""

    def __init__(
        self, service: "CatalogService", handler: Handler, access: Access, database: Databases
    ) -> None:
        self._service = service
        self._handler = handler
        self.access = access
        self.template = ""
        self.database = database

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        request = Request(scope, receive)
        call = Call(
            method=request.method,
            principal=scope[PRINCIPAL],
            path=request.path_params,
            query=request.query_params,
            headers=request.headers,
            body=None,
        )
        if not callable(self.database):  # before a large body is read
            self._authorize(call)
        call = dataclasses.replace(call, body=parsed(await self._service.body_of(request)))
        if callable(self.database):
            self._authorize(call)
        answer = await self._service.run(lambda: self._handler(call))
        await response_of(answer)(scope, receive, send)

    def _authorize(self, call: Call) -> None:
        for database in self._databases(call):
            if not call.principal.may(self.access, database):
                what = "this" if database is None else f"database {database}"
                raise Failure(
                    403,
                    f"token {call.principal.name} may not {self.access} {what}",
                    resource="DATABASE" if database else "",
                    name=database or "",
                )

    def _databases(self, call: Call) -> Sequence[str | None]:
        if self.database is None:
            return [None]
        if isinstance(self.database, str):
            return [call.path[self.database]]
        return self.database(call)


def protected(
    service: "CatalogService", *, access: Access, database: Databases
) -> Callable[[Handler], Protected]:
    """Declare the access that an endpoint requires.

    Args:
        service: it runs the handler.
        access: `read` or `write`.
        database: name of the path's parameter that names the database; or a function of the call
            that gives names of databases, as of those in the body; None: a token with this access
            to any database (the handler shows only what `call.principal` may read).
    """
    return lambda handler: Protected(service, handler, access, database)


def parsed(body: bytes) -> Any:
    """The JSON of a body; None: it is empty.

    Raises:
        Failure: it is not JSON.
    """
    if not body.strip():
        return None
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Failure(400, f"the body is not JSON: {error}") from error


def response_of(answer: Any) -> Response:
    """The response for what a handler returned."""
    if not isinstance(answer, Answer):
        answer = Answer(answer)
    headers = {"Cache-Control": "no-store", **answer.headers}
    if answer.body is None:
        return Response(status_code=answer.status, headers=headers)
    if isinstance(answer.body, bytes):
        return Response(answer.body, answer.status, headers)
    return Response(orjson.dumps(answer.body), answer.status, headers, "application/json")


# Pages of names, and the patterns by which clients filter names.
#
# A page ends with the token of the next one: the last name that was returned. So pages stay
# consistent while names are added and removed.


MAX_RESULTS = 1000
"""Names in a page, unless the client requests fewer."""

Item = TypeVar("Item")


def page(
    call: Call,
    items: Iterable[Item],
    name: Callable[[Item], str] = str,
    query: Any = None,
) -> tuple[list[Item], str | None]:
    """One page of items, sorted by name, and the token of the next; None: it is the last.

    Args:
        call: its query has `maxResults` and `pageToken`.
        items: all of them.
        name: of an item; unique.
        query: instead of that of the call.

    Raises:
        Failure: `maxResults` is no number.
    """
    parameters = call.query if query is None else query
    most, token = _page_size(parameters.get("maxResults")), parameters.get("pageToken") or ""
    remaining = sorted(((name(item), item) for item in items), key=lambda pair: pair[0])
    remaining = [pair for pair in remaining if pair[0] > token]
    chunk = [item for _, item in remaining[:most]]
    return chunk, remaining[most - 1][0] if len(remaining) > most else None


def _page_size(value: Any) -> int:
    try:
        size = int(value or 0)
    except (TypeError, ValueError) as error:
        raise Failure(400, f"maxResults is a number, not {value!r}") from error
    return min(size, MAX_RESULTS) if size > 0 else MAX_RESULTS


def matching(pattern: str | None) -> Callable[[str], bool]:
    """Whether names match a pattern: `%` is any text, a backslash escapes it."""
    if not pattern:
        return lambda _: True
    parts = re.findall(r"\\.|%|[^\\%]+|\\$", pattern, re.DOTALL)
    texts = (".*" if part == "%" else re.escape(part.removeprefix("\\")) for part in parts)
    compiled = re.compile("".join(texts), re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None
