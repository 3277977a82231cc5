# SPDX-License-Identifier: Apache-2.0
"""What is due on a table after commits, in the order in which Paimon does it.

Source: SEMANTICS.md §F.5: automatic tags, tags that have had their time, partitions, consumers,
snapshots and their changelogs. Nothing on a table that is `write-only`: another job does it.
Each step can stop anywhere and be repeated.
"""

from storage.table.core import TableCore
from storage.table.retention.auto_tags import create_automatic_tags, create_batch_tag, expire_tags
from storage.table.retention.expire import expire_snapshots
from storage.table.retention.expire_partitions import expire_partitions

__all__ = ["TableUpkeep"]


class TableUpkeep:
    """Upkeep of tables by one process, which remembers when partitions were looked at."""

    def __init__(self) -> None:
        self._partitions_checked: dict[str, int] = {}

    def run(
        self,
        table: TableCore,
        *,
        now_ms: int | None = None,
        keep_from: int | None = None,
        batch: bool = False,
        dedicated: bool = False,
    ) -> int:
        """Do what is due.

        Args:
            table: the table, at a branch.
            now_ms: current time [epoch ms]; None: what the table's clock says.
            keep_from: smallest snapshot id that a reader besides consumers still needs.
            batch: whether a batch job has just committed.
            dedicated: whether the caller is who looks after tables that are `write-only`.

        Returns:
            How many snapshots were removed.

        Raises:
            LakewardError: a step failed; call again.
        """
        options = table.options
        if options.write_only and not dedicated:
            return 0
        now_ms = table.clock.now_ms() if now_ms is None else now_ms
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
        return expire_snapshots(table, now_ms=now_ms, keep_from=keep_from)
