# SPDX-License-Identifier: Apache-2.0
"""One REST catalog that Java's and pypaimon's clients and ours share.

The server is `lakeward catalog serve`, in front of a JDBC catalog.
"""

import concurrent.futures
import subprocess

import pytest

from storage.catalog.catalog import Catalog
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, SetOption
from storage.format.types.types import parse_type
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


def test_java_branches_tags_and_rolls_back(shared):
    java, catalog, _ = shared
    jcatalog, paimon = java._catalog, java._paimon
    table = catalog.create_table("db.life", schema())
    for number in (1, 2):
        java.write("db.life", [("+I", (number, number))])
    name = paimon.catalog.Identifier.create("db", "life")
    jcatalog.getTable(name).createTag("first", 1)
    jcatalog.createBranch(name, "dev", "first")
    jcatalog.createBranch(name, "empty", None)
    assert sorted(jcatalog.listBranches(name)) == ["dev", "empty"]
    java.write("db.life$branch_dev", [("+I", (3, 3))])
    assert [row[0] for row in rows_of(catalog.table("db.life$branch_dev"))] == [1, 3]
    assert [row[0] for row in rows_of(table)] == [1, 2]
    write(catalog.table("db.life$branch_dev"), 9, [("+I", 4, 4)])
    assert sorted(java.read("db.life$branch_dev").to_pydict()["k"]) == [1, 3, 4]
    jcatalog.fastForward(name, "dev")
    assert [row[0] for row in rows_of(catalog.table("db.life"))] == [1, 3, 4]
    snapshot = jcatalog.loadSnapshot(name).get().snapshot()
    assert (snapshot.id(), snapshot.uuid()) == (3, catalog.table("db.life").latest_snapshot().uuid)
    jcatalog.dropBranch(name, "empty")
    assert list(jcatalog.listBranches(name)) == ["dev"]
    jcatalog.rollbackTo(name, paimon.table.Instant.tag("first"))
    assert [row[0] for row in rows_of(catalog.table("db.life"))] == [1]
    ours = catalog.table("db.life")
    ours.create_branch("mine", tag="first")
    write(catalog.table("db.life$branch_mine"), 10, [("+I", 5, 5)])
    ours.fast_forward("mine")
    assert sorted(java.read("db.life").to_pydict()["k"]) == [1, 5]
    ours.rollback_to(1)
    assert sorted(java.read("db.life").to_pydict()["k"]) == [1]
    java.drop("db.life")
    assert not catalog.exists("db.life")


def test_java_partitions_pages_and_databases(shared):
    java, catalog, _ = shared
    jcatalog, paimon = java._catalog, java._paimon
    columns = [("k", INT), ("dt", INT)]
    made = new_schema(columns, partition_keys=["dt"], options={"bucket": "-1"})
    java.create("db.parts", made)
    java.write("db.parts", [("+I", (1, 7)), ("+I", (2, 8)), ("+I", (3, 8))])
    name = paimon.catalog.Identifier.create("db", "parts")
    found = {
        dict(one.spec())["dt"]: (one.recordCount(), one.fileCount())
        for one in jcatalog.listPartitions(name)
    }
    assert found == {"7": (1, 1), "8": (2, 1)}
    page = jcatalog.listTablesPaged("db", 1, None, "par%", None)
    assert list(page.getElements()) == ["parts"]
    java.drop("db.parts")
    jcatalog.createDatabase("java", False, {"owner": "them"})
    change = paimon.catalog.PropertyChange
    jcatalog.alterDatabase("java", [change.setProperty("a", "1")], False)
    assert catalog.database("java").properties.items() >= {"owner": "them", "a": "1"}.items()
    jcatalog.dropDatabase("java", False, False)
    assert "java" not in catalog.list_databases()


WHOLE_LIFE = """
import sys
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.common.identifier import Identifier
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.instant import Instant
catalog = CatalogFactory.create(dict(pair.split("=", 1) for pair in sys.argv[1:]))

def write(name, keys):
    builder = catalog.get_table(name).new_batch_write_builder()
    write, commit = builder.new_write(), builder.new_commit()
    write.write_arrow(pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(keys, pa.int32())}))
    commit.commit(write.prepare_commit())
    write.close(); commit.close()

def read(name):
    builder = catalog.get_table(name).new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return sorted(rows.to_pydict()["k"])

catalog.create_database("py", False, {"owner": "them"})
fields = pa.schema([("k", pa.int32()), ("v", pa.int32())])
catalog.create_table("py.t", Schema.from_pyarrow_schema(fields, options={"bucket": "-1"}), False)
write("py.t", [1]); write("py.t", [2])
assert read("py.t") == [1, 2]
assert catalog.load_snapshot("py.t").snapshot.id == 2
catalog.create_tag("py.t", "first", 1)
assert list(catalog.list_tags_paged("py.t").elements) == ["first"]
assert catalog.get_tag("py.t", "first").snapshot.id == 1
catalog.create_branch("py.t", "dev", "first")
assert catalog.list_branches("py.t") == ["dev"]
assert read("py.t$branch_dev") == [1]
catalog.rename_branch("py.t", "dev", "next")
catalog.fast_forward("py.t", "next")
assert read("py.t") == [1]
catalog.drop_branch("py.t", "next")
write("py.t", [3])
catalog.rollback_to("py.t", Instant.snapshot(1))
assert read("py.t") == [1]
catalog.delete_tag("py.t", "first")
catalog.alter_table("py.t", [SchemaChange.add_column("w", AtomicType("INT"))])
assert [field.name for field in catalog.get_table("py.t").fields] == ["k", "v", "w"]
catalog.rename_table("py.t", "py.u")
assert catalog.list_tables("py") == ["u"]
assert catalog.list_tables_paged("py", table_name_pattern="u%").elements == ["u"]
assert catalog.list_functions("py") == []
catalog.drop_table("py.u")
catalog.drop_database("py")
assert "py" not in catalog.list_databases()
print("lived")
"""


def test_pypaimon_does_its_whole_life(shared):
    _, catalog, options = shared
    done = subprocess.run(
        [peers_python(), "-c", WHOLE_LIFE, *(f"{key}={value}" for key, value in options.items())],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.stdout.strip() == "lived", done.stderr[-3000:]
    assert "py" not in catalog.list_databases()
