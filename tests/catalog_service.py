# SPDX-License-Identifier: Apache-2.0
"""The catalog service on a free port, inside the test's process; answers can be lost on the way."""

import asyncio
import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

from ingest.tools.catalog_service.access import EVERYBODY
from ingest.tools.catalog_service.service import CatalogService, create_app
from storage.catalog.catalog import Catalog
from tests.free_ports import free_port

TOKEN = "secret-of-the-test"


@dataclasses.dataclass
class Served:
    """A running service.

    Attributes:
        uri: for clients of Paimon's protocol.
        root: address of the service.
        service: what runs.
        bodies: of the commits that it was asked for.
        lost: how many further answers of commits are lost: the work is done, the client gets 503.
    """

    uri: str
    root: str
    service: CatalogService
    bodies: list[bytes] = dataclasses.field(default_factory=list)
    lost: int = 0

    @property
    def commits(self) -> list[Any]:
        """`bodies` as objects."""
        return [json.loads(body) for body in self.bodies]

    async def watch(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/commit"):
            await app(scope, receive, send)
            return
        body = b""
        has_more = True
        while has_more:
            message = await receive()
            body += message.get("body", b"")
            has_more = message.get("more_body", False)
        self.bodies.append(body)
        messages = []

        async def repeat_request() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Any) -> None:
            messages.append(message)

        await app(scope, repeat_request, keep)
        if self.lost:
            self.lost -= 1
            messages = [
                {"type": "http.response.start", "status": 503, "headers": []},
                {"type": "http.response.body", "body": b"{}"},
            ]
        for message in messages:
            await send(message)


@contextlib.contextmanager
def running(service: CatalogService) -> Iterator[Served]:
    """Serve for as long as the context lasts."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    served = Served(f"{root}/paimon", root, service)
    app = create_app(service)

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await served.watch(app, scope, receive, send)

    config = uvicorn.Config(
        watched,
        "127.0.0.1",
        port,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the service did not start")
        thread.join(0.005)
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join(20)
        service.close()


@contextlib.contextmanager
def catalog_service(
    warehouse: str, options: dict[str, str] | None = None, **settings: Any
) -> Iterator[Served]:
    """A service in front of a catalog, for which any client needs `TOKEN`."""
    catalog = Catalog.open(warehouse, options)
    with running(CatalogService(catalog, OneToken(), **settings)) as served:
        yield served


class OneToken:
    """Tokens without a file: `TOKEN` may everything."""

    def principal(self, token: str) -> Any:
        return EVERYBODY if token == TOKEN else None
