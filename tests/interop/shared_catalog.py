# SPDX-License-Identifier: Apache-2.0
"""What holds of every catalog that Java's implementation and ours share."""

import concurrent.futures
from collections.abc import Mapping

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import DataField, parse_type
from tests.interop.java_peer import JavaPeer
from tests.table_kit import rows_of, write

INT = parse_type("INT")


def schema(**options: str) -> TableSchema:
    """Columns `k`, the key, and `v`."""
    columns = [("k", INT), ("v", INT)]
    return new_schema(columns, primary_keys=["k"], options={"bucket": "1", **options})


def check_java_follows(
    java: JavaPeer,
    catalog: Catalog,
    properties: Mapping[str, str],
    added: Mapping[str, str] | None = None,
) -> None:
    """Java sees, changes and drops what we make, and we what it changed.

    Args:
        properties: of the database.
        added: properties that the catalog adds; None: any.
    """
    catalog.create_database("ours", properties=dict(properties))
    write(catalog.create_table("ours.t", schema()), 1, [("+I", 1, 10)])
    assert "ours" in java.databases()
    found = java.properties("ours")
    assert found == {**(found if added is None else added), **properties}
    assert java.names("ours") == ["t"]
    java.alter("ours.t", [AddColumn("w", INT)])
    java.write("ours.t", [("+I", (2, 20, 200))])
    assert rows_of(catalog.table("ours.t")) == [(1, 10, None), (2, 20, 200)]
    java.rename("ours.t", "ours.u")
    assert catalog.list_tables("ours") == ["u"]
    write(catalog.table("ours.u"), 2, [("+I", 3, 30, 300)])
    assert _keys(java, "ours.u") == [1, 2, 3]
    catalog.alter_table("ours.u", [AddColumn("x", INT)])
    assert [field.name for field in java.fields("ours.u")] == ["k", "v", "w", "x"]
    catalog.rename_table("ours.u", "ours.v")
    assert java.names("ours") == ["v"]
    assert _keys(java, "ours.v") == [1, 2, 3]
    java.drop("ours.v")
    assert catalog.list_tables("ours") == []
    catalog.drop_database("ours")
    assert "ours" not in java.databases()


def check_we_follow(java: JavaPeer, catalog: Catalog) -> None:
    """We see and drop what Java makes; nothing of a dropped table is left."""
    java.create("db.java", schema())
    java.write("db.java", [("+I", (1, 10))])
    assert "db" in catalog.list_databases()
    assert catalog.exists("db.java")
    assert rows_of(catalog.table("db.java")) == [(1, 10)]
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.create_table("db.java", schema())
    catalog.drop_table("db.java")
    assert "java" not in java.names("db")
    java.create("db.java", schema())
    assert rows_of(catalog.table("db.java")) == []
    catalog.drop_table("db.java")


def check_views(java: JavaPeer, catalog: Catalog, dialects: Mapping[str, str]) -> None:
    """Each reads the views of the other.

    Args:
        dialects: those of a view with a query for Flink that Java reads.
    """
    field = DataField(id=0, name="k", type=INT)
    view = View((field,), "select k from t", {"flink": "select `k` from t"}, "what for")
    catalog.create_view("db.ours", view)
    assert java.view("db.ours") == (view.query, dialects, ["k"])
    java.create_view("db.theirs", "select 3 as k")
    assert catalog.view("db.theirs").query == "select 3 as k"
    assert catalog.list_views("db") == ["ours", "theirs"]
    for name in ("ours", "theirs"):
        catalog.drop_view(f"db.{name}")


def check_commits_at_once(java: JavaPeer, catalog: Catalog) -> None:
    """Both append to one table at the same time; nothing is lost."""
    table = catalog.create_table("db.both", schema())
    numbers = range(1, 9)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        writing = [
            pool.submit(
                lambda: [write(table, n, [("+I", n, n)], compaction=False) for n in numbers]
            ),
            pool.submit(
                lambda: [
                    java.write("db.both", [("+I", (100 + n, n))], compaction=False) for n in numbers
                ]
            ),
        ]
    for each in writing:
        each.result()
    keys = [row[0] for row in rows_of(catalog.table("db.both"))]
    assert sorted(keys) == [*numbers, *(100 + n for n in numbers)]
    catalog.drop_table("db.both")


def _keys(java: JavaPeer, name: str) -> list[int]:
    return sorted(java.read(name).to_pydict()["k"])
