# SPDX-License-Identifier: Apache-2.0
"""That an overwrite leaves no key of a cross-partition table in two partitions."""

from collections.abc import Callable, Iterable

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore
from storage.table.read.read import TableRead
from storage.table.read.stored_rows import has_key
from storage.table.scan.scan import TableScan
from storage.table.write.bucket_writers import bucket_context

__all__ = ["require_keys_replaced"]

_BATCH_BYTES = 32 << 20


def require_keys_replaced(
    table: TableCore,
    latest: Snapshot | None,
    messages: Iterable[CommitMessage],
    replaces: Callable[[bytes], bool],
) -> None:
    """Check that no partition which stays has a key of the new rows.

    Args:
        table: with keys that may move between partitions.
        latest: the state that is overwritten.
        messages: of the new rows.
        replaces: which partitions (framed) lose their rows.

    Raises:
        InvalidRequestError: a partition that stays has one.
    """
    if latest is None:
        return
    kept = {part for part, _ in live_state(table, latest).buckets if not replaces(part)}
    if not kept:
        return
    names = list(table.schema.primary_keys)
    new = list(_new_keys(table, messages, names))
    if not new:
        return
    keys = pa.Table.from_batches(new).combine_chunks().to_batches()[0]
    read = TableRead(table, names)
    for split in TableScan(table).with_all_levels().plan(latest).splits:
        if split.partition not in kept:
            continue
        for batch in read.to_batches(split):
            if has_key(batch.select(names), keys, names).any():
                raise InvalidRequestError(
                    "a partition that is not overwritten has a key of the new rows",
                    detail="a key of this table is in one partition",
                    hint="overwrite the whole table, or delete the key first",
                    table=table.layout.root,
                    partition=split.partition_path,
                )


def _new_keys(
    table: TableCore, messages: Iterable[CommitMessage], names: list[str]
) -> Iterable[pa.RecordBatch]:
    for message in messages:
        context = bucket_context(table, message.partition, message.bucket)
        files = (*message.data.new_files, *message.compact.compact_after)
        replaced = {file.file_name for file in message.compact.compact_before}
        upgraded = {file.file_name: file for file in files}
        left = [file for name, file in upgraded.items() if name not in replaced]
        left += [file for file in message.compact.compact_after if file.file_name in replaced]
        for batch in context.read_run(left, batch_bytes=_BATCH_BYTES):
            yield batch.select(names)
