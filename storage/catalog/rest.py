# SPDX-License-Identifier: Apache-2.0
"""The REST catalog: a server keeps databases, tables and views, and publishes every commit.

Source: Paimon's REST protocol (`RESTApi`, `RESTCatalog`), version 1, with a bearer token. The
server says the location of a table, changes its schema, and publishes its snapshots; data files,
manifests, and what was published are read and written by the client, in the table's directory.

Features of the protocol that this client does not support are refused by name:
credentials for data (`data-token.enabled`), signatures of Alibaba's DLF.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus

from storage.catalog.catalog import BRANCH_MARK, Catalog, check_name, split_identifier
from storage.catalog.options import LOCK_ENABLED, URI, WAREHOUSE, flag, split_options
from storage.catalog.system_tables import partition_changes
from storage.catalog.view import LOCATION, Database, View
from storage.clients.rest_client import RestClient
from storage.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.layout import MAIN_BRANCH, TableLayout
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    DropPrimaryKey,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
)
from storage.format.metadata.snapshot import Snapshot
from storage.format.types.types import field_to_json, parse_type, type_to_json
from storage.io.counting import ForwardingFileIO
from storage.io.file_io import FileIO
from storage.io.object_store_options import redacted_text
from storage.io.resolve import is_local, resolve_file_io
from storage.table.core import CatalogEnvironment, TableCore
from storage.table.table import FileStoreTable

# Changes of schemas and views as Paimon's REST protocol spells them, both ways.
#
# Source: Paimon's `SchemaChange` and `ViewChange`.


_CHANGES: Mapping[type[SchemaChange], tuple[str, Mapping[str, str]]] = {
    SetOption: ("setOption", {"key": "key", "value": "value"}),
    RemoveOption: ("removeOption", {"key": "key"}),
    UpdateTableComment: ("updateComment", {"comment": "comment"}),
    AddColumn: ("addColumn", {"fieldNames": "name", "dataType": "type", "comment": "comment"}),
    RenameColumn: ("renameColumn", {"fieldNames": "name", "newName": "new_name"}),
    DropColumn: ("dropColumn", {"fieldNames": "name"}),
    UpdateType: ("updateColumnType", {"fieldNames": "name", "newDataType": "type"}),
    UpdateNullability: (
        "updateColumnNullability",
        {"fieldNames": "name", "newNullability": "nullable"},
    ),
    UpdateComment: ("updateColumnComment", {"fieldNames": "name", "newComment": "comment"}),
    UpdateDefault: (
        "updateColumnDefaultValue",
        {"fieldNames": "name", "newDefaultValue": "default"},
    ),
    MoveColumn: ("updateColumnPosition", {}),
    DropPrimaryKey: ("dropPrimaryKey", {}),
}
"""Action, and members of the object with the attributes that they hold, by kind of change."""


def change_to_json(change: SchemaChange) -> dict[str, Any]:
    """The JSON object of a change."""
    action, members = _CHANGES[type(change)]
    document: dict[str, Any] = {"action": action}
    for member, attribute in members.items():
        value = getattr(change, attribute)
        converted = _path(value) if attribute == "name" else value
        document[member] = type_to_json(value) if attribute == "type" else converted
    match change:
        case AddColumn():
            document["move"] = _move(change)
        case UpdateType():
            document["keepNullability"] = True
        case MoveColumn():
            last = {"fieldName": _path(change.name)[-1], "type": "LAST"}
            document["move"] = _move(change) or last
        case _:
            pass
    return document


def view_changes(before: View, after: View, identifier: str) -> list[dict[str, Any]]:
    """The changes that turn a view into another one.

    Raises:
        UnsupportedFeatureError: its columns or its query differ, for which there is no change.
    """
    if (before.fields, before.query) != (after.fields, after.query):
        raise UnsupportedFeatureError(
            "the query of a view of a REST catalog cannot be changed",
            hint="drop the view and create it again",
            view=identifier,
        )
    changes: list[dict[str, Any]] = [
        {"action": "setOption", "key": key, "value": value}
        for key, value in after.options.items()
        if before.options.get(key) != value
    ]
    removed = [key for key in before.options if key not in after.options]
    changes += [{"action": "removeOption", "key": key} for key in removed]
    if before.comment != after.comment:
        changes.append({"action": "updateComment", "comment": after.comment})
    for name, query in after.dialects.items():
        if before.dialects.get(name) != query:
            action = "updateDialect" if name in before.dialects else "addDialect"
            changes.append({"action": action, "dialect": name, "query": query})
    dropped = [name for name in before.dialects if name not in after.dialects]
    changes += [{"action": "dropDialect", "dialect": name} for name in dropped]
    return changes


def _path(name: str | tuple[str, ...]) -> list[str]:
    return [name] if isinstance(name, str) else list(name)


def _move(change: AddColumn | MoveColumn) -> dict[str, Any] | None:
    """The position of a column; None: unspecified."""
    name = _path(change.name)[-1]
    if change.first:
        return {"fieldName": name, "type": "FIRST"}
    if change.after is not None:
        return {"fieldName": name, "referenceFieldName": change.after, "type": "AFTER"}
    if change.before is not None:
        return {"fieldName": name, "referenceFieldName": change.before, "type": "BEFORE"}
    return None


def changes_from_json(document: Mapping[str, Any]) -> list[SchemaChange]:
    """The changes of an object: two where it also states whether nulls are allowed.

    Raises:
        InvalidRequestError: it is no change.
        UnsupportedFeatureError: there is no change of this action.
    """
    action = document.get("action")
    change_type = next((kind for kind, (name, _) in _CHANGES.items() if name == action), None)
    if change_type is None:
        raise UnsupportedFeatureError(
            "unknown action of a table change",
            hint=f"there are {', '.join(name for name, _ in _CHANGES.values())}",
            action=action,
        )
    try:
        return _changes(change_type, document)
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidRequestError(
            "a field of a table change is missing", detail=repr(error), action=action
        ) from error


def _changes(kind: type[SchemaChange], document: Mapping[str, Any]) -> list[SchemaChange]:
    attributes: dict[str, Any] = {}
    for member, attribute in _CHANGES[kind][1].items():
        value: Any = document.get(member) if attribute in _NULLABLE else document[member]
        attributes[attribute] = parse_type(value) if attribute == "type" else value
        if attribute == "name":
            attributes[attribute] = tuple(value)
    move = document.get("move")
    if kind is MoveColumn:
        attributes["name"] = (move["fieldName"],)  # type: ignore[index]
    if kind in (MoveColumn, AddColumn) and move is not None:
        attributes |= _move_json(move)
    change: SchemaChange = kind(**attributes)
    if isinstance(change, UpdateType) and not document.get("keepNullability", True):
        return [change, UpdateNullability(change.name, change.type.nullable)]
    return [change]


_NULLABLE = ("comment", "default")
"""Attributes whose members may be missing."""


def _move_json(move: Mapping[str, Any]) -> dict[str, Any]:
    match move["type"]:
        case "FIRST":
            return {"first": True}
        case "AFTER":
            return {"after": move["referenceFieldName"]}
        case "BEFORE":
            return {"before": move["referenceFieldName"]}
        case "LAST":
            return {}
        case kind:
            raise InvalidRequestError(
                "unknown type of column move", hint="use FIRST, AFTER, BEFORE or LAST", type=kind
            )


def changed_view(view: View, changes: Sequence[Mapping[str, Any]]) -> View:
    """A view after changes.

    Raises:
        AlreadyExistsError: a dialect that is added exists.
        NotFoundError: a dialect that is changed or dropped does not exist.
        InvalidRequestError: one is no change.
        UnsupportedFeatureError: there is no change of this action.
    """
    options, dialects, comment = dict(view.options), dict(view.dialects), view.comment
    for change in changes:
        try:
            match change.get("action"):
                case "setOption":
                    options[change["key"]] = change["value"]
                case "removeOption":
                    options.pop(change["key"], None)
                case "updateComment":
                    comment = change.get("comment")
                case "addDialect" | "updateDialect" | "dropDialect" as action:
                    _change_dialect(dialects, action, change)
                case action:
                    raise UnsupportedFeatureError("unknown action of a view change", action=action)
        except KeyError as error:
            raise InvalidRequestError(
                "a field of a view change is missing", detail=repr(error)
            ) from error
    return dataclasses.replace(view, options=options, dialects=dialects, comment=comment)


def _change_dialect(dialects: dict[str, str], action: str, change: Mapping[str, Any]) -> None:
    name = change["dialect"]
    if action == "addDialect" and name in dialects:
        raise AlreadyExistsError("the view has this dialect already", dialect=name)
    if action != "addDialect" and name not in dialects:
        raise NotFoundError("the view has no such dialect", dialect=name)
    if action == "dropDialect":
        del dialects[name]
    else:
        dialects[name] = change["query"]


_TOKEN = "token"
_PROVIDER = "token.provider"
_HEADER = "header."
_PREFIX = "prefix"
_SNAPSHOT = re.compile(r"(?:/branch/branch-([^/]+))?/snapshot/snapshot-(\d+)")


class RestFileIO(ForwardingFileIO):
    """The store of one table, whose snapshots the server publishes."""

    def __init__(
        self, inner: FileIO, client: RestClient, identifier: str, root: str, table_id: str
    ) -> None:
        super().__init__(inner)
        self._client = client
        self._identifier = identifier
        self._root = root
        self._table_id = table_id

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """See `FileIO`: a snapshot is sent to the server, which refuses it if it is out of date.

        Raises:
            UnsupportedFeatureError: the file is a schema, which only the server changes.
        """
        snapshot = _SNAPSHOT.fullmatch(path.removeprefix(self._root))
        if snapshot is None:
            if "/schema/schema-" in path:
                raise UnsupportedFeatureError(
                    "the catalog server manages this table's schemas", table=self._identifier
                )
            return self.inner.put_if_absent(path, data)
        if self.inner.is_file(path):
            return False
        branch, number = snapshot.groups()
        parsed = Snapshot.from_json(data)
        base = f"{path.rpartition('-')[0]}-{int(number) - 1}"
        name = self._identifier + (f"{BRANCH_MARK}{branch}" if branch else "")
        answer = self._client.post(
            f"{table_resource(name)}/commit",
            {
                "tableId": self._table_id,
                "baseSnapshotUuid": self._uuid(base) if int(number) > 1 else None,
                "snapshot": dict(parsed.members()),
                "statistics": self._statistics(parsed),
            },
        )
        return bool(answer.get("success"))

    def _uuid(self, path: str) -> str | None:
        return Snapshot.from_json(self.inner.read_bytes(path)).uuid

    def _statistics(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        table = FileStoreTable.open(self._root, self.inner)
        return [
            {
                "spec": change.spec,
                "recordCount": change.record_count,
                "fileSizeInBytes": change.file_size,
                "fileCount": change.file_count,
                "lastFileCreationTime": change.last_created_ms,
                "totalBuckets": change.total_buckets,
            }
            for change in partition_changes(table, snapshot)
        ]


class _RestEnvironment(CatalogEnvironment):
    """Changes the schema of a table through the server."""

    owns_snapshots = True

    def __init__(self, client: RestClient, identifier: str) -> None:
        self._client = client
        self._identifier = identifier

    def alter(self, table: FileStoreTable, changes: Sequence[SchemaChange]) -> FileStoreTable:
        """See `CatalogEnvironment`."""
        table.evolved(changes)
        body = {"changes": [change_to_json(change) for change in changes]}
        if changes:
            self._client.post(self._resource, body)
        return table.latest()

    def published(self, table: TableCore, snapshot: Snapshot) -> None:
        """See `CatalogEnvironment`; the server has published it."""

    def create_branch(self, name: str, tag: str | None) -> None:
        """See `CatalogEnvironment`."""
        self._client.post(f"{self._resource}/branches", {"branch": name, "fromTag": tag})

    def drop_branch(self, name: str) -> None:
        """See `CatalogEnvironment`."""
        self._client.delete(self._branch(name))

    def rename_branch(self, name: str, new_name: str) -> None:
        """See `CatalogEnvironment`."""
        self._client.post(f"{self._branch(name)}/rename", {"toBranch": new_name})

    def fast_forward(self, name: str) -> None:
        """See `CatalogEnvironment`."""
        self._client.post(f"{self._branch(name)}/forward", {})

    def roll_back(self, snapshot_id: int, tag: str | None) -> None:
        """See `CatalogEnvironment`."""
        by_id = {"type": "snapshot", "snapshotId": snapshot_id}
        instant = by_id if tag is None else {"type": "tag", "tagName": tag}
        self._client.post(f"{self._resource}/rollback", {"instant": instant})

    @property
    def _resource(self) -> str:
        return table_resource(self._identifier)

    def _branch(self, name: str) -> str:
        return f"{self._resource}/branches/{quote_plus(name)}"


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """The entry of a table in the server."""

    path: str
    table_id: str
    file_io: FileIO


class RestCatalog(Catalog):
    """See the module. Made by `Catalog.open`.

    The warehouse is the server's name of one: the option `warehouse`, or else the location.
    """

    keeps_views = True

    def __init__(
        self, client: RestClient, file_io: FileIO, warehouse: str, options: Mapping[str, str]
    ) -> None:
        super().__init__(file_io, warehouse, options)
        self._client = client

    @classmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "RestCatalog":
        """See `Catalog.open`."""
        keys = (URI, _TOKEN, _PROVIDER, _PREFIX)
        settings, store = split_options(options, keys, (_HEADER,))
        if flag(settings, LOCK_ENABLED, False):
            raise UnsupportedFeatureError(
                "a REST catalog has no lock: its server commits", option=LOCK_ENABLED
            )
        if settings.get(_PROVIDER, "bear") != "bear":
            raise UnsupportedFeatureError(
                "this authentication method is not supported",
                hint="use `token.provider` = `bear` with `token`",
                option=_PROVIDER,
                value=settings[_PROVIDER],
            )
        if not settings.get(URI):
            raise InvalidOptionError(
                "a REST catalog needs the address of its server",
                hint="set it to http://host:port",
                key=URI,
            )
        if redacted_text(settings[URI]) != settings[URI]:
            raise InvalidOptionError(
                "credentials are not allowed in the server address",
                hint=f"give them as `{_TOKEN}`, or as `{_HEADER}Authorization`",
                key=URI,
            )
        file_io, _ = resolve_file_io(warehouse, None if is_local(warehouse) else store)
        warehouse = settings.get(WAREHOUSE, warehouse)
        headers = {
            key.removeprefix(_HEADER): value
            for key, value in settings.items()
            if key.startswith(_HEADER)
        }
        client = RestClient(settings[URI], settings.get(_TOKEN, ""), headers, "")
        config = client.get("config", {"warehouse": warehouse})
        merged = {**(config.get("defaults") or {}), **settings, **(config.get("overrides") or {})}
        client = dataclasses.replace(client, prefix=str(merged.get(_PREFIX) or ""))
        return cls(client, file_io, warehouse, {**settings, **store})

    # ---- databases

    def _make_database(self, name: str, properties: dict[str, str]) -> bool:
        return self._client.create("databases", {"name": name, "options": properties})

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        return sorted(self._client.pages("databases", "databases"))

    def database(self, name: str) -> Database:
        """See `Catalog`."""
        check_name("database", name)
        try:
            answer = self._client.get(_database(name))
        except NotFoundError as error:
            raise NotFoundError("there is no such database", database=name) from error
        properties = dict(answer.get("options") or {})
        if answer.get(LOCATION):
            properties[LOCATION] = answer[LOCATION]
        return Database.of(name, properties)

    def _change_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        current = self._client.get(_database(name)).get("options") or {}
        removals = [key for key, value in changes.items() if value is None and key in current]
        updates = {key: value for key, value in changes.items() if value is not None}
        self._client.post(_database(name), {"removals": removals, "updates": updates})

    def _remove_database(self, name: str) -> None:
        self._client.delete(_database(name))

    # ---- tables

    def list_tables(self, database: str) -> list[str]:
        """See `Catalog`."""
        return self._listed(database, "tables")

    def _listed(self, database: str, kind: str) -> list[str]:
        check_name("database", database)
        try:
            return sorted(self._client.pages(f"{_database(database)}/{kind}", kind))
        except NotFoundError:
            return []

    def exists(self, identifier: str) -> bool:
        """See `Catalog`."""
        return self._client.has(table_resource(identifier))

    def table_path(self, identifier: str) -> str:
        """See `Catalog`; the server returns it, so the table must exist.

        Raises:
            NotFoundError: there is no such table.
        """
        return self._entry(identifier).path

    def file_io_of(self, identifier: str) -> FileIO:
        """See `Catalog`: snapshots are published by the server."""
        entry = self._entry(identifier)
        return RestFileIO(entry.file_io, self._client, identifier, entry.path, entry.table_id)

    def schemas(self, identifier: str) -> SchemaStore:
        """See `Catalog`."""
        entry = self._entry(identifier)
        return SchemaStore(entry.file_io, TableLayout(entry.path))

    def _entry(self, identifier: str) -> _Entry:
        split_identifier(identifier)
        try:
            answer = self._client.get(table_resource(identifier))
        except NotFoundError as error:
            raise NotFoundError("there is no such table", table=identifier) from error
        if not answer.get("path"):
            raise UnsupportedFeatureError(
                "the catalog server returned no table path", table=identifier
            )
        file_io, path = self._store_of(answer["path"])
        return _Entry(path.rstrip("/"), str(answer.get("id") or ""), file_io)

    def create_table(
        self, identifier: str, schema: TableSchema, ignore_if_exists: bool = False
    ) -> FileStoreTable:
        """See `Catalog`."""
        database, name = split_identifier(identifier)
        schema = self._completed(schema, identifier)
        self._refuse_view(identifier)
        body = {"identifier": _name(database, name), "schema": schema_to_json(schema)}
        try:
            created = self._client.create(f"{_database(database)}/tables", body)
        except NotFoundError as error:
            raise NotFoundError("there is no such database", database=database) from error
        if not created and not ignore_if_exists:
            raise AlreadyExistsError("the table exists already", table=identifier)
        return self.table(identifier)

    def drop_table(self, identifier: str, ignore_if_missing: bool = False) -> None:
        """See `Catalog`; the server removes the files."""
        split_identifier(identifier)
        try:
            self._client.delete(table_resource(identifier))
        except NotFoundError as error:
            if not ignore_if_missing:
                raise NotFoundError("there is no such table", table=identifier) from error

    def rename_table(self, old: str, new: str, ignore_if_missing: bool = False) -> None:
        """See `Catalog`."""
        if not self.exists(old):
            if ignore_if_missing:
                return
            raise NotFoundError("there is no such table", table=old)
        self._refuse_view(new)
        if not self._client.create("tables/rename", _renaming(old, new)):
            raise AlreadyExistsError("the table exists already", table=new)

    def newest_snapshot(self, identifier: str) -> Snapshot | None:
        """See `Catalog`."""
        return self.table(identifier).latest_snapshot()

    def _environment(self, identifier: str, branch: str) -> CatalogEnvironment | None:
        name = identifier if branch == MAIN_BRANCH else f"{identifier}{BRANCH_MARK}{branch}"
        return _RestEnvironment(self._client, name)

    def table_id(self, identifier: str) -> str:
        """See `Catalog`: the server's."""
        return self._entry(identifier.partition(BRANCH_MARK)[0]).table_id

    # ---- views

    def _make_view(self, identifier: str, view: View) -> bool:
        database, name = split_identifier(identifier)
        body = {"identifier": _name(database, name), "schema": view.to_json()}
        return self._client.create(f"{_database(database)}/views", body)

    def view(self, identifier: str) -> View:
        """See `Catalog`."""
        try:
            answer = self._client.get(_view(identifier))
        except NotFoundError as error:
            raise NotFoundError("there is no such view", view=identifier) from error
        return View.from_json(answer.get("schema") or {}, identifier)

    def list_views(self, database: str) -> list[str]:
        """See `Catalog`."""
        return self._listed(database, "views")

    def _remove_view(self, identifier: str) -> None:
        self._client.delete(_view(identifier))

    def _move_view(self, old: str, new: str) -> bool:
        return self._client.create("views/rename", _renaming(old, new))

    def _change_view(self, identifier: str, view: View) -> None:
        """See `Catalog`; the protocol changes dialects, comment and options only."""
        changes = view_changes(self.view(identifier), view, identifier)
        if changes:
            self._client.post(_view(identifier), {"changes": changes})

    def _refuse_view(self, identifier: str) -> None:
        split_identifier(identifier)
        if self._client.has(_view(identifier)):
            raise AlreadyExistsError("a view of this name exists", view=identifier)


def table_resource(identifier: str) -> str:
    """Resource of a table, or of a branch of it."""
    database, _, name = identifier.partition(".")
    return f"{_database(database)}/tables/{quote_plus(name)}"


def _view(identifier: str) -> str:
    database, name = split_identifier(identifier)
    return f"{_database(database)}/views/{quote_plus(name)}"


def _database(name: str) -> str:
    return f"databases/{quote_plus(name)}"


def _name(database: str, name: str) -> dict[str, str]:
    return {"database": database, "object": name}


def _renaming(old: str, new: str) -> dict[str, Any]:
    return {"source": _name(*split_identifier(old)), "destination": _name(*split_identifier(new))}


def schema_to_json(schema: TableSchema) -> dict[str, Any]:
    """The schema of a table as the protocol spells it, without its id."""
    return {
        "fields": [field_to_json(field) for field in schema.fields],
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
    }
