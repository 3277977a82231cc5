# SPDX-License-Identifier: Apache-2.0
"""Locks of catalogs: commits on stores that cannot publish a file atomically by themselves.

Source: Paimon's `CatalogLock` and `RenamingSnapshotCommit`. With `lock.enabled` (by default: on
object stores) the catalog gives a lock per table, and every publication of a snapshot, a schema or
a tag happens under it: look whether the file is there, then write it. Where the store has a
conditional put, that is still used: writers that take the lock and writers that do not are then
both safe.
"""

import abc
import contextlib
import logging
from collections.abc import Iterator, Mapping

from storage.catalog.options import ACQUIRE_TIMEOUT, MAX_SLEEP, milliseconds
from storage.clock import Clock, SystemClock
from storage.errors import CommitConflictError, RetryableError, UnsupportedFeatureError
from storage.io.file_io import FileIO
from storage.io.forwarding import ForwardingFileIO

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
