# SPDX-License-Identifier: Apache-2.0
"""The rows that a sweep deletes (`sweeps`): found in the source task, thinned out in the reduce."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.pipeline.deletions.delete_rows import as_deletes
from ingest.source.ranges import SourceRange
from ingest.state.sweeps import Sweep
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.key_order import sort_and_group
from storage.table.read.read import TableRead
from storage.table.scan.scan import Split
from storage.table.table import FileStoreTable

__all__ = ["SWEEP_PIECE", "untouched", "without_touched"]

SWEEP_PIECE = SourceRange("", 0, 0, 0)
"""Where deletes of a sweep come from, as far as the order of chunks goes: before any topic, so that
whatever the batch has of a key comes later."""

_BEFORE_ALL = -1


def untouched(table: FileStoreTable, sweep: Sweep) -> Iterator[pa.RecordBatch]:
    """A delete for every row that nobody wrote since the snapshot began, whole.

    A split is read whole only if its keys and numbers say that it has one.

    Yields:
        Change rows of a source task: the table's columns, kind, and an offset before all others.

    Raises:
        CorruptDataError: a file violates the format, or is missing of the newest snapshot.
        NotFoundError: the snapshot has expired.
        FileNotFoundError: a file of it is missing.
    """
    if not sweep.snapshot_id:
        return
    # rows of level 0 too, which batch reads of some tables leave out
    plan = table.new_scan().with_snapshot(sweep.snapshot_id).with_all_levels().plan()
    whole = TableRead(table, sequence_numbers=True)
    keys = TableRead(table, table.schema.trimmed_primary_keys, sequence_numbers=True)
    for split in plan.splits:
        if not _may_have(split, sweep.floor):
            continue
        if sweep.floor is not None and not any(_found(keys, split, sweep.floor)):
            continue
        for rows in _found(whole, split, sweep.floor):
            yield as_deletes(table, rows, _BEFORE_ALL)


def _may_have(split: Split, floor: int | None) -> bool:
    return floor is None or any(file.min_sequence_number <= floor for file in split.files)


def _found(read: TableRead, split: Split, floor: int | None) -> Iterator[pa.RecordBatch]:
    """Rows of a split that are there and not numbered above a floor."""
    adds = pa.array([int(RowKind.INSERT), int(RowKind.UPDATE_AFTER)], pa.int8())
    for batch in read.to_batches(split):
        wanted = pc.is_in(batch.column(VALUE_KIND), adds)
        if floor is not None:
            wanted = pc.and_(wanted, pc.less_equal(batch.column(SEQUENCE_NUMBER), floor))
        rows = batch.filter(wanted)
        if rows.num_rows:
            yield rows


def without_touched(
    swept: Sequence[pa.RecordBatch], others: Sequence[pa.RecordBatch], keys: Sequence[str]
) -> tuple[list[pa.RecordBatch], int]:
    """The deletes of keys of which the batch has no other row.

    The others are no news to anyone: whatever the batch says of the key comes later.

    Args:
        swept: deletes, each key once.
        others: all other rows of what the task owns.
        keys: columns by which rows are one and the same.

    Returns:
        (deletes, how many).
    """
    count = sum(rows.num_rows for rows in swept)
    if not count:
        return [], 0
    names = list(keys)
    found = pa.concat_batches([rows.select(names) for rows in (*swept, *others)])
    groups = sort_and_group(found, names)
    lasts = np.r_[groups.starts[1:], found.num_rows] - 1
    lasts = lasts if groups.order is None else groups.order[lasts]
    kept = np.zeros(count, bool)
    kept[lasts[lasts < count]] = True
    left, start = [], 0
    for rows in swept:
        mask = kept[start : start + rows.num_rows]
        start += rows.num_rows
        if mask.any():
            left.append(rows if mask.all() else rows.filter(pa.array(mask)))
    return left, int(kept.sum())
