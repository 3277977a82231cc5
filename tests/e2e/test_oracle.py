# SPDX-License-Identifier: Apache-2.0
"""The oracle sees what differs and nothing else."""

import datetime
import random
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.e2e.oracle import compare, normal, same
from tests.e2e.real_history import history
from tests.e2e.real_tables import Column, RandomChanges, RealTable

UTC = datetime.UTC
NOON = datetime.datetime(2024, 6, 1, 12, tzinfo=UTC)
ELSEWHERE = NOON.astimezone(datetime.timezone(datetime.timedelta(hours=5)))


@pytest.mark.parametrize(
    ("type_", "database", "lake"),
    [
        (pa.int64(), Decimal(7), 7),
        (pa.bool_(), 1, True),
        (pa.float32(), 0.1, 0.10000000149011612),
        (pa.float64(), float("nan"), float("nan")),
        (pa.decimal128(10, 2), Decimal("1.5"), Decimal("1.50")),
        (pa.string(), Decimal("1E+3"), "1000"),
        (pa.string(), uuid.UUID(int=5), str(uuid.UUID(int=5))),
        (pa.string(), '{"b": 1, "a": [2.50]}', '{"a":[2.50],"b":1}'),
        (pa.binary(), memoryview(b"\x00"), b"\x00"),
        (pa.timestamp("us", tz="UTC"), ELSEWHERE, NOON),
        (pa.time32("ms"), datetime.timedelta(hours=1), datetime.time(1)),
        (pa.list_(pa.decimal128(5, 1)), [Decimal(1), None], [Decimal("1.0"), None]),
    ],
)
def test_the_same_values_are_the_same(type_, database, lake):
    assert same(normal(database, type_), normal(lake, type_))


@pytest.mark.parametrize(
    ("type_", "database", "lake"),
    [
        (pa.int64(), Decimal("7.5"), 7),
        (pa.decimal128(10, 2), Decimal("1.505"), Decimal("1.50")),
        (pa.string(), "1", "1.0"),
        (pa.string(), "", None),
        (pa.string(), '{"a": 1}', '{"a": 1.0}'),
        (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON.replace(hour=13, tzinfo=None)),
        (pa.list_(pa.int32()), [1, 2], [2, 1]),
    ],
)
def test_other_values_differ(type_, database, lake):
    assert not same(normal(database, type_), normal(lake, type_))


def test_rows_that_one_side_lacks_are_told():
    lines = compare("t", {(1,): {"a": 1}, (2,): {"a": 1}}, {(2,): {"a": 3}, (4,): {"a": 1}})
    assert lines == ["t (1,): missing", "t (4,): too many", "t (2,) a: database 1, lake 3"]


class Recorder:
    def __init__(self):
        self.statements = []

    def execute(self, statements):
        self.statements += statements.split("; ")

    def nextset(self):
        return None


def test_random_changes_repeat_by_seed_and_have_all_kinds():
    table = RealTable("t", (Column("a", "int", ("1", "2")),))
    one, two = Recorder(), Recorder()
    for recorder in (one, two):
        changes = RandomChanges([table], seed=3)
        changes.fill(recorder, 3)
        changes.run(recorder, 60)
    assert one.statements == two.statements
    words = {statement.split()[0] for statement in one.statements}
    assert words == {"INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT", "ROLLBACK"}
    assert any("SET id =" in statement for statement in one.statements)
    assert table.insert(2, random.Random(1)).startswith("INSERT INTO t (id, a) VALUES (2, ")


def test_statements_touch_several_rows_where_asked():
    table = RealTable("t", (Column("a", "int", ("1", "2")),))
    recorder = Recorder()
    changes = RandomChanges([table], seed=3, several=0.5)
    changes.run(recorder, 300)
    rows = {
        "INSERT": lambda text: text.count("), ("),
        "UPDATE": lambda text: text.count(" OR "),
        "DELETE": lambda text: text.count(" OR "),
    }
    counts = {
        word: {count(text) + 1 for text in recorder.statements if text.startswith(word)}
        for word, count in rows.items()
    }
    assert all(found == {1, 2, 3, 4, 5} for found in counts.values()), counts


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_the_history_has_fifteen_statements(database):
    steps = history(database, "published")
    assert len(steps) == 15
    text = "\n".join(statement for statement, _ in steps)
    for words in ("ADD COLUMN", "DROP COLUMN", "RENAME COLUMN", "CREATE TABLE"):
        assert words in text
    last = {table.name: [column.name for column in table.columns] for _, table in steps}
    assert last["orders"] == ["qty", "price", "remark", "buyer"]
    assert last["places"] == ["town", "weight", "number_of"]
