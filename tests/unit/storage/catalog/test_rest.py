# SPDX-License-Identifier: Apache-2.0
"""What is the REST catalog's own: the token, commits by the server, what is refused."""

import concurrent.futures
import contextlib
import dataclasses
import http.server
import threading
from collections.abc import Iterator

import pytest

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedFeatureError,
)
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.types.types import DataField, parse_type
from tests.catalog_service import TOKEN, catalog_service
from tests.free_ports import free_port
from tests.table_kit import rows_of, write

INT = parse_type("INT")
STRING = parse_type("STRING")


@pytest.fixture
def server(tmp_path):
    catalog = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/served.db"}
    with catalog_service(str(tmp_path / "served"), catalog) as found:
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
    assert first["tableId"] == second["tableId"] == server.service.catalog.table_id("db.t")
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


@contextlib.contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """Address of a server with one answer, and the tokens that it got."""
    tokens: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(str(self.headers["Authorization"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", tokens
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_redirect_does_not_carry_the_token_to_another_server(opened):
    with (
        answering(200, b"{}") as (other, tokens),
        answering(302, b"", Location=f"{other}/v1/config") as (address, own),
    ):
        with pytest.raises(InvalidRequestError, match="redirects"):
            opened(uri=address)
        assert (len(own), tokens) == (1, [])


@pytest.mark.parametrize("body", [b"<html>login</html>", b"[1]"])
def test_an_answer_that_is_no_json_object_is_an_error_of_its_own(opened, body):
    with (
        answering(200, body) as (address, _),
        pytest.raises(InvalidRequestError, match="JSON object"),
    ):
        opened(uri=address)


def test_the_comment_of_a_database_is_removed(opened):
    catalog = opened()
    catalog.create_database("db", properties={"comment": "what for", "owner": "x"})
    catalog.alter_database("db", {"comment": None})
    assert catalog.database("db").comment is None
    assert catalog.database("db").properties["owner"] == "x"


def test_types_of_tables_are_completed_and_may_be_switched_off(opened, tmp_path):
    catalog = opened(**{"format-table.enabled": "false"})
    catalog.create_database("db")
    rows = new_schema([("k", INT)], options={"type": "format-table", "file.format": "csv"})
    with pytest.raises(UnsupportedFeatureError, match="switched off"):
        catalog.create_table("db.f", rows)
    options = {"type": "object-table", "object-location": str(tmp_path)}
    catalog.create_table("db.o", TableSchema(id=0, fields=(), highest_field_id=-1, options=options))
    assert "path" in catalog.table("db.o").schema.field_names
