# SPDX-License-Identifier: Apache-2.0
"""Calls of a Hive Metastore, over Thrift without authentication.

The interface is `hive_metastore.thrift` beside this module; each call has a connection of its own,
so nothing is shared by threads or forks.
"""

import dataclasses
import functools
import pathlib
from typing import Any
from urllib.parse import urlsplit

import thriftpy2
from thriftpy2.rpc import client_context
from thriftpy2.thrift import TException
from thriftpy2.transport import TTransportException

from storage.errors import InvalidOptionError, NotFoundError, StorageUnavailableError

__all__ = ["HiveClient", "HiveRefusedError", "interface"]

_TIMEOUT_MS = 60_000
_CONNECT_MS = 5_000
_PORT = 9083


class HiveRefusedError(Exception):
    """The metastore refuses what it was asked for.

    Attributes:
        kind: name of its exception.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@functools.cache
def interface() -> Any:
    """The structures and the service of a metastore."""
    path = pathlib.Path(__file__).with_name("hive_metastore.thrift")
    return thriftpy2.load(str(path), module_name="hive_metastore_thrift")


@dataclasses.dataclass(frozen=True, slots=True)
class HiveClient:
    """A metastore, or several of which any may answer. Picklable.

    Attributes:
        uris: `thrift://host:port`, parted by commas.
    """

    uris: str

    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports.

        Raises:
            InvalidOptionError: the text is none.
        """
        found = []
        for text in self.uris.split(","):
            parts = urlsplit(text.strip())
            if parts.scheme != "thrift" or not parts.hostname:
                raise InvalidOptionError(
                    "not the address of a Hive Metastore",
                    hint="write thrift://host:9083",
                    key="uri",
                    value=text.strip(),
                )
            found.append((parts.hostname, parts.port or _PORT))
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the metastore.

        Raises:
            NotFoundError: the metastore has no such object.
            HiveRefusedError: it refuses.
            StorageUnavailableError: none answers; it may have done what it was asked for.
        """
        failure: Exception | None = None
        for host, port in self.addresses():
            try:
                service = interface().ThriftHiveMetastore
                with client_context(
                    service, host, port, connect_timeout=_CONNECT_MS, socket_timeout=_TIMEOUT_MS
                ) as client:
                    return getattr(client, method)(*arguments)
            except (TTransportException, OSError) as error:
                failure = error
            except TException as error:
                kind, message = type(error).__name__, str(getattr(error, "message", error))
                if kind == "NoSuchObjectException":
                    raise NotFoundError(
                        "the Hive Metastore has no such thing", detail=message
                    ) from error
                raise HiveRefusedError(kind, message) from error
        raise StorageUnavailableError(
            "the Hive Metastore does not answer",
            detail=str(failure),
            hint="check `uri`, and that the metastore runs",
            uri=self.uris,
        ) from failure
