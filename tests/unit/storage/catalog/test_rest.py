# SPDX-License-Identifier: Apache-2.0
"""What is the REST catalog's own: the token, commits by the server, what is refused."""

import concurrent.futures
import dataclasses

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import new_schema
from storage.format.types.type_text import parse_type
from storage.format.types.types import DataField
from tests.free_ports import free_port
from tests.table_kit import rows_of, write
from tests.unit.storage.catalog.rest_server import TOKEN, rest_server

INT = parse_type("INT")
STRING = parse_type("STRING")


@pytest.fixture
def server(tmp_path):
    with rest_server(str(tmp_path / "served")) as found:
        yield found


@pytest.fixture
def opened(server):
    def open_catalog(**more):
        options = {"metastore": "rest", "uri": server.uri, "token": TOKEN, **more}
        return Catalog.open("lake", options)

    return open_catalog


@pytest.fixture
def table(opened):
    catalog = opened()
    catalog.create_database("db")
    columns = [("k", INT), ("dt", STRING)]
    schema = new_schema(
        columns, primary_keys=["k", "dt"], partition_keys=["dt"], options={"bucket": "1"}
    )
    return catalog.create_table("db.t", schema)


def test_a_wrong_token_and_a_server_that_is_away(server, opened):
    with pytest.raises(InvalidRequestError, match="refuses access") as caught:
        opened(token="wrong")
    assert "wrong" not in str(caught.value)
    with pytest.raises(StorageUnavailableError, match="does not answer"):
        opened(uri=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(InvalidOptionError):
        opened(uri="nothing")


@pytest.mark.parametrize(
    "options",
    [
        {"token.provider": "dlf"},
        {"lock.enabled": "true"},
        {"data-token.enabled": "true"},
    ],
)
def test_options_that_are_refused(opened, options):
    with pytest.raises(UnsupportedFeatureError):
        opened(**options)


def test_a_commit_is_the_servers(server, table):
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b/ c")])
    write(table, 2, [("+I", 3, "a")])
    first, second = server.commits
    assert first["tableId"] == second["tableId"] == "id-0"
    assert first["baseSnapshotUuid"] is None
    assert second["baseSnapshotUuid"] == first["snapshot"]["uuid"]
    sums = {one["spec"]["dt"]: one["recordCount"] for one in first["statistics"]}
    assert sums == {"a": 1, "b/ c": 1}
    (changed,) = second["statistics"]
    assert (changed["fileCount"], changed["totalBuckets"]) == (1, 1)
    assert changed["fileSizeInBytes"] > 0
    assert rows_of(table) == [(1, "a"), (2, "b/ c"), (3, "a")]


def test_writers_at_once_lose_nothing(server, opened, table):
    def writes(first):
        mine = opened().table("db.t")
        for number in range(first, first + 5):
            write(mine, number, [("+I", number, "a")], user=f"u{first}", compaction=False)

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(writes, first) for first in (0, 100, 200)]:
            done.result()
    keys = {row[0] for row in rows_of(opened().table("db.t"))}
    assert keys == {*range(5), *range(100, 105), *range(200, 205)}
    assert table.latest_snapshot().id == 15


def test_a_commit_whose_answer_is_lost_happens_once(server, table):
    server.lost = 1
    write(table, 1, [("+I", 1, "a")])
    assert table.latest_snapshot().id == 1
    assert rows_of(table) == [(1, "a")]
    assert len(server.commits) == 1


def test_a_view_is_changed_as_far_as_the_protocol_goes(opened, table):
    view = View((DataField(id=0, name="k", type=INT),), "select 1", {"spark": "a"}, "c", {"x": "1"})
    catalog = opened()
    catalog.create_view("db.v", view)
    changed = dataclasses.replace(view, dialects={"spark": "b", "flink": "c"}, options={"y": "2"})
    catalog.alter_view("db.v", changed)
    assert catalog.view("db.v") == changed
    with pytest.raises(UnsupportedFeatureError, match="query of a view"):
        catalog.alter_view("db.v", dataclasses.replace(changed, query="select 2"))
    assert catalog.view("db.v") == changed
