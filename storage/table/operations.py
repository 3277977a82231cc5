# SPDX-License-Identifier: Apache-2.0
"""Operations on a table that are methods of `FileStoreTable`: the rooms' functions, bound."""

from storage.lsm.merge_tree_writer import MergeTreeWriter
from storage.table import branches, tags
from storage.table.bucket_mode import require_keyed_buckets
from storage.table.commit import commit_changes
from storage.table.core import TableCore
from storage.table.iceberg import sync_iceberg
from storage.table.retention import expire
from storage.table.retention import expire_partitions as mark_done
from storage.table.retention import expire_partitions as partition_expiry
from storage.table.write import drop_partitions as partitions
from storage.table.write.bucket_writers import open_merge_tree_writer
from storage.table.write.rows import row_changes


class TableOperations(TableCore):
    """Tags, branches, deletes, expiry: each method is the function of its name.

    The functions take the table first; their docstrings say what they do, and what they raise.
    """

    create_tag = tags.create_tag
    replace_tag = tags.replace_tag
    rename_tag = tags.rename_tag
    delete_tag = tags.delete_tag

    create_branch = branches.create_branch
    rename_branch = branches.rename_branch
    drop_branch = branches.drop_branch
    fast_forward = branches.fast_forward

    delete_where = row_changes.delete_where
    update_where = row_changes.update_where
    count_where = row_changes.count_where
    merge = row_changes.merge
    change_rows = row_changes.change_rows
    delete_uncommitted = commit_changes.delete_uncommitted
    drop_partitions = partitions.drop_partitions
    append_rows = partitions.append_rows
    overwrite_rows = partitions.overwrite_rows
    truncate = partitions.truncate

    expire_snapshots = expire.expire_snapshots
    expire_changelogs = expire.expire_changelogs
    expire_partitions = partition_expiry.expire_partitions
    mark_partitions_done = mark_done.mark_partitions_done
    remove_orphan_files = expire.remove_orphan_files

    rollback_to = branches.rollback_to
    sync_iceberg = sync_iceberg
    repair_hints = branches.repair_hints

    def bucket_writer(
        self, partition: bytes, bucket: int, snapshot_id: int | None
    ) -> MergeTreeWriter:
        """A writer of one bucket that continues from a snapshot.

        Raises:
            NotFoundError: there is no such snapshot (any more).
            InvalidRequestError: the partition was written with another number of buckets.
            UnsupportedFeatureError: the table cannot be written by this version, has no primary
                key, or finds the buckets of its rows by an index.
        """
        require_keyed_buckets(self.schema, self.options)
        snapshot = None if snapshot_id is None else self.snapshots.read(snapshot_id)
        return open_merge_tree_writer(self, partition, bucket, snapshot)
