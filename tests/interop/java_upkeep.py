# SPDX-License-Identifier: Apache-2.0
"""Upkeep of tables by Java: expiry, orphan files, long-lived changelogs; and its system tables."""

from collections.abc import Mapping

import pyarrow as pa

from tests.interop.java_peer import JavaPeer

__all__ = ["changelogs", "expire", "orphans", "system_rows"]


def system_rows(java: JavaPeer, name: str, options: Mapping[str, str] | None = None) -> pa.Table:
    """Rows of a system table, `database.table$name`, in the types of Java's Parquet files."""
    return java.rows(java.table(name, options))


def expire(java: JavaPeer, name: str) -> None:
    """Expire snapshots, then long-lived changelogs, as Java does after a commit."""
    table = java.table(name)
    config = table.coreOptions().expireConfig()
    table.newExpireSnapshots().config(config).expire()
    if table.coreOptions().changelogLifecycleDecoupled():
        table.newExpireChangelog().config(config).expire()


def orphans(java: JavaPeer, name: str, older_than_ms: int) -> list[str]:
    """Paths of the files that Java would remove as orphans."""
    cleaner = java.paimon.operation.LocalOrphanFilesClean(java.table(name), older_than_ms, True)
    return sorted(str(path) for path in cleaner.clean().getDeletedFilesPath())


def changelogs(java: JavaPeer, name: str) -> list[int]:
    """Ids of the long-lived changelogs that Java finds."""
    found = java.table(name).changelogManager().safelyGetAllChangelogs()
    return sorted(changelog.id() for changelog in found)
