# SPDX-License-Identifier: Apache-2.0
"""Which partitions an overwrite replaces. Source: SEMANTICS.md §F.4."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.types.types import arrow_type
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore
from storage.table.read.read import TableRead
from storage.table.read.stored_rows import has_key
from storage.table.scan.predicate import literal_scalar, row_value
from storage.table.scan.scan import TableScan
from storage.table.write.bucket_writers import bucket_context

_BATCH_BYTES = 32 << 20


def require_keys_replaced(
    table: TableCore,
    latest: Snapshot | None,
    messages: Iterable[CommitMessage],
    replaces: Callable[[bytes], bool],
) -> None:
    """Check that no remaining partition has a key of the new rows.

    Args:
        table: with keys that may move between partitions.
        latest: the state that is overwritten.
        replaces: which partitions (framed) lose their rows.

    Raises:
        InvalidRequestError: a remaining partition has one.
    """
    if latest is None:
        return
    remaining = {part for part, _ in live_state(table, latest).buckets if not replaces(part)}
    if not remaining:
        return
    names = list(table.schema.primary_keys)
    new = list(_new_keys(table, messages, names))
    if not new:
        return
    keys = pa.Table.from_batches(new).combine_chunks().to_batches()[0]
    read = TableRead(table, names)
    for split in TableScan(table).with_all_levels().plan(latest).splits:
        if split.partition not in remaining:
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
        live = [file for name, file in upgraded.items() if name not in replaced]
        live += [file for file in message.compact.compact_after if file.file_name in replaced]
        for batch in context.read_run(live, batch_bytes=_BATCH_BYTES):
            yield batch.select(names)


def overwritten_partitions(
    table: TableCore, partition: Mapping[str, Any] | None, written: Iterable[bytes]
) -> Callable[[bytes], bool] | None:
    """Decides which partitions (framed) an overwrite replaces; None: there is nothing to do.

    Args:
        partition: values of some partition columns, in the static form of an overwrite.
        written: partitions that receive new files.

    Raises:
        InvalidRequestError: a written partition is not one that is replaced, or a column is no
            partition key or cannot have the value.
    """
    written = frozenset(written)
    if table.schema.partition_keys and table.options.dynamic_partition_overwrite:
        return written.__contains__ if written else None
    replaced = partition_matcher(table, partition or {})
    for target in written:
        if not replaced(target):
            raise InvalidRequestError(
                "a new row does not belong to this partition",
                hint="write only rows of the partition that is overwritten",
                partition=table.partition_path(target),
                overwritten=dict(partition or {}),
            )
    return replaced


def partition_matcher(table: TableCore, values: Mapping[str, Any]) -> Callable[[bytes], bool]:
    """Whether a framed partition has some values; exact, unlike pruning.

    Args:
        values: by partition column; a text is read as a value of the column, None is null.

    Raises:
        InvalidRequestError: a column is no partition key or cannot have the value.
    """
    fields = table.schema.partition_fields
    names = [field.name for field in fields]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise InvalidRequestError(
            "no such partition column",
            hint=f"the table is partitioned by {', '.join(names) or 'nothing'}",
            column=unknown[0],
        )
    expected: list[tuple[int, Any]] = []
    for position, field in enumerate(fields):
        if field.name not in values:
            continue
        value = values[field.name]
        if value is None or value == table.options.partition_default_name:
            expected.append((position, None))
            continue
        try:
            scalar = literal_scalar(value, arrow_type(field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidRequestError(
                "not a value of a partition column",
                detail=str(error),
                column=field.name,
                value=value,
            ) from error
        if scalar is None:
            return lambda _: False
        expected.append((position, row_value(scalar)))
    types = [field.type for field in fields]

    def matches(partition: bytes) -> bool:
        actual = decode_row(partition, types) if types else ()
        return all(actual[position] == value for position, value in expected)

    return matches
