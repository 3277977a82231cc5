# SPDX-License-Identifier: Apache-2.0
"""One JDBC catalog that Java's JdbcCatalog, pypaimon's and ours share."""

import pathlib
import subprocess

import pytest

from storage.catalog.catalog import Catalog
from tests.e2e.postgres_server import USER, postgres
from tests.interop import artifacts
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import peers_python, required_jars
from tests.interop.shared_catalog import (
    check_commits_at_once,
    check_java_follows,
    check_views,
    check_we_follow,
    schema,
)
from tests.table_kit import write

pytestmark = pytest.mark.interop

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


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.full)])
def shared(request, tmp_path_factory):
    """Java, our catalog, and the options of both."""
    scratch = tmp_path_factory.mktemp("jdbc")
    warehouse = scratch / "warehouse"
    driver = artifacts.SQLITE_JDBC if request.param == "sqlite" else artifacts.POSTGRES_JDBC
    jars = required_jars(driver, artifacts.CORE)[:1]
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
    check_java_follows(*shared[:2], {"owner": "us"})


def test_we_see_and_change_what_java_makes(shared):
    check_we_follow(*shared[:2])


def test_views_of_both(shared):
    check_views(*shared[:2], {"flink": "select `k` from t"})


def test_both_commit_at_once_under_one_lock(shared):
    check_commits_at_once(*shared[:2])


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
