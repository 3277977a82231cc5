# SPDX-License-Identifier: Apache-2.0
"""What driver and tasks exchange: plan of a batch, chunks of rows, report of a range.

The plan is passed as a Spark local property, so that the readers of the source (pickled once per
query) and the reducers of one job see the same schemas, also when a task is retried: `read` must
return the same chunks for one range and one run (SPARK.md §7).
"""

import base64
import contextlib
import dataclasses
import enum
import functools
import hashlib
import heapq
import os
import pickle
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN, BadRecord, ChangeBatch, SchemaDelta
from ingest.decode.registry import REGISTRY_CALLS
from ingest.decode.schema_change_events import TableDdl
from ingest.pipeline.truncates import Truncate, TruncationPoint
from ingest.schema.routing import Answers
from ingest.source.records import RawBatch, floor_of
from ingest.state.stream_state import StoredPositions, merged_positions
from storage.errors import InternalError, LakewardError
from storage.format.metadata.file_meta import CommitMessage
from storage.format.types.types import VALUE_KIND, RowKind
from storage.io.counting import STORE_CALLS, CallFigures
from storage.lsm.lookup.store import LookupCounters, process_store

if TYPE_CHECKING:
    from pyspark.sql.conf import RuntimeConfig

PLAN_PROPERTY = "lakeward.plan"

OffsetMap = Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class Unwritable:
    """A record whose row caused an unexpected error in a step after decoding.

    Attributes:
        table: `database.table` of the row.
        topic: topic of the record.
        partition: partition of the record.
        offset: offset of the record.
        why: the error, for quarantine.
    """

    table: str
    topic: str
    partition: int
    offset: int
    why: str

    @property
    def place(self) -> tuple[str, str, int]:
        """Table, topic and partition."""
        return self.table, self.topic, self.partition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """One run of one micro-batch.

    Attributes:
        batch_id: Spark's batch id.
        identifier: commit identifier (base + batch id).
        run: 0, then 1, 2… for the runs that follow a schema change.
        time_ms: start of the batch on the driver; "now" for all tasks [ms].
        tables: schema id of every known table, by `database.table`.
        only: tables of this run; None = all.
        skip: tables that committed this identifier already (a replay).
        frozen: tables whose uncovered records go to quarantine instead of requesting a schema
            change, with the reason why the change was refused.
        floors: start offsets by table (or `ANY_TABLE`) below which rows are dropped, because the
            table has them (lost checkpoint, another table that was resumed).
        bad_floors: start offsets of bad records, by table that is parked or catches up.
        parked: tables whose events are not processed.
        moving: topics with known key updates (`key_samples`).
        positions: highest positions by server, topic and partition, of tables with
            `ordering: source` (`ingest.source.position`).
        answers: decisions on fields that the schema of a table does not cover, by table.
        write_only: tables whose writers override their option `write-only` (`compaction`).
        truncations: truncation points of this run.
        unwritable: records whose rows an earlier run of the batch could not write.
        chunk_folder: directory for rows of large chunks; "" if chunks carry them (`chunk_folder`).
    """

    batch_id: int
    identifier: int
    run: int = 0
    time_ms: int = 0
    tables: Mapping[str, int] = dataclasses.field(default_factory=dict)
    only: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    frozen: Mapping[str, str] = dataclasses.field(default_factory=dict)
    floors: Mapping[str, OffsetMap] = dataclasses.field(default_factory=dict)
    bad_floors: Mapping[str, OffsetMap] = dataclasses.field(default_factory=dict)
    parked: tuple[str, ...] = ()
    moving: tuple[str, ...] = ()
    positions: Mapping[str, StoredPositions] = dataclasses.field(default_factory=dict)
    answers: Mapping[str, Answers] = dataclasses.field(default_factory=dict)
    write_only: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    truncations: Mapping[str, TruncationPoint] = dataclasses.field(default_factory=dict)
    unwritable: tuple[Unwritable, ...] = ()
    chunk_folder: str = ""

    def floor(self, table: str, topic: str, partition: int) -> int:
        """Return the offset below which a table's rows of a source partition are dropped."""
        floor = floor_of(self.floors, table).get(topic, {}).get(str(partition), 0)
        point = self.truncations.get(table)
        if point is not None and (point.topic, point.partition) == (topic, partition):
            floor = max(floor, point.offset)
        return floor

    def bad_floor(self, quarantine: str, target: str, topic: str, partition: int) -> int:
        """Offset below which the bad records of a table are to be dropped."""
        floors = self.bad_floors.get(target)
        if floors is not None:
            return floors.get(topic, {}).get(str(partition), 0)
        return self.floor(quarantine, topic, partition)

    def unwritable_in(self, table: str, topic: str, partition: int) -> dict[int, str]:
        """By offset why the row of a record cannot be written."""
        place = (table, topic, partition)
        return {e.offset: e.why for e in self.unwritable if e.place == place}

    def wants(self, table: str) -> bool:
        """Whether rows of `table` are to be written in this run."""
        if table in self.skip or table in self.parked:
            return False
        return self.only is None or table in self.only

    def to_property(self) -> str:
        """Compact text for a Spark local property; equal plans have equal texts."""
        data = zlib.compress(msgspec.json.encode(self, order="deterministic"), 1)
        return base64.b85encode(data).decode("ascii")

    @staticmethod
    def from_property(text: str | None) -> "BatchPlan":
        """Read the text back.

        Raises:
            InternalError: the property is missing: the job was not started by the sink.
        """
        if not text:
            raise InternalError("a task runs outside a planned micro-batch")
        return _parse(text)


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> BatchPlan:
    return msgspec.json.decode(zlib.decompress(base64.b85decode(text)), type=BatchPlan)


# The chunk: one row of the Spark DataFrame, many rows of one bucket.
#
# The shuffle moves a few large binary rows instead of millions of small ones, for all tables of a
# micro-batch in one job. Chunks of other kinds carry what the driver must know:
# schema deltas and the counters of each source range. Quarantined records travel as ordinary change
# chunks of the quarantine table.
#
# Where all tasks run on one machine the rows of large chunks stay in files of this machine, and the
# shuffle moves their places (docs/adr/ingest/0039).


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
def chunk_folder(conf: "RuntimeConfig", turn: int) -> Iterator[str]:
    """Create the directory for the chunk files of one run of a batch, and remove it with them.

    Args:
        conf: of the session; only in local mode are all tasks on this machine.
        turn: any number; several local directories take turns by it.

    Yields:
        Its path below Spark's local directory; "" where chunks must travel in rows: with executors
        on other machines, or if Spark encrypts its files.
    """
    places = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir", None) or ""
    encrypted = str(conf.get("spark.io.encryption.enabled", None)).lower() == "true"
    if encrypted or str(conf.get("spark.master", "")).partition("[")[0] != "local":
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


# Checks of what arrival order assumes: keys stay in their partition, key updates in one batch.
#
# Two checks, on samples or rare records, so that they cost almost nothing:
#
# * Some keys of every raw batch are hashed. Tasks report those with the smallest hashes, and the
#   driver remembers the smallest of every topic, so that all sample the same keys. A key that
#   occurs in two partitions is a violation: its changes are not in the order of the source.
# * A key update is two records, of the old and of the new key, mostly in two partitions. Debezium
#   names the other one in a header. Deletes are always checked for it; keys of new rows only in
#   topics with known key updates (`BatchPlan.moving`). A delete whose other half is not in its
#   batch was split: until the next batch the table has neither row.


_SAMPLE = 50
"""Hashed keys per raw batch: half a percent of the time of decoding it."""

_MIN_KEYS, _MAX_KEYS, _MAX_KEYS_OF_ALL = 32, 1_024, 200_000
"""Remembered keys: minimum and maximum per topic, and of all topics; about 100 bytes each."""

_TOPICS = 5_000
"""Maximum number of checked topics; later ones are not checked."""

_NEW_KEY = "__debezium.newkey"
_MOVES = 10_000
"""Maximum number of key updates that are checked per task and topic."""


@dataclasses.dataclass(slots=True)
class KeyUpdates:
    """Key updates in one topic.

    Attributes:
        deleted: hashes of the new keys that deletes name.
        created: hashes of keys of new rows; empty if they were not requested.
        full: whether there were too many to check all of them.
    """

    deleted: set[int] = dataclasses.field(default_factory=set)
    created: set[int] = dataclasses.field(default_factory=set)
    full: bool = False


def _hash(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


@dataclasses.dataclass(slots=True)
class KeySamples:
    """Samples of one task, or of several.

    Attributes:
        places: partition of each sampled key by its hash, by topic.
        bars: largest remembered hash by topic, once there are enough.
        violations: (hash, partition, other partition), by topic.
        updates_by_topic: key updates.
    """

    places: dict[str, dict[int, int]] = dataclasses.field(default_factory=dict)
    bars: dict[str, int] = dataclasses.field(default_factory=dict)
    violations: dict[str, set[tuple[int, int, int]]] = dataclasses.field(default_factory=dict)
    updates_by_topic: dict[str, KeyUpdates] = dataclasses.field(default_factory=dict)

    def sample(self, raw: RawBatch) -> None:
        """Sample the keys of some records."""
        count = len(raw)
        keys = [raw.keys[at] for at in range(0, count, max(1, count // _SAMPLE))]
        if None not in keys or any(keys):
            sample = {_hash(key): raw.partition for key in keys if key}
            self._take(raw.topic, sample)

    def _take(self, topic: str, sample: Mapping[int, int]) -> None:
        places = self.places.get(topic)
        if places is None:
            if len(self.places) >= _TOPICS:
                return
            places = self.places[topic] = {}
        bar = self.bars.get(topic)
        if bar is not None:
            sample = {key: sample[key] for key in sample if key <= bar}
        for key in places.keys() & sample.keys():
            if places[key] != sample[key]:
                self.violations.setdefault(topic, set()).add((key, places[key], sample[key]))
        places.update(sample)
        limit = min(_MAX_KEYS, max(_MIN_KEYS, _MAX_KEYS_OF_ALL // len(self.places)))
        if len(places) > 2 * limit:
            smallest = heapq.nsmallest(limit, places)
            self.places[topic] = {key: places[key] for key in smallest}
            self.bars[topic] = smallest[-1]

    def record_key_updates(
        self, raw: RawBatch, changes: Iterable[ChangeBatch], moving: Iterable[str]
    ) -> None:
        """Record the halves of key updates among the rows of some records."""
        is_moving = raw.topic in moving
        for change in changes:
            kinds = change.rows.column(VALUE_KIND).to_numpy()
            deletes = kinds == int(RowKind.DELETE)
            if deletes.any():
                self._deleted(raw, raw.with_headers(_places(raw, change, deletes)))
            if is_moving:
                created = _places(raw, change, kinds == int(RowKind.INSERT))
                self._created(raw, created.tolist())

    def _of(self, topic: str) -> KeyUpdates:
        return self.updates_by_topic.setdefault(topic, KeyUpdates())

    def _deleted(self, raw: RawBatch, places: Iterable[int]) -> None:
        for at in places:
            for name, key in raw.headers(at):
                # other header converters write values that cannot be keys
                if name == _NEW_KEY and key[:1] == b"{":
                    updates = self._of(raw.topic)
                    if len(updates.deleted) < _MOVES:
                        updates.deleted.add(_hash(key))

    def _created(self, raw: RawBatch, places: Iterable[int]) -> None:
        keys = [key for at in places if (key := raw.keys[at])]
        updates = self._of(raw.topic)
        updates.full |= len(updates.created) + len(keys) > _MOVES
        if not updates.full:
            updates.created.update(map(_hash, keys))

    def add(self, other: "KeySamples") -> None:
        """Add the samples of another task."""
        for topic, places in other.places.items():
            self._take(topic, places)
        for topic, violations in other.violations.items():
            self.violations.setdefault(topic, set()).update(violations)
        for topic, topic_updates in other.updates_by_topic.items():
            updates = self._of(topic)
            updates.deleted |= topic_updates.deleted
            updates.created |= topic_updates.created
            updates.full |= topic_updates.full


def _places(
    raw: RawBatch, change: ChangeBatch, mask: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    offsets = change.rows.column(OFFSET_COLUMN).to_numpy()[mask]
    if isinstance(raw.offsets, range):  # an array of it takes 0.8 us a record
        return offsets - raw.offsets.start
    return np.searchsorted(np.array(raw.offsets, np.int64), offsets)


class KeyTracker:
    """State of the driver: sampled keys, and topics with key updates.

    Attributes:
        moving: topics in which key updates occurred.
    """

    def __init__(self) -> None:
        self._samples = KeySamples()
        self.moving: set[str] = set()

    def take(
        self, samples: KeySamples
    ) -> tuple[dict[str, set[tuple[int, int, int]]], dict[str, int]]:
        """Add the samples of the tasks of a batch.

        Returns:
            New violations by topic: (hash of the key, partition, other partition); and by topic the
            number of key updates whose other half is not in the batch.
        """
        self._samples.add(KeySamples(samples.places, violations=samples.violations))
        violations, self._samples.violations = self._samples.violations, {}
        split = {
            topic: len(updates.deleted - updates.created)
            for topic, updates in samples.updates_by_topic.items()
            if topic in self.moving and not updates.full and updates.deleted - updates.created
        }
        self.moving |= {
            topic for topic, updates in samples.updates_by_topic.items() if updates.deleted
        }
        return violations, split


# What tasks report to the driver: ranges read, counts, calls of store and registry, lookups.


@dataclasses.dataclass(frozen=True, slots=True)
class TaskUse:
    """Calls of one task, or of several; a worker process runs one task at a time.

    Attributes:
        store: calls to the store of the warehouse.
        registry: requests to the schema registry.
    """

    store: CallFigures = dataclasses.field(default_factory=CallFigures)
    registry: CallFigures = dataclasses.field(default_factory=CallFigures)

    @staticmethod
    def now() -> "TaskUse":
        """Return all calls of this process so far."""
        return TaskUse(STORE_CALLS.figures(), REGISTRY_CALLS.figures())

    def until_now(self) -> "TaskUse":
        """Return the calls of this process since this state."""
        now = TaskUse.now()
        return TaskUse(now.store.since(self.store), now.registry.since(self.registry))

    def plus(self, other: "TaskUse") -> "TaskUse":
        """Return the sum of both."""
        return TaskUse(self.store.plus(other.store), self.registry.plus(other.registry))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LookupUse:
    """Use of the local copies of data files for lookups.

    Attributes:
        hits: lookups that found a copy.
        misses: lookups that had to build or wait for a copy.
        built_bytes: size of the copies built [bytes].
        evicted_files: copies evicted because of space or age.
        disk_bytes: maximum size of all copies on a machine [bytes].
    """

    hits: int = 0
    misses: int = 0
    built_bytes: int = 0
    evicted_files: int = 0
    disk_bytes: int = 0

    @staticmethod
    def since(before: LookupCounters) -> "LookupUse":
        """The use of this process's copies since its counters had these values."""
        after = process_store().counters()
        return LookupUse(
            hits=after.hits - before.hits,
            misses=after.misses - before.misses,
            built_bytes=after.built_bytes - before.built_bytes,
            evicted_files=after.evicted_files - before.evicted_files,
            disk_bytes=after.bytes_on_disk,
        )

    def plus(self, other: "LookupUse") -> "LookupUse":
        """Return the sum of both."""
        return LookupUse(
            hits=self.hits + other.hits,
            misses=self.misses + other.misses,
            built_bytes=self.built_bytes + other.built_bytes,
            evicted_files=self.evicted_files + other.evicted_files,
            disk_bytes=max(self.disk_bytes, other.disk_bytes),
        )


_TEXT = 300

Example = tuple[str, int, int, str]


@dataclasses.dataclass(slots=True)
class BadCounts:
    """Bad records of a run of a batch, by target table; every run counts all of them again.

    Attributes:
        failures: bad records by table and error class, to which the limits of the table apply;
            without those of an unknown table.
        quarantined: those, and those of an unknown table (`""`), that go to the quarantine table.
        dropped: those that the rule of the table drops.
        examples: topic, partition, offset and error of the first bad record, by table.
    """

    failures: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    quarantined: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    dropped: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    examples: dict[str, Example] = dataclasses.field(default_factory=dict)

    def find(self, topic: str, partition: int, record: BadRecord) -> None:
        """Count one in `failures`."""
        _count(self.failures, record)
        self._exemplify(record.target, (topic, partition, record.offset, record.error[:_TEXT]))

    def keep(self, record: BadRecord) -> None:
        """Count one in `quarantined`."""
        _count(self.quarantined, record)

    def skip(self, record: BadRecord) -> None:
        """Count one in `dropped`."""
        _count(self.dropped, record)

    def add(self, other: "BadCounts") -> None:
        """Add another task's."""
        for totals, counts in (
            (self.failures, other.failures),
            (self.quarantined, other.quarantined),
            (self.dropped, other.dropped),
        ):
            for table, classes in counts.items():
                totals.setdefault(table, Counter()).update(classes)
        for table, example in other.examples.items():
            self._exemplify(table, example)

    def _exemplify(self, table: str, example: Example) -> None:
        self.examples[table] = min(example, self.examples.get(table, example))


def _count(counts: dict[str, Counter[str]], record: BadRecord) -> None:
    counts.setdefault(record.target, Counter())[record.error_class] += 1


Range = tuple[str, int, int, int]


@dataclasses.dataclass(slots=True)
class TableTotals:
    """Per table: rows before merging, topics they came from, span of `source.ts_ms` [ms].

    Of a table in the order of the source also its highest positions (`BatchPlan.positions`) after
    the rows, and how many rows were delivered again or late; of a table with a watermark the
    highest event time of the rows [epoch ms]. Also the (member of events, column) with different
    spellings.
    """

    rows: int = 0
    topics: set[str] = dataclasses.field(default_factory=set)
    min_ts_ms: int | None = None
    max_ts_ms: int | None = None
    positions: StoredPositions = dataclasses.field(default_factory=dict)
    repeated: int = 0
    event_time_ms: int | None = None
    case_matches: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    def add(self, rows: int, topic: str, min_ts_ms: int | None, max_ts_ms: int | None) -> None:
        """Count one decoded batch."""
        self.merge(TableTotals(rows, {topic}, min_ts_ms, max_ts_ms))

    def merge(self, other: "TableTotals") -> None:
        """Add another task's totals."""
        self.rows += other.rows
        self.topics |= other.topics
        self.repeated += other.repeated
        self.case_matches |= other.case_matches
        self.reached(other.event_time_ms)
        if other.positions:
            self.positions = merged_positions(self.positions, other.positions)
        if other.min_ts_ms is not None:
            current = self.min_ts_ms
            self.min_ts_ms = other.min_ts_ms if current is None else min(current, other.min_ts_ms)
        if other.max_ts_ms is not None:
            current = self.max_ts_ms
            self.max_ts_ms = other.max_ts_ms if current is None else max(current, other.max_ts_ms)

    def reached(self, event_time_ms: int | None) -> None:
        """Count an event time [epoch ms]."""
        if event_time_ms is not None:
            current = self.event_time_ms
            self.event_time_ms = event_time_ms if current is None else max(current, event_time_ms)


@dataclasses.dataclass(slots=True)
class RangeReport:
    """One task's ranges and counts, of which every task sends exactly one; or those of a whole run.

    Attributes:
        ranges: (topic, partition, start, end) read, end exclusive.
        records: read, by topic.
        bytes: key and value bytes read.
        walked: records that became rows by the compiled scan, by topic.
        counts: decoder counts by topic.
        bad: quarantined records by topic and error class.
        bad_records: bad records by the table they are for.
        tables: totals by table.
        ddl: statements of the schema change topic.
        deltas: records whose shape the table's schema does not cover.
        feeds: topics in which events for a table were met, parked tables too.
        skipped: offsets lost to retention by (topic, partition).
        seconds: wall time of the task's parts [s].
        keys: partitions of keys, and changes of key.
        truncates: events that empty tables.
        failures: why a task could not do its part for a table, by table.
        use: calls of the task to store and registry.
        unwritable: records whose rows the task cannot assign to an owner.
    """

    ranges: list[Range] = dataclasses.field(default_factory=list)
    records: Counter[str] = dataclasses.field(default_factory=Counter)
    bytes: int = 0
    walked: Counter[str] = dataclasses.field(default_factory=Counter)
    counts: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    bad: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    bad_records: BadCounts = dataclasses.field(default_factory=BadCounts)
    tables: dict[str, TableTotals] = dataclasses.field(default_factory=dict)
    deltas: list[SchemaDelta] = dataclasses.field(default_factory=list)
    ddl: list[TableDdl] = dataclasses.field(default_factory=list)
    skipped: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    feeds: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    keys: KeySamples = dataclasses.field(default_factory=KeySamples)
    truncates: list[Truncate] = dataclasses.field(default_factory=list)
    failures: dict[str, LakewardError] = dataclasses.field(default_factory=dict)
    use: TaskUse = dataclasses.field(default_factory=TaskUse)
    unwritable: list[Unwritable] = dataclasses.field(default_factory=list)

    def met(self, feeds: Mapping[str, Iterable[str]]) -> None:
        """Note which topics feed which tables."""
        for table, topics in feeds.items():
            self.feeds.setdefault(table, set()).update(topics)

    def spent(self, part: str, seconds: float) -> None:
        """Add wall time of one part [s]."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    @staticmethod
    def of(reports: Iterable["RangeReport"]) -> "RangeReport":
        """Add up the reports of all tasks of a run, without `use`; ranges come out sorted."""
        total = RangeReport()
        for report in reports:
            total.add(report)
        total.ranges.sort()
        return total

    def add(self, report: "RangeReport") -> None:
        """Add another task's report, without `use`."""
        self.ranges += report.ranges
        self.records += report.records
        self.walked += report.walked
        self.bytes += report.bytes
        self.deltas += report.deltas
        self.ddl += report.ddl
        self.truncates += report.truncates
        self.failures |= report.failures
        self.unwritable += report.unwritable
        for part, seconds in report.seconds.items():
            self.spent(part, seconds)
        self.met(report.feeds)
        self.keys.add(report.keys)
        for place, count in report.skipped.items():
            self.skipped[place] = self.skipped.get(place, 0) + count
        for topic, counts in report.counts.items():
            self.counts.setdefault(topic, Counter()).update(counts)
        for topic, counts in report.bad.items():
            self.bad.setdefault(topic, Counter()).update(counts)
        self.bad_records.add(report.bad_records)
        for table, totals in report.tables.items():
            self.tables.setdefault(table, TableTotals()).merge(totals)

    @property
    def span(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Per topic and partition the (start, end) that the batch covers."""
        spans: dict[str, dict[str, tuple[int, int]]] = {}
        for topic, partition, start, end in self.ranges:
            by_partition = spans.setdefault(topic, {})
            span = by_partition.get(str(partition))
            if span is not None:
                start, end = min(start, span[0]), max(end, span[1])
            by_partition[str(partition)] = (start, end)
        return spans


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """Result of one bucket, or of all that one task owns of a table, for the driver.

    Attributes:
        table: `database.table`.
        messages: what to commit; one per bucket.
        rows: rows by kind that reached the writer, after early combining.
        sorted_runs: runs of the bucket after the batch; 0 where tasks own more than a bucket.
        seconds: wall time of the bucket [s].
        finish_seconds: of this, to flush and compact [s].
        values_kept: values that the source did not send, taken from older rows.
        values_lost: values that the source did not send and that no older row has.
        lookup: use of local copies by the task, on one of its results; None elsewhere.
        failure: error because of which there is nothing to commit; the driver handles it.
        use: calls of the task to the store, on one of its results; None elsewhere.
        unwritable: records because of which there is nothing to commit: the batch is run without
            them.
    """

    table: str
    messages: tuple[CommitMessage, ...]
    rows: dict[str, int]
    sorted_runs: int
    seconds: float
    finish_seconds: float = 0.0
    values_kept: int = 0
    values_lost: int = 0
    lookup: LookupUse | None = None
    failure: LakewardError | None = None
    use: TaskUse | None = None
    unwritable: tuple[Unwritable, ...] = ()
