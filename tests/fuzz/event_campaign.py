# SPDX-License-Identifier: Apache-2.0
"""Odd events through the map side, in both decoding paths: no batch fails, every record ends in a
table, in quarantine or counted, and both paths store the same values.

A chunk is some hundred events of one topic, a fifth of them as they were. Where the paths differ,
or something is not foreseen, the event is made as small as it still shows the fault.
"""

import collections
import dataclasses
import itertools
import random
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ingest.decode.events import OFFSET_COLUMN, UNAVAILABLE_COLUMN, SchemaDelta
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import BatchPlan, ChunkKind, chunks_of, ipc_batch
from ingest.pipeline.tasks import MapSide
from ingest.source.records import RawBatch, SourceRange
from tests.fuzz.event_mutation import Seed, mutated, nudged, places_of
from tests.fuzz.event_subjects import QUARANTINE, Subject
from tests.unit.ingest.agreeing_paths import rows_of
from tests.unit.ingest.every_way import by_columns, by_reference
from tests.unit.ingest.walking import compiled

__all__ = ["DecoderCampaign", "EventCampaign", "Fault"]

_EVENTS = 400
_INTACT = 0.15
_FRESH = 20
"""Chunks after which decoders begin anew, so that what they learned stays small."""
_SMALLER = 400
"""Attempts to make an event smaller."""

Record = tuple[bytes | None, bytes | None]


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something wrong.

    Attributes:
        subject: where.
        chunk: number of the chunk; the same seed makes it again.
        what: is wrong.
        topic: of the event.
        key: of the event.
        value: the smallest that shows it.
    """

    subject: str
    chunk: int
    what: str
    topic: str
    key: bytes | None
    value: bytes | None

    def __str__(self) -> str:
        place = f"{self.subject} #{self.chunk} {self.topic}"
        return f"{place}: {self.what}\n  key   {_shown(self.key)}\n  value {_shown(self.value)}"


def _shown(text: bytes | None) -> str:
    return "None" if text is None else repr(text if len(text) < 3_000 else text[:3_000] + b"...")


@dataclasses.dataclass
class Ended:
    """How the records of one chunk ended.

    Attributes:
        rows: by table, in offset order.
        bad: error class of each bad record, by offset.
        why: its error.
        counts: of the others.
        deltas: what was asked for.
    """

    rows: dict[str, pa.Table]
    bad: dict[int, str]
    why: dict[int, str]
    counts: dict[str, int]
    deltas: set[tuple[Any, ...]]

    def places(self) -> dict[int, list[Any]]:
        """What became of each record with rows or an error."""
        found: dict[int, list[Any]] = collections.defaultdict(list)
        for at, name in self.bad.items():
            found[at].append(name)
        for name in sorted(self.rows):
            columns = _plain(self.rows[name])
            for row in zip(*columns.values(), strict=True):
                values = dict(zip(columns, row, strict=True))
                found[values[OFFSET_COLUMN]].append((name, values))
        return found


def _plain(table: pa.Table) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = collections.defaultdict(list)
    for batch in table.to_batches():
        for name, values in rows_of(batch).items():
            found[name] += values
    return {n: v for n, v in found.items() if n != UNAVAILABLE_COLUMN or any(v)}


def _comparable(table: pa.Table) -> pa.Table:
    """With numbers that may be NaN as text."""
    fields = [pa.field(f.name, pa.string()) if _floats(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


_floats = pa.types.is_floating


class EventCampaign:
    """A campaign over one subject.

    Args:
        subject: what is made odd.
        seed: the same gives the same events.
    """

    def __init__(self, subject: Subject, seed: int) -> None:
        self._subject = subject
        self._seed = seed
        self._topics = sorted(subject.seeds)
        self._weights = [_weight(subject, topic) for topic in self._topics]
        self._all = [seed for seeds in subject.seeds.values() for seed in seeds]
        self._ways: tuple[Decoding, Decoding] | None = None
        self._numbers = itertools.count()
        self.events = 0
        self.ends: collections.Counter[str] = collections.Counter()
        self.walked = 0
        self.faults: list[Fault] = []

    def run(self, count: int, seconds: float = float("inf"), most_faults: int = 5) -> None:
        """Go on until there are so many events, unless time or patience ends before."""
        end = time.monotonic() + seconds
        with self._subject.registry():
            while self.events < count and time.monotonic() < end and len(self.faults) < most_faults:
                self._chunk(next(self._numbers))

    def judge(self, topic: str, records: Sequence[Record]) -> None:
        """Look at given records instead of odd ones, with decoders that begin anew."""
        self.events += len(records)
        with self._subject.registry():
            for number in (0, 1):
                self._judged(number, topic, records, self._fresh())

    def _chunk(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {self._subject.name} {number}")
        topic = rng.choices(self._topics, self._weights)[0]
        seeds = self._subject.seeds[topic]
        records: list[Record] = []
        for _ in range(_EVENTS):
            seed = rng.choice(seeds)
            intact = rng.random() < _INTACT
            records.append((seed.key, seed.value) if intact else mutated(rng, seed, self._all))
        self.events += len(records)
        if self._ways is None or number % _FRESH == 0:
            self._ways = self._fresh()
        self._judged(number, topic, records, self._ways)

    def _judged(
        self, number: int, topic: str, records: Sequence[Record], ways: tuple[Decoding, Decoding]
    ) -> None:
        plan = self._plan(number)
        try:
            fast, slow = self._both(ways, plan, topic, records)
        except Exception as error:
            self._ways = None
            self._failed(number, plan, topic, records, error)
            return
        self.ends.update(fast.counts)
        self.ends.update(f"bad {name}" for name in fast.bad.values())
        self._compare(number, plan, topic, records, fast, slow)

    def _fresh(self) -> tuple[Decoding, Decoding]:
        return Decoding(self._subject.settings), Decoding(self._subject.settings)

    def _plan(self, number: int) -> BatchPlan:
        """Every second chunk may ask for columns."""
        tables = self._subject.tables
        frozen = {} if number % 2 else dict.fromkeys(tables, "")
        return BatchPlan(batch_id=0, identifier=1, time_ms=5, tables=tables, frozen=frozen)

    def _both(
        self,
        ways: tuple[Decoding, Decoding],
        plan: BatchPlan,
        topic: str,
        records: Sequence[Record],
    ) -> tuple[Ended, Ended]:
        with by_columns():
            fast = self._ended(ways[0], plan, topic, records)
        with by_reference():
            slow = self._ended(ways[1], plan, topic, records)
        return fast, slow

    def _ended(
        self, decoding: Decoding, plan: BatchPlan, topic: str, records: Sequence[Record]
    ) -> Ended:
        keys, values = zip(*records, strict=True)
        raw = RawBatch(topic, 0, list(range(len(records))), list(keys), list(values))
        side = MapSide(decoding, plan)
        made = side.read(SourceRange(topic, 0, 0, len(records)), [raw])
        parts: dict[str, list[pa.RecordBatch]] = collections.defaultdict(list)
        for chunk in itertools.chain.from_iterable(map(chunks_of, made)):
            if chunk.kind is ChunkKind.CHANGES:
                parts[chunk.table].append(ipc_batch(chunk.payload))
        side.note_positions()
        self.walked += sum(side.report.walked.values())
        rows = {
            name: pa.concat_tables(map(_table, found), promote_options="default").sort_by(
                OFFSET_COLUMN
            )
            for name, found in parts.items()
        }
        held = rows.pop(QUARANTINE, None)
        bad = {} if held is None else _pairs(held, "error_class")
        why = {} if held is None else _pairs(held, "error")
        counts = {name: n for name, n in side.report.counts.get(topic, {}).items() if n}
        deltas = {_asked(delta) for delta in side.report.deltas}
        return Ended(rows, bad, why, counts, deltas)

    # --- judging

    def _compare(
        self,
        number: int,
        plan: BatchPlan,
        topic: str,
        records: Sequence[Record],
        fast: Ended,
        slow: Ended,
    ) -> None:
        odd = {at: fast.why[at] for at, name in fast.bad.items() if name == "internal"}
        odd |= {at: slow.why[at] for at, name in slow.bad.items() if name == "internal"}
        for at in sorted(odd)[:2]:
            self._fault(
                number, plan, topic, records[at], f"not foreseen: {odd[at][:2_000]}", _internal
            )
        for ended in (fast, slow):
            total = sum(ended.counts.values()) + len(ended.bad)
            if total != len(records):
                what = f"{len(records)} records, {total} counted: {ended.counts}"
                self.faults.append(Fault(self._subject.name, number, what, topic, None, None))
                self._ways = None
                return
        if not self._differ(fast, slow):
            return
        ends, others = fast.places(), slow.places()
        places = [at for at in range(len(records)) if ends.get(at) != others.get(at)]
        for at in places[:2]:
            difference = f"fast {ends.get(at)} {fast.why.get(at)}\n"
            difference += f"  slow {others.get(at)} {slow.why.get(at)}"
            self._fault(
                number, plan, topic, records[at], f"the paths differ:\n  {difference}", self._differ
            )
        if not places:
            what = f"counts {fast.counts} and {slow.counts}, deltas {fast.deltas ^ slow.deltas}"
            self.faults.append(Fault(self._subject.name, number, what, topic, None, None))
        self._ways = None

    @staticmethod
    def _differ(fast: Ended, slow: Ended) -> bool:
        if (fast.bad, fast.counts, fast.deltas) != (slow.bad, slow.counts, slow.deltas):
            return True
        if fast.rows.keys() != slow.rows.keys():
            return True
        return any(
            not table.equals(slow.rows[name])
            and not _comparable(table).equals(_comparable(slow.rows[name]))
            and repr(_plain(table)) != repr(_plain(slow.rows[name]))  # NaN equals NaN
            for name, table in fast.rows.items()
        )

    def _fault(
        self,
        number: int,
        plan: BatchPlan,
        topic: str,
        record: Record,
        what: str,
        shows: Callable[[Ended, Ended], bool],
    ) -> None:
        def fails(one: Record) -> bool:
            try:
                return shows(*self._both(self._fresh(), plan, topic, [one]))
            except Exception:
                return False

        if fails(record):
            record = _smallest(record, fails)
        else:
            what = f"(only after the events before it) {what}"
        self.faults.append(Fault(self._subject.name, number, what, topic, *record))

    def _failed(
        self,
        number: int,
        plan: BatchPlan,
        topic: str,
        records: Sequence[Record],
        error: Exception,
    ) -> None:
        """Find the event that ends a batch."""

        def fails(one: Record) -> bool:
            try:
                self._both(self._fresh(), plan, topic, [one])
            except Exception as other:
                return type(other) is type(error)
            return False

        found = next((record for record in records if fails(record)), None)
        what = "ends the batch: " + "".join(traceback.format_exception(error)[-8:])
        record = (None, None) if found is None else _smallest(found, fails)
        self.faults.append(Fault(self._subject.name, number, what, topic, *record))


class DecoderCampaign(EventCampaign):
    """Large batches of one topic through decoders alone: walked where a layout is learned, and by
    the reference event by event.

    Decoders have learned from the topic's intact events. Most batches are of mutated events, every
    eighth has few of them; only those count.

    Args:
        subject: whose events are mutated.
        seed: the same gives the same events.
        size: of a batch.
    """

    _FEW, _MOST = 0.05, 0.97
    _SEEDS = 12
    _LONG = 100

    def __init__(self, subject: Subject, seed: int, size: int = 8_000) -> None:
        super().__init__(subject, seed)
        self._size = size
        self._intact: Sequence[Seed] = ()

    def _chunk(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {self._subject.name} {number}")
        topic = rng.choices(self._topics, self._weights)[0]
        seeds = [seed for seed in self._subject.seeds[topic] if len(seed.scalars) < self._LONG]
        first = rng.randrange(max(1, len(seeds) - self._SEEDS))
        seeds = self._intact = seeds[first : first + self._SEEDS]
        records: list[Record] = [(s.key, s.value) for s in rng.choices(seeds, k=self._size)]
        share = self._FEW if number % 8 == 7 else self._MOST
        for at, seed in enumerate(rng.choices(seeds, k=self._size)):
            if rng.random() < share:
                records[at] = nudged(rng, seed, seeds)
                self.events += 1
        with compiled():
            self._judged(number, topic, records, self._fresh())

    def _plan(self, number: int) -> BatchPlan:
        """Some chunks may ask for columns."""
        return super()._plan(int(number % 8 == 1))

    def _both(
        self,
        ways: tuple[Decoding, Decoding],
        plan: BatchPlan,
        topic: str,
        records: Sequence[Record],
    ) -> tuple[Ended, Ended]:
        intact = [(seed.key, seed.value) for seed in self._intact]
        with by_columns():
            self._ended(ways[0], plan, topic, intact)
        fast = self._ended(ways[0], plan, topic, records)
        with by_reference(of_rows=True):
            self._ended(ways[1], plan, topic, intact)
            slow = self._ended(ways[1], plan, topic, records)
        return fast, slow

    def _ended(
        self, decoding: Decoding, plan: BatchPlan, topic: str, records: Sequence[Record]
    ) -> Ended:
        keys, values = zip(*records, strict=True)
        decoding.use(plan)
        result = decoding.decode(RawBatch(topic, 0, range(len(records)), list(keys), list(values)))
        self.walked += result.walked
        changes = result.changes
        return Ended(
            {f"{c.target} {c.schema_id} {c.constants}": _table(c.rows) for c in changes},
            {bad.offset: bad.error_class for bad in result.bad},
            {bad.offset: bad.error for bad in result.bad},
            result.counts,
            {_asked(delta) for delta in result.deltas}
            | {(c.target, c.min_source_ts_ms, c.max_source_ts_ms) for c in changes},
        )


def _weight(subject: Subject, topic: str) -> int:
    """Topics of rows are looked at more than those of heartbeats and transactions."""
    count = len(subject.seeds[topic])
    return count if "." in topic.removesuffix(".transaction") or len(subject.seeds) == 1 else 2


def _internal(fast: Ended, slow: Ended) -> bool:
    return "internal" in {*fast.bad.values(), *slow.bad.values()}


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _pairs(table: pa.Table, name: str) -> dict[int, str]:
    offsets, found = table.column(OFFSET_COLUMN).to_pylist(), table.column(name).to_pylist()
    return dict(zip(offsets, found, strict=True))


def _asked(delta: SchemaDelta) -> tuple[Any, ...]:
    fields = tuple(sorted((field.name, str(field.type)) for field in delta.fields))
    return delta.target, str(delta.source), fields, delta.primary_key, delta.offset


def _smallest(record: Record, fails: Callable[[Record], bool]) -> Record:
    """The record without what is not needed for the fault."""
    key, value = record
    for smaller in (None, b"{}"):
        if key is not None and fails((smaller, value)):
            key = smaller
            break
    left, shrunk = _SMALLER, True
    while shrunk and value and left > 0:
        shrunk = False
        for smaller in _smaller(value):
            left -= 1
            if left <= 0:
                break
            if fails((key, smaller)):
                value, shrunk = smaller, True
                break
    return key, value


def _smaller(value: bytes) -> Iterator[bytes]:
    try:
        places = places_of(value)
    except (AssertionError, RecursionError):
        size = len(value) // 2
        while size:
            for at in range(0, len(value), size):
                yield value[:at] + value[at + size :]
            size //= 2
        return
    for place in sorted(places, key=lambda each: each.start - each.end):
        if place.kind == "member":
            rest = value[: place.start] + value[place.end :]
            yield rest.replace(b"{,", b"{").replace(b",,", b",").replace(b",}", b"}")
    for place in sorted(places, key=lambda each: each.start - each.end):
        if place.kind == "value" and place.end - place.start > 2:
            for other in (b"1", b'""', b"{}", b"null"):
                yield value[: place.start] + other + value[place.end :]


def summary(campaigns: Mapping[str, EventCampaign]) -> dict[str, Any]:
    """What a campaign did, as JSON."""
    return {
        "events": sum(each.events for each in campaigns.values()),
        "faults": sum(len(each.faults) for each in campaigns.values()),
        "subjects": {
            name: {
                "events": each.events,
                "walked": each.walked,
                "faults": len(each.faults),
                "ends": dict(each.ends),
            }
            for name, each in campaigns.items()
        },
    }
