# SPDX-License-Identifier: Apache-2.0
"""`source.ordering: source` through the whole way of a batch, without Spark."""

import dataclasses
import json
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.observe.metrics.telemetry import Metrics
from ingest.source.records import RawBatch
from ingest.state.table_registry import TableRegistry
from storage.clock import SystemClock
from storage.format.metadata.schema_changes import SetOption
from storage.table.compaction.compact_table import CompactRequest, compact_table
from tests.unit.ingest.captured_events import FOLDER, load
from tests.unit.ingest.debezium_events import dumps
from tests.unit.ingest.local_stream import LocalStream

CONFIG = """
source: {{type: files, path: /nowhere, format: {format}, ordering: {ordering}}}
sink:
  warehouse: WAREHOUSE
  table.properties: {{write-only: 'true', {properties}}}
pipeline: {{name: shop}}
"""
NAME = "shop.orders"
TOPIC = "m.shop.orders"


def stream(path, *, ordering="source", properties="bucket: '2'", format="debezium-json"):
    text = CONFIG.format(ordering=ordering, properties=properties, format=format)
    return LocalStream(path, text)


def mysql(op, key, name=None, *, at, ts=1, row=0, file=1, **source):
    """An event of MySQL; `at` is the position."""
    more = {
        "file": f"binlog.{file:06d}" if file else "",
        "pos": at,
        "row": row,
        "ts_ms": ts * 1_000,
        **source,
    }
    return envelope("mysql", op, key, name, more)


def postgres(op, key, name=None, *, commit, lsn, ts=1, **source):
    sequence = json.dumps([None if commit is None else str(commit), str(lsn)])
    more = {"schema": "public", "lsn": lsn, "sequence": sequence, "ts_ms": ts, **source}
    return envelope("postgresql", op, key, name, more)


def envelope(connector, op, key, name, source):
    base = {
        "connector": connector,
        "name": "m",
        "db": "shop",
        "table": "orders",
        "snapshot": "false",
    }
    row = {"id": key, "name": name}
    value = {
        "before": {"id": key, "name": None} if op == "d" else None,
        "after": None if op == "d" else row,
        "source": {**base, **source},
        "op": op,
        "ts_ms": 1,
    }
    return dumps({"id": key}), dumps(value)


def raw(*events, start=0, topic=TOPIC, partition=0):
    keys, values = zip(*events, strict=True)
    offsets = list(range(start, start + len(events)))
    return {(topic, partition): [RawBatch(topic, partition, offsets, list(keys), list(values))]}


def names(one, table=NAME):
    return {row["id"]: row["name"] for row in one.rows(table)}


def test_a_new_table_has_columns_for_positions_and_they_order_its_rows(tmp_path):
    one = stream(tmp_path)
    one.run(0, raw(mysql("u", 1, "new", at=20), mysql("c", 2, "x", at=30)))
    schema = one.table(NAME).schema
    positions = ["_seq_epoch", "_seq_1", "_seq_2", "_seq_3"]
    assert list(schema.field_names) == ["id", "name", *positions]
    assert schema.options["sequence.field"] == "_seq_epoch,_seq_1,_seq_2,_seq_3"
    assert schema.options["lakeward.position"] == "mysql"
    one.run(1, raw(mysql("c", 1, "old", at=10), topic="other.orders"))
    assert names(one) == {1: "new", 2: "x"}
    stored = one.table(NAME).to_arrow().sort_by("id").to_pylist()[0]
    assert [stored[f"_seq_{n}"] for n in ("epoch", 1, 2, 3)] == [0, 1, 20, 1]


def test_a_column_that_comes_later_stands_behind_the_positions(tmp_path):
    one = stream(tmp_path)
    one.run(0, raw(mysql("c", 1, "a", at=1)))
    key, value = mysql("u", 1, "b", at=2)
    changed = json.loads(value)
    changed["after"]["more"] = "m"
    one.run(1, raw((key, dumps(changed)), start=1))
    assert list(one.table(NAME).schema.field_names)[-2:] == ["_seq_3", "more"]
    assert one.rows(NAME) == [{"id": 1, "name": "b", "more": "m"}]


def test_shifted_keys_of_one_statement_keep_their_order(tmp_path):
    """UPDATE t SET id = id + 1 ORDER BY id DESC: equal file and position, told apart by row."""
    one = stream(tmp_path)
    events = [
        mysql("d", 2, at=9, row=0),
        mysql("c", 3, "two", at=9, row=0),
        mysql("d", 1, at=9, row=1),
        mysql("c", 2, "one", at=9, row=1),
    ]
    one.run(0, raw(mysql("c", 1, "one", at=1), mysql("c", 2, "two", at=2)))
    one.run(1, {**raw(*events[2:], topic="b"), **raw(*events[:2], topic="c")})
    assert names(one) == {2: "one", 3: "two"}


def test_both_halves_of_a_change_of_key_are_one_commit(tmp_path):
    one = stream(tmp_path, ordering="kafka", properties="bucket: '4'")
    one.run(0, raw(mysql("c", 1, "a", at=1)))
    before = one.table(NAME).snapshots.latest_id()
    halves = {
        **raw(mysql("d", 1, at=2), start=1),
        **raw(mysql("c", 77, "a", at=2), partition=1),
    }
    one.run(1, halves)
    table = one.table(NAME)
    assert table.snapshots.latest_id() == before + 1
    assert names(one) == {77: "a"}


def test_rows_of_incremental_snapshots_stand_where_they_came(tmp_path):
    one = stream(tmp_path)
    one.run(0, raw(mysql("c", 1, "a", at=10), mysql("c", 2, "b", at=20)))
    one.run(
        1,
        raw(
            mysql("r", 1, "read", at=0, file=0, snapshot="incremental"),
            mysql("u", 2, "c", at=30),
            start=2,
        ),
    )
    assert names(one) == {1: "read", 2: "c"}
    stored = one.table(NAME).to_arrow().sort_by("id").to_pylist()[0]
    assert (stored["_seq_1"], stored["_seq_2"]) == (1, 20)  # the highest, of a batch before
    one.run(2, raw(mysql("u", 1, "late", at=15), topic="other"))
    one.run(3, raw(mysql("u", 2, "later", at=40), start=4))
    assert names(one) == {1: "read", 2: "later"}


def test_redelivered_events_change_nothing_and_are_counted(tmp_path):
    one = stream(tmp_path)
    events = [mysql("c", 1, "a", at=1), mysql("u", 1, "b", at=2, ts=2), mysql("d", 1, at=3, ts=3)]
    one.run(0, raw(*events))
    report = one.run(1, raw(*events[:2], start=3))
    assert names(one) == {}
    assert report.repeated == {NAME: 2}
    report = one.run(2, raw(events[2], mysql("c", 1, "c", at=4, ts=3), start=5))
    assert names(one) == {1: "c"}
    assert report.repeated == {NAME: 1}


def test_a_source_that_counts_anew_begins_an_epoch(tmp_path):
    one = stream(tmp_path)
    one.run(
        0, raw(mysql("c", 1, "a", at=900, file=7, ts=5), mysql("c", 2, "b", at=901, file=7, ts=5))
    )
    new = [
        mysql("u", 1, "a2", at=4, file=1, ts=9),
        mysql("d", 2, at=8, file=1, ts=9),
        mysql("u", 1, "a3", at=12, file=1, ts=10),
    ]
    one.run(1, {**raw(*new[:2], start=2), **raw(new[2], partition=1)})
    assert names(one) == {1: "a3"}
    options = one.table(NAME).schema.options
    assert json.loads(options["lakeward.position.epochs"]) == {"m": [9_000]}
    one.start()
    one.run(2, raw(mysql("u", 1, "a4", at=13, file=1, ts=11), start=4))
    one.run(3, raw(mysql("u", 1, "old", at=999, file=7, ts=6), topic="lagging"))
    assert names(one) == {1: "a4"}
    stored = one.table(NAME).to_arrow().to_pylist()[0]
    assert (stored["_seq_epoch"], stored["_seq_2"]) == (1, 13)


def test_an_epoch_can_be_begun_by_hand(tmp_path):
    one = stream(tmp_path)
    one.run(0, raw(mysql("c", 1, "a", at=900, ts=5)))
    one.book.table(NAME).alter((SetOption("lakeward.position.epochs", '{"m":[6000]}'),))
    one.start()
    one.run(1, raw(mysql("u", 1, "b", at=1, ts=6), topic="elsewhere"))
    assert names(one) == {1: "b"}


def test_positions_that_go_up_and_down_do_not_hold_up_the_stream(tmp_path):
    one = stream(tmp_path)
    events = [mysql("c", n, "x", at=1_000 if n % 2 else 5, ts=n) for n in range(1, 60)]
    one.run(0, raw(*events))
    assert len(names(one)) == 59
    assert one.sink.runs <= 8


def test_snapshot_rows_share_a_position_and_changes_after_them_win(tmp_path):
    one = stream(tmp_path)
    read = {"snapshot": "true"}
    one.run(
        0,
        raw(
            postgres("r", 1, "read", commit=None, lsn=500, ts=90, **read),
            postgres("r", 2, "read", commit=None, lsn=500, ts=90, snapshot="last"),
            # written before the snapshot, committed after it: the snapshot does not see it
            postgres("u", 1, "written early", commit=None, lsn=480, ts=80),
            postgres("u", 1, "again", commit=None, lsn=490, ts=80),
            postgres("d", 2, commit=None, lsn=491, ts=80),
            postgres("c", 3, "new", commit=520, lsn=510, ts=95),
        ),
    )
    assert names(one) == {1: "again", 3: "new"}
    # another snapshot while the stream stands at commit 520: it sees more, and changes follow
    one.run(1, raw(postgres("r", 3, "read", commit=520, lsn=700, ts=100, **read), start=6))
    one.run(2, raw(postgres("u", 3, "after", commit=520, lsn=600, ts=99), start=7))
    assert names(one) == {1: "again", 3: "after"}


def test_lsns_of_commits_that_overtake_each_other(tmp_path):
    """The log's order is that of commits; LSNs are those of writing."""
    one = stream(tmp_path)
    events = [
        postgres("c", 1, "a", commit=100, lsn=90),
        postgres("c", 2, "b", commit=100, lsn=95),
        postgres("u", 1, "c", commit=110, lsn=105),
        postgres("c", 3, "d", commit=110, lsn=92),  # written early, committed late
    ]
    for number, event in enumerate(reversed(events)):
        one.run(number, raw(event, topic=f"t{number}"))
    assert names(one) == {1: "c", 2: "b", 3: "d"}


@pytest.mark.parametrize("connector", ["sqlserver", "oracle"])
def test_other_connectors(tmp_path, connector):
    def at(commit, change, serial):
        if connector == "oracle":
            return {"commit_scn": str(commit * 10**20), "scn": str(change), "ssn": serial}
        return {
            "commit_lsn": f"{commit:08X}:00000758:0005",
            "change_lsn": f"{commit:08X}:00000758:{change:04X}",
            "event_serial_no": serial,
        }

    one = stream(tmp_path)
    events = [
        envelope(connector, "r", 1, "read", {"ts_ms": 1, "snapshot": "true", **at(9, 9, None)}),
        envelope(connector, "u", 1, "a", {"ts_ms": 2, **at(10, 1, 2)}),
        envelope(connector, "u", 1, "b", {"ts_ms": 2, **at(10, 17, 2)}),
        envelope(connector, "d", 1, None, {"ts_ms": 3, **at(255, 2, 1)}),
        envelope(connector, "c", 1, "c", {"ts_ms": 3, **at(256, 2, 1)}),
    ]
    order = [3, 0, 4, 2, 1]
    for number, index in enumerate(order):
        one.run(number, raw(events[index], topic=f"t{number}"))
        newest = max(order[: number + 1])
        expected = {0: "read", 1: "a", 2: "b", 4: "c"}.get(newest)
        assert names(one) == ({} if expected is None else {1: expected})
    assert one.table(NAME).schema.options["lakeward.position"] == connector


# --- refusals


def quarantined(one):
    return [
        (row["error_class"], row["error"])
        for row in one.table("lakeward._quarantine").to_arrow().to_pylist()
    ]


def test_a_table_without_positions_is_refused_and_said_why(tmp_path):
    one = stream(tmp_path, ordering="kafka")
    one.run(0, raw(mysql("c", 1, "a", at=1)))
    other = stream(tmp_path)
    other.run(1, raw(mysql("u", 1, "b", at=2), start=1))
    assert names(other) == {1: "a"}
    ((kind, error),) = quarantined(other)
    assert kind == "schema"
    assert "not created for source.ordering: source" in error


def test_a_table_with_positions_needs_them(tmp_path):
    stream(tmp_path).run(0, raw(mysql("c", 1, "a", at=1)))
    other = stream(tmp_path, ordering="kafka")
    other.run(1, raw(mysql("u", 1, "b", at=2), start=1))
    assert names(other) == {1: "a"}
    assert "set source.ordering: source" in quarantined(other)[0][1]


def test_records_without_a_position_make_no_table(tmp_path):
    one = stream(tmp_path)
    one.run(0, raw(envelope("mongodb", "c", 1, "a", {"ts_ms": 1, "ord": 1})))
    assert len(quarantined(one)) == 1
    assert not one.book.schema_ids().get(NAME)


def test_a_source_column_of_that_name_is_refused(tmp_path):
    one = stream(tmp_path)
    key, value = mysql("c", 1, "a", at=1)
    changed = json.loads(value)
    changed["after"]["_seq_2"] = 5
    one.run(0, raw((key, dumps(changed))))
    assert len(quarantined(one)) == 1
    one.run(1, raw(mysql("c", 2, "b", at=1), start=1))
    one.run(2, raw((key, dumps(changed)), start=2))
    assert names(one) == {2: "b"}
    assert len(quarantined(one)) == 2


# --- histories


@dataclasses.dataclass
class Database:
    """A source: rows now, and the events that made them."""

    kind: str
    rows: dict[int, str] = dataclasses.field(default_factory=dict)
    events: list[Any] = dataclasses.field(default_factory=list)
    clock: int = 1
    at: int = 100
    commit: int | None = None

    def emit(self, op: str, key: int, name: str | None, row: int) -> None:
        if self.kind == "mysql":
            event = mysql(
                op, key, name, at=self.at, row=row, file=1 + self.at // 400, ts=self.clock // 3
            )
        else:
            self.at += 3
            event = postgres(op, key, name, commit=self.commit, lsn=self.at, ts=self.clock)
        self.events.append(event)

    def transaction(self, rng: random.Random) -> None:
        self.clock += 1
        self.at += rng.randint(1, 90)
        if self.commit is None:
            self.commit = self.at
        for row in range(rng.randint(1, 4)):
            key, name = rng.randint(1, 6), f"v{len(self.events)}"
            if key not in self.rows:
                self.emit("c", key, name, row)
            elif rng.random() < 0.3:
                self.emit("d", key, None, row)
                del self.rows[key]
                continue
            elif rng.random() < 0.2 and (free := set(range(1, 7)) - self.rows.keys()):
                self.emit("d", key, None, row)
                del self.rows[key]
                key = min(free)
                self.emit("c", key, name, row)
            else:
                self.emit("u", key, name, row)
            self.rows[key] = name
        self.at += 5
        self.commit = self.at


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["mysql", "postgresql"]))
def test_any_way_of_the_same_history_gives_the_same_rows(seed, kind, tmp_path_factory):
    """Events over topics and partitions, batches and redeliveries at random, replays of batches."""
    rng = random.Random(seed)
    database = Database(kind)
    for _ in range(rng.randint(1, 25)):
        database.transaction(rng)
    places = [("m.a", 0), ("m.a", 1), ("m.b", 0)]
    logs: dict[tuple[str, int], list[Any]] = {place: [] for place in places}
    for event in database.events:
        logs[rng.choice(places)].append(event)
    for log in logs.values():  # redelivered from somewhere on, once or twice
        for _ in range(rng.randint(0, 2)):
            if log:
                start = rng.randrange(len(log))
                end = rng.randint(start, len(log))
                log[end:end] = log[start:end]
    one = stream(tmp_path_factory.mktemp("s"))
    read = dict.fromkeys(places, 0)
    batch_id = 0
    while any(read[place] < len(logs[place]) for place in places):
        batch = {}
        for topic, partition in places:
            log, start = logs[topic, partition], read[topic, partition]
            end = min(len(log), start + rng.randint(0, 12))
            if end > start:
                some = raw(*log[start:end], start=start, topic=topic, partition=partition)
                batch |= some
                read[topic, partition] = end
        if not batch:
            continue
        one.run(batch_id, batch)
        if rng.random() < 0.2:  # the batch again, by a new process
            one.start()
            one.run(batch_id, batch)
        batch_id += 1
    assert names(one) == database.rows


def test_an_older_row_after_a_delete_that_was_compacted_away_lives(tmp_path):
    """The limit that the documents state: a full compaction keeps no deletes."""
    one = stream(tmp_path, properties="bucket: '1'")
    one.run(0, raw(mysql("c", 1, "a", at=10)))
    one.run(1, raw(mysql("d", 1, at=20), start=1))
    one.run(2, raw(mysql("u", 1, "late", at=15), topic="other"))
    assert names(one) == {}  # the delete is there
    (tmp_path / "b").mkdir()
    two = stream(tmp_path / "b", properties="bucket: '1'")
    two.run(0, raw(mysql("c", 1, "a", at=10)))
    two.run(1, raw(mysql("d", 1, at=20), start=1))
    with ThreadPoolExecutor(1) as executor:
        compact_table(two.table(NAME), CompactRequest(full=True), executor)
    two.run(2, raw(mysql("u", 1, "late", at=15), topic="other"))
    assert names(two) == {1: "late"}


def test_a_batch_that_died_between_two_commits_goes_on_from_the_same_positions(
    tmp_path, monkeypatch
):
    """One table has its part of the batch, the other takes it again; both as without a death."""
    one = stream(tmp_path)

    def both(*events, start):
        copies = [(key, value.replace(b'"orders"', b'"items"')) for key, value in events]
        return {**raw(*events, start=start), **raw(*copies, start=start, topic="m.shop.items")}

    one.run(0, both(mysql("c", 1, "a", at=50), mysql("c", 2, "b", at=60), start=0))
    batch = both(
        mysql("r", 1, "read", at=0, file=0, snapshot="incremental"),
        mysql("c", 3, "c", at=70),
        mysql("r", 2, "read", at=0, file=0, snapshot="incremental"),
        start=2,
    )
    commit = TableRegistry.commit

    def dying(book, name, *arguments, **more):
        if name == NAME:
            raise KeyboardInterrupt
        return commit(book, name, *arguments, **more)

    monkeypatch.setattr(TableRegistry, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        one.run(1, batch)
    monkeypatch.undo()
    assert names(one) == {1: "a", 2: "b"}
    one.start()
    one.run(1, batch)
    one.start()
    one.run(1, batch)
    tables = [one.table(name).to_arrow().sort_by("id") for name in (NAME, "shop.items")]
    assert tables[0].to_pylist() == tables[1].to_pylist()
    assert [row["_seq_2"] for row in tables[0].to_pylist()] == [60, 70, 70]
    assert one.book.positions()[NAME]["m"] == {TOPIC: {"0": [0, ["1", "70", "1"], 0, 1_000]}}


def test_a_death_after_an_epoch_was_noted_changes_nothing(tmp_path, monkeypatch):
    one = stream(tmp_path)
    one.run(0, raw(mysql("c", 1, "a", at=900, ts=5)))
    batch = raw(mysql("u", 1, "b", at=4, ts=9), mysql("u", 1, "c", at=5, ts=9), start=1)

    def dying(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TableRegistry, "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        one.run(1, batch)
    monkeypatch.undo()
    one.start()
    runs = one.sink.runs
    one.run(1, batch)
    assert one.sink.runs == runs + 1  # the epoch is known by now
    assert names(one) == {1: "c"}
    assert json.loads(one.table(NAME).schema.options["lakeward.position.epochs"]) == {"m": [9_000]}


@pytest.mark.parametrize("database", ["mariadb", "postgres"])
def test_events_of_real_connectors_scattered_over_topics(tmp_path, database):
    """In any order they end in the rows that Kafka's order gives."""
    rng = random.Random(11)
    capture = load(FOLDER / f"{database}.json.jsonl.gz")
    plain: dict[tuple[str, int], list[RawBatch]] = {}
    scattered: list[dict[tuple[str, int], list[RawBatch]]] = [{}, {}]
    for batch in capture.batches():
        if batch.topic.endswith(("toasted", "transaction")) or "." not in batch.topic:
            continue  # kept values are those that have arrived
        place = (batch.topic, batch.partition)
        plain[place] = [batch]
        parts: dict[str, list[int]] = {}
        for at, value in enumerate(batch.values):
            told = json.loads(value or b"{}").get("source", {})
            # rows of the snapshot, and changes of the transaction after it, have one partition
            early = told.get("snapshot") != "false" or (told.get("sequence") or "").startswith(
                "[null"
            )
            parts.setdefault("" if early else rng.choice([".a", ".b", ".c"]), []).append(at)
        for number, (suffix, places) in enumerate(parts.items()):
            topic = batch.topic + suffix
            scattered[number % 2 if suffix else 0][topic, 0] = [
                RawBatch(
                    topic,
                    0,
                    list(range(len(places))),
                    [batch.keys[at] for at in places],
                    [batch.values[at] for at in places],
                )
            ]
    (tmp_path / "k").mkdir()
    (tmp_path / "s").mkdir()
    kafka, source = stream(tmp_path / "k", ordering="kafka"), stream(tmp_path / "s")
    kafka.run(0, plain)
    for number, batch in enumerate(scattered):
        source.run(number, batch)
    tables = [name for name in kafka.book.schema_ids() if not name.startswith("lakeward.")]
    assert len(tables) > 8
    for name in tables:
        assert sorted(map(str, source.rows(name))) == sorted(map(str, kafka.rows(name))), name


def test_mariadb_has_one_position_for_all_events_of_a_transaction(tmp_path):
    def at(op, name=None, *, pos, row=0, order=None, **more):
        source = {"file": "binlog.000001", "pos": pos, "row": row, "ts_ms": 1_000, **more}
        key, value = envelope("mariadb", op, 1, name, source)
        whole = {
            **json.loads(value),
            "transaction": order and {"id": "0-1-2", "total_order": order},
        }
        return key, dumps(whole)

    one = stream(tmp_path)
    one.run(0, raw(at("r", "read", pos=10, snapshot="last"), at("d", pos=10)))
    assert names(one) == {}
    one.run(1, raw(at("c", "a", pos=20, row=3), at("u", "b", pos=20), at("d", pos=20), start=2))
    assert names(one) == {}
    orders = [
        at("c", "c", pos=30, order=1),
        at("u", "d", pos=30, order=3),
        at("d", pos=30, order=7),
    ]
    for number, event in enumerate(reversed(orders)):
        one.run(2 + number, raw(event, topic=f"t{number}"))
        assert names(one) == {}
    assert one.table(NAME).schema.options["lakeward.position"] == "mariadb"


def test_flattened_events_with_positions_in_added_fields(tmp_path):
    def flat(name, at, **more):
        row = {"id": 1, "name": name, "__op": "u", "__source_file": "b.000002", "__source_pos": at}
        return dumps({"id": 1}), dumps({**row, "__source_ts_ms": at, **more})

    one = stream(tmp_path, format="debezium-flat")
    one.run(0, raw(flat("new", 20), flat("mid", 15, __connector="mysql")))
    one.run(1, raw(flat("old", 10), topic="m.shop.orders", partition=1))
    assert names(one) == {1: "new"}


def test_a_key_in_two_partitions_is_told_under_the_order_of_kafka(tmp_path):
    one = stream(tmp_path, ordering="kafka")
    batch = {**raw(mysql("c", 1, "a", at=1)), **raw(mysql("c", 2, "b", at=2), partition=1)}
    assert one.run(0, batch).ordering_violations == {}
    report = one.run(1, raw(mysql("u", 1, "c", at=3), start=1, partition=1))
    ((_, *partitions),) = report.ordering_violations[TOPIC]
    assert partitions == [0, 1]
    metrics = Metrics(SystemClock())
    metrics.record(report)
    told = f'lakeward_ordering_violations_total{{topic="{TOPIC}"}} 1.0'
    assert told in metrics.exposition()[0].decode()
