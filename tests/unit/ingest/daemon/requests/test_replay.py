# SPDX-License-Identifier: Apache-2.0
"""Replay of bad records: right rows whatever came later, once whatever dies, and never a newer row
overwritten."""

import dataclasses
import itertools
import random

import orjson
import pyarrow as pa
import pytest

from ingest.config.source_settings import FileSourceSettings
from ingest.daemon.requests import replay as replays
from ingest.daemon.requests.registry import Pipeline
from ingest.daemon.requests.replay import KeyedRows, drop_bad, replay, same_key, source_records
from ingest.decode.events import MOVED
from ingest.pipeline import tasks
from ingest.source.open import open_source
from ingest.source.records import RawBatch, resume_token
from ingest.state.stream_state import StateFile
from storage.errors import DataLossError, InvalidRequestError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import UpdateType
from storage.format.types.types import AtomicType, TypeRoot
from storage.lsm.merge_tree_writer import MergeTreeWriter
from tests.unit.ingest.emptied_tables import truncate
from tests.unit.ingest.simulated_stream import QUARANTINE, Died, SimulatedStream, event

BIGINT = AtomicType(TypeRoot.BIGINT)
DOUBLE = AtomicType(TypeRoot.DOUBLE)


class Replays:
    """A simulated stream that answers replays."""

    def __init__(self, directory, monkeypatch, source=""):
        self.stream = SimulatedStream(directory, monkeypatch, source)
        self.broken = set()
        stream = self.stream

        def read(settings, topic, partition, start, end):
            if start < stream.topics.low[topic, partition]:
                raise DataLossError("gone")
            records = stream.topics.records[topic][partition][start:end]
            keys, values = zip(*records, strict=True)
            for at in range(0, len(records), 5):
                part = slice(at, at + 5)
                offsets = list(range(start, end))[part]
                yield RawBatch(topic, partition, offsets, list(keys[part]), list(values[part]))

        monkeypatch.setattr(replays, "source_records", read)
        for owner, name in (
            (StateFile, "write"),
            (StateFile, "delete"),
            (replays._Replay, "_commit"),
            (replays._Replay, "commit_marks"),
        ):
            monkeypatch.setattr(owner, name, stream._burning(getattr(owner, name)))

    def add(self, *records, topic="a", partition=0):
        return [self.stream.topics.add(topic, partition, *record) for record in records]

    def work(self):
        self.stream.work()

    def pipeline(self):
        stream = self.stream
        stream.clock.advance(1000)
        return Pipeline(
            settings=stream.settings,
            book=stream.book,
            position=stream.position,
            reached=stream.position.reached(stream.sink.last_batch_id),
            spark=None,
            clock=stream.clock,
            progress=lambda text: None,
            stopping=lambda: False,
            reread=None,
            use=lambda settings: None,
            pausing=None,
            compact=None,
        )

    def replay(self, **arguments):
        """The result; if the process dies, the request is handled again after its start."""
        while True:
            try:
                return self.replay_once(**arguments)
            except Died:
                self.stream.deaths += 1
                self.stream.open()

    def replay_without_marks(self):
        """Rows are committed, and their records not marked."""

        def away(replayed, rows):
            raise InvalidRequestError("away")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(replays._Replay, "commit_marks", away)
            with pytest.raises(InvalidRequestError, match="away"):
                self.replay()

    def replay_once(self, **arguments):
        """The result, if the process lives to its end."""
        return replay(self.pipeline(), arguments).result

    def widen(self, table="shop.orders"):
        """The fix: what fits no integer fits the floating number that the column is now."""
        self.stream.catalog.table(table).alter([UpdateType("n", DOUBLE)])
        self.stream.restart()

    def states(self):
        rows = self.stream.catalog.table(QUARANTINE).to_arrow().to_pylist()
        return {row["offset"]: row["state"] for row in rows}

    def rows(self, table="shop.orders"):
        return self.stream.rows(table)


@pytest.fixture
def lake(tmp_path, monkeypatch):
    return Replays(tmp_path, monkeypatch)


def order(key, n, op="c"):
    return event("orders", key, n, op)


BAD = 0.5
WORSE = [1, {}]


def test_what_fails_again_stays_with_its_new_error(lake):
    lake.add(order(1, 1), order(2, BAD))
    lake.work()
    assert lake.rows() == {1: 1}
    result = lake.replay()
    assert (result["replayed"], result["bad"]) == (0, {"type": 1})
    assert lake.states() == {1: "new"}


def test_a_fixed_record_comes_in_and_newer_rows_of_its_key_stay(lake):
    lake.add(
        order(1, 1),
        order(1, BAD),  # 1: nothing newer
        order(2, BAD),  # 2: newer below
        order(3, BAD),  # 3: deleted below
        order(2, 22, "u"),
        order(3, 0, "d"),
        order(9, 9),
    )
    lake.work()
    assert lake.rows() == {1: 1, 2: 22, 9: 9}
    lake.widen()
    dry = lake.replay(dry_run=True)
    assert (dry["replayed"], dry["tables"]) == (3, {"shop.orders": 3})
    assert set(lake.states().values()) == {"new"}
    result = lake.replay()
    assert (result["replayed"], result["bad"], result["rows_written"]) == (3, {}, 5)
    assert lake.rows() == {1: 0.5, 2: 22, 9: 9}
    assert set(lake.states().values()) == {"replayed"}
    assert lake.replay()["chosen"] == 0
    again = lake.replay(choice={"state": "replayed"})
    assert again["replayed"] == 3
    assert lake.rows() == {1: 0.5, 2: 22, 9: 9}, "the same rows again"


@pytest.mark.parametrize("step", ["place", "write"])
def test_a_record_whose_row_cannot_be_written_stays_with_the_error(lake, monkeypatch, step):
    lake.add(order(1, 0.25), order(2, BAD), order(3, 0.75), order(1, 10, "u"))
    lake.work()
    lake.widen()

    def refuse(rows):
        if BAD in rows.column("n").to_pylist():
            raise ZeroDivisionError("not foreseen")

    def split_rows(rows, table):
        if step == "place" and "n" in rows.schema.names:
            refuse(rows)
        return split(rows, table)

    def write(writer, rows):
        if step == "write" and "n" in rows.schema.names:
            refuse(rows)
        return written(writer, rows)

    split, written = tasks.split_rows, MergeTreeWriter.write
    with monkeypatch.context() as patched:
        patched.setattr(tasks, "split_rows", split_rows)
        patched.setattr(MergeTreeWriter, "write", write)
        result = lake.replay()
        assert (result["chosen"], result["replayed"], result["bad"]) == (3, 2, {"internal": 1})
        assert lake.rows() == {1: 10, 3: 0.75}
        assert lake.states() == {0: "replayed", 1: "new", 2: "replayed"}
        (kept,) = (
            row
            for row in lake.stream.catalog.table(QUARANTINE).to_arrow().to_pylist()
            if row["state"] == "new"
        )
        assert kept["error_class"] == "internal"
        assert "ZeroDivisionError: not foreseen" in kept["error"]
    assert lake.replay()["replayed"] == 1, "when the fault is mended"
    assert lake.rows() == {1: 10, 2: 0.5, 3: 0.75}


def test_rows_from_before_a_truncate_do_not_return(tmp_path, monkeypatch):
    lake = Replays(tmp_path, monkeypatch, ", on.truncate: apply")
    lake.add(order(1, 1), order(2, BAD), truncate("orders"), order(3, BAD), order(4, 4))
    lake.work()
    assert lake.rows() == {4: 4}
    lake.widen()
    result = lake.replay()
    assert (result["replayed"], result["without_rows"]) == (1, 1)
    assert lake.rows() == {3: 0.5, 4: 4}
    assert lake.states() == {1: "replayed", 3: "replayed"}


def test_columns_that_the_settings_ignore_are_ignored_by_a_replay_too(lake):
    stream = lake.stream
    pipeline = dataclasses.replace(stream.settings.pipeline, schema_change_behavior="ignore")
    stream.settings = dataclasses.replace(stream.settings, pipeline=pipeline)
    stream.restart()
    key, value = order(2, BAD)
    value = orjson.loads(value)
    value["after"]["extra"] = 5
    lake.add(order(1, 1), (key, orjson.dumps(value)))
    lake.work()
    lake.widen()
    assert lake.replay()["replayed"] == 1
    assert lake.rows() == {1: 1, 2: 0.5}


def test_keys_are_followed_by_the_row_not_by_the_bytes_of_the_record(lake):
    value = order(1, BAD)[1]
    lake.add((b'{"id": 1 }', value), order(1, 5, "u"), (b'{"id":\t1}', order(1, 6, "u")[1]))
    lake.work()
    lake.widen()
    lake.replay()
    assert lake.rows() == {1: 6}


def moved(old, new, n):
    value = {"before": {"id": old, "n": 1}, "after": {"id": new, "n": n}, "op": "u"}
    value["source"] = {"db": "shop", "table": "orders", "ts_ms": 1}
    return orjson.dumps({"id": new}), orjson.dumps(value)


def test_a_change_of_key_in_one_record_takes_the_old_key_along(lake):
    lake.add(
        order(1, 1),
        moved(1, 2, BAD),
        order(1, 11, "c"),  # the old key lives again
    )
    lake.work()
    lake.widen()
    lake.replay()
    assert lake.rows() == {1: 11, 2: 0.5}


def test_keys_are_followed_through_later_changes_of_key(lake):
    lake.add(order(1, 1), order(2, BAD), moved(2, 3, 5), order(3, 9, "u"), moved(3, 4, 10))
    lake.add(order(3, 33), order(4, 44, "u"))
    lake.work()
    before = {1: 1, 3: 33, 4: 44}
    assert lake.rows() == before
    lake.widen()
    assert lake.replay()["rows_written"] == 8
    assert lake.rows() == before


@pytest.mark.parametrize("mark", [MOVED, 1])
def test_rows_that_take_values_from_an_old_key_are_not_written_again(lake, mark):
    table = lake.stream.catalog.table("shop.orders")
    rows = KeyedRows(table, pa.array([4], pa.int64()), 10, alone=False)

    def batch(offset, key, ids):
        return pa.RecordBatch.from_pydict(
            {"id": [key], "n": [1], "_VALUE_KIND": [0], "_OFFSET": [offset], "_UNAVAILABLE": [ids]},
            schema=pa.schema(
                {
                    "id": pa.int64(),
                    "n": pa.int64(),
                    "_VALUE_KIND": pa.int8(),
                    "_OFFSET": pa.int64(),
                    "_UNAVAILABLE": pa.list_(pa.int32()),
                }
            ),
        )

    rows.take(batch(4, 1, [MOVED]))
    rows.take(batch(5, 2, [MOVED]))
    assert not rows.moves, "the chosen record itself, and another key"
    rows.take(batch(6, 1, [mark]))
    assert rows.moves == (mark == MOVED)


def test_a_later_bad_record_of_the_key_that_is_good_now_counts_too(lake):
    lake.add(order(1, BAD), order(1, 1.5, "u"))
    lake.work()
    lake.widen()
    result = lake.replay(choice={"offset": 0})
    assert result["replayed"] == 1
    assert lake.rows() == {1: 1.5}
    assert lake.states() == {0: "replayed", 1: "new"}
    lake.replay()
    assert lake.rows() == {1: 1.5}


def test_a_later_record_that_does_not_decode_any_more_is_not_overwritten(lake):
    lake.add(order(1, BAD), order(2, BAD), order(1, 7, "u"), order(3, WORSE))
    lake.work()
    lake.widen()
    # as if the column's new type did not take what the old one took
    lake.stream.topics.records["a"][0][2] = (b'{ "id":1}', order(1, WORSE, "u")[1])
    result = lake.replay()
    assert (result["replayed"], result["blocked"], result["bad"]) == (1, 1, {"type": 1})
    assert lake.rows() == {1: 7, 2: 0.5}
    assert lake.states() == {0: "new", 1: "replayed", 3: "new"}


def sums_record(key, n):
    return event("sums", key, n)


@pytest.mark.parametrize("steps", [None, *range(14)])
def test_a_table_that_aggregates_gets_each_record_once_whatever_dies(lake, steps):
    lake.add(sums_record(1, 5), sums_record(1, BAD), sums_record(1, 7), order(1, BAD))
    lake.work()
    assert lake.rows("shop.sums") == {1: 12}
    lake.widen()
    lake.widen("shop.sums")
    lake.stream.fuse.left = steps
    lake.replay()
    lake.stream.fuse.left = None
    assert lake.rows("shop.sums") == {1: 12.5}
    assert lake.rows() == {1: 0.5}
    assert set(lake.states().values()) == {"replayed"}
    assert lake.replay()["chosen"] == 0
    assert lake.rows("shop.sums") == {1: 12.5}


def test_a_failed_replay_is_settled_by_the_next_request(lake):
    lake.add(sums_record(1, 5), sums_record(1, BAD), order(1, BAD))
    lake.work()
    lake.widen()
    lake.widen("shop.sums")
    lake.replay_without_marks()
    assert lake.rows("shop.sums") == {1: 5.5}
    assert set(lake.states().values()) == {"new"}, "committed, but not marked"
    assert lake.replay(choice={"topic": "a"})["chosen"] == 0
    assert lake.rows("shop.sums") == {1: 5.5}
    assert set(lake.states().values()) == {"replayed"}


def test_without_the_later_records_only_alone_goes_on(lake):
    lake.add(order(1, BAD), order(1, 2, "u"), order(3, 3))
    lake.work()
    lake.widen()
    lake.stream.topics.low["a", 0] = 1
    with pytest.raises(DataLossError):
        lake.replay()
    assert lake.rows() == {1: 2, 3: 3}
    lake.replay(alone=True)
    assert lake.rows() == {1: 0.5, 3: 3}


def test_a_topic_made_anew_is_noticed(lake):
    lake.add(order(1, BAD), order(2, 2))
    lake.work()
    lake.widen()
    lake.stream.topics.records["a"][0][0] = order(1, 5)
    with pytest.raises(InvalidRequestError, match="another record"):
        lake.replay()


def test_what_a_table_holds_of_a_batch_that_is_not_recorded_is_not_overwritten(lake):
    lake.add(order(1, BAD))
    lake.work()
    lake.add(order(1, 2, "u"))
    for steps in itertools.count():
        lake.stream.fuse.left = steps
        lake.stream.batch()
        if lake.rows().get(1) == 2:
            break
    lake.stream.fuse.left = None
    lake.widen()
    lake.replay()
    assert lake.rows() == {1: 2}
    lake.work()
    assert lake.rows() == {1: 2}


def test_records_for_parked_tables_wait(lake):
    lake.add(order(1, BAD), event("items", 1, 1))
    lake.work()
    lake.stream.pause("shop.orders")
    with pytest.raises(InvalidRequestError, match="parked"):
        lake.replay()
    lake.stream.resume("shop.orders")
    lake.widen()
    assert lake.replay()["replayed"] == 1


def test_dropped_records_are_gone(lake):
    lake.add(order(1, BAD), (b"k", b"{broken"), order(2, 2))
    lake.work()
    assert drop_bad(lake.pipeline(), {"choice": {"error_class": "json"}}).result == {"dropped": 1}
    assert lake.states() == {0: "new"}
    assert drop_bad(lake.pipeline(), {"choice": {"error_class": "json"}}).result == {"dropped": 0}


def test_random_histories_end_as_the_model_says(tmp_path, monkeypatch):
    """Bad records among changes of the same keys, replays in between, deaths: the model's rows."""
    for seed in range(5):
        rng = random.Random(seed)
        directory = tmp_path / str(seed)
        directory.mkdir()
        lake = Replays(directory, monkeypatch)
        rows = {}
        for step in range(6):
            for _ in range(rng.randrange(1, 20)):
                key = rng.randrange(5)
                if key in rows and rng.random() < 0.3:
                    del rows[key]
                    lake.add(order(key, 0, "d"), partition=key % 2)
                else:
                    n = rng.randrange(99) + (0.5 if rng.random() < 0.3 else 0)
                    rows[key] = n
                    lake.add(order(key, n), partition=key % 2)
            lake.stream.fuse.left = rng.choice([None, rng.randrange(15)])
            if step < 3:
                lake.stream.batch()
            elif step == 3:
                lake.stream.fuse.left = None
                lake.widen()
            else:
                lake.replay()
                lake.stream.batch()
        lake.stream.fuse.left = None
        lake.work()
        lake.replay()
        assert lake.rows() == rows, seed
        assert set(lake.states().values()) <= {"replayed"}


def make(lake, name, key, options):
    schema = new_schema(
        [("id", BIGINT), ("n", BIGINT), ("m", BIGINT)],
        primary_keys=key,
        partition_keys=(),
        options=options,
        now_ms=0,
    )
    lake.stream.catalog.create_table(f"shop.{name}", schema)
    lake.stream.restart()


def wide(name, key, **columns):
    value = {"before": None, "after": {"id": key, **columns}, "op": "c"}
    value["source"] = {"db": "shop", "table": name, "ts_ms": 1}
    return orjson.dumps({"id": key}), orjson.dumps(value)


def all_rows(lake, name):
    rows = lake.stream.catalog.table(f"shop.{name}").to_arrow().to_pylist()
    return sorted((row["id"], row["n"], row["m"]) for row in rows)


def test_partial_updates_keep_what_came_later_column_by_column(lake):
    make(lake, "parts", ("id",), {"bucket": "1", "merge-engine": "partial-update"})
    lake.add(
        wide("parts", 1, n=BAD, m=5), wide("parts", 1, n=None, m=6), wide("parts", 2, n=1, m=1)
    )
    lake.work()
    assert all_rows(lake, "parts") == [(1, None, 6), (2, 1, 1)]
    lake.widen("shop.parts")
    assert lake.replay()["rows_written"] == 2
    assert all_rows(lake, "parts") == [(1, 0.5, 6), (2, 1, 1)]


@pytest.mark.parametrize("steps", [None, *range(12)])
def test_an_append_table_gets_each_record_once(tmp_path, monkeypatch, steps):
    lake = Replays(tmp_path, monkeypatch, ", format: json")
    make(lake, "log", (), {"bucket": "-1"})
    records = [(None, orjson.dumps({"id": 1, "n": n, "m": m})) for m, n in enumerate((1, BAD, 3))]
    lake.add(*records, topic="shop.log")
    lake.work()
    assert all_rows(lake, "log") == [(1, 1, 0), (1, 3, 2)]
    lake.widen("shop.log")
    lake.stream.fuse.left = steps
    lake.replay()
    lake.stream.fuse.left = None
    assert all_rows(lake, "log") == [(1, 0.5, 1), (1, 1, 0), (1, 3, 2)]
    lake.replay()
    assert len(all_rows(lake, "log")) == 3


def test_a_first_row_stays(lake):
    make(lake, "firsts", ("id",), {"bucket": "1", "merge-engine": "first-row"})
    lake.add(
        wide("firsts", 1, n=BAD, m=1), wide("firsts", 1, n=2, m=2), wide("firsts", 2, n=BAD, m=3)
    )
    lake.work()
    lake.widen("shop.firsts")
    lake.replay()
    assert all_rows(lake, "firsts") == [(1, 2, 2), (2, 0.5, 3)]


def test_files_are_read_again_from_the_first_record_on(tmp_path):
    topic = tmp_path / "events" / "t"
    topic.mkdir(parents=True)
    for name in ("a", "b"):
        (topic / f"{name}.jsonl").write_text("".join(f'{{"{name}":{n}}}\n' for n in range(3)))
    settings = FileSourceSettings(path=str(tmp_path / "events"), fail_on_data_loss=False)
    source = open_source(settings)
    end = resume_token(source.latest(source.initial()))["t"]["0"]
    whole = list(source_records(settings, "t", 0, 0, end))
    offsets = [offset for raw in whole for offset in raw.offsets]
    values = [value for raw in whole for value in raw.values]
    assert len(values) == 6
    some = list(source_records(settings, "t", 0, offsets[2], end))
    assert [value for raw in some for value in raw.values] == values[2:]
    assert [offset for raw in some for offset in raw.offsets] == offsets[2:]


def test_keys_are_compared_by_what_they_say():
    assert same_key(b'{"b":1, "a":2}') == same_key(b'{"a":2,"b":1}')
    assert same_key(b"\0\0\0\0\1abc") == same_key(b"\0\0\0\0\2abc")
    assert same_key(b"x") != same_key(b"y")


def positioned(key, n, at, op="c"):
    """An event of MySQL for `shop.marks`."""
    value = {
        "before": {"id": key, "n": None} if op == "d" else None,
        "after": None if op == "d" else {"id": key, "n": n},
        "op": op,
        "source": {
            "connector": "mysql",
            "name": "m",
            "db": "shop",
            "table": "marks",
            "snapshot": "false",
            "file": "binlog.000001",
            "pos": at,
            "row": 0,
            "ts_ms": at * 1000,
        },
        "ts_ms": at * 1000,
    }
    return orjson.dumps({"id": key}), orjson.dumps(value)


def test_in_the_order_of_the_source_its_positions_decide(tmp_path, monkeypatch):
    lake = Replays(tmp_path, monkeypatch, ", ordering: source")
    lake.add(positioned(1, 1, 10))
    lake.work()
    lake.add(
        positioned(1, BAD, 20),
        positioned(2, BAD, 30),
        positioned(2, 22, 40, "u"),
        positioned(3, BAD, 50),
        positioned(3, 33, 45, "u"),  # late: older than the bad one
        positioned(4, BAD, 60),
        positioned(4, 0, 70, "d"),
    )
    lake.work()
    lake.widen("shop.marks")
    assert lake.replay()["replayed"] == 4
    assert lake.rows("shop.marks") == {1: 0.5, 2: 22, 3: 0.5}


def test_a_table_parked_in_the_middle_of_a_replay_is_settled_all_the_same(lake):
    lake.add(sums_record(1, 5), sums_record(1, BAD))
    lake.work()
    lake.widen("shop.sums")
    lake.replay_without_marks()
    lake.stream.pause("shop.sums")
    assert lake.replay()["chosen"] == 0
    lake.stream.resume("shop.sums")
    lake.work()
    assert lake.replay()["chosen"] == 0
    assert lake.rows("shop.sums") == {1: 5.5}
