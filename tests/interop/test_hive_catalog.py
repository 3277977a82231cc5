# SPDX-License-Identifier: Apache-2.0
"""One Hive metastore that Java's HiveCatalog and ours share."""

import concurrent.futures
import pathlib

import pyspark
import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.hive_client import HiveMetastore
from storage.catalog.view import View
from storage.errors import InvalidRequestError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, DropColumn, RenameColumn, SetOption
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataField
from tests.e2e.availability import had
from tests.e2e.hive_metastore import hive_metastore
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import missing
from tests.table_kit import rows_of, write

pytestmark = [pytest.mark.interop, pytest.mark.full]

INT = parse_type("INT")
CLIENT = (
    "hive-metastore-2*",
    "hive-common-2*",
    "hive-serde-2*",
    "hive-exec-2*",
    "hive-shims-*",
    "hive-storage-api*",
    "libthrift*",
    "libfb303*",
    "commons-lang-2*",
    "commons-lang3*",
    "commons-collections*",
    "guava*",
    "javax.jdo*",
    "antlr-runtime*",
    "log4j*",
)
"""Jars of pyspark with the classes of Hive's client, which Paimon expects around it."""

WIDE = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT NOT NULL", "BIGINT", "FLOAT", "DOUBLE"),
    *("DECIMAL(20, 4)", "CHAR(3)", "CHAR(300)", "VARCHAR(70)", "VARCHAR(70000)", "STRING"),
    *("BINARY(4)", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(3)", "TIMESTAMP(9)"),
    *("ARRAY<INT>", "MAP<STRING, DECIMAL(5, 2)>", "MULTISET<INT>"),
    "ROW<a INT, b ARRAY<ROW<c VARCHAR(5)>>>",
)


def schema(**options):
    return new_schema(
        [("k", INT), ("v", INT)], primary_keys=["k"], options={"bucket": "1", **options}
    )


def partitioned(**options):
    columns = [("p", parse_type("STRING")), ("d", parse_type("DATE")), ("k", INT), ("v", INT)]
    return new_schema(
        columns,
        primary_keys=["p", "d", "k"],
        partition_keys=["p", "d"],
        options={"bucket": "1", "metastore.partitioned-table": "true", **options},
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Java, our catalog, and the metastore."""
    warehouse = tmp_path_factory.mktemp("hive") / "warehouse"
    try:
        artifacts.jar(artifacts.CORE, fetch=False)
    except artifacts.ArtifactUnavailableError as error:
        missing(str(error))
    folder = pathlib.Path(pyspark.__file__).parent / "jars"
    jars = [path for name in CLIENT for path in folder.glob(f"{name}.jar")]
    with had(hive_metastore(), "Hive metastore") as server:
        options = {
            "metastore": "hive",
            "uri": server.uri,
            "lock.enabled": "true",
            "lock-check-max-sleep": "100 ms",
        }
        with JavaPeer.running(warehouse, catalog=options, jars=jars) as java:
            yield java, Catalog.open(str(warehouse), options), HiveMetastore.of(options)


def entry_of(metastore, name):
    """A table's entry, without its name and what depends on time."""
    with metastore.connect() as client:
        entry = client.get_table(*name.split("."))
    sd = entry.sd
    parameters = dict(entry.parameters)
    for key in ("transient_lastDdlTime", "numFiles", "totalSize"):
        parameters.pop(key, None)
    return {
        "columns": [(each.name, each.type, each.comment) for each in sd.cols],
        "keys": [(each.name, each.type, each.comment) for each in entry.partitionKeys],
        "location": sd.location.replace(entry.tableName, ""),
        "formats": (sd.inputFormat, sd.outputFormat, sd.serdeInfo.serializationLib),
        "parameters": parameters,
        "rest": (entry.owner, entry.tableType, entry.retention, sd.compressed, sd.numBuckets),
    }


def test_java_sees_and_changes_what_we_make(shared):
    java, catalog, _ = shared
    catalog.create_database("ours", properties={"owner": "us", "comment": "why", "a": "1"})
    write(catalog.create_table("ours.t", schema()), 1, [("+I", 1, 10)])
    assert "ours" in java.databases()
    assert java.properties("ours") == {
        "owner": "us",
        "comment": "why",
        "a": "1",
        "location": f"file:{catalog.warehouse}/ours.db",
    }
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
    assert sorted(java.read("ours.v").to_pydict()["k"]) == [1, 2, 3]
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


@pytest.mark.parametrize("partitions", ["true", "false"])
def test_both_write_the_same_entries(shared, partitions):
    java, catalog, metastore = shared
    columns = [(f"c{number}", parse_type(text)) for number, text in enumerate(WIDE)]
    wide = new_schema(
        [("p", parse_type("STRING")), *columns],
        partition_keys=["p"],
        comment="wide",
        options={
            "bucket": "2",
            "bucket-key": "c3",
            "metastore.partitioned-table": partitions,
            "partition.expiration-time": "30 d",
        },
    )
    java.create("db.theirs", wide)
    catalog.create_table("db.ours", wide)
    assert entry_of(metastore, "db.ours") == entry_of(metastore, "db.theirs")
    changes = [
        [AddColumn("extra", INT), SetOption("snapshot.num-retained.max", "40")],
        [RenameColumn("extra", "renamed")],
        [DropColumn("renamed")],
    ]
    for change in changes:
        java.alter("db.theirs", change)
        catalog.alter_table("db.ours", change)
        assert entry_of(metastore, "db.ours") == entry_of(metastore, "db.theirs")
    for name in ("ours", "theirs"):
        catalog.drop_table(f"db.{name}")


def test_partitions_are_entered_by_the_commits_of_both(shared):
    java, catalog, metastore = shared
    java.create("db.theirs", partitioned())
    catalog.create_table("db.ours", partitioned())
    rows = [("a", 1, 1, 1), ("a/b %", 2, 1, 1), ("__x=y", 3, 2, 2)]
    java.write("db.theirs", [("+I", row) for row in rows])
    write(catalog.table("db.ours"), 1, [("+I", *row) for row in rows])

    def partitions(name):
        with metastore.connect() as client:
            found = client.get_partitions("db", name, 100)
        return sorted(
            (each.values, each.sd.location.replace(f"/{name}/", "/"), len(each.sd.cols))
            for each in found
        )

    assert partitions("ours") == partitions("theirs")
    assert len(partitions("ours")) == 3
    java.write("db.ours", [("+I", ("b", 4, 1, 1))])
    write(catalog.table("db.theirs"), 2, [("+I", "b", 4, 1, 1)])
    assert partitions("ours") == partitions("theirs")
    assert len(partitions("ours")) == 4
    for name in ("ours", "theirs"):
        catalog.drop_table(f"db.{name}")


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
    assert (query, dialects, columns) == (view.query, {}, ["k"])  # Java reads none from Hive
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
