# SPDX-License-Identifier: Apache-2.0
"""Aggregates over files that DuckDB reads itself: the results of a scan, safety, damage."""

import datetime
import decimal
import math
import os
import pathlib
import random
from collections.abc import Collection
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.errors import CorruptDataError, LakewardError, NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.sql import engine
from storage.sql.dialect import parse_query
from storage.sql.errors import SqlError
from storage.sql.query import plan_query
from storage.sql.session import SqlSession
from storage.table.scan import row_scan
from storage.table.scan.row_scan import EngineScan

_TYPES = {
    "b": "BOOLEAN",
    "i1": "TINYINT",
    "i2": "SMALLINT",
    "i4": "INT",
    "i8": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n": "DECIMAL(9, 2)",
    "w": "DECIMAL(30, 5)",
    "day": "DATE",
    "at": "TIME(3)",
    "t3": "TIMESTAMP(3)",
    "t6": "TIMESTAMP(6)",
    "t9": "TIMESTAMP(9)",
    "z3": "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "z6": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "s": "STRING",
    "c": "CHAR(3)",
    "y": "BYTES",
    "l": "ARRAY<STRING>",
    "lf": "ARRAY<DOUBLE>",
    "m": "MAP<STRING, BIGINT>",
    "r": "ROW<a INT, b STRING, c ARRAY<INT>>",
}
_ALWAYS = ("at", "t9", "lf")
"""Columns of types that our reader reads."""


def _value(random_: random.Random, name: str) -> Any:
    if random_.random() < 0.15:
        return None
    number = random_.choice([0, 1, -1, 7, random_.randint(-100, 100)])
    instant = datetime.datetime.fromisoformat("2024-01-01")
    instant += datetime.timedelta(microseconds=number * 86_399_999)
    match name:
        case "b":
            return number > 0
        case "i1" | "i2" | "i4" | "i8":
            return number
        case "f" | "d":
            return random_.choice([math.nan, -0.0, 0.0, math.inf, -math.inf, number / 4])
        case "n":
            return decimal.Decimal(number) / 4
        case "w":
            return decimal.Decimal(number * 10**17) / 8
        case "day":
            return datetime.date(1970, 1, 1) + datetime.timedelta(days=number * 300)
        case "at":
            return datetime.time(number % 24, number % 60, 1, 5_000)
        case "t3" | "z3":
            return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
        case "t6" | "t9" | "z6":
            return instant
        case "s" | "c":
            return random_.choice(["", "a", "ä€", "abc", f"x{number % 10}"])[:3]
        case "y":
            return bytes([number & 0xFF, 0])
        case "l":
            return [None, "a", str(number)][: number % 4]
        case "lf":
            return [math.nan, -0.0][: number % 3]
        case "m":
            return [("k", number), ("j", None)][: number % 3]
        case _:
            return {"a": number, "b": None, "c": [1, None]}


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are handed over however few rows they have."""
    monkeypatch.setattr(row_scan, "_WORTH_HANDING_OVER", 1)


def _session(path: pathlib.Path) -> SqlSession:
    catalog = FileSystemCatalog(str(path))
    catalog.create_database("db")
    return SqlSession(catalog, "db")


def _filled(session: SqlSession, kind: str) -> None:
    """A table `t` of three commits; small row groups."""
    options = {"parquet.block.size": "600"}
    if kind != "append":
        options |= {"bucket": "3"}
    if kind == "vectors":
        options |= {"deletion-vectors.enabled": "true"}
    columns = {"u": "INT NOT NULL", "k": "INT", **_TYPES}
    schema = new_schema(
        [(name, parse_type(text)) for name, text in columns.items()],
        primary_keys=() if kind == "append" else ("u",),
        options=options,
    )
    table = session.catalog.create_table("db.t", schema)
    draw = random.Random(kind)
    for number in range(3):
        rows = []
        for k in range(50):
            u = number * 50 + k if kind == "append" else draw.randrange(100)
            rows.append({"u": u, "k": k, **{name: _value(draw, name) for name in _TYPES}})
        rows = list({row["u"]: row for row in rows}.values())
        batch = pa.Table.from_pylist(rows, schema=table.schema.arrow_schema)
        with table.new_write("test") as writer:
            for part in batch.to_batches():
                writer.write(part)
            if kind != "append" and number == 2:
                writer.compact(full=True)
            table.new_commit("test").commit(writer.prepare_commit(), number + 1)
    if kind in ("vectors", "partly"):
        list(session.execute("DELETE FROM t WHERE u IN (SELECT min(u) FROM t)"))


def _scans(session: SqlSession, text: str) -> list[EngineScan]:
    relations = plan_query(session, parse_query(text)).relations.values()
    return [rows for rows in relations if isinstance(rows, EngineScan)]


_EXACT = "SELECT u, array_agg({c}) AS x FROM t GROUP BY u"
_FOLDED = (  # either zero may stand for both
    "SELECT {c} AS x, count(*) AS n FROM t GROUP BY {c}",
    "SELECT min({c}) AS x, max({c}) AS y, count({c}) AS n FROM t",
    "SELECT max({c}) AS y, count(*) AS n FROM t WHERE u BETWEEN 20 AND 39",
    "SELECT count(*) AS n FROM t WHERE {c} IS NULL",
    "SELECT sum(u) AS n FROM t WHERE {c} >= (SELECT max({c}) FROM t WHERE k < 9)",
    "SELECT sum(u) AS n FROM t WHERE NOT {c} < (SELECT max({c}) FROM t WHERE k < 9)",
)
_OF_NUMBERS = (
    "SELECT sum(u) AS n FROM t WHERE {c} > 1",
    "SELECT sum(u) AS n FROM t WHERE {c} = 0 OR {c} >= 7",
    "SELECT sum(u) AS n FROM t WHERE {c} <> 0 AND NOT {c} < 100",
)
_NUMBERS = ("i1", "i2", "i4", "i8", "f", "d", "n", "w")


def _outcome(session: SqlSession, text: str, *, folded: bool) -> tuple[Any, ...]:
    rows = session.last_rows(text)
    texts = map(repr, rows.to_pylist())
    return rows.schema, sorted(row.replace("-0.0,", "0.0,") if folded else row for row in texts)


_KINDS = ("append", "compacted", "vectors", "partly")
_FEW = ("d", "s", "z3")


def _check_columns(session: SqlSession, names: Collection[str], monkeypatch: Any) -> set[bool]:
    """Both ways agree; whether scans left all of their rows to DuckDB."""
    complete = set()
    for name in names:
        numbers = _OF_NUMBERS if name in _NUMBERS else ()
        for query in (_EXACT, *(() if name == "m" else _FOLDED), *numbers):
            text, folded = query.format(c=name), query is not _EXACT
            monkeypatch.setattr(row_scan, "_WORTH_HANDING_OVER", 1 << 40)
            expected = _outcome(session, text, folded=folded)
            monkeypatch.setattr(row_scan, "_WORTH_HANDING_OVER", 1)
            assert _outcome(session, text, folded=folded) == expected, text
            if query is _EXACT:
                (scan,) = _scans(session, text)
                assert bool(scan.files) is (name not in _ALWAYS), name
                complete.add(scan.complete)
    return complete


@pytest.mark.parametrize("kind", _KINDS)
def test_results_are_those_of_a_scan(kind: str, tmp_path: pathlib.Path, monkeypatch) -> None:
    session = _session(tmp_path)
    _filled(session, kind)
    aggregates = ", ".join(f"array_agg({name}) AS {name}" for name in _TYPES if name not in _ALWAYS)
    text = f"SELECT u, {aggregates} FROM t GROUP BY u"
    monkeypatch.setattr(row_scan, "_WORTH_HANDING_OVER", 1 << 40)
    expected = _outcome(session, text, folded=False)
    monkeypatch.setattr(row_scan, "_WORTH_HANDING_OVER", 1)
    assert _outcome(session, text, folded=False) == expected
    few = _FEW if kind == "append" else _FEW[:1]
    assert False in _check_columns(session, (*few, _ALWAYS[0]), monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("kind", _KINDS)
def test_results_of_every_type_are_those_of_a_scan(kind: str, tmp_path, monkeypatch) -> None:
    session = _session(tmp_path)
    _filled(session, kind)
    complete = _check_columns(session, _TYPES, monkeypatch)
    assert complete == ({False} if kind in ("vectors", "partly") else {False, True})


def test_states_and_schemas(every_size: None, tmp_path: pathlib.Path) -> None:
    session = _session(tmp_path)
    list(
        session.execute("""
        CREATE TABLE t (k INT, v INT, p STRING) PARTITIONED BY (p);
        INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b');
        ALTER TABLE t ADD w STRING;
        ALTER TABLE t RENAME v TO u;
        INSERT INTO t VALUES (3, 30, 'it''s', 'x');
        CALL sys.create_branch('t', 'b');
        INSERT INTO `t$branch_b` VALUES (4, 40, 'c', 'y')
    """)
    )
    files = {
        "SELECT sum(k) AS a FROM t": (6, 3),
        "SELECT sum(k) AS a, count(w) AS b FROM t": (6, 1),
        "SELECT sum(u) AS a FROM t": (60, 1),
        "SELECT sum(v) AS a FROM t VERSION AS OF 1": (30, 2),
        "SELECT sum(k) AS a FROM t WHERE p = 'it''s'": (3, 1),
        "SELECT sum(k) AS a FROM t WHERE k > 2": (3, 1),
        "SELECT sum(k) AS a FROM `t$branch_b`": (4, 1),
        "SELECT sum(k) AS a FROM (SELECT k FROM t LIMIT 9)": (6, 0),
    }
    for text, (total, number) in files.items():
        assert session.last_rows(text).to_pylist()[0]["a"] == total, text
        assert sum(len(scan.files) for scan in _scans(session, text)) == number, text


@pytest.fixture
def pair(every_size: None, tmp_path: pathlib.Path) -> SqlSession:
    """Two tables of one file each."""
    session = _session(tmp_path)
    for name in ("mine", "other"):
        list(session.execute(f"CREATE TABLE {name} (k INT, v STRING)"))
        list(session.execute(f"INSERT INTO {name} VALUES (1, '{name}'), (2, NULL)"))
    return session


def _file(session: SqlSession, table: str) -> str:
    (scan,) = _scans(session, f"SELECT count(k) AS n, max(v) AS v FROM {table}")
    (path,) = scan.files
    return path


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM read_parquet('{path}')",
        "SELECT count(*) FROM parquet_scan('{path}')",
        "SELECT count(*) FROM parquet_metadata('{path}')",
        "SELECT count(*) FROM read_text('{path}')",
        "SELECT count(*) FROM read_blob('{path}')",
        "SELECT count(*) FROM glob('{path}')",
        "SELECT count(*) FROM '{path}'",
        "SELECT count(*) FROM `{path}`",
        'SELECT count(*) FROM "{path}"',
        "SELECT count(*) FROM parquet.`{path}`",
        "SELECT count(m.k) FROM mine m, read_parquet('{path}') o",
        "SELECT (SELECT count(*) FROM read_parquet('{path}')) AS n, max(k) AS k FROM mine",
        "WITH o AS (SELECT * FROM read_parquet('{path}')) SELECT count(*) FROM o",
        "SELECT count(m.k) FROM mine m LEFT JOIN LATERAL (SELECT * FROM read_blob('{path}')) o",
        "SELECT count(*) FROM query('SELECT * FROM read_parquet(''{path}'')')",
        "SELECT count(*) FROM query_table('{path}')",
        "SELECT max(read_text('{path}')) FROM mine",
        "SELECT count(*) FROM relation_0_rest",
        "SELECT count(*) FROM relation_0",
        "COPY (SELECT count(*) FROM mine) TO '{path}'",
        "ATTACH '{path}'",
    ],
)
def test_a_statement_opens_no_file_by_name(pair: SqlSession, text: str) -> None:
    """Neither one of another table, nor one that the engine may open in the same query."""
    for path in (_file(pair, "other"), _file(pair, "mine")):
        query = text.format(path=path)
        with pytest.raises(LakewardError):
            pair.last_rows(query)
        joined = query.replace(" FROM ", " FROM mine AS joined, other AS besides, ", 1)
        with pytest.raises(LakewardError):
            pair.last_rows(joined)
    assert pair.last_rows("SELECT count(k) AS n FROM other").to_pylist() == [{"n": 2}]


def test_duckdb_opens_the_planned_files_only(pair: SqlSession, tmp_path: pathlib.Path) -> None:
    mine, other = _file(pair, "mine"), _file(pair, "other")
    plan = plan_query(pair, parse_query("SELECT max(v) AS v FROM mine"))
    connection = engine.connect(None, plan.relations)
    count = "SELECT count(*) FROM read_parquet('{}')"
    assert connection.execute(count.format(mine)).fetchall() == [(2,)]
    for text in (
        count.format(other),
        count.format(mine.replace(os.path.basename(mine), "*")),
        count.format(f"{mine}/../{os.path.basename(mine)}x"),
        "SELECT * FROM read_text('/etc/hostname')",
        f"COPY (SELECT 1 AS k) TO '{tmp_path}/written.parquet'",
        f"COPY (SELECT 1 AS k) TO '{mine}' (FORMAT parquet)",
        f"SET allowed_paths = ['{other}']",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(text).fetchall()
    without = engine.connect(None)
    with pytest.raises(duckdb.PermissionException):
        without.execute(count.format(mine))
    assert pair.last_rows("SELECT max(v) AS v FROM mine").to_pylist() == [{"v": "mine"}]


def test_damage_is_an_error(pair: SqlSession) -> None:
    path = pathlib.Path(_file(pair, "mine"))
    stored = path.read_bytes()
    text = "SELECT max(v) AS v, sum(k) AS k FROM mine"
    assert pair.last_rows(text).to_pylist() == [{"v": "mine", "k": 3}]
    pages = len(stored) - pq.read_metadata(path).serialized_size - 8
    refused = 0
    for position in range(4, pages, 7):
        damaged = bytearray(stored)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        try:
            assert pair.last_rows(text).to_pylist() == [{"v": "mine", "k": 3}]
        except CorruptDataError:
            refused += 1
    assert refused > pages / 14  # the rest are statistics in the headers of pages
    path.write_bytes(stored[:-1])
    with pytest.raises(CorruptDataError):
        pair.last_rows(text)
    path.unlink()
    with pytest.raises(CorruptDataError, match="the newest snapshot names a missing file"):
        pair.last_rows(text)


def test_a_file_that_goes_missing_meanwhile(pair: SqlSession) -> None:
    text = "SELECT max(v) AS v, sum(k) AS k FROM mine"
    tree = parse_query(text)
    plan = plan_query(pair, tree)
    path = pathlib.Path(_file(pair, "mine"))
    list(pair.execute("TRUNCATE TABLE mine"))
    last = "retain_max => 1, retain_min => 1, older_than => '2124-01-01 00:00:00'"
    list(pair.execute(f"CALL sys.expire_snapshots(table => 'mine', {last})"))
    assert not path.exists()
    with pytest.raises(NotFoundError, match="expired"):
        engine.run(engine.connect(None, plan.relations), plan.text, plan.relations, tree)


def test_a_query_is_cancelled_while_files_are_verified(pair: SqlSession) -> None:
    class Hasty:
        def watch(self, running: Any) -> None:
            if running is not None:
                running.interrupt()

        def count_rows(self, rows: int) -> None:
            raise AssertionError(rows)

    tree = parse_query("SELECT max(v) AS v FROM mine")
    plan = plan_query(pair, tree)
    connection = engine.connect(None, plan.relations)
    with pytest.raises(SqlError, match="cancelled"):
        engine.run(connection, plan.text, plan.relations, tree, watcher=Hasty())
