# SPDX-License-Identifier: Apache-2.0
"""One JDBC catalog that Java's JdbcCatalog, pypaimon's and ours share."""

import concurrent.futures
import pathlib
import subprocess

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataField
from tests.e2e.postgres_server import USER, postgres
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import missing, peers_python
from tests.table_kit import rows_of, write

pytestmark = pytest.mark.interop

INT = parse_type("INT")
PYPAIMON = """
import sys
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import DataField, AtomicType
catalog = CatalogFactory.create(dict(pair.split("=", 1) for pair in sys.argv[1:]))
builder = catalog.get_table("db.t").new_read_builder()
rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
print(sorted(catalog.list_tables("db")), sorted(rows.to_pydict()["k"]))
catalog.create_table("db.by_python", Schema(
    [DataField(0, "k", AtomicType("INT"))], [], [], {"bucket": "-1"}, None), False)
"""


def schema():
    return new_schema([("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1"})


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def shared(request, tmp_path_factory):
    """Java, our catalog, and the options of both."""
    scratch = tmp_path_factory.mktemp("jdbc")
    warehouse = scratch / "warehouse"
    try:
        driver = artifacts.SQLITE_JDBC if request.param == "sqlite" else artifacts.POSTGRES_JDBC
        jars = [artifacts.jar(driver, fetch=False)]
        artifacts.jar(artifacts.CORE, fetch=False)
    except artifacts.ArtifactUnavailableError as error:
        missing(str(error))
    options = {"metastore": "jdbc", "lock.enabled": "true", "lock-check-max-sleep": "100 ms"}

    def opened(more):
        with JavaPeer.running(warehouse, catalog={**options, **more}, jars=jars) as java:
            yield java, Catalog.open(str(warehouse), {**options, **more}), {**options, **more}

    if request.param == "sqlite":
        yield from opened({"uri": f"jdbc:sqlite:{scratch}/catalog.db"})
        return
    with postgres() as server:
        uri = f"jdbc:postgresql://{server.host}:{server.port}/{server.database}"
        yield from opened({"uri": uri, "jdbc.user": USER, "jdbc.password": "none"})


def test_java_sees_and_changes_what_we_make(shared):
    java, catalog, _ = shared
    catalog.create_database("ours", properties={"owner": "us"})
    write(catalog.create_table("ours.t", schema()), 1, [("+I", 1, 10)])
    assert "ours" in java.databases()
    assert java.properties("ours")["owner"] == "us"
    assert java.names("ours") == ["t"]
    java.alter("ours.t", [AddColumn("w", INT)])
    java.write("ours.t", [("+I", (2, 20, 200))])
    assert rows_of(catalog.table("ours.t")) == [(1, 10, None), (2, 20, 200)]
    java.rename("ours.t", "ours.u")
    assert catalog.list_tables("ours") == ["u"]
    write(catalog.table("ours.u"), 2, [("+I", 3, 30, 300)])
    assert sorted(java.read("ours.u").to_pydict()["k"]) == [1, 2, 3]
    catalog.alter_table("ours.u", [AddColumn("x", INT)])
    assert [field.name for field in java.fields("ours.u")] == ["k", "v", "w", "x"]
    catalog.rename_table("ours.u", "ours.v")
    assert java.names("ours") == ["v"]
    java.drop("ours.v")
    assert catalog.list_tables("ours") == []
    catalog.drop_database("ours")
    assert "ours" not in java.databases()


def test_we_see_and_change_what_java_makes(shared):
    java, catalog, _ = shared
    java.create("db.java", schema())
    java.write("db.java", [("+I", (1, 10))])
    assert "db" in catalog.list_databases()
    assert catalog.exists("db.java")
    assert rows_of(catalog.table("db.java")) == [(1, 10)]
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.create_table("db.java", schema())
    catalog.drop_table("db.java")
    assert "java" not in java.names("db")
    java.create("db.java", schema())  # nothing of the old one is left
    assert rows_of(catalog.table("db.java")) == []
    catalog.drop_table("db.java")


def test_views_of_both(shared):
    java, catalog, _ = shared
    view = View(
        (DataField(id=0, name="k", type=INT),),
        "select k from t",
        {"flink": "select `k` from t"},
        "what for",
    )
    catalog.create_view("db.ours", view)
    query, dialects, columns = java.view("db.ours")
    assert (query, dialects, columns) == (view.query, dict(view.dialects), ["k"])
    java.create_view("db.theirs", "select 1 as k")
    assert catalog.view("db.theirs").query == "select 1 as k"
    assert catalog.list_views("db") == ["ours", "theirs"]
    for name in ("ours", "theirs"):
        catalog.drop_view(f"db.{name}")


def test_both_commit_at_once_under_one_lock(shared):
    java, catalog, _ = shared
    catalog.create_table("db.both", schema())
    table = catalog.table("db.both")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.submit(
            lambda: [write(table, n, [("+I", n, n)], compaction=False) for n in range(1, 9)]
        )
        theirs = pool.submit(
            lambda: [
                java.write("db.both", [("+I", (100 + n, n))], compaction=False) for n in range(1, 9)
            ]
        )
        ours.result()
        theirs.result()
    keys = [row[0] for row in rows_of(catalog.table("db.both"))]
    assert sorted(keys) == [*range(1, 9), *range(101, 109)]
    catalog.drop_table("db.both")


def test_pypaimon_shares_it(shared):
    _, catalog, options = shared
    if "sqlite" not in options["uri"]:
        pytest.skip("pypaimon's environment has no driver for PostgreSQL")
    write(catalog.create_table("db.t", schema()), 1, [("+I", 1, 10), ("+I", 2, 20)])
    given = {"warehouse": catalog.warehouse, **options}
    done = subprocess.run(
        [peers_python(), "-c", PYPAIMON, *(f"{key}={value}" for key, value in given.items())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "['t'] [1, 2]", done.stderr[-2000:]
    assert catalog.table("db.by_python").schema.field_names == ("k",)
    assert pathlib.Path(catalog.table_path("db.by_python")).is_dir()
    catalog.drop_database("db", cascade=True)
