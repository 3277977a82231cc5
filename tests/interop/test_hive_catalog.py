# SPDX-License-Identifier: Apache-2.0
"""One Hive metastore that Java's HiveCatalog and ours share."""

import pathlib

import pyspark
import pytest

from storage.catalog.catalog import Catalog
from storage.clients.hive_client import HiveMetastore
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, DropColumn, RenameColumn, SetOption
from storage.format.types.types import parse_type
from tests.e2e.availability import had
from tests.e2e.hive_metastore import hive_metastore
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import required_jars
from tests.interop.shared_catalog import (
    INT,
    check_commits_at_once,
    check_java_follows,
    check_views,
    check_we_follow,
)
from tests.table_kit import write

pytestmark = [pytest.mark.interop, pytest.mark.full]

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
    required_jars(artifacts.CORE)
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
    properties = {"owner": "us", "comment": "why", "a": "1"}
    check_java_follows(java, catalog, properties, {"location": f"file:{catalog.warehouse}/ours.db"})


def test_we_see_and_change_what_java_makes(shared):
    check_we_follow(*shared[:2])


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
    check_views(*shared[:2], {})  # Java reads no dialects from Hive


def test_both_commit_at_once_under_one_lock(shared):
    check_commits_at_once(*shared[:2])
