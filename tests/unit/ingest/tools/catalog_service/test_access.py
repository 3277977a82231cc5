# SPDX-License-Identifier: Apache-2.0
"""Who gets in: the tokens file, and every path with every method."""

import hashlib
import itertools
import os

import pytest
from starlette.routing import Route

from ingest.tools.catalog_service import service as service_module
from ingest.tools.catalog_service.access import Tokens
from ingest.tools.catalog_service.protected import Protected
from ingest.tools.catalog_service.service import CatalogService, create_app
from storage.catalog.catalog import Catalog
from storage.errors import InternalError, InvalidOptionError
from tests.catalog_service import running
from tests.unit.ingest.tools.catalog_service.asking import ask

READER, WRITER, STRANGER = "reader-of-shop-0123", "writer-of-shop-0123", "no-role-at-all-0123"
FILE = f"""
tokens:
  - name: reader
    sha256: {hashlib.sha256(READER.encode()).hexdigest()}
    read: [shop]
  - name: writer
    token_file: writer.token
    write: [shop]
  - name: stranger
    token_env: STRANGER
"""


@pytest.fixture
def clock():
    seconds = itertools.count()
    return lambda: float(next(seconds))


@pytest.fixture
def tokens(tmp_path, clock):
    (tmp_path / "writer.token").write_text(f"{WRITER}\n")
    (tmp_path / "tokens.yaml").write_text(FILE)
    return Tokens(tmp_path / "tokens.yaml", clock, {"STRANGER": STRANGER})


@pytest.fixture
def served(tmp_path, tokens):
    catalog = Catalog.open(
        str(tmp_path / "w"), {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/c.db"}
    )
    for name in ("shop", "other"):
        catalog.create_database(name)
    with running(CatalogService(catalog, tokens)) as found:
        yield found


def rewrite(path, text):
    """Write a file whose time differs from before, whatever the resolution of the disk's clock."""
    path.write_text(text)
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))


def routes():
    """Every registered path with every method that it takes."""
    catalog = Catalog.open("/nowhere")
    for route in create_app(CatalogService(catalog)).routes:
        for method in sorted(route.methods):
            yield method, route.path


EVERY = list(routes())


def filled(path: str, database: str) -> str:
    parts = {"database": database, "namespace": database}
    for part in path.split("/"):
        if part.startswith("{"):
            name = part.strip("{}")
            path = path.replace(part, parts.get(name, "x"))
    return path


def body_of(method, path):
    """A body that names another database where the path names none."""
    identifier = {"database": "other", "object": "x"}
    return (
        {"name": "other", "source": identifier, "destination": identifier}
        if method == "POST"
        else None
    )


def test_there_are_the_paths_of_the_protocol():
    assert len(EVERY) > 80
    assert ("POST", "/paimon/v1/lakeward/databases/{database}/tables/{table}/commit") in EVERY


@pytest.mark.parametrize("token", [None, "wrong", "", f"{WRITER}x"])
def test_no_path_answers_without_a_valid_token(served, token):
    for method, path in [*EVERY, ("GET", "/"), ("GET", "/nowhere"), ("PUT", "/metrics")]:
        reply = ask(served, method, filled(path, "shop"), body_of(method, path), token=token)
        assert reply.status == 401, (method, path)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert b"shop" not in reply.body


def test_another_scheme_is_no_token(served):
    for value in (f"Basic {WRITER}", WRITER, f"Bearer{WRITER}"):
        headers = {"Authorization": value}
        path = "/paimon/v1/config"
        assert ask(served, "GET", path, token=None, headers=headers).status == 401


def test_a_token_without_a_role_gets_nothing(served):
    for method, path in EVERY:
        reply = ask(served, method, filled(path, "shop"), body_of(method, path), token=STRANGER)
        assert reply.status == 403, (method, path)


def test_a_role_of_one_database_is_none_of_another(served):
    for method, path in EVERY:
        named = "{database}" in path or "{namespace}" in path or path.endswith("/rename")
        if named or (method == "POST" and path.endswith("/databases")):
            reply = ask(served, method, filled(path, "other"), body_of(method, path), token=WRITER)
            assert reply.status == 403, (method, path)


def test_who_may_read_may_not_write(served):
    refused = 0
    for route in create_app(CatalogService(Catalog.open("/nowhere"))).routes:
        if route.endpoint.access == "write":
            for method in route.methods:
                path, body = filled(route.path, "shop"), body_of(method, route.path)
                assert ask(served, method, path, body, token=READER).status == 403, path
                refused += 1
    assert refused > 25


def test_methods_that_change_need_the_right_to_write():
    reads = ("/auth", "/list-by-names", "/list-by-filter")
    for route in create_app(CatalogService(Catalog.open("/nowhere"))).routes:
        if route.path.startswith("/paimon") and route.methods & {"POST", "PUT", "DELETE", "PATCH"}:
            assert route.endpoint.access == "write" or route.path.endswith(reads), route.path


def test_lists_show_what_may_be_read(served):
    root = "/paimon/v1/lakeward"
    assert ask(served, "GET", f"{root}/databases", token=READER).document["databases"] == ["shop"]
    assert ask(served, "GET", f"{root}/databases", token=WRITER).document["databases"] == ["shop"]
    schema = {"fields": [{"id": 0, "name": "k", "type": "INT"}]}
    for database in ("shop", "other"):
        body = {"identifier": {"database": database, "object": "t"}, "schema": schema}
        ask(served, "POST", f"{root}/databases/{database}/tables", body, token=WRITER)
    tables = ask(served, "GET", f"{root}/tables", token=READER).document["tables"]
    assert tables == [{"database": "shop", "object": "t"}]
    id_ = ask(served, "GET", f"{root}/databases/shop/tables/t", token=READER).document["id"]
    assert ask(served, "GET", f"{root}/tables/id/{id_}", token=READER).document["name"] == "t"


def test_health_needs_no_token_and_metrics_any(served):
    assert ask(served, "GET", "/healthz", token=None).status == 200
    assert ask(served, "GET", "/metrics", token=READER).status == 200
    assert ask(served, "GET", "/metrics", token=None).status == 401


def test_a_route_without_a_declaration_is_refused(monkeypatch):
    async def endpoint(request):
        raise AssertionError

    def undeclared(_service):
        return [Route("/iceberg/v1/x", endpoint)]

    monkeypatch.setattr(service_module.iceberg_routes, "iceberg_routes", undeclared)
    with pytest.raises(InternalError, match="does not declare"):
        create_app(CatalogService(Catalog.open("/nowhere")))
    assert Protected  # the only way to declare


# ---- the file


def test_the_file_is_read_again_when_it_changes(tokens, tmp_path):
    assert tokens.principal(READER).name == "reader"
    rewrite(tmp_path / "writer.token", "another-secret-0123")
    assert tokens.principal(WRITER) is None
    assert tokens.principal("another-secret-0123").name == "writer"
    rewrite(tmp_path / "tokens.yaml", FILE.replace("read: [shop]", "read: ['*']"))
    assert tokens.principal(READER).may("read", "other")
    rewrite(tmp_path / "tokens.yaml", "tokens: [{name: only, sha256: 00}]")
    assert tokens.principal(READER).may("read", "other"), "a broken file changes nothing"
    rewrite(tmp_path / "tokens.yaml", FILE.replace("name: reader", "name: again"))
    assert tokens.principal(READER).name == "again"


def test_a_file_is_not_looked_at_for_every_request(tokens, tmp_path):
    slow = Tokens(tmp_path / "tokens.yaml", lambda: 0.0, {"STRANGER": STRANGER})
    (tmp_path / "tokens.yaml").unlink()
    assert slow.principal(READER).name == "reader"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "one key `tokens`"),
        ("tokens: []", "at least one"),
        ("tokens: [{sha256: aa}]", "has a `name`"),
        ("tokens: [{name: a}]", "give one of"),
        ("tokens: [{name: a, sha256: aa, token_env: B}]", "give one of"),
        ("tokens: [{name: a, sha256: aa}]", "64 hexadecimal"),
        ("tokens: [{name: a, token_env: NONE}]", "at least 16"),
        ("tokens: [{name: a, token_file: none}]", "cannot be read"),
        ("tokens: [{name: a, token: secret}]", "there are name"),
        (f"tokens: [{{name: a, sha256: {'a' * 64}, read: shop}}]", "list of databases"),
        (
            f"tokens: [{{name: a, sha256: {'a' * 64}}}, {{name: a, sha256: {'b' * 64}}}]",
            "same name",
        ),
        (
            f"tokens: [{{name: a, sha256: {'a' * 64}}}, {{name: b, sha256: {'a' * 64}}}]",
            "same token",
        ),
        ("tokens: [", "cannot be read"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, text, said):
    (tmp_path / "tokens.yaml").write_text(text)
    with pytest.raises(InvalidOptionError) as caught:
        Tokens(tmp_path / "tokens.yaml", lambda: 0.0, {})
    assert said in str(caught.value)
    assert "tokens.yaml" in str(caught.value)
