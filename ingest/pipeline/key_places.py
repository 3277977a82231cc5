# SPDX-License-Identifier: Apache-2.0
"""Checks what order by arrival rests on: a key stays in its partition, a change of key in a batch.

Two checks, both samples or rare records, so that they cost next to nothing:

* Of every raw batch some keys are hashed. Tasks report those with the smallest hashes, the driver
  remembers the smallest of every topic, so that all look at the same keys. One that turns up in two
  partitions is a violation: its changes are not in the order of the source any more.
* A change of key is two records, of the old and of the new key, mostly in two partitions. Debezium
  names the other half in a header. Deletes are always asked for it; the keys of rows that appear
  only in topics where changes of key were seen (`BatchPlan.moving`). A delete whose other half is
  not in its batch was split: for a moment the table has neither row.
"""

import dataclasses
import hashlib
import heapq
from collections.abc import Iterable, Mapping

import numpy as np

from ingest.decode.events import OFFSET_COLUMN, ChangeBatch
from ingest.source.records import RawBatch
from storage.format.types.types import VALUE_KIND, RowKind

__all__ = ["KeyPlaces", "KeySketch", "Moved"]

_SAMPLE = 50
"""Keys hashed of one raw batch: half a percent of the time that decoding it takes."""

_LEAST, _MOST, _ALL = 32, 1_024, 200_000
"""Keys remembered of one topic, at least and at most, and of all topics: some 100 bytes each."""

_TOPICS = 5_000
"""Topics looked after; those that come later are not."""

_NEW_KEY = "__debezium.newkey"
_MOVES = 10_000
"""Changes of key looked at in one task and topic."""


@dataclasses.dataclass(slots=True)
class Moved:
    """Changes of key in one topic.

    Attributes:
        deleted: hashes of the new keys that deletes name.
        created: hashes of keys of new rows; empty where nobody asked.
        full: whether there were too many to look at all of them.
    """

    deleted: set[int] = dataclasses.field(default_factory=set)
    created: set[int] = dataclasses.field(default_factory=set)
    full: bool = False


def _hash(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")


@dataclasses.dataclass(slots=True)
class KeyPlaces:
    """What one task saw, or all of them.

    Attributes:
        places: by topic, the partition of each sampled key, by its hash.
        bars: by topic the largest hash that is remembered, once there are enough.
        violations: by topic, (hash, partition, other partition).
        moved: by topic.
    """

    places: dict[str, dict[int, int]] = dataclasses.field(default_factory=dict)
    bars: dict[str, int] = dataclasses.field(default_factory=dict)
    violations: dict[str, set[tuple[int, int, int]]] = dataclasses.field(default_factory=dict)
    moved: dict[str, Moved] = dataclasses.field(default_factory=dict)

    def look(self, raw: RawBatch) -> None:
        """Sample the keys of some records."""
        count = len(raw)
        keys = [raw.keys[at] for at in range(0, count, max(1, count // _SAMPLE))]
        if None not in keys or any(keys):
            found = {_hash(key): raw.partition for key in keys if key}
            self._take(raw.topic, found)

    def _take(self, topic: str, found: Mapping[int, int]) -> None:
        known = self.places.get(topic)
        if known is None:
            if len(self.places) >= _TOPICS:
                return
            known = self.places[topic] = {}
        bar = self.bars.get(topic)
        if bar is not None:
            found = {key: found[key] for key in found if key <= bar}
        for key in known.keys() & found.keys():
            if known[key] != found[key]:
                self.violations.setdefault(topic, set()).add((key, known[key], found[key]))
        known.update(found)
        limit = min(_MOST, max(_LEAST, _ALL // len(self.places)))
        if len(known) > 2 * limit:
            kept = heapq.nsmallest(limit, known)
            self.places[topic] = {key: known[key] for key in kept}
            self.bars[topic] = kept[-1]

    def look_for_moves(
        self, raw: RawBatch, changes: Iterable[ChangeBatch], moving: Iterable[str]
    ) -> None:
        """Note the halves of changes of key among the rows of some records."""
        wanted = raw.topic in moving
        for change in changes:
            kinds = change.rows.column(VALUE_KIND).to_numpy()
            deletes = kinds == int(RowKind.DELETE)
            if deletes.any():
                self._deleted(raw, _places(raw, change, deletes))
            if wanted:
                self._created(raw, _places(raw, change, kinds == int(RowKind.INSERT)))

    def _of(self, topic: str) -> Moved:
        return self.moved.setdefault(topic, Moved())

    def _deleted(self, raw: RawBatch, places: Iterable[int]) -> None:
        for at in places:
            for name, key in raw.headers(at):
                # other converters of headers write what no key looks like
                if name == _NEW_KEY and key[:1] == b"{":
                    moved = self._of(raw.topic)
                    if len(moved.deleted) < _MOVES:
                        moved.deleted.add(_hash(key))

    def _created(self, raw: RawBatch, places: Iterable[int]) -> None:
        keys = [key for at in places if (key := raw.keys[at])]
        moved = self._of(raw.topic)
        moved.full |= len(moved.created) + len(keys) > _MOVES
        if not moved.full:
            moved.created.update(map(_hash, keys))

    def add(self, other: "KeyPlaces") -> None:
        """Add what another task saw."""
        for topic, found in other.places.items():
            self._take(topic, found)
        for topic, violations in other.violations.items():
            self.violations.setdefault(topic, set()).update(violations)
        for topic, moved in other.moved.items():
            mine = self._of(topic)
            mine.deleted |= moved.deleted
            mine.created |= moved.created
            mine.full |= moved.full


def _places(raw: RawBatch, change: ChangeBatch, chosen: np.ndarray) -> list[int]:
    offsets = change.rows.column(OFFSET_COLUMN).to_numpy()[chosen]
    found: list[int] = np.searchsorted(np.array(raw.offsets, np.int64), offsets).tolist()
    return found


class KeySketch:
    """The driver's memory of sampled keys and of topics with changes of key.

    Attributes:
        moving: topics in which changes of key were seen.
    """

    def __init__(self) -> None:
        self._seen = KeyPlaces()
        self.moving: set[str] = set()

    def take(self, found: KeyPlaces) -> tuple[dict[str, set[tuple[int, int, int]]], dict[str, int]]:
        """Take in what the tasks of a batch saw.

        Returns:
            Violations by topic that are new: (hash of the key, partition, other partition); and by
            topic how many changes of key had their other half outside of the batch.
        """
        self._seen.add(KeyPlaces(found.places, violations=found.violations))
        violations, self._seen.violations = self._seen.violations, {}
        split = {
            topic: len(moved.deleted - moved.created)
            for topic, moved in found.moved.items()
            if topic in self.moving and not moved.full and moved.deleted - moved.created
        }
        self.moving |= {topic for topic, moved in found.moved.items() if moved.deleted}
        return violations, split
