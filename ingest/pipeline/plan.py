# SPDX-License-Identifier: Apache-2.0
"""The plan of one micro-batch run, from the driver to every task.

The plan is passed as a Spark local property, so that the readers of the source (pickled once per
query) and the reducers of one job see the same schemas, also when a task is retried: `read` must
return the same chunks for one range and one run (SPARK.md §7).
"""

import base64
import dataclasses
import functools
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from ingest.pipeline.truncates import TruncationPoint
from ingest.schema.schema_modes import Answers
from ingest.source.ranges import floor_of
from storage.errors import InternalError

PLAN_PROPERTY = "lakeward.plan"

OffsetMap = Mapping[str, Mapping[str, int]]
Positions = Mapping[str, Mapping[str, Mapping[str, list[Any]]]]


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
        bad_floors: start offsets of bad records, by resumed table.
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
    positions: Mapping[str, Positions] = dataclasses.field(default_factory=dict)
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

    def schema_id(self, table: str) -> int | None:
        """Schema to decode and write with, or None when the table does not exist yet."""
        return self.tables.get(table)

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
