# SPDX-License-Identifier: Apache-2.0
"""Tables with too many bad records: parked, nothing committed, nothing lost, nothing twice."""

import random

import pytest

from ingest.daemon.configuration import load_settings
from ingest.decode.events import BadRecord
from ingest.pipeline.exchange import BadCounts, RangeReport, TableTotals
from ingest.pipeline.sink import RATIO_COUNTS_FROM, over_limit
from tests.unit.ingest.simulated_stream import BATCH, QUARANTINE, SimulatedStream, event

RULES = """
bad.records: {max.ratio: 0.2}
tables:
  - {match: shop.items, bad.records: skip}
  - {match: shop.sums, bad.records: fail}
"""
BROKEN = (b"k", b"{broken")


def wrong(table, key=1):
    """A record that is known to be for a table and does not fit it."""
    return event(table, key, [1, {}])


@pytest.fixture
def stream(tmp_path, monkeypatch):
    return limited(tmp_path, monkeypatch, RULES)


def limited(directory, monkeypatch, rules):
    """A stream whose settings have more lines."""
    stream = SimulatedStream(directory, monkeypatch)
    path = directory / "shop.yaml"
    path.write_text(path.read_text() + rules)
    stream.settings = load_settings(path)
    monkeypatch.setattr("ingest.pipeline.sink.RATIO_COUNTS_FROM", 4)
    stream.open()
    return stream


def fill(stream, records, topic="a", partition=0):
    return [stream.topics.add(topic, partition, *record) for record in records]


def bad(target, error_class="type", offset=0):
    return BadRecord(offset, -1, b"k", b"v", (), error_class, "does not fit", target)


def report_of(rows, bads):
    counts = BadCounts()
    for record in bads:
        counts.find("t", 0, record)
    return RangeReport(tables={"shop.orders": TableTotals(rows)}, bad_records=counts)


def test_a_ratio_counts_from_a_number_of_records_on(stream, monkeypatch):
    monkeypatch.undo()
    few = report_of(RATIO_COUNTS_FROM - 51, [bad("shop.orders", offset=n) for n in range(50)])
    assert over_limit(stream.settings, few) == {}
    many = report_of(RATIO_COUNTS_FROM - 50, [bad("shop.orders", offset=9 - n) for n in range(50)])
    (reason,) = over_limit(stream.settings, many).values()
    assert reason == (
        "50 of 100 records are bad, more than bad.records.max.ratio = 0.2: 50 type; "
        "first t-0 @ -40: does not fit"
    )
    exactly = report_of(80, [bad("shop.orders", offset=n) for n in range(20)])
    assert over_limit(stream.settings, exactly) == {}, "the limit itself is allowed"
    assert over_limit(stream.settings, many, {"shop.orders"}) == {}, "decided before"


def test_over_the_ratio_the_table_is_parked_and_its_batch_comes_again(stream):
    fill(stream, [event("orders", n, n) for n in range(1, 3)])
    stream.batch()
    stream.batch()
    assert stream.rows("shop.orders") == {1: 1, 2: 2}
    good = [event("orders", 5, 5), event("sums", 5, 7), event("sums", 6, 7)]
    fill(stream, [*good, BROKEN, *[wrong("orders", n) for n in range(4)]])
    stream.batch()
    parked = stream.book.parking.parked()
    assert set(parked) == {"shop.orders"}
    assert "4 of 5 records are bad" in parked["shop.orders"].reason
    assert stream.rows("shop.orders") == {1: 1, 2: 2}, "nothing of that batch is committed"
    assert stream.rows("shop.sums") == {5: 7, 6: 7}, "the others flow"
    assert stream.quarantined() == {("a", 0, 5)}, "bad for the topic only; the others come again"

    stream.settings = load_settings(stream.directory / "shop.yaml", {"bad.records.max.ratio": "1"})
    stream.open()
    stream.drain()
    assert stream.rows("shop.orders") == {1: 1, 2: 2, 5: 5}
    assert stream.rows("shop.sums") == {5: 7, 6: 7}, "and once only"
    assert stream.quarantined() == {("a", 0, n) for n in range(5, 10)}


def test_records_of_no_known_table_park_nothing(stream):
    fill(stream, [event("sums", 1, 1), *[BROKEN] * 8])
    stream.batch()
    stream.batch()
    assert stream.book.parking.parked() == {}
    assert len(stream.quarantined()) == 8


def test_fail_parks_at_the_first_bad_record(stream):
    fill(stream, [event("sums", n, 1) for n in range(5)])
    stream.batch()
    stream.batch()
    before = stream.rows("shop.sums")
    fill(stream, [event("sums", 9, 1), wrong("sums"), event("orders", 1, 1)])
    stream.batch()
    assert set(stream.book.parking.parked()) == {"shop.sums"}
    assert "(bad.records: fail)" in stream.book.parking.parked()["shop.sums"].reason
    assert stream.rows("shop.sums") == before
    assert stream.rows("shop.orders") == {1: 1}
    assert stream.quarantined() == set()


def test_skip_counts_and_leaves_out(tmp_path, monkeypatch):
    reports = []
    stream = limited(tmp_path, monkeypatch, RULES)
    stream.sink._on_batch = reports.append
    fill(stream, [event("items", n, n) for n in range(9)])
    stream.batch()
    stream.batch()
    fill(stream, [event("items", 9, 9), wrong("items"), *[event("items", n, 1) for n in range(5)]])
    stream.batch()
    assert stream.quarantined() == set()
    assert stream.rows("shop.items")[9] == 9
    assert reports[-1].bad_skipped == {"shop.items": {"type": 1}}
    assert reports[-1].bad_by_table == {}


def test_what_waits_for_its_table_and_is_bad_under_it_is_not_lost(stream):
    fill(stream, [event("fresh", 1, 1), event("fresh", 2, [1, {}]), event("fresh", 3, 3)])
    stream.batch()
    stream.batch()
    rows = stream.catalog.table(QUARANTINE).to_arrow().to_pylist()
    taken = stream.rows("shop.fresh")
    assert len(taken) + len(rows) == 3, (taken, rows)


@pytest.mark.parametrize("steps", range(16))
def test_a_death_at_any_step_of_a_batch_that_parks_loses_and_repeats_nothing(stream, steps):
    fill(stream, [event("orders", 1, 1), event("sums", 1, 1)])
    stream.batch()
    stream.batch()
    fill(
        stream,
        [event("orders", 2, 2), event("sums", 1, 2), BROKEN, *[wrong("orders") for _ in range(4)]],
    )
    stream.fuse.left = steps
    for _ in range(4):
        stream.batch()
    assert set(stream.book.parking.parked()) == {"shop.orders"}
    assert stream.quarantined() == {("a", 0, 4)}
    assert stream.rows("shop.orders") == {1: 1}
    assert stream.rows("shop.sums") == {1: 3}
    stream.settings = load_settings(stream.directory / "shop.yaml", {"bad.records.max.ratio": "1"})
    stream.fuse.left = None
    stream.open()
    stream.drain()
    assert stream.rows("shop.orders") == {1: 1, 2: 2}
    assert stream.rows("shop.sums") == {1: 3}
    assert stream.quarantined() == {("a", 0, n) for n in range(4, 9)}


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 20), marks=pytest.mark.full)], ids=str
)
def test_histories_with_parking_for_bad_records(tmp_path, monkeypatch, seeds):
    """Random traffic, deaths and resumes under a ratio; every row once, every bad record kept."""
    for seed in seeds:
        rng = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        stream = limited(directory, monkeypatch, "\nbad.records: {max.ratio: 0.3}\n")
        orders, sums, bads = {}, {}, set()
        for _ in range(14):
            for _ in range(rng.randrange(BATCH)):
                key, n = rng.randrange(6), rng.randrange(100)
                if rng.random() < 0.25:
                    record = rng.choice([BROKEN, wrong("orders"), wrong("sums")])
                    bads.add(("a", 0, stream.topics.add("a", 0, *record)))
                elif rng.random() < 0.5:
                    stream.topics.add("a", 0, *event("orders", key, n))
                    orders[key] = n
                else:
                    stream.topics.add("a", 0, *event("sums", key, n))
                    sums[key] = sums.get(key, 0) + n
            if rng.random() < 0.4:
                stream.fuse.left = rng.randrange(20)
            stream.batch()
            if rng.random() < 0.3 and (parked := sorted(stream.book.parking.parked())):
                stream.resume(rng.choice(parked))
        stream.fuse.left = None
        stream.settings = load_settings(directory / "shop.yaml", {"bad.records.max.ratio": "1"})
        stream.open()
        stream.drain()
        assert (stream.rows("shop.orders"), stream.rows("shop.sums")) == (orders, sums), seed
        assert stream.quarantined() == bads, seed
