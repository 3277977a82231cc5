# SPDX-License-Identifier: Apache-2.0
"""Columns whose names come in another letter case or normal form: `source.names.case`."""

import json

import pytest

from ingest.decode.columns import alike, folded, spelt
from ingest.observe.metrics.instruments import Instruments
from ingest.observe.metrics.metric_table import METRICS
from ingest.observe.metrics.telemetry import count_work
from ingest.observe.observe import Observer
from ingest.source.records import RawBatch
from ingest.tools.plan.planner import planned
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.unit.ingest.debezium_events import (
    batch,
    connect_block,
    connect_field,
    decoder,
    dumps,
    message,
    schema,
)
from tests.unit.ingest.dialect_decoders import changes, dialect_decoder
from tests.unit.ingest.every_way import EveryWay, stored
from tests.unit.ingest.local_stream import LocalStream
from tests.unit.ingest.schema.test_schema_decode import Lake as DecodedLake
from tests.unit.ingest.schema.test_schema_decode import plain

TABLE = "shop.items"
NFC, NFD = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
KINDS = {int: ("int64", "bigint"), str: ("string", "varchar(20)"), type(None): ("string", "text")}


def key_of(row):
    return {name: row[name] for name in row if name.lower() == "id"}


def envelope(row, op="c", before=None):
    source = {"name": "srv", "ts_ms": 1, "db": "shop", "table": "items"}
    after = None if op == "d" else row
    return {"before": row if op == "d" else before, "after": after, "source": source, "op": op}


def bare(row, **more):
    return envelope(row, **more)


def block(row, **more):
    fields = [connect_field(name, KINDS[type(value)][0]) for name, value in row.items()]
    return {"schema": connect_block(*fields, table="items"), "payload": envelope(row, **more)}


def canal(row, op="c", before=None):
    texts = {name: None if value is None else str(value) for name, value in row.items()}
    return {
        "data": [texts],
        "old": None if before is None else [before],
        "database": "shop",
        "table": "items",
        "es": 1,
        "isDdl": False,
        "mysqlType": {name: KINDS[type(value)][1] for name, value in row.items()},
        "pkNames": [*key_of(row)],
        "type": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op],
    }


def maxwell(row, op="c", before=None):
    kind = {"c": "insert", "u": "update", "d": "delete"}[op]
    return {"database": "shop", "table": "items", "type": kind, "ts": 1, "data": row}


def ogg(row, op="c", before=None):
    images = {"before": row} if op == "d" else {"before": before or row, "after": row}
    return {
        "table": "shop.items",
        "op_type": {"c": "I", "u": "U", "d": "D"}[op],
        "op_ts": "2020-01-01 00:00:00.000000",
        "pos": "1",
        "primary_keys": [*key_of(row)],
        **images,
    }


def upsert(row, op="c", before=None):
    return None if op == "d" else row


FORMATS = {
    "bare": ("debezium-json", bare),
    "block": ("debezium-json", block),
    "canal": ("canal-json", canal),
    "maxwell": ("maxwell-json", maxwell),
    "ogg": ("ogg-json", ogg),
    "flat": ("debezium-flat", upsert),
    "upsert": ("upsert-json", upsert),
}


class Lake:
    """A stream of one source table in one of the formats."""

    def __init__(self, path, kind="bare", extra=""):
        format_, self.message = FORMATS[kind]
        self.topic = "srv.shop.items"
        self.stream = LocalStream(
            path,
            f"source: {{type: files, path: /events, format: {format_}}}\n"
            "sink: {warehouse: WAREHOUSE}\npipeline: {name: shop}\n"
            "route: [{source-table: '(?i).*items', sink-table: shop.items, "
            "shard: {keys.are.unique: true}}]\n"
            f"tables: [{{match: '*', primary.key: [id]}}]\n{extra}",
        )
        self.at = 0
        self.batches = 0

    def take(self, *rows):
        """One batch of rows, or of (row, op, row before)."""
        events = [row if isinstance(row, tuple) else (row,) for row in rows]
        keys = [json.dumps(key_of(event[0])).encode() for event in events]
        values = []
        for row, op, before in (
            (*event, "c", None)[:3] if len(event) == 1 else event for event in events
        ):
            value = self.message(row, op=op, before=before)
            values.append(None if value is None else json.dumps(value).encode())
        raw = RawBatch(self.topic, 0, list(range(self.at, self.at + len(values))), keys, values)
        self.at += len(values)
        self.batches += 1
        return self.stream.run(self.batches - 1, {(self.topic, 0): [raw]})

    def rows(self):
        assert self.bad() == []
        return self.stream.rows(TABLE)

    def bad(self):
        found = self.stream.rows("lakeward._quarantine")
        return [(row["error_class"], row["error"]) for row in found]

    def columns(self):
        return self.stream.table(TABLE).schema.field_names


@pytest.mark.parametrize("kind", FORMATS)
def test_one_batch_that_changes_the_case_makes_one_column_with_all_values(tmp_path, kind):
    lake = Lake(tmp_path, kind)
    report = lake.take(
        {"id": 1, "NAME": "a"},
        {"id": 2, "name": "b"},
        {"id": 3, "NAME": "c"},
        {"id": 4, "Name": "d"},
    )
    assert [(*row.values(),) for row in lake.rows()] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert lake.columns() == ("id", "NAME")
    assert report.case_matches == ((TABLE, "Name", "NAME"), (TABLE, "name", "NAME"))


@pytest.mark.parametrize("kind", FORMATS)
def test_the_key_too_and_deletes_and_later_batches_and_processes(tmp_path, kind):
    lake = Lake(tmp_path, kind)
    lake.take({"ID": 1, "NAME": "a"}, {"ID": 2, "NAME": "b"}, {"ID": 3, "NAME": "c"})
    lake.stream.start()
    report = lake.take(
        {"id": 4, "name": "d"},
        ({"id": 1, "name": "A"}, "u", {"id": 1, "name": "a"}),
        ({"id": 2, "name": "b"}, "d", None),
    )
    assert lake.rows() == [
        {"ID": 1, "NAME": "A"},
        {"ID": 3, "NAME": "c"},
        {"ID": 4, "NAME": "d"},
    ]
    assert report.case_matches == ((TABLE, "id", "ID"), (TABLE, "name", "NAME"))
    assert lake.take({"ID": 5, "NAME": "e"}).case_matches == ()


@pytest.mark.parametrize("kind", ["bare", "block", "ogg"])
def test_a_column_that_later_events_bring_in_two_cases_is_one(tmp_path, kind):
    lake = Lake(tmp_path, kind)
    lake.take({"id": 1})
    lake.take({"id": 2, "NEW": 7}, {"id": 3, "new": 8}, {"id": 4, "New": 9})
    assert [(*row.values(),) for row in lake.rows()] == [(1, None), (2, 7), (3, 8), (4, 9)]
    assert lake.columns() == ("id", "NEW")


def test_types_are_widened_through_another_spelling(tmp_path):
    lake = Lake(tmp_path, "block")

    def typed(name, type_):
        fields = [connect_field("id", "int64"), connect_field(name, type_)]
        blocks = connect_block(*fields, table="items")
        return lambda row, **more: {"schema": blocks, "payload": envelope(row, **more)}

    lake.message = typed("N", "int32")
    lake.take({"id": 1, "N": 7})
    lake.message = typed("n", "int64")
    lake.take({"id": 2, "n": 2**40})
    assert lake.rows() == [{"id": 1, "N": 7}, {"id": 2, "N": 2**40}]
    assert lake.columns() == ("id", "N")


@pytest.mark.parametrize("kind", ["bare", "block", "upsert"])
def test_an_event_with_both_spellings_has_two_columns(tmp_path, kind):
    lake = Lake(tmp_path, kind)
    lake.take({"id": 1, "NAME": "a", "name": "b"}, {"id": 2, "name": "c"}, {"id": 3, "NAME": "d"})
    assert lake.columns() == ("id", "NAME", "name_1"), "no engine takes them for one"
    lake.stream.start()
    lake.take({"id": 4, "NAME": "e", "name": "f"})
    assert [(*row.values(),) for row in lake.rows()] == [
        (1, "a", "b"),
        (2, None, "c"),
        (3, "d", None),
        (4, "e", "f"),
    ]


def test_a_key_column_keeps_its_name_beside_another_spelling(tmp_path):
    lake = Lake(tmp_path, "bare")
    row = {"Id": "x", "id": 1}
    raw = RawBatch(lake.topic, 0, [0], [b'{"id": 1}'], [json.dumps(envelope(row)).encode()])
    lake.stream.run(0, {(lake.topic, 0): [raw]})
    assert lake.rows() == [{"Id_1": "x", "id": 1}]


@pytest.mark.parametrize("kind", ["bare", "block"])
def test_two_further_spellings_in_one_event_lose_nothing(tmp_path, kind):
    lake = Lake(tmp_path, kind)
    lake.take({"id": 1, "NAME": "a"})
    lake.take({"id": 2, "Name": "b", "name": "c"})
    assert [(*row.values(),) for row in lake.rows()] == [(1, "a", None, None), (2, None, "b", "c")]


def test_nulls_under_another_spelling_are_no_column_of_their_own(tmp_path):
    lake = Lake(tmp_path)
    lake.take({"id": 1, "NAME": "a"})
    lake.take(
        {"id": 2, "name": None},
        {"id": 3, "name": "b"},
        {"id": 4, "NAME": "c"},
        {"id": 5, "NAME": None},
        {"id": 6, "name": "d"},
    )
    assert [(*row.values(),) for row in lake.rows()] == [
        (1, "a"),
        (2, None),
        (3, "b"),
        (4, "c"),
        (5, None),
        (6, "d"),
    ]


@pytest.mark.parametrize("first", [None, "x"])
def test_a_null_under_another_spelling_is_no_column_that_did_not_change(tmp_path, first):
    """Golden Gate's updates leave out what did not change."""
    lake = Lake(tmp_path, "ogg")
    lake.take({"id": 1, "NAME": "a", "v": 1}, {"id": 2, "NAME": "b", "v": 1})
    lake.take({"id": 9, "name": first, "v": 1})
    lake.take(
        ({"id": 1, "name": None}, "u", {"id": 1}),
        ({"id": 2, "v": 5}, "u", {"id": 2}),
    )
    assert lake.rows()[:2] == [{"id": 1, "NAME": None, "v": 1}, {"id": 2, "NAME": "b", "v": 5}]


@pytest.mark.parametrize("kind", FORMATS)
def test_normal_forms_of_one_name_are_one_column(tmp_path, kind):
    lake = Lake(tmp_path, kind)
    lake.take({"id": 1, NFC: "a"}, {"id": 2, NFD: "b"})
    report = lake.take({"id": 3, NFD.upper(): "c"})
    assert lake.rows() == [{"id": 1, NFC: "a"}, {"id": 2, NFC: "b"}, {"id": 3, NFC: "c"}]
    assert report.case_matches == ((TABLE, NFD.upper(), NFC),)


@pytest.mark.parametrize("kind", ["bare", "block", "canal", "upsert"])
def test_exact_names_are_columns_of_their_own(tmp_path, kind):
    lake = Lake(tmp_path, kind, "source.names.case: exact\n")
    lake.take({"id": 1, "NAME": "a"}, {"id": 2, "name": "b"})
    report = lake.take({"id": 3, "Name": "c"}, {"id": 4, NFC: "d"}, {"id": 5, NFD: "e"})
    assert lake.columns() == ("id", "NAME", "name", "Name", NFC, NFD)
    assert [[value for value in row.values() if value is not None] for row in lake.rows()] == [
        [1, "a"],
        [2, "b"],
        [3, "c"],
        [4, "d"],
        [5, "e"],
    ]
    assert report.case_matches == ()


def test_a_table_of_others_takes_the_columns_as_it_spells_them(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    fields = [("Id", parse_type("BIGINT")), ("Name", parse_type("STRING"))]
    made = new_schema(fields, primary_keys=("Id",), options={"bucket": "1"}, now_ms=1)
    catalog.create_table(TABLE, made)
    lake = Lake(tmp_path)
    lake.take({"ID": 1, "NAME": "a"})
    assert lake.rows() == [{"Id": 1, "Name": "a"}]


@pytest.mark.parametrize("declared", [False, True])
def test_shapes_of_a_new_table_give_the_same_whatever_task_comes_first(tmp_path, declared):
    """Records of two partitions: two tasks, each with its own decoder."""
    lake = Lake(tmp_path, "block" if declared else "bare")

    def raw(partition, row):
        value = json.dumps(lake.message(row)).encode()
        return RawBatch(lake.topic, partition, [0], [json.dumps(key_of(row)).encode()], [value])

    lake.stream.run(
        0,
        {
            (lake.topic, 1): [raw(1, {"id": 2, "name": "b"})],
            (lake.topic, 0): [raw(0, {"ID": 1, "NAME": "a"})],
        },
    )
    assert lake.rows() == [{"ID": 1, "NAME": "a"}, {"ID": 2, "NAME": "b"}]


def test_what_was_matched_is_counted_once_for_each_batch(tmp_path):
    lake = Lake(tmp_path)
    lake.take({"id": 1, "NAME": "a", "V": 1})
    into = Instruments(METRICS)
    for number in (2, 3):
        count_work(into, lake.take({"id": number, "name": "b", "v": 1}, {"id": 9, "name": "c"}))
    assert (
        f'lakeward_table_columns_matched_total{{table="{TABLE}"}} 4'
        in into.exposition("")[0].decode()
    )


def test_what_was_matched_is_logged_once(tmp_path, caplog):
    lake = Lake(tmp_path)
    observer = Observer(lake.stream.settings, ManualClock())
    lake.take({"id": 1, "NAME": "a", "V": 1})
    for rows in ({"id": 2, "name": "b"}, {"id": 3, "name": "c"}, {"id": 4, "name": "d", "v": 2}):
        observer.batch(lake.take(rows))
    told = [each for each in caplog.records if getattr(each, "event", "") == "column_matched"]
    assert [(each.table, each.member, each.column) for each in told] == [
        (TABLE, "name", "NAME"),
        (TABLE, "v", "V"),
    ]
    assert {each.levelname for each in told} == {"WARNING"}


def test_plan_names_columns_that_are_matched(tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    rows = [{"id": 1, "NAME": "a"}, {"id": 2, "name": "b"}]
    lines = [json.dumps({"key": key_of(row), "value": envelope(row)}) for row in rows]
    (events / "srv.shop.items.jsonl").write_text("\n".join(lines) + "\n")
    for case, found in (("insensitive", ["column_matched"]), ("exact", ["columns_alike"])):
        settings = LocalStream(
            tmp_path,
            f"source: {{type: files, path: {events}, names.case: {case}}}\n"
            "sink: {warehouse: WAREHOUSE}\npipeline: {name: shop}\n",
        ).settings
        notes = [each for each in planned(settings, records=9).warnings if each.code != "untyped"]
        assert [(each.code, each.about) for each in notes] == [(found[0], TABLE)]


@pytest.mark.parametrize("mode", ["evolve", "try_evolve"])
@pytest.mark.parametrize("declared", [False, True])
def test_a_rename_in_case_alone_renames_the_column_and_finds_old_events(mode, declared):
    lake = DecodedLake(mode, declared=declared, NAME="STRING")
    lake.ddl(NAME="name")
    assert lake.schema.field_names == ("id", "name")
    result = lake.take(
        lake.value({"NAME": "STRING"}, {"id": 1, "NAME": "a"}),
        lake.value({"name": "STRING"}, {"id": 2, "name": "b"}),
    )
    assert plain(result) == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.parametrize("declared", [False, True])
def test_a_dropped_column_does_not_come_back_in_another_case(declared):
    lake = DecodedLake("evolve", declared=declared, NAME="STRING")
    lake.ddl(NAME=None)
    result = lake.take(lake.value({"name": "STRING"}, {"id": 1, "name": "a"}))
    assert plain(result) == [{"id": 1}]
    assert lake.schema.field_names == ("id",)


def test_every_way_of_decoding_finds_the_column():
    fields = [connect_field("id", "int64"), connect_field("name", "string")]
    rows = [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]
    ways = EveryWay(fields, rows, schema(("id", "BIGINT"), ("NAME", "STRING"), key=("id",)))
    for way, result in ways.all().items():
        assert stored(result, "NAME") == ["a", None, "c"], way
        assert result.case_matches == {("shop.orders", "name", "NAME")}, way


def test_names_are_alike_by_case_and_normal_form_alone():
    assert folded("Stra\N{LATIN SMALL LETTER SHARP S}e") == folded("STRASSE")
    assert folded(NFC) == folded(NFD.upper())
    assert folded("a") != folded("b")
    assert alike(["a", "B", "A", "b", "c", "a"]) == [("a", "A"), ("B", "b")]
    assert [
        spelt("x", names)
        for names in (["X"], ["X", "x"], ["X", "\N{CYRILLIC SMALL LETTER HA}"], [])
    ] == [
        "X",
        "x",
        "X",
        "x",
    ]
    assert spelt("Xy", ["XY", "xy"]) == "Xy"


def test_a_key_alone_deletes_the_row_whatever_spelling_other_rows_have():
    one = dialect_decoder("upsert-json", schema(("id", "BIGINT"), ("v", "BIGINT")))
    row = one.decode(batch(dumps({"ID": 1, "V": 2}), keys=[b'{"id":1}'], topic="s.t"))
    assert changes(row, "id", "v") == [("+U", 1, 2)]
    gone = one.decode(batch(None, keys=[b'{"id":1}'], topic="s.t"))
    assert (changes(gone, "id"), gone.bad) == ([("-D", 1)], [])


@pytest.mark.parametrize("evolvable", [True, False])
def test_a_delete_is_read_in_its_own_spelling(evolvable):
    one = decoder(schema(("id", "BIGINT"), ("v", "BIGINT")), evolvable=evolvable)
    one.decode(batch(message("c", None, {"ID": 1, "V": 2})))
    gone = one.decode(batch(message("d", {"id": 1, "v": 2})))
    assert (changes(gone, "id", "v"), gone.bad) == ([("-D", 1, 2)], [])


def test_a_key_column_is_taken_from_a_key_whose_other_members_are_no_text():
    one = dialect_decoder("upsert-json", schema(("id", "BIGINT"), ("v", "BIGINT")))
    key = b'{"id":5,"\xc3":{"m":null}}'
    rows = [b"{}", b'{"x":null}', None]  # the second takes the reference path
    found = one.decode(batch(*rows, keys=[key] * 3, topic="s.t"))
    assert (changes(found, "id"), found.bad) == ([("+U", 5), ("+U", 5), ("-D", 5)], [])
