# SPDX-License-Identifier: Apache-2.0
"""What the driver tells every task of one micro-batch run.

The plan travels as a Spark local property, so that the source's readers (pickled once a query) and
the reducers of one job see the same schemas, also when a task is tried again: `read`
must give the same chunks for one range and one run (SPARK.md §7).
"""

import base64
import dataclasses
import functools
import zlib
from collections.abc import Mapping
from typing import Any

import orjson

from storage.errors import InternalError

__all__ = ["PLAN_PROPERTY", "BatchPlan"]

PLAN_PROPERTY = "lakeward.plan"

OffsetMap = Mapping[str, Mapping[str, int]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """One run of one micro-batch.

    Attributes:
        batch_id: Spark's batch id.
        identifier: commit identifier (base + batch id).
        run: 0, then 1, 2… for the runs that follow a schema change.
        time_ms: when the driver began the batch; stands in for "now" in all tasks [ms].
        tables: schema id of every table the stream knows, by `database.table`.
        only: tables this run is for; None = all.
        skip: tables that committed this identifier already (a replay).
        frozen: tables whose uncovered records go to quarantine instead of asking for a change.
        floors: per table the offsets below which rows are already in it (lost checkpoint).
    """

    batch_id: int
    identifier: int
    run: int = 0
    time_ms: int = 0
    tables: Mapping[str, int] = dataclasses.field(default_factory=dict)
    only: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    floors: Mapping[str, OffsetMap] = dataclasses.field(default_factory=dict)

    def wants(self, table: str) -> bool:
        """Whether rows of `table` are to be written in this run."""
        if table in self.skip:
            return False
        return self.only is None or table in self.only

    def schema_id(self, table: str) -> int | None:
        """Schema to decode and write with, or None when the table does not exist yet."""
        return self.tables.get(table)

    def to_property(self) -> str:
        """Compact text for a Spark local property."""
        raw: dict[str, Any] = {
            "batch": self.batch_id,
            "identifier": self.identifier,
            "run": self.run,
            "time": self.time_ms,
            "tables": self.tables,
            "only": None if self.only is None else sorted(self.only),
            "skip": sorted(self.skip),
            "frozen": sorted(self.frozen),
            "floors": self.floors,
        }
        data = zlib.compress(orjson.dumps(raw, option=orjson.OPT_SORT_KEYS), 1)
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
    raw = orjson.loads(zlib.decompress(base64.b85decode(text)))
    return BatchPlan(
        batch_id=raw["batch"],
        identifier=raw["identifier"],
        run=raw["run"],
        time_ms=raw["time"],
        tables=raw["tables"],
        only=None if raw["only"] is None else tuple(raw["only"]),
        skip=tuple(raw["skip"]),
        frozen=tuple(raw["frozen"]),
        floors=raw["floors"],
    )
