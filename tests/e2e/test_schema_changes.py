# SPDX-License-Identifier: Apache-2.0
"""Schema changes of the source in every mode, on Spark with files."""

import json
import random

import pytest

from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from ingest.errors import ExitCode
from storage.catalog.catalog import FileSystemCatalog
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type, type_name
from tests.e2e.daemon_process import drain, files_config

pytestmark = [pytest.mark.spark]

CONNECT = {
    "INT": ("int32", None),
    "BIGINT": ("int64", None),
    "DOUBLE": ("double", None),
    "STRING": ("string", None),
    "DATE": ("int32", "io.debezium.time.Date"),
}


class Source:
    """Writes a table's events, with their schema, as Debezium does."""

    def __init__(self, directory, table="items", **columns):
        self.directory = directory
        self.table = table
        self.columns = {"id": "BIGINT", **columns}
        self.written = 0

    def write(self, *rows, op="c"):
        topic = self.directory / "events" / f"shop.shop.{self.table}"
        topic.mkdir(parents=True, exist_ok=True)
        self.written += 1
        lines = [self.line(row, op) for row in rows]
        (topic / f"{self.written:04}.jsonl").write_text("\n".join(lines) + "\n")

    def line(self, row, op):
        source = {"name": "shop", "db": "shop", "table": self.table, "ts_ms": 1}
        payload = {"before": None, "after": row, "source": source, "op": op}
        value = {"schema": self.block(), "payload": payload}
        return json.dumps({"key": {"id": row["id"]}, "value": value})

    def block(self):
        fields = []
        for name, text in self.columns.items():
            type_, semantic = CONNECT[text]
            named = {"name": semantic} if semantic else {}
            fields.append({"field": name, "type": type_, "optional": True, **named})
        image = {"type": "struct", "fields": fields, "optional": True}
        return {
            "type": "struct",
            "fields": [{**image, "field": "before"}, {**image, "field": "after"}],
            "name": "shop.Envelope",
        }


def lake(directory):
    return FileSystemCatalog(str(directory / "warehouse"))


def rows(directory, name="shop.items"):
    found = lake(directory).table(name).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def configured(directory, mode="lenient", rule=None, **sink):
    sections = {"tables": [{"match": "*", **rule}]} if rule else {}
    path = files_config(directory, **sections)
    text = path.read_text().replace("pipeline:\n", f"pipeline:\n  schema.change.behavior: {mode}\n")
    for key, value in sink.items():
        text = text.replace("sink:\n", f"sink:\n  {key.replace('_', '.')}: {value}\n")
    path.write_text(text)
    return path


def bad(directory):
    return lake(directory).table("lakeward._quarantine").to_arrow().num_rows


@pytest.mark.full
def test_ignore_keeps_the_known_columns_flowing(spark, tmp_path):
    source = Source(tmp_path, name="STRING", qty="INT")
    source.write({"id": 1, "name": "a", "qty": 1})
    path = configured(tmp_path, "ignore")
    drain(path, spark)
    source.columns = {"id": "BIGINT", "name": "STRING", "qty": "BIGINT", "more": "STRING"}
    source.write({"id": 2, "name": "b", "qty": 2, "more": "x"})
    drain(path, spark)
    source.write({"id": 3, "name": "c", "qty": 2**40, "more": "x"})
    drain(path, spark)
    assert rows(tmp_path) == [{"id": 1, "name": "a", "qty": 1}, {"id": 2, "name": "b", "qty": 2}]
    assert bad(tmp_path) == 1


def test_exception_stops_before_the_commit_and_goes_on_after_a_person_altered(
    spark, tmp_path, caplog
):
    source = Source(tmp_path, name="STRING")
    other = Source(tmp_path, "people", name="STRING")
    source.write({"id": 1, "name": "a"})
    path = configured(tmp_path, "exception")
    drain(path, spark)
    before = lake(tmp_path).table("shop.items").snapshots.latest_id()
    source.write({"id": 2, "name": "before the change"})
    source.columns["more"] = "INT"
    source.write({"id": 3, "name": "after", "more": 3})
    other.write({"id": 1, "name": "also waits"})
    for _ in range(2):
        caplog.clear()
        daemon = Daemon(load_settings(path), once=True, session=spark)
        assert daemon.run() == ExitCode.DATA
        said = str(caplog.records[-1].exc_info[1])
        for part in ("table=`shop.items`", "add column more: INT", "topic=`shop.shop.items`"):
            assert part in said
        assert "partition=`0` offset=`" in said
        assert lake(tmp_path).table("shop.items").snapshots.latest_id() == before
    lake(tmp_path).table("shop.items").alter([AddColumn("more", parse_type("INT"))])
    drain(path, spark)
    assert rows(tmp_path) == [
        {"id": 1, "name": "a", "more": None},
        {"id": 2, "name": "before the change", "more": None},
        {"id": 3, "name": "after", "more": 3},
    ]
    assert rows(tmp_path, "shop.people") == [{"id": 1, "name": "also waits"}]


def test_a_table_of_a_new_type_is_parked_and_the_others_flow(spark, tmp_path):
    source, other = Source(tmp_path, qty="INT"), Source(tmp_path, "people", name="STRING")
    source.write({"id": 1, "qty": 1})
    path = configured(tmp_path, rule={"on.incompatible": "quarantine_table"})
    drain(path, spark)
    source.write({"id": 2, "qty": 2})
    source.columns["qty"] = "DATE"
    source.write({"id": 3, "qty": 3})
    other.write({"id": 1, "name": "flows"})
    drain(path, spark)
    assert rows(tmp_path) == [{"id": 1, "qty": 1}]
    assert rows(tmp_path, "shop.people") == [{"id": 1, "name": "flows"}]
    assert bad(tmp_path) == 0
    parked = json.loads((tmp_path / "warehouse/.lakeward/shop/parked.json").read_text())
    assert "INT cannot become DATE" in json.dumps(parked)


@pytest.mark.full
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("new_column", [(1, 1, None), (2, None, "two"), (3, 3, None)]),
        ("string", [(1, "1"), (2, "two"), (3, "3")]),
    ],
)
def test_both_types_are_kept(spark, tmp_path, wanted, expected):
    source = Source(tmp_path, qty="INT")
    source.write({"id": 1, "qty": 1})
    path = configured(tmp_path, rule={"on.incompatible": wanted})
    drain(path, spark)
    source.columns["qty"] = "STRING"
    source.write({"id": 2, "qty": "two"})
    source.columns["qty"] = "INT"
    source.write({"id": 3, "qty": 3})
    drain(path, spark)
    assert [tuple(row.values()) for row in rows(tmp_path)] == expected
    assert bad(tmp_path) == 0


@pytest.mark.full
def test_excluded_kinds(spark, tmp_path):
    source = Source(tmp_path, qty="INT")
    source.write({"id": 1, "qty": 1})
    path = configured(tmp_path, exclude_schema_changes="[add]")
    drain(path, spark)
    source.columns |= {"qty": "BIGINT", "more": "STRING"}
    source.write({"id": 2, "qty": 2**40, "more": "x"})
    drain(path, spark)
    assert rows(tmp_path) == [{"id": 1, "qty": 1}, {"id": 2, "qty": 2**40}]
    table = lake(tmp_path).table("shop.items")
    assert type_name(table.schema.field("qty").type) == "BIGINT"


class Database(Source):
    """A table that takes statements, keeps its rows, and has a schema change topic."""

    def __init__(self, directory, seed, widest):
        super().__init__(directory, a="INT", b="STRING", c="INT")
        self.widest = widest
        self.draw = random.Random(seed)
        self.rows = {}  # as the database has them
        self.last = {}  # as they were written last, by the names of then
        self.statements = 0
        self.names = iter("defghijklmnopqrstuvwxyz")
        self.statement("CREATE TABLE items (...)", "CREATE")

    def statement(self, ddl, kind="ALTER"):
        columns = [{"name": name} for name in self.columns]
        change = {"type": kind, "id": '"shop"."items"', "table": {"columns": columns}}
        source = {"name": "shop", "db": "shop", "table": "items"}
        value = {"source": source, "databaseName": "shop", "ddl": ddl, "tableChanges": [change]}
        topic = self.directory / "events" / "shop"
        topic.mkdir(parents=True, exist_ok=True)
        (topic / f"{self.statements:04}.jsonl").write_text(json.dumps({"value": value}) + "\n")
        self.statements += 1

    def alter(self):
        """One statement of a random kind."""
        others = [name for name in self.columns if name != "id"]
        narrow = [name for name in others if self.columns[name] == "INT"]
        kinds = [
            "add",
            "rename",
            *(["drop"] if len(others) > 2 else []),
            *(["widen"] * bool(narrow)),
        ]
        kind = self.draw.choice(kinds)
        if kind == "add":
            name, type_ = next(self.names), self.draw.choice(["INT", "STRING", "DOUBLE"])
            self.columns[name] = type_
            self.rows = {number: {**row, name: None} for number, row in self.rows.items()}
            self.statement(f"ALTER TABLE items ADD COLUMN {name} {type_}")
        elif kind == "rename":
            old, new = self.draw.choice(others), next(self.names)
            self.columns = {new if n == old else n: t for n, t in self.columns.items()}
            self.rows = {
                number: {new if n == old else n: v for n, v in row.items()}
                for number, row in self.rows.items()
            }
            self.statement(f"ALTER TABLE items CHANGE `{old}` `{new}` {self.columns[new]}")
        elif kind == "drop":
            gone = self.draw.choice(others)
            del self.columns[gone]
            for row in self.rows.values():
                del row[gone]
            self.statement(f"ALTER TABLE items DROP COLUMN {gone}")
        else:
            wider = self.draw.choice(narrow)
            self.columns[wider] = "BIGINT"
            self.statement(f"ALTER TABLE items MODIFY {wider} BIGINT")

    def work(self, count):
        made = {
            "INT": lambda: self.draw.randrange(1000),
            "BIGINT": lambda: self.draw.randrange(self.widest),
            "DOUBLE": lambda: self.draw.random(),
            "STRING": lambda: f"text {self.draw.random()}",
        }
        written = []
        for _ in range(count):
            number = self.draw.randrange(30)
            row = {n: made[t]() for n, t in self.columns.items() if n != "id"}
            self.rows[number] = {"id": number, **row}
            self.last[number] = dict(self.rows[number])
            written.append(self.rows[number])
        self.write(*written)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["evolve", "lenient", "ignore"])
def test_fifteen_statements_of_random_kinds(spark, tmp_path, mode):
    # what does not fit the old type is bad where the type stays
    database = Database(tmp_path, seed=4, widest=1000 if mode == "ignore" else 2**40)
    path = configured(tmp_path, mode)
    text = path.read_text().replace("source:\n", "source:\n  debezium.schema.change.topic: shop\n")
    path.write_text(text)
    database.work(10)
    for number in range(15):
        if number % 5 == 0:
            drain(path, spark)
        database.alter()
        database.work(6)
    drain(path, spark)
    found = {row["id"]: row for row in rows(tmp_path)}
    if mode == "evolve":
        assert found == database.rows
    else:
        kept = next(iter(found.values())).keys()
        assert found == {
            number: {name: row.get(name) for name in kept} for number, row in database.last.items()
        }
    if mode == "lenient":
        assert {name for row in database.last.values() for name in row} <= set(kept)
    if mode == "ignore":
        assert set(kept) == {"id", "a", "b", "c"}
    told = lake(tmp_path).table("lakeward._schema_history").to_arrow().to_pylist()
    decisions = {row["decision"] for row in told}
    assert "applied" in decisions
    assert decisions <= {"applied", "ignored"}  # ignored in evolve: old rows of dropped columns
    assert {row["mode"] for row in told} == {mode}
