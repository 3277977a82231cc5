# SPDX-License-Identifier: Apache-2.0
"""A server of Paimon's REST protocol for tests, on our filesystem catalog.

It checks the token, gives lists in pages of two, refuses commits that are not based on the newest
snapshot, and has what the protocol asks of databases, tables, views and commits. Java's and
pypaimon's clients work with it, too (`tests/interop/test_rest_catalog.py`).
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit

from storage.catalog.catalog import Catalog
from storage.catalog.view import View
from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.schema import TableSchema, new_schema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateType,
)
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.type_text import field_from_json, field_to_json, parse_type

__all__ = ["TOKEN", "RestServer", "rest_server"]

TOKEN = "secret-of-the-test"
PREFIX = "lake"
PAGE = 2


class HttpError(Exception):
    def __init__(self, code: int, kind: str, name: str) -> None:
        super().__init__(f"{kind} {name}")
        self.code = code
        self.kind = kind
        self.name = name


class RestServer:
    """What the server keeps beside the files.

    Attributes:
        uri: of the server.
        commits: bodies of the commits that it was asked for.
        lost: how many further answers of published commits are lost on the way.
    """

    def __init__(self, warehouse: str) -> None:
        self.catalog = Catalog.open(warehouse)
        self.databases: dict[str, dict[str, str]] = {}
        self.views: dict[str, View] = {}
        self.ids: dict[str, str] = {}
        self.lock = threading.RLock()
        self.uri = ""
        self.commits: list[dict[str, Any]] = []
        self.lost = 0

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        parts = [unquote_plus(part) for part in path.strip("/").split("/")]
        if parts == ["v1", "config"]:
            return {"defaults": {"prefix": PREFIX}, "overrides": {}}
        if parts[:2] != ["v1", PREFIX]:
            raise HttpError(404, "RESOURCE", path)
        with self.lock:
            match (method, *parts[2:]):
                case (_, "databases"):
                    return self._databases(method, query, body)
                case (_, "databases", database, *rest):
                    if database not in self.databases:
                        raise HttpError(404, "DATABASE", database)
                    return self._in_database(method, database, rest, query, body)
                case ("POST", "tables", "rename"):
                    return self._rename_table(body)
                case ("POST", "views", "rename"):
                    return self._rename_view(body)
        raise HttpError(404, "RESOURCE", path)

    def _databases(self, method: str, query: dict[str, str], body: Any) -> Any:
        if method == "GET":
            return _page("databases", sorted(self.databases), query)
        if body["name"] in self.databases:
            raise HttpError(409, "DATABASE", body["name"])
        self.catalog.create_database(body["name"], ignore_if_exists=True)
        self.databases[body["name"]] = dict(body["options"] or {})
        return {}

    def _in_database(
        self, method: str, name: str, rest: list[str], query: dict[str, str], body: Any
    ) -> Any:
        match (method, *rest):
            case ("GET",):
                location = self.catalog.database_path(name)
                options = self.databases[name]
                return {"id": name, "name": name, "location": location, "options": options}
            case ("POST",):
                for key in body["removals"]:
                    del self.databases[name][key]
                self.databases[name].update(body["updates"])
                return {
                    "removed": body["removals"],
                    "updated": list(body["updates"]),
                    "missing": [],
                }
            case ("DELETE",):
                del self.databases[name]
                self.catalog.drop_database(name, cascade=True)
                return {}
            case ("GET", "tables"):
                return _page("tables", self.catalog.list_tables(name), query)
            case ("POST", "tables"):
                return self._create_table(name, body)
            case (_, "tables", table):
                return self._table(method, f"{name}.{table}", body)
            case ("POST", "tables", table, "commit"):
                return self._commit(f"{name}.{table}", body)
            case ("GET", "tables", table, "snapshot"):
                return self._newest(f"{name}.{table}")
            case ("GET", "views"):
                names = sorted(v.partition(".")[2] for v in self.views if v.startswith(f"{name}."))
                return _page("views", names, query)
            case ("POST", "views"):
                return self._create_view(name, body)
            case (_, "views", view):
                return self._view(method, f"{name}.{view}", body)
        raise HttpError(501, "RESOURCE", "/".join(rest))

    # ---- tables

    def _create_table(self, database: str, body: Any) -> Any:
        name = f"{database}.{body['identifier']['object']}"
        if self.catalog.exists(name):
            raise HttpError(409, "TABLE", name)
        schema = body["schema"]
        made = new_schema(
            [field_from_json(field) for field in schema["fields"]],
            primary_keys=schema["primaryKeys"],
            partition_keys=schema["partitionKeys"],
            options=schema["options"],
            comment=schema.get("comment"),
        )
        self.catalog.create_table(name, made)
        self.ids[name] = f"id-{len(self.ids)}"
        return {}

    def _table(self, method: str, name: str, body: Any) -> Any:
        try:
            table = self.catalog.table(name)
        except NotFoundError as error:
            raise HttpError(404, "TABLE", name) from error
        if method == "DELETE":
            self.catalog.drop_table(name)
            return {}
        if method == "POST":
            table.alter([_change(change) for change in body["changes"]])
            return {}
        return {
            "id": self.ids.get(name.partition("$")[0], name),
            "name": name.partition(".")[2],
            "path": table.layout.root,
            "isExternal": False,
            "schemaId": table.schema.id,
            "schema": _schema(table.schema),
        }

    def _rename_table(self, body: Any) -> Any:
        old, new = _full(body["source"]), _full(body["destination"])
        if not self.catalog.exists(old):
            raise HttpError(404, "TABLE", old)
        if self.catalog.exists(new):
            raise HttpError(409, "TABLE", new)
        self.catalog.rename_table(old, new)
        self.ids[new] = self.ids.pop(old)
        return {}

    def _commit(self, name: str, body: Any) -> Any:
        self.commits.append(body)
        table = self.catalog.table(name)
        if body["tableId"] != self.ids[name]:
            raise HttpError(404, "TABLE", name)
        snapshot = Snapshot.from_json(json.dumps(body["snapshot"]).encode())
        latest = table.snapshots.latest()
        newest = 0 if latest is None else latest.id
        based = latest is None or body.get("baseSnapshotUuid") in (None, latest.uuid)
        if snapshot.id != newest + 1 or not based:
            return {"success": False}
        published = table.snapshots.publish(snapshot)
        if self.lost:
            self.lost -= 1
            raise HttpError(503, "TABLE", name)
        return {"success": published}

    def _newest(self, name: str) -> Any:
        snapshot = self.catalog.newest_snapshot(name)
        if snapshot is None:
            raise HttpError(404, "SNAPSHOT", name)
        members = dict(snapshot.members())
        count = snapshot.total_record_count
        sizes = {"recordCount": count, "fileSizeInBytes": 0, "fileCount": 0}
        return {"snapshot": {"snapshot": members, **sizes, "lastFileCreationTime": 0}}

    # ---- views

    def _create_view(self, database: str, body: Any) -> Any:
        name = f"{database}.{body['identifier']['object']}"
        if name in self.views:
            raise HttpError(409, "VIEW", name)
        self.views[name] = View.from_json(body["schema"], name)
        return {}

    def _view(self, method: str, name: str, body: Any) -> Any:
        if name not in self.views:
            raise HttpError(404, "VIEW", name)
        if method == "DELETE":
            del self.views[name]
            return {}
        if method == "POST":
            value = self.views[name].to_json()
            for change in body["changes"]:
                _change_view(value, change)
            self.views[name] = View.from_json(value, name)
            return {}
        schema = self.views[name].to_json()
        return {"id": name, "name": name.partition(".")[2], "schema": schema}

    def _rename_view(self, body: Any) -> Any:
        old, new = _full(body["source"]), _full(body["destination"])
        if old not in self.views:
            raise HttpError(404, "VIEW", old)
        if new in self.views:
            raise HttpError(409, "VIEW", new)
        self.views[new] = self.views.pop(old)
        return {}


def _change(change: dict[str, Any]) -> Any:
    name = tuple(change.get("fieldNames") or ())
    match change["action"]:
        case "setOption":
            return SetOption(change["key"], change["value"])
        case "removeOption":
            return RemoveOption(change["key"])
        case "addColumn":
            return AddColumn(name, parse_type(change["dataType"]), change.get("comment"))
        case "dropColumn":
            return DropColumn(name)
        case "renameColumn":
            return RenameColumn(name, change["newName"])
        case "updateColumnType":
            return UpdateType(name, parse_type(change["newDataType"]))
    raise HttpError(501, "CHANGE", change["action"])


def _change_view(value: dict[str, Any], change: dict[str, Any]) -> None:
    match change["action"]:
        case "setOption":
            value["options"][change["key"]] = change["value"]
        case "removeOption":
            del value["options"][change["key"]]
        case "updateComment":
            value["comment"] = change["comment"]
        case "addDialect" | "updateDialect":
            value["dialects"][change["dialect"]] = change["query"]
        case "dropDialect":
            del value["dialects"][change["dialect"]]


def _schema(schema: TableSchema) -> dict[str, Any]:
    return {
        "fields": [field_to_json(field) for field in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }


def _full(identifier: dict[str, str]) -> str:
    return f"{identifier['database']}.{identifier['object']}"


def _page(member: str, names: list[str], query: dict[str, str]) -> dict[str, Any]:
    after = query.get("pageToken", "")
    left = [name for name in names if name > after]
    token = left[PAGE - 1] if len(left) > PAGE else None
    return {member: left[:PAGE], "nextPageToken": token}


@contextlib.contextmanager
def rest_server(warehouse: str) -> Iterator[RestServer]:
    """A server for as long as the context lasts."""
    state = RestServer(warehouse)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self._handle("GET")

        def do_POST(self):
            self._handle("POST")

        def do_DELETE(self):
            self._handle("DELETE")

        def _handle(self, method):
            size = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(size) if size else b""
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            try:
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    raise HttpError(401, "TOKEN", "")
                body = json.loads(text) if text else None
                self._reply(200, state.answer(method, url.path, query, body))
            except HttpError as error:
                kind = {"resourceType": error.kind, "resourceName": error.name}
                self._reply(error.code, {**kind, "message": str(error), "code": error.code})
            except InvalidRequestError as error:
                self._reply(400, {"message": str(error), "code": 400})
            except Exception as error:
                self._reply(500, {"message": repr(error), "code": 500})

        def _reply(self, code, value):
            data = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
