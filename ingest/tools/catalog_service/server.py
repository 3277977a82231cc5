# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the catalog service: uvicorn, with TLS, ended gracefully by SIGTERM."""

import asyncio
import contextlib
import dataclasses
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from ingest.tools.catalog_service.service import CatalogService, create_app
from storage.errors import InvalidOptionError

__all__ = ["Listening", "serve"]

_LOG = logging.getLogger(__name__)

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
