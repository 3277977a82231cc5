# SPDX-License-Identifier: Apache-2.0
"""A stream without Spark and Kafka, but with real tables, decoding and books; time is batches.

Topics are lists in memory. `SimulatedStream` does what Spark and the daemon do around the sink:
plans a batch into the offset log, runs it, records it; after a death it opens everything anew and
runs the planned batch again. Deaths come from a fuse that burns down at every durable step.
"""

import contextlib
import shutil
from collections import Counter, defaultdict

import orjson

from ingest.daemon.configuration import load_settings
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import RangeReport, chunks_of
from ingest.pipeline.sink import JobOutcome, MicroBatchSink
from ingest.pipeline.tasks import MapSide, reduced
from ingest.source import open as sources
from ingest.source.records import RawBatch, SourceRange, normalize
from ingest.state.lease import lease_of, resolve_in_flight
from ingest.state.ownership import Parking
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_state import CheckpointState, Warehouse
from ingest.state.table_registry import TableRegistry
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.errors import CorruptDataError, DataLossError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import AtomicType, TypeRoot

BIGINT = AtomicType(TypeRoot.BIGINT)
TABLES = ("shop.orders", "shop.items", "shop.sums")
QUARANTINE = "lakeward._quarantine"
BATCH = 12
"""Records of one partition in a batch at most."""


class Died(BaseException):
    """The process was killed."""


class Fuse:
    """Kills the process at the n-th durable step; None = never."""

    def __init__(self):
        self.left = None

    def step(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Died


class Topics:
    """Records by topic and partition; also the source that plans over them."""

    def __init__(self):
        self.records = defaultdict(lambda: defaultdict(list))
        self.low = Counter()

    def add(self, topic, partition, key, value):
        records = self.records[topic][partition]
        records.append((key, value))
        return len(records) - 1

    def recreate(self, topic):
        """Delete a topic and create it anew, empty."""
        for records in self.records[topic].values():
            records.clear()

    def initial(self):
        return normalize({t: {str(p): 0 for p in parts} for t, parts in self.records.items()})

    def restore(self, stored):
        return normalize(stored)

    def rewind(self, start, position):
        for topic, parts in start.items():
            for partition, offset in parts.items():
                low = self.low[topic, int(partition)]
                if offset < position[topic][partition] and offset < low:
                    raise DataLossError("gone", topic=topic)
        return normalize(start)

    def latest(self, start):
        end = {topic: dict(parts) for topic, parts in start.items()}
        for topic, parts in self.records.items():
            for partition, records in parts.items():
                into = end.setdefault(topic, {})
                here = into.get(str(partition))
                first = 0 if here is not None and here > len(records) else here
                into[str(partition)] = 0 if here is None else min(first + BATCH, len(records))
        return normalize(end)

    def close(self):
        pass


class SimulatedSink(MicroBatchSink):
    """The sink, whose job runs here."""

    topics: Topics
    settings: object
    pieces = 1
    """Tasks by which a partition is read."""

    def _run(self, frame, plan):
        start, end = frame
        reports, chunks = [], []
        for topic, parts in end.items():
            for partition, last in parts.items():
                first = start.get(topic, {}).get(partition)
                if first is not None and first > last:  # as Kafka's: the partition begins again
                    first = 0
                if first is None or first == last:
                    continue
                size = -(-(last - first) // self.pieces)
                for begin in range(first, last, size):
                    piece = SourceRange(topic, int(partition), begin, min(begin + size, last))
                    side = MapSide(Decoding(self.settings), plan)
                    for batch in side.read(piece, [self._raw(piece)]):
                        chunks += chunks_of(batch)
                    reports.append(side.report)
        by_bucket = defaultdict(list)
        for chunk in chunks:
            by_bucket[chunk.table, chunk.partition, chunk.bucket].append(chunk)
        warehouse = Warehouse.of(self.settings.sink)
        results = tuple(
            reduced(warehouse, plan, bucket[0], by_bucket[bucket]) for bucket in sorted(by_bucket)
        )
        return JobOutcome(RangeReport.of(reports), results)

    def _raw(self, piece):
        offsets = list(range(piece.start, piece.end))
        records = self.topics.records[piece.topic][piece.partition]
        keys, values = zip(*records[piece.start : piece.end], strict=True)
        return RawBatch(piece.topic, piece.partition, offsets, list(keys), list(values))


class SimulatedStream:
    """See the module.

    Attributes:
        faults: tables whose next commit finds a damaged file.

    Args:
        directory: of the warehouse and everything else.
        monkeypatch: of the test.
        source: further settings of the source.
        more: further settings.
    """

    def __init__(self, directory, monkeypatch, source="", more=""):
        self.directory = directory
        self.topics = Topics()
        self.fuse = Fuse()
        self.faults = set()
        self.clock = ManualClock()
        self.deaths = 0
        path = directory / "shop.yaml"
        path.write_text(
            f"source: {{type: files, path: {directory}{source}}}\n"
            f"sink: {{warehouse: {directory / 'lake'}}}\n"
            f"pipeline: {{name: shop, checkpoint: {directory / 'checkpoint'}}}\n{more}"
        )
        self.settings = load_settings(path)
        self.catalog = FileSystemCatalog(self.settings.sink.warehouse)
        self.catalog.create_database("shop", ignore_if_exists=True)
        for name, options in (
            ("shop.orders", {}),
            ("shop.sums", {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}),
        ):
            schema = new_schema(
                [("id", BIGINT), ("n", BIGINT)],
                primary_keys=("id",),
                partition_keys=(),
                options={"bucket": "1", **options},
                now_ms=0,
            )
            self.catalog.create_table(name, schema, ignore_if_exists=True)
        monkeypatch.setattr(sources, "open_source", lambda settings: self.topics)
        for owner, name in (
            (StreamPosition, "_write"),
            (Parking, "_replace"),
            (CheckpointState, "save"),
        ):
            monkeypatch.setattr(owner, name, self._burning(getattr(owner, name)))
        monkeypatch.setattr(TableRegistry, "commit", self._commit(TableRegistry.commit))
        self.open()

    def _burning(self, function):
        def burning(*args, **kwargs):
            self.fuse.step()
            result = function(*args, **kwargs)
            self.fuse.step()
            return result

        return burning

    def _commit(self, function):
        def commit(book, name, *args, **more):
            self.fuse.step()
            if name in self.faults:
                self.faults.discard(name)
                raise CorruptDataError("damaged for the test", path=name)
            result = function(book, name, *args, **more)
            self.fuse.step()
            return result

        return commit

    # --- the process

    def open(self):
        """Start the process; it may die at once."""
        while True:
            with contextlib.suppress(Died):
                self.book = TableRegistry(self.settings, self.clock)
                self.ownership = self._owned()
                self.book.load()
                resolve_in_flight(self.book, self.ownership)
                self.position = StreamPosition(self.settings, self.book, self.ownership)
                self.position.open()
                self._start()
                return
            self.deaths += 1

    def _owned(self):
        """The stream, taken over from whoever had it."""
        lease = lease_of(self.settings, self.book, self.clock)
        lease.acquire(take_over=True)
        return lease.ownership

    def _start(self):
        self.sink = SimulatedSink(
            stream="shop",
            position=self.position,
            book=self.book,
            slots=1,
            clock=self.clock,
            on_start=lambda batch_id: None,
            on_batch=lambda report: None,
            draining=_Never(),
        )
        self.sink.topics, self.sink.settings = self.topics, self.settings

    def _alive(self, work):
        """Do something; if it kills the process, start it again."""
        try:
            return work()
        except Died:
            self.deaths += 1
            self.open()
            return None

    def batch(self):
        """One trigger: the planned batch, or a new one if there is anything."""
        return self._alive(self._batch)

    def _batch(self):
        logs = self.position.directory
        for name in ("offsets", "commits"):
            (logs / name).mkdir(parents=True, exist_ok=True)
        last = max((int(path.name) for path in (logs / "commits").iterdir()), default=-1)
        number = last + 1
        if not (logs / "offsets" / str(number)).exists():
            start = self.position.recorded()
            end = self.topics.latest(start)
            if end == start:
                return False
            text = b"v1\n{}\n" + orjson.dumps(end)
            (logs / "offsets" / str(number)).write_bytes(text)
        self.fuse.step()
        self.sink(self.position.bounds(number), number)
        self.fuse.step()
        (logs / "commits").mkdir(parents=True, exist_ok=True)  # as Spark, if it was taken away
        (logs / "commits" / str(number)).write_text("v1\n{}")
        return True

    def pause(self, table):
        """A person parks a table between two batches."""
        self._alive(
            lambda: self.book.parking.park(
                table,
                reason="by hand",
                by="person",
                since=self.position.reached(self.sink.last_batch_id),
                now_ms=0,
            )
        )

    def resume(self, *tables):
        """A person resumes tables, as often as it takes."""
        while wanted := [name for name in tables if name in self.book.parking.parked()]:
            self._alive(lambda wanted=wanted: self._resume(wanted))

    def _resume(self, tables):
        self.book.load()
        self.position.rewind(tables)
        self._start()

    def restart(self):
        """A clean stop and start."""
        self.open()

    def leave(self):
        """A clean stop, with nothing started."""
        self.ownership.release(settled=True)

    def lose_checkpoint(self):
        """The checkpoint's volume is gone."""
        shutil.rmtree(self.directory / "checkpoint", ignore_errors=True)
        self.open()

    def work(self):
        """Work until nothing is left to read."""
        while self.batch():
            pass

    def drain(self):
        """The same, with no table parked."""
        self.fuse.left, self.faults = None, set()
        self.resume(*self.book.parking.parked())
        self.work()
        self.position.release_passed_floors()

    # --- what is in the tables

    def rows(self, table):
        """(id, n) of a table's rows."""
        if not self.catalog.exists(table):
            return {}
        return {row["id"]: row["n"] for row in self.catalog.table(table).to_arrow().to_pylist()}

    def quarantined(self):
        """(topic, partition, offset) of the quarantine table's rows."""
        rows = self.catalog.table(QUARANTINE).to_arrow().to_pylist()
        return {(row["topic"], row["partition"], row["offset"]) for row in rows}

    def identifiers(self, table):
        """Commit identifiers of the stream in a table, oldest first, one per batch."""
        snapshots = self.catalog.table(table).snapshots
        found = [snapshots.read(number) for number in snapshots.ids()]
        return [
            s.commit_identifier
            for s in found
            if s.commit_kind.value == "APPEND" and s.commit_user == "shop"
        ]


class _Never:
    def is_set(self):
        return False


def event(table, key, n, op="c"):
    """Key and value of a Debezium event of `shop.<table>`."""
    row = {"id": key, "n": n}
    value = {
        "before": {"id": key, "n": 0} if op == "d" else None,
        "after": None if op == "d" else row,
        "op": op,
        "source": {"db": "shop", "table": table, "ts_ms": 1},
        "ts_ms": 2,
    }
    return orjson.dumps({"id": key}), orjson.dumps(value)
