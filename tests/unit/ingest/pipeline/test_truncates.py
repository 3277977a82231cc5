# SPDX-License-Identifier: Apache-2.0
"""`source.on.truncate`: tables emptied where the source emptied them, whatever dies meanwhile.

Histories of changes, truncates, deaths, parked tables and lost checkpoints are compared with a
model; the changelog, replayed from nothing, must give the same rows.
"""

import random
import re
from collections import Counter

import orjson
import pytest

from ingest.decode.dialects import CanalJson, DmsJson, OggJson
from ingest.decode.events import SourceTable
from ingest.decode.json.envelopes import DialectOptions, truncated_table
from ingest.errors import TruncateStopError
from ingest.pipeline import tasks
from ingest.pipeline.exchange import BatchPlan
from ingest.pipeline.truncates import TruncationPoint
from storage.format.metadata.schema import new_schema
from storage.format.types.types import RowKind
from tests.unit.ingest import simulated_stream
from tests.unit.ingest.emptied_tables import (
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


def make(directory, monkeypatch, policy="apply", more="", names=("plain", "lookup")):
    stream = SimulatedStream(directory, monkeypatch, f", on.truncate: {policy}", more)
    make_tables(stream, names)
    return stream


@pytest.fixture
def stream(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch)


@pytest.fixture
def every_kind(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch, names=NAMES)


class Model:
    """What the tables must hold in the end; a table is fed by one partition of one topic."""

    def __init__(self, stream, rng):
        self.stream = stream
        self.rng = rng
        self.rows = {name: {} for name in NAMES}
        self.truncates = 0

    def traffic(self, count):
        for _ in range(count):
            name = self.rng.choice(NAMES)
            topic = "ab"[NAMES.index(name) % 2]
            rows = self.rows[name]
            if self.rng.random() < 0.04:
                self.stream.topics.add(topic, 0, *truncate(name))
                rows.clear()
                self.truncates += 1
                continue
            key, n = self.rng.randrange(6), self.rng.randrange(1, 4 if name == "moving" else 1000)
            if key in rows and self.rng.random() < 0.2:
                record = event(name, key, 0, op="d")
                del rows[key]
            else:
                record = event(name, key, n, op="u" if key in rows else "c")
                rows[key] = n
            self.stream.topics.add(topic, 0, *record)

    def check(self):
        for name in NAMES:
            assert self.stream.rows(f"shop.{name}") == self.rows[name], name
        for name in ("input", "lookup", "full"):
            assert replayed(self.stream.catalog.table(f"shop.{name}"))[0] == self.rows[name], name


@pytest.mark.parametrize(
    "seed",
    [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (0, *range(2, 40)))],
)
def test_any_history_ends_in_the_models_rows(every_kind, seed, monkeypatch):
    stream = every_kind
    rng = random.Random(seed)
    monkeypatch.setattr(SimulatedSink, "pieces", 1 + seed % 3)
    model = Model(stream, rng)
    seen = Counter(act(stream, rng, model.traffic) for _ in range(25))
    if seed == 1:
        assert min(seen["batch"], stream.deaths, model.truncates) > 0
    stream.drain()
    model.check()


def fill(stream, table, count=5, topic="a", partition=0):
    for key in range(count):
        stream.topics.add(topic, partition, *event(table, key, key + 1))


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_earlier_batches_and_of_the_same_one_go_and_later_ones_stay(
    tmp_path, monkeypatch, name
):
    stream = make(tmp_path, monkeypatch, names=[name])
    fill(stream, name)
    drain(stream)
    stream.topics.add("a", 0, *event(name, 7, 70))
    stream.topics.add("a", 0, *truncate(name))
    stream.topics.add("a", 0, *event(name, 2, 20))
    stream.topics.add("a", 0, *event(name, 8, 80))
    stream.batch()
    assert stream.rows(f"shop.{name}") == {2: 20, 8: 80}


@pytest.mark.parametrize("pieces", [2, 5])
def test_tasks_that_share_a_partition_agree(stream, monkeypatch, pieces):
    monkeypatch.setattr(SimulatedSink, "pieces", pieces)
    fill(stream, "plain")
    drain(stream)
    fill(stream, "plain", 3)
    stream.topics.add("a", 0, *truncate("plain"))
    for key in (2, 8):
        stream.topics.add("a", 0, *event("plain", key, 50))
    stream.batch()
    assert stream.rows("shop.plain") == {2: 50, 8: 50}


def test_many_rows_are_deleted_in_several_chunks(stream, monkeypatch):
    """And none of them comes behind a later row of its key."""
    monkeypatch.setattr(tasks, "GATHER_BYTES", 100)
    monkeypatch.setattr(tasks, "CHUNK_TARGET_BYTES", 60)
    fill(stream, "plain", 12)
    drain(stream)
    stream.topics.add("a", 0, *truncate("plain"))
    for key in range(0, 12, 2):
        stream.topics.add("a", 0, *event("plain", key, 50))
    drain(stream)
    assert stream.rows("shop.plain") == dict.fromkeys(range(0, 12, 2), 50)


def test_a_table_in_the_order_of_the_source_is_emptied(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch, ", on.truncate: apply, ordering: source")
    for lsn, (op, key) in enumerate([("c", 1), ("c", 2), ("t", 0), ("c", 2), ("c", 3)], 10):
        name, value = truncate("posted") if op == "t" else event("posted", key, lsn)
        message = orjson.loads(value)
        at = {"connector": "postgresql", "name": "m", "schema": "public", "lsn": lsn}
        message["source"] |= {**at, "sequence": f'["{lsn}","{lsn}"]', "snapshot": "false"}
        stream.topics.add("p", 0, name, orjson.dumps(message))
        if lsn == 11:
            drain(stream)
    drain(stream)
    assert "_seq_1" in stream.catalog.table("shop.posted").schema.field_names
    assert stream.rows("shop.posted") == {2: 13, 3: 14}
    assert not stream.book.parking.parked()


def test_the_last_of_several_truncates_counts(stream):
    fill(stream, "plain")
    for key in (6, 7):
        stream.topics.add("a", 0, *truncate("plain"))
        stream.topics.add("a", 0, *event("plain", key, key))
    drain(stream)
    assert stream.rows("shop.plain") == {7: 7}


def test_a_truncate_of_a_table_that_comes_in_the_same_batch(stream):
    """`items` does not exist: its table is made by a second run, and emptied by a third."""
    fill(stream, "items")
    stream.topics.add("a", 0, *truncate("items"))
    stream.topics.add("a", 0, *event("items", 9, 9))
    drain(stream)
    assert stream.rows("shop.items") == {9: 9}


def test_a_truncate_of_a_table_that_never_came_does_nothing(stream):
    stream.topics.add("a", 0, *truncate("nothing"))
    fill(stream, "plain", 2)
    drain(stream)
    assert stream.rows("shop.plain") == {0: 1, 1: 2}
    assert not stream.catalog.exists("shop.nothing")


def test_what_the_changelog_tells(every_kind):
    stream = every_kind
    for name in ("input", "lookup"):
        fill(stream, name)
    drain(stream)
    for name in ("input", "lookup"):
        stream.topics.add("a", 0, *truncate(name))
    stream.topics.add("a", 0, *event("input", 2, 20))
    drain(stream)
    assert replayed(stream.catalog.table("shop.input"))[0] == {2: 20}
    found, kinds = replayed(stream.catalog.table("shop.lookup"))
    assert (found, kinds) == ({}, {RowKind.INSERT, RowKind.DELETE})


@pytest.mark.parametrize("step", range(10))
def test_a_death_at_every_step_of_the_batch(stream, step):
    for name in ("plain", "lookup"):
        fill(stream, name)
    drain(stream)
    for name in ("plain", "lookup"):
        stream.topics.add("a", 0, *event(name, 0, 5))
        stream.topics.add("a", 0, *truncate(name))
        stream.topics.add("a", 0, *event(name, 1, 9))
    stream.fuse.left = step
    for _ in range(3):
        stream.batch()
    stream.fuse.left = None
    drain(stream)
    for name in ("plain", "lookup"):
        assert stream.rows(f"shop.{name}") == {1: 9}
        used = stream.identifiers(f"shop.{name}")
        assert len(used) == len(set(used)), "no batch twice"


def parked_reason(stream, table):
    return stream.book.parking.parked()[f"shop.{table}"].reason


def test_a_topic_of_several_partitions_parks_the_table_and_ignoring_brings_it_back(
    tmp_path, monkeypatch
):
    stream = make(tmp_path, monkeypatch)
    fill(stream, "plain")
    fill(stream, "lookup", partition=1)
    drain(stream)
    stream.topics.add("a", 0, *truncate("plain"))
    fill(stream, "lookup", 7, partition=1)
    drain(stream)
    assert "topic a has 2 partitions" in parked_reason(stream, "plain")
    assert "partition 0, offset 5" in parked_reason(stream, "plain")
    assert len(stream.rows("shop.plain")) == 5
    assert len(stream.rows("shop.lookup")) == 7, "the others flow"
    other = make_settings(tmp_path, "ignore")
    stream.settings = stream.sink.settings = other
    stream.book.use_settings(other)
    stream.resume("shop.plain")
    drain(stream)
    assert len(stream.rows("shop.plain")) == 5
    assert not stream.book.parking.parked()


def make_settings(directory, policy):
    path = directory / "shop.yaml"
    text = re.sub("on.truncate: [a-z]+", f"on.truncate: {policy}", path.read_text())
    path.write_text(text)
    return simulated_stream.load_settings(path)


def test_a_table_fed_by_two_topics_is_parked(stream):
    fill(stream, "plain")
    drain(stream)
    stream.topics.add("b", 0, *truncate("plain"))
    drain(stream)
    drain(stream)
    assert "several topics (a, b)" in parked_reason(stream, "plain")


@pytest.mark.parametrize("reason", ODD)
def test_a_table_whose_deletes_may_leave_rows_is_parked(stream, reason):
    schema = new_schema(
        [("id", BIGINT), ("n", BIGINT), ("kind", STRING)],
        primary_keys=("id",),
        partition_keys=(),
        options={"bucket": "1", **ODD[reason]},
        now_ms=0,
    )
    stream.catalog.create_table("shop.odd", schema)
    stream.restart()
    stream.topics.add("a", 0, *truncate("odd"))
    drain(stream)
    assert reason in parked_reason(stream, "odd")


def test_soft_deletes_and_shared_tables_are_parked(tmp_path, monkeypatch):
    more = (
        "route:\n"
        "- {source-table: 'shop.part_.', sink-table: shop.parts, "
        "shard: {column: _shard, value: '${source.table}'}}\n"
        "- {source-table: 'shop.(.*)', sink-table: 'shop.$1'}\n"
        "tables:\n- {match: shop.softly, deletes: soft}\n"
    )
    stream = make(tmp_path, monkeypatch, more=more)
    for name in ("part_a", "part_b", "softly"):
        fill(stream, name)
    drain(stream)
    stream.topics.add("a", 0, *truncate("part_a"))
    stream.topics.add("a", 0, *truncate("softly"))
    drain(stream)
    assert "other source tables fill it" in parked_reason(stream, "parts")
    assert "soft" in parked_reason(stream, "softly")


def test_fail_stops_before_the_batch_and_goes_on_exactly_there(tmp_path, monkeypatch):
    stream = make(tmp_path, monkeypatch, "fail")
    fill(stream, "plain")
    drain(stream)
    fill(stream, "lookup", 3)
    stream.topics.add("a", 0, *truncate("plain"))
    for _ in range(2):
        with pytest.raises(TruncateStopError) as caught:
            drain(stream)
        context = caught.value.context
        assert (context["topic"], context["partition"], context["offset"]) == ("a", 0, 8)
        assert context["table"] == "shop.plain"
    assert stream.rows("shop.lookup") == {}, "nothing of the batch is committed"
    stream.settings = make_settings(tmp_path, "apply")
    stream.restart()
    drain(stream)
    assert (len(stream.rows("shop.lookup")), stream.rows("shop.plain")) == (3, {})


def test_ignored_truncates_are_counted_only(tmp_path, monkeypatch):
    stream = make(tmp_path, monkeypatch, "ignore")
    fill(stream, "plain")
    stream.topics.add("a", 0, *truncate("plain"))
    seen = []
    stream.sink._on_batch = lambda report: seen.append(report.counts)
    drain(stream)
    assert len(stream.rows("shop.plain")) == 5
    assert sum(counts.get("a", {}).get("op.t", 0) for counts in seen) == 1


def test_a_table_damaged_where_it_is_read_is_parked(stream):
    fill(stream, "plain")
    drain(stream)
    table = stream.catalog.table("shop.plain")
    for split in table.new_scan().plan().splits:
        for file in split.files:
            path = next(stream.directory.glob(f"lake/**/{file.file_name}"))
            path.write_bytes(path.read_bytes()[:-20])
    stream.topics.add("a", 0, *truncate("plain"))
    fill(stream, "lookup", 2)
    drain(stream)
    assert "CorruptDataError" in parked_reason(stream, "plain")
    assert len(stream.rows("shop.lookup")) == 2


def test_a_plan_carries_its_cuts():
    cut = TruncationPoint("a", 0, 7, 3)
    plan = BatchPlan(batch_id=1, identifier=1, truncations={"shop.plain": cut})
    read = BatchPlan.from_property(plan.to_property())
    assert read.truncations == {"shop.plain": cut}
    assert [read.floor("shop.plain", "a", part) for part in (0, 1)] == [7, 0]


def test_the_table_that_an_event_is_about():
    found = SourceTable("shop", "public", "orders", "srv")
    source = {"db": "shop", "schema": "public", "table": "orders", "name": "srv"}
    message = {"op": "t", "source": source, "ts_ms": 1}
    assert truncated_table(orjson.dumps(message)) == found
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": message}
    assert truncated_table(orjson.dumps(wrapped)) == found
    for other in (None, b"{", orjson.dumps({**message, "op": "d"}), b'{"op": "t"}'):
        assert truncated_table(other) is None


def test_the_table_that_other_formats_messages_are_about():
    options = DialectOptions()
    canal = {"type": "TRUNCATE", "isDdl": True, "database": "shop", "table": "orders"}
    assert CanalJson(options).truncated(orjson.dumps(canal)) == SourceTable("shop", "", "orders")
    golden = {"op_type": "T", "table": "SHOP.ORDERS"}
    assert OggJson(options).truncated(orjson.dumps(golden)) == SourceTable("", "SHOP", "ORDERS")
    dms = {
        "metadata": {
            "record-type": "control",
            "operation": "truncate-table",
            "schema-name": "shop",
            "table-name": "orders",
        }
    }
    assert DmsJson(options).truncated(orjson.dumps(dms)) == SourceTable("", "shop", "orders")
    assert CanalJson(options).truncated(orjson.dumps({**canal, "type": "INSERT"})) is None
