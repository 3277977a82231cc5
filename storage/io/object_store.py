# SPDX-License-Identifier: Apache-2.0
"""The `FileIO` of object stores: S3 and what speaks its protocol, Google Cloud, Azure.

Source: FORMAT.md §11.5. There is no rename, and none is used: `put_if_absent` is one conditional
put, and the store decides which of several writers it grants. Its answer may be lost, or the
client may have repeated a request that had gone through and been refused as "taken" because of
its own first attempt. So every such put carries a fresh token as metadata of the object: a refused
writer reads the object's token and knows for certain whose it is. Without any answer it
is a `StorageUnavailableError`.

An object is visible when it is complete, so outputs need no temporary names. Directories do not
exist: a path is one while objects are below it.

The client (`docs/adr/storage/0005`) starts threads on its first use in a process. They do not
survive a fork, so processes started after that must use `spawn`; see `_Runtime`.
"""

import contextlib
import errno
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import MemoryStore, ObjectStore, S3Store, from_url

from storage.errors import (
    InternalError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
    UnsupportedFeatureError,
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
from storage.io.object_store_options import (
    StoreLocation,
    client_settings,
    locate,
    redacted_options,
    require_leave,
)

PART_BYTES = 8 << 20
"""Outputs up to this size are one put; longer ones are uploaded in such parts [bytes]."""

_Result = TypeVar("_Result")


class ObjectUpload:
    """A writable binary file; `finish` or `abort` ends it."""

    def __init__(self, file_io: FileIO, path: str, open_parts: Callable[[], Any]) -> None:
        self._io = file_io
        self._path = path
        self._open = open_parts
        self._buffer = bytearray()
        self._written = 0
        self._parts: Any = None
        self.closed = False

    def writable(self) -> bool:
        """Whether it is open."""
        return not self.closed

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written

    def flush(self) -> None:
        """Nothing: only a finished object can be read."""

    def close(self) -> None:
        """The pyarrow file around this was closed; `finish` or `abort` follows."""
        self.closed = True

    def write(self, data: Any) -> int:
        """Take bytes; full parts are sent in the background."""
        view = memoryview(data).cast("B")
        if self._parts is None and len(self._buffer) + len(view) > PART_BYTES:
            self._begin_parts()
        if self._parts is None:
            self._buffer += view
        else:
            self._parts_do(lambda: self._parts.write(view))
        self._written += len(view)
        return len(view)

    def finish(self) -> None:
        """Make the object visible.

        Raises:
            FileExistsError: something is at the path.
        """
        if self._parts is None:
            self._io.write_bytes(self._path, bytes(self._buffer))
            return
        try:
            self._parts_do(self._parts.close)
        except (FileNotFoundError, StorageUnavailableError):
            # the upload is missing or no answer came: the name is ours alone, so its size decides
            if not self._io.exists(self._path) or self._io.size(self._path) != self._written:
                raise
        self._parts = None

    def abort(self) -> None:
        """Leave nothing behind; never fails."""
        parts, self._parts = self._parts, None
        self._buffer.clear()
        if parts is not None:
            with contextlib.suppress(BaseError, OSError):
                parts.__exit__(InternalError, InternalError("aborted"), None)

    def _begin_parts(self) -> None:
        if self._io.exists(self._path):
            raise FileExistsError(f"the object exists: {self._path}")
        self._parts = self._open()
        self._parts_do(lambda: self._parts.write(bytes(self._buffer)))
        self._buffer.clear()

    def _parts_do(self, act: Callable[[], _Result]) -> _Result:
        with translated("write", self._path):
            return act()


_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def connect(
    location: StoreLocation, options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> tuple[ObjectStore, bool]:
    """A client of a bucket; nothing is sent yet.

    Args:
        location: any location in the bucket.
        options: see `options`.
        environ: None: the process's.

    Returns:
        The client, and whether the store is one whose conditional put must be tested first
        (an S3 that is not Amazon's).

    Raises:
        InvalidOptionError: an option is unknown or malformed.
        UnsupportedFeatureError: a store that is not tested, without the option that allows it.
    """
    environ = os.environ if environ is None else environ
    config, client = client_settings(location.scheme, options)
    retry: Any = {
        "max_retries": client.pop("max_retries"),
        "retry_timeout": client.pop("retry_timeout"),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    if location.scheme == "s3":
        return _connect_s3(location, config, client, retry, environ)
    require_leave(location, options)
    return from_url(location.root, config=config, client_options=client, retry_config=retry), False


def _connect_s3(
    location: StoreLocation,
    options: Any,
    client: Any,
    retry: Any,
    environ: Mapping[str, str],
) -> tuple[ObjectStore, bool]:
    bucket = location.root.partition("://")[2]
    endpoint = options.get("endpoint") or next(
        (environ[name] for name in _ENDPOINT_VARIABLES if environ.get(name)), None
    )
    path_style = options.pop("path_style", endpoint is not None or "." in bucket)
    options["virtual_hosted_style_request"] = not path_style
    if endpoint is not None:
        if "://" not in endpoint:
            endpoint = f"https://{endpoint}"
        client["allow_http"] = endpoint.startswith("http://")
        scheme, _, host = endpoint.rstrip("/").partition("://")
        options["endpoint"] = f"{scheme}://{host}" if path_style else f"{scheme}://{bucket}.{host}"
    store = S3Store(bucket, config=options, client_options=client, retry_config=retry)
    return store, endpoint is not None and not endpoint.rstrip("/").endswith(".amazonaws.com")


_TOKEN = "lakewardput"
_PUT_TRIES = 3
"""Requests of one conditional put whose answer is lost or contradicts the stored object."""

_PARTS_AT_ONCE = 4
_DELETES_AT_ONCE = 1000


class _Runtime:
    """What all clients of a process share: the client library's threads and ours."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._used = False
        self._broken = False
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._pool = None
        self._broken = self._used

    def enter(self) -> None:
        """Declare that the client library is about to be used.

        Raises:
            InternalError: this process was forked from one that used it.
        """
        if self._broken:
            raise InternalError(
                "an object store was used before this process was forked",
                hint="start the process with multiprocessing's `spawn` method",
            )
        self._used = True

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads for parallel requests."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="object-store")
            return self._pool


_RUNTIME = _Runtime()


class ObjectStoreFileIO(FileIO):
    """One bucket. Paths are full URLs such as `s3://bucket/warehouse/db.db/t`.

    Safe for several threads. Pickles with its options, secrets included, because executors need
    them; its text form hides them. The connection is opened on first use, per process.

    Args:
        location: any URL in the bucket.

    Raises:
        InvalidRequestError: the location names no bucket.
        InvalidOptionError: an option is unknown or malformed.
        UnsupportedFeatureError: a kind of store that is not tested.
    """

    distant = True

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self._location = locate(location)
        self._options = dict(options or {})
        self._local_store: ObjectStore | None = None
        self._unproven = False
        self._lock = threading.Lock()
        connect(self._location, self._options)  # reports wrong options now

    @classmethod
    def in_memory(cls) -> "ObjectStoreFileIO":
        """A store of this process alone, `s3://memory`; for tests."""
        store = cls("s3://memory")
        store._local_store = MemoryStore()
        return store

    @property
    def root(self) -> str:
        """URL of the bucket."""
        return self._location.root

    def __repr__(self) -> str:
        return f"ObjectStoreFileIO({self.root!r}, {redacted_options(self._options)})"

    def __getstate__(self) -> dict[str, Any]:
        if isinstance(self._local_store, MemoryStore):
            raise InternalError("a store in memory cannot be sent to another process")
        return {"location": self.root, "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._location = locate(state["location"])
        self._options = state["options"]
        self._local_store = None
        self._unproven = False
        self._lock = threading.Lock()

    def read_bytes(self, path: str) -> bytes:
        """See `FileIO`."""
        key = self._key(path)
        with translated("read", path):
            return obstore.get(self._store, key).bytes().to_bytes()

    def read_many(self, paths: Sequence[str]) -> Iterator[bytes]:
        """See `FileIO`; up to 16 are in flight or buffered."""
        if len(paths) < 2:
            return iter([self.read_bytes(path) for path in paths])
        self._require_runtime()
        return read_ahead(_RUNTIME.pool, self.read_bytes, paths)

    def open_input(self, path: str) -> pa.NativeFile:
        """See `FileIO`; one request, see `RangeReader`."""
        key = self._key(path)
        store = self._store
        with translated("open", path):
            size, tail = _end_of(store, key)

        def fetch(start: int, count: int) -> memoryview:
            with translated("read", path):
                return memoryview(obstore.get_range(store, key, start=start, length=count))

        return pa.PythonFile(RangeReader(path, size, tail, fetch, _RUNTIME.pool), mode="r")

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """See `FileIO`; the sink is a `pyarrow.NativeFile`. Long files are sent while written.

        Raises:
            FileExistsError: something is at `path`; for a long file this is checked when the
                upload begins, and two writers of one name are not distinguished. Names of data
                files are unique.
        """
        key = self._key(path)

        def open_parts() -> Any:
            return obstore.open_writer(
                self._store, key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )

        upload = ObjectUpload(self, path, open_parts)
        sink = pa.PythonFile(upload, mode="w")
        try:
            yield sink
            with translated("write", path):
                upload.finish()
        except BaseException:
            upload.abort()
            raise

    def write_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        if not self._create(path, data):
            raise FileExistsError(f"the object exists: {path}")

    def overwrite_bytes(self, path: str, data: bytes) -> None:
        """See `FileIO`."""
        key = self._key(path)
        with translated("overwrite", path):
            obstore.put(self._store, key, data, use_multipart=False)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`.

        Raises:
            UnsupportedFeatureError: the store replaces objects where it was asked not to.
        """
        self._prove(path)
        return self._create(path, data)

    def exists(self, path: str) -> bool:
        """See `FileIO`; one request for a file, two otherwise."""
        key = self._key(path)
        store = self._store
        with translated("examine", path):
            if key:
                with contextlib.suppress(FileNotFoundError):
                    obstore.head(store, key)
                    return True
            return any(len(chunk) for chunk in obstore.list(store, key or None, chunk_size=1))

    def is_file(self, path: str) -> bool:
        """See `FileIO`; one request."""
        key = self._key(path)
        with contextlib.suppress(FileNotFoundError), translated("examine", path):
            obstore.head(self._store, key)
            return True
        return False

    def size(self, path: str) -> int:
        """See `FileIO`."""
        key = self._key(path)
        with translated("examine", path):
            return int(obstore.head(self._store, key)["size"])

    def list(self, path: str) -> list[FileStatus]:
        """See `FileIO`; all pages."""
        key = self._key(path)
        with translated("list", path):
            result = obstore.list_with_delimiter(self._store, key or None)
        directories = {prefix.rstrip("/") for prefix in result["common_prefixes"]}
        entries = [
            FileStatus(_name(name), f"{self.root}/{name}", 0, True, 0) for name in directories
        ]
        entries += [self._status(meta) for meta in result["objects"] if _is_file(meta["path"], key)]
        return sorted(entries, key=lambda status: status.name)

    def walk(self, path: str) -> Iterator[FileStatus]:
        """See `FileIO`; held in memory, because not every store lists in path order."""
        key = self._key(path)
        with translated("list", path):
            stream = obstore.list(self._store, key or None, chunk_size=1000)
            statuses = [self._status(meta) for chunk in stream for meta in chunk]
        statuses.sort(key=lambda status: status.path)
        return iter(statuses)

    def delete(self, path: str) -> bool:
        """See `FileIO`; two requests, because stores do not report whether an object existed."""
        key = self._key(path)
        store = self._store
        with translated("delete", path):
            try:
                obstore.head(store, key)
                obstore.delete(store, key)
            except FileNotFoundError as error:
                if isinstance(store_error("delete", path, error), FileNotFoundError):
                    return False
                raise
            return True

    def delete_many(self, paths: Iterable[str]) -> int:
        """See `FileIO`; a request per 1000. Objects that did not exist count as deleted."""
        keys = [self._key(path) for path in paths]
        store = self._store
        deleted = 0
        for start in range(0, len(keys), _DELETES_AT_ONCE):
            chunk = keys[start : start + _DELETES_AT_ONCE]
            try:
                with translated("delete", f"{self.root}/{chunk[0]}"):
                    obstore.delete(store, chunk)
            except (StorageUnavailableError, OSError) as error:
                note_undeleted(f"{self.root}/{chunk[0]}", error)
                continue
            deleted += len(chunk)
        return deleted

    def prune(self, path: str) -> None:
        """See `FileIO`; nothing to do."""

    def _create(self, path: str, data: bytes) -> bool:
        """A conditional put whose outcome is known when this returns.

        Raises:
            StorageUnavailableError: the outcome is unknown.
        """
        key = self._key(path)
        token = uuid.uuid4().hex
        failure: Exception | None = None
        for _ in range(_PUT_TRIES):
            try:
                with translated("create", path):
                    obstore.put(self._store, key, data, mode="create", attributes={_TOKEN: token})
                return True
            except (FileExistsError, StorageUnavailableError) as error:
                failure = error
                owner = self._owner(path, key, token, data)
                if owner is not None:
                    return owner
        raise StorageUnavailableError(
            "it is unknown whether an object was created",
            detail=str(failure),
            hint="read it back, or try again once the store answers",
            path=path,
        ) from failure

    def _owner(self, path: str, key: str, token: str, data: bytes) -> bool | None:
        """Whether the stored object came from the put with this token; None = there is none.

        Without metadata the bytes are compared: every snapshot has its own id.
        """
        try:
            with translated("read back", path):
                current = obstore.get(self._store, key)
                owner = current.attributes.get(_TOKEN)
                if owner is not None:
                    return bool(owner == token)
                return current.bytes().to_bytes() == data
        except FileNotFoundError:
            return None

    def _prove(self, path: str) -> None:
        """Test, once per process, whether a store of unknown make honours the condition."""
        store = self._store
        if not self._unproven:
            return
        probe = f"{path.rpartition('/')[0]}/.probe.{uuid.uuid4()}.tmp"
        key = self._key(probe)
        try:
            with translated("try out", probe):
                obstore.put(store, key, b"1", mode="create")
                with contextlib.suppress(AlreadyExistsError):
                    obstore.put(store, key, b"2", mode="create")
                    raise UnsupportedFeatureError(
                        "the store ignores `If-None-Match` on a put, so commits could be lost",
                        hint="use a store, or a version of it, that honours `If-None-Match: *`",
                        location=self.root,
                    )
        finally:
            with contextlib.suppress(BaseError, FileNotFoundError):
                obstore.delete(store, key)
        self._unproven = False

    @property
    def _store(self) -> ObjectStore:
        self._require_runtime()
        with self._lock:
            if self._local_store is None:
                self._local_store, self._unproven = connect(self._location, self._options)
            return self._local_store

    def _require_runtime(self) -> None:
        if not isinstance(self._local_store, MemoryStore):
            _RUNTIME.enter()

    def _key(self, path: str) -> str:
        root = self.root
        if path.startswith("s3a://"):
            path = f"s3://{path[len('s3a://') :]}"
        if path != root and not path.startswith(root + "/"):
            raise InvalidRequestError(
                "a path outside of the warehouse's bucket", path=path, bucket=root
            )
        return path[len(root) + 1 :].strip("/")

    def _status(self, meta: Mapping[str, Any]) -> FileStatus:
        return FileStatus(
            name=_name(meta["path"]),
            path=f"{self.root}/{meta['path']}",
            size=int(meta["size"]),
            directory=False,
            modified_ms=int(meta["last_modified"].timestamp() * 1000),
        )


def _end_of(store: ObjectStore, key: str) -> tuple[int, memoryview]:
    """Size of an object and its last bytes."""
    try:
        tail = obstore.get(store, key, options={"range": {"suffix": TAIL_BYTES}})
        return int(tail.meta["size"]), memoryview(tail.bytes())
    except NotSupportedError:  # Azure has no suffix ranges
        size = int(obstore.head(store, key)["size"])
    except BaseError:  # S3 refuses a suffix of an empty object
        size = int(obstore.head(store, key)["size"])
        if size:
            raise
    if not size:
        return 0, memoryview(b"")
    start = max(0, size - TAIL_BYTES)
    return size, memoryview(obstore.get_range(store, key, start=start, end=size))


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _is_file(key: str, directory: str) -> bool:
    """False for the marker objects by which some tools make a directory."""
    return bool(key) and key.strip("/") != directory


_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_LONGEST_DETAIL = 400

_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"})
_WRONG_REGION = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_PASSING = frozenset({"RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable"})
_CREDENTIAL_ERRORS = frozenset(
    {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired"}
)
_PASSING_STATUS = frozenset({408, 425, 429})
_REDIRECTS = frozenset({301, 302, 307, 308})


@contextlib.contextmanager
def translated(operation: str, path: str) -> Iterator[None]:
    """Raise the client's errors as translated by `store_error`."""
    try:
        yield
    except (BaseError, FileNotFoundError, ValueError) as error:
        if isinstance(error, InvalidRequestError):  # ours, and a ValueError too
            raise
        raise store_error(operation, path, error) from error


# The client distinguishes kinds of failures only in part: a listing that is refused arrives as a
# generic error. So the HTTP status and the store's own error code are taken from its message, which
# is also cut down to one line: the rest repeats the request and may name keys.


def store_error(operation: str, path: str, error: Exception) -> Exception:
    """The exception that a caller of `FileIO` may expect.

    Returns:
        `FileNotFoundError`, `FileExistsError`, `PermissionError`, or an error of `storage.errors`.
    """
    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else None
    code = match[1] if (match := _CODE.search(text)) else ""
    if code in _NO_BUCKET:
        return NotFoundError(
            "there is no such bucket",
            detail=_detail(text),
            hint="make the bucket first, or correct the warehouse",
            path=path,
        )
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", path)
    if isinstance(error, AlreadyExistsError):
        return FileExistsError(errno.EEXIST, "the object exists", path)
    refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
    if refused or status in (401, 403) or code in _CREDENTIAL_ERRORS:
        advice = "check `s3.access-key`, `s3.secret-key` (or the AWS_… variables) and the policy"
        return PermissionError(
            errno.EACCES, f"the store refused the credentials ({_detail(text)}); {advice}", path
        )
    return _unknown_error(operation, path, error, status, code)


def _unknown_error(
    operation: str, path: str, error: Exception, status: int | None, code: str
) -> Exception:
    text = str(error)
    if code in _WRONG_REGION or status in _REDIRECTS or "redirect without LOCATION" in text:
        return InvalidRequestError(
            "the bucket is in another region",
            detail=_detail(text),
            hint="set `s3.region` (or AWS_REGION) to the bucket's region",
            path=path,
        )
    if isinstance(error, UnknownConfigurationKeyError):
        return InvalidOptionError("unknown option of the object store", detail=_detail(text))
    if isinstance(error, NotSupportedError) or status == 501:
        return UnsupportedFeatureError(
            "the store does not support this", detail=_detail(text), operation=operation, path=path
        )
    passing = status is None or status >= 500 or status in _PASSING_STATUS or code in _PASSING
    if isinstance(error, ValueError) or not passing:
        return InvalidRequestError(
            f"the store refuses to {operation} an object", detail=_detail(text), path=path
        )
    return StorageUnavailableError(
        f"cannot {operation} an object", detail=_detail(text), hint=_advice(text, status), path=path
    )


def _advice(text: str, status: int | None) -> str:
    if "169.254.169.254" in text or "credential" in text.lower():
        return "no credentials were found: set `s3.access-key` and `s3.secret-key`, or AWS_…"
    if status is None:
        return "check `s3.endpoint` and the network"
    return ""


def _detail(text: str) -> str:
    """One line: the client's message, with code and message of the response body."""
    line = text.partition("\n\nDebug source")[0]
    line = line.partition("<?xml")[0].partition("<Error>")[0]
    code, message = _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        line += f" {code[1]}" + (f": {message[1]}" if message else "")
    return " ".join(line.split())[:_LONGEST_DETAIL]
