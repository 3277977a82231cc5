# SPDX-License-Identifier: Apache-2.0
"""A naive Iceberg REST catalog over HTTP, from the specification alone: no code of the product.

It checks what the reference implementation checks of a commit: requirements, ids of schemas and
snapshots that exist, growing sequence numbers and row ids. Schemas get numbers of its own.
"""

import contextlib
import copy
import http.server
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["RestCatalog", "rest_catalog"]

_NEW = {
    "schemas": [],
    "current-schema-id": -1,
    "partition-specs": [],
    "sort-orders": [],
    "properties": {},
    "snapshots": [],
    "refs": {},
    "last-sequence-number": 0,
    "last-column-id": 0,
    "next-row-id": 0,
    "format-version": 1,
}


class RefusedError(Exception):
    """A request that the catalog answers with a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RestCatalog:
    """Tables by name, and what happens to a request.

    Attributes:
        uri: of the server.
        tables: metadata by `namespace.table`.
        namespaces: that were made.
        requests: method and path of every request.
        before: called with method and path before a request is carried out.
        after: the same, before it is answered.
        token: that requests must carry; "": none.
        credential: identity and secret of an OAuth2 client, for which there are tokens; None: there
            are none.
        scopes: of the tokens that were asked for.
    """

    def __init__(self) -> None:
        self.uri = ""
        self.tables: dict[str, dict[str, Any]] = {}
        self.namespaces: set[str] = set()
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.after: Callable[[str, str], None] = lambda _method, _path: None
        self.token = ""
        self.credential: tuple[str, str] | None = None
        self.scopes: list[str] = []
        self.lock = threading.Lock()

    def grant(self, form: dict[str, str]) -> dict[str, Any]:
        """A token for a client's credentials (RFC 6749, 4.4), in place of the last one."""
        if form["grant_type"] != "client_credentials":
            raise RefusedError(400, "unsupported_grant_type")
        if (form.get("client_id"), form.get("client_secret")) != self.credential:
            raise RefusedError(401, "invalid_client")
        self.scopes.append(form["scope"])
        self.token = f"token {len(self.scopes)}"
        return {"access_token": self.token, "token_type": "bearer", "expires_in": 3600}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request."""
        parts = [urllib.parse.unquote(one) for one in path.partition("?")[0].split("/")[2:]]
        if parts == ["config"]:
            return {"defaults": {}, "overrides": {"prefix": "own"}}
        if parts[:2] != ["own", "namespaces"]:
            raise RefusedError(404, path)
        if parts[2:] == []:
            (name,) = body["namespace"]
            if name in self.namespaces:
                raise RefusedError(409, name)
            self.namespaces.add(name)
            return {}
        return self._table(method, f"{parts[2]}.{parts[4]}", body)

    def _table(self, method: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        held = self.tables.get(name)
        if method == "POST":
            self._require(held, name, body["requirements"])
            changed = copy.deepcopy(_NEW if held is None else held)
            for update in body["updates"]:
                _apply(changed, update)
            self.tables[name] = changed
        elif held is None:
            raise RefusedError(404, name)
        elif method == "DELETE":
            assert "purgeRequested=false" in self.requests[-1][1]
            del self.tables[name]
            return {}
        return {"metadata-location": "none", "metadata": self.tables[name]}

    def _require(
        self, held: dict[str, Any] | None, name: str, requirements: list[dict[str, Any]]
    ) -> None:
        if name.partition(".")[0] not in self.namespaces:
            raise RefusedError(404, name)
        for one in requirements:
            if one["type"] == "assert-create":
                fulfilled = held is None
            elif held is None:
                raise RefusedError(404, name)
            elif one["type"] == "assert-table-uuid":
                fulfilled = held["table-uuid"] == one["uuid"]
            else:
                assert one["type"] == "assert-ref-snapshot-id"
                ref = held["refs"].get(one["ref"], {})
                fulfilled = ref.get("snapshot-id") == one["snapshot-id"]
            if not fulfilled:
                raise RefusedError(409, str(one))


def _require(fulfilled: bool, text: str) -> None:
    if not fulfilled:
        raise RefusedError(400, text)


def _apply(table: dict[str, Any], update: dict[str, Any]) -> None:
    action = update["action"]
    ids = {one["snapshot-id"] for one in table["snapshots"]}
    if action == "assign-uuid":
        table["table-uuid"] = update["uuid"]
    elif action == "upgrade-format-version":
        _require(update["format-version"] >= table["format-version"], "downgrade")
        table["format-version"] = update["format-version"]
    elif action == "add-schema":
        _add_schema(table, update["schema"])
        table["last-column-id"] = max(table["last-column-id"], update["last-column-id"])
    elif action == "set-current-schema":
        wanted = update["schema-id"]
        wanted = table["last-added-schema"] if wanted == -1 else wanted
        _require(any(one["schema-id"] == wanted for one in table["schemas"]), "schema")
        table["current-schema-id"] = wanted
    elif action == "add-spec":
        table["partition-specs"].append(update["spec"])
    elif action == "add-sort-order":
        table["sort-orders"].append(update["sort-order"])
    elif action == "set-location":
        table["location"] = update["location"]
    elif action == "set-properties":
        table["properties"].update(update["updates"])
    elif action == "add-snapshot":
        _add_snapshot(table, update["snapshot"], ids)
    elif action == "remove-snapshots":
        gone = set(update["snapshot-ids"])
        table["snapshots"] = [one for one in table["snapshots"] if one["snapshot-id"] not in gone]
        table["refs"] = {k: v for k, v in table["refs"].items() if v["snapshot-id"] not in gone}
    elif action == "set-snapshot-ref":
        _require(update["snapshot-id"] in ids, "snapshot of a reference")
        ref = {"type": update["type"], "snapshot-id": update["snapshot-id"]}
        table["refs"][update["ref-name"]] = ref
    elif action == "remove-snapshot-ref":
        table["refs"].pop(update["ref-name"], None)
    else:
        _require(action in ("set-default-spec", "set-default-sort-order"), action)
    main = table["refs"].get("main")
    table["current-snapshot-id"] = main["snapshot-id"] if main else -1


def _add_schema(table: dict[str, Any], schema: dict[str, Any]) -> None:
    same = [one for one in table["schemas"] if one["fields"] == schema["fields"]]
    numbers = [one["schema-id"] for one in table["schemas"]]
    number = same[0]["schema-id"] if same else max(numbers, default=6) + 1
    if not same:
        table["schemas"].append({**schema, "schema-id": number})
    table["last-added-schema"] = number


def _add_snapshot(table: dict[str, Any], snapshot: dict[str, Any], ids: set[int]) -> None:
    _require(snapshot["snapshot-id"] not in ids, "snapshot exists")
    known = {one["schema-id"] for one in table["schemas"]}
    _require(snapshot["schema-id"] in known, "schema of a snapshot")
    grows = snapshot["sequence-number"] > table["last-sequence-number"]
    _require(grows or "parent-snapshot-id" not in snapshot, "sequence number")
    if table["format-version"] > 2:
        _require(snapshot["first-row-id"] >= table["next-row-id"], "row id")
        table["next-row-id"] += snapshot["added-rows"]
    table["last-sequence-number"] = snapshot["sequence-number"]
    table["snapshots"].append(snapshot)


@contextlib.contextmanager
def rest_catalog() -> Iterator[RestCatalog]:
    """A catalog on a free port of 127.0.0.1."""
    catalog = RestCatalog()

    class Handler(http.server.BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asks_token = self.path.endswith("/oauth/tokens") and catalog.credential is not None
            found: dict[str, Any] = {}
            status = 200
            with catalog.lock:
                catalog.requests.append((self.command, self.path))
                try:
                    if asks_token:
                        found = catalog.grant(dict(urllib.parse.parse_qsl(body.decode())))
                    elif (
                        catalog.token and self.headers["Authorization"] != f"Bearer {catalog.token}"
                    ):
                        raise RefusedError(401, "no token")
                    if not asks_token:
                        catalog.before(self.command, self.path)
                        found = catalog.answer(self.command, self.path, json.loads(body or b"{}"))
                        catalog.after(self.command, self.path)
                except RefusedError as error:
                    status = error.status
                    found = {"error": {"message": str(error), "code": status}}
            answer = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_DELETE = _handle

        def log_message(self, *_arguments: Any) -> None:
            """Nothing is logged."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    catalog.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield catalog
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
