# SPDX-License-Identifier: Apache-2.0
"""The chunk: one row of the Spark DataFrame, many rows of one bucket.

The shuffle moves a few large binary rows instead of millions of small ones, for all tables of a
micro-batch in one job. Chunks of other kinds carry what the driver must know:
schema deltas and the counters of each source range. Quarantined records travel as ordinary change
chunks of the quarantine table.

Where all tasks run on one machine the rows of large chunks stay in files of this machine, and the
shuffle moves their places (docs/adr/ingest/0039).
"""

import contextlib
import dataclasses
import enum
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN

if TYPE_CHECKING:  # else processes that only plan would import the tables
    from pyspark import SparkContext

    from ingest.pipeline.range_report import RangeReport

__all__ = [
    "CHUNK_ARROW_SCHEMA",
    "OFFSET_COLUMN",
    "Chunk",
    "ChunkFile",
    "ChunkKind",
    "chunk_folder",
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

_STORED_BYTES = 64 << 10
"""Smaller chunks are not worth a file [bytes]."""


class ChunkKind(enum.IntEnum):
    """Kind of the content of a chunk."""

    CHANGES = 0
    REPORT = 1
    PLACE = 2


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
        payload: Arrow IPC stream of one record batch (changes), a pickled `RangeReport`, or the
            place of changes: start, size and path of such a stream in a file.
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


@contextlib.contextmanager
def chunk_folder(context: "SparkContext", turn: int) -> Iterator[str]:
    """Create the directory for the chunk files of one run of a batch, and remove it with them.

    Args:
        context: of the session; only in local mode are all tasks on this machine.
        turn: any number; several local directories take turns by it.

    Yields:
        Its path below Spark's local directory; "" where chunks must travel in rows: with executors
        on other machines, or if Spark encrypts its files.
    """
    conf = context.getConf()
    places = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or ""
    encrypted = str(conf.get("spark.io.encryption.enabled")).lower() == "true"
    if not (context.master == "local" or context.master.startswith("local[")) or encrypted:
        yield ""
        return
    roots = [place.strip() for place in places.split(",") if place.strip()]
    place = roots[turn % len(roots)] if roots else tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="chunks-", dir=place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ChunkFile:
    """Rows of a task's chunks: in a file if there is a folder, else in the chunks.

    The JVM copies each row of Spark's eight times between two Python processes, and keeps it on its
    heap meanwhile; the place of rows is small, and a reader maps them.

    Args:
        folder: see `chunk_folder`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = ""
        self._file: pa.OSFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, rows: pa.RecordBatch) -> tuple[ChunkKind, bytes | pa.Buffer]:
        """Return kind and payload of the chunk of these rows; readers may follow at once."""
        if not self._folder or rows.nbytes < _STORED_BYTES:
            return ChunkKind.CHANGES, ipc_bytes(rows)
        if self._file is None:  # another attempt of the task has a file of its own
            handle, self._path = tempfile.mkstemp(dir=self._folder)
            os.close(handle)
            self._file = pa.OSFile(self._path, "wb")
        start = self._file.tell()
        with pa.ipc.new_stream(self._file, rows.schema) as writer:
            writer.write_batch(rows)
        return ChunkKind.PLACE, f"{start} {self._file.tell() - start} {self._path}".encode()


def _rows_at(place: bytes) -> pa.Buffer:
    """Map the rows of a place; they outlive the file's removal."""
    start, size, path = place.decode().split(" ", 2)
    with pa.memory_map(path) as file:
        file.seek(int(start))
        return file.read_buffer(int(size))


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
    """Return the chunks of a batch from Spark; payloads are views into the batch or into files.

    Control plane: one object per chunk of megabytes, not per row.
    """
    payloads = batch.column("payload")
    rows = batch.drop_columns(["payload"]).to_pylist()
    for index, row in enumerate(rows):
        kind, payload = ChunkKind(row["kind"]), payloads[index].as_buffer()
        if kind is ChunkKind.PLACE:
            kind, payload = ChunkKind.CHANGES, _rows_at(payload.to_pybytes())
        yield Chunk(
            kind=kind,
            table=row["table"],
            partition=row["partition"],
            bucket=row["bucket"],
            schema_id=row["schema_id"],
            topic=row["topic"],
            source_partition=row["source_partition"],
            first_offset=row["first_offset"],
            payload=payload,
        )
