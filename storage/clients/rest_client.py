# SPDX-License-Identifier: Apache-2.0
"""Requests of Paimon's and Iceberg's REST protocols, and what their failures mean."""

import dataclasses
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

from storage.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)

_FIRST_WAIT_S = 0.2
_UNAVAILABLE = frozenset({429, 500, 502, 503, 504})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another host must not get the token, and a POST must not become a GET."""

    def redirect_request(self, *_arguments: object) -> None:
        """See urllib: answers with a redirect are errors."""


_OPENER = urllib.request.build_opener(_NoRedirects)


@dataclasses.dataclass(frozen=True, slots=True)
class RestClient:
    """Requests to one server. Picklable.

    Attributes:
        uri: of the server.
        token: of the client; "": none.
        headers: additional ones of every request.
        prefix: what the server puts before its resources.
        timeout_s: of one request.
        tries: of one read.
    """

    uri: str
    token: str = dataclasses.field(repr=False)
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    prefix: str
    timeout_s: float = 60.0
    tries: int = 4

    def get(self, resource: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Read a resource; repeated while the server does not answer.

        Raises:
            NotFoundError: there is none.
            StorageUnavailableError: the server does not answer.
            InvalidRequestError: it refuses the request.
        """
        for number in range(self.tries):
            try:
                return self._send("GET", resource, None, query)
            except StorageUnavailableError:
                if number == self.tries - 1:
                    raise
                time.sleep(_FIRST_WAIT_S * 2**number)  # noqa: TID251 - no table, no clock of it
        raise AssertionError("unreachable")

    def has(self, resource: str) -> bool:
        """Whether a resource exists."""
        try:
            self.get(resource)
        except NotFoundError:
            return False
        return True

    def pages(self, resource: str, member: str) -> Iterator[str]:
        """All names in a list that the server returns in pages."""
        token = ""
        while True:
            page = self.get(resource, {"pageToken": token} if token else None)
            yield from page.get(member) or ()
            token = page.get("nextPageToken") or ""
            if not token:
                return

    def post(self, resource: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change a resource.

        Raises:
            AlreadyExistsError: something of the name exists.
            As of `get`.
        """
        return self._send("POST", resource, body, None)

    def create(self, resource: str, body: Mapping[str, Any]) -> bool:
        """As `post`; False when something of the name exists."""
        try:
            self.post(resource, body)
        except AlreadyExistsError:
            return False
        return True

    def delete(self, resource: str) -> None:
        """Remove a resource. Raises as `get`."""
        self._send("DELETE", resource, None, None)

    def _send(
        self,
        method: str,
        resource: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        parts = ["v1", *([quote_plus(self.prefix)] if self.prefix else []), resource]
        url = f"{self.uri.rstrip('/')}/{'/'.join(parts)}"
        if query:
            url += f"?{urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        return self._exchange(method, url, data, "application/json")

    def form(self, url: str, fields: Mapping[str, str]) -> dict[str, Any]:
        """Send a form to an address, as for a token. Raises as `post`."""
        content_type = "application/x-www-form-urlencoded"
        return self._exchange("POST", url, urlencode(fields).encode(), content_type)

    def _exchange(
        self, method: str, url: str, data: bytes | None, content_type: str
    ) -> dict[str, Any]:
        headers = {"Content-Type": content_type, **self.headers}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            request = urllib.request.Request(url, data, headers, method=method)
            with _OPENER.open(request, timeout=self.timeout_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise self._failure(error.code, error.read(), url) from error
        except ValueError as error:
            raise InvalidOptionError("not a server address", key="uri", value=url) from error
        except (OSError, http.client.HTTPException) as error:
            raise StorageUnavailableError(
                "the catalog server does not answer",
                detail=str(error),
                hint="check `uri`, and that the server runs",
                url=url,
            ) from error
        try:
            return dict(json.loads(text)) if text.strip() else {}
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(
                "the catalog server does not answer with a JSON object",
                detail=text[:200].decode(errors="replace"),
                hint="check `uri`",
                url=url,
            ) from error

    def _failure(self, code: int, body: bytes, url: str) -> Exception:
        try:
            document = json.loads(body)
            message = str(document.get("error", document).get("message"))
        except (ValueError, AttributeError):
            message = body.decode(errors="replace")[:200]
        context: dict[str, Any] = {"detail": message, "url": url, "status": code}
        if code == 404:
            return NotFoundError("the catalog server does not know this resource", **context)
        if code == 409:
            return AlreadyExistsError("the resource exists already", **context)
        if code in (401, 403):
            return InvalidRequestError(
                "the catalog server refuses access", hint="check `token`", **context
            )
        if code in (301, 302, 303, 307, 308):
            return InvalidRequestError(
                "the catalog server redirects",
                hint="set `uri` to the address of the server itself",
                **context,
            )
        if code == 501:
            return UnsupportedFeatureError("the catalog server does not support this", **context)
        if code in _UNAVAILABLE:
            return StorageUnavailableError("the catalog server failed", **context)
        return InvalidRequestError("the catalog server refused the request", **context)
