# SPDX-License-Identifier: Apache-2.0
"""Requests of WebHDFS, to a NameNode or an HttpFS gateway.

Source: "WebHDFS REST API" of Hadoop's documentation. A request that moves data is answered by a
redirect to a DataNode, which gets the second request. Of several addresses the first one that
answers as the active NameNode is used.

A request without an answer is repeated. That is safe for all but a rename, whose caller looks what
became of it: see `HdfsFileIO`.
"""

import dataclasses
import errno
import functools
import getpass
import os
import re
import time
from collections.abc import Mapping
from typing import Any, BinaryIO
from urllib.parse import quote

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from storage.errors import InvalidOptionError, InvalidRequestError, StorageUnavailableError
from storage.io.hadoop_conf import site_properties
from storage.io.object_store.options import client_settings
from storage.io.read_ahead import REQUESTS_AT_ONCE

__all__ = ["Cluster", "Refusal", "cluster_of", "request"]

_ADDRESS = re.compile(r"https?://[^/\s]+")
_FIRST_SLEEP_S = 0.1
_LONGEST_SLEEP_S = 5.0
_LONGEST_DETAIL = 300

_PASSING = frozenset({"SafeModeException", "RetriableException", "NoNamenodesAvailableException"})
_ELSEWHERE = frozenset({"StandbyException", "ObserverRetryOnActiveException"})
_DENIED = frozenset({"AccessControlException", "SecurityException", "InvalidToken"})


@dataclasses.dataclass(frozen=True, slots=True)
class Cluster:
    """How a cluster is reached. Picklable and hashable.

    Attributes:
        addresses: `http://host:port` of NameNodes or HttpFS gateways.
        user: name for simple authentication; "" with a token.
        token: delegation token, or "".
        request_timeout_s: for one answer.
        connect_timeout_s: for one connection.
        max_retries: repetitions of a request.
        retry_timeout_s: for all repetitions of a request.
    """

    addresses: tuple[str, ...]
    user: str
    token: str = dataclasses.field(repr=False)
    request_timeout_s: float
    connect_timeout_s: float
    max_retries: int
    retry_timeout_s: float


class Refusal(Exception):
    """The cluster's final answer: it will not do this.

    Attributes:
        exception: name of Java's exception class.
        text: its message.
    """

    def __init__(self, exception: str, text: str) -> None:
        super().__init__(f"{exception}: {text}")
        self.exception = exception
        self.text = text

    def error(self, path: str) -> Exception:
        """The exception that a caller of `FileIO` may expect."""
        detail = f"{self.exception}: {' '.join(self.text.split())}"[:_LONGEST_DETAIL]
        if self.exception == "FileNotFoundException":
            return FileNotFoundError(errno.ENOENT, "no such file", path)
        if self.exception == "FileAlreadyExistsException":
            return FileExistsError(errno.EEXIST, "the file exists", path)
        if self.exception in _DENIED:
            advice = "check `hdfs.webhdfs.user` or `hdfs.webhdfs.delegation-token`, and its rights"
            return PermissionError(errno.EACCES, f"HDFS refuses this ({detail}); {advice}", path)
        return InvalidRequestError("HDFS refuses this", detail=detail, path=path)


class _Elsewhere(Exception):
    """This address cannot answer now; another one, or a later attempt, may."""


def cluster_of(authority: str, options: Mapping[str, str]) -> Cluster:
    """The cluster of `hdfs://<authority>`.

    Args:
        authority: `host:port` or the name of a service, of the location; may be "".
        options: of the store.

    Raises:
        InvalidOptionError: an option is unknown or malformed, or no address is known.
    """
    own, limits = client_settings("hdfs", options)
    conf_dir = own.get("hadoop_conf_dir")
    if "address" in own:
        addresses = tuple(_address(text) for text in own["address"].split(",") if text.strip())
    elif conf_dir:
        addresses = _configured_addresses(authority, conf_dir)
    else:
        raise InvalidOptionError(
            "HDFS is reached through WebHDFS, whose address is not known",
            hint="set it to http://namenode:9870 (several by comma) or to an HttpFS gateway's "
            "http://host:14000; or name the directory of hdfs-site.xml in `hadoop-conf-dir`",
            key="hdfs.webhdfs.address",
        )
    token = own.get("delegation_token", "")
    if token and "user" in own:
        raise InvalidOptionError(
            "a delegation token names its user itself",
            hint="remove `hdfs.webhdfs.user`",
            key="hdfs.webhdfs.user",
        )
    return Cluster(
        addresses=addresses,
        user="" if token else own.get("user") or _current_user(),
        token=token,
        request_timeout_s=limits["timeout"].total_seconds(),
        connect_timeout_s=limits["connect_timeout"].total_seconds(),
        max_retries=limits["max_retries"],
        retry_timeout_s=limits["retry_timeout"].total_seconds(),
    )


def _current_user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def _address(text: str) -> str:
    address = text.strip().rstrip("/")
    if not _ADDRESS.fullmatch(address):
        raise InvalidOptionError(
            "not an address of WebHDFS",
            hint="write http://namenode:9870 or https://namenode:9871",
            key="hdfs.webhdfs.address",
            value=text,
        )
    return address


def _configured_addresses(authority: str, conf_dir: str) -> tuple[str, ...]:
    """Addresses that the site files of a Hadoop client name for a service or a NameNode."""
    conf = site_properties(conf_dir, "core-site.xml", "hdfs-site.xml")
    authority = authority or conf.get("fs.defaultFS", "").partition("://")[2].strip("/")
    secure = conf.get("dfs.http.policy", "").upper() == "HTTPS_ONLY"
    key = "dfs.namenode.https-address" if secure else "dfs.namenode.http-address"
    nodes = conf.get(f"dfs.ha.namenodes.{authority}", "").split(",")
    keys = [f"{key}.{authority}.{node.strip()}" for node in nodes if node.strip()]
    found = [conf[each] for each in (*keys, f"{key}.{authority}", key) if conf.get(each)]
    if not found:
        raise InvalidOptionError(
            "the Hadoop configuration does not name an address of WebHDFS",
            hint=f"add `{key}` to hdfs-site.xml, or set `hdfs.webhdfs.address`",
            key="hadoop-conf-dir",
            value=conf_dir,
        )
    scheme = "https" if secure else "http"
    return tuple(f"{scheme}://{address}" for address in (found[: len(keys)] if keys else found[:1]))


class _Connection:
    """Connections of one process to one cluster, and which address answered last."""

    def __init__(self, cluster: Cluster) -> None:
        timeout = urllib3.Timeout(connect=cluster.connect_timeout_s, read=cluster.request_timeout_s)
        self.pool = urllib3.PoolManager(
            num_pools=64, maxsize=REQUESTS_AT_ONCE, retries=False, timeout=timeout
        )
        self.active = 0


@functools.lru_cache(maxsize=16)
def _connection_of(_process: int, cluster: Cluster) -> _Connection:
    return _Connection(cluster)


def request(
    cluster: Cluster,
    method: str,
    operation: str,
    key: str,
    *,
    body: bytes | BinaryIO | None = None,
    **parameters: str | int,
) -> bytes:
    """Make a request, and the second one that a redirect asks for.

    Args:
        cluster: where.
        method: of HTTP.
        operation: `op`.
        key: absolute path in the file system.
        body: for a DataNode.
        **parameters: of the operation.

    Returns:
        The body of the answer.

    Raises:
        Refusal: the cluster will not do this.
        StorageUnavailableError: there was no answer, or a passing fault, each time.
    """
    connection = _connection_of(os.getpid(), cluster)  # sockets must not be shared by forks
    who = {"delegation": cluster.token} if cluster.token else {"user.name": cluster.user}
    query = {"op": operation, **who, **{name: str(value) for name, value in parameters.items()}}
    target = f"/webhdfs/v1{quote(key)}?" + "&".join(
        f"{quote(name)}={quote(value, safe='')}" for name, value in query.items()
    )
    started_s, sleep_s = time.monotonic(), _FIRST_SLEEP_S
    tries = (cluster.max_retries + 1) * len(cluster.addresses)
    for number in range(1, tries + 1):
        active = connection.active
        try:
            return _exchange(connection.pool, method, cluster.addresses[active] + target, body)
        except (_Elsewhere, HTTPError) as error:
            connection.active = (active + 1) % len(cluster.addresses)
            if number == tries or time.monotonic() - started_s > cluster.retry_timeout_s:
                raise StorageUnavailableError(
                    "HDFS does not answer",
                    detail=str(error)[:_LONGEST_DETAIL],
                    hint="check `hdfs.webhdfs.address`, and that its DataNodes can be reached",
                    operation=operation,
                    path=key,
                ) from error
        if connection.active == 0:  # all addresses had their turn
            time.sleep(sleep_s)
            sleep_s = min(2 * sleep_s, _LONGEST_SLEEP_S)
    raise AssertionError("unreachable")


def _exchange(
    pool: urllib3.PoolManager, method: str, url: str, body: bytes | BinaryIO | None
) -> bytes:
    answer = pool.request(method, url, redirect=False)
    if answer.status in (301, 302, 303, 307, 308):
        headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
        if body is not None and not isinstance(body, bytes):
            headers["Content-Length"] = str(body.seek(0, os.SEEK_END))
            body.seek(0)
        location = answer.headers["Location"]
        answer = pool.request(method, location, body=body, headers=headers, redirect=False)
    if answer.status < 300:
        return answer.data
    raise _refused(answer.status, answer.data)


def _refused(status: int, data: bytes) -> Exception:
    try:
        found: Any = orjson.loads(data)["RemoteException"]
        exception, text = str(found["exception"]), str(found.get("message", ""))
    except (ValueError, KeyError, TypeError):
        text = data[:_LONGEST_DETAIL].decode("utf-8", "replace")
        if status in (401, 403):
            return Refusal("SecurityException", f"HTTP {status} {text}")
        return _Elsewhere(f"HTTP {status} {text}")
    if exception in _ELSEWHERE or exception in _PASSING or "StandbyException" in text:
        return _Elsewhere(f"{exception}: {text}")
    if status >= 500 or (exception in ("IOException", "RemoteException") and status == 403):
        return _Elsewhere(f"{exception}: {text}")
    return Refusal(exception, text)
