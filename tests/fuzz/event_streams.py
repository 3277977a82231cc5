# SPDX-License-Identifier: Apache-2.0
"""Odd events through whole micro-batches: schema changes, new tables, writers and commits, too.

Fewer events than `event_campaign` can take, because every batch is committed. What is made of names
and types on the driver and what files hold of them is seen only here. Every second batch is walked
by compiled code from its first events on, as those of a process that runs long are.
"""

import collections
import contextlib
import random
import time
import traceback
from typing import Any

from ingest.source.records import RawBatch
from tests.fuzz.event_campaign import Fault
from tests.fuzz.event_mutation import Seed, mutated
from tests.fuzz.event_subjects import QUARANTINE, Subject
from tests.unit.ingest.local_stream import LocalStream
from tests.unit.ingest.walking import walking

__all__ = ["StreamCampaign"]

_EVENTS = 40
_INTACT = 0.3


class StreamCampaign:
    """A campaign over one subject.

    Args:
        subject: what is made odd.
        seed: the same gives the same events.
    """

    def __init__(self, subject: Subject, seed: int) -> None:
        self._subject = subject
        self._seed = seed
        self._all = [seed for seeds in subject.seeds.values() for seed in seeds]
        self._offset = self._batches = 0
        self.events = 0
        self.ends: collections.Counter[str] = collections.Counter()
        self.faults: list[Fault] = []

    def run(self, count: int, seconds: float = float("inf"), most_faults: int = 5) -> None:
        """Make at least so many events, unless time or patience ends before."""
        end, batch = time.monotonic() + seconds, 0
        with self._subject.registry():
            stream = LocalStream.of(self._subject.settings)
            while self.events < count and time.monotonic() < end and len(self.faults) < most_faults:
                batch += 1
                try:
                    self._batch(stream, batch)
                except Exception as error:
                    what = "".join(traceback.format_exception(error)[-7:])
                    self.faults.append(Fault(self._subject.name, batch, what, *self._guilty(batch)))
                    stream = LocalStream.of(self._subject.settings)

    def _records(self, number: int) -> list[Seed]:
        rng = random.Random(f"{self._seed} {self._subject.name} {number}")
        found = []
        for _ in range(_EVENTS):
            seed = rng.choice(self._all)
            odd = (seed.key, seed.value)
            if rng.random() >= _INTACT:
                odd = mutated(rng, seed, self._all)
            found.append(Seed(seed.topic, *odd))
        return found

    def _batch(self, stream: LocalStream, number: int) -> None:
        self.events += _EVENTS
        with walking() if number % 2 else contextlib.nullcontext():
            self._run(stream, number, self._records(number))

    def _run(self, stream: LocalStream, number: int, records: list[Seed]) -> None:
        topics: dict[str, list[Seed]] = collections.defaultdict(list)
        for record in records:
            topics[record.topic].append(record)
        batch: dict[tuple[str, int], list[RawBatch]] = {}
        for topic, some in topics.items():
            offsets = list(range(self._offset, self._offset + len(some)))
            raw = RawBatch(topic, 0, offsets, [r.key for r in some], [r.value for r in some])
            batch[topic, 0] = [raw]
            self._offset += len(some)
        self._batches += 1
        report = stream.run(self._batches, batch)
        counts: collections.Counter[str] = collections.Counter()
        for each in report.counts.values():
            counts.update(each)
        bad: collections.Counter[str] = collections.Counter()
        for classes in report.bad_by_topic.values():
            bad.update(classes)
        self.ends.update(counts)
        self.ends.update({f"bad {name}": n for name, n in bad.items()})
        if bad["internal"]:
            why = [r for r in stream.rows(QUARANTINE) if r["error_class"] == "internal"]
            what = f"not foreseen: {why[-1]['error'][:1_500]}"
            last = why[-1]
            self.faults.append(
                Fault(self._subject.name, number, what, last["topic"], last["key"], last["value"])
            )
        if report.parked:
            what = f"parked: {report.parked}"
            self.faults.append(Fault(self._subject.name, number, what, *self._guilty(number)))

    def _guilty(self, number: int) -> tuple[str, Any, Any]:
        """The first event that ends a batch of its own."""
        for record in self._records(number):
            try:
                self._run(LocalStream.of(self._subject.settings), number, [record])
            except Exception:
                return record.topic, record.key, record.value
        return "", None, None
