# SPDX-License-Identifier: Apache-2.0
"""Requests to a running service."""

import dataclasses
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.catalog_service import TOKEN, Served


@dataclasses.dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def ask(
    served: Served | str,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str | None = TOKEN,
    headers: dict[str, str] | None = None,
) -> Reply:
    """Send a request; an object or a list becomes JSON."""
    address = urlsplit(served if isinstance(served, str) else served.root)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    sent = {} if token is None else {"Authorization": f"Bearer {token}"}
    data = json.dumps(body).encode() if isinstance(body, dict | list) else body
    try:
        connection.request(method, path, data, {**sent, **(headers or {})})
        answer = connection.getresponse()
        found = {key.lower(): value for key, value in answer.getheaders()}
        return Reply(answer.status, found, answer.read())
    finally:
        connection.close()


class Paimon:
    """Requests below the prefix of Paimon's protocol."""

    def __init__(self, served: Served, token: str = TOKEN) -> None:
        self._served = served
        self._token = token

    def __call__(self, method: str, path: str, body: Any = None) -> Reply:
        return ask(self._served, method, f"/paimon/v1/lakeward{path}", body, token=self._token)

    def get(self, path: str) -> Any:
        """The document of a resource that is there."""
        reply = self("GET", path)
        assert reply.status == 200, reply.body
        return reply.document

    def post(self, path: str, body: Any = None) -> Any:
        """The document that a change is answered with, or None."""
        reply = self("POST", path, body if body is not None else {})
        assert reply.status == 200, reply.body
        return reply.document if reply.body else None

    def refusal(self, method: str, path: str, body: Any = None) -> tuple[int, Any, Any]:
        """Status, and kind and name of the resource, of a request that fails."""
        reply = self(method, path, body)
        assert reply.status >= 400, reply.body
        document = reply.document
        assert document["code"] == reply.status
        assert document["message"]
        return reply.status, document["resourceType"], document["resourceName"]
