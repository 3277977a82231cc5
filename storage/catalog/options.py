# SPDX-License-Identifier: Apache-2.0
"""Options of catalogs: which there are, and which belong to the object store.

Source: Paimon's `CatalogOptions`. Options that only tune a cache or a pool of Paimon's own are
accepted and have no effect here.
"""

import abc
import contextlib
import difflib
import logging
from collections.abc import Collection, Iterator, Mapping

from storage.clock import Clock, SystemClock
from storage.errors import (
    CommitConflictError,
    InvalidOptionError,
    RetryableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema
from storage.io.counting import ForwardingFileIO
from storage.io.file_io import FileIO
from storage.options import values

METASTORE = "metastore"
WAREHOUSE = "warehouse"
URI = "uri"
LOCK_ENABLED = "lock.enabled"
MAX_SLEEP = "lock-check-max-sleep"
ACQUIRE_TIMEOUT = "lock-acquire-timeout"
SYNC_ALL_PROPERTIES = "sync-all-properties"
FORMAT_TABLES = "format-table.enabled"
TABLE_DEFAULT = "table-default."
"""Prefix of options that new tables get unless they set them."""

STORE_PREFIXES = ("s3.", "s3a.", "fs.s3a.", "gs.", "az.", "hdfs.", "hadoop-conf-dir", "store.")
"""Prefixes of options of object stores and HDFS."""

_COMMON = frozenset({METASTORE, WAREHOUSE, LOCK_ENABLED, MAX_SLEEP, ACQUIRE_TIMEOUT, FORMAT_TABLES})
_WITHOUT_EFFECT = frozenset(
    {
        "client-pool-size",
        "cache-enabled",
        "cache.expire-after-access",
        "cache.expire-after-write",
        "cache.partition.max-num",
        "cache.manifest.small-file-memory",
        "cache.manifest.small-file-threshold",
        "cache.manifest.max-memory",
        "cache.manifest.soft-values",
        "cache.snapshot.max-num-per-table",
        "cache.deletion-vectors.max-num",
        "file-io.allow-cache",
        "resolving-file-io.enabled",
    }
)
_UNSUPPORTED = {
    "lock.type": "the lock is that of the metastore: remove it",
    "case-sensitive": "remove it",
    "data-token.enabled": "give the credentials of the object store as its own options",
    "fs.allow-hadoop-fallback": "remove it",
}


def split_options(
    options: Mapping[str, str], catalog_keys: Collection[str] = (), prefixes: tuple[str, ...] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Options of a catalog: its own, and those of the object store.

    Args:
        options: all.
        catalog_keys: keys of this kind of catalog, besides those of every kind.
        prefixes: of further keys of this kind.

    Raises:
        InvalidOptionError: an option is unknown.
        UnsupportedFeatureError: an option would change the behaviour and is not supported.
    """
    store = {key: value for key, value in options.items() if key.startswith(STORE_PREFIXES)}
    settings = {key: value for key, value in options.items() if key not in store}
    for key, value in settings.items():
        if key in catalog_keys or key in _COMMON or key in _WITHOUT_EFFECT:
            continue
        if key.startswith((TABLE_DEFAULT, *prefixes)):
            continue
        if key in _UNSUPPORTED:
            if value.strip().lower() == "false":
                continue
            raise UnsupportedFeatureError(
                "this option of a catalog is not supported",
                hint=_UNSUPPORTED[key],
                option=key,
                value=value,
            )
        near = difflib.get_close_matches(key, [*catalog_keys, *_COMMON], 1)
        hint = f"did you mean `{near[0]}`?" if near else "see docs/guides/catalogs.md"
        raise InvalidOptionError("unknown option for this kind of catalog", hint=hint, key=key)
    return settings, store


def table_properties(schema: TableSchema) -> dict[str, str]:
    """What Paimon stores of a table with `sync-all-properties`: options, keys, comment."""
    keys = {
        "primary-key": ",".join(schema.primary_keys),
        "partition": ",".join(schema.partition_keys),
        "bucket-key": ",".join(schema.bucket_keys),
    }
    comment = {} if schema.comment is None else {"comment": schema.comment}
    return {**schema.options, **comment, **{key: text for key, text in keys.items() if text}}


def flag(options: Mapping[str, str], key: str, default: bool) -> bool:
    """An option that is true or false.

    Raises:
        InvalidOptionError: it is neither.
    """
    try:
        return values.boolean(options[key]) if key in options else default
    except ValueError as error:
        raise InvalidOptionError(f"option is not {error}", key=key, value=options[key]) from error


def milliseconds(options: Mapping[str, str], key: str, default: str) -> int:
    """An option that is a duration [ms].

    Raises:
        InvalidOptionError: it is not valid.
    """
    text = options.get(key, default)
    try:
        return values.duration_ms(text)
    except ValueError as error:
        raise InvalidOptionError(f"option is not {error}", key=key, value=text) from error


# Locks of catalogs: commits on stores that cannot publish a file atomically by themselves.
#
# Source: Paimon's `CatalogLock` and `RenamingSnapshotCommit`. With `lock.enabled` (by default: on
# object stores) the catalog gives a lock per table, and every publication of a snapshot, a schema
# or a tag happens under it: look whether the file is there, then write it. Where the store has a
# conditional put, that is still used: writers that take the lock and writers that do not are then
# both safe.


_LOG = logging.getLogger(__name__)

_FIRST_SLEEP_MS = 50


class CatalogLock(abc.ABC):
    """The lock of one table. Picklable; not reentrant."""

    def __init__(self, name: str, options: Mapping[str, str], clock: Clock | None = None) -> None:
        self.name = name
        self.max_sleep_ms = milliseconds(options, MAX_SLEEP, "8 s")
        self.timeout_ms = milliseconds(options, ACQUIRE_TIMEOUT, "8 min")
        self.clock = clock or SystemClock()

    @abc.abstractmethod
    def acquire(self) -> str | None:
        """Try once to take the lock; the token that releases it, or None: another has it."""

    @abc.abstractmethod
    def release(self, token: str) -> None:
        """Give the lock back."""

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            CommitConflictError: others held it all the time.
        """
        token = self._wait()
        since_s = self.clock.monotonic_s()
        try:
            yield
        finally:
            self._release(token, (self.clock.monotonic_s() - since_s) * 1000)

    def _release(self, token: str, held_ms: float) -> None:
        """Release a lock that is still held: an expired one may be another's by now."""
        if held_ms >= self.timeout_ms:
            _LOG.warning("a lock was held until it expired", extra={"lock": self.name})
            return
        try:
            self.release(token)
        except RetryableError as error:
            extra = {"lock": self.name}
            _LOG.warning("a lock could not be released; it expires", extra=extra, exc_info=error)

    def _wait(self) -> str:
        started_s = self.clock.monotonic_s()
        sleep_ms = _FIRST_SLEEP_MS
        while True:
            token = self.acquire()
            if token is not None:
                return token
            waited_ms = (self.clock.monotonic_s() - started_s) * 1000
            if waited_ms > self.timeout_ms:
                raise CommitConflictError(
                    "the lock of the table could not be acquired",
                    hint=f"try again, or raise `{ACQUIRE_TIMEOUT}`",
                    lock=self.name,
                    waited_ms=int(waited_ms),
                )
            self.clock.sleep(min(sleep_ms, self.max_sleep_ms) / 1000)
            sleep_ms *= 2


class LockedFileIO(ForwardingFileIO):
    """The store of one table whose publications happen under a lock."""

    def __init__(self, inner: FileIO, lock: CatalogLock) -> None:
        super().__init__(inner)
        self.lock = lock

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`.

        Raises:
            CommitConflictError: the lock could not be acquired; nothing was written.
        """
        with self.lock.hold():
            try:
                return self.inner.put_if_absent(path, data)
            except UnsupportedFeatureError:
                if self.inner.is_file(path):
                    return False
                self.inner.overwrite_bytes(path, data)
                return True
