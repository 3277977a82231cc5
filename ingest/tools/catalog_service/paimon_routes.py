# SPDX-License-Identifier: Apache-2.0
"""Paimon's REST protocol, version 1, over a catalog of any kind.

Source: Paimon's `rest-catalog-open-api.yaml` and `ResourcePaths`. Handlers of tables are in
`paimon_tables`; here are the paths with the access that each requires, and the handlers of
databases, views and functions (which are not supported).
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from starlette.routing import Route

from ingest.tools.catalog_service.access import Access
from ingest.tools.catalog_service.paging import matching, page
from ingest.tools.catalog_service.paimon_tables import (
    DatabaseObjects,
    Tables,
    about,
    member,
    name_in,
    require_database,
)
from ingest.tools.catalog_service.protected import Call, Databases, Failure, Handler, protected
from storage.catalog.catalog import Catalog
from storage.catalog.rest_changes import changed_view
from storage.catalog.view import COMMENT, LOCATION, View
from storage.errors import CorruptDataError

if TYPE_CHECKING:
    from ingest.tools.catalog_service.service import CatalogService

__all__ = ["PREFIX", "error_document", "paimon_routes"]

PREFIX = "/paimon"
"""Path prefix of this protocol."""

_IN_PATH = "database"

_AUDIT = {"owner": None, "createdAt": 0, "createdBy": None, "updatedAt": 0, "updatedBy": None}


def paimon_routes(service: "CatalogService") -> list[Route]:
    """The routes of the protocol."""
    version = f"{PREFIX}/v1"
    root = f"{version}/{service.prefix}"
    routes = [_route(service, f"{version}/config", "GET", _config(service), "read", None)]
    for area in (
        _database_rows,
        _table_rows,
        _snapshot_rows,
        _ref_rows,
        _view_rows,
        _function_rows,
    ):
        for method, path, handler, access, database in area(service):
            routes.append(_route(service, root + path, method, handler, access, database))
    return routes


def error_document(failure: Failure) -> dict[str, Any]:
    """The body of an error in this protocol."""
    return {
        "resourceType": failure.resource or None,
        "resourceName": failure.name or None,
        "message": failure.message,
        "code": failure.status,
    }


Row = tuple[str, str, Handler, Access, Databases]
"""Method, path below the prefix, handler, and the access that it requires."""


def _route(
    service: "CatalogService",
    path: str,
    method: str,
    handler: Handler,
    access: Access,
    database: Databases,
) -> Route:
    return Route(
        path, protected(service, access=access, database=database)(handler), methods=[method]
    )


def _config(service: "CatalogService") -> Handler:
    def config(call: Call) -> Any:
        del call
        overrides = {"prefix": service.prefix}
        if service.hand_out_credentials:
            overrides["data-token.enabled"] = "true"
        return {"defaults": {}, "overrides": overrides}

    return config


def _name_in_body(call: Call) -> list[str]:
    return [member(call.body, "name", str)]


def _renamed(call: Call) -> list[str]:
    return [name_in(call.body, "source")[0], name_in(call.body, "destination")[0]]


def _database_rows(service: "CatalogService") -> Iterable[Row]:
    databases = _Databases(service.catalog)
    database = "/databases/{database}"
    yield "GET", "/databases", databases.names, "read", None
    yield "POST", "/databases", databases.create, "write", _name_in_body
    yield "GET", database, databases.load, "read", _IN_PATH
    yield "POST", database, databases.alter, "write", _IN_PATH
    yield "DELETE", database, databases.drop, "write", _IN_PATH


def _table_rows(service: "CatalogService") -> Iterable[Row]:
    tables = Tables(service)
    database = "/databases/{database}"
    table = database + "/tables/{table}"
    yield "GET", "/tables", tables.names_everywhere, "read", None
    yield "GET", "/tables/id/{id}", tables.load_by_id, "read", None
    yield "POST", "/tables/rename", tables.rename, "write", _renamed
    yield "GET", database + "/tables", tables.names, "read", _IN_PATH
    yield "POST", database + "/tables", tables.create, "write", _IN_PATH
    yield "GET", database + "/table-details", tables.details, "read", _IN_PATH
    yield "POST", database + "/register", tables.register, "write", _IN_PATH
    yield "GET", table, tables.load, "read", _IN_PATH
    yield "POST", table, tables.alter, "write", _IN_PATH
    yield "DELETE", table, tables.drop, "write", _IN_PATH
    yield "POST", table + "/replace", _unsupported("replacing a table"), "write", _IN_PATH
    yield "GET", table + "/token", tables.token, "read", _IN_PATH
    yield "POST", table + "/auth", tables.authorize, "read", _IN_PATH


def _snapshot_rows(service: "CatalogService") -> Iterable[Row]:
    tables = Tables(service)
    table = "/databases/{database}/tables/{table}"
    parts = table + "/partitions"
    yield "POST", table + "/commit", tables.commit, "write", _IN_PATH
    yield "POST", table + "/rollback", tables.roll_back, "write", _IN_PATH
    yield "POST", table + "/rollback-schema", _unsupported("older schemas"), "write", _IN_PATH
    yield "GET", table + "/snapshot", tables.newest_snapshot, "read", _IN_PATH
    yield "GET", table + "/snapshots", tables.snapshots, "read", _IN_PATH
    yield "GET", table + "/snapshots/{version}", tables.snapshot, "read", _IN_PATH
    yield "GET", parts, tables.partitions, "read", _IN_PATH
    yield "POST", parts, tables.create_partitions, "write", _IN_PATH
    yield "POST", parts + "/drop", _unsupported("entries of partitions"), "write", _IN_PATH
    yield "POST", parts + "/mark", tables.mark_partitions, "write", _IN_PATH
    yield "POST", parts + "/list-by-names", tables.partitions_by_names, "read", _IN_PATH
    yield "POST", parts + "/list-by-filter", tables.partitions_by_filter, "read", _IN_PATH


def _ref_rows(service: "CatalogService") -> Iterable[Row]:
    tables = Tables(service)
    table = "/databases/{database}/tables/{table}"
    branch, tag = table + "/branches/{branch}", table + "/tags/{tag}"
    yield "GET", table + "/branches", tables.branches, "read", _IN_PATH
    yield "POST", table + "/branches", tables.create_branch, "write", _IN_PATH
    yield "DELETE", branch, tables.drop_branch, "write", _IN_PATH
    yield "POST", branch + "/rename", tables.rename_branch, "write", _IN_PATH
    yield "POST", branch + "/forward", tables.forward_branch, "write", _IN_PATH
    yield "GET", table + "/tags", tables.tags, "read", _IN_PATH
    yield "POST", table + "/tags", tables.create_tag, "write", _IN_PATH
    yield "GET", tag, tables.tag, "read", _IN_PATH
    yield "DELETE", tag, tables.delete_tag, "write", _IN_PATH
    yield "GET", table + "/consumers", tables.consumers, "read", _IN_PATH
    yield "POST", table + "/consumers/reset", tables.reset_consumer, "write", _IN_PATH


def _view_rows(service: "CatalogService") -> Iterable[Row]:
    views = _Views(service.catalog)
    database = "/databases/{database}"
    view = database + "/views/{view}"
    yield "GET", "/views", views.names_everywhere, "read", None
    yield "POST", "/views/rename", views.rename, "write", _renamed
    yield "GET", database + "/views", views.names, "read", _IN_PATH
    yield "POST", database + "/views", views.create, "write", _IN_PATH
    yield "GET", database + "/view-details", views.details, "read", _IN_PATH
    yield "GET", view, views.load, "read", _IN_PATH
    yield "POST", view, views.alter, "write", _IN_PATH
    yield "DELETE", view, views.drop, "write", _IN_PATH


def _function_rows(service: "CatalogService") -> Iterable[Row]:
    database = "/databases/{database}"
    function = database + "/functions/{function}"
    none_in, unsupported = _none_in(service.catalog), _unsupported("functions")
    yield "GET", "/functions", _none("functions"), "read", None
    yield "GET", database + "/functions", none_in("functions"), "read", _IN_PATH
    yield "POST", database + "/functions", unsupported, "write", _IN_PATH
    yield "GET", database + "/function-details", none_in("functionDetails"), "read", _IN_PATH
    yield "GET", function, _no_function, "read", _IN_PATH
    yield "POST", function, unsupported, "write", _IN_PATH
    yield "DELETE", function, unsupported, "write", _IN_PATH


def _unsupported(what: str) -> Handler:
    def refuse(call: Call) -> Any:
        del call
        raise Failure(501, f"this service does not support {what}")

    return refuse


def _none(list_: str) -> Handler:
    return lambda _: {list_: [], "nextPageToken": None}


def _none_in(catalog: Catalog) -> Callable[[str], Handler]:
    def of(list_: str) -> Handler:
        def names(call: Call) -> Any:
            require_database(catalog, call.path["database"])
            return {list_: [], "nextPageToken": None}

        return names

    return of


def _no_function(call: Call) -> Any:
    name = call.path["function"]
    raise Failure(404, "there are no functions in this catalog", resource="FUNCTION", name=name)


class _Databases:
    """Handlers of the paths of databases."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def names(self, call: Call) -> Any:
        """Names of the databases that may be read."""
        matches = matching(call.query.get("databaseNamePattern"))
        names = call.principal.readable(self._catalog.list_databases())
        databases, token = page(call, filter(matches, names))
        return {"databases": databases, "nextPageToken": token}

    def create(self, call: Call) -> None:
        """Create a database."""
        name = member(call.body, "name", str)
        options = member(call.body, "options", dict, {})
        with about("DATABASE", name):
            properties = {key: str(value) for key, value in options.items()}
            self._catalog.create_database(name, properties=properties)

    def load(self, call: Call) -> Any:
        """One database."""
        name = call.path["database"]
        with about("DATABASE", name):
            database = self._catalog.database(name)
        options = {key: value for key, value in database.properties.items() if key != LOCATION}
        if database.comment is not None:
            options[COMMENT] = database.comment
        location = database.properties.get(LOCATION) or self._catalog.database_path(name)
        return {"id": name, "name": name, "location": location, "options": options, **_AUDIT}

    def alter(self, call: Call) -> Any:
        """Set and remove properties of a database."""
        name = call.path["database"]
        removals = member(call.body, "removals", list, [])
        updates = {key: str(text) for key, text in member(call.body, "updates", dict, {}).items()}
        with about("DATABASE", name):
            database = self._catalog.database(name)
            self._catalog.alter_database(name, {**dict.fromkeys(removals), **updates})
        keys = {*database.properties, *([COMMENT] if database.comment is not None else [])}
        return {
            "removed": [key for key in removals if key in keys],
            "updated": list(updates),
            "missing": [key for key in removals if key not in keys],
        }

    def drop(self, call: Call) -> None:
        """Drop a database with its contents: clients check before whether it is empty."""
        with about("DATABASE", call.path["database"]):
            self._catalog.drop_database(call.path["database"], cascade=True)


class _Views(DatabaseObjects):
    """Handlers of the paths of views."""

    kind = "view"

    def _listed(self, call: Call, database: str) -> Iterable[str]:
        return self._catalog.list_views(database)

    def _document(self, database: str, name: str) -> Any:
        view = self._catalog.view(f"{database}.{name}")
        return {"id": f"{database}.{name}", "name": name, "schema": view.to_json(), **_AUDIT}

    def create(self, call: Call) -> None:
        """Create a view."""
        database, name = name_in(call.body, "identifier")
        if database != call.path["database"]:
            raise Failure(400, "the identifier names another database than the path")
        try:
            view = View.from_json(member(call.body, "schema", dict), name)
        except CorruptDataError as error:
            raise Failure(400, str(error)) from error
        require_database(self._catalog, database)
        with about("VIEW", name):
            self._catalog.create_view(f"{database}.{name}", view)

    def alter(self, call: Call) -> None:
        """Change dialects, comment and options of a view."""
        identifier = f"{call.path['database']}.{call.path['view']}"
        with about("VIEW", call.path["view"]):
            view = self._catalog.view(identifier)
        changes = member(call.body, "changes", list)
        dialects = [change.get("dialect") for change in changes if isinstance(change, dict)]
        with about("DIALECT", next((str(name) for name in dialects if name), "")):
            changed = changed_view(view, changes)
        with about("VIEW", call.path["view"]):
            self._catalog.alter_view(identifier, changed)

    def drop(self, call: Call) -> None:
        """Drop a view."""
        with about("VIEW", call.path["view"]):
            self._catalog.drop_view(f"{call.path['database']}.{call.path['view']}")

    def rename(self, call: Call) -> None:
        """Rename a view."""
        old, new = name_in(call.body, "source"), name_in(call.body, "destination")
        with about("VIEW", old[1]):
            self._catalog.view(".".join(old))
        require_database(self._catalog, new[0])
        with about("VIEW", new[1]):
            self._catalog.rename_view(".".join(old), ".".join(new))
