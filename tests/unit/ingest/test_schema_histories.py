# SPDX-License-Identifier: Apache-2.0
"""Random histories of a table whose rows and statements arrive in random order, against the table.

Rows come in two partitions, statements in a third; each keeps its own order and nothing else does.
"""

import random

import pytest

from tests.unit.ingest.debezium_events import dumps
from tests.unit.ingest.schema.test_schema_statements import TABLE, World, statement

CONNECT = {"BIGINT": "int64", "INT": "int32", "STRING": "string", "DOUBLE": "double"}


class Database:
    """The source table: statements and rows, as Debezium tells of them."""

    def __init__(self, draw):
        self.draw = draw
        self.columns = {"id": "BIGINT", "a": "INT", "b": "STRING"}
        self.rows = {}
        self.names = iter(f"c{number}" for number in range(100))
        self.former = {}

    def create(self):
        return statement("CREATE TABLE items (...)", list(self.columns), "CREATE")

    def alter(self):
        others = [name for name in self.columns if name != "id"]
        kind = self.draw.choice(["add", "rename", "rename", "drop", "widen"])
        if kind == "rename":
            old = self.draw.choice(others)
            earlier = self.former.pop(old, [])
            back = self.draw.random() < 0.4 and earlier  # to a name that it had
            new = self.draw.choice(earlier) if back else next(self.names)
            self.former[new] = [*(name for name in earlier if name != new), old]
            self.columns = {new if n == old else n: t for n, t in self.columns.items()}
            self.rows = {
                number: {new if n == old else n: v for n, v in row.items()}
                for number, row in self.rows.items()
            }
            return f"ALTER TABLE items RENAME COLUMN {old} TO {new}"
        if kind == "drop" and len(others) > 2:
            gone = self.draw.choice(others)
            del self.columns[gone]
            for row in self.rows.values():
                del row[gone]
            return f"ALTER TABLE items DROP COLUMN {gone}"
        if kind == "widen":
            narrow = [name for name in others if self.columns[name] == "INT"]
            for name in narrow[:1]:
                self.columns[name] = "BIGINT"
            return f"ALTER TABLE items MODIFY {(narrow or others)[0]} BIGINT"
        name, type_ = next(self.names), self.draw.choice(["INT", "STRING", "DOUBLE"])
        self.columns[name] = type_
        self.rows = {number: {**row, name: None} for number, row in self.rows.items()}
        return f"ALTER TABLE items ADD {name} {type_}"

    def write(self):
        number = self.draw.randrange(6)
        made = {"INT": 1000, "BIGINT": 2**40}
        row = {"id": number}
        for name, type_ in self.columns.items():
            if name != "id":
                drawn = self.draw.randrange(made.get(type_, 1000))
                value = {"STRING": f"t{drawn}", "DOUBLE": drawn / 4}.get(type_, drawn)
                row[name] = None if self.draw.random() < 0.2 else value
        self.rows[number] = {name: value for name, value in row.items() if name != "id"}
        return number, self.event(row)

    def event(self, row):
        fields = [
            {"field": name, "type": CONNECT[type_], "optional": True}
            for name, type_ in self.columns.items()
        ]
        image = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
        source = {"name": "srv", "db": "shop", "table": "items", "ts_ms": 1}
        payload = {"before": None, "after": row, "source": source, "op": "c"}
        return dumps({"schema": {"type": "struct", "fields": [image]}, "payload": payload})


@pytest.mark.parametrize("seed", range(12))
def test_tables_converge(tmp_path, seed):
    draw = random.Random(seed)
    database = Database(draw)
    world = World(tmp_path, statements=[database.create()])
    rows, statements = ([], []), []
    for _ in range(40):
        if draw.random() < 0.35:
            ddl = database.alter()
            statements += world.publish(statement(ddl, list(database.columns)))
        else:
            number, event = database.write()
            rows[number % 2].append(event)
        if draw.random() < 0.2:
            take(world, draw, rows, statements)
    while statements or any(rows):
        take(world, draw, rows, statements)
    fields = world.book.table(TABLE).schema.field_names
    assert world.read() == {
        # a column that no row brought yet is not there yet
        number: {n: v for n, v in row.items() if n in fields or v is not None}
        for number, row in sorted(database.rows.items())
    }


def take(world, draw, rows, statements):
    """A batch of some of everything."""
    taken = []
    for queue in rows:
        count = draw.randrange(len(queue) + 1)
        taken += queue[:count]
        del queue[:count]
    count = draw.randrange(len(statements) + 1)
    events = statements[:count]
    del statements[:count]
    if taken or events:
        world.run(taken, events)
