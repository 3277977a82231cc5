# SPDX-License-Identifier: Apache-2.0
"""Tables in HDFS that Java reaches with Hadoop's client and we over WebHDFS."""

import pytest

from storage.catalog.catalog import Catalog
from tests.e2e.availability import had
from tests.e2e.hdfs_cluster import hdfs_cluster
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import required_jars
from tests.interop.shared_catalog import check_commits_at_once, schema
from tests.table_kit import rows_of, write

pytestmark = [pytest.mark.interop, pytest.mark.full]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Java and our catalog, of one warehouse."""
    required_jars(artifacts.CORE)
    with had(hdfs_cluster(), "HDFS") as cluster:
        warehouse = f"{cluster.url}/warehouse"
        scratch = tmp_path_factory.mktemp("java")
        with JavaPeer.running(scratch, catalog={"warehouse": warehouse}) as java:
            yield java, Catalog.open(warehouse, cluster.options)


def test_each_reads_and_continues_what_the_other_wrote(shared):
    java, catalog = shared
    write(catalog.create_table("db.ours", schema()), 1, [("+I", 1, 10), ("+I", 2, 20)])
    java.write("db.ours", [("+U", (1, 11))])
    assert rows_of(catalog.table("db.ours")) == [(1, 11), (2, 20)]
    assert sorted(java.read("db.ours").to_pydict()["v"]) == [11, 20]
    java.create("db.theirs", schema())
    java.write("db.theirs", [("+I", (1, 10))])
    write(catalog.table("db.theirs"), 1, [("+I", 2, 20)])
    assert sorted(java.read("db.theirs").to_pydict()["k"]) == [1, 2]
    java.rename("db.theirs", "db.renamed")
    catalog.rename_table("db.ours", "db.ours_renamed")
    assert java.names("db") == catalog.list_tables("db") == ["ours_renamed", "renamed"]


def test_both_commit_at_once(shared):
    check_commits_at_once(*shared)
