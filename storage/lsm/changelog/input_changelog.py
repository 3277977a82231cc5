# SPDX-License-Identifier: Apache-2.0
"""The changelog of a table that passes on its input: every row as it was written.

Source: SEMANTICS.md §C.4. Data plane: no Python object per row.
"""

from collections.abc import Sequence

import pyarrow as pa

from storage.format.metadata.file_meta import DataFileMeta
from storage.lsm.bucket import BucketContext
from storage.lsm.key_order import sort_and_group
from storage.lsm.merge_functions.sequence_order import SequenceOrder
from storage.lsm.merge_order import in_merge_order

__all__ = ["write_input_changelog"]


def write_input_changelog(
    pieces: Sequence[pa.RecordBatch], sequence: SequenceOrder | None, context: BucketContext
) -> tuple[DataFileMeta, ...]:
    """Write all rows of a buffer, with the kinds they came with.

    Args:
        pieces: KeyValueBatches in arrival order, at least one.
        sequence: user-defined order of the rows of a key; None = arrival.
        context: the bucket.

    Returns:
        Changelog files with the rows by key, and those of one key in merge order.
    """
    batch = pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)
    groups = in_merge_order(batch, sort_and_group(batch, context.key_names), sequence)
    if groups.order is not None:
        batch = batch.take(pa.array(groups.order))
    writer = context.open_changelog_writer(0)
    done = False
    try:
        writer.write(batch)
        files = writer.close()
        done = True
    finally:
        if not done:
            writer.abort()
    return tuple(files)
