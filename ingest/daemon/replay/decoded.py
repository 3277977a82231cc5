# SPDX-License-Identifier: Apache-2.0
"""Decodes chosen records again with the settings in force; the rows that must be written.

Records are decoded as in a batch. When they need a schema change, it is made and everything is
decoded again; what may not change leaves the records as they are, with the new error.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.config.settings import Settings
from ingest.daemon.replay.reading import Kept, checked, raw_of, same_key
from ingest.daemon.replay.rows import KeyedRows, applies_again
from ingest.decode.events import OFFSET_COLUMN, BadRecord, DecodeResult, SchemaDelta
from ingest.decode.isolation import ERROR_CLASS
from ingest.decode.outcome import bad_record
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.plan import BatchPlan, Unwritable
from ingest.source.ranges import OffsetMap, floor_of, resume_token
from ingest.source.records import RawBatch
from ingest.state.table_registry import TableRegistry
from storage.errors import InternalError, InvalidRequestError

__all__ = ["Bounds", "Decoded", "PartRows", "Reader", "decoded"]

_ROUNDS = 6

SourcePartition = tuple[str, int]
"""Topic and partition."""

Reader = Callable[[str, int, int, int], Iterable[RawBatch]]
"""(topic, partition, start, end) to the source's records."""


class Bounds:
    """Ends of tables.

    A table may be ahead of the stream: a batch that was committed but not recorded is done again
    and skipped, and rows below floors are dropped. What a table holds of such records is newer than
    what the stream has reached, so a replay must know it.

    Args:
        reached: offsets below which all batches are done, in the source's own form.
    """

    def __init__(self, reached: Mapping[str, Any], book: TableRegistry) -> None:
        self._reached = resume_token(reached)
        self._floors = book.floors()
        self._offsets: dict[str, OffsetMap] = {
            name: progress.offsets for name, progress in book.progresses().items()
        }

    def end(self, table: str, topic: str, partition: int) -> int:
        """First offset of a source partition that a table may still lack."""
        maps = (self._reached, floor_of(self._floors, table), self._offsets.get(table, {}))
        return max(each.get(topic, {}).get(str(partition), 0) for each in maps)

    def last(self, topic: str, partition: int) -> int:
        """The largest end of any table."""
        maps = (self._reached, *self._floors.values(), *self._offsets.values())
        return max(each.get(topic, {}).get(str(partition), 0) for each in maps)


@dataclasses.dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of one table from one source partition, in offset order."""

    topic: str
    partition: int
    rows: pa.RecordBatch


@dataclasses.dataclass(slots=True)
class Decoded:
    """The outcome of the chosen records.

    Attributes:
        plan: what they were decoded with.
        rows: to be written, by table.
        bad: those that fail again.
        tables: of the others, the tables that their rows are for; a record without rows is absent.
        blocked: those that are good, but a later record of their key, which is in the table, does
            not decode any more: what the table holds of it would be overwritten.
        later: those that their table has not passed yet: the stream will bring them itself.
        deltas: schema changes that are needed, when none may be made.
        changes: schema changes that were made, as (table, change).
    """

    plan: BatchPlan
    rows: dict[str, list[PartRows]] = dataclasses.field(default_factory=dict)
    bad: dict[tuple[str, int, int], BadRecord] = dataclasses.field(default_factory=dict)
    tables: dict[tuple[str, int, int], str] = dataclasses.field(default_factory=dict)
    blocked: set[tuple[str, int, int]] = dataclasses.field(default_factory=set)
    later: set[tuple[str, int, int]] = dataclasses.field(default_factory=set)
    deltas: list[SchemaDelta] = dataclasses.field(default_factory=list)
    changes: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def decoded(
    settings: Settings,
    book: TableRegistry,
    bounds: Bounds,
    chosen: Sequence[Kept],
    *,
    now_ms: int,
    alone: bool,
    change: bool,
    read: Reader,
    waiting: Collection[tuple[str, int, int]],
    unwritable: Sequence[Unwritable] = (),
) -> Decoded:
    """Decode chosen records, and the later ones of their partitions.

    Args:
        settings: in force.
        book: the tables.
        bounds: what the tables hold.
        chosen: records of quarantine, in the order of topic, partition, offset.
        now_ms: time of the replay [epoch ms].
        alone: leave out later records of the same keys.
        change: whether schemas may be changed.
        read: the source.
        waiting: all records that no table has because they are bad.
        unwritable: records whose rows an earlier attempt could not write; they are bad.

    Raises:
        DataLossError: the source does not have the later records any more.
        InvalidRequestError: the source's topic was recreated, or a schema may not change.
    """
    decoding = Decoding(settings)
    frozen: dict[str, str] = {}
    changes: list[tuple[str, str]] = []
    for run in range(_ROUNDS):
        plan = BatchPlan(
            batch_id=-1,
            identifier=0,
            run=run,
            time_ms=now_ms,
            tables=book.schema_ids(),
            parked=tuple(sorted(book.parking.parked())),
            frozen=dict(frozen),
            answers=book.answers_given() if run else book.lasting_answers(),
            unwritable=tuple(unwritable),
        )
        decoding.use(plan)
        found = _Run(decoding, book, bounds, alone, read, waiting, Decoded(plan)).run(chosen)
        if not found.deltas or not change:
            found.changes = changes
            return found
        applied = book.apply(found.deltas, now_ms=now_ms)
        if refused := book.take_to_park():
            raise InvalidRequestError(
                "the records need a change that the settings do not allow",
                detail="; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items())),
                hint="alter the table, or see `pipeline.schema.change.behavior`",
            )
        changes += applied.applied
        frozen |= applied.refused
    raise InternalError("schema changes of a replay do not come to an end")


@dataclasses.dataclass(frozen=True, slots=True)
class _Run:
    """One decoding of all chosen records; the parameters are those of `decoded`."""

    decoding: Decoding
    book: TableRegistry
    bounds: Bounds
    alone: bool
    read: Reader
    waiting: Collection[tuple[str, int, int]]
    found: Decoded

    def run(self, chosen: Sequence[Kept]) -> Decoded:
        by_source: dict[SourcePartition, list[Kept]] = {}
        for record in chosen:
            by_source.setdefault((record.topic, record.partition), []).append(record)
        for source in sorted(by_source):
            self._partition(source, by_source[source])
        return self.found

    def _partition(self, source: SourcePartition, chosen: Sequence[Kept]) -> None:
        offsets = pa.array([record.offset for record in chosen], pa.int64())
        tables: dict[str, KeyedRows] = {}

        def rows_of(name: str) -> KeyedRows:
            if name not in tables:
                end = self.bounds.end(name, *source)
                table = self.book.table(name)
                tables[name] = KeyedRows(table, offsets, end, alone=self.alone)
            return tables[name]

        kept = self._decode(raw_of(chosen))
        for change in kept.changes:
            rows_of(change.target).take_kept(change.rows)
        self._note(source, kept, {record.offset for record in chosen})
        seen, unreadable = self._later(source, chosen, rows_of)
        blocked = self._blocked(source, chosen, unreadable)
        moving = {name for name, rows in tables.items() if rows.moves}
        blocked |= {
            record.offset
            for record in chosen
            if self.found.tables.get((*source, record.offset)) in moving
        }
        if blocked:
            for offset in blocked:
                del self.found.tables[*source, offset]
                self.found.blocked.add((*source, offset))
            left = [record for record in chosen if record.offset not in blocked]
            if left:
                self._partition(source, left)
            return
        for name, rows in tables.items():
            found = rows.rows(seen)
            if found is not None:
                self.found.rows.setdefault(name, []).append(PartRows(*source, found))

    def _decode(self, raw: RawBatch) -> DecodeResult:
        """Decode records; those that an earlier attempt could not write are bad."""
        result = self.decoding.decode(raw)
        if not self.found.plan.unwritable:
            return result
        changes, bad = [], list(result.bad)
        for change in result.changes:
            known = self.found.plan.unwritable_in(change.target, raw.topic, raw.partition)
            offsets = change.rows.column(OFFSET_COLUMN)
            refused = sorted({*known} & {*offsets.to_pylist()}) if known else []
            bad += [
                bad_record(
                    raw, raw.offsets.index(offset), ERROR_CLASS, known[offset], change.target
                )
                for offset in refused
            ]
            written = pc.invert(pc.is_in(offsets, value_set=pa.array(refused, pa.int64())))
            changes.append(dataclasses.replace(change, rows=change.rows.filter(written)))
        return dataclasses.replace(result, changes=changes, bad=bad)

    def _later(
        self, source: SourcePartition, chosen: Sequence[Kept], rows_of: Callable[[str], KeyedRows]
    ) -> tuple[set[int], list[BadRecord]]:
        """Read the source: offsets of chosen records that it has, and what else is bad."""
        seen: set[int] = set()
        unreadable: list[BadRecord] = []
        last = self.bounds.last(*source)
        if self.alone or chosen[0].offset >= last:
            return seen, unreadable
        mine = {record.offset for record in chosen}
        for raw in checked(self.read(*source, chosen[0].offset, last), chosen, seen):
            result = self._decode(raw)
            for change in result.changes:
                rows_of(change.target).take(change.rows)
            self._note(source, result, mine & set(raw.offsets))
            unreadable += [bad for bad in result.bad if bad.offset not in mine]
        return seen, unreadable

    def _blocked(
        self, source: SourcePartition, chosen: Sequence[Kept], unreadable: Sequence[BadRecord]
    ) -> set[int]:
        """Offsets of good chosen records that a later record of the same key forbids."""
        last: dict[bytes, int] = {}
        nameless = -1
        for record in unreadable:
            end = self.bounds.end(record.target, *source)
            if (*source, record.offset) in self.waiting or record.offset >= end:
                continue
            if record.key is None:
                nameless = max(nameless, record.offset)
            else:
                last[same_key(record.key)] = record.offset
        any_key = max([nameless, *last.values()])
        blocked = set()
        for kept in chosen:
            name = self.found.tables.get((*source, kept.offset))
            if name is None or not applies_again(self.book.table(name)):
                continue
            known = nameless if kept.key is None else last.get(same_key(kept.key), nameless)
            if kept.offset < max(known, any_key if kept.key is None else nameless):
                blocked.add(kept.offset)
        return blocked

    def _note(self, source: SourcePartition, result: DecodeResult, mine: Collection[int]) -> None:
        """Note the outcome of chosen records; the source's copy of a record is decoded last."""
        found = self.found
        for offset in mine:
            found.bad.pop((*source, offset), None)
            found.tables.pop((*source, offset), None)
        for record in result.bad:
            if record.offset in mine:
                found.bad[*source, record.offset] = record
        for change in result.changes:
            end = self.bounds.end(change.target, *source)
            for offset in set(change.rows.column(OFFSET_COLUMN).to_pylist()) & set(mine):
                if offset < end:
                    found.tables[*source, offset] = change.target
                else:
                    found.later.add((*source, offset))
        found.deltas += result.deltas
