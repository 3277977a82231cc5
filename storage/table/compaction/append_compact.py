# SPDX-License-Identifier: Apache-2.0
"""Compaction of append tables: small files into larger ones, deleted rows out.

Source: SEMANTICS.md §E, §G.5. Which files, is decided in `append_picks`. The messages hold
compactions only; committed, they make one COMPACT snapshot. A commit fails when another job has
removed one of the files since, or has deleted rows of them.
"""

from collections.abc import Mapping

from storage.format.files.data_file_options import DataFileNames, DataFileOptions
from storage.format.files.row_selection import RowSelection
from storage.format.metadata.file_meta import CommitMessage, CompactIncrement, DataFileMeta
from storage.format.metadata.snapshot import Snapshot
from storage.lsm.bucket import BucketContext
from storage.table.bucket_mode import UNAWARE_BUCKET
from storage.table.commit.live_files import live_entries
from storage.table.compaction.append_picks import PackRules, pack_files
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import VectorChange
from storage.table.uncommitted import discarded_on
from storage.table.write.append_write import BucketDeletions, rewrite_files
from storage.table.write.bucket_writers import bucket_context

__all__ = ["compact_unaware", "merge_packs", "unaware_packs"]


def compact_unaware(
    table: TableCore, snapshot: Snapshot, *, full: bool = False, partition: bytes | None = None
) -> list[CommitMessage]:
    """Merge the small files of a table without buckets: a message to commit per partition.

    Args:
        table: the table.
        snapshot: its files are merged.
        full: merge any two small files, not only `compaction.min.file-num`.
        partition: only this one (framed).
    """
    by_partition: dict[bytes, list[DataFileMeta]] = {}
    entries = live_entries(table, snapshot, partition=partition)
    for entry in entries[: table.options.compaction_file_num_limit]:
        by_partition.setdefault(entry.partition, []).append(entry.file)
    messages: list[CommitMessage] = []
    with discarded_on(table, messages):
        for where, files in sorted(by_partition.items()):
            deletions = BucketDeletions.of(table, snapshot, where, UNAWARE_BUCKET)
            packs = unaware_packs(table, files, deletions, full=full)
            if packs:
                context = bucket_context(table, where, UNAWARE_BUCKET)
                messages.append(merge_packs(table, context, packs, deletions))
    return messages


def unaware_packs(
    table: TableCore, files: list[DataFileMeta], deletions: BucketDeletions | None, *, full: bool
) -> list[list[DataFileMeta]]:
    """Files of one partition to merge, pack by pack; vectors of two packs share no index file.

    Args:
        table: without buckets.
        files: live files of the partition.
        deletions: their deletion vectors; None on a table without any.
        full: merge any two small files, not only `compaction.min.file-num`.
    """
    options = table.options
    target = DataFileOptions.of(options).target_file_size
    rules = PackRules(
        target_size=target,
        small_size=int(target * options.compaction_small_file_ratio),
        open_cost=options.source_split_open_file_cost,
        least_files=2 if full else options.compaction_min_file_num,
        delete_ratio=options.compaction_delete_ratio_threshold,
    )
    if deletions is None:
        return pack_files(files, rules)
    return pack_files(
        files,
        rules,
        cardinality=lambda name: deletions.files[name].cardinality,
        vector_file={name: vector.path for name, vector in deletions.files.items()},
    )


def merge_packs(
    table: TableCore,
    context: BucketContext,
    packs: list[list[DataFileMeta]],
    deletions: BucketDeletions | None,
) -> CommitMessage:
    """Merge each pack into new files; the message takes the files of all packs out.

    Raises:
        StorageUnavailableError: the store failed; what was written is removed.
    """
    options = DataFileOptions.of(table.options)
    names = DataFileNames(table.ids)
    before = [file for pack in packs for file in pack]
    after: list[DataFileMeta] = []
    change = VectorChange()
    try:
        for pack in packs:
            kept: Mapping[str, RowSelection] = {}
            if deletions is not None:
                kept = deletions.selections(file.file_name for file in pack)
            after += rewrite_files(context, pack, options, names, kept)
        if deletions is not None:
            change = deletions.without([file.file_name for file in before])
    except BaseException:
        context.delete_files(after)
        raise
    return CommitMessage(
        partition=context.partition,
        bucket=context.bucket,
        total_buckets=table.options.bucket,
        compact=CompactIncrement(
            compact_before=tuple(before),
            compact_after=tuple(after),
            new_index_files=change.new,
            deleted_index_files=change.deleted,
        ),
    )
