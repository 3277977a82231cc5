# SPDX-License-Identifier: Apache-2.0
"""Iceberg's REST protocol: what each path answers, to whom, and how errors look."""

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ingest.tools.catalog_service.access import Tokens
from ingest.tools.catalog_service.iceberg_routes import iceberg_routes
from ingest.tools.catalog_service.service import CatalogService
from storage.catalog.catalog import FileSystemCatalog
from storage.clock import ManualClock, SeededIds
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import RemoveOption
from storage.format.types.types import parse_type
from storage.io.local import LocalFileIO
from storage.table.table import FileStoreTable
from tests.catalog_service import TOKEN, OneToken, Served, running
from tests.table_kit import write
from tests.unit.ingest.tools.catalog_service.asking import Reply, ask

BASE = "/iceberg/v1/lakeward"
ORDERS = "/namespaces/shop/tables/orders"
TWIN = {"metadata.iceberg.storage": "table-location"}
READER, OTHER = "reader-reader-reader", "other-other-other-other"


@dataclasses.dataclass
class Service:
    """A running service; a request without a token has the one that may everything."""

    catalog: FileSystemCatalog
    served: Served

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = TOKEN, **headers: str
    ) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.served, method, path, body, token=token, headers=sent)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", BASE + path, **headers)


def error_of(reply: Reply) -> tuple[int, str]:
    found = reply.document["error"]
    assert found["code"] == reply.status
    assert found["message"]
    return reply.status, found["type"]


def make(catalog: FileSystemCatalog, name: str, options: dict[str, str]) -> FileStoreTable:
    columns = [("k", parse_type("BIGINT")), ("v", parse_type("STRING"))]
    schema = new_schema(columns, primary_keys=["k"], options={"bucket": "1", **options})
    return catalog.create_table(name, schema)


def commit(table: FileStoreTable, identifier: int) -> FileStoreTable:
    write(table, identifier, [("+I", identifier, "v")], full=True)
    return table.latest()


@contextlib.contextmanager
def started(tmp_path: pathlib.Path, tokens: Any = None, **others: Any) -> Iterator[Service]:
    catalog = FileSystemCatalog(
        str(tmp_path / "lake"),
        file_io=LocalFileIO(durable=False),
        clock=ManualClock(),
        ids=SeededIds(0),
    )
    for name in ("shop", "crm"):
        catalog.create_database(name)
    with running(CatalogService(catalog, tokens or OneToken(), **others)) as served:
        yield Service(catalog, served)


@pytest.fixture
def service(tmp_path: pathlib.Path) -> Iterator[Service]:
    with started(tmp_path) as found:
        yield found


@pytest.fixture
def orders(service: Service) -> FileStoreTable:
    """`shop.orders`, with a snapshot and its metadata."""
    return commit(make(service.catalog, "shop.orders", TWIN), 1)


@pytest.fixture
def guarded(tmp_path: pathlib.Path) -> Iterator[Service]:
    path = tmp_path / "tokens.yaml"
    (tmp_path / "reader").write_text(READER)
    (tmp_path / "other").write_text(OTHER)
    path.write_text(
        "tokens:\n- {name: r, token_file: reader, read: [shop]}\n"
        "- {name: o, token_file: other, read: [crm]}\n"
    )
    with started(tmp_path, Tokens(path, time.monotonic)) as found:
        yield found


def test_config_names_the_prefix_and_only_paths_that_are_there(service, orders):
    found = service.ask("GET", "/iceberg/v1/config?warehouse=any").document
    assert found["overrides"] == {"prefix": "lakeward"}
    for endpoint in found["endpoints"]:
        method, _, path = endpoint.partition(" ")
        names = {"prefix": "lakeward", "namespace": "shop", "table": "orders"}
        reply = service.ask(method, "/iceberg" + path.format(**names))
        assert reply.status in (200, 204), endpoint


def test_namespaces_are_the_databases(service):
    assert service.get("/namespaces").document == {
        "namespaces": [["crm"], ["shop"]],
        "next-page-token": None,
    }
    assert service.get("/namespaces?parent=shop").document["namespaces"] == []
    assert service.get("/namespaces/shop").document == {"namespace": ["shop"], "properties": {}}
    assert service.ask("HEAD", f"{BASE}/namespaces/shop").status == 204


@pytest.mark.parametrize("name", ["none", "shop%1Forders", "a.b"])
def test_a_namespace_that_is_not_there(service, name):
    for path in (f"/namespaces/{name}", f"/namespaces/{name}/tables", f"/namespaces/{name}/views"):
        assert error_of(service.get(path)) == (404, "NoSuchNamespaceException")
    assert service.get(f"/namespaces?parent={name}").status == 404
    reply = service.ask("HEAD", f"{BASE}/namespaces/{name}")
    assert reply.status == 404


def test_tables_are_those_with_published_metadata(service, orders):
    commit(make(service.catalog, "shop.plain", {}), 1)
    make(service.catalog, "shop.without_commit", TWIN)
    assert service.get("/namespaces/shop/tables").document == {
        "identifiers": [{"namespace": ["shop"], "name": "orders"}],
        "next-page-token": None,
    }
    assert service.get("/namespaces/crm/tables").document["identifiers"] == []


def test_a_table_that_cannot_be_opened_hides_no_other(service, orders):
    broken = commit(make(service.catalog, "shop.broken", TWIN), 1)
    (pathlib.Path(broken.layout.root) / "schema" / "schema-0").write_text("{}")
    found = service.get("/namespaces/shop/tables").document["identifiers"]
    assert [one["name"] for one in found] == ["orders"]
    assert service.get("/namespaces/shop/tables/broken").status == 500


def test_pages(service):
    names = [f"t{number}" for number in range(5)]
    for name in names:
        commit(make(service.catalog, f"shop.{name}", TWIN), 1)
    found, token = [], ""
    while token is not None:
        page = service.get(f"/namespaces/shop/tables?pageToken={token}&pageSize=2").document
        assert len(page["identifiers"]) <= 2
        found += [one["name"] for one in page["identifiers"]]
        token = page["next-page-token"]
    assert found == names
    page = service.get("/namespaces?pageToken=&pageSize=1").document
    assert page == {"namespaces": [["crm"]], "next-page-token": "crm"}
    assert error_of(service.get("/namespaces?pageToken=&pageSize=0")) == (
        400,
        "BadRequestException",
    )


def test_a_load_is_the_newest_metadata_file(service, orders):
    for number in (2, 3):
        reply = service.get(ORDERS)
        newest = orders.latest_snapshot().id
        location = f"{orders.layout.root}/metadata/v{newest}.metadata.json"
        assert reply.headers["content-type"] == "application/json"
        assert reply.document == {
            "metadata-location": location,
            "metadata": json.loads(pathlib.Path(location).read_text()),
            "config": {},
            "storage-credentials": [],
        }
        orders = commit(orders, number)
    assert service.ask("HEAD", BASE + ORDERS).status == 204


def test_a_load_that_the_client_has_already(service, orders):
    etag = service.get(ORDERS).headers["etag"]
    again = service.get(ORDERS, if_none_match=etag)
    assert (again.status, again.body) == (304, b"")
    orders.create_tag("one")
    tagged = service.get(ORDERS, if_none_match=etag)
    assert tagged.status == 200
    assert "one" in tagged.document["metadata"]["refs"]


def test_snapshots_that_refs_name(service, orders):
    first = orders.latest_snapshot().id
    orders.create_tag("first")
    for number in (2, 3):
        orders = commit(orders, number)
    every = service.get(f"{ORDERS}?snapshots=all")
    some = service.get(f"{ORDERS}?snapshots=refs")
    ids = [one["snapshot-id"] for one in some.document["metadata"]["snapshots"]]
    assert ids == [first, orders.latest_snapshot().id]
    assert len(every.document["metadata"]["snapshots"]) > 2
    assert some.headers["etag"] != every.headers["etag"]
    assert some.document["metadata"]["snapshot-log"] == every.document["metadata"]["snapshot-log"]
    assert error_of(service.get(f"{ORDERS}?snapshots=some")) == (400, "BadRequestException")


def test_tables_that_cannot_be_loaded(service):
    commit(make(service.catalog, "shop.plain", {}), 1)
    missing = (404, "NoSuchTableException")
    plain = service.get("/namespaces/shop/tables/plain")
    assert error_of(plain) == missing
    assert "metadata.iceberg.storage" in plain.document["error"]["message"]
    for path in (
        "/namespaces/shop/tables/none",
        "/namespaces/none/tables/plain",
        "/namespaces/shop%1Fplain/tables/snapshots",
        "/namespaces/shop/tables/plain$snapshots",
    ):
        assert error_of(service.get(path)) == missing
        assert error_of(service.get(f"{path}/credentials")) == missing
        assert service.ask("HEAD", BASE + path).status == 404


def test_metadata_that_is_no_longer_kept_up_is_not_shown(service, orders):
    assert service.get(ORDERS).status == 200
    orders.alter([RemoveOption("metadata.iceberg.storage")])
    assert error_of(service.get(ORDERS)) == (404, "NoSuchTableException")
    assert service.get("/namespaces/shop/tables").document["identifiers"] == []


def test_a_table_made_anew_under_the_same_name(service, orders):
    assert service.get(ORDERS).status == 200
    service.catalog.drop_table("shop.orders")
    assert error_of(service.get(ORDERS)) == (404, "NoSuchTableException")
    commit(make(service.catalog, "shop.orders", {**TWIN, "bucket": "2"}), 1)
    assert service.get(ORDERS).status == 200


def test_a_hint_of_a_version_that_is_gone(service, orders):
    (pathlib.Path(orders.layout.root) / "metadata" / "version-hint.text").write_text("99")
    assert error_of(service.get(ORDERS)) == (404, "NoSuchTableException")


WRITES = [
    ("POST", "/namespaces"),
    ("DELETE", "/namespaces/shop"),
    ("POST", "/namespaces/shop/properties"),
    ("POST", "/namespaces/shop/tables"),
    ("POST", "/namespaces/shop/register"),
    ("POST", ORDERS),
    ("DELETE", ORDERS),
    ("POST", "/namespaces/shop/tables/orders/unregister"),
    ("POST", "/tables/rename"),
    ("POST", "/transactions/commit"),
    ("POST", "/namespaces/shop/views"),
    ("POST", "/namespaces/shop/register-view"),
    ("POST", "/namespaces/shop/views/v"),
    ("DELETE", "/namespaces/shop/views/v"),
    ("POST", "/views/rename"),
]


def test_nothing_can_be_written(service, orders):
    for method, path in WRITES:
        reply = service.ask(method, BASE + path, body={} if method == "POST" else None)
        assert error_of(reply) == (403, "ForbiddenException"), (method, path)
        assert "read-only" in reply.document["error"]["message"]
        assert service.catalog.table("shop.orders").latest_snapshot() == orders.latest_snapshot()


def test_views_and_metrics(service, orders):
    assert service.get("/namespaces/shop/views").document["identifiers"] == []
    assert error_of(service.get("/namespaces/shop/views/v")) == (404, "NoSuchViewException")
    report = {"report-type": "scan-report", "table-name": "shop.orders"}
    reply = service.ask("POST", f"{BASE}{ORDERS}/metrics", body=report)
    assert (reply.status, reply.body) == (204, b"")


def test_paths_that_do_not_exist(service):
    assert error_of(service.get("/functions")) == (404, "NoSuchResourceException")
    reply = service.ask("PUT", f"{BASE}/namespaces")
    assert error_of(reply) == (405, "UnsupportedOperationException")


def test_there_is_no_oauth(service):
    reply = service.ask("POST", "/iceberg/v1/oauth/tokens")
    assert reply.status == 400
    assert reply.document["error"] == "unsupported_grant_type"
    assert "bearer token" in reply.document["error_description"]


def test_no_path_answers_without_a_token(guarded):
    routes = iceberg_routes(CatalogService(guarded.catalog))
    assert len(routes) > 15
    for route in routes:
        path = route.path.format(namespace="shop", table="orders", view="v")
        for method in route.methods:
            for token in (None, "wrong-wrong-wrong-wrong"):
                reply = guarded.ask(method, path, token=token)
                assert reply.status == 401, path
                if method != "HEAD":
                    assert error_of(reply) == (401, "NotAuthorizedException")
                    assert "`token`" in reply.document["error"]["message"]


def test_a_token_sees_its_databases_alone(guarded):
    commit(make(guarded.catalog, "shop.orders", TWIN), 1)
    path = BASE + ORDERS
    assert guarded.ask("GET", path, token=READER).status == 200
    assert error_of(guarded.ask("GET", path, token=OTHER)) == (403, "ForbiddenException")
    for token, name in ((READER, "shop"), (OTHER, "crm")):
        found = guarded.ask("GET", f"{BASE}/namespaces", token=token).document
        assert found["namespaces"] == [[name]]
    hidden = guarded.ask("GET", f"{BASE}/namespaces?parent=crm", token=READER)
    assert error_of(hidden) == (404, "NoSuchNamespaceException")
    nested = guarded.ask("GET", f"{BASE}/namespaces/shop%1Forders/tables/snapshots", token=READER)
    assert error_of(nested) == (404, "NoSuchTableException")


def test_files_on_this_machine_need_no_credentials(tmp_path):
    asks = {"x_iceberg_access_delegation": "vended-credentials"}
    with started(tmp_path, hand_out_credentials=True) as service:
        commit(make(service.catalog, "shop.orders", TWIN), 1)
        assert service.get(ORDERS, **asks).document["config"] == {}
        assert service.get(f"{ORDERS}/credentials", **asks).document == {"storage-credentials": []}
