# SPDX-License-Identifier: Apache-2.0
"""Queries: what is pushed into scans, what is read, what is refused, what errors become."""

import pathlib
import pickle
import shutil
import threading

import duckdb
import pyarrow as pa
import pytest

from storage.catalog.catalog import Catalog, FileSystemCatalog
from storage.catalog.view import View
from storage.errors import InvalidOptionError, NotFoundError
from storage.format.metadata.schema_changes import SetOption
from storage.format.types.types import DataField, parse_type
from storage.io.local import LocalFileIO
from storage.sql import engine
from storage.sql.dialect import parse_query, statements
from storage.sql.errors import SqlError
from storage.sql.query import plan_query, query_rows
from storage.sql.session import SqlSession
from storage.table.scan import row_scan
from storage.table.scan.predicate import And, Between, Compare, In, IsNull, Not, Op, Or
from storage.table.scan.row_scan import EngineScan
from tests.faulty_io import FaultyFileIO
from tests.table_kit import make_table, write


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A warehouse with a table of four files whose keys do not overlap."""
    warehouse = tmp_path_factory.mktemp("written")
    table = make_table(warehouse, columns=(("k", "BIGINT"), ("v", "STRING"), ("n", "INT")))
    for number in range(4):
        rows = [("+I", 10 * number + one, f"v{one}", one) for one in range(3)]
        write(table, number + 1, rows, compaction=False)
    return warehouse


@pytest.fixture
def session(tmp_path: pathlib.Path, written: pathlib.Path) -> SqlSession:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return SqlSession(FileSystemCatalog(str(tmp_path), LocalFileIO(durable=False)), "db")


def scans(session: SqlSession, text: str):
    """Columns and condition of each scan of a query."""
    plan = plan_query(session, parse_query(text))
    return [(columns, predicate) for _, columns, predicate in plan.scans]


@pytest.mark.parametrize(
    ("condition", "pushed"),
    [
        ("k = 5", Compare(Op.EQ, "k", 5)),
        ("5 < k", Compare(Op.GT, "k", 5)),
        ("k > -1 AND v = 'x'", And((Compare(Op.GT, "k", -1), Compare(Op.EQ, "v", "x")))),
        ("k IN (1, 2)", In("k", (1, 2))),
        ("k BETWEEN 1 AND 2", Between("k", 1, 2)),
        ("v IS NULL OR NOT k = 1", Or((IsNull("v"), Not(Compare(Op.EQ, "k", 1))))),
        ("k = 1 AND upper(v) = 'X'", Compare(Op.EQ, "k", 1)),
        ("k = 1 OR upper(v) = 'X'", None),
        ("k = n", None),
        ("k = '1'", None),
        ("k = NULL", None),
        ("k IN (1, NULL)", None),
        ("n = 1.5", None),
        ("n = 99999999999", None),
        ("k IN (SELECT 1)", None),
    ],
)
def test_conditions_are_pushed_where_storage_means_the_same(session, condition, pushed) -> None:
    (found,) = [predicate for _, predicate in scans(session, f"SELECT k FROM t WHERE {condition}")]
    assert found == pushed


@pytest.mark.parametrize("condition", ["t = {}", "t IN ({})", "t BETWEEN {} AND {}"])
def test_a_cast_that_rounds_is_not_pushed(tmp_path: pathlib.Path, condition: str) -> None:
    catalog = FileSystemCatalog(str(tmp_path), LocalFileIO(durable=False))
    catalog.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (t TIMESTAMP(6));"
        "INSERT INTO d.t VALUES (TIMESTAMP '2024-01-01 00:00:01')"
    )
    rounded = "CAST('2024-01-01 00:00:01.4' AS TIMESTAMP(0))"
    text = f"SELECT count(*) AS c FROM d.t WHERE {condition.format(rounded, rounded)}"
    assert catalog.sql(text).to_pylist() == [{"c": 1}]


def test_only_columns_of_the_query_are_read(session) -> None:
    assert scans(session, "SELECT count(*) FROM t")[0][0] == []
    assert scans(session, "SELECT * FROM (SELECT v FROM t) s")[0][0] == ["v"]
    assert scans(session, "SELECT v FROM t WHERE n > 1")[0][0] == ["v", "n"]
    assert scans(session, "SELECT t.* FROM t")[0][0] == ["k", "v", "n"]
    assert scans(session, "SELECT t FROM t")[0][0] == ["k", "v", "n"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT count(*) AS c FROM t", [{"c": 12}]),
        ("SELECT count(*), count(*) AS c FROM t", [{"count(*)": 12, "c": 12}]),
        ("SELECT count(*) AS c FROM t LIMIT 0", []),
        ("SELECT count(*) AS c FROM (SELECT count(*) FROM t) x", [{"c": 1}]),
        ("SELECT count(*) + (SELECT count(*) FROM t) AS c FROM t", [{"c": 24}]),
        ("SELECT (SELECT count(*) FROM t) AS c", [{"c": 12}]),
        ("SELECT count(*) AS c FROM t x, t y", [{"c": 144}]),
        ("SELECT count(*) AS c FROM t WHERE 1 = 0", [{"c": 0}]),
        ("SELECT count(*) AS c FROM t HAVING count(*) > 12", []),
        ("SELECT count(*) AS c FROM t GROUP BY 1 + 1", [{"c": 12}]),
        ("SELECT count(*) FILTER (WHERE false) AS c FROM t", [{"c": 0}]),
        ("SELECT count(*) OVER () AS c FROM t LIMIT 2", [{"c": 12}, {"c": 12}]),
        ("SELECT 7 AS c FROM t LIMIT 2", [{"c": 7}, {"c": 7}]),
        ("SELECT count(1) AS c FROM t", [{"c": 12}]),
        ("SELECT count(*) AS c FROM t TABLESAMPLE (0 PERCENT)", [{"c": 0}]),
        ("SELECT count(*) AS c FROM t UNION ALL SELECT count(*) FROM t", [{"c": 12}, {"c": 12}]),
        ("SELECT count(*) AS c FROM t EXCEPT SELECT 12", []),
    ],
)
def test_rows_are_counted_without_columns(session, text: str, rows: list[dict[str, int]]) -> None:
    found = session.last_rows(text)
    assert found.to_pylist() == rows
    assert set(found.schema.types) <= {pa.int64(), pa.int32()}


def test_the_rows_of_an_empty_table_are_none(tmp_path: pathlib.Path) -> None:
    catalog = FileSystemCatalog(str(tmp_path), LocalFileIO(durable=False))
    catalog.sql("CREATE DATABASE d; CREATE TABLE d.t (k INT)")
    assert catalog.sql("SELECT count(*) AS c FROM d.t").to_pylist() == [{"c": 0}]


def test_outer_joins_push_only_what_refuses_nulls(session) -> None:
    join = "SELECT a.k FROM t a LEFT JOIN t b ON a.k = b.k WHERE"
    assert [one for _, one in scans(session, f"{join} b.v IS NULL")] == [None, None]
    assert [one for _, one in scans(session, f"{join} b.v = 'x'")] == [
        None,
        Compare(Op.EQ, "v", "x"),
    ]
    assert session.last_rows(f"{join} b.v IS NULL").num_rows == 0


def test_conditions_of_a_subquery_leave_outer_tables_alone(session) -> None:
    text = "SELECT a.k, x.c FROM t a LEFT JOIN LATERAL (SELECT count(*) AS c FROM t b"
    text += " WHERE b.k = a.k AND a.k = 1) x ON TRUE"
    assert [predicate for _, predicate in scans(session, text)] == [None, None]
    counts = session.last_rows(text).column("c").to_pylist()
    assert sorted(counts) == [0] * 11 + [1]
    shadowed = "WITH t AS (SELECT k FROM t WHERE k < 2) SELECT k FROM t WHERE k = 1"
    assert session.last_rows(shadowed).to_pylist() == [{"k": 1}]


@pytest.mark.parametrize(
    ("text", "pushed"),
    [
        ("SELECT * FROM (SELECT k AS a FROM t) s WHERE a = 1", Compare(Op.EQ, "k", 1)),
        ("SELECT * FROM (SELECT k, v FROM t) s(v, k) WHERE v = 1", Compare(Op.EQ, "k", 1)),
        ("WITH c AS (SELECT * FROM t) SELECT v FROM c WHERE c.k = 1", Compare(Op.EQ, "k", 1)),
        ("SELECT * FROM (SELECT v, max(k) FROM t GROUP BY 1) WHERE v = 'x'", ("v", "x")),
        ("SELECT * FROM (SELECT v, max(k) AS k FROM t GROUP BY v) WHERE k = 1", None),
        ("SELECT * FROM (SELECT k, rank() OVER (ORDER BY k) FROM t) WHERE k = 1", None),
        ("SELECT * FROM (SELECT k FROM t LIMIT 1) WHERE k = 1", None),
        ("SELECT * FROM (SELECT k + 1 AS k FROM t) WHERE k = 1", None),
        ("SELECT * FROM (SELECT k FROM t TABLESAMPLE (50 PERCENT)) WHERE k + 0 = 1", None),
        ("WITH RECURSIVE c AS (SELECT k FROM t) SELECT * FROM c WHERE k = 1", None),
    ],
)
def test_conditions_reach_the_tables_of_subqueries(session, text, pushed) -> None:
    wanted = Compare(Op.EQ, *pushed) if isinstance(pushed, tuple) else pushed
    assert [predicate for _, predicate in scans(session, text)] == [wanted]


def test_a_condition_reaches_both_sides_of_a_union_and_no_table_read_twice(session) -> None:
    text = "SELECT * FROM (SELECT k FROM t UNION ALL SELECT n FROM t) s WHERE k = 1"
    assert [str(one.column) for _, one in scans(session, text)] == ["k", "n"]
    twice = "WITH c AS (SELECT k FROM t) SELECT a.k FROM c a, c b WHERE a.k = 1"
    assert [predicate for _, predicate in scans(session, twice)] == [None]


def test_counting_opens_no_file(tmp_path: pathlib.Path, session) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    counted = SqlSession(FileSystemCatalog(str(tmp_path), store), "db")
    text = "SELECT count(*) AS c FROM t"
    assert counted.last_rows(text).to_pylist() == [{"c": 12}]
    assert not [path for kind, path in store.operations if "bucket-" in path and "open" in kind]
    counted.last_rows("UPDATE t SET v = 'new' WHERE k = 1")  # two files hold the key now
    assert counted.last_rows(text).to_pylist() == [{"c": 12}]
    counted.last_rows("DELETE FROM t WHERE k = 1")
    assert counted.last_rows(text).to_pylist() == [{"c": 11}]
    assert counted.last_rows("SELECT 'x' AS x FROM t a, t b").num_rows == 121


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_partition_columns_open_no_file(tmp_path: pathlib.Path, vectors: str) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    session = SqlSession(FileSystemCatalog(str(tmp_path), store))
    for text in (
        "CREATE TABLE t (k INT, d DATE, s STRING, v STRING) PARTITIONED BY (d, s) WITH "
        f"('deletion-vectors.enabled' = '{vectors}')",
        "INSERT INTO t SELECT k, date_add(DATE '2024-01-01', k % 3), nullif('s' || k % 2, 's1'), "
        "'v' FROM range(200000) r(k)",
        "DELETE FROM t WHERE k < 9",
    ):
        list(session.execute(text))
    store.operations.clear()
    for text in (
        "SELECT count(*) AS c FROM t WHERE s IS NULL AND d > DATE '2024-01-01'",
        "SELECT s, d, count(*) AS c FROM t GROUP BY s, d ORDER BY s, d",
        "SELECT max(d) AS m, count(s) AS c, count(DISTINCT s) AS n FROM t WHERE s = 's0'",
        "SELECT d FROM t ORDER BY d LIMIT 2",
    ):
        rows = session.last_rows(text).to_pylist()
        assert not [path for kind, path in store.operations if "bucket-" in path and "open" in kind]
        whole = session.last_rows(
            text.replace(" t", " (SELECT *, k + 0 AS z FROM t WHERE v = 'v')", 1)
        )
        assert rows == whole.to_pylist()
        store.operations.clear()


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_texts_may_come_as_dictionaries(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, file_format: str
) -> None:
    monkeypatch.setattr(row_scan, "_WORTH_A_LOOK", 100)
    catalog = FileSystemCatalog(str(tmp_path), LocalFileIO(durable=False))
    session = SqlSession(catalog)
    options = "'bucket' = '1', 'deletion-vectors.enabled' = 'true', 'file.format' = "
    rows = "SELECT k, CASE k % 3 WHEN 0 THEN 'a' WHEN 1 THEN 'b' END, uuid() FROM range(300) r(k)"
    for text in (
        f"CREATE TABLE t (k INT, s STRING, u STRING) WITH ('primary-key' = 'k', {options}"
        f"'{file_format}')",
        f"INSERT INTO t {rows}",
        "CALL sys.compact('t')",
        "DELETE FROM t WHERE k < 30",
        "ALTER TABLE t ADD w STRING",
        "CALL sys.compact('t')",
    ):
        list(session.execute(text))
    found = EngineScan(catalog.table("default.t"), ["k", "s", "u", "w"])
    types = [pa.types.is_dictionary(field.type) for field in found.schema]
    assert types[:3] == [False, file_format == "parquet", False]
    assert all(batch.schema == found.schema for batch in found.to_batches())
    text = "SELECT s, count(*) AS c, count(w) AS w FROM t {} GROUP BY s ORDER BY s"
    expected = [{"s": None, "c": 90, "w": 0}, {"s": "a", "c": 90, "w": 0}]
    assert session.last_rows(text.format("")).to_pylist()[:2] == expected
    assert session.last_rows(text.format("WHERE s = 'a'")).to_pylist() == expected[1:]
    assert session.last_rows("SELECT s FROM t LIMIT 1").schema.field("s").type == pa.string()
    list(session.execute("INSERT INTO t VALUES (31, 'new', 'u', 'w')"))  # no dictionary there
    assert session.last_rows("SELECT s FROM t WHERE w = 'w'").num_rows <= 1
    list(session.execute("CALL sys.compact('t')"))
    assert session.last_rows("SELECT s FROM t WHERE w = 'w'").to_pylist() == [{"s": "new"}]


def test_connections_share_an_instance_and_nothing_else() -> None:
    one, other = engine.connect("Asia/Tokyo"), engine.connect("Asia/Tokyo")
    one.register("x", pa.table({"a": [1]}))
    with pytest.raises(duckdb.CatalogException):
        other.execute("SELECT * FROM x")
    for connection in (one, engine.connect("UTC"), engine.connect()):
        with pytest.raises(duckdb.InvalidInputException, match="locked"):
            connection.execute("SET TimeZone = 'UTC'")
        with pytest.raises(duckdb.PermissionException):
            connection.execute("SELECT * FROM read_text('/etc/hostname')")
    text = "SELECT strftime(TIMESTAMPTZ '2024-01-01 00:00:00+00', '%H')"
    zones = (engine.connect("Asia/Tokyo"), engine.connect("UTC"))
    assert [zone.execute(text).fetchall() for zone in zones] == [[("09",)], [("00",)]]


def test_a_stored_view_reaches_no_file(tmp_path: pathlib.Path) -> None:
    uri = f"jdbc:sqlite:{tmp_path}/c.db"
    catalog = Catalog.open(str(tmp_path / "w"), {"metastore": "jdbc", "uri": uri})
    catalog.create_database("db")
    for number, query in enumerate(
        ["SELECT * FROM read_text('/etc/hostname')", "SELECT getenv('HOME') AS h", "DROP TABLE x"]
    ):
        field = DataField(id=0, name="h", type=parse_type("STRING"))
        catalog.create_view(f"db.v{number}", View(fields=(field,), query=query, dialects={}))
        with pytest.raises(SqlError):
            catalog.sql(f"SELECT * FROM db.v{number}")


@pytest.mark.parametrize("key", [True, False])
def test_merge_reads_files_that_may_have_partners(tmp_path: pathlib.Path, key: bool) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    session = SqlSession(FileSystemCatalog(str(tmp_path), store))
    primary = "'primary-key' = 'p,k', 'bucket' = '1', " if key else ""
    list(
        session.execute(
            "CREATE TABLE t (p STRING, k INT, v STRING) PARTITIONED BY (p)"
            f" WITH ({primary}'write-only' = 'true')"
        )
    )
    for number in range(6):
        rows = ", ".join(f"('{p}', {10 * number + one}, 'old')" for p in "ab" for one in (0, 1))
        list(session.execute(f"INSERT INTO t VALUES {rows}"))

    def opened(text: str) -> tuple[int | None, int]:
        store.operations.clear()
        (result,) = session.execute(text)
        return result.affected, len(
            {path for kind, path in store.operations if "bucket-" in path and "open" in kind}
        )

    source = "(SELECT CAST('20' AS BIGINT) AS k, 'a' AS p UNION ALL SELECT 22, 'a')"
    merge = "MERGE INTO t USING {} AS s ON t.k = s.k AND s.p = t.p"
    merge += " WHEN MATCHED THEN UPDATE SET v = 'new'"
    changed, files = opened(
        merge.format(source) + " WHEN NOT MATCHED THEN INSERT (k, p) VALUES (s.k, s.p)"
    )
    assert (changed, files <= 3) == (2, True)
    assert opened(merge.format("(SELECT 1 AS k, 'a' AS p WHERE FALSE)")) == (0, 0)
    everything = merge.format(source) + " WHEN NOT MATCHED BY SOURCE THEN DELETE"
    assert opened(everything)[1] >= 12
    found = session.last_rows("SELECT k, v FROM t ORDER BY k").to_pylist()
    assert found == [{"k": 20, "v": "new"}, {"k": 22, "v": "new"}]


def test_secrets_among_options_are_not_shown(session) -> None:
    catalog = session.catalog
    catalog.alter_table("db.t", [SetOption("fs.s3a.secret.key", "hunter2")])
    for text in ("SELECT * FROM t$options", "SELECT options FROM t$schemas", "SHOW CREATE TABLE t"):
        shown = str(session.last_rows(text).to_pylist())
        assert "hunter2" not in shown
        assert "secret" in shown
    created = session.last_rows("SHOW CREATE TABLE t").column(0)[0].as_py()
    for text in (
        created.replace("`t`", "`u`"),
        "ALTER TABLE t SET ('fs.s3a.secret.key' = '********')",
        "CREATE DATABASE e WITH DBPROPERTIES ('secret' = '********')",
        "CREATE CATALOG c WITH ('metastore' = 'jdbc', 'uri' = 'postgresql://me:********@h/c')",
    ):
        with pytest.raises(InvalidOptionError, match="write the true value"):
            list(session.execute(text))


def test_a_key_opens_one_file(tmp_path: pathlib.Path, session) -> None:
    store = FaultyFileIO(LocalFileIO(durable=False))
    counted = SqlSession(FileSystemCatalog(str(tmp_path), store), "db")
    (result,) = counted.execute("SELECT v FROM t WHERE k = 21")
    assert result.rows.to_pylist() == [{"v": "v1"}]
    opened = {path for kind, path in store.operations if "bucket-" in path and "open" in kind}
    assert len(opened) == 1


def test_rows_come_batch_by_batch(session) -> None:
    with session.query(parse_query("SELECT k FROM t ORDER BY k")) as reader:
        assert reader.schema == pa.schema([pa.field("k", pa.int64())])
        assert sum(batch.num_rows for batch in reader) == 12
    assert session.rows_read == 12


def test_a_relation_is_read_as_often_as_it_is_needed(session) -> None:
    text = "WITH a AS (SELECT k FROM t) SELECT count(*) AS c FROM a x, a y WHERE x.k = y.k"
    assert session.last_rows(text).to_pylist() == [{"c": 12}]


def test_the_error_of_a_scan_is_raised_as_it_is(session, tmp_path: pathlib.Path) -> None:
    for path in tmp_path.rglob("data-*.parquet"):
        path.unlink()
    with pytest.raises(Exception, match=r"data-.*parquet") as raised:
        session.last_rows("SELECT * FROM t")
    assert not isinstance(raised.value, duckdb.Error | SqlError)


def test_a_query_that_fails_before_its_rows_end_says_why(session) -> None:
    class Endless:
        schema = pa.schema([("v", pa.string())])

        def to_batches(self):
            while True:
                yield pa.record_batch({"v": ["no number"] * 10_000})

    text = "SELECT sum(CAST(v AS INT)) FROM r"
    with pytest.raises(SqlError, match="the query cannot run"):
        engine.run(engine.connect(), text, {"r": Endless()}, parse_query(text)).read_all()


def test_a_query_that_fails_after_its_first_rows_says_why() -> None:
    class Rows:
        schema = pa.schema([("v", pa.string())])

        def to_batches(self):
            for _ in range(200):
                yield pa.record_batch({"v": ["1"] * 10_000})
            yield pa.record_batch({"v": ["no number"]})

    text = "SELECT CAST(v AS INT) AS v FROM r"
    reader = engine.run(engine.connect(), text, {"r": Rows()}, parse_query(text))
    assert reader.read_next_batch().num_rows
    with pytest.raises(SqlError, match="Could not convert string 'no number'"):
        reader.read_all()


def test_a_query_is_cancelled_from_another_thread(session) -> None:
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(0.3):  # on a busy machine the first one may come before the query
            session.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    slow = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 1"
    with pytest.raises(SqlError, match="cancelled"):
        session.last_rows(slow)
    done.set()
    thread.join()
    assert session.last_rows("SELECT 1 AS x").to_pylist() == [{"x": 1}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/lakeward-copied'",
        "ATTACH '/tmp/lakeward-attached'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SELECT * FROM rows_of_python",
        "CREATE SECRET (TYPE s3)",
    ],
)
def test_duckdb_itself_reaches_nothing(text: str) -> None:
    """Behind the dialect, which refuses most of this, stands an engine that cannot do it."""
    rows_of_python = pa.table({"x": [1]})
    assert rows_of_python.num_rows == 1
    connection = engine.connect()
    with pytest.raises(duckdb.Error):
        connection.execute(text).fetchall()
    connection.close()


def test_statements_before_a_wrong_one_have_run(session) -> None:
    results = session.execute("SET 'a' = 'b'; SELEC 1")
    next(results)
    with pytest.raises(SqlError) as raised:
        next(results)
    assert (raised.value.line, raised.value.column) == (1, 16)
    assert session.options == {"a": "b"}
    assert pickle.loads(pickle.dumps(raised.value)).line == 1


def test_positions_count_over_all_statements(session) -> None:
    with pytest.raises(NotFoundError) as raised:
        session.last_rows("SELECT 1;\n\nSELECT *\n  FROM nope")
    assert (raised.value.context["line"], raised.value.context["column"]) == (4, 8)


def test_statements_are_split_at_semicolons_outside_texts() -> None:
    found = [one.text for one in statements("SELECT ';'; -- a;b\nSELECT `x;y` /* ; */;;")]
    assert found == ["SELECT ';'", "SELECT `x;y`"]


def test_nanoseconds_of_a_literal_stay(session: SqlSession) -> None:
    instant = "TIMESTAMP '2024-01-01 00:00:00.123456789'"
    text = (
        "CREATE TABLE times (a TIMESTAMP(9), b TIMESTAMP(6), c TIMESTAMP_LTZ(9));"
        f"INSERT INTO times VALUES ({instant}, {instant}, {instant});"
        f"INSERT INTO times (a) SELECT {instant};"
        f"SELECT CAST(a AS STRING), CAST(b AS STRING) FROM times WHERE a = {instant}"
    )
    *_, result = session.execute(text)
    assert result.rows is not None
    first, second = result.rows.to_pydict().values()
    assert first == ["2024-01-01 00:00:00.123456789"] * 2
    assert sorted(second, key=str) == ["2024-01-01 00:00:00.123456", None]


def test_a_query_runs_over_given_rows(session) -> None:
    rows = pa.table({"k": [1, 2], "v": ["a", "b"]})
    found = query_rows(session, parse_query("SELECT v FROM anything WHERE k > 1"), rows)
    assert found.to_pylist() == [{"v": "b"}]


def test_sql_of_a_catalog(tmp_path: pathlib.Path, session) -> None:
    assert session.catalog.sql("SELECT max(k) AS m FROM db.t").to_pylist() == [{"m": 32}]
    assert session.catalog.sql("SET 'a' = 'b'").to_pylist() == [{"affected": 0}]
    assert session.catalog.sql("SELECT count(*) AS c FROM t", "db").to_pylist() == [{"c": 12}]


def test_columns_that_differ_by_case_are_refused(tmp_path: pathlib.Path) -> None:
    make_table(tmp_path, columns=(("k", "BIGINT"), ("K", "STRING")))
    session = SqlSession(FileSystemCatalog(str(tmp_path)), "db")
    with pytest.raises(SqlError, match="differ only in letter case"):
        session.last_rows("SELECT k FROM t")


def test_a_source_that_is_closed_early_has_not_failed() -> None:
    class Rows:
        schema = pa.schema([("a", pa.int32())])

        def to_batches(self):
            yield pa.record_batch({"a": pa.array([1], pa.int32())})
            yield pa.record_batch({"a": pa.array([2], pa.int32())})

    failed: list[BaseException] = []
    batches = engine._Source(Rows(), failed, lambda count: None)._batches()
    next(batches)
    batches.close()
    assert not failed


def test_local_times_become_instants_in_the_zone_of_the_machine(session: SqlSession) -> None:
    list(session.execute("CREATE TABLE z (a TIMESTAMP_LTZ(3), b ARRAY<TIMESTAMP_LTZ(3)>)"))
    local = "TIMESTAMP '2024-01-01 00:00:00'"
    list(session.execute(f"INSERT INTO z VALUES ({local}, ARRAY[{local}])"))
    (result,) = session.execute(f"SELECT count(*) FROM z WHERE a = {local} AND b[0] = {local}")
    assert result.rows is not None
    assert result.rows.column(0).to_pylist() == [1]
