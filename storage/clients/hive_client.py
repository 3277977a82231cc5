# SPDX-License-Identifier: Apache-2.0
"""Requests to a Hive metastore, over thrift, and its locks.

Every use opens a connection: requests to a catalog are rare, nothing is shared by threads or forks,
and no connection is used after its idle timeout.
"""

import contextlib
import dataclasses
import functools
import getpass
import os
import pathlib
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any, cast

import thriftpy2
from thriftpy2.protocol.binary import TBinaryProtocolFactory
from thriftpy2.thrift import TApplicationException, TClient, TException
from thriftpy2.transport import TSocket, TTransportException
from thriftpy2.transport.buffered import TBufferedTransportFactory

from storage.clock import Clock
from storage.errors import (
    CommitConflictError,
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.io.hadoop_conf import site_properties
from storage.options import values

CONF_DIR = "hive-conf-dir"
URI = "uri"
_CONNECT_MS = 10_000
_SOCKET: Any = TSocket
_PROTOCOL: Any = cast("Any", TBinaryProtocolFactory)()
_TRANSPORT: Any = cast("Any", TBufferedTransportFactory)()
_URI = re.compile(r"thrift://(\[[^\]]+\]|[^:/\s]+):(\d+)/?")
_LONGEST_DETAIL = 400

_NOT_SPOKEN = {
    "hive.metastore.sasl.enabled": "Kerberos",
    "hive.metastore.use.SSL": "TLS",
    "metastore.use.SSL": "TLS",
    "hive.metastore.use.http.transport": "thrift over HTTP",
}
_TIMEOUT = "hive.metastore.client.socket.timeout"


def _hive_site(options: Mapping[str, str]) -> Mapping[str, str]:
    directory = options.get(CONF_DIR) or os.environ.get("HIVE_CONF_DIR", "")
    if CONF_DIR in options and not pathlib.Path(directory, "hive-site.xml").is_file():
        raise InvalidOptionError(
            "there is no hive-site.xml in the directory", key=CONF_DIR, value=directory
        )
    return site_properties(directory, "hive-site.xml") if directory else {}


def configured_warehouse(options: Mapping[str, str]) -> str:
    """The warehouse in hive-site.xml; empty: it names none.

    Raises:
        InvalidOptionError: the directory that the options name holds no hive-site.xml.
    """
    return _hive_site(options).get("hive.metastore.warehouse.dir", "")


@functools.cache
def thrift() -> Any:
    """The structures of the metastore's interface."""
    path = pathlib.Path(__file__).with_name("hive_metastore.thrift")
    return thriftpy2.load(str(path), module_name="lakeward_hive_metastore_thrift")


@dataclasses.dataclass(frozen=True, slots=True)
class HiveMetastore:
    """One metastore. Picklable.

    Attributes:
        addresses: hosts and ports; the first one that takes a connection is used.
        user: the name in requests.
        timeout_ms: for one answer.
    """

    addresses: tuple[tuple[str, int], ...]
    user: str
    timeout_ms: int

    @staticmethod
    def of(options: Mapping[str, str]) -> "HiveMetastore":
        """The metastore that options of a catalog name.

        Raises:
            InvalidOptionError: none is named, or the address is malformed.
            UnsupportedFeatureError: it asks for a transport that is not supported.
        """
        conf = _hive_site(options)
        for key, what in _NOT_SPOKEN.items():
            if conf.get(key, "").lower() == "true":
                raise UnsupportedFeatureError(
                    f"a Hive metastore behind {what} is not supported",
                    hint="use one that takes plain connections, such as a local gateway",
                    option=key,
                )
        text = options.get(URI) or conf.get("hive.metastore.uris", "")
        addresses = [_address(uri.strip()) for uri in text.split(",") if uri.strip()]
        if not addresses:
            raise InvalidOptionError(
                "a Hive catalog needs the address of its metastore",
                hint="set it to thrift://host:9083 (several by comma), or name the directory of "
                f"hive-site.xml in `{CONF_DIR}`",
                key=URI,
            )
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        timeout = conf.get(_TIMEOUT, "600s")
        timeout_ms = values.duration_ms(timeout + "s" if timeout.isdecimal() else timeout)
        return HiveMetastore(tuple(addresses), user, timeout_ms)

    @contextlib.contextmanager
    def connect(self) -> Iterator[Any]:
        """A connection whose methods are the metastore's requests.

        Raises (also out of the context's body):
            StorageUnavailableError: the metastore does not answer.
            InvalidRequestError: it refuses the request, but for the exceptions of `thrift()` that
                say what exists: `NoSuchObjectException` and `AlreadyExistsException`.
        """
        api = thrift()
        client = self._client()
        try:
            client.set_ugi(self.user, [])
            yield client
        except (api.NoSuchObjectException, api.AlreadyExistsException):
            raise
        except (TTransportException, OSError) as error:
            raise self._unavailable(error) from error
        except TException as error:
            detail = " ".join(str(getattr(error, "message", "") or error).split())
            if isinstance(error, TApplicationException):
                hint = "Hive 2.3 to 3.1 are supported"
            else:
                hint = "the log of the metastore says more"
            raise InvalidRequestError(
                "the Hive metastore refuses the request",
                detail=detail[:_LONGEST_DETAIL],
                hint=hint,
                kind=type(error).__name__,
            ) from error
        finally:
            client.close()

    def lock(
        self,
        database: str,
        table: str,
        *,
        clock: Clock,
        timeout_ms: int,
        max_sleep_ms: int,
        hint: str = "try again once its holder is done",
    ) -> int:
        """Acquire the exclusive lock of a table, which `unlock` releases; its id.

        The metastore drops a lock that is not renewed within `hive.txn.timeout` (300 s). A request
        that waits keeps its place in the metastore's queue.

        Raises:
            CommitConflictError: other clients held it all the time.
        """
        api = thrift()
        part = api.LockComponent(
            type=api.LockType.EXCLUSIVE, level=api.LockLevel.TABLE, dbname=database, tablename=table
        )
        request = api.LockRequest(component=[part], user=self.user, hostname=socket.gethostname())
        with self.connect() as client:
            answer = client.lock(request)
            try:
                deadline_s = clock.monotonic_s() + timeout_ms / 1000
                sleep_ms = 50
                while answer.state == api.LockState.WAITING and clock.monotonic_s() < deadline_s:
                    sleep_ms = min(2 * sleep_ms, max_sleep_ms)
                    clock.sleep(sleep_ms / 1000)
                    answer = client.check_lock(api.CheckLockRequest(lockid=answer.lockid))
            finally:
                if answer.state != api.LockState.ACQUIRED:
                    client.unlock(api.UnlockRequest(lockid=answer.lockid))
        if answer.state == api.LockState.ACQUIRED:
            return int(answer.lockid)
        raise CommitConflictError(
            "the lock of the table could not be acquired", hint=hint, lock=f"{database}.{table}"
        )

    def unlock(self, lock: int) -> None:
        """Release a lock."""
        with self.connect() as client:
            client.unlock(thrift().UnlockRequest(lockid=lock))

    def _client(self) -> Any:
        failure: Exception | None = None
        for host, port in self.addresses:
            link = _SOCKET(host, port, connect_timeout=_CONNECT_MS, socket_timeout=self.timeout_ms)
            try:
                link.open()
                protocol = _PROTOCOL.get_protocol(_TRANSPORT.get_transport(link))
                return TClient(thrift().ThriftHiveMetastore, protocol)
            except (TTransportException, OSError) as error:
                failure = error
        raise self._unavailable(failure) from failure

    def _unavailable(self, error: Exception | None) -> StorageUnavailableError:
        return StorageUnavailableError(
            "the Hive metastore does not answer",
            detail=str(getattr(error, "message", "") or error)[:_LONGEST_DETAIL],
            hint=f"check `{URI}`, and that the metastore runs",
            metastore=",".join(f"thrift://{host}:{port}" for host, port in self.addresses),
        )


def _address(text: str) -> tuple[str, int]:
    match = _URI.fullmatch(text)
    if match is None:
        raise InvalidOptionError(
            "not an address of a Hive metastore",
            hint="write thrift://host:9083",
            key=URI,
            value=text,
        )
    return match[1].strip("[]"), int(match[2])
