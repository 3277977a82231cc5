# SPDX-License-Identifier: Apache-2.0
"""What follows for a table from the marks, doubts and gaps of a batch; and how marks are read."""

import json

import orjson
import pytest

from ingest.daemon.configuration import load_settings
from ingest.decode.events import SourceTable
from ingest.decode.registry.client import RegisteredSchema
from ingest.decode.snapshot_marks import AVRO_WORDS, JSON_WORDS, places_with, snapshot_mark
from ingest.pipeline.deletions.sweep_decisions import Facts, Place, decided
from ingest.state.sweeps import (
    NUMBERS_APART,
    OFF,
    OPEN,
    QUIET,
    Numbers,
    SnapshotMark,
    Sweep,
    Watch,
    parsed_watch,
    sweep_property,
)
from storage.errors import CorruptDataError, InvalidOptionError
from tests.unit.ingest.avro_events import Schemas, Writer, batch, decoder, envelope
from tests.unit.ingest.avro_events import event as avro_event
from tests.unit.ingest.debezium_events import schema

OPENED = Watch(topic="t", partition=0, next=10, state=OPEN, offset=5, floor=99, seen=3)
QUIETED = Watch(topic="t", partition=0, next=10, state=QUIET)
STOPPED = Watch(topic="t", partition=0, next=10, state=OFF, why="somebody wrote")


def first(offset):
    return SnapshotMark("s.t", "t", 0, offset, first=True)


def last(offset, *, behind=True):
    return SnapshotMark("s.t", "t", 0, offset, first=False, behind=behind)


def facts(*marks, **more):
    place = Place("t", 0, more.pop("start", 10), more.pop("end", 20))
    given = {"reads": len(marks), "rows": True, "top": 7, "snapshot_id": 4}
    return Facts(place=place, marks=marks, **(given | more))


def seen(verdict):
    state = None if verdict.watch is None else verdict.watch.state
    return state, verdict.sweep, verdict.numbers, verdict.told


NEW = 7 + NUMBERS_APART


def test_a_snapshot_opens_and_its_rows_are_numbered_above_all_that_is_there():
    verdict = decided(QUIETED, facts(first(12)))
    assert seen(verdict) == (OPEN, None, Numbers(12, NEW), "")
    assert (verdict.watch.floor, verdict.watch.seen, verdict.watch.next) == (NEW, 4, 20)
    assert verdict.due


def test_the_end_sweeps_what_is_below_the_floor():
    verdict = decided(OPENED, facts(last(15)))
    assert seen(verdict) == (QUIET, Sweep("t", 0, 15, 0, 99, 4), None, "")
    assert verdict.swept


def test_an_empty_table_needs_no_numbers_and_no_sweep():
    verdict = decided(None, facts(first(10), top=-1, snapshot_id=0))
    assert seen(verdict) == (OPEN, None, None, "")
    ended = decided(verdict.watch, facts(last(25), start=20, end=30))
    assert seen(ended) == (QUIET, None, None, "")
    assert ended.swept


def test_rows_before_the_mark_in_an_empty_tables_batch_count():
    assert decided(None, facts(first(11), top=-1)).numbers == Numbers(11, NUMBERS_APART - 1)
    both = decided(None, facts(first(11), last(12), top=-1))
    assert both.sweep == Sweep("t", 0, 12, 11, None, 4)


@pytest.mark.parametrize(
    ("marks", "state", "sweep", "numbers"),
    [
        ([first(12), last(14)], QUIET, Sweep("t", 0, 14, 12, None, 4), None),
        ([first(12), first(13), last(14)], QUIET, Sweep("t", 0, 14, 13, None, 4), None),
        ([first(12), last(13), first(14)], OPEN, Sweep("t", 0, 13, 12, None, 4), Numbers(14, NEW)),
        ([last(12), first(14)], OPEN, Sweep("t", 0, 12, 0, 99, 4), Numbers(14, NEW)),
        ([last(12), first(14), last(15)], QUIET, Sweep("t", 0, 15, 14, None, 4), None),
        ([first(14)], OPEN, None, Numbers(14, NEW)),
        ([], OPEN, None, None),
    ],
)
def test_marks_of_one_batch(marks, state, sweep, numbers):
    verdict = decided(OPENED, facts(*marks))
    assert seen(verdict) == (state, sweep, numbers, "")
    assert verdict.due, "while it is open every batch is written down"


@pytest.mark.parametrize(
    ("doubt", "reason"),
    [
        ({"start": 11}, "passed over"),
        ({"start": 0}, "passed over"),
        ({"bad": 19}, "offset 19"),
        ({"skipped": True}, "lost to retention"),
        ({"others": "somebody else"}, "somebody else"),
    ],
)
@pytest.mark.parametrize("ends", [False, True])
def test_doubts_call_an_open_snapshot_off(doubt, reason, ends):
    verdict = decided(OPENED, facts(*([last(15)] if ends else []), **doubt))
    assert verdict.sweep is None
    assert not verdict.swept
    assert reason in verdict.told
    assert verdict.due
    left = verdict.watch
    assert left is None or left.state == (QUIET if ends else OFF)


def test_a_doubt_is_told_when_it_comes_and_at_the_end():
    off = decided(OPENED, facts(bad=12)).watch
    still = decided(off, facts(start=20, end=30))
    assert (still.told, still.watch.state) == ("", QUIET), "rows without reads: nothing passes"
    on = decided(off, facts(start=20, end=30, reads=3))
    assert (on.told, on.watch.state, on.due) == ("", OFF, False)
    end = decided(on.watch, facts(last(35), start=30, end=40))
    assert (end.told, end.watch.state) == ("a record was bad (topic t, offset 12)", QUIET)


@pytest.mark.parametrize("bad", [11, 12, 13, 15])
def test_bad_records_before_the_beginning_do_not_matter(bad):
    verdict = decided(None, facts(first(12), last(14), bad=bad))
    assert (verdict.sweep is not None) == (bad < 12)
    assert verdict.watch is None, "another mark may be among the bad ones"


def test_a_new_beginning_ends_what_was_off():
    assert decided(STOPPED, facts(first(12))).watch.state == OPEN


@pytest.mark.parametrize(
    ("before", "given", "believed"),
    [
        (QUIETED, {}, True),
        (None, {}, False),
        (STOPPED, {}, False),
        (QUIETED, {"start": 11}, False),
        (QUIETED, {"reads": 2}, False),
        (QUIETED, {"bad": 10}, False),
        (QUIETED, {"skipped": True}, False),
    ],
)
def test_an_end_alone_is_a_snapshot_of_one_row_if_nothing_speaks_against_it(
    before, given, believed
):
    verdict = decided(before, facts(last(15), **given))
    assert (verdict.sweep == Sweep("t", 0, 15, 15, None, 4)) == believed
    assert bool(verdict.told) != believed
    assert decided(QUIETED, facts(last(15, behind=False))).sweep is None


def test_rows_of_a_snapshot_whose_beginning_was_not_seen():
    for before in (None, QUIETED):
        verdict = decided(before, facts(reads=4))
        assert seen(verdict) == (OFF, None, None, ""), "incremental ones have no marks"
        assert decided(verdict.watch, facts(last(25), start=20, end=30, reads=1)).sweep is None


def test_what_is_known_without_reads():
    assert decided(None, facts()).watch.state == QUIET
    assert decided(None, facts(rows=False)).watch is None
    assert decided(None, facts(bad=12)).watch is None
    lost = decided(QUIETED, facts(bad=12))
    assert (lost.watch, lost.due) == (None, False)
    assert not decided(QUIETED, facts(rows=False)).due, "a quiet table needs no commit of its own"
    behind = facts(last(25), start=20, end=30)
    assert decided(QUIETED, behind).sweep is None, "so what was not committed leaves a gap"


def test_the_property_says_what_it_is_of():
    (text,) = sweep_property("shop", 8, OPENED).values()
    assert parsed_watch(text, 8, 1) == OPENED
    assert parsed_watch(text, 9, 1) is None, "a later commit that did not look inherited it"
    for empty in (None, "", *sweep_property("shop", 8, None).values()):
        assert parsed_watch(empty, 8, 1) is None
    for damaged in ("{", "[]", '{"commit": 8}', '{"commit": 8, "x": 1}'):
        with pytest.raises(CorruptDataError):
            parsed_watch(damaged, 8, 1)


# --- marks in records

SOURCE = {"db": "shop", "schema": "public", "table": "orders", "name": "pg"}
ORDERS = SourceTable("shop", "public", "orders", "pg")
MARKS = [
    ("first", True),
    ("first_in_data_collection", True),
    ("last", False),
    ("last_in_data_collection", False),
]
NO_MARKS = ["true", "false", "incremental", True, False, None, 7]


def message(snapshot, op="r", row=None):
    source = {**SOURCE, "snapshot": snapshot}
    return orjson.dumps({"before": None, "after": row, "source": source, "op": op})


@pytest.mark.parametrize(("text", "begins"), MARKS)
def test_marks_in_json(text, begins):
    value = message(text)
    assert places_with([None, b"{}", value], JSON_WORDS) == [2]
    assert snapshot_mark(value) == (ORDERS, begins)
    block = {"schema": {"type": "struct", "fields": []}, "payload": orjson.loads(value)}
    assert snapshot_mark(orjson.dumps(block)) == (ORDERS, begins)
    assert snapshot_mark(message(text, op="c")) is None


@pytest.mark.parametrize("text", NO_MARKS)
def test_records_without_marks(text):
    assert places_with([message(text, row={"first_name": "last", "at": "first"})], JSON_WORDS)
    assert snapshot_mark(message(text, row={"at": "first"})) is None
    assert not places_with([message(text, row={"first_name": "x", "last_name": "y"})], JSON_WORDS)


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b'{"op": "r"}', b"\xff"])
def test_what_is_no_event_has_no_mark(value):
    assert snapshot_mark(value) is None


@pytest.mark.parametrize(("text", "begins"), MARKS)
def test_marks_in_avro(text, begins):
    schemas = Schemas()
    written = envelope({"id": "long"})
    schemas.known[1] = RegisteredSchema("AVRO", json.dumps(written))
    value = Writer(written, 1)
    values = [
        value(avro_event("r", None, {"id": 1}, snapshot=each)) for each in ("true", text, "false")
    ]
    assert places_with(values, AVRO_WORDS) == [1]
    records = decoder(schemas, schema(("id", "BIGINT"))).records
    raw = batch(values, None)
    assert snapshot_mark(records.json_value(raw, 1))[1] == begins
    assert snapshot_mark(records.json_value(raw, 0)) is None


# --- settings


@pytest.mark.parametrize("rule", [False, True])
def test_only_formats_that_tell_of_snapshots_can_be_swept(tmp_path, rule):
    path = tmp_path / "shop.yaml"

    def load(format_):
        more = "" if rule else ", on.resnapshot: sweep"
        text = (
            f"source: {{type: files, path: in, format: {format_}{more}}}\n"
            "sink: {warehouse: lake}\npipeline: {name: shop}\n"
        )
        rules = "tables:\n- {match: a.b, on.resnapshot: sweep}\n" if rule else ""
        path.write_text(text + rules)
        return load_settings(path)

    assert load("debezium-json").sweeps_table("a.b")
    assert load("debezium-json").sweeps_table("c.d") != rule
    with pytest.raises(InvalidOptionError, match="do not mark the begin") as caught:
        load("canal-json")
    key = "tables[0].on.resnapshot" if rule else "source.on.resnapshot"
    assert caught.value.context["key"] == key
