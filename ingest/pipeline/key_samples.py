# SPDX-License-Identifier: Apache-2.0
"""Checks of what arrival order assumes: keys stay in their partition, key updates in one batch.

Two checks, on samples or rare records, so that they cost almost nothing:

* Some keys of every raw batch are hashed. Tasks report those with the smallest hashes, and the
  driver remembers the smallest of every topic, so that all sample the same keys. A key that occurs
  in two partitions is a violation: its changes are not in the order of the source.
* A key update is two records, of the old and of the new key, mostly in two partitions. Debezium
  names the other one in a header. Deletes are always checked for it; keys of new rows only in
  topics with known key updates (`BatchPlan.moving`). A delete whose other half is not in its batch
  was split: until the next batch the table has neither row.
"""

import dataclasses
import hashlib
import heapq
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ingest.decode.events import OFFSET_COLUMN, ChangeBatch
from ingest.source.records import RawBatch
from storage.format.types.types import VALUE_KIND, RowKind

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
