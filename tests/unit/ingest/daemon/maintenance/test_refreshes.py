# SPDX-License-Identifier: Apache-2.0
import pathlib

import pytest

from ingest.daemon.maintenance import REFRESH_EVERY_S, MaterializedRefresh
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.sql.session import SqlSession
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, write

CREATE = """CREATE MATERIALIZED TABLE sums FRESHNESS = INTERVAL '1' MINUTE
AS SELECT COUNT(*) AS n FROM t"""


@pytest.fixture
def source(tmp_path: pathlib.Path) -> FileStoreTable:
    return make_table(tmp_path, clock=ManualClock(1_700_000_000_000))


def catalog_of(source: FileStoreTable) -> FileSystemCatalog:
    warehouse = str(pathlib.Path(source.layout.root).parent.parent)
    return FileSystemCatalog(warehouse, source.file_io, clock=source.clock)


def test_what_is_due_is_refreshed(source: FileStoreTable) -> None:
    catalog = catalog_of(source)
    list(SqlSession(catalog, "db").execute(CREATE))
    refreshes = MaterializedRefresh(catalog, source.clock)
    assert not refreshes.due()
    write(source, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    source.clock.advance(int(REFRESH_EVERY_S * 1000))
    assert refreshes.due()
    assert not refreshes.due()
    source.clock.advance(60_000)
    assert refreshes.run() == {"db.sums": 1}
    assert catalog.table("db.sums").to_arrow()["n"].to_pylist() == [2]
    assert refreshes.run() == {}


def test_a_failing_table_does_not_stop_others(
    source: FileStoreTable, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of(source)
    session = SqlSession(catalog, "db")
    list(session.execute(CREATE.replace("sums", "a")))
    list(session.execute(CREATE.replace("sums", "b")))
    broken = catalog.table("db.a")
    options = {**broken.schema.options}
    key = "materialized-table.definition-query"
    path = pathlib.Path(broken.layout.schema_file(0))
    path.write_text(path.read_text().replace(options[key], "SELECT 1 AS n FROM db.missing"))
    source.clock.advance(120_000)
    assert MaterializedRefresh(catalog_of(source), source.clock).run() == {"db.b": 1}
    assert "could not be refreshed" in caplog.text


def test_a_search_that_failed_is_repeated_by_the_next_pass(
    source: FileStoreTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = catalog_of(source)
    list(SqlSession(catalog, "db").execute(CREATE))
    refreshes = MaterializedRefresh(catalog, source.clock)
    source.clock.advance(120_000)
    with monkeypatch.context() as outage:
        outage.setattr(FileSystemCatalog, "list_databases", _unavailable)
        assert refreshes.run() == {}
    assert "retrying later" in caplog.text
    assert refreshes.run() == {"db.sums": 1}


def _unavailable(catalog: FileSystemCatalog) -> list[str]:
    raise StorageUnavailableError("the store does not answer")
