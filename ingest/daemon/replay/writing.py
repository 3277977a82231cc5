# SPDX-License-Identifier: Apache-2.0
"""Writes rows of a replay to a table, and marks in the quarantine table, one commit each."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from ingest.daemon.replay.decoded import PartRows
from ingest.pipeline.chunk import OFFSET_COLUMN, Chunk, ChunkKind, ipc_bytes
from ingest.pipeline.map_side import slices, split_rows
from ingest.pipeline.plan import BatchPlan
from ingest.pipeline.reduce_side import reduce_chunks
from ingest.state.table_cache import Warehouse
from storage.format.types.types import VALUE_KIND, RowKind
from storage.table.table import FileStoreTable

__all__ = ["change_rows", "write_rows"]


def write_rows(
    warehouse: Warehouse,
    table: FileStoreTable,
    name: str,
    parts: Sequence[PartRows],
    *,
    user: str,
    identifier: int,
) -> int:
    """Write change rows and commit them; the number of rows.

    Args:
        warehouse: where the table is.
        table: in the version of its schema that the rows have.
        name: its name.
        parts: rows by source partition, in the order in which they are to be applied.
        user: commit user.
        identifier: of the commit; a commit that is there already is not made again.
    """
    schema_id = table.schema.id
    plan = BatchPlan(batch_id=-1, identifier=identifier, tables={name: schema_id})
    buckets: dict[tuple[bytes, int], list[Chunk]] = {}
    for number, part in enumerate(parts):
        for partition, bucket, rows in split_rows(part.rows, table):
            chunks = buckets.setdefault((partition, bucket), [])
            for piece in slices(rows):
                chunks.append(
                    Chunk(
                        kind=ChunkKind.CHANGES,
                        table=name,
                        partition=partition,
                        bucket=bucket,
                        schema_id=schema_id,
                        topic=part.topic,
                        source_partition=part.partition,
                        first_offset=number,
                        payload=ipc_bytes(piece),
                    )
                )
    results = [reduce_chunks(warehouse, plan, chunks) for chunks in buckets.values()]
    messages = [message for result in results for message in result.messages]
    if messages:
        table.new_commit(user).commit(messages, identifier)
    return sum(part.rows.num_rows for part in parts)


def change_rows(
    rows: pa.Table, kind: RowKind, columns: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Rows of a table as change rows of one kind, with some columns replaced."""
    for name, column in (columns or {}).items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), column)
    count = rows.num_rows
    rows = rows.append_column(VALUE_KIND, pa.array([int(kind)] * count, pa.int8()))
    rows = rows.append_column(OFFSET_COLUMN, pa.array(range(count), pa.int64()))
    (batch,) = rows.combine_chunks().to_batches()
    return batch
