# SPDX-License-Identifier: Apache-2.0
"""Paimon's REST protocol, version 1, over a catalog of any kind.

Source: Paimon's `rest-catalog-open-api.yaml` and `ResourcePaths`. Handlers of tables are in
`paimon_tables`; here are the paths with the access that each requires, and the handlers of
databases, views and functions (which are not supported).
"""

import abc
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from starlette.routing import Route

from ingest.tools.catalog_service.access import Access
from ingest.tools.catalog_service.protected import (
    Call,
    Databases,
    Failure,
    Handler,
    matching,
    page,
    protected,
)
from storage.catalog.catalog import Catalog
from storage.catalog.options import STORE_PREFIXES
from storage.catalog.rest import changed_view, changes_from_json, schema_to_json
from storage.catalog.system_tables import PartitionChange, live_partitions, path_of_spec
from storage.catalog.view import COMMENT, LOCATION, View
from storage.errors import AlreadyExistsError, CorruptDataError, NotFoundError
from storage.format.metadata.documents import dump_object
from storage.format.metadata.schema import new_schema
from storage.format.metadata.snapshot import Snapshot, tag_names
from storage.format.types.types import ColumnExistsError, ColumnNotFoundError, field_from_json
from storage.options.values import duration_ms
from storage.table.commit.commit import publish_prepared
from storage.table.retention.consumers import all_consumers, delete_consumer, write_consumer
from storage.table.retention.expire_partitions import success_times
from storage.table.retention.reachability import branch_names
from storage.table.tags import get_tag

if TYPE_CHECKING:
    from ingest.tools.catalog_service.service import CatalogService
    from storage.table.table import FileStoreTable

# Tables in Paimon's REST protocol: schemas, snapshots, commits, branches, tags.


_TOKEN_MS = 24 * 3_600_000
"""Reported lifetime of credentials; clients renew them an hour before expiry [ms]."""

_UNKNOWN = -1
"""Paimon's value of a statistic that was not computed."""


@contextlib.contextmanager
def about(resource: str, name: str) -> Iterator[None]:
    """Responses 404 and 409 raised inside name this resource."""
    try:
        yield
    except NotFoundError as error:
        raise Failure(404, str(error), resource=resource, name=name) from error
    except AlreadyExistsError as error:
        raise Failure(409, str(error), resource=resource, name=name) from error


def member(document: Any, name: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
    """A member of a JSON object; null counts as missing.

    Raises:
        Failure: it is no object, or the member is missing or not of this kind.
    """
    if not isinstance(document, dict):
        raise Failure(400, "the body is not a JSON object")
    value = document.get(name)
    if value is None and default is not ...:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise Failure(400, f"member {name!r} of the body is missing or of a wrong type")
    return value


def name_in(document: Any, name: str) -> tuple[str, str]:
    """Database and object of an identifier in a body."""
    identifier = member(document, name, dict)
    return member(identifier, "database", str), member(identifier, "object", str)


def require_database(catalog: Catalog, name: str) -> None:
    """Answer 404 for a database that does not exist."""
    with about("DATABASE", name):
        catalog.database(name)


class DatabaseObjects(abc.ABC):
    """Handlers that list and load the objects of databases: tables, or views.

    Attributes:
        kind: `table` or `view`: as in paths and responses.
    """

    kind: ClassVar[str]

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @abc.abstractmethod
    def _listed(self, call: Call, database: str) -> Iterable[str]:
        """Names in a database that the call requests."""

    @abc.abstractmethod
    def _document(self, database: str, name: str) -> Any:
        """The document of one object."""

    def _names(self, call: Call, database: str) -> Iterable[str]:
        require_database(self._catalog, database)
        matches = matching(call.query.get(f"{self.kind}NamePattern"))
        return filter(matches, self._listed(call, database))

    def names(self, call: Call) -> Any:
        """Names in one database."""
        names, token = page(call, self._names(call, call.path["database"]))
        return {f"{self.kind}s": names, "nextPageToken": token}

    def details(self, call: Call) -> Any:
        """All objects of one database; those dropped meanwhile are left out."""
        database = call.path["database"]
        names, token = page(call, self._names(call, database))
        documents = []
        for name in names:
            with contextlib.suppress(NotFoundError):
                documents.append(self._document(database, name))
        return {f"{self.kind}Details": documents, "nextPageToken": token}

    def names_everywhere(self, call: Call) -> Any:
        """Names in all databases that may be read."""
        matches = matching(call.query.get("databaseNamePattern"))
        databases = call.principal.readable(self._catalog.list_databases())
        everything = (
            {"database": database, "object": name}
            for database in filter(matches, databases)
            for name in self._names(call, database)
        )
        names, token = page(call, everything, lambda item: f"{item['database']}.{item['object']}")
        return {f"{self.kind}s": names, "nextPageToken": token}

    def load(self, call: Call) -> Any:
        """One object."""
        with about(self.kind.upper(), call.path[self.kind]):
            return self._document(call.path["database"], call.path[self.kind])


class Tables(DatabaseObjects):
    """Handlers of the paths of tables."""

    kind = "table"

    def __init__(self, service: "CatalogService") -> None:
        super().__init__(service.catalog)
        self._service = service

    def _table(self, call: Call) -> "FileStoreTable | Any":
        return self._open(call.path["database"], call.path["table"])

    def _open(self, database: str, name: str) -> "FileStoreTable | Any":
        with about("TABLE", name):
            return self._catalog.table(f"{database}.{name}")

    # ---- names and schemas

    def _listed(self, call: Call, database: str) -> Iterable[str]:
        kind = call.query.get("tableType")
        names = self._catalog.list_tables(database)
        return (name for name in names if not kind or self._kind(database, name) == kind)

    def _kind(self, database: str, name: str) -> str:
        schema = self._catalog.schemas(f"{database}.{name}").latest()
        return "" if schema is None else schema.options.get("type", "table")

    def load_by_id(self, call: Call) -> Any:
        """The table of an id, by a search of all readable databases."""
        table_id = call.path["id"]
        for database in call.principal.readable(self._catalog.list_databases()):
            for name in self._catalog.list_tables(database):
                with contextlib.suppress(NotFoundError):
                    if self._catalog.table_id(f"{database}.{name}") == table_id:
                        return self._document(database, name)
        raise Failure(404, "there is no table of this id", resource="TABLE", name=table_id)

    def _document(self, database: str, name: str) -> Any:
        identifier = f"{database}.{name}"
        table = self._catalog.table(identifier)
        return {
            "id": self._catalog.table_id(identifier),
            "database": database,
            "name": name,
            "path": table.layout.root,
            "isExternal": False,  # else Paimon's clients would bypass this service
            "schemaId": table.schema.id,
            "schema": schema_to_json(table.schema),
            "owner": table.schema.options.get("owner"),
            "createdAt": 0,
            "createdBy": None,
            "updatedAt": table.schema.time_ms,
            "updatedBy": None,
        }

    def create(self, call: Call) -> None:
        """Create a table."""
        database, name = name_in(call.body, "identifier")
        if database != call.path["database"]:
            raise Failure(400, "the identifier names another database than the path")
        document = member(call.body, "schema", dict)
        fields = member(document, "fields", list)
        options = member(document, "options", dict, {})
        schema = new_schema(
            [field_from_json(field) for field in fields],
            primary_keys=member(document, "primaryKeys", list, []),
            partition_keys=member(document, "partitionKeys", list, []),
            options={key: str(value) for key, value in options.items()},
            comment=member(document, "comment", str, None),
        )
        with about("DATABASE", database):
            self._catalog.database(database)
        with about("TABLE", name):
            self._catalog.create_table(f"{database}.{name}", schema)

    def alter(self, call: Call) -> None:
        """Change the schema of a table."""
        table = self._table(call)
        documents = member(call.body, "changes", list)
        changes = [change for document in documents for change in changes_from_json(document)]
        try:
            table.alter(changes)
        except (ColumnExistsError, ColumnNotFoundError) as error:
            with about("COLUMN", str(error.context.get("column", ""))):
                raise

    def drop(self, call: Call) -> None:
        """Drop a table."""
        with about("TABLE", call.path["table"]):
            self._catalog.drop_table(f"{call.path['database']}.{call.path['table']}")

    def rename(self, call: Call) -> None:
        """Rename a table."""
        old, new = name_in(call.body, "source"), name_in(call.body, "destination")
        with about("TABLE", old[1]):
            self._catalog.schemas(".".join(old)).latest()
            if not self._catalog.exists(".".join(old)):
                raise NotFoundError("there is no such table", table=".".join(old))
        with about("DATABASE", new[0]):
            self._catalog.database(new[0])
        with about("TABLE", new[1]):
            self._catalog.rename_table(".".join(old), ".".join(new))

    def register(self, call: Call) -> None:
        """Register a table whose files are at the path that this catalog assigns."""
        database, name = name_in(call.body, "identifier")
        identifier, path = f"{database}.{name}", member(call.body, "path", str)
        if database != call.path["database"]:
            raise Failure(400, "the identifier names another database than the path")
        with about("DATABASE", database):
            self._catalog.database(database)
        if self._catalog.exists(identifier):
            raise Failure(409, "the table exists already", resource="TABLE", name=name)
        if path.rstrip("/").removeprefix("file:") != self._catalog.table_path(identifier):
            raise Failure(501, "only tables below the catalog's own warehouse are registered")
        with about("TABLE", name):
            self._catalog.repair_table(identifier)

    def authorize(self, call: Call) -> Any:
        """Row and column filters: none, access to a database covers all of its rows."""
        self._table(call)
        return {"filter": [], "columnMasking": {}}

    def token(self, call: Call) -> Any:
        """Credentials of the store of a table."""
        if not self._service.hand_out_credentials:
            raise Failure(
                403,
                "this service hands out no credentials of the store: set data-token.enabled to "
                "false and give them to the client",
                resource="TABLE",
                name=call.path["table"],
            )
        self._table(call)
        options = self._catalog.options.items()
        return {
            "token": {key: value for key, value in options if key.startswith(STORE_PREFIXES)},
            "expiresAtMillis": self._catalog.clock.now_ms() + _TOKEN_MS,
        }

    # ---- snapshots

    def newest_snapshot(self, call: Call) -> Any:
        """The newest snapshot, with the statistics of its document."""
        table = self._table(call)
        snapshot = table.latest_snapshot()
        if snapshot is None:
            raise _no_snapshot(call, "LATEST")
        return {
            "snapshot": {
                "snapshot": snapshot.members(),
                "recordCount": snapshot.total_record_count,
                "fileSizeInBytes": _UNKNOWN,
                "fileCount": _UNKNOWN,
                "lastFileCreationTime": _UNKNOWN,
            }
        }

    def snapshot(self, call: Call) -> Any:
        """The snapshot of an id, `EARLIEST`, `LATEST` or a tag."""
        snapshot = _version(self._table(call), call.path["version"])
        if snapshot is None:
            raise _no_snapshot(call, call.path["version"])
        return {"snapshot": snapshot.members()}

    def snapshots(self, call: Call) -> Any:
        """All snapshots."""
        table = self._table(call)
        ids, token = page(call, table.snapshots.ids(), lambda id_: f"{id_:020d}")
        snapshots = []
        for id_ in ids:
            with contextlib.suppress(NotFoundError):
                snapshots.append(table.snapshots.read(id_).members())
        return {"snapshots": snapshots, "nextPageToken": token}

    def commit(self, call: Call) -> Any:
        """Publish a snapshot; `success` is false when another writer won."""
        name = call.path["table"]
        document, id_ = member(call.body, "snapshot", dict), member(call.body, "tableId", str)
        try:
            snapshot = Snapshot.from_json(dump_object(document))
        except CorruptDataError as error:
            raise Failure(400, str(error)) from error
        table = self._table(call)
        if id_ != self._catalog.table_id(f"{call.path['database']}.{name}"):
            message = "the table was dropped and recreated: open it again"
            raise Failure(404, message, resource="TABLE", name=name)
        base = member(call.body, "baseSnapshotUuid", str, None)
        based = "baseSnapshotUuid" in call.body
        return {"success": publish_prepared(table, snapshot, base, based=based)}

    def roll_back(self, call: Call) -> None:
        """Roll back to an older snapshot, or to that of a tag."""
        table = self._table(call)
        instant = member(call.body, "instant", dict)
        newest, expected = table.latest_snapshot(), member(call.body, "fromSnapshot", int, None)
        if expected is not None and (newest is None or newest.id != expected):
            actual = "none" if newest is None else newest.id
            raise Failure(400, f"the newest snapshot is {actual}, not {expected}")
        if member(instant, "type", str) == "tag":
            tag = member(instant, "tagName", str)
            with about("TAG", tag):
                table.rollback_to(tag=tag)
            return
        id_ = member(instant, "snapshotId", int)
        with about("SNAPSHOT", str(id_)):
            table.rollback_to(id_)

    # ---- partitions

    def partitions(self, call: Call) -> Any:
        """Partitions with live files."""
        return self._page_of_partitions(call, call.query)

    def partitions_by_filter(self, call: Call) -> Any:
        """As `partitions`: clients apply the filter to the result."""
        member(call.body, "filter", str)
        return self._page_of_partitions(call, call.body)

    def partitions_by_names(self, call: Call) -> Any:
        """The given partitions that have live files."""
        paths = [_path(spec) for spec in member(call.body, "specs", list)]
        table = self._table(call)
        entries = [entry for entry in _partitions(table) if path_of_spec(entry.spec) in paths]
        return {"partitions": _documents(table, entries), "nextPageToken": None}

    def _page_of_partitions(self, call: Call, query: Any) -> Any:
        table = self._table(call)
        matches = matching(query.get("partitionNamePattern"))
        entries = (entry for entry in _partitions(table) if matches(path_of_spec(entry.spec)))
        chunk, token = page(call, entries, lambda entry: path_of_spec(entry.spec), query)
        return {"partitions": _documents(table, chunk), "nextPageToken": token}

    def mark_partitions(self, call: Call) -> None:
        """Run a table's actions for partitions that are complete."""
        table = self._table(call)
        table.mark_partitions_done(member(call.body, "specs", list))

    def create_partitions(self, call: Call) -> Any:
        """Register partitions in a catalog that has entries of them."""
        table = self._table(call)
        if table.environment is None or not table.environment.registers_partitions:
            raise Failure(501, "this catalog has no entries of partitions: rows make them")
        specs = member(call.body, "partitionSpecs", list)
        table.environment.add_partitions(specs)
        return {"created": specs, "existed": []}

    # ---- branches, tags, consumers

    def branches(self, call: Call) -> Any:
        """Names of branches."""
        return {"branches": branch_names(self._table(call))}

    def create_branch(self, call: Call) -> None:
        """Create a branch: empty, or at a tag."""
        name, tag = member(call.body, "branch", str), member(call.body, "fromTag", str, None)
        table = self._table(call)
        if tag is not None:
            with about("TAG", tag):
                get_tag(table, tag)
        with about("BRANCH", name):
            table.create_branch(name, tag=tag)

    def drop_branch(self, call: Call) -> None:
        """Drop a branch."""
        with about("BRANCH", call.path["branch"]):
            self._table(call).drop_branch(call.path["branch"])

    def rename_branch(self, call: Call) -> None:
        """Rename a branch."""
        new_name = member(call.body, "toBranch", str)
        try:
            with about("BRANCH", call.path["branch"]):
                self._table(call).rename_branch(call.path["branch"], new_name)
        except Failure as error:
            if error.status == 409:
                error.name = new_name
            raise

    def forward_branch(self, call: Call) -> None:
        """Fast-forward main to a branch."""
        with about("BRANCH", call.path["branch"]):
            self._table(call).fast_forward(call.path["branch"])

    def tags(self, call: Call) -> Any:
        """Names of tags."""
        table = self._table(call)
        prefix = (call.query.get("tagNamePrefix") or "").removesuffix("%")
        names = tag_names(table.file_io, table.layout)
        chunk, token = page(call, (name for name in names if name.startswith(prefix)))
        return {"tags": chunk, "nextPageToken": token}

    def tag(self, call: Call) -> Any:
        """One tag."""
        table = self._table(call)
        with about("TAG", call.path["tag"]):
            tag = get_tag(table, call.path["tag"])
        retained_ms = tag.time_retained_ms
        return {
            "tagName": tag.name,
            "snapshot": tag.snapshot.members(),
            "tagCreateTime": None if tag.created is None else int(tag.created.timestamp() * 1000),
            "tagTimeRetained": None if retained_ms is None else f"PT{retained_ms / 1000:g}S",
        }

    def create_tag(self, call: Call) -> None:
        """Create a tag of a snapshot, or of the newest."""
        name, id_ = member(call.body, "tagName", str), member(call.body, "snapshotId", int, None)
        retained = member(call.body, "timeRetained", str, None)
        ignore = member(call.body, "ignoreIfExists", bool, False)
        try:
            retained_ms = None if retained is None else duration_ms(retained)
        except ValueError as error:
            raise Failure(400, f"timeRetained is not {error}") from error
        table = self._table(call)
        try:
            table.create_tag(name, id_, time_retained_ms=retained_ms, ignore_if_exists=ignore)
        except NotFoundError as error:
            target = "LATEST" if id_ is None else str(id_)
            raise Failure(404, str(error), resource="SNAPSHOT", name=target) from error
        except AlreadyExistsError as error:
            raise Failure(409, str(error), resource="TAG", name=name) from error

    def delete_tag(self, call: Call) -> None:
        """Delete a tag."""
        if not self._table(call).delete_tag(call.path["tag"]):
            message = f"Tag '{call.path['tag']}' doesn't exist."
            raise Failure(404, message, resource="TAG", name=call.path["tag"])

    def consumers(self, call: Call) -> Any:
        """Progress of streaming readers."""
        chunk, token = page(
            call, all_consumers(self._table(call)).items(), lambda consumer: consumer[0]
        )
        listed = [{"consumerId": name, "nextSnapshot": next_id} for name, next_id in chunk]
        return {"consumers": listed, "nextPageToken": token}

    def reset_consumer(self, call: Call) -> None:
        """Set or remove the progress of a streaming reader."""
        table, name = self._table(call), member(call.body, "consumerId", str)
        id_ = member(call.body, "nextSnapshotId", int, None)
        if id_ is None:
            delete_consumer(table, name)
        else:
            write_consumer(table, name, id_)


def _no_snapshot(call: Call, version: str) -> Failure:
    message = f"table {call.path['table']} has no such snapshot"
    return Failure(404, message, resource="SNAPSHOT", name=version)


def _version(table: "FileStoreTable", version: str) -> Snapshot | None:
    if version == "LATEST":
        return table.latest_snapshot()
    try:
        if version == "EARLIEST":
            id_ = table.snapshots.earliest_id()
            return None if id_ is None else table.snapshots.read(id_)
        if version.isdecimal():
            return table.snapshots.read(int(version))
        return get_tag(table, version).snapshot
    except NotFoundError:
        return None


def _partitions(table: "FileStoreTable") -> list[PartitionChange]:
    latest = table.latest_snapshot()
    return [] if latest is None else live_partitions(table, latest)


def _path(spec: Any) -> str:
    if not isinstance(spec, dict):
        raise Failure(400, "a partition is an object of values by column")
    return path_of_spec({key: str(value) for key, value in spec.items()})


def _documents(
    table: "FileStoreTable", partitions: Iterable[PartitionChange]
) -> list[Mapping[str, Any]]:
    by_path = {path_of_spec(entry.spec): entry for entry in partitions}
    times = success_times(table, list(by_path)) if table.schema.partition_keys else {}
    return [
        {
            "spec": entry.spec,
            "recordCount": entry.record_count,
            "fileSizeInBytes": entry.file_size,
            "fileCount": entry.file_count,
            "lastFileCreationTime": entry.last_created_ms,
            "totalBuckets": entry.total_buckets,
            "done": path in times,
        }
        for path, entry in by_path.items()
    ]


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
