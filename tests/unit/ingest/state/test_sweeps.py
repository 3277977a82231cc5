# SPDX-License-Identifier: Apache-2.0
"""`source.on.resnapshot: sweep`: what a new snapshot does not bring goes, whatever dies meanwhile.

Histories of changes, silent deletes, snapshots (whole, interrupted, begun again), deaths, parked
tables and lost checkpoints are compared with a model; the changelog, replayed from nothing, must
give the same rows.
"""

import functools
import random
import re
from collections import defaultdict

import orjson
import pytest

from ingest.pipeline.plan import BatchPlan
from ingest.state.sweeps import OFF, OPEN, QUIET, Numbers, Sweep
from storage.errors import FencedError
from storage.format.metadata.schema import new_schema
from storage.table.retention.rollback import rollback_to
from tests.unit.ingest import simulated_stream
from tests.unit.ingest.emptied_tables import (
    KINDS,
    NAMES,
    ODD,
    STRING,
    act,
    drain,
    make_tables,
    replayed,
    truncate,
)
from tests.unit.ingest.simulated_stream import BIGINT, SimulatedSink, SimulatedStream, event

FIRST, LAST = "first_in_data_collection", "last_in_data_collection"
MARKS = (FIRST, "true", LAST)

FEW = [
    *("input", "moving"),
    *(
        pytest.param(name, marks=pytest.mark.full)
        for name in NAMES
        if name not in ("input", "moving")
    ),
]
"""Kinds of tables of which the quick run takes two; its histories have all."""


def read(table, key, n, mark="true"):
    """A row of a snapshot."""
    name, value = event(table, key, n, op="r")
    message = orjson.loads(value)
    message["source"]["snapshot"] = mark
    return name, orjson.dumps(message)


def make(directory, monkeypatch, policy="sweep", more="", names=("plain", "lookup")):
    stream = SimulatedStream(
        directory, monkeypatch, f", on.resnapshot: {policy}, on.truncate: apply", more
    )
    make_tables(stream, names)
    return stream


@pytest.fixture
def stream(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch)


@pytest.fixture
def every_kind(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch, names=NAMES)


def put(stream, table, *rows, topic="a", partition=0, op="c"):
    """Changes: (key, n) each."""
    for key, n in rows:
        stream.topics.add(topic, partition, *event(table, key, n, op=op))


def snapshot(stream, table, rows, topic="a", partition=0, *, until=None):
    """A snapshot of the table; `until`: it dies before that many rows."""
    rows = list(rows.items())
    for at, (key, n) in enumerate(rows[:until]):
        mark = LAST if at == len(rows) - 1 else FIRST if at == 0 else "true"
        stream.topics.add(topic, partition, *read(table, key, n, mark))


def watch(stream, table):
    return stream.book.progresses()[f"shop.{table}"].watch


def rows(stream, table):
    return stream.rows(f"shop.{table}")


class Model:
    """What the tables must hold in the end; a table is fed by one partition of one topic."""

    def __init__(self, stream, rng):
        self.stream = stream
        self.rng = rng
        self.source = {name: {} for name in NAMES}
        self.lake = {name: {} for name in NAMES}
        self.swept = 0
        self.interrupted = 0
        self.bad = 0
        self.unswept = {name: {} for name in NAMES}

    def topic(self, name):
        return "ab"[NAMES.index(name) % 2]

    def value(self, name):
        return self.rng.randrange(1, 4 if name == "moving" else 1000)

    def traffic(self, count, bad=0.0):
        for _ in range(count):
            name = self.rng.choice(NAMES)
            source = self.source[name]
            if bad and self.rng.random() < bad:
                what = self.rng.choice(
                    [BAD["no JSON"], read(name, 2, "bad", self.rng.choice(MARKS))]
                )
                self.stream.topics.add(self.topic(name), 0, *what)
                self.bad += 1
                continue
            if self.rng.random() < 0.08:
                self.snapshot(name)
                continue
            key = self.rng.randrange(8)
            if key in source and self.rng.random() < 0.25:
                record = event(name, key, 0, op="d")
                del source[key]
                silent = self.rng.random() < 0.6
                if not silent:
                    self.lake[name].pop(key, None)
                    self.unswept[name].pop(key, None)
            else:
                n = self.value(name)
                record = event(name, key, n, op="u" if key in source else "c")
                source[key] = self.lake[name][key] = self.unswept[name][key] = n
                silent = False
            if not silent:
                self.stream.topics.add(self.topic(name), 0, *record)

    def snapshot(self, name):
        source = self.source[name]
        for key in (0, 1):
            source.setdefault(key, self.value(name))
        whole = self.rng.random() < 0.75
        until = None if whole else self.rng.randrange(1, len(source))
        snapshot(self.stream, name, source, self.topic(name), until=until)
        brought = dict(list(source.items())[:until])
        self.unswept[name] |= brought
        if whole:
            self.swept += len(self.lake[name].keys() - source.keys())
            self.lake[name] = brought
        else:
            self.interrupted += 1
            self.lake[name] |= brought

    def check(self):
        for name in NAMES:
            assert rows(self.stream, name) == self.lake[name], name
        for name in ("input", "lookup", "full"):
            found = replayed(self.stream.catalog.table(f"shop.{name}"))[0]
            assert found == self.lake[name], name

    def check_nothing_lost(self):
        """Where records are bad sweeps may be left out; no living row may be gone."""
        for name in NAMES:
            found, known = rows(self.stream, name), self.unswept[name]
            assert found.items() <= known.items(), name
            assert found.keys() >= self.source[name].keys() & known.keys(), name
        for name in ("input", "lookup", "full"):
            found = replayed(self.stream.catalog.table(f"shop.{name}"))[0]
            assert found == rows(self.stream, name), name


@pytest.mark.parametrize(
    "seed",
    [*range(2), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 40))],
)
def test_any_history_ends_in_the_models_rows(every_kind, seed, monkeypatch):
    stream = every_kind
    rng = random.Random(seed)
    monkeypatch.setattr(SimulatedSink, "pieces", 1 + seed % 3)
    model = Model(stream, rng)
    for _ in range(25):
        act(stream, rng, model.traffic)
    model.traffic(30)
    stream.drain()
    model.check()


@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 30))],
)
def test_no_history_with_bad_records_loses_a_living_row(every_kind, seed, monkeypatch):
    stream = every_kind
    rng = random.Random(seed)
    monkeypatch.setattr(SimulatedSink, "pieces", 1 + seed % 3)
    model = Model(stream, rng)
    for _ in range(25):
        act(stream, rng, functools.partial(model.traffic, bad=0.04))
    model.traffic(30)
    stream.drain()
    assert model.bad
    model.check_nothing_lost()


def test_histories_do_reach_what_they_are_about(tmp_path, monkeypatch):
    seen = defaultdict(int)
    with monkeypatch.context() as patch:
        stream = make(tmp_path, patch, names=NAMES)
        rng = random.Random(1)
        model = Model(stream, rng)
        for _ in range(25):
            seen[act(stream, rng, model.traffic)] += 1
        seen["deaths"], seen["swept"] = stream.deaths, model.swept
        seen["interrupted"] = model.interrupted
    assert min(seen[name] for name in ("deaths", "swept", "interrupted", "batch")) > 0, seen


# --- what goes and what stays


@pytest.mark.parametrize("name", NAMES)
def test_what_a_snapshot_of_several_batches_does_not_bring_goes_at_its_end(
    tmp_path, monkeypatch, name
):
    stream = make(tmp_path, monkeypatch, names=[name])
    put(stream, name, *((key, 1) for key in range(5)))
    drain(stream)
    stream.topics.add("a", 0, *read(name, 0, 2, FIRST))
    drain(stream)
    assert watch(stream, name).state == OPEN
    stream.topics.add("a", 0, *read(name, 1, 2))
    drain(stream)
    assert rows(stream, name).keys() == {0, 1, 2, 3, 4}
    stream.topics.add("a", 0, *read(name, 2, 2, LAST))
    put(stream, name, (9, 3), op="c")
    drain(stream)
    assert rows(stream, name) == {0: 2, 1: 2, 2: 2, 9: 3}
    assert watch(stream, name).state == QUIET


@pytest.mark.parametrize("name", FEW)
def test_first_and_last_in_one_batch(tmp_path, monkeypatch, name):
    """What came right before the snapshot and is not in it goes, what came behind it stays."""
    stream = make(tmp_path, monkeypatch, names=[name])
    put(stream, name, *((key, 1) for key in range(4)))
    drain(stream)
    put(stream, name, (0, 3), (7, 2))
    snapshot(stream, name, {1: 2, 2: 1})
    put(stream, name, (8, 2))
    stream.batch()
    assert rows(stream, name) == {1: 2, 2: 1, 8: 2}


@pytest.mark.parametrize("name", FEW)
def test_a_row_written_right_before_the_snapshot_in_its_batch_goes(tmp_path, monkeypatch, name):
    stream = make(tmp_path, monkeypatch, names=[name])
    put(stream, name, (0, 1), (1, 1))
    drain(stream)
    put(stream, name, (7, 2), (1, 2))
    stream.topics.add("a", 0, *read(name, 0, 3, FIRST))
    stream.batch()
    assert rows(stream, name) == {0: 3, 1: 2, 7: 2}
    stream.topics.add("a", 0, *read(name, 2, 3, LAST))
    stream.batch()
    assert rows(stream, name) == {0: 3, 2: 3}


@pytest.mark.parametrize("name", ["plain", "dynamic"])
def test_values_kept_across_the_beginning_of_a_snapshot(tmp_path, monkeypatch, name):
    """A row that lacks a value takes it from one before the mark, and counts as written after."""
    stream = make(tmp_path, monkeypatch, names=[])
    string = STRING
    schema = new_schema(
        [("id", BIGINT), ("n", BIGINT), ("t", string)],
        primary_keys=("id",),
        partition_keys=(),
        options=KINDS[name],
        now_ms=0,
    )
    stream.catalog.create_table("shop.texts", schema)
    stream.restart()

    def change(op, key, n, text, mark="false"):
        row = {"id": key, "n": n, "t": text}
        source = {"db": "shop", "table": "texts", "ts_ms": 1, "snapshot": mark}
        value = {"before": None, "after": row, "op": op, "source": source, "ts_ms": 2}
        stream.topics.add("a", 0, orjson.dumps({"id": key}), orjson.dumps(value))

    change("c", 1, 1, "old")
    change("c", 2, 1, "two")
    drain(stream)
    change("u", 1, 2, "new")
    change("r", 3, 1, "three", FIRST)
    change("u", 1, 3, "__debezium_unavailable_value")
    stream.batch()
    change("r", 4, 1, "four", LAST)
    drain(stream)
    found = stream.catalog.table("shop.texts").to_arrow().to_pylist()
    assert {row["id"]: (row["n"], row["t"]) for row in found} == {
        1: (3, "new"),
        3: (1, "three"),
        4: (1, "four"),
    }


def test_a_table_whose_key_has_partition_columns(tmp_path, monkeypatch):
    stream = make(tmp_path, monkeypatch, names=[])
    schema = new_schema(
        [("id", BIGINT), ("n", BIGINT)],
        primary_keys=("id", "n"),
        partition_keys=("n",),
        options={"bucket": "2", "changelog-producer": "lookup"},
        now_ms=0,
    )
    stream.catalog.create_table("shop.parts", schema)
    stream.restart()
    put(stream, "parts", *((key, key % 3) for key in range(9)))
    drain(stream)
    stream.topics.add("a", 0, *read("parts", 0, 0, FIRST))
    drain(stream)
    for key in (4, 8):
        stream.topics.add("a", 0, *read("parts", key, key % 3, LAST if key == 8 else "true"))
    drain(stream)
    assert rows(stream, "parts") == {0: 0, 4: 1, 8: 2}


def test_a_snapshot_that_begins_again_counts_from_there(stream):
    put(stream, "plain", *((key, 1) for key in range(4)))
    drain(stream)
    snapshot(stream, "plain", {0: 2, 1: 2, 2: 2}, until=2)
    drain(stream)
    snapshot(stream, "plain", {1: 3, 2: 3}, until=1)
    drain(stream)
    assert rows(stream, "plain").keys() == {0, 1, 2, 3}
    stream.topics.add("a", 0, *read("plain", 2, 3, LAST))
    drain(stream)
    assert rows(stream, "plain") == {1: 3, 2: 3}, "0 came with the first try only"


def test_two_snapshots_in_one_batch_and_the_beginning_of_a_third(stream):
    put(stream, "plain", *((key, 1) for key in range(4)))
    drain(stream)
    snapshot(stream, "plain", {0: 2, 1: 2, 2: 2})
    snapshot(stream, "plain", {1: 3, 2: 3})
    stream.topics.add("a", 0, *read("plain", 2, 4, FIRST))
    stream.batch()
    assert rows(stream, "plain") == {1: 3, 2: 4}
    assert watch(stream, "plain").state == OPEN
    stream.topics.add("a", 0, *read("plain", 3, 4, LAST))
    drain(stream)
    assert rows(stream, "plain") == {2: 4, 3: 4}


def test_the_end_of_one_and_the_beginning_of_another_in_one_batch(stream):
    put(stream, "plain", *((key, 1) for key in range(4)))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 0, 2, FIRST))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 1, 2, LAST))
    put(stream, "plain", (5, 5), (6, 5))
    stream.topics.add("a", 0, *read("plain", 0, 3, FIRST))
    stream.topics.add("a", 0, *read("plain", 5, 3))
    stream.batch()
    assert rows(stream, "plain") == {0: 3, 1: 2, 5: 3, 6: 5}
    stream.topics.add("a", 0, *read("plain", 6, 3, LAST))
    drain(stream)
    assert rows(stream, "plain") == {0: 3, 5: 3, 6: 3}


def test_tasks_that_share_a_partition_agree(stream, monkeypatch):
    monkeypatch.setattr(SimulatedSink, "pieces", 5)
    put(stream, "plain", *((key, 1) for key in range(9)))
    drain(stream)
    put(stream, "plain", (20, 1), (21, 1), (3, 7))
    snapshot(stream, "plain", {0: 2, 1: 2, 2: 2, 3: 2, 21: 2})
    put(stream, "plain", (22, 1))
    stream.batch()
    assert rows(stream, "plain") == {0: 2, 1: 2, 2: 2, 3: 2, 21: 2, 22: 1}


def test_a_new_tables_first_snapshot_takes_no_further_run(stream):
    runs = []
    own = stream.sink._run
    stream.sink._run = lambda frame, plan: runs.append(plan.run) or own(frame, plan)
    snapshot(stream, "plain", dict.fromkeys(range(30), 1))
    drain(stream)
    assert set(runs) == {0}
    assert len(rows(stream, "plain")) == 30


def test_a_first_snapshot_that_died_on_the_way_is_swept_too(stream):
    snapshot(stream, "fresh", {0: 1, 1: 1, 2: 1}, until=2)
    drain(stream)
    snapshot(stream, "fresh", {1: 2, 3: 2})
    drain(stream)
    assert rows(stream, "fresh") == {1: 2, 3: 2}


def test_a_backlog_with_a_snapshot_in_it_makes_a_new_table(stream):
    put(stream, "fresh", (0, 1), (1, 1))
    snapshot(stream, "fresh", {1: 2, 3: 2})
    drain(stream)
    assert rows(stream, "fresh") == {1: 2, 3: 2}


def test_a_truncate_and_a_snapshot_in_one_batch(stream):
    put(stream, "plain", *((key, 1) for key in range(4)))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 0, 2, FIRST))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 1, 2, LAST))
    stream.topics.add("a", 0, *truncate("plain"))
    put(stream, "plain", (8, 8))
    drain(stream)
    assert rows(stream, "plain") == {8: 8}


def test_the_changelog_tells_of_each_row_that_goes_and_of_no_other(tmp_path, monkeypatch):
    stream = make(tmp_path, monkeypatch, names=["input", "lookup"])
    reports = []
    stream.sink._on_batch = reports.append
    for name in ("input", "lookup"):
        put(stream, name, (0, 1), (1, 1), (2, 1))
    drain(stream)
    for name in ("input", "lookup"):
        snapshot(stream, name, {0: 1, 1: 5})
    drain(stream)
    deleted = sum(each.rows_by_table.get("shop.input", {}).get("delete", 0) for each in reports)
    assert deleted == 1
    swept = [each.swept for each in reports if each.swept]
    assert swept == [{"shop.input": 1, "shop.lookup": 1}]
    for name in ("input", "lookup"):
        assert replayed(stream.catalog.table(f"shop.{name}"))[0] == {0: 1, 1: 5}


def test_numbers_after_the_mark_stay_above_it_whatever_compaction_drops(tmp_path, monkeypatch):
    """The row with the highest number is a delete, which a full compaction takes away."""
    stream = make(tmp_path, monkeypatch, names=["plain"])
    put(stream, "plain", *((key, 1) for key in range(6)))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 0, 2, FIRST))
    put(stream, "plain", (0, 0), op="d")
    drain(stream)
    table = stream.catalog.table("shop.plain")
    with table.new_write("another") as write:
        write.compact(full=True)
        table.new_commit("another").commit(write.prepare_commit(), 1)
    stream.topics.add("a", 0, *read("plain", 1, 2))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 2, 2, LAST))
    drain(stream)
    assert rows(stream, "plain") == {1: 2, 2: 2}


@pytest.mark.parametrize("where", ["begins", "ends", pytest.param("both", marks=pytest.mark.full)])
@pytest.mark.parametrize("step", range(10))
def test_a_death_at_every_step_of_the_batch(stream, where, step):
    for name in ("plain", "lookup"):
        put(stream, name, *((key, 1) for key in range(5)))
        if where == "ends":
            stream.topics.add("a", 0, *read(name, 0, 2, FIRST))
    drain(stream)
    for name in ("plain", "lookup"):
        put(stream, name, (9, 9))
        if where != "ends":
            stream.topics.add("a", 0, *read(name, 0, 2, FIRST))
        if where != "begins":
            stream.topics.add("a", 0, *read(name, 1, 2, LAST))
    stream.fuse.left = step
    for _ in range(3):
        stream.batch()
    stream.fuse.left = None
    drain(stream)
    for name in ("plain", "lookup"):
        if where == "begins":
            stream.topics.add("a", 0, *read(name, 1, 2, LAST))
    drain(stream)
    for name in ("plain", "lookup"):
        assert rows(stream, name) == {0: 2, 1: 2} | ({9: 9} if where == "ends" else {})
        used = stream.identifiers(f"shop.{name}")
        assert len(used) == len(set(used)), "no batch twice"


def test_parked_in_mid_snapshot_and_resumed(stream):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 0, 2, FIRST))
    drain(stream)
    stream.pause("shop.plain")
    stream.topics.add("a", 0, *read("plain", 1, 2))
    put(stream, "lookup", (1, 1))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 2, 2, LAST))
    drain(stream)
    assert len(rows(stream, "plain")) == 5
    stream.resume("shop.plain")
    drain(stream)
    assert rows(stream, "plain") == {0: 2, 1: 2, 2: 2}


def test_a_checkpoint_lost_in_mid_snapshot(stream):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    stream.topics.add("a", 0, *read("plain", 0, 2, FIRST))
    drain(stream)
    stream.lose_checkpoint()
    stream.topics.add("a", 0, *read("plain", 1, 2, LAST))
    drain(stream)
    assert rows(stream, "plain") == {0: 2, 1: 2}


# --- called off


def reasons(caplog):
    return " ".join(getattr(record, "reason", "") for record in caplog.records)


def begin(stream, table="plain"):
    put(stream, table, *((key, 1) for key in range(5)))
    drain(stream)
    stream.topics.add("a", 0, *read(table, 0, 2, FIRST))
    drain(stream)
    assert watch(stream, table).state == OPEN


def end(stream, table="plain"):
    stream.topics.add("a", 0, *read(table, 1, 2, LAST))
    drain(stream)


def assert_nothing_swept(stream, table="plain"):
    assert rows(stream, table).keys() >= {0, 1, 2, 3, 4}


def assert_the_next_is_swept(stream, table="plain"):
    snapshot(stream, table, {0: 7, 1: 7})
    drain(stream)
    assert rows(stream, table) == {0: 7, 1: 7}


BAD = {
    "a value": (orjson.dumps({"id": 2}), read("plain", 2, "no number")[1]),
    "no JSON": (orjson.dumps({"id": 2}), b"{"),
    "no event": (None, b"[1]"),
}


@pytest.mark.parametrize(
    ("what", "policy"),
    [
        ("a value", "quarantine"),
        ("no JSON", "quarantine"),
        ("no event", "skip"),
        ("a value", "skip"),
    ],
)
def test_a_bad_record_in_between_calls_it_off(tmp_path, monkeypatch, what, policy, caplog):
    more = f"tables:\n- {{match: shop.plain, bad.records: {policy}}}\n"
    stream = make(tmp_path, monkeypatch, more=more)
    begin(stream)
    stream.topics.add("a", 0, *BAD[what])
    drain(stream)
    assert watch(stream, "plain").state == OFF, "also when the batch has no row for the table"
    assert "a record was bad" in reasons(caplog)
    end(stream)
    assert_nothing_swept(stream)
    assert_the_next_is_swept(stream)


@pytest.mark.parametrize("place", ["before", "between"])
def test_a_bad_record_in_the_batch_of_a_whole_snapshot(stream, place):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    if place == "before":
        stream.topics.add("a", 0, *BAD["a value"])
    stream.topics.add("a", 0, *read("plain", 0, 2, FIRST))
    if place == "between":
        stream.topics.add("a", 0, *BAD["a value"])
    stream.topics.add("a", 0, *read("plain", 1, 2, LAST))
    drain(stream)
    assert rows(stream, "plain").keys() == ({0, 1} if place == "before" else {0, 1, 2, 3, 4})
    assert_the_next_is_swept(stream)


def test_a_bad_first_row_is_a_mark_all_the_same(stream):
    begin(stream)
    stream.topics.add("a", 0, *read("plain", 3, "bad", FIRST))
    end(stream)
    assert_nothing_swept(stream)


def test_a_bad_last_row_ends_it(stream):
    begin(stream)
    stream.topics.add("a", 0, *read("plain", 3, "bad", LAST))
    drain(stream)
    assert_nothing_swept(stream)
    assert_the_next_is_swept(stream)


def test_bad_records_of_other_tables_call_nothing_off(stream):
    begin(stream)
    stream.topics.add("a", 0, *read("lookup", 2, "bad"))
    end(stream)
    assert rows(stream, "plain") == {0: 2, 1: 2}


def test_a_bad_record_met_while_the_table_was_parked_counts_when_it_is_resumed(stream):
    begin(stream)
    stream.pause("shop.plain")
    stream.topics.add("a", 0, *BAD["no JSON"])
    put(stream, "lookup", (1, 1))
    drain(stream)
    stream.resume("shop.plain")
    end(stream)
    assert_nothing_swept(stream)


def test_rows_of_another_writer_call_it_off_and_compactions_do_not(stream, caplog):
    begin(stream)
    table = stream.catalog.table("shop.plain")
    with table.new_write("another") as write:
        write.compact(full=True)
        table.new_commit("another").commit(write.prepare_commit(), 1)
    stream.topics.add("a", 0, *read("plain", 2, 2))
    drain(stream)
    assert watch(stream, "plain").state == OPEN
    with table.new_write("another") as write:
        batch = table.to_arrow().slice(0, 1).to_batches()[0]
        write.write(batch)
        table.new_commit("another").commit(write.prepare_commit(), 2)
    end(stream)
    assert_nothing_swept(stream)
    assert "somebody else wrote into the table" in reasons(caplog)
    assert_the_next_is_swept(stream)


def test_a_rollback_ends_the_stream_before_anything_is_swept(stream):
    begin(stream)
    stream.topics.add("a", 0, *read("plain", 2, 2))
    drain(stream)
    table = stream.catalog.table("shop.plain")
    rollback_to(table, stream.book.snapshot_id("shop.plain") - 1)
    with pytest.raises(FencedError, match="rolled back"):
        end(stream)
    assert_nothing_swept(stream)


def use(stream, directory, policy):
    path = directory / "shop.yaml"
    text = re.sub("on.resnapshot: [a-z]+", f"on.resnapshot: {policy}", path.read_text())
    path.write_text(text)
    stream.settings = simulated_stream.load_settings(path)
    stream.restart()


def test_a_snapshot_during_which_the_setting_was_off_is_not_swept(stream, tmp_path, caplog):
    begin(stream)
    use(stream, tmp_path, "upsert")
    stream.topics.add("a", 0, *read("plain", 2, 2))
    drain(stream)
    use(stream, tmp_path, "sweep")
    end(stream)
    assert_nothing_swept(stream)
    assert "its beginning was not seen" in reasons(caplog)
    assert_the_next_is_swept(stream)


def test_a_snapshot_whose_beginning_was_not_wanted_is_not_swept(tmp_path, monkeypatch):
    """The rest of it looks like a snapshot of one row."""
    stream = make(tmp_path, monkeypatch, "upsert")
    put(stream, "plain", *((key, 1) for key in range(5)))
    snapshot(stream, "plain", {0: 2, 1: 2, 2: 2}, until=2)
    drain(stream)
    use(stream, tmp_path, "sweep")
    end(stream)
    assert_nothing_swept(stream)
    assert_the_next_is_swept(stream)


def test_records_passed_over_call_it_off(stream):
    begin(stream)
    stream.topics.add("a", 0, *read("plain", 2, 2))
    number = max(int(path.name) for path in (stream.position.directory / "offsets").iterdir())
    for kind, text in (
        ("offsets", b"v1\n{}\n" + orjson.dumps(stream.topics.latest(stream.position.recorded()))),
        ("commits", b"v1\n{}"),
    ):
        (stream.position.directory / kind / str(number + 1)).write_bytes(text)
    end(stream)
    assert_nothing_swept(stream)
    assert_the_next_is_swept(stream)


def test_records_lost_to_retention_call_it_off(stream, monkeypatch):
    begin(stream)
    own = SimulatedSink._raw

    def lossy(sink, piece):
        raw = own(sink, piece)
        raw.skipped = 3
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedSink, "_raw", lossy)
        end(stream)
    assert_nothing_swept(stream)
    assert_the_next_is_swept(stream)


# --- snapshots of one row


def test_a_snapshot_of_one_row_is_swept_where_the_stream_watched_before(stream):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    assert watch(stream, "plain").state == QUIET
    stream.topics.add("a", 0, *read("plain", 3, 2, "last"))
    drain(stream)
    assert rows(stream, "plain") == {3: 2}


@pytest.mark.parametrize("doubt", ["another read", "a bad record", "other records between"])
def test_an_end_without_beginning_is_not_believed(stream, doubt):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    if doubt == "another read":
        stream.topics.add("a", 0, *read("plain", 2, 2))
    elif doubt == "a bad record":
        stream.topics.add("a", 0, *BAD["no JSON"])
    else:
        stream.topics.add("a", 0, *read("lookup", 2, 2))
        drain(stream)
    stream.topics.add("a", 0, *read("plain", 3, 2, "last"))
    drain(stream)
    assert_nothing_swept(stream)
    assert_the_next_is_swept(stream)


def test_rows_of_incremental_snapshots_have_no_marks(stream, caplog):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    for key in (0, 1):
        stream.topics.add("a", 0, *read("plain", key, 2, "incremental"))
    drain(stream)
    assert_nothing_swept(stream)
    assert "not deleted" not in caplog.text
    put(stream, "plain", (0, 3))
    drain(stream)
    assert watch(stream, "plain").state == QUIET


# --- tables that are not swept


def test_a_topic_of_several_partitions_is_not_swept_and_that_is_said_once(stream, caplog):
    put(stream, "plain", *((key, 1) for key in range(3)))
    put(stream, "plain", (3, 1), (4, 1), partition=1)
    drain(stream)
    for _ in range(2):
        snapshot(stream, "plain", {0: 2, 1: 2})
        drain(stream)
    assert_nothing_swept(stream)
    assert caplog.text.count("a table cannot be swept") == 1
    assert "topic a has 2 partitions" in reasons(caplog)
    assert watch(stream, "plain") is None


def test_a_partition_that_comes_in_mid_snapshot(stream):
    begin(stream)
    put(stream, "lookup", (1, 1), partition=1)
    drain(stream)
    end(stream)
    assert_nothing_swept(stream)


def test_a_table_fed_by_two_topics_is_not_swept(stream):
    put(stream, "plain", *((key, 1) for key in range(5)))
    drain(stream)
    snapshot(stream, "plain", {0: 2, 1: 2}, topic="b")
    drain(stream)
    assert_nothing_swept(stream)


@pytest.mark.parametrize("reason", ODD)
def test_a_table_whose_deletes_may_leave_rows_is_not_swept(stream, reason, caplog):
    schema = new_schema(
        [("id", BIGINT), ("n", BIGINT), ("kind", STRING)],
        primary_keys=("id",),
        partition_keys=(),
        options={"bucket": "1", **ODD[reason]},
        now_ms=0,
    )
    stream.catalog.create_table("shop.odd", schema)
    stream.restart()
    for at, key in enumerate((0, 1, 2, 0, 1)):
        name, value = event("odd", key, 1, op="r" if at > 2 else "c")
        message = orjson.loads(value)
        message["after"]["kind"] = "+I"
        message["source"]["snapshot"] = (FIRST, LAST)[at - 3] if at > 2 else "false"
        stream.topics.add("a", 0, name, orjson.dumps(message))
    drain(stream)
    assert rows(stream, "odd").keys() == {0, 1, 2}
    assert reason in reasons(caplog)


def test_a_table_in_the_order_of_the_source_is_not_swept(tmp_path, monkeypatch, caplog):
    stream = SimulatedStream(tmp_path, monkeypatch, ", on.resnapshot: sweep, ordering: source")
    for lsn, (key, mark) in enumerate([(1, "false"), (2, "false"), (1, FIRST), (3, LAST)], 10):
        name, value = event("posted", key, lsn, op="c" if mark == "false" else "r")
        message = orjson.loads(value)
        at = {"connector": "postgresql", "name": "m", "schema": "public", "lsn": lsn}
        message["source"] |= {**at, "sequence": f'["{lsn}","{lsn}"]', "snapshot": mark}
        stream.topics.add("p", 0, name, orjson.dumps(message))
    drain(stream)
    assert rows(stream, "posted").keys() == {1, 2, 3}
    assert "cannot be swept" in caplog.text


def test_soft_deletes_and_shared_tables_are_not_swept(tmp_path, monkeypatch, caplog):
    more = (
        "route:\n"
        "- {source-table: 'shop.part_.', sink-table: shop.parts, "
        "shard: {column: _shard, value: '${source.table}'}}\n"
        "- {source-table: 'shop.(.*)', sink-table: 'shop.$1'}\n"
        "tables:\n- {match: shop.softly, deletes: soft}\n"
    )
    stream = make(tmp_path, monkeypatch, more=more)
    for name in ("part_a", "part_b", "softly"):
        put(stream, name, (0, 1), (1, 1), (2, 1))
    drain(stream)
    for name in ("part_a", "softly"):
        snapshot(stream, name, {0: 2, 1: 2})
    drain(stream)
    found = stream.catalog.table("shop.parts").to_arrow()
    assert found.num_rows == 6
    assert rows(stream, "softly").keys() == {0, 1, 2}
    assert caplog.text.count("cannot be swept") == 2


def test_a_rule_of_a_table_wins(tmp_path, monkeypatch):
    more = "tables:\n- {match: shop.lookup, on.resnapshot: upsert}\n"
    stream = make(tmp_path, monkeypatch, more=more)
    for name in ("plain", "lookup"):
        put(stream, name, (0, 1), (1, 1), (2, 1))
        drain(stream)
        snapshot(stream, name, {0: 2, 1: 2})
        drain(stream)
    assert rows(stream, "plain").keys() == {0, 1}
    assert rows(stream, "lookup").keys() == {0, 1, 2}


def test_without_the_setting_nothing_is_looked_at_or_kept(tmp_path, monkeypatch):
    stream = make(tmp_path, monkeypatch, "upsert")
    put(stream, "plain", (0, 1), (1, 1), (2, 1))
    snapshot(stream, "plain", {0: 2, 1: 2})
    drain(stream)
    assert rows(stream, "plain").keys() == {0, 1, 2}
    snapshot_ = stream.catalog.table("shop.plain").snapshots.latest()
    assert not [key for key in snapshot_.properties if "sweep" in key]


def test_a_plan_carries_its_sweeps():
    sweep = Sweep("a", 0, 7, 3, None, 2)
    plan = BatchPlan(
        batch_id=1, identifier=1, sweeps={"shop.plain": sweep}, numbers={"shop.x": Numbers(4, 9)}
    )
    read_back = BatchPlan.from_property(plan.to_property())
    assert read_back.sweeps == {"shop.plain": sweep}
    assert read_back.numbers == {"shop.x": Numbers(4, 9)}
    assert [read_back.floor("shop.plain", "a", part) for part in (0, 1)] == [3, 0]
