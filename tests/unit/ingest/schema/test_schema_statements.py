# SPDX-License-Identifier: Apache-2.0
"""Statements of the schema change topic, in whatever order they meet the rows; and the history."""

import dataclasses
import itertools
import json

import pytest

from ingest.daemon.configuration import load_settings
from ingest.decode.columns import ColumnNames
from ingest.decode.events import SourceTable, Target
from ingest.decode.json.envelope_decoder import EnvelopeDecoder
from ingest.decode.json.envelopes import DebeziumJson, DialectOptions
from ingest.decode.schema_change_events import read_schema_change
from ingest.errors import SchemaStopError
from ingest.pipeline.exchange import BatchPlan
from ingest.pipeline.sink import HistoryWriter
from ingest.schema.routing import Answers, change_policy, type_requests_of
from ingest.schema.statements import DdlLog
from ingest.state.table_registry import TableRegistry
from storage.clock import ManualClock
from storage.errors import RetryableError
from storage.format.metadata.schema_changes import AddColumn, RenameColumn
from storage.format.types.types import parse_type
from tests.unit.ingest.debezium_events import batch, dumps, rows

SOURCE = SourceTable("shop", "", "items", "srv")
TABLE = "shop.items"
TYPES = {"id": "int64", "qty": "int32", "amount": "int32", "note": "string", "price": "double"}


def statement(ddl, columns, kind="ALTER"):
    return dumps(
        {
            "source": {"name": "srv", "db": "shop", "table": "items"},
            "databaseName": "shop",
            "ddl": ddl,
            "tableChanges": [
                {
                    "type": kind,
                    "id": '"shop"."items"',
                    "table": {"columns": [{"name": name} for name in columns]},
                }
            ],
        }
    )


def row(number, **values):
    fields = [{"field": n, "type": TYPES[n], "optional": True} for n in ("id", *values)]
    image = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    source = {"name": "srv", "db": "shop", "table": "items", "ts_ms": 1}
    payload = {"before": None, "after": {"id": number, **values}, "source": source, "op": "c"}
    return dumps({"schema": {"type": "struct", "fields": [image]}, "payload": payload})


class World:
    """A book, a decoder, and a schema change topic on disk."""

    def __init__(self, directory, mode="evolve", statements=()):
        self.directory = directory
        self.topic = directory / "events" / "srv"
        self.topic.mkdir(parents=True)
        self.path = directory / "shop.yaml"
        self.path.write_text(
            f"source: {{type: files, path: {directory / 'events'}, "
            "debezium.schema.change.topic: srv}\n"
            f"sink: {{warehouse: {directory / 'lake'}}}\n"
            f"pipeline: {{name: shop, schema.change.behavior: {mode}}}\n"
        )
        self.offset = 0
        for each in statements:
            self.publish(each)
        self.open()
        self.batches = 0
        self.taken = {}

    def open(self):
        """As a new process does."""
        self.settings = load_settings(self.path)
        self.book = TableRegistry(self.settings, ManualClock())
        self.book.load()
        self.history = HistoryWriter(self.book, "shop")
        self.decoder = EnvelopeDecoder(DebeziumJson(DialectOptions()), self.resolve)
        self.answers = {}

    def publish(self, value):
        """Put a statement into the topic; its event."""
        name = f"{self.offset:04}.jsonl"
        line = json.dumps({"key": {"databaseName": "shop"}, "value": json.loads(value)})
        (self.topic / name).write_text(line + "\n")
        self.offset += 1
        events = read_schema_change(value, "srv", 0, self.offset - 1 << 40)
        return [dataclasses.replace(event, target=TABLE) for event in events]

    def resolve(self, source, topic):
        known = self.book.schema_ids()
        table = self.book.table(TABLE).schema if TABLE in known else None
        answers = self.answers.get(TABLE, Answers())
        return Target(
            TABLE,
            table,
            ignored=answers.ignored,
            fixed=tuple(sorted(answers.fixed)),
            type_requests=type_requests_of(change_policy(self.settings, TABLE)),
        )

    def run(self, values=(), events=(), crash=False):
        """One batch: rows and streamed statements."""
        identifier = self.batches
        verdicts = []
        self.answers = self.book.schemas.lasting_answers()
        keys = [dumps({"id": json.loads(v)["payload"]["after"]["id"]}) for v in values]
        for _ in range(6):
            result = self.decoder.decode(batch(*values, keys=keys))
            assert result.bad == []
            if not result.deltas and not events:
                break
            done = self.book.schemas.apply(result.deltas, now_ms=0, batch=identifier, ddl=events)
            verdicts += done.verdicts
            events = ()
            self.answers = self.book.schemas.current_answers()
        else:
            raise AssertionError("does not settle")
        if crash:
            return None
        plan = BatchPlan(batch_id=identifier, identifier=identifier, time_ms=7)
        told = self.history.unrecorded(plan, verdicts)
        if told:
            self.history.write(plan, told, {})
        self.batches += 1
        self.commit(rows(result))
        return told

    def commit(self, found):
        """Keep rows by field id, as files keep them."""
        if not found:
            return
        fields = {f.name: f.id for f in self.book.table(TABLE).schema.fields}
        for one in found:
            self.taken[one["id"]] = {fields[name]: one[name] for name in fields}

    def read(self):
        fields = self.book.table(TABLE).schema.fields
        return {
            number: {f.name: stored.get(f.id) for f in fields if f.name != "id"}
            for number, stored in sorted(self.taken.items())
        }

    def told(self):
        if self.book.history not in self.book.schema_ids():
            return []
        found = self.book.table(self.book.history).latest().to_arrow().to_pylist()
        found.sort(key=lambda each: (each["batch_id"], each["kind"], each["column"] or ""))
        return [
            (each["batch_id"], each["kind"], each["column"], each["decision"]) for each in found
        ]


CREATE = statement("CREATE TABLE items (id BIGINT, qty INT)", ["id", "qty"], "CREATE")
RENAME = statement("ALTER TABLE items RENAME COLUMN QTY TO amount", ["id", "amount"])
OLD, NEW = row(1, qty=1), row(2, amount=2)


def batches_of_any_order(size):
    """Rows and the statement in batches; the place of the statement in its batch means nothing."""
    orders = itertools.permutations(["old", "new", "late", "ddl"])
    batches = (
        tuple(tuple(sorted(order[at : at + size], key="ddl".__eq__)) for at in range(0, 4, size))
        for order in orders
        if order.index("old") < order.index("late")
    )
    return list(dict.fromkeys(batches))


@pytest.mark.parametrize(
    "batches",
    [batches for size in (1, 2, 4) for batches in batches_of_any_order(size)],
    ids=lambda batches: "|".join(map("-".join, batches)),
)
def test_rows_and_the_rename_in_any_order_and_any_batches(tmp_path, batches):
    world = World(tmp_path, statements=[CREATE])
    things = {"old": OLD, "new": NEW, "late": row(3, qty=3)}
    renamed = world.publish(RENAME)  # in the topic before the first row of the new shape is
    for some in batches:
        world.run([things[one] for one in some if one != "ddl"], renamed if "ddl" in some else ())
    assert world.read() == {1: {"amount": 1}, 2: {"amount": 2}, 3: {"amount": 3}}
    assert world.book.table(TABLE).schema.field_names == ("id", "amount")
    before = world.book.table(TABLE).schema.id
    world.open()
    world.run([OLD, NEW], renamed)
    assert world.book.table(TABLE).schema.id == before


def test_a_statement_that_comes_after_its_rows_loses_nothing(tmp_path):
    world = World(tmp_path, statements=[CREATE])
    world.run([OLD])
    world.run([NEW])  # waits in vain
    world.run([], world.publish(RENAME))
    assert world.read() == {1: {"qty": 1, "amount": None}, 2: {"qty": None, "amount": 2}}
    assert world.told()[-1][1:] == ("rename.column", "qty", "refused")


def test_a_chain_of_renames_over_each_others_names(tmp_path):
    world = World(tmp_path, statements=[CREATE])
    world.run([row(1, qty=1, note="a")])
    one = world.publish(
        statement("ALTER TABLE items RENAME COLUMN qty TO amount", ["id", "amount", "note"])
    )
    two = world.publish(
        statement("ALTER TABLE items CHANGE note qty TEXT", ["id", "amount", "qty"])
    )
    world.run([], [*one, *two])
    TYPES["qty"] = "string"
    newest = row(3, amount=3, qty="c")
    TYPES["qty"] = "int32"
    world.run([row(2, qty=2, note="b"), row(4, amount=4, note="d"), newest])
    assert world.read() == {
        1: {"amount": 1, "qty": "a"},
        2: {"amount": 2, "qty": "b"},
        3: {"amount": 3, "qty": "c"},
        4: {"amount": 4, "qty": "d"},
    }


def test_a_drop_and_the_same_name_again(tmp_path):
    world = World(tmp_path, statements=[CREATE])
    world.run([OLD])
    dropped = world.publish(statement("ALTER TABLE items DROP qty", ["id"]))
    world.run([], dropped)
    world.run([row(2, qty=2)])  # written before the drop
    assert world.read() == {1: {}, 2: {}}
    world.publish(statement("ALTER TABLE items ADD qty INT", ["id", "qty"]))
    world.run([row(3, qty=3)])  # comes before the statement is the stream's turn
    world.run([row(4, qty=4)])
    assert world.read() == {1: {"qty": None}, 2: {"qty": None}, 3: {"qty": 3}, 4: {"qty": 4}}


def test_lenient_keeps_both_columns(tmp_path):
    world = World(tmp_path, "lenient", statements=[CREATE])
    world.run([OLD])
    world.run([NEW], world.publish(RENAME))
    world.run([], world.publish(statement("ALTER TABLE items DROP amount", ["id"])))
    world.run([row(3)])
    assert world.read() == {
        1: {"qty": 1, "amount": None},
        2: {"qty": None, "amount": 2},
        3: {"qty": None, "amount": None},
    }
    said = [each[1:] for each in world.told()]
    assert said == [
        ("create.table", None, "applied"),
        ("add.column", "amount", "applied"),
        ("rename.column", "qty", "ignored"),
        ("drop.column", "amount", "ignored"),
    ]


def test_exception_stops_at_a_statement_and_goes_on_after_the_same_by_hand(tmp_path):
    world = World(tmp_path, "exception", statements=[CREATE])
    world.run([OLD])
    renamed = world.publish(RENAME)
    with pytest.raises(SchemaStopError, match="rename column qty"):
        world.run([], renamed)
    world.book.table(TABLE).alter([RenameColumn("qty", "amount")])
    world.open()
    world.run([NEW, row(3, qty=3)], renamed)
    assert world.read() == {1: {"amount": 1}, 2: {"amount": 2}, 3: {"amount": 3}}


def test_columns_that_swap_names_park_the_table(tmp_path):
    world = World(tmp_path, statements=[CREATE])
    world.run([row(1, qty=1, amount=2)])
    swap = statement(
        "ALTER TABLE items CHANGE qty amount INT, CHANGE amount qty INT", ["id", "amount", "qty"]
    )
    world.run([], world.publish(swap))
    assert world.book.to_park() == {TABLE}


def test_statements_from_before_the_topic_was_used_do_not_count(tmp_path):
    world = World(tmp_path)
    world.run([row(1, qty=1, amount=1)])
    world.publish(CREATE)
    world.publish(statement("ALTER TABLE items DROP amount", ["id", "qty"]))
    world.publish(statement("ALTER TABLE items ADD amount INT", ["id", "qty", "amount"]))
    world.open()
    world.run([row(2, qty=2, amount=2, note="new")])
    assert world.read()[1] == {"qty": 1, "amount": 1, "note": None}


# --- crashes and replays


def test_a_crash_after_the_change_and_before_the_commit_is_told_once(tmp_path):
    world = World(tmp_path, statements=[CREATE])
    world.run([OLD])
    more = [row(2, qty=2, note="x", price=1.5)]
    renamed = world.publish(
        statement("ALTER TABLE items RENAME COLUMN qty TO amount", ["id", "amount"])
    )
    world.run(more, renamed, crash=True)
    schema = world.book.table(TABLE).schema
    world.open()
    world.run(more, renamed)
    assert world.book.table(TABLE).schema == schema
    expected = [
        (0, "create.table", None, "applied"),
        (1, "add.column", "note", "applied"),
        (1, "add.column", "price", "applied"),
        (1, "rename.column", "qty", "applied"),
    ]
    assert world.told() == expected
    world.batches = 1  # the tables' commits were lost, the history's was not
    world.open()
    assert world.run(more, renamed) == []
    assert world.told() == expected


def test_changes_of_one_batch_in_several_rounds_and_a_lost_checkpoint(tmp_path):
    world = World(tmp_path)
    world.run([OLD], crash=True)
    world.run([row(1, qty=1, note="a")], crash=True)
    world.batches = 9  # a new checkpoint: other identifiers
    world.open()
    world.run([row(1, qty=1, note="a")])
    assert world.told() == [
        (0, "add.column", "note", "applied"),
        (0, "create.table", None, "applied"),
    ]


def test_what_is_not_done_is_told_once(tmp_path):
    world = World(tmp_path, "ignore")
    world.run([OLD])
    for number in range(3):
        world.run([row(number, qty=1, note="x")])
    assert [each[1:] for each in world.told()] == [
        ("create.table", None, "applied"),
        ("add.column", "note", "ignored"),
    ]


def test_other_settings_are_asked_anew(tmp_path):
    world = World(tmp_path, "ignore")
    world.run([OLD])
    world.run([row(2, qty=1, note="x")])
    assert world.book.schemas.lasting_answers()[TABLE].ignored == {"note"}
    world.path.write_text(world.path.read_text().replace("behavior: ignore", "behavior: lenient"))
    world.settings = load_settings(world.path)
    world.book.use_settings(world.settings)
    world.run([row(3, qty=1, note="y")])
    assert world.read()[3] == {"qty": 1, "note": "y"}


def test_a_topic_that_comes_with_a_reload_is_heard(tmp_path):
    world = World(tmp_path)
    with_topic = world.path.read_text()
    world.path.write_text(with_topic.replace(", debezium.schema.change.topic: srv", ""))
    world.open()
    world.run([OLD])
    world.path.write_text(with_topic)
    world.settings = load_settings(world.path)
    world.book.use_settings(world.settings)
    world.run([NEW], world.publish(RENAME))
    assert world.read() == {1: {"amount": 1}, 2: {"amount": 2}}


def test_a_person_may_add_what_is_ignored(tmp_path):
    world = World(tmp_path, "ignore")
    world.run([OLD])
    world.run([row(2, qty=1, note="x")])
    world.book.table(TABLE).alter([AddColumn("note", parse_type("STRING"))])
    world.open()
    world.run([row(3, qty=1, note="y")])
    assert world.read()[3] == {"qty": 1, "note": "y"}


def test_options_that_lakeward_did_not_write_are_damage(tmp_path):
    with pytest.raises(Exception, match="cannot be read"):
        ColumnNames.of({"lakeward.former-names": "[1]"})


def test_where_the_topic_ended_is_known_after_a_first_read_that_failed(tmp_path, monkeypatch):
    world = World(tmp_path)
    world.publish(statement("ALTER TABLE items RENAME COLUMN a TO b", ["id", "b"]))
    source = load_settings(world.path, environ={}).source
    log = DdlLog(source, "srv", ManualClock())
    read = log._tail.read

    def broken():
        yield from read()
        raise RetryableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(log._tail, "read", broken)
        with pytest.raises(RetryableError):
            log.read()
    log.read()
    assert log.began_at(("srv", 0)) > 0
