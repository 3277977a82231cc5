# SPDX-License-Identifier: Apache-2.0
"""The chunk: one row of the Spark DataFrame, many rows of one bucket.

The shuffle moves a few large binary rows instead of millions of small ones, for all tables of a
micro-batch in one job. Chunks of other kinds carry what the driver must know:
schema deltas and the counters of each source range. Quarantined records travel as ordinary change
chunks of the quarantine table.
"""

import dataclasses
import enum
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN

if TYPE_CHECKING:  # else processes that only plan would import the tables
    from ingest.pipeline.range_report import RangeReport

__all__ = [
    "CHUNK_ARROW_SCHEMA",
    "OFFSET_COLUMN",
    "Chunk",
    "ChunkKind",
    "chunks_of",
    "encode_chunk",
    "encode_report",
    "ipc_batch",
    "ipc_bytes",
]

CHUNK_ARROW_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.int32()),
        pa.field("owner", pa.string()),
        pa.field("table", pa.string()),
        pa.field("partition", pa.binary()),
        pa.field("bucket", pa.int32()),
        pa.field("schema_id", pa.int64()),
        pa.field("topic", pa.string()),
        pa.field("source_partition", pa.int32()),
        pa.field("first_offset", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
"""`owner` names the table for slot planning; `(topic, source_partition, first_offset)` is the order
of a bucket's chunks, because Spark's shuffle keeps none (SPARK.md §5)."""


class ChunkKind(enum.IntEnum):
    """Kind of the content of a chunk."""

    CHANGES = 0
    REPORT = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of one (table, partition, bucket) from one source range, or a range's report.

    Attributes:
        kind: what `payload` holds.
        table: target `database.table`; empty for a report.
        partition: framed BinaryRow of the table partition.
        bucket: bucket id.
        schema_id: schema that the payload was decoded with.
        topic: source topic.
        source_partition: source partition.
        first_offset: smallest offset in the payload.
        payload: Arrow IPC stream of one record batch (changes), or a pickled `RangeReport`.
    """

    kind: ChunkKind
    table: str = ""
    partition: bytes = b""
    bucket: int = 0
    schema_id: int = 0
    topic: str = ""
    source_partition: int = 0
    first_offset: int = 0
    payload: bytes | pa.Buffer = b""

    @property
    def order(self) -> tuple[str, int, int]:
        """Source order of chunks of one bucket."""
        return (self.topic, self.source_partition, self.first_offset)


def ipc_bytes(batch: pa.RecordBatch) -> pa.Buffer:
    """Encode a record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def ipc_batch(payload: pa.Buffer | bytes) -> pa.RecordBatch:
    """Decode the record batch of an Arrow IPC stream, zero-copy over `payload`."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def encode_chunk(chunk: Chunk) -> pa.RecordBatch:
    """Return a chunk as a one-row batch of `CHUNK_ARROW_SCHEMA`."""
    size = len(chunk.payload)
    buffer = chunk.payload if isinstance(chunk.payload, pa.Buffer) else pa.py_buffer(chunk.payload)
    offsets = pa.array([0, size], pa.int32()).buffers()[1]
    payload = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])
    return pa.RecordBatch.from_arrays(
        [
            pa.array([int(chunk.kind)], pa.int32()),
            pa.array([chunk.table], pa.string()),
            pa.array([chunk.table], pa.string()),
            pa.array([chunk.partition], pa.binary()),
            pa.array([chunk.bucket], pa.int32()),
            pa.array([chunk.schema_id], pa.int64()),
            pa.array([chunk.topic], pa.string()),
            pa.array([chunk.source_partition], pa.int32()),
            pa.array([chunk.first_offset], pa.int64()),
            payload,
        ],
        schema=CHUNK_ARROW_SCHEMA,
    )


def encode_report(report: "RangeReport") -> pa.RecordBatch:
    """Return the report of a source task as a one-row batch."""
    return encode_chunk(Chunk(kind=ChunkKind.REPORT, payload=pickle.dumps(report, 5)))


def chunks_of(batch: pa.RecordBatch) -> Iterator[Chunk]:
    """Return the chunks of a batch from Spark; payloads stay views into the batch.

    Control plane: one object per chunk of megabytes, not per row.
    """
    payloads = batch.column("payload")
    rows = batch.drop_columns(["payload"]).to_pylist()
    for index, row in enumerate(rows):
        yield Chunk(
            kind=ChunkKind(row["kind"]),
            table=row["table"],
            partition=row["partition"],
            bucket=row["bucket"],
            schema_id=row["schema_id"],
            topic=row["topic"],
            source_partition=row["source_partition"],
            first_offset=row["first_offset"],
            payload=payloads[index].as_buffer(),
        )
