# SPDX-License-Identifier: Apache-2.0
"""One REST catalog that Java's and pypaimon's clients and ours share.

The server is that of our tests; what it asks of a client is what Java's and pypaimon's do.
"""

import concurrent.futures
import subprocess

import pytest

from storage.catalog.catalog import Catalog
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, SetOption
from storage.format.types.type_text import parse_type
from tests.catalog_service import TOKEN, catalog_service
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import peers_python, required_jars
from tests.interop.shared_catalog import check_views
from tests.table_kit import rows_of, write

pytestmark = pytest.mark.interop

INT = parse_type("INT")
PYPAIMON = """
import sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
catalog = CatalogFactory.create(dict(pair.split("=", 1) for pair in sys.argv[1:]))
def write(name, keys):
    table = catalog.get_table(name)
    builder = table.new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    rows = pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int32())})
    write.write_arrow(rows)
    commit.commit(write.prepare_commit())
    write.close(); commit.close()
write("db.t", [7])
builder = catalog.get_table("db.t").new_read_builder()
rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
print(sorted(catalog.list_tables("db")), sorted(rows.to_pydict()["k"]))
"""


def schema():
    return new_schema([("k", INT), ("v", INT)], options={"bucket": "-1"})


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    warehouse = tmp_path_factory.mktemp("rest") / "served"
    required_jars(artifacts.CORE)
    served = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{warehouse.parent}/served.db"}
    with catalog_service(str(warehouse), served) as server:
        options = {"metastore": "rest", "uri": server.uri, "token": TOKEN}
        options |= {"token.provider": "bear", "warehouse": "lake"}
        with JavaPeer.running(warehouse, catalog=options) as java:
            yield java, Catalog.open("lake", options), options


def test_tables_of_both(shared):
    java, catalog, _ = shared
    write(catalog.create_table("db.ours", schema()), 1, [("+I", 1, 10)])
    java.create("db.theirs", schema())
    java.write("db.theirs", [("+I", (2, 20))])
    assert java.names("db") == catalog.list_tables("db") == ["ours", "theirs"]
    java.write("db.ours", [("+I", (3, 30))])
    write(catalog.table("db.theirs"), 1, [("+I", 4, 40)])
    for name, keys in (("db.ours", [1, 3]), ("db.theirs", [2, 4])):
        assert sorted(java.read(name).to_pydict()["k"]) == keys
        assert [row[0] for row in rows_of(catalog.table(name))] == keys
    java.alter("db.ours", [AddColumn("w", INT), SetOption("write-only", "true")])
    catalog.alter_table("db.ours", [AddColumn("x", INT)])
    assert [field.name for field in java.fields("db.ours")] == ["k", "v", "w", "x"]
    assert catalog.table("db.ours").options.write_only
    java.rename("db.ours", "db.renamed")
    catalog.rename_table("db.theirs", "db.moved")
    assert java.names("db") == ["moved", "renamed"]
    java.drop("db.moved")
    catalog.drop_table("db.renamed")
    assert java.names("db") == []


def test_views_of_both(shared):
    check_views(*shared[:2], {"flink": "select `k` from t"})


def test_both_commit_at_once(shared):
    java, catalog, _ = shared
    table = catalog.create_table("db.both", schema())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.submit(lambda: [write(table, n, [("+I", n, n)]) for n in range(1, 7)])
        theirs = pool.submit(
            lambda: [java.write("db.both", [("+I", (100 + n, n))]) for n in range(1, 7)]
        )
        ours.result()
        theirs.result()
    keys = [row[0] for row in rows_of(catalog.table("db.both"))]
    assert sorted(keys) == [*range(1, 7), *range(101, 107)]
    catalog.drop_table("db.both")


def test_pypaimon_shares_it(shared):
    _, catalog, options = shared
    write(catalog.create_table("db.t", schema()), 1, [("+I", 1, 10)])
    done = subprocess.run(
        [peers_python(), "-c", PYPAIMON, *(f"{key}={value}" for key, value in options.items())],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "['t'] [1, 7]", done.stderr[-3000:]
    assert rows_of(catalog.table("db.t")) == [(1, 10), (7, 7)]
