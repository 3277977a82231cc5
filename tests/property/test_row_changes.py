# SPDX-License-Identifier: Apache-2.0
"""Random DELETE, UPDATE, MERGE and INSERT against DuckDB, on every kind of table that takes them.

Laws, after each statement: 1 the rows are those of DuckDB, and as many were affected; 2 the table
is sound; 3 the changelog, applied to the rows before, gives the rows; 4 a statement that is refused
changes nothing.

The statements are DuckDB's as well as ours. On a primary-key table a row replaces the one of its
key: DuckDB's table loses those first.
"""

import dataclasses
import os
import pathlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.sql.session import SqlSession
from storage.table.read.read import TableRead
from storage.table.scan.scan import TableScan
from storage.table.table import FileStoreTable
from storage.testing.invariants import check_table
from tests.changelog_replay import replay
from tests.table_kit import make_table, reopened

COLUMNS = (
    ("k", "BIGINT NOT NULL"),
    ("p", "STRING NOT NULL"),
    ("v", "INT"),
    ("s", "STRING"),
    ("d", "DECIMAL(10, 2)"),
    ("t", "TIMESTAMP(3)"),
    ("b", "BOOLEAN"),
)
NAMES = [name for name, _ in COLUMNS]
MODEL = (
    "CREATE TABLE {} (k BIGINT, p VARCHAR, v INT, s VARCHAR, d DECIMAL(10, 2), t TIMESTAMP, "
    "b BOOLEAN)"
)
APPEND: dict[str, Any] = {"keys": ()}
MARKED = {"deletion-vectors.enabled": "true"}
FORMS: dict[str, dict[str, Any]] = {
    "append": {**APPEND, "options": {"bucket": "-1"}},
    "append, vectors": {**APPEND, "options": {"bucket": "-1", **MARKED}},
    "append, partitions": {**APPEND, "partitions": ("p",), "options": {"bucket": "-1"}},
    "buckets": {**APPEND, "options": {"bucket": "2", "bucket-key": "k"}},
    "buckets, vectors": {**APPEND, "options": {"bucket": "2", "bucket-key": "k", **MARKED}},
    "key": {"options": {"bucket": "2"}},
    "key, vectors": {"options": {"bucket": "1", **MARKED}},
    "key, input": {"options": {"changelog-producer": "input"}},
    "key, lookup": {"options": {"changelog-producer": "lookup", "bucket": "2"}},
    "key, full": {"options": {"changelog-producer": "full-compaction"}},
    "key, lookup, vectors": {"options": {"changelog-producer": "lookup", **MARKED}},
    "dynamic buckets": {"options": {"bucket": "-1"}},
    "key in partitions": {"keys": ("p", "k"), "partitions": ("p",)},
    "across partitions": {"partitions": ("p",), "options": {"bucket": "-1"}},
    "partial update": {
        "options": {
            "merge-engine": "partial-update",
            "partial-update.remove-record-on-delete": "true",
            "changelog-producer": "lookup",
        }
    },
}


@dataclasses.dataclass
class Writer:
    """Makes statements; `full`: no row is written with a null, which partial updates leave out."""

    draw: random.Random
    keys: Sequence[str]
    partitions: Sequence[str]
    full: bool

    def value(self, name: str) -> str:
        draw = self.draw
        if not self.full and name not in ("k", "p") and draw.random() < 0.15:
            return "NULL"
        match name:
            case "k":
                return str(draw.randrange(24))
            case "p":
                return f"'{draw.choice('abc')}'"
            case "v":
                return str(draw.randrange(-50, 50))
            case "s":
                return draw.choice(["''", "'x'", "'ä'", "'it''s'", "'long text of a row'"])
            case "d":
                return f"{draw.randrange(-9_999, 9_999) / 100:.2f}"
            case "t":
                day, part = draw.randrange(1, 9), draw.randrange(1_000)
                return f"TIMESTAMP '2024-01-0{day} 10:00:00.{part:03}'"
            case _:
                return draw.choice(["true", "false"])

    def expression(self, name: str, prefix: str, others: str = "") -> str:
        """A new value of a column from the columns of a row."""
        mine = {
            "v": f"{prefix}v + {self.draw.randrange(5)}",
            "s": f"{prefix}s || '!'",
            "d": f"{prefix}d + 1.25",
            "b": f"NOT {prefix}b",
        }
        choices = [self.value(name)]
        if name in mine:
            choices.append(mine[name])
        if others:
            choices.append(f"{others}{name}")
        chosen = self.draw.choice(choices)
        return f"coalesce({chosen}, {self.value(name)})" if self.full else chosen

    def condition(self, prefix: str) -> str:
        draw = self.draw
        low = draw.randrange(20)
        return draw.choice(
            [
                f"{prefix}k < {low}",
                f"{prefix}k BETWEEN {low} AND {low + 4}",
                f"{prefix}v > {draw.randrange(-40, 40)}",
                f"{prefix}p = {self.value('p')} AND {prefix}k % 2 = 0",
                f"{prefix}b",
                f"({prefix}s IS NULL OR {prefix}d < 0)",
                f"{prefix}t >= TIMESTAMP '2024-01-04 00:00:00' AND NOT {prefix}b",
                f"{prefix}k IN ({low}, {low + 2}, {low + 5})",
                f"{prefix}p IN ('a', 'c') AND {prefix}v IS NOT NULL",
            ]
        )

    def rows(self, count: int, *, unique: bool) -> list[list[str]]:
        found = [[self.value(name) for name in NAMES] for _ in range(count)]
        if unique:
            places = [NAMES.index(key) for key in self.keys or ["k"]]
            found = list({tuple(row[place] for place in places): row for row in found}.values())
        return found

    def settable(self) -> list[str]:
        fixed = set(self.keys)
        if self.keys and (self.full or "p" in self.keys):
            fixed.add("p")
        return [name for name in NAMES if name not in fixed and name != "k"]

    def assignments(self, prefix: str, others: str = "", left: str = "") -> str:
        names = self.draw.sample(self.settable(), self.draw.randrange(1, 4))
        return ", ".join(
            f"{left}{name} = {self.expression(name, prefix, others)}" for name in names
        )


def statement(writer: Writer, target: str, source: str) -> str:
    """A statement; `source` is a table of both with the columns of the table."""
    draw = writer.draw
    kind = draw.choice(["delete", "update", "update", "merge", "merge", "merge"])
    if kind == "delete":
        condition = writer.condition("")
        if draw.random() < 0.2:
            condition = f"k IN (SELECT k FROM {source} WHERE {writer.condition('')})"
        return f"DELETE FROM {target} WHERE {condition}"
    if kind == "update":
        return f"UPDATE {target} SET {writer.assignments('')} WHERE {writer.condition('')}"
    on = " AND ".join(f"t.{name} = s.{name}" for name in writer.keys or ["k"])
    if not writer.keys and draw.random() < 0.4:
        on += f" AND ({writer.condition('t.')})"
    clauses = []
    for left in reversed(range(draw.randrange(1, 3))):
        some = left or draw.random() < 0.6  # a clause for all rows must be the last
        also = f" AND {writer.condition(draw.choice(['t.', 's.']))}" if some else ""
        action = f"UPDATE SET {writer.assignments('t.', 's.')}"
        clauses.append(f"WHEN MATCHED{also} THEN {draw.choice([action, action, 'DELETE'])}")
    if draw.random() < 0.7:
        also = f" AND {writer.condition('s.')}" if draw.random() < 0.4 else ""
        columns = ", ".join(NAMES)
        values = ", ".join(
            f"s.{name}" if draw.random() < 0.8 or name in writer.keys else writer.value(name)
            for name in NAMES
        )
        insert = f"({columns}) VALUES ({values})"
        clauses.append(f"WHEN NOT MATCHED{also} THEN INSERT {insert}")
    if draw.random() < 0.3:
        action = draw.choice([f"UPDATE SET {writer.assignments('t.')}", "DELETE"])
        clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {writer.condition('t.')} THEN {action}")
    return f"MERGE INTO {target} AS t USING {source} AS s ON {on} {' '.join(clauses)}"


def changes(table: FileStoreTable, after: int) -> Iterator[pa.RecordBatch]:
    """What the snapshots after one brought."""
    reader = TableRead(table, kinds=True)
    for snapshot_id in sorted(table.snapshots.ids()):
        if snapshot_id > after:
            for split in TableScan(table).plan_changelog(table.snapshots.read(snapshot_id)):
                yield from reader.to_batches(split)


def in_order(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows.select(NAMES).to_pylist()), key=repr)


class Twins:
    """A table and DuckDB's, which get the same statements."""

    def __init__(self, directory: pathlib.Path, form: str, seed: int) -> None:
        given = FORMS[form]
        self.table = make_table(directory, columns=COLUMNS, **given)
        catalog_directory = pathlib.Path(self.table.layout.root).parents[1]
        catalog = FileSystemCatalog(str(catalog_directory), file_io=self.table.file_io)
        self.session = SqlSession(catalog, database="db")
        self.other = make_source(catalog)
        self.model = duckdb.connect()
        self.model.execute(MODEL.format("m"))
        self.model.execute(MODEL.format("source"))
        keys = tuple(given.get("keys", ("k",)))
        full = "merge-engine" in given.get("options", {})
        self.writer = Writer(random.Random(seed), keys, given.get("partitions", ()), full)
        self.state: pa.Table | None = None
        self.last = 0
        self.logs = "changelog-producer" in given.get("options", {})

    def run(self, text: str) -> int:
        (result,) = self.session.execute(text)
        assert result.affected is not None
        return result.affected

    def insert(self, target: str, model: str, rows: list[list[str]]) -> None:
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        if model == "m" and self.writer.keys:
            names = ", ".join(self.writer.keys)
            keys = ", ".join(
                f"({', '.join(row[NAMES.index(key)] for key in self.writer.keys)})" for row in rows
            )
            self.model.execute(f"DELETE FROM m WHERE ({names}) IN ({keys})")
        self.model.execute(f"INSERT INTO {model} VALUES {values}")
        assert self.run(f"INSERT INTO {target} VALUES {values}") == len(rows)

    def step(self) -> None:
        draw, writer = self.writer.draw, self.writer
        chance = draw.random()
        if chance < 0.15:
            self.insert("t", "m", writer.rows(draw.randrange(1, 9), unique=bool(writer.keys)))
        elif chance < 0.2:
            self.run_refused()
        else:
            self.model.execute("DELETE FROM source")
            self.run("TRUNCATE TABLE source")
            rows = writer.rows(draw.randrange(1, 9), unique=True)
            self.insert("source", "source", rows)
            text = statement(writer, "{}", "source")
            (expected,) = self.model.execute(text.format("m")).fetchall()
            affected = self.run(text.format("t"))

            assert affected == expected[0], text
        if draw.random() < 0.1:
            list(self.session.execute("CALL sys.compact('t')"))
        self.check()

    def run_refused(self) -> None:
        before = self.table.snapshots.latest_id()
        twice = "(SELECT * FROM t UNION ALL SELECT * FROM t)"
        text = f"MERGE INTO t USING {twice} AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 1"
        if self.model.execute("SELECT count(*) FROM m").fetchall() == [(0,)]:
            return
        with pytest.raises(InvalidRequestError, match="match more than one source rows"):
            self.run(text)
        assert self.table.snapshots.latest_id() == before

    def check(self) -> None:
        table = reopened(self.table, file_io=self.table.file_io)
        expected = in_order(self.model.sql("SELECT * FROM m").to_arrow_table())
        rows = table.to_arrow()
        assert in_order(rows) == expected
        check_table(table, rows=True)
        if self.logs:
            found = list(changes(table, self.last))
            if found:
                self.state = replay(found, self.writer.keys, self.state)
            self.last = table.snapshots.latest_id() or 0
            assert self.state is None or in_order(self.state) == expected


def make_source(catalog: Any) -> FileStoreTable:
    columns = [(name, parse_type(text)) for name, text in COLUMNS]
    schema = new_schema(columns, options={"bucket": "-1"}, now_ms=0)
    return catalog.create_table("db.source", schema)


def _run(directory: pathlib.Path, form: str, statements: int, seed: int) -> None:
    twins = Twins(directory, form, seed)
    twins.insert("t", "m", twins.writer.rows(12, unique=True))
    twins.check()
    for _ in range(statements):
        twins.step()


@pytest.mark.parametrize("form", [name for number, name in enumerate(FORMS) if number % 2])
def test_statements_do_what_duckdb_does(tmp_path: pathlib.Path, form: str) -> None:
    _run(tmp_path, form, statements=2, seed=sum(map(ord, form)))


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_statements_do_what_duckdb_does(tmp_path: pathlib.Path, form: str) -> None:
    seed = int(os.environ.get("LAKEWARD_SEED", "20"))
    _run(tmp_path, form, statements=70, seed=seed)
