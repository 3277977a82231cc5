# SPDX-License-Identifier: Apache-2.0
import itertools
import pathlib
import random

import pyarrow as pa
import pytest

from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.sql.ddl import complete_text
from storage.sql.materialized import refresh_due
from storage.sql.session import SqlSession
from storage.table.table import FileStoreTable
from tests.table_kit import write

START_MS = 1_704_067_200_000  # 2024-01-01 00:00:00
MINUTE_MS = 60_000
NUMBERS = itertools.count(1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def session(tmp_path: pathlib.Path, clock: ManualClock) -> SqlSession:
    catalog = FileSystemCatalog(
        str(tmp_path), LocalFileIO(durable=False), clock=clock, ids=SeededIds(0)
    )
    columns = [("id", "BIGINT"), ("dt", "STRING"), ("hh", "STRING"), ("amount", "INT")]
    schema = new_schema(
        [(name, parse_type(text)) for name, text in columns],
        primary_keys=["id"],
        options={"bucket": "1"},
        now_ms=0,
    )
    catalog.create_table("shop.orders", schema)
    return SqlSession(catalog, database="shop")


def put(session: SqlSession, *rows: tuple[object, ...]) -> None:
    write(session.catalog.table("shop.orders"), next(NUMBERS), [["+I", *row] for row in rows])


def run(session: SqlSession, text: str) -> int | pa.Table | None:
    (result,) = session.execute(text)
    return result.rows if result.rows is not None else result.affected


def rows(session: SqlSession, query: str) -> list[dict[str, object]]:
    found = run(session, query)
    assert isinstance(found, pa.Table)
    return sorted(found.to_pylist(), key=str)


def table_of(session: SqlSession, name: str = "shop.sums") -> FileStoreTable:
    return session.catalog.table(name)


SUMS = "SELECT dt, hh, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY dt, hh"
CREATE = f"CREATE MATERIALIZED TABLE sums FRESHNESS = INTERVAL '10' MINUTE AS {SUMS}"


def snapshots(session: SqlSession, name: str = "shop.sums") -> int:
    return len(table_of(session, name).snapshots.ids())


def test_metadata_is_as_paimon_keeps_it(session: SqlSession) -> None:
    run(session, CREATE)
    options = table_of(session).schema.options
    assert {key: value for key, value in options.items() if key != "bucket"} == {
        "type": "materialized-table",
        "materialized-table.definition-query": SUMS.replace("orders", "`shop`.orders"),
        "materialized-table.interval-freshness": "10",
        "materialized-table.interval-freshness.time-unit": "MINUTE",
        "materialized-table.logical-refresh-mode": "AUTOMATIC",
        "materialized-table.refresh-mode": "FULL",
        "materialized-table.refresh-status": "ACTIVATED",
    }
    assert list(session.catalog.tables_of_type("materialized-table")) == ["shop.sums"]


def test_over_an_hour_the_table_equals_its_query_at_every_refresh(
    session: SqlSession, clock: ManualClock
) -> None:
    put(session, (0, "2024-01-01", "00", 5))
    assert run(session, CREATE) == 1
    rng, refreshes, next_id = random.Random(7), 0, 1
    for _ in range(60):
        clock.advance(MINUTE_MS)
        for _ in range(rng.randrange(4)):
            # new orders, and changes of earlier ones
            key = next_id if rng.random() < 0.7 else rng.randrange(next_id)
            next_id = max(next_id, key + 1)
            put(session, (key, "2024-01-01", f"{rng.randrange(3):02}", rng.randrange(100)))
        before = snapshots(session)
        written = refresh_due(session.catalog, "shop.sums")
        if written is None:
            assert snapshots(session) == before
            continue
        refreshes += 1
        assert snapshots(session) == before + 1
        found = rows(session, "SELECT * FROM sums")
        assert found == rows(session, SUMS)
        assert written == len(found)
    assert refreshes == 6


def test_partitions_are_refreshed_by_the_clock(session: SqlSession, clock: ManualClock) -> None:
    run(
        session,
        "CREATE MATERIALIZED TABLE sums PARTITIONED BY (dt, hh) WITH ("
        "'partition.fields.dt.date-formatter' = 'yyyy-MM-dd',"
        " 'partition.fields.hh.date-formatter' = 'HH')"
        f" FRESHNESS = INTERVAL '1' HOUR AS {SUMS}",
    )
    number = 0
    for hour in range(5):
        for _ in range(3):
            number += 1
            put(session, (number, "2024-01-01", f"{hour:02}", number))
        put(session, (100 + hour, "2023-12-31", "07", 1))  # late: of a partition that is over
        clock.advance(60 * MINUTE_MS)
        before = snapshots(session)
        assert refresh_due(session.catalog, "shop.sums") == 1
        assert snapshots(session) == before + 1
        done = f"dt = '2024-01-01' AND hh = '{hour:02}'"
        assert rows(session, f"SELECT * FROM sums WHERE {done}") == rows(
            session, f"SELECT * FROM ({SUMS}) WHERE {done}"
        )
        assert rows(session, "SELECT * FROM sums WHERE dt = '2023-12-31'") == []
    assert run(session, "ALTER MATERIALIZED TABLE sums REFRESH PARTITION (dt = '2023-12-31')") == 1
    assert rows(session, "SELECT * FROM sums") == rows(session, SUMS)


def test_missed_periods_are_made_up_for(session: SqlSession, clock: ManualClock) -> None:
    run(
        session,
        "CREATE MATERIALIZED TABLE sums PARTITIONED BY (hh)"
        " WITH ('partition.fields.hh.date-formatter' = 'HH')"
        f" FRESHNESS = INTERVAL '30' MINUTE AS {SUMS}",
    )
    put(session, *[(hour, "2024-01-01", f"{hour:02}", hour) for hour in range(3)])
    clock.advance(3 * 60 * MINUTE_MS)
    before = snapshots(session)
    assert refresh_due(session.catalog, "shop.sums") == 3
    assert snapshots(session) == before + 3
    assert rows(session, "SELECT * FROM sums") == rows(session, SUMS)
    assert refresh_due(session.catalog, "shop.sums") is None


def test_suspend_and_resume(session: SqlSession, clock: ManualClock) -> None:
    run(session, CREATE)
    run(session, "ALTER MATERIALIZED TABLE sums SUSPEND")
    clock.advance(60 * MINUTE_MS)
    put(session, (1, "2024-01-01", "00", 1))
    assert refresh_due(session.catalog, "shop.sums") is None
    with pytest.raises(InvalidRequestError, match="suspended already"):
        run(session, "ALTER MATERIALIZED TABLE sums SUSPEND")
    run(session, "ALTER MATERIALIZED TABLE sums RESUME WITH ('snapshot.num-retained.max' = '20')")
    assert table_of(session).schema.options["snapshot.num-retained.max"] == "20"
    assert refresh_due(session.catalog, "shop.sums") == 1
    with pytest.raises(InvalidRequestError, match="by the clock already"):
        run(session, "ALTER MATERIALIZED TABLE sums RESUME")


def test_refresh_by_hand(session: SqlSession) -> None:
    run(session, CREATE)
    put(session, (1, "2024-01-01", "00", 1), (2, "2024-01-01", "01", 1))
    assert run(session, "ALTER MATERIALIZED TABLE sums REFRESH") == 2
    with pytest.raises(InvalidRequestError, match="no such partition column"):
        run(session, "ALTER MATERIALIZED TABLE sums REFRESH PARTITION (dt = 'x')")


def test_another_query(session: SqlSession) -> None:
    run(session, CREATE)
    put(session, (1, "2024-01-01", "00", 3))
    query = SUMS.replace(" FROM", ", MAX(amount) AS top FROM")
    run(session, f"ALTER MATERIALIZED TABLE sums AS {query}")
    run(session, "ALTER MATERIALIZED TABLE sums REFRESH")
    assert rows(session, "SELECT * FROM sums") == rows(session, query)
    with pytest.raises(InvalidRequestError, match="changes a column"):
        run(session, "ALTER MATERIALIZED TABLE sums AS SELECT hh, dt FROM orders")
    with pytest.raises(InvalidRequestError, match="lacks a column"):
        run(session, "ALTER MATERIALIZED TABLE sums AS SELECT dt, hh FROM orders")


def test_a_primary_key(session: SqlSession) -> None:
    put(session, (1, "2024-01-01", "00", 1), (2, "2024-01-01", "01", 1))
    statement = CREATE.replace("sums", "sums (PRIMARY KEY (dt, hh) NOT ENFORCED)", 1)
    assert run(session, statement.replace("FRESHNESS", "WITH ('bucket' = '1') FRESHNESS")) == 2
    put(session, (3, "2024-01-01", "00", 5))
    run(session, "ALTER MATERIALIZED TABLE sums REFRESH")
    assert rows(session, "SELECT * FROM sums") == rows(session, SUMS)


@pytest.mark.parametrize(
    ("statement", "kind", "message"),
    [
        (
            CREATE.replace(" AS S", " REFRESH_MODE = CONTINUOUS AS S"),
            UnsupportedFeatureError,
            "CON",
        ),
        (CREATE.replace("'10'", "'0'"), InvalidRequestError, "positive"),
        (CREATE.replace("'10'", "'ten'"), InvalidRequestError, "invalid freshness"),
        (CREATE.replace("MINUTE", "MONTH"), InvalidRequestError, "invalid freshness"),
        (CREATE.partition(" AS ")[0], InvalidRequestError, "needs a query"),
        (CREATE.replace("amount", "price"), InvalidRequestError, "price"),
        (
            CREATE.replace("FRESH", "WITH ('partition.fields.dt.date-formatter'='yyyy') FRESH"),
            InvalidOptionError,
            "partition column",
        ),
    ],
)
def test_a_refused_statement_leaves_no_table(
    session: SqlSession, statement: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        run(session, statement)
    assert session.catalog.list_tables("shop") == ["orders"]


def test_a_failing_refresh_leaves_the_table(session: SqlSession) -> None:
    put(session, (1, "2024-01-01", "00", 1))
    run(session, CREATE)
    before = table_of(session).to_arrow()
    session.catalog.drop_table("shop.orders")
    with pytest.raises(LookupError):
        run(session, "ALTER MATERIALIZED TABLE sums REFRESH")
    assert table_of(session).to_arrow() == before
    assert snapshots(session) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM a JOIN b.c ON x = y", "SELECT * FROM `shop`.a JOIN b.c ON x = y"),
        ("SELECT * FROM paimon.shop.a", "SELECT * FROM shop.a"),
        ("WITH a AS (SELECT 1 AS x FROM t) SELECT * FROM a", None),
        ("SELECT (SELECT max(x) FROM `my t`) AS m FROM a", None),
    ],
)
def test_names_are_completed(session: SqlSession, text: str, expected: str | None) -> None:
    if expected is None:
        expected = text.replace("FROM t", "FROM `shop`.t").replace("`my", "`shop`.`my")
        expected = expected.replace("AS m FROM a", "AS m FROM `shop`.a")
    assert complete_text(session, text) == expected


def test_tables_of_other_catalogs_are_refused(session: SqlSession) -> None:
    with pytest.raises(InvalidRequestError, match="own catalog"):
        complete_text(session, "SELECT * FROM other.shop.a", own_catalog=True)
