# SPDX-License-Identifier: Apache-2.0
"""Statements on definitions: what a failure or a race leaves, and which secrets are shown."""

import pathlib

import pyarrow as pa
import pytest

from storage.catalog.catalog import Catalog
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    StorageUnavailableError,
)
from storage.sql.errors import SqlError
from storage.sql.session import SqlSession
from tests.catalog_service import TOKEN, catalog_service


@pytest.fixture
def catalog(tmp_path: pathlib.Path) -> Catalog:
    opened = Catalog.open(
        str(tmp_path / "warehouse"),
        {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"},
    )
    opened.create_database("db")
    return opened


def test_a_table_that_another_one_made_meanwhile_is_left_alone(catalog, monkeypatch) -> None:
    """CREATE TABLE IF NOT EXISTS … AS neither fills nor drops a table that is not its own."""
    catalog.sql("CREATE TABLE db.t AS SELECT 1 AS k")
    answers = iter([False])  # the first look comes before the other one's table
    exists = catalog.exists
    monkeypatch.setattr(
        catalog, "exists", lambda name: next(answers, None) is None and exists(name)
    )
    catalog.sql("CREATE TABLE IF NOT EXISTS db.t AS SELECT 2 AS k", "db")
    monkeypatch.undo()
    assert catalog.sql("SELECT k FROM db.t").to_pylist() == [{"k": 1}]


def test_a_view_stays_when_another_one_cannot_take_its_place(catalog, monkeypatch) -> None:
    catalog.sql("CREATE VIEW db.v AS SELECT 1 AS k")

    def fails(*_arguments: object, **_named: object) -> None:
        raise StorageUnavailableError("away")

    monkeypatch.setattr(catalog, "create_view", fails)
    monkeypatch.setattr(catalog, "alter_view", fails)
    with pytest.raises(StorageUnavailableError):
        catalog.sql("CREATE OR REPLACE VIEW db.v AS SELECT 2 AS k")
    monkeypatch.undo()
    assert catalog.sql("SELECT k FROM db.v").to_pylist() == [{"k": 1}]
    catalog.sql("CREATE OR REPLACE VIEW db.v AS SELECT 3 AS k")
    assert catalog.sql("SELECT k FROM db.v").to_pylist() == [{"k": 3}]


def test_a_view_of_a_rest_catalog_is_replaced_or_stays(tmp_path, monkeypatch) -> None:
    served = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/served.db"}
    with catalog_service(str(tmp_path), served) as server:
        options = {"metastore": "rest", "uri": server.uri, "token": TOKEN}
        catalog = Catalog.open(str(tmp_path), options)
        catalog.create_database("db")
        catalog.sql("CREATE VIEW db.v AS SELECT 1 AS k")
        catalog.sql("CREATE OR REPLACE VIEW db.v AS SELECT 2 AS k")
        create, answers = catalog.create_view, iter([StorageUnavailableError("away")])

        def once(*arguments: object) -> None:
            if (error := next(answers, None)) is not None:
                raise error
            create(*arguments)

        monkeypatch.setattr(catalog, "create_view", once)
        with pytest.raises(StorageUnavailableError):
            catalog.sql("CREATE OR REPLACE VIEW db.v AS SELECT 3 AS k")
        assert catalog.sql("SELECT k FROM db.v").to_pylist() == [{"k": 2}]


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
def test_a_name_in_another_catalog_is_refused(catalog, tmp_path, kind) -> None:
    session = SqlSession(catalog, "db")
    session.catalogs["other"] = Catalog.open(str(tmp_path / "other"))
    list(session.execute("CREATE TABLE o (k INT); CREATE VIEW v AS SELECT k FROM o"))
    name = "o" if kind == "TABLE" else "v"
    with pytest.raises(SqlError, match="cannot be moved to another catalog"):
        list(session.execute(f"ALTER {kind} {name} RENAME TO other.db.x"))
    assert (catalog.list_tables("db"), catalog.list_views("db")) == (["o"], ["v"])
    list(session.execute(f"ALTER {kind} {name} RENAME TO paimon.db.x"))
    assert "x" in catalog.list_tables("db") + catalog.list_views("db")


def texts(rows: pa.Table) -> str:
    return str(rows.to_pylist())


def test_secrets_are_starred_and_keys_of_tables_are_not(tmp_path) -> None:
    catalog = Catalog.open(
        str(tmp_path / "warehouse"),
        {
            "metastore": "jdbc",
            "uri": f"jdbc:sqlite:{tmp_path}/catalog.db?password=pa55word",
            "catalog-key": "lake",
        },
    )
    session = SqlSession(catalog, "db")
    catalog.create_database("db", properties={"owner-token": "t0ken"})
    options = "'bucket' = '2', 'bucket-key' = 'k', 's3.secret-key' = 'pa55word'"
    list(session.execute(f"CREATE TABLE t (k INT) WITH ({options})"))
    for statement in (
        "DESCRIBE CATALOG paimon",
        "SHOW CREATE CATALOG paimon",
        "SELECT * FROM sys.catalog_options",
        "DESCRIBE DATABASE db",
        "SHOW CREATE DATABASE db",
        "SHOW CREATE TABLE t",
        "SHOW TBLPROPERTIES t",
        "DESCRIBE EXTENDED t",
        "SELECT * FROM sys.all_table_options",
    ):
        (result,) = session.execute(statement)
        assert "pa55word" not in texts(result.rows), statement
        assert "t0ken" not in texts(result.rows), statement
        if statement.endswith(" t"):
            assert "bucket-key" in texts(result.rows)
    (created,) = session.execute("SHOW CREATE TABLE t")
    assert "'bucket-key' = 'k'" in created.rows.column(0)[0].as_py()
    (shown,) = session.execute("DESCRIBE CATALOG paimon")
    assert {"key": "catalog-key", "value": "lake"} in shown.rows.to_pylist()


@pytest.mark.parametrize(
    "options",
    [
        {"metastore": "jdbc", "uri": "postgresql://reader:pa55word@host/catalog"},
        {"metastore": "rest", "uri": "http://reader:pa55word@127.0.0.1:1"},
    ],
)
def test_an_error_shows_no_credentials_of_an_address(tmp_path, options) -> None:
    with pytest.raises((InvalidOptionError, NotFoundError, InvalidRequestError)) as caught:
        Catalog.open(str(tmp_path), options)
    error = caught.value
    assert "pa55word" not in f"{error} {error.detail} {error.hint} {error.context}"
