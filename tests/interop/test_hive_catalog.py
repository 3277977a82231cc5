# SPDX-License-Identifier: Apache-2.0
"""One Hive Metastore whose Paimon tables Java's HiveCatalog and ours share."""

import concurrent.futures
import pathlib

import pyspark
import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataField
from tests.e2e.hive_metastore import hive_metastore
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import missing
from tests.table_kit import rows_of, write

pytestmark = [pytest.mark.interop, pytest.mark.full]

INT = parse_type("INT")
STRING = parse_type("STRING")
CLIENT = ("*.jar",)
"""Jars of pyspark with which Java's catalog reaches the metastore."""


def schema(**options):
    columns = [("k", INT), ("v", INT)]
    return new_schema(columns, primary_keys=["k"], options={"bucket": "1", **options})


def partitioned(**options):
    columns = [("k", INT), ("dt", STRING)]
    options = {"bucket": "1", "metastore.partitioned-table": "true", **options}
    return new_schema(
        columns, primary_keys=["k", "dt"], partition_keys=["dt"], options=options, comment="days"
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    scratch = tmp_path_factory.mktemp("hive")
    warehouse = scratch / "warehouse"
    try:
        artifacts.jar(artifacts.CORE, fetch=False)
    except artifacts.ArtifactUnavailableError as error:
        missing(str(error))
    folder = pathlib.Path(pyspark.__file__).parent / "jars"
    jars = [path for pattern in CLIENT for path in sorted(folder.glob(pattern))]
    with hive_metastore(scratch) as uri:
        options = {"metastore": "hive", "uri": uri, "lock.enabled": "true"}
        options |= {"lock-check-max-sleep": "200 ms"}
        with JavaPeer.running(warehouse, catalog=options, jars=jars) as java:
            yield java, Catalog.open(str(warehouse), options), options


def test_java_sees_and_changes_what_we_make(shared):
    java, catalog, _ = shared
    catalog.create_database("ours", properties={"comment": "c", "a": "b"})
    write(catalog.create_table("ours.t", schema()), 1, [("+I", 1, 10)])
    assert "ours" in java.databases()
    assert java.properties("ours")["a"] == "b"
    assert java.names("ours") == ["t"]
    java.alter("ours.t", [AddColumn("w", INT)])
    java.write("ours.t", [("+I", (2, 20, 200))])
    assert rows_of(catalog.table("ours.t")) == [(1, 10, None), (2, 20, 200)]
    catalog.alter_table("ours.t", [AddColumn("x", INT)])
    assert [field.name for field in java.fields("ours.t")] == ["k", "v", "w", "x"]
    java.rename("ours.t", "ours.u")
    assert catalog.list_tables("ours") == ["u"]
    assert len(rows_of(catalog.table("ours.u"))) == 2
    catalog.rename_table("ours.u", "ours.v")
    assert java.names("ours") == ["v"]
    assert sorted(java.read("ours.v").to_pydict()["k"]) == [1, 2]
    java.drop("ours.v")
    assert catalog.list_tables("ours") == []
    catalog.drop_database("ours")
    assert "ours" not in java.databases()


def test_we_see_and_change_what_java_makes(shared):
    java, catalog, _ = shared
    java.create("db.java", schema())
    java.write("db.java", [("+I", (1, 10))])
    assert rows_of(catalog.table("db.java")) == [(1, 10)]
    with pytest.raises(InvalidRequestError, match="exists already"):
        catalog.create_table("db.java", schema())
    catalog.drop_table("db.java")
    assert "java" not in java.names("db")
    java.create("db.java", schema())
    assert rows_of(catalog.table("db.java")) == []
    catalog.drop_table("db.java")


def test_both_enter_the_same_of_a_table(shared):
    """What the metastore holds of a table of ours is what it holds of Java's twin."""
    java, catalog, _ = shared
    java.create("db.theirs", partitioned())
    catalog.create_table("db.ours", partitioned())
    tables = [catalog._find(name) for name in ("db.theirs", "db.ours")]
    theirs, ours = (
        {
            "parameters": {k: v for k, v in t.parameters.items() if k != "transient_lastDdlTime"},
            "columns": [(c.name, c.type) for c in t.sd.cols],
            "keys": [(c.name, c.type) for c in t.partitionKeys],
            "formats": (t.sd.inputFormat, t.sd.outputFormat, t.sd.serdeInfo.serializationLib),
            "location": t.sd.location.rpartition("/")[0].replace("file:///", "file:/"),
            "type": t.tableType,
            "retention": t.retention,
        }
        for t in tables
    )
    assert ours == theirs
    for name in ("theirs", "ours"):
        catalog.drop_table(f"db.{name}")


def test_partitions_are_entered_and_removed(shared):
    java, catalog, _ = shared
    table = catalog.create_table("db.days", partitioned())
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b c"), ("+I", 3, "d=e/f")])
    assert catalog.list_partitions("db.days") == ["dt=a", "dt=b c", "dt=d%3De%2Ff"]
    java.write("db.days", [("+I", (4, "g"))])
    assert len(java.partitions("db.days")) == 4
    table.drop_partitions([{"dt": "b c"}])
    assert "dt=b c" not in catalog.list_partitions("db.days")
    catalog.drop_partitions("db.days", [{"dt": "a"}])  # as if a commit had not entered it
    catalog.repair_table("db.days")
    assert "dt=a" in catalog.list_partitions("db.days")
    assert "dt=g" in catalog.list_partitions("db.days")
    catalog.drop_table("db.days")


def test_views_of_both(shared):
    java, catalog, _ = shared
    fields = (DataField(id=0, name="k", type=INT),)
    catalog.create_view("db.ours", View(fields, "select 1", {}, "what for"))
    assert java.view("db.ours") == ("select 1", {}, ["k"])
    for name in catalog.list_views("db"):
        catalog.drop_view(f"db.{name}")


def test_both_commit_at_once_under_one_lock(shared):
    java, catalog, _ = shared
    table = catalog.create_table("db.both", schema())
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ours = pool.submit(
            lambda: [write(table, n, [("+I", n, n)], compaction=False) for n in range(1, 6)]
        )
        theirs = pool.submit(
            lambda: [
                java.write("db.both", [("+I", (100 + n, n))], compaction=False) for n in range(1, 6)
            ]
        )
        ours.result()
        theirs.result()
    keys = [row[0] for row in rows_of(catalog.table("db.both"))]
    assert sorted(keys) == [*range(1, 6), *range(101, 106)]
    catalog.drop_table("db.both")


def test_an_external_table_keeps_its_files(shared):
    _, catalog, _ = shared
    table = catalog.create_table("db.ext", schema())
    write(table, 1, [("+I", 1, 10)])
    found = catalog._find("db.ext")
    found.tableType = "EXTERNAL_TABLE"
    found.parameters["EXTERNAL"] = "TRUE"
    catalog._call("alter_table", "db", "ext", found)
    catalog.drop_table("db.ext")
    assert catalog.list_tables("db") == []
    assert rows_of(table) == [(1, 10)]
    catalog.repair_table("db.ext")
    assert rows_of(catalog.table("db.ext")) == [(1, 10)]
    catalog.drop_table("db.ext")
