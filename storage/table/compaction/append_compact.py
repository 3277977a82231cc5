# SPDX-License-Identifier: Apache-2.0
"""Compaction of append tables: small files into larger ones, deleted rows out.

Source: SEMANTICS.md §E, §G.5. Which files, is decided in `append_picks`. The messages hold
compactions only; committed, they make one COMPACT snapshot. A commit fails when another job has
removed one of the files since, or has deleted rows of them.
"""

from storage.format.files.data_file import DataFileNames, DataFileOptions
from storage.format.metadata.file_meta import CommitMessage, DataFileMeta
from storage.format.metadata.snapshot import Snapshot
from storage.table.bucket_mode import UNAWARE_BUCKET
from storage.table.commit.commit_changes import discarded_on
from storage.table.commit.live_files import live_entries
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import BucketVectors, deletion_files
from storage.table.write.bucket_writers import (
    PackRules,
    bucket_context,
    compaction_message,
    pack_files,
    rewrite_files,
)


def compact_unaware(
    table: TableCore, snapshot: Snapshot, *, full: bool = False, partition: bytes | None = None
) -> list[CommitMessage]:
    """Merge the small files of a table without buckets: a message to commit per partition.

    Args:
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
            packs = unaware_packs(table, snapshot, where, files, full=full)
            if packs:
                messages.append(merge_packs(table, snapshot, where, packs))
    return messages


def unaware_packs(
    table: TableCore, snapshot: Snapshot, partition: bytes, files: list[DataFileMeta], *, full: bool
) -> list[list[DataFileMeta]]:
    """Files of one partition to merge, pack by pack; vectors of two packs share no index file.

    Args:
        table: without buckets.
        snapshot: its deletion vectors count.
        partition: framed.
        files: live files of the partition.
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
    if not options.deletion_vectors_enabled:
        return pack_files(files, rules)
    vectors = deletion_files(table, snapshot)((partition, UNAWARE_BUCKET))
    return pack_files(
        files,
        rules,
        cardinality=lambda name: vectors[name].cardinality,
        vector_file={name: vector.path for name, vector in vectors.items()},
    )


def merge_packs(
    table: TableCore, snapshot: Snapshot, partition: bytes, packs: list[list[DataFileMeta]]
) -> CommitMessage:
    """Merge packs of files of a partition, without deleted rows; the message takes the files out.

    Raises:
        StorageUnavailableError: the store failed; what was written is removed.
    """
    context = bucket_context(table, partition, UNAWARE_BUCKET)
    deletions = BucketVectors.of(table, snapshot, partition, UNAWARE_BUCKET)
    names = DataFileNames(table.ids)
    before = [file for pack in packs for file in pack]
    after: list[DataFileMeta] = []
    try:
        for pack in packs:
            after += rewrite_files(context, pack, names, deletions.selections(pack))
        change = deletions.without(file.file_name for file in before)
    except BaseException:
        context.delete_files(after)
        raise
    return compaction_message(context, before, after, change=change)
