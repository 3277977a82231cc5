# SPDX-License-Identifier: Apache-2.0
"""Iceberg's REST protocol, read-only, over the Iceberg metadata beside tables.

A namespace is a database; its tables are those whose Iceberg metadata has been published. Every
load reads the newest version; its text is returned unchanged, so that a load costs a listing of the
table's schemas, the hint and the metadata file.

Source: Iceberg's REST catalog OpenAPI.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import orjson
from starlette.routing import Route

from ingest.tools.catalog_service.protected import Answer, Call, Failure, Handler, page, protected
from storage.catalog.catalog import Catalog, split_identifier
from storage.catalog.options import STORE_PREFIXES
from storage.errors import InvalidRequestError, LakewardError, NotFoundError, RetryableError
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.io.file_io import FileIO
from storage.io.object_store_options import client_settings
from storage.lru import LruCache
from storage.table.iceberg.twin import metadata_directory
from storage.table.table import FileStoreTable

if TYPE_CHECKING:
    from ingest.tools.catalog_service.service import CatalogService

# The Iceberg metadata that tables of a catalog have published.


_HINT = "version-hint.text"
_TRIES = 5
_KNOWN_TABLES = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class _KnownTable:
    """A table as of its last lookup.

    Attributes:
        schemas: of it; cached once read.
        schema: the newest one.
        directory: of the metadata; None: disabled for the table.
    """

    schemas: SchemaStore
    file_io: FileIO
    schema: TableSchema
    directory: str | None


class PublishedTables:
    """Finds and reads the newest metadata files. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._tables: LruCache[str, _KnownTable] = LruCache(_KNOWN_TABLES)

    def newest(self, identifier: str) -> tuple[str, bytes]:
        """Path and text of the newest metadata file.

        Raises:
            NotFoundError: there is no such table, or no metadata of it.
        """
        entry = self._current_table(identifier)
        for _ in range(_TRIES):  # a rollback deletes versions
            location = self._newest_location(entry, identifier)
            try:
                return location, entry.file_io.read_bytes(location)
            except FileNotFoundError:
                continue
        raise _without_metadata(identifier)

    def location(self, identifier: str) -> str:
        """Path of the newest metadata file.

        Raises:
            As `newest`.
        """
        return self._newest_location(self._current_table(identifier), identifier)

    def has_metadata(self, identifier: str) -> bool:
        """Whether there is a table with published metadata.

        One that cannot be opened has none, so that it does not hide the rest of its database.
        """
        try:
            self.location(identifier)
        except RetryableError:
            raise
        except LakewardError:
            return False
        return True

    def _newest_location(self, newest: _KnownTable, identifier: str) -> str:
        if newest.directory is None:
            raise _without_metadata(identifier)
        try:
            version = int(newest.file_io.read_bytes(f"{newest.directory}/{_HINT}"))
        except (FileNotFoundError, ValueError) as error:
            raise _without_metadata(identifier) from error
        return f"{newest.directory}/v{version}.metadata.json"

    def _current_table(self, identifier: str) -> _KnownTable:
        """The table by its newest schema; only changes are read."""
        path = self._catalog.table_path(identifier)
        key = f"{identifier}\0{path}"
        entry = self._tables.get(key)
        schemas = entry.schemas if entry else self._catalog.schemas(identifier)
        schema = schemas.latest()
        if schema is None:
            raise NotFoundError("there is no such table", table=identifier)
        if entry is None or entry.schema is not schema:
            file_io = self._catalog.file_io_of(identifier)
            entry = _KnownTable(schemas, file_io, schema, self._directory(identifier))
            self._tables.put(key, entry)
        return entry

    def _directory(self, identifier: str) -> str | None:
        table = self._catalog.table(identifier)
        if not isinstance(table, FileStoreTable) or table.options.iceberg_storage == "disabled":
            return None
        return metadata_directory(table)


def _without_metadata(identifier: str) -> NotFoundError:
    return NotFoundError(
        "the table has no Iceberg metadata",
        hint="set its option `metadata.iceberg.storage`; the first commit after that publishes it",
        table=identifier,
    )


PREFIX = "/iceberg"
"""Path prefix of this protocol."""

_BASE = f"{PREFIX}/v1"
_LEVELS = "\x1f"
"""Separator of namespace levels."""

_JSON = {"Content-Type": "application/json"}
_DELEGATION = "vended-credentials"
_LOOKERS = 8
"""Tables of a page that are checked in parallel in remote stores."""

_STORE_SETTINGS = {
    "endpoint": ("s3.endpoint",),
    "region": ("client.region", "s3.region"),
    "path_style": ("s3.path-style-access",),
    "access_key_id": ("s3.access-key-id",),
    "secret_access_key": ("s3.secret-access-key",),
    "session_token": ("s3.session-token",),
}
"""Properties of Iceberg clients by settings of the store; some clients know only one of two."""

_NAMESPACE = "/namespaces/{namespace}"
_TABLE = f"{_NAMESPACE}/tables/{{table}}"
_ENDPOINTS = (
    "GET /namespaces",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"GET {_NAMESPACE}/tables",
    f"GET {_TABLE}",
    f"HEAD {_TABLE}",
    f"GET {_TABLE}/credentials",
    f"POST {_TABLE}/metrics",
    f"GET {_NAMESPACE}/views",
)
"""Endpoints that the configuration lists."""

_WRITES = (
    ("/namespaces", ("POST",)),
    (_NAMESPACE, ("DELETE",)),
    (f"{_NAMESPACE}/properties", ("POST",)),
    (f"{_NAMESPACE}/tables", ("POST",)),
    (f"{_NAMESPACE}/register", ("POST",)),
    (_TABLE, ("POST", "DELETE")),
    (f"{_TABLE}/unregister", ("POST",)),
    ("/tables/rename", ("POST",)),
    ("/transactions/commit", ("POST",)),
    (f"{_NAMESPACE}/views", ("POST",)),
    (f"{_NAMESPACE}/register-view", ("POST",)),
    (f"{_NAMESPACE}/views/{{view}}", ("POST", "DELETE")),
    ("/views/rename", ("POST",)),
)


def iceberg_routes(service: "CatalogService") -> list[Route]:
    """The routes of the protocol."""
    reads = _Reads(service)
    root = f"{_BASE}/{service.prefix}"
    inside: list[tuple[str, Handler, Sequence[str]]] = [
        (_NAMESPACE, reads.namespace, ("GET",)),
        (f"{_NAMESPACE}/tables", reads.tables, ("GET",)),
        (f"{_NAMESPACE}/views", reads.views, ("GET",)),
        (f"{_NAMESPACE}/views/{{view}}", reads.view, ("GET",)),
        (_TABLE, reads.table, ("GET",)),
        (f"{_TABLE}/credentials", reads.credentials, ("GET",)),
        (f"{_TABLE}/metrics", _metrics, ("POST",)),
    ]
    inside += [(path, _refuse_write, methods) for path, methods in _WRITES if _NAMESPACE in path]
    anywhere: list[tuple[str, Handler, Sequence[str]]] = [
        (f"{_BASE}/config", reads.config, ("GET",)),
        (f"{_BASE}/oauth/tokens", _no_oauth, ("POST",)),
        (f"{root}/namespaces", reads.namespaces, ("GET",)),
    ]
    anywhere += [
        (root + path, _refuse_write, methods) for path, methods in _WRITES if _NAMESPACE not in path
    ]
    any_of = protected(service, access="read", database=None)
    guard = protected(service, access="read", database=_database)
    return [
        *(Route(path, any_of(handler), methods=methods) for path, handler, methods in anywhere),
        *(Route(root + path, guard(handler), methods=methods) for path, handler, methods in inside),
    ]


_TYPES = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchResourceException",
    405: "UnsupportedOperationException",
    409: "CommitFailedException",
    501: "UnsupportedOperationException",
    503: "ServiceUnavailableException",
}
_MISSING = {
    "DATABASE": "NoSuchNamespaceException",
    "TABLE": "NoSuchTableException",
    "VIEW": "NoSuchViewException",
}


def error_document(failure: Failure) -> dict[str, Any]:
    """The body of an error in this protocol."""
    kind = _TYPES.get(failure.status, "InternalServerError")
    if failure.status == 404:
        kind = _MISSING.get(failure.resource, kind)
    message = failure.message
    if failure.status == 401:
        message += "; give clients a token (`token`), no client id and secret: there is no OAuth"
    return {"error": {"message": message, "type": kind, "code": failure.status}}


class _Reads:
    """Handlers of reads."""

    def __init__(self, service: "CatalogService") -> None:
        self._service = service
        self._catalog = service.catalog
        self._published = PublishedTables(service.catalog)

    def config(self, call: Call) -> dict[str, Any]:
        """`GET /config`; one catalog is served, the requested `warehouse` is ignored."""
        del call
        endpoints = [endpoint.replace(" ", " /v1/{prefix}", 1) for endpoint in _ENDPOINTS]
        return {
            "defaults": {},
            "overrides": {"prefix": self._service.prefix},
            "endpoints": endpoints,
        }

    def namespaces(self, call: Call) -> dict[str, Any]:
        """`GET /namespaces`: databases are not nested."""
        parent = call.query.get("parent")
        if parent:
            self._require_namespace(call, parent)
            return {"namespaces": [], "next-page-token": None}
        names, token = _page(call, call.principal.readable(self._catalog.list_databases()))
        return {"namespaces": [[name] for name in names], "next-page-token": token}

    def namespace(self, call: Call) -> Answer:
        """`GET` and `HEAD` of a namespace."""
        name = call.path["namespace"]
        properties = self._require_namespace(call, name)
        if call.method == "HEAD":
            return Answer(status=204)
        return Answer({"namespace": [name], "properties": properties})

    def tables(self, call: Call) -> dict[str, Any]:
        """`GET …/tables`: tables whose metadata is published."""
        name = call.path["namespace"]
        self._require_namespace(call, name)
        tables, token = _page(call, self._catalog.list_tables(name))
        flags = self._having_metadata(f"{name}.{table}" for table in tables)
        return {
            "identifiers": [
                {"namespace": [name], "name": table}
                for table, published in zip(tables, flags, strict=True)
                if published
            ],
            "next-page-token": token,
        }

    def table(self, call: Call) -> Answer:
        """`GET` and `HEAD` of a table."""
        name = _identifier(call)
        if call.method == "HEAD":
            self._published.location(name)
            return Answer(status=204)
        location, text = self._published.newest(name)
        mode = call.query.get("snapshots", "all")
        if mode not in ("all", "refs"):
            raise Failure(400, f"`snapshots` is `all` or `refs`, not `{mode}`")
        if mode == "refs":
            text = _referenced(text)
        store = orjson.dumps(self._store_of(call, location))
        mark = hashlib.blake2b(b"%b\0%b\0%b" % (location.encode(), store, text), digest_size=16)
        headers = {"ETag": f'"{mark.hexdigest()}"'}
        if headers["ETag"] in call.headers.get("if-none-match", ""):
            return Answer(status=304, headers=headers)
        shared = orjson.dumps(_credentials(orjson.loads(store), location))
        body = b'{"metadata-location":%b,"metadata":%b,"config":%b,"storage-credentials":%b}'
        body %= (orjson.dumps(location), text, store, shared)
        return Answer(body, headers={**headers, **_JSON})

    def credentials(self, call: Call) -> dict[str, Any]:
        """`GET …/credentials`: access to the files; empty unless handed out."""
        location = self._published.location(_identifier(call))
        return {"storage-credentials": _credentials(self._store_of(call, location), location)}

    def views(self, call: Call) -> dict[str, Any]:
        """`GET …/views`: none; views are statements of another dialect."""
        self._require_namespace(call, call.path["namespace"])
        return {"identifiers": [], "next-page-token": None}

    def view(self, call: Call) -> Answer:
        """`GET` and `HEAD` of a view: there is none."""
        name = f"{call.path['namespace']}.{call.path['view']}"
        raise Failure(404, f"there is no such view: {name}", resource="VIEW", name=name)

    def _require_namespace(self, call: Call, name: str) -> dict[str, str]:
        """Properties of a database.

        Raises:
            Failure: there is none, or the token may not read it.
        """
        if call.principal.may("read", name):
            try:
                database = self._catalog.database(name)
            except (NotFoundError, InvalidRequestError):
                pass
            else:
                return {key: str(value) for key, value in database.properties.items()}
        raise Failure(404, f"there is no such namespace: {name}", resource="DATABASE", name=name)

    def _having_metadata(self, names: Iterable[str]) -> list[bool]:
        if not self._catalog.file_io.distant:
            return [self._published.has_metadata(name) for name in names]
        with ThreadPoolExecutor(_LOOKERS) as threads:
            return list(threads.map(self._published.has_metadata, names))

    def _store_of(self, call: Call, location: str) -> dict[str, str]:
        """Client properties of the store; empty unless requested and handed out."""
        delegation = _DELEGATION in call.headers.get("x-iceberg-access-delegation", "")
        if not (delegation and self._service.hand_out_credentials and location.startswith("s3://")):
            return {}
        options = {
            key: value
            for key, value in self._catalog.options.items()
            if key.startswith(STORE_PREFIXES)
        }
        settings, _ = client_settings("s3", options)
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in settings.items()
            for name in _STORE_SETTINGS.get(key, ())
        }


def _database(call: Call) -> Sequence[str]:
    """The database of a namespace: clients look for `snapshots` in `shop.orders`, too."""
    return [call.path["namespace"].partition(_LEVELS)[0]]


def _identifier(call: Call) -> str:
    """Name of the table.

    Raises:
        Failure: no table can have it.
    """
    name = f"{call.path['namespace']}.{call.path['table']}"
    try:
        split_identifier(name)
    except InvalidRequestError as error:
        text = f"there is no such table: {name.replace(_LEVELS, '.')}"
        raise Failure(404, text, resource="TABLE", name=name) from error
    return name


def _page(call: Call, names: Iterable[str]) -> tuple[list[str], str | None]:
    """The names of a page, and the token of the next; all names, unless pages are requested."""
    token, size = call.query.get("pageToken"), call.query.get("pageSize")
    if token is None:
        return sorted(names), None
    if size is not None and not (size.isdecimal() and int(size)):
        raise Failure(400, f"`pageSize` is a whole number above 0, not `{size}`")
    return page(call, names, query={"maxResults": size, "pageToken": token})


def _referenced(text: bytes) -> bytes:
    """A metadata file with only the snapshots that a branch or tag references."""
    document = orjson.loads(text)
    ids = {ref["snapshot-id"] for ref in document.get("refs", {}).values()}
    ids.add(document.get("current-snapshot-id"))
    document["snapshots"] = [
        snapshot for snapshot in document.get("snapshots", ()) if snapshot["snapshot-id"] in ids
    ]
    return orjson.dumps(document)


def _credentials(store: dict[str, str], location: str) -> list[dict[str, Any]]:
    """The same properties in the form that newer clients look up first."""
    bucket = "/".join(location.split("/")[:3])
    return [{"prefix": f"{bucket}/", "config": store}] if store else []


def _metrics(call: Call) -> Answer:
    """`POST …/metrics`: scan reports of clients are discarded."""
    del call
    return Answer(status=204)


def _refuse_write(call: Call) -> Answer:
    del call
    raise Failure(
        403, "this Iceberg catalog is read-only: write through Lakeward or another Paimon client"
    )


def _no_oauth(call: Call) -> Answer:
    """`POST /oauth/tokens`, in the form of OAuth's errors."""
    del call
    text = "there is no OAuth here: give the client a bearer token of the service (`token`)"
    return Answer({"error": "unsupported_grant_type", "error_description": text}, 400)
