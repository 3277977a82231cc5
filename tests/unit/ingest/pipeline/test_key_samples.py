# SPDX-License-Identifier: Apache-2.0
"""Keys in two partitions are noticed, changes of key over two batches counted."""

import pickle

from ingest.pipeline.exchange import KeySamples, KeyTracker
from ingest.source.records import RawBatch
from tests.unit.ingest.debezium_events import decoder, dumps, message, schema

TABLE = schema(("id", "BIGINT"), ("name", "STRING"))


def raw(keys, *, topic="t", partition=0, values=None, headers=None):
    keys = [dumps({"id": key}) for key in keys]
    extras = {at: Headers(found) for at, found in (headers or {}).items()}
    values = values or [None] * len(keys)
    return RawBatch(topic, partition, list(range(len(keys))), keys, values, extras=extras)


class Headers:
    def __init__(self, pairs):
        self._pairs = pairs

    def headers(self):
        return self._pairs

    def timestamp(self):
        return 0, -1


def seen(*batches):
    places = KeySamples()
    for batch in batches:
        places.sample(batch)
    return pickle.loads(pickle.dumps(places))


def merged(*parts):
    whole = KeySamples()
    for part in parts:
        whole.add(part)
    return whole


def test_a_key_in_two_partitions_of_one_task_of_two_tasks_or_of_two_batches():
    one, two = raw([1, 2, 3]), raw([4, 3], partition=1)
    for batches in ([seen(one, two)], [merged(seen(one), seen(two))], [seen(one), seen(two)]):
        sketch = KeyTracker()
        found = [sketch.take(batch)[0] for batch in batches]
        assert not any(found[:-1])
        (violation,) = found[-1]["t"]
        assert sorted(violation[1:]) == [0, 1]


def test_each_move_is_told_once():
    sketch = KeyTracker()
    told = [sketch.take(seen(raw([7], partition=n)))[0] for n in (0, 1, 1, 1, 0)]
    assert [len(found.get("t", ())) for found in told] == [0, 1, 0, 0, 1]


def test_keys_of_other_topics_and_records_without_keys_are_no_violation():
    sketch = KeyTracker()
    nameless = RawBatch("t", 1, [0], [None], [b"{}"])
    found, _ = sketch.take(seen(raw([1]), raw([1], topic="u", partition=1), nameless))
    assert found == {}


def test_memory_is_bounded_and_systematic_moves_are_found():
    sketch = KeyTracker()
    for start in range(0, 20_000, 5_000):
        sketch.take(seen(raw(range(start, start + 5_000))))
        assert len(sketch._samples.places["t"]) <= 2_048
        assert len(pickle.dumps(sketch._samples)) < 60_000
    found, _ = sketch.take(
        seen(*(raw(range(n, n + 5_000), partition=1) for n in range(0, 20_000, 5_000)))
    )
    assert found["t"]


def halves():
    """Records of a change of key from 1 to 2."""
    table = decoder(TABLE)
    gone = message("d", {"id": 1, "name": None})
    new = message("c", None, {"id": 2, "name": "a"})
    old_half = raw([1], values=[gone], headers={0: [("__debezium.newkey", dumps({"id": 2}))]})
    new_half = raw([2], values=[new], partition=1)

    def moves(*batches, moving=("t",)):
        places = KeySamples()
        for batch in batches:
            places.record_key_updates(batch, table.decode(batch).changes, moving)
        return places

    return old_half, new_half, moves


def test_changes_of_key_whose_halves_are_apart_are_counted():
    old_half, new_half, moves = halves()
    sketch = KeyTracker()
    assert sketch.take(moves(old_half, moving=()))[1] == {}  # the topic is not known yet
    assert sketch.moving == {"t"}
    assert sketch.take(merged(moves(new_half), moves(old_half)))[1] == {}
    assert sketch.take(moves(old_half))[1] == {"t": 1}
    assert sketch.take(moves(new_half))[1] == {}


def test_headers_that_are_no_json_are_not_judged():
    old_half, _, moves = halves()
    old_half = raw(
        [1], values=old_half.values, headers={0: [("__debezium.newkey", b"Struct{id=2}")]}
    )
    sketch = KeyTracker()
    sketch.moving.add("t")
    assert sketch.take(moves(old_half))[1] == {}
