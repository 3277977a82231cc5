# SPDX-License-Identifier: Apache-2.0
"""A stub of Confluent's schema registry: the documented reading API over a dict, in a thread.

It is no registry: nothing is checked, compared or kept. It serves `/schemas/ids/{id}`,
`/schemas/guids/{guid}`, `/subjects/{subject}/versions/{version}` and `/subjects`, answers 40402 and
40403 for what it lacks, and can be told to fail, to be away or to ask for credentials.
"""

import http.server
import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class StubRegistry:
    """What the stub holds, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/subjects": []}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.failures: list[tuple[int, Any]] = []
        """Answered before anything else: (status, body)."""
        self.away = False
        """Whether every answer is 503."""
        self.authorization: str | None = None
        """What the header must be; None = anything."""
        self.url = ""

    def add(self, schema_id: int, schema: Any, **more: Any) -> bytes:
        """Register under an id; gives the prefix of its messages."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.answers[f"/schemas/ids/{schema_id}"] = {"schema": text, **more}
        return b"\0" + schema_id.to_bytes(4, "big")

    def add_version(self, subject: str, version: int, schema: Any, **more: Any) -> dict[str, Any]:
        """Register a version of a subject; gives a reference to it."""
        self.answers[f"/subjects/{subject}/versions/{version}"] = {
            "schema": json.dumps(schema),
            **more,
        }
        return {"name": "any", "subject": subject, "version": version}

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, Any]:
        self.requests.append((path, headers))
        if self.failures:
            return self.failures.pop(0)
        if self.away:
            return 503, {"error_code": 50302, "message": "away"}
        if self.authorization not in (None, headers.get("Authorization")):
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        found = self.answers.get(urllib.parse.unquote(path))
        if found is not None:
            return 200, found
        for start, code in (("/schemas/", 40403), ("/subjects/", 40402)):
            if path.startswith(start):
                return 404, {"error_code": code, "message": f"{code} not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def stub_registry(prefix: str = "", tls: ssl.SSLContext | None = None) -> Iterator[StubRegistry]:
    """A running stub; `prefix` is a path in front of its API."""
    stub = StubRegistry()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.removeprefix(prefix) if self.path.startswith(prefix) else "/wrong"
            status, body = stub.answer(path, dict(self.headers))
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    stub.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}{prefix}"
    try:
        yield stub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
