# SPDX-License-Identifier: Apache-2.0
"""What is due on a table after commits, in the order in which Paimon does it.

Source: SEMANTICS.md §F.5: automatic tags, tags that have had their time, partitions, partitions
that are done, consumers, snapshots and their changelogs. Nothing on a table that is `write-only`:
another job does it. Each step can stop anywhere and be repeated.

A daemon calls `TableUpkeep` when it wants. Batch commits of Python, SQL and Spark call
`after_commit`, which also compacts small files of append tables without buckets, whose writers
never compact.
"""

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from storage.errors import LakewardError
from storage.format.metadata.file_meta import CommitMessage
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.table.core import TableCore
from storage.table.iceberg import catch_up_iceberg
from storage.table.retention.expire import expire_snapshots
from storage.table.retention.expire_partitions import DoneTrigger, expire_partitions
from storage.table.tags import create_automatic_tags, create_batch_tag, expire_tags

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable

_LOG = logging.getLogger(__name__)


class TableUpkeep:
    """Upkeep of tables by one process, which remembers when partitions were looked at."""

    def __init__(self) -> None:
        self._partitions_checked: dict[str, int] = {}
        self._done_triggers: dict[str, DoneTrigger] = {}
        self._lock = threading.Lock()

    def run(
        self,
        table: TableCore,
        *,
        now_ms: int | None = None,
        keep_from: int | None = None,
        batch: bool = False,
        dedicated: bool = False,
    ) -> int:
        """Do what is due, and count the snapshots that were removed.

        Args:
            now_ms: current time [epoch ms]; None: what the table's clock says.
            keep_from: smallest snapshot id that a reader besides consumers still needs.
            batch: whether a batch job has just committed.
            dedicated: whether the caller is the maintenance job of tables that are `write-only`.

        Raises:
            LakewardError: a step failed; call again.
        """
        options = table.options
        if options.write_only and not dedicated:
            return 0
        now_ms = table.clock.now_ms() if now_ms is None else now_ms
        catch_up_iceberg(table)
        create_automatic_tags(table)
        if batch:
            create_batch_tag(table)
        if options.tag_time_expire_enabled:
            expire_tags(table, now_ms=now_ms)
        if options.partition_expiration_time_ms is not None:
            root = table.layout.branch_root
            before = self._partitions_checked.get(root)
            wait_ms = options.partition_expiration_check_interval_ms
            if before is None or now_ms >= before + wait_ms:
                expire_partitions(table, now_ms=now_ms)
                self._partitions_checked[root] = now_ms
        try:
            self.mark_done(table, now_ms=now_ms, ended=batch)
        finally:
            expired = expire_snapshots(table, now_ms=now_ms, keep_from=keep_from)
        return expired

    def mark_done(
        self,
        table: TableCore,
        *,
        now_ms: int,
        ended: bool = False,
    ) -> list[str]:
        """Mark the partitions that are done by now; see `DoneTrigger.run`."""
        with self._lock:
            trigger = self._done_triggers.setdefault(table.layout.branch_root, DoneTrigger())
            return trigger.run(table, now_ms=now_ms, ended=ended)


_OF_PROCESS = TableUpkeep()


def after_commit(
    table: "FileStoreTable", messages: Iterable[CommitMessage], *, batch: bool = True
) -> None:
    """Do what is due after a commit of this process.

    A failure is logged and does not raise: the commit stands, and the next one tries again.

    Args:
        batch: whether a batch job has just ended.
    """
    if table.options.write_only:
        return
    try:
        if bucket_mode(table.schema, table.options) is BucketMode.UNAWARE:
            partitions = frozenset(message.partition for message in messages)
            with ThreadPoolExecutor(1, "compact") as executor:
                compact_table(table, CompactRequest(full=False, only=partitions), executor)
        _OF_PROCESS.run(table, batch=batch)
    except (LakewardError, OSError) as error:
        _LOG.warning(
            "upkeep of a table failed, the next commit tries again",
            extra={"event": "upkeep_failed", "table": table.layout.root},
            exc_info=error,
        )
