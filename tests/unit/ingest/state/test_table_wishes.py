# SPDX-License-Identifier: Apache-2.0
"""`compaction`, `bucket: auto` and `watermark` of a table's rule, from settings to snapshots."""

import datetime

import pyarrow as pa
import pytest

from ingest.daemon.configuration import load_settings
from ingest.schema import new_tables
from ingest.schema.routing import highest_ms
from ingest.source.records import RawBatch
from ingest.state.table_registry import TableRegistry
from storage.clock import ManualClock
from storage.errors import InvalidOptionError
from tests.unit.ingest.debezium_events import connect_block, connect_field, dumps, event, with_block
from tests.unit.ingest.local_stream import LocalStream
from tests.unit.ingest.table_pipeline import TablePipeline

TOPIC = "shop.public.moves"
NAME = "shop.moves"
UTC = datetime.UTC


BLOCK = connect_block(
    connect_field("id", "int64"),
    connect_field("at", "int64", "io.debezium.time.Timestamp"),
    table="moves",
)


def record(key, at=None, op="c"):
    """A row whose column `at` is `at` seconds after the epoch."""
    before = {"id": key, "at": None} if op == "d" else None
    after = None if op == "d" else {"id": key, "at": None if at is None else at * 1000}
    return dumps({"id": key}), with_block(BLOCK, event(op, before, after, table="moves"))


def pipeline(directory, rule, **kwargs):
    return TablePipeline(directory, f"tables: [{{match: '*.moves', {rule}}}]\n", TOPIC, **kwargs)


def reopened(stream):
    book = TableRegistry(stream.settings, ManualClock())
    book.load()
    return book


# compaction


@pytest.mark.parametrize(
    ("word", "option"), [("dedicated", "true"), ("off", "true"), ("inline", "false")]
)
def test_a_new_table_says_who_compacts_it(tmp_path, word, option):
    stream = pipeline(tmp_path, f"compaction: {word}")
    stream.feed([record(1)])
    table = stream.book.table(NAME)
    assert table.schema.options["write-only"] == option
    assert stream.book.write_only() == {}


def levels(stream):
    splits = stream.book.table(NAME).latest().new_scan().plan().splits
    return [f.level for s in splits for part in s.sections for run in part for f in run.files]


def test_a_table_that_is_there_is_only_written_when_somebody_else_compacts(tmp_path):
    first = pipeline(tmp_path, "toast: keep")
    first.feed([record(1)])
    other = tmp_path / "shop.yaml"
    other.write_text(
        other.read_text().replace("toast: keep", "compaction: dedicated"), encoding="utf-8"
    )
    first.book.use_settings(load_settings(other))
    assert first.book.write_only() == {NAME: True}
    assert first.book.table(NAME).options.write_only
    assert "write-only" not in first.book.table(NAME).alter(()).schemas.latest().options
    first.book.refresh()
    assert first.book.write_only() == {NAME: True}
    assert reopened(first).write_only() == {}  # of the old settings
    for number in range(8):
        first.feed([record(number)])
    assert levels(first) == [0] * 9
    first.book.use_settings(first.settings)
    first.feed([record(9)])
    assert max(levels(first)) > 0


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tables: [{match: '*', compaction: inline, table.properties: {write-only: true}}]", "t"),
        ("tables: [{match: '*', compaction: off, table.properties: {write-only: false}}]", "t"),
        ("tables: [{match: '*', compaction: inline}]", "sink"),
    ],
)
def test_two_words_about_who_compacts_are_refused(tmp_path, text, place):
    sink = ", table.properties: {write-only: true}" if place == "sink" else ""
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"source: {{type: files, path: {tmp_path}}}\nsink: {{warehouse: {tmp_path}/lake{sink}}}\n"
        f"pipeline: {{name: shop}}\n{text}\n"
    )
    with pytest.raises(InvalidOptionError, match="contradicts") as caught:
        load_settings(path)
    assert f"`{'sink' if place == 'sink' else 'tables[0]'}.table.properties`" in caught.value.hint


# bucket: auto


@pytest.mark.parametrize(("size", "buckets"), [(0, "1"), (3 << 30, "1"), (40 << 30, "16")])
def test_the_size_of_the_topics_decides_the_number_of_buckets_once(
    tmp_path, monkeypatch, size, buckets
):
    asked = []

    def told(settings, topics):
        asked.append(topics)
        return size

    monkeypatch.setattr(new_tables, "topic_bytes", told)
    stream = pipeline(tmp_path, "bucket: auto")
    stream.feed([record(1)], commit=False)
    assert stream.book.table(NAME).schema.options["bucket"] == buckets
    assert asked == [{TOPIC}]
    again = pipeline(tmp_path, "bucket: auto")  # the batch is done again by another process
    monkeypatch.setattr(new_tables, "topic_bytes", lambda settings, topics: 1 << 50)
    again.feed([record(1)])
    assert again.book.table(NAME).schema.options["bucket"] == buckets
    assert len(again.rows(NAME)) == 1


def test_a_later_rule_with_a_number_wins_over_auto(tmp_path, monkeypatch):
    monkeypatch.setattr(new_tables, "topic_bytes", lambda settings, topics: 1 << 50)
    rules = "tables: [{match: '*', bucket: auto}, {match: '*.moves', bucket: 3}]\n"
    stream = TablePipeline(tmp_path, rules, TOPIC)
    stream.feed([record(1)])
    assert stream.book.table(NAME).schema.options["bucket"] == "3"


def test_files_of_all_topics_of_a_table_count(tmp_path):
    for topic in ("a.b.c", "a.b.d"):
        (tmp_path / topic).mkdir()
        (tmp_path / topic / "1.jsonl").write_bytes(b"{}\n" * 100)
    settings = pipeline(tmp_path, "bucket: auto").settings
    assert new_tables.topic_bytes(settings.source, {"a.b.c", "a.b.d", "gone"}) == 600


# watermark


def watermarked(directory):
    return pipeline(directory, "watermark: at - 5s")


def watermark(stream):
    return stream.book.table(NAME).latest().snapshots.latest().watermark


def fed(stream, *tasks):
    """A batch with the watermark that the sink would commit."""
    results = stream.feed(*tasks, commit=False)
    messages = [m for r in results if r.table == NAME for m in r.messages]
    identifier = stream.batches + 1
    highest = stream.reached.get(NAME)
    stream.book.commit(NAME, messages, identifier, {}, {}, {}, event_time_ms=highest)
    stream.batches += 1


def test_a_snapshot_says_how_far_event_time_has_come_and_never_goes_back(tmp_path):
    stream = watermarked(tmp_path)
    fed(stream, [record(1, 100), record(2, 90)], [record(3, 120), record(4)])
    assert watermark(stream) == 115_000
    fed(stream, [record(5, 20)])
    assert watermark(stream) == 115_000
    fed(stream, [record(5, op="d")])  # no event time in it
    assert watermark(stream) == 115_000
    fed(stream, [record(6, 130)])
    assert watermark(stream) == 125_000


def test_a_batch_that_is_done_again_changes_no_watermark(tmp_path):
    stream = watermarked(tmp_path)
    fed(stream, [record(1, 100)])
    before = stream.book.table(NAME).snapshots.latest()
    stream.book = reopened(stream)
    stream.batches = 0
    fed(stream, [record(1, 100)])
    assert stream.book.table(NAME).snapshots.latest() == before


def test_the_sink_commits_the_watermark_once_and_a_replay_adds_nothing(tmp_path):
    stream = LocalStream(
        tmp_path,
        f"source: {{type: files, path: {tmp_path}}}\nsink: {{warehouse: WAREHOUSE}}\n"
        "pipeline: {name: shop}\ntables: [{match: '*.moves', watermark: at - 5s}]\n",
    )
    keys, values = zip(record(1, 100), record(2, 130), strict=True)
    batch = {
        (TOPIC, part): [RawBatch(TOPIC, part, [0], [keys[part]], [values[part]])] for part in (0, 1)
    }
    stream.run(0, batch)
    stream.start()  # as after a crash between the commit and Spark's note of it
    assert stream.run(0, batch).outcome == "replayed"
    snapshots = stream.table(NAME).snapshots
    assert [snapshots.read(1).watermark, snapshots.latest_id()] == [125_000, 1]
    late = {(TOPIC, 0): [RawBatch(TOPIC, 0, [1], *map(list, zip(record(3, 50), strict=True)))]}
    stream.run(1, late)
    assert snapshots.latest().watermark == 125_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [("gone - 5s", "no column gone; it has id, at"), ("id - 5s", "column id is no TIMESTAMP")],
)
def test_a_watermark_that_a_new_table_cannot_have_is_refused(tmp_path, text, reason, caplog):
    stream = pipeline(tmp_path, f"watermark: {text}")
    stream.feed([record(1, 100)])
    assert NAME not in stream.book.schema_ids()
    [(_, kept)] = stream.quarantined()
    assert kept.startswith("the table does not exist and could not be created: ")
    assert reason in kept
    assert reason in str([record.__dict__.get("reason") for record in caplog.records])


@pytest.mark.parametrize("text", ["at", "at - soon", "- 5s"])
def test_a_watermark_that_cannot_be_read_is_refused_by_its_key(tmp_path, text):
    with pytest.raises(InvalidOptionError) as caught:
        pipeline(tmp_path, f"watermark: '{text}'")
    assert "tables[0].watermark" in str(caught.value)


def test_event_times_of_every_unit_are_rounded_down():
    rows = pa.record_batch(
        {
            "us": pa.array([1_999, None, -1], pa.timestamp("us")),
            "ns": pa.array([-1, None, None], pa.timestamp("ns", "UTC")),
            "none": pa.array([None, None, None], pa.timestamp("ms")),
            "text": ["a", "b", "c"],
        }
    )
    found = {name: highest_ms(rows, name) for name in ("us", "ns", "none", "text", "gone")}
    assert found == {"us": 1, "ns": -1, "none": None, "text": None, "gone": None}
