# SPDX-License-Identifier: Apache-2.0
"""The `FileIO` of HDFS, over WebHDFS or HttpFS.

A file of HDFS can be seen while it is written, and a rename of HDFS is atomic and refuses a name
that is taken. So every file is written under a hidden temporary name beside its own and renamed:
a reader of the name sees all bytes or nothing, and of several writers one gets it.

The answer to a rename may be lost. A temporary name is used by one call alone, so a call that finds
it missing, and its own bytes at the path, knows that its rename took place. Every other request
without an answer is repeated. Of several addresses the first one that answers as the active
NameNode is used. Source: "WebHDFS REST API" of Hadoop's documentation.
"""

import contextlib
import dataclasses
import errno
import functools
import getpass
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, cast
from urllib.parse import quote

import orjson
import pyarrow as pa
import urllib3
from urllib3.exceptions import HTTPError

from storage.errors import (
    CorruptDataError,
    InvalidOptionError,
    InvalidRequestError,
    RetryableError,
    StorageUnavailableError,
)
from storage.io.file_io import (
    REQUESTS_AT_ONCE,
    TAIL_BYTES,
    FileIO,
    FileStatus,
    RangeReader,
    note_undeleted,
    read_ahead,
)
from storage.io.hadoop_conf import site_properties
from storage.io.local import temporary_name
from storage.io.object_store_options import client_settings

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
            return PermissionError(
                errno.EACCES, f"HDFS refused the request ({detail}); {advice}", path
            )
        return InvalidRequestError("HDFS refused the request", detail=detail, path=path)


class _Elsewhere(Exception):
    """This address cannot answer now; another one, or a later attempt, may."""


def cluster_of(authority: str, options: Mapping[str, str]) -> Cluster:
    """The cluster of `hdfs://<authority>`.

    The authority is `host:port`, the name of a service, or "".

    Raises:
        InvalidOptionError: an option is unknown or malformed, or the address is unknown.
    """
    settings, limits = client_settings("hdfs", options)
    conf_dir = settings.get("hadoop_conf_dir")
    if "address" in settings:
        addresses = tuple(_address(text) for text in settings["address"].split(",") if text.strip())
    elif conf_dir:
        addresses = _configured_addresses(authority, conf_dir)
    else:
        raise InvalidOptionError(
            "HDFS is reached through WebHDFS, and its address is not set",
            hint="set it to http://namenode:9870 (several by comma) or to an HttpFS gateway's "
            "http://host:14000; or name the directory of hdfs-site.xml in `hadoop-conf-dir`",
            key="hdfs.webhdfs.address",
        )
    token = settings.get("delegation_token", "")
    if token and "user" in settings:
        raise InvalidOptionError(
            "the delegation token already names its user",
            hint="remove `hdfs.webhdfs.user`",
            key="hdfs.webhdfs.user",
        )
    return Cluster(
        addresses=addresses,
        user=""
        if token
        else settings.get("user") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser(),
        token=token,
        request_timeout_s=limits["timeout"].total_seconds(),
        connect_timeout_s=limits["connect_timeout"].total_seconds(),
        max_retries=limits["max_retries"],
        retry_timeout_s=limits["retry_timeout"].total_seconds(),
    )


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
    hosts = [conf[name] for name in (*keys, f"{key}.{authority}", key) if conf.get(name)]
    if not hosts:
        raise InvalidOptionError(
            "the Hadoop configuration does not name an address of WebHDFS",
            hint=f"add `{key}` to hdfs-site.xml, or set `hdfs.webhdfs.address`",
            key="hadoop-conf-dir",
            value=conf_dir,
        )
    scheme = "https" if secure else "http"
    return tuple(f"{scheme}://{address}" for address in (hosts[: len(keys)] if keys else hosts[:1]))


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
    """The answer to a request, and to the second one that a redirect asks for.

    The key is an absolute path in the file system; a body is for a DataNode.

    Raises:
        Refusal: the cluster will not do this.
        StorageUnavailableError: there was no answer, or a transient fault, each time.
    """
    connection = _connection_of(os.getpid(), cluster)  # sockets must not be shared by forks
    auth = {"delegation": cluster.token} if cluster.token else {"user.name": cluster.user}
    query = {"op": operation, **auth, **{name: str(value) for name, value in parameters.items()}}
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
        if connection.active == 0:  # all addresses were tried
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
    raise _http_error(answer.status, answer.data)


def _http_error(status: int, data: bytes) -> Exception:
    try:
        failure: Any = orjson.loads(data)["RemoteException"]
        exception, text = str(failure["exception"]), str(failure.get("message", ""))
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


_SPOOL_BYTES = 32 << 20
"""Outputs up to this size wait in memory for their upload, longer ones in a local file [bytes]."""

_NOT_A_DIRECTORY = frozenset({"ParentNotDirectoryException", "AccessControlException"})


@functools.lru_cache(maxsize=1)
def _pool_of(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="hdfs")


def _pool() -> ThreadPoolExecutor:
    return _pool_of(os.getpid())


class _Upload:
    """A writable file whose bytes are sent when complete; its writer may close it."""

    def __init__(self, spool: BinaryIO) -> None:
        self._spool = spool
        self.closed = False

    def writable(self) -> bool:
        """Whether it is open."""
        return not self.closed

    def tell(self) -> int:
        """Bytes written so far."""
        return self._spool.tell()

    def write(self, data: Any) -> int:
        """Take bytes."""
        return self._spool.write(data)

    def flush(self) -> None:
        """Nothing: only a finished file can be read."""

    def close(self) -> None:
        """The pyarrow file around this was closed."""
        self.closed = True


class HdfsFileIO(FileIO):
    """One cluster. Paths are URLs such as `hdfs://host:8020/warehouse/db.db/t`.

    Safe for several threads. Pickles with its delegation token, which executors need; its text
    form hides it. Connections are made on first use, per process.

    Args:
        location: any URL in the cluster.
        options: `hdfs.webhdfs.address`, `hdfs.webhdfs.user`, `hdfs.webhdfs.delegation-token`,
            `hadoop-conf-dir` and `store.…`.

    Raises:
        InvalidOptionError: an option is unknown or malformed, or the address is missing.
    """

    distant = True

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        authority = location.partition("://")[2].partition("/")[0]
        self._root = f"hdfs://{authority}"
        self._cluster: Cluster = cluster_of(authority, options or {})

    def __repr__(self) -> str:
        return f"HdfsFileIO({self._root!r}, {self._cluster})"

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        return self._do("GET", "OPEN", path)

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """See `FileIO`."""
        if len(paths) < 2:
            return iter([self.read_bytes(path) for path in paths])
        return read_ahead(_pool(), self.read_bytes, paths)

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`; see `RangeReader`."""
        status = self._status(path)
        if status is None or status.directory:
            raise FileNotFoundError(f"no such file: {path}")

        def fetch(start: int, count: int) -> memoryview:
            data = self._do("GET", "OPEN", path, offset=start, length=count) if count else b""
            if len(data) != count:
                raise CorruptDataError(
                    "a file ends before its length", path=path, offset=start, expected=count
                )
            return memoryview(data)

        size = status.size
        tail = fetch(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
        return pa.PythonFile(RangeReader(path, size, tail, fetch, _pool()), mode="r")

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """See `FileIO`; the sink is a `pyarrow.NativeFile`, sent when it is complete."""
        with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as temporary:
            spool = cast("BinaryIO", temporary)
            sink = pa.PythonFile(_Upload(spool), mode="w")
            yield sink
            if not self._publish(path, spool):
                raise FileExistsError(f"the file exists: {path}")

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        if not self._publish(path, data):
            raise FileExistsError(f"the file exists: {path}")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`."""
        return self._publish(path, data)

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`.

        A gateway that cannot rename over a file has it removed first: readers of such files
        tolerate that one is missing for a moment.
        """
        temporary = self._write(path, data)
        try:
            if self._rename(temporary, path, "OVERWRITE", data):
                return
            self.delete(path)
            replaced = self._rename(temporary, path, "OVERWRITE", data)
        except BaseException:
            self._delete_quietly(temporary)
            raise
        if not replaced:
            self._delete_quietly(temporary)
            raise StorageUnavailableError("a file could not be replaced", path=path)

    def _publish(self, path: str, data: bytes | BinaryIO) -> bool:
        """Make a file of complete bytes; whether this call made it."""
        temporary = self._write(path, data)
        try:
            created = self._rename(temporary, path, "NONE", data)
        except BaseException:
            self._delete_quietly(temporary)
            raise
        if not created:
            self._delete_quietly(temporary)
        return created

    def _write(self, path: str, data: bytes | BinaryIO) -> str:
        """Write a file under a temporary name, which is returned; restarts when an attempt fails.

        The name is this call's alone, so an attempt may replace what an earlier one has left.
        """
        temporary = temporary_name(path)
        try:
            self._do("PUT", "CREATE", temporary, body=data, overwrite="true")
        except BaseException:
            self._delete_quietly(temporary)
            raise
        return temporary

    def _rename(self, temporary: str, path: str, option: str, data: bytes | BinaryIO) -> bool:
        """Rename a written file to its name; False: the name is taken."""
        try:
            self._move(temporary, path, option)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if not self._holds(path, data):
                raise StorageUnavailableError(
                    "a temporary file disappeared before its rename", hint="try again", path=path
                ) from None
        return True

    def _move(self, old: str, new: str, option: str) -> None:
        """Rename a file or a directory.

        Raises:
            FileNotFoundError: there is nothing at the old path, perhaps because an attempt whose
                answer was lost has moved it.
            FileExistsError: something is at the new path.
        """
        answer = self._do("PUT", "RENAME", old, destination=self._key(new), renameoptions=option)
        if not answer or orjson.loads(answer).get("boolean", True):
            return
        if self.exists(old):  # a gateway without the option, which answers true or false
            raise FileExistsError(f"the file exists: {new}")
        raise FileNotFoundError(f"no such file: {old}")

    def _holds(self, path: str, data: bytes | BinaryIO) -> bool:
        """Whether a file has these bytes."""
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        try:
            return self.read_bytes(path) == data
        except FileNotFoundError:
            return False

    def exists(self, path: str) -> bool:
        """See `FileIO`."""
        return self._status(path) is not None

    def is_file(self, path: str) -> bool:
        """See `FileIO`."""
        status = self._status(path)
        return status is not None and not status.directory

    def size(self, path: str) -> int:
        """See `FileIO`."""
        status = self._status(path)
        if status is None:
            raise FileNotFoundError(f"no such file: {path}")
        return status.size

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`."""
        try:
            listing = orjson.loads(self._do("GET", "LISTSTATUS", path))
        except FileNotFoundError:
            return []
        entries = listing["FileStatuses"]["FileStatus"]
        inside = [
            _status_of(f"{path.rstrip('/')}/{entry['pathSuffix']}", entry)
            for entry in entries
            if entry["pathSuffix"]
        ]  # a file is its own only entry
        return sorted(inside, key=lambda status: status.name)

    def delete(self, path: str) -> bool:
        """See `FileIO`."""
        answer = orjson.loads(self._do("DELETE", "DELETE", path, recursive="false"))
        return bool(answer["boolean"])

    def delete_many(self, paths: Iterable[str]) -> int:
        """See `FileIO`; in parallel."""
        return sum(_pool().map(self._delete_quietly, paths))

    def _delete_quietly(self, path: str) -> bool:
        try:
            return self.delete(path)
        except (RetryableError, InvalidRequestError, OSError) as error:
            note_undeleted(path, error)
            return False

    def prune(self, path: str) -> None:
        """See `FileIO`."""
        entries = self.list(path)
        for status in entries:
            if status.directory:
                self.prune(status.path)
        if all(status.directory for status in entries):
            with contextlib.suppress(OSError, ValueError):  # not empty: another writer won
                self.delete(path)

    def rename_directory(self, old: str, new: str) -> None:
        """See `FileIO`."""
        if self.exists(new):
            raise FileExistsError(f"the directory exists: {new}")
        self._do("PUT", "MKDIRS", new.rstrip("/").rpartition("/")[0])
        try:
            self._move(old, new, "NONE")
        except FileNotFoundError:
            if not self.exists(new):  # else an attempt whose answer was lost has moved it
                raise

    def _status(self, path: str) -> FileStatus | None:
        try:
            answer = request(self._cluster, "GET", "GETFILESTATUS", self._key(path))
        except Refusal as refusal:
            if refusal.exception == "FileNotFoundException":
                return None
            if refusal.exception in _NOT_A_DIRECTORY and "not a directory" in refusal.text:
                return None
            raise refusal.error(path) from refusal
        return _status_of(path, orjson.loads(answer)["FileStatus"])

    def _do(
        self,
        method: str,
        operation: str,
        path: str,
        body: bytes | BinaryIO | None = None,
        **parameters: str | int,
    ) -> bytes:
        try:
            return request(
                self._cluster, method, operation, self._key(path), body=body, **parameters
            )
        except Refusal as refusal:
            raise refusal.error(path) from refusal

    def _key(self, path: str) -> str:
        """The path inside the file system."""
        return path.removeprefix(self._root) or "/"


def _status_of(path: str, entry: Mapping[str, Any]) -> FileStatus:
    return FileStatus(
        name=path.rstrip("/").rpartition("/")[2],
        path=path,
        size=entry["length"],
        directory=entry["type"] == "DIRECTORY",
        modified_ms=entry["modificationTime"],
    )
