# SPDX-License-Identifier: Apache-2.0
"""The lock of a Hive catalog."""

from collections.abc import Mapping

from storage.catalog.catalog import split_identifier
from storage.catalog.locks import CatalogLock
from storage.catalog.options import ACQUIRE_TIMEOUT
from storage.clients.hive_client import HiveMetastore


class HiveLock(CatalogLock):
    """An exclusive lock of a table in the metastore, as Paimon's `HiveCatalogLock` takes it."""

    def __init__(
        self, identifier: str, options: Mapping[str, str], metastore: HiveMetastore
    ) -> None:
        super().__init__(identifier, options)
        self._metastore = metastore

    def acquire(self) -> str | None:
        """See `CatalogLock`: a request that waits keeps its place in the metastore's queue."""
        token = self._metastore.lock(
            *split_identifier(self.name),
            clock=self.clock,
            timeout_ms=self.timeout_ms,
            max_sleep_ms=self.max_sleep_ms,
            hint=f"try again, or raise `{ACQUIRE_TIMEOUT}`",
        )
        return str(token)

    def release(self, token: str) -> None:
        """See `CatalogLock`."""
        self._metastore.unlock(int(token))
