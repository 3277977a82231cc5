# SPDX-License-Identifier: Apache-2.0
"""Estimated size of a table once its topics are read, from a sample.

Rows: messages, times the share of rows that stay: inserts and snapshot rows less deletes, or, where
the sample has none of them, distinct keys. Bytes: what the sample's rows take in a compressed
Parquet file, per row. Both are order-of-magnitude estimates.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.schema.new_tables import recommended_buckets

_FEW_ROWS = 100
"""With fewer rows of the sample an estimate is rough."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of one table.

    Attributes:
        messages: in its topics.
        topic_bytes: of them.
        rows: that the table will have.
        row_bytes: one of them in a file.
        bytes: of the newest rows in data files; older versions add to it until compacted.
        files: in which they are, after compaction.
        buckets: as the table is set up; 0 = an index finds them.
        recommended: number of buckets.
        partitioned: whether numbers of buckets are those of each of its partitions.
        rough: whether the sample was too small.
    """

    messages: int
    topic_bytes: int
    rows: int
    row_bytes: float
    bytes: int
    files: int
    buckets: int
    recommended: int
    partitioned: bool
    rough: bool


def kept_share(counts: Mapping[str, int], records: int, rows: int, keys: int) -> float:
    """The share of messages that leave a row, between 0 and 1.

    Args:
        counts: records by fate (`DecodeResult.counts`).
        records: in the sample.
        rows: decoded from it.
        keys: distinct primary keys among them; 0 = there is no key.
    """
    if records == 0:
        return 0.0
    if keys == 0:
        return min(1.0, rows / records)
    inserts = counts.get("op.r", 0) + counts.get("op.c", 0)
    if inserts:
        return max(0.0, min(1.0, (inserts - counts.get("op.d", 0)) / records))
    return min(1.0, keys / records)


def row_bytes(batches: Sequence[pa.RecordBatch]) -> float:
    """Mean size of a row in a Parquet file of these rows [bytes]; 0 without rows."""
    rows = sum(batch.num_rows for batch in batches)
    if rows == 0:
        return 0.0
    out = pa.BufferOutputStream()
    table = pa.concat_tables(
        map(pa.Table.from_batches, ([b] for b in batches)), promote_options="default"
    )
    pq.write_table(table, out, compression="zstd")
    footer = pq.read_metadata(pa.BufferReader(out.getvalue()))
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size = sum(
        group.column(at).total_compressed_size
        for group in groups
        for at in range(group.num_columns)
    )
    return float(size / rows)


def estimate(
    *,
    messages: int,
    topic_bytes: int,
    share: float,
    per_row: float,
    sampled_rows: int,
    buckets: int,
    target_file_bytes: int,
    partitioned: bool,
) -> Estimate:
    """Combine the parts.

    Args:
        messages: in the topics of the table.
        topic_bytes: of them.
        share: see `kept_share`.
        per_row: see `row_bytes`.
        sampled_rows: rows that these two are based on.
        buckets: of the table; below 1 = not fixed.
        target_file_bytes: `target-file-size`.
        partitioned: whether the table has partitions.
    """
    rows = round(messages * share)
    size = round(rows * per_row)
    recommended = recommended_buckets(size)
    spread = buckets if buckets > 0 else recommended
    per_bucket = size / spread
    files = spread * max(1, -(-int(per_bucket) // target_file_bytes)) if rows else 0
    return Estimate(
        messages=messages,
        topic_bytes=topic_bytes,
        rows=rows,
        row_bytes=round(per_row, 1),
        bytes=size,
        files=files,
        buckets=max(0, buckets),
        recommended=recommended,
        partitioned=partitioned,
        rough=sampled_rows < _FEW_ROWS,
    )
