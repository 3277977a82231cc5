# SPDX-License-Identifier: Apache-2.0
"""Source tables whose names Lakeward, or the table format, needs: whole batches, without Spark."""

import dataclasses
import json
from pathlib import Path

import pytest

from ingest.config.settings import Route
from ingest.source.records import RawBatch
from ingest.state.table_registry import TableRegistry
from ingest.tools.plan.planner import planned
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import RemoveOption
from storage.format.types.types import parse_type
from tests.unit.ingest.daemon.requests.test_replay import Replays
from tests.unit.ingest.local_stream import LocalStream
from tests.unit.ingest.simulated_stream import event

CONFIG = "source: {type: files, path: /events}\nsink: {warehouse: WAREHOUSE}\n"
NAME = "pipeline: {name: shop}\n"
QUARANTINE, HISTORY = "lakeward._quarantine", "lakeward._schema_history"


def message(database, table, row, op="c", **source):
    block = {"name": "srv", "ts_ms": 1, "db": database, "table": table, **source}
    before, after = (row, None) if op == "d" else (None, row)
    return {"before": before, "after": after, "source": block, "op": op}


class Lake:
    """A stream whose topics are lists of (source database, source table, row)."""

    def __init__(self, path: Path, extra: str = "", sink: str = "{warehouse: WAREHOUSE}") -> None:
        config = CONFIG.replace("{warehouse: WAREHOUSE}", sink)
        self.stream = LocalStream(path, config + NAME + extra)
        self._ends: dict[str, int] = {}
        self._batches = 0

    def take(self, **topics):
        batch = {}
        for topic, events in topics.items():
            first = self._ends.get(topic, 0)
            self._ends[topic] = first + len(events)
            batch[topic, 0] = [
                RawBatch(
                    topic,
                    0,
                    list(range(first, first + len(events))),
                    [json.dumps({"id": event[2]["id"]}).encode() for event in events],
                    [json.dumps(message(*event)).encode() for event in events],
                )
            ]
        report = self.stream.run(self._batches, batch)
        self._batches += 1
        return report

    def rows(self, name):
        return self.stream.rows(name)

    def bad(self):
        return [(row["topic"], row["error_class"], row["target"]) for row in self.rows(QUARANTINE)]


GOOD = ("shop", "good")
OURS = [
    ("lakeward", "_quarantine"),
    ("lakeward", "_schema_history"),
    ("LAKEWARD", "_Schema_History"),
]


@pytest.mark.parametrize("ours", OURS)
def test_our_own_tables_take_nothing_of_a_source_table_of_their_name(tmp_path, ours):
    lake = Lake(tmp_path, "bad.records.max.ratio: 0.5\nsource.on.truncate: apply\n")
    columns = None
    for number in (1, 2):
        rows = [(*ours, {"id": n, "v": "x"}) for n in range(150)]
        lake.take(own=[*rows, (*ours, {"id": 1}, "t")], good=[(*GOOD, {"id": number})])
        names = {name: lake.stream.table(name).schema.field_names for name in (QUARANTINE, HISTORY)}
        assert columns in (None, names), "their columns are ours alone"
        columns = names
        lake.stream.start()
    assert lake.rows("shop.good") == [{"id": 1}, {"id": 2}]
    assert set(lake.bad()) == {("own", "table_name", None)}
    assert len(lake.bad()) == 300
    assert {row["table"] for row in lake.rows(HISTORY)} == {"shop.good"}
    assert not lake.stream.book.parking.parked()
    assert [*lake.stream.book.schema_ids()] == [QUARANTINE, HISTORY, "shop.good"]


def test_own_tables_follow_the_settings_and_so_does_what_is_refused(tmp_path):
    lake = Lake(
        tmp_path,
        "bad.records.table: ops.rubbish\n",
        "{warehouse: WAREHOUSE, default.database: lake}",
    )
    lake.take(
        own=[("ops", "rubbish", {"id": 1}), ("lake", "_schema_history", {"id": 1})],
        free=[("lakeward", "_quarantine", {"id": 1}), ("lakeward", "_schema_history", {"id": 1})],
    )
    assert [row["topic"] for row in lake.rows("ops.rubbish")] == ["own", "own"]
    assert lake.rows("lakeward._quarantine") == lake.rows("lakeward._schema_history") == [{"id": 1}]


def test_the_tables_of_another_pipeline_are_not_written_either(tmp_path):
    book = TableRegistry(Lake(tmp_path).stream.settings, ManualClock())
    book.load()
    other = Lake(
        tmp_path,
        "bad.records.table: ops.rubbish\n",
        "{warehouse: WAREHOUSE, default.database: ops}",
    )
    other.take(t=[("lakeward", "_quarantine", {"id": 1})])
    (bad,) = other.rows("ops.rubbish")
    assert bad["error_class"] == "source_table_conflict"
    assert "Lakeward's own (quarantine)" in bad["error"]
    assert "id" not in other.stream.table(QUARANTINE).schema.field_names


@pytest.mark.parametrize("name", [QUARANTINE, HISTORY])
@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"id": "BIGINT"}, {"lakeward.source-table": "srv.lakeward.x"}, "source table srv.lake"),
        ({"id": "BIGINT"}, {}, "primary key is (id)"),
    ],
)
def test_a_table_of_others_under_our_name_is_named_at_the_start(
    tmp_path, name, columns, options, reason
):
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    catalog.create_database("lakeward")
    fields = [(column, parse_type(text)) for column, text in columns.items()]
    made = {"bucket": "1", **options}
    catalog.create_table(name, new_schema(fields, primary_keys=("id",), options=made, now_ms=1))
    with pytest.raises(InvalidRequestError) as caught:
        Lake(tmp_path)
    assert reason in str(caught.value)
    assert name in str(caught.value)
    assert "sink.default.database" in caught.value.hint


def test_own_tables_of_an_earlier_version_are_marked_as_ours(tmp_path):
    lake = Lake(tmp_path)
    lake.take(good=[(*GOOD, {"id": 1})])
    for name in (QUARANTINE, HISTORY):
        lake.stream.table(name).alter([RemoveOption("lakeward.own-table")])
    lake.stream.start()
    marks = [
        lake.stream.table(name).schema.options["lakeward.own-table"]
        for name in (QUARANTINE, HISTORY)
    ]
    assert marks == ["quarantine", "history of schema changes"]


def test_directories_that_no_table_can_have_do_not_stop_a_stream(tmp_path):
    for name in ("sys.db/t", "a.b.db/t", " x.db/t", "shop.db/a.b", "shop.db/a$b"):
        folder = tmp_path / "lake" / name / "schema"
        folder.mkdir(parents=True)
        (folder / "schema-0").write_text("{}")
    lake = Lake(tmp_path)
    lake.take(good=[(*GOOD, {"id": 1})])
    assert lake.rows("shop.good") == [{"id": 1}]
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    assert catalog.list_databases() == ["lakeward", "shop"]
    assert catalog.list_tables("shop") == ["good"]


def test_records_come_in_by_replay_once_their_names_can_be_used(tmp_path, monkeypatch):
    replays = Replays(tmp_path, monkeypatch)
    stream = replays.stream
    key, value = event("_quarantine", 2, 20)
    replays.add(
        event("SYS$AUDIT", 1, 10),
        (key, value.replace(b'"db":"shop"', b'"db":"lakeward"')),
        event("orders", 3, 30),
    )
    replays.work()
    assert len(stream.quarantined()) == 2
    theirs = Route(source_table="lakeward._quarantine", sink_table="shop.theirs")
    stream.settings = dataclasses.replace(
        stream.settings,
        routes=(theirs, Route(source_table=".*", sink_table="${source.db}.<>")),
        sink=dataclasses.replace(stream.settings.sink, sanitize_names=True),
    )
    stream.open()
    assert replays.replay(**{"class": "table_name"})["replayed"] == 2
    assert stream.rows("shop.SYS_AUDIT") == {1: 10}
    assert stream.rows("shop.theirs") == {2: 20}
    replays.add(event("SYS$AUDIT", 1, 11))
    replays.work()
    assert stream.rows("shop.SYS_AUDIT") == {1: 11}


@pytest.mark.parametrize("rule", ["quarantine", "fail"])
def test_a_name_that_cannot_be_used_parks_nothing(tmp_path, rule):
    rules = f"bad.records.max.ratio: 0.1\ntables: [{{match: 'shop.SYS*', bad.records: {rule}}}]\n"
    lake = Lake(tmp_path, rules)
    lake.take(odd=[("shop", "SYS$AUDIT", {"id": n}) for n in range(200)])
    assert not lake.stream.book.parking.parked()
    assert len(lake.bad()) == 200


def test_bad_records_of_a_forbidden_name_can_be_skipped_by_a_rule(tmp_path):
    lake = Lake(tmp_path, "tables: [{match: 'shop.SYS$AUDIT', bad.records: skip}]\n")
    report = lake.take(odd=[("shop", "SYS$AUDIT", {"id": 1})])
    assert (lake.bad(), report.bad_skipped) == ([], {"shop.SYS$AUDIT": {"table_name": 1}})


def test_forbidden_names_wait_in_quarantine_under_their_name(tmp_path):
    lake = Lake(tmp_path)
    odd = ("SYS$AUDIT", "my.dotted.table", "a/b", " t ")
    lake.take(odd=[("shop", name, {"id": 1}) for name in odd], good=[(*GOOD, {"id": 1})])
    assert lake.bad() == [("odd", "table_name", f"shop.{name}") for name in odd]
    assert all("sink.names.sanitize" in row["error"] for row in lake.rows(QUARANTINE))
    assert lake.rows("shop.good") == [{"id": 1}]


SANITIZE = "{warehouse: WAREHOUSE, names.sanitize: true}"


def test_replaced_names_have_tables_and_two_that_become_one_never_mix(tmp_path):
    lake = Lake(tmp_path, sink=SANITIZE)
    for number in (1, 2):
        lake.take(
            a=[("shop", "SYS$AUDIT", {"id": number, "v": "a"})],
            b=[("shop", "SYS.AUDIT", {"id": number, "v": "b"})],
            c=[("shop", "SYS_AUDIT", {"id": number, "v": "c"})],
            d=[("sys", "t", {"id": number, "v": "d"})],
        )
        lake.stream.start()
    assert lake.rows("shop.SYS_AUDIT") == [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}]
    assert lake.rows("sys_.t") == [{"id": 1, "v": "d"}, {"id": 2, "v": "d"}]
    conflict = "source_table_conflict"
    assert sorted(lake.bad()) == [
        (topic, conflict, "shop.SYS_AUDIT") for topic in ("b", "b", "c", "c")
    ]
    texts = {row["error"] for row in lake.rows(QUARANTINE)}
    assert all("srv.shop.SYS$AUDIT" in text and "`route`" in text for text in texts)


def test_two_names_of_one_directory_never_mix(tmp_path):
    """As a file system does that ignores the case; here a link does it."""
    lake = Lake(tmp_path)
    lake.take(a=[("shop", "Orders", {"id": 1, "v": "a"})])
    (tmp_path / "lake/shop.db/orders").symlink_to("Orders", target_is_directory=True)
    for number in (2, 3):
        lake.stream.start()
        lake.take(
            a=[("shop", "Orders", {"id": number, "v": "a"})],
            b=[("shop", "orders", {"id": number, "v": "b"})],
        )
    assert lake.rows("shop.Orders") == [{"id": n, "v": "a"} for n in (1, 2, 3)]
    assert lake.bad() == [("b", "source_table_conflict", "shop.orders")] * 2


def test_a_replaced_name_takes_no_table_that_was_made_for_nobody(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    fields = [("id", parse_type("BIGINT")), ("v", parse_type("STRING"))]
    made = new_schema(fields, primary_keys=("id",), options={"bucket": "1"}, now_ms=1)
    catalog.create_table("shop.SYS_AUDIT", made)
    lake = Lake(tmp_path, sink=SANITIZE)
    lake.take(
        a=[("shop", "SYS$AUDIT", {"id": 1, "v": "a"})],
        c=[("shop", "SYS_AUDIT", {"id": 1, "v": "c"})],
    )
    assert lake.rows("shop.SYS_AUDIT") == [{"id": 1, "v": "c"}]
    (bad,) = lake.rows(QUARANTINE)
    assert (bad["topic"], bad["error_class"]) == ("a", "table_name")
    assert "lakeward.source-table" in bad["error"]


@pytest.mark.parametrize("name", ["_OFFSET", "_UNAVAILABLE"])
def test_columns_of_names_that_lakeward_needs_cost_their_records_alone(tmp_path, name):
    lake = Lake(tmp_path)
    lake.take(
        new=[("shop", "new", {"id": 1, name: 1})],
        old=[("shop", "old", {"id": 1})],
    )
    lake.take(old=[("shop", "old", {"id": 2, name: 1}), ("shop", "old", {"id": 3})])
    assert lake.rows("shop.old") == [{"id": 1}, {"id": 3}]
    assert lake.bad() == [("new", "schema", "shop.new"), ("old", "schema", "shop.old")]
    assert all("columns.exclude" in row["error"] for row in lake.rows(QUARANTINE))


@pytest.mark.parametrize("name", ["_OFFSET", "_UNAVAILABLE", "_VALUE_KIND", "rowkind"])
def test_columns_that_are_left_out_may_have_any_name(tmp_path, name):
    lake = Lake(tmp_path, f"tables: [{{match: '*', columns.exclude: [{name}]}}]\n")
    lake.take(new=[("shop", "new", {"id": 1, name: 1, "v": 2})])
    assert lake.rows("shop.new") == [{"id": 1, "v": 2}]


@pytest.mark.parametrize("name", ['5" pipe', "a\\b", "a\nb", "a.b", " a ", "a`b", ""])
def test_columns_may_have_any_other_name(tmp_path, name):
    lake = Lake(tmp_path)
    lake.take(t=[("shop", "t", {"id": n, name: n}) for n in range(3)])
    lake.take(t=[("shop", "t", {"id": 0, name: 9}), ("shop", "t", {"id": 1, name: 1}, "d")])
    if not name:
        assert {bad[1] for bad in lake.bad()} == {"schema"}
        return
    assert lake.rows("shop.t") == [{"id": 0, name: 9}, {"id": 2, name: 2}]


def test_a_key_may_have_a_name_that_json_escapes(tmp_path):
    lake, key = Lake(tmp_path, "tables: [{match: '*', primary.key: ['k\"']}]\n"), 'k"'
    row = {"id": 1, key: 1, "v": "a"}
    moved = message("shop", "t", {**row, key: 2}, "u") | {"before": row}
    lake.take(t=[("shop", "t", row)])
    raw = RawBatch("t", 0, [1], [b'{"id": 1}'], [json.dumps(moved).encode()])
    lake.stream.run(1, {("t", 0): [raw]})
    assert lake.rows("shop.t") == [{**row, key: 2}]


def codes(outline):
    return {(each.code, each.about, each.severe) for each in outline.warnings}


def planned_names(tmp_path, extra=""):
    folder = tmp_path / "events"
    folder.mkdir()
    names = [("lakeward", "_quarantine"), ("shop", "SYS$AUDIT"), ("shop", "Orders")]
    names += [("shop", "orders"), ("shop", "twins")]
    for number, (database, table) in enumerate(names):
        rows = [{"id": 1, "NAME": 1, "name": 2}] if table == "twins" else [{"id": 1, "v": 1}]
        rows += [{"id": 2, "V": 1}] if table == "orders" else []
        lines = [
            json.dumps({"key": {"id": row["id"]}, "value": message(database, table, row)})
            for row in rows
        ]
        (folder / f"t{number}.jsonl").write_text("\n".join(lines) + "\n")
    config = CONFIG.replace("/events", str(folder)) + NAME
    settings = LocalStream(tmp_path, config + extra).settings
    return planned(settings, records=100)


def test_plan_says_which_names_would_not_be_written(tmp_path):
    outline = planned_names(tmp_path)
    assert codes(outline) >= {
        ("quarantine", "t0", True),
        ("quarantine", "shop.SYS$AUDIT", True),
        ("tables_alike", "shop.Orders", False),
        ("column_matched", "shop.orders", False),
    }
    states = {table.name: table.state for table in outline.tables}
    assert states == {
        QUARANTINE: "refused",
        "shop.SYS$AUDIT": "refused",
        "shop.Orders": "new",
        "shop.orders": "new",
        "shop.twins": "new",
    }
    bad = {each.about: each for each in outline.warnings if each.code == "quarantine"}
    assert "sink.names.sanitize" in bad["shop.SYS$AUDIT"].text
    assert "source-table: '.*'" in bad["t0"].hint


def test_plan_shows_names_that_are_replaced(tmp_path):
    outline = planned_names(tmp_path, "sink.names.sanitize: true\n")
    assert ("name_replaced", "shop.SYS_AUDIT", False) in codes(outline)
    assert [each.about for each in outline.warnings if each.severe] == ["t0"]


def test_plan_names_tables_of_others_under_our_names(tmp_path):
    events = tmp_path / "events"
    events.mkdir()
    stream = LocalStream(tmp_path, CONFIG.replace("/events", str(events)) + NAME)
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    fields = [("id", parse_type("BIGINT"))]
    made = new_schema(fields, primary_keys=("id",), options={"bucket": "1"}, now_ms=1)
    catalog.create_table(HISTORY, made)
    assert ("own_table", HISTORY, True) in codes(planned(stream.settings, records=10))
