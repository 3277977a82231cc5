# SPDX-License-Identifier: Apache-2.0
"""The Hive catalog: names, columns and partitions of tables in a Hive Metastore.

Source: FORMAT.md §12.3 and Paimon's `HiveCatalog`, with which it shares its tables. The schema
that counts is in the table's schema files; the metastore's columns and properties follow it, so
that Hive and others find the table. With `metastore.partitioned-table` its partitions do, too.

Not supported, and refused by name: Kerberos, `hive-conf-dir`, `location-in-properties`.
"""

import contextlib
import getpass
import logging
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from storage.catalog.catalog import Catalog, check_name, split_identifier
from storage.catalog.hive_client import HiveClient, HiveRefusedError, interface
from storage.catalog.hive_types import hive_type, paimon_type
from storage.catalog.locks import CatalogLock, LockedFileIO
from storage.catalog.options import (
    LOCK_ENABLED,
    SYNC_ALL_PROPERTIES,
    URI,
    flag,
    split_options,
    table_properties,
)
from storage.catalog.partitions import partition_changes, path_of_spec, spec_of_path
from storage.catalog.view import COMMENT, LOCATION, Database, View
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.name_rules import name_refused
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.schema_changes import RemoveOption, SchemaChange
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.format.types.types import DataField
from storage.io.file_io import FileIO
from storage.io.resolve import resolve_file_io
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore
from storage.table.environment import CatalogEnvironment
from storage.table.table import FileStoreTable

__all__ = ["HiveCatalog"]

_LOG = logging.getLogger(__name__)

_INPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
_OUTPUT_FORMAT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
_SERDE = "org.apache.paimon.hive.PaimonSerDe"
_STORAGE_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"
_VIEW_INPUT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_VIEW_OUTPUT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_VIEW_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
_VIEW = "VIRTUAL_VIEW"
_EXTERNAL = "EXTERNAL_TABLE"
_OWNER = "owner"
_PARTITIONED = "metastore.partitioned-table"
_HIVE = "hive."
_OWN_PARAMETERS = frozenset({"transient_lastDdlTime", COMMENT})
_SYNC_TRIES = 5

_EXCLUSIVE, _TABLE_LEVEL, _ACQUIRED = 3, 2, 1
"""`LockType`, `LockLevel` and `LockState` of the metastore."""

_NO_TRANSACTION = 6
"""`DataOperationType.NO_TXN`."""


class HiveLock(CatalogLock):
    """An exclusive lock of a table in the metastore, as Paimon's `HiveCatalogLock` takes it.

    Args:
        client: of the metastore.
        identifier: of the table.
        options: of the catalog.
    """

    def __init__(self, client: HiveClient, identifier: str, options: Mapping[str, str]) -> None:
        super().__init__(identifier, options)
        self._client = client

    def acquire(self) -> str | None:
        """See `CatalogLock`."""
        database, _, table = self.name.partition(".")
        thrift = interface()
        part = thrift.LockComponent(
            type=_EXCLUSIVE,
            level=_TABLE_LEVEL,
            dbname=database,
            tablename=table,
            operationType=_NO_TRANSACTION,
        )
        request = thrift.LockRequest(
            component=[part], user=getpass.getuser(), hostname=socket.gethostname()
        )
        answer = self._client.call("lock", request)
        if answer.state == _ACQUIRED:
            return str(answer.lockid)
        self.release(str(answer.lockid))
        return None

    def release(self, token: str) -> None:
        """See `CatalogLock`."""
        try:
            self._client.call("unlock", interface().UnlockRequest(lockid=int(token)))
        except HiveRefusedError as error:
            _LOG.warning("a lock of the Hive Metastore was lost", exc_info=error)


class _HiveEnvironment(CatalogEnvironment):
    """Keeps columns, properties and partitions in the metastore true.

    Args:
        warehouse: of the catalog.
        options: of the catalog.
        identifier: of the table.
    """

    def __init__(self, warehouse: str, options: Mapping[str, str], identifier: str) -> None:
        self._warehouse = warehouse
        self._options = dict(options)
        self._identifier = identifier
        self._known: set[str] = set()

    def _catalog(self) -> "HiveCatalog":
        return HiveCatalog.of(self._warehouse, self._options)

    def alter(self, table: FileStoreTable, changes: Sequence[SchemaChange]) -> FileStoreTable:
        """See `CatalogEnvironment`.

        Raises:
            InvalidRequestError: the metastore refuses the columns; the schema is as it was.
        """
        altered = table.alter_files(changes)
        removed = {change.key for change in changes if isinstance(change, RemoveOption)}
        try:
            self._catalog().sync_table(self._identifier, removed)
        except HiveRefusedError as error:
            if altered.schema.id != table.schema.id:
                table.file_io.delete(table.layout.schema_file(altered.schema.id))
                table.schemas.forget()
            raise InvalidRequestError(
                "the Hive Metastore refuses the changed columns",
                detail=str(error),
                hint="set hive.metastore.disallow.incompatible.col.type.changes to false in the "
                "metastore, or make a column of another name",
                table=self._identifier,
            ) from error
        return altered

    def published(self, table: TableCore, snapshot: Snapshot) -> None:
        """See `CatalogEnvironment`: partitions are added, and removed when they are empty."""
        partitioned = table.schema.options.get(_PARTITIONED, "").strip().lower() == "true"
        if not partitioned or not table.schema.partition_keys or table.layout.branch != "main":
            return
        try:
            self._sync_partitions(table, snapshot)
        except (LakewardError, HiveRefusedError, OSError):
            _LOG.exception(
                "partitions were committed but not entered in the Hive Metastore; "
                "`repair_table` of the catalog enters them",
                extra={"table": self._identifier, "snapshot": snapshot.id},
            )

    def _sync_partitions(self, table: TableCore, snapshot: Snapshot) -> None:
        changes = partition_changes(table, snapshot)
        added = [one.spec for one in changes if one.last_created_ms]
        new = [spec for spec in added if path_of_spec(spec) not in self._known]
        if new:
            self._catalog().add_partitions(self._identifier, new)
            self._known.update(map(path_of_spec, new))
        if snapshot.commit_kind is not CommitKind.OVERWRITE:
            return
        emptied = [one.spec for one in changes if not one.last_created_ms]
        if emptied:
            live = {
                table.partition_path(entry.partition)
                for entry in live_state(table, snapshot).entries()
            }
            doomed = [spec for spec in emptied if path_of_spec(spec) not in live]
            self._catalog().drop_partitions(self._identifier, doomed)
            self._known.difference_update(map(path_of_spec, doomed))


class HiveCatalog(Catalog):
    """See the module. Made by `Catalog.open`.

    Args:
        client: of the metastore.
        file_io: store of the warehouse.
        warehouse: its root.
        options: of the catalog.
    """

    keeps_views = True

    def __init__(
        self, client: HiveClient, file_io: FileIO, warehouse: str, options: Mapping[str, str]
    ) -> None:
        super().__init__(file_io, warehouse, options)
        self._client = client
        self._locked = flag(options, LOCK_ENABLED, file_io.distant)
        self._syncs = flag(options, SYNC_ALL_PROPERTIES, True)

    @classmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "HiveCatalog":
        """See `Catalog.open`."""
        own, store = split_options(options, (URI, SYNC_ALL_PROPERTIES))
        if not own.get(URI):
            raise InvalidOptionError(
                "a Hive catalog needs the address of its metastore",
                hint="set it to thrift://host:9083",
                key=URI,
            )
        client = HiveClient(own[URI])
        client.addresses()
        file_io, root = resolve_file_io(warehouse, store)
        return cls(client, file_io, root, {**own, **store})

    # ---- databases

    def create_database(
        self,
        name: str,
        ignore_if_exists: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """See `Catalog`."""
        check_name("database", name)
        _check_lower("database", name)
        given = dict(properties or {})
        location = given.pop(LOCATION, f"{self.warehouse}/{name}.db")
        made = interface().Database(
            name=name,
            description=given.pop(COMMENT, None),
            locationUri=location,
            ownerName=given.pop(_OWNER, None),
            parameters=given,
        )
        try:
            self._client.call("create_database", made)
        except HiveRefusedError as error:
            if error.kind != "AlreadyExistsException":
                raise _refused(error, database=name) from error
            if not ignore_if_exists:
                raise InvalidRequestError("the database exists already", database=name) from error

    def list_databases(self) -> list[str]:
        """See `Catalog`; those of names that no database of Paimon may have are not among them."""
        names = self._client.call("get_all_databases")
        return sorted(name for name in names if not name_refused("database", name))

    def database(self, name: str) -> Database:
        """See `Catalog`."""
        found = self._database(name)
        own = ((COMMENT, found.description), (_OWNER, found.ownerName))
        properties = {key: value for key, value in own if value}
        properties |= {**(found.parameters or {}), LOCATION: found.locationUri}
        return Database.of(name, properties)

    def _database(self, name: str) -> Any:
        check_name("database", name)
        try:
            return self._client.call("get_database", name)
        except NotFoundError as error:
            raise NotFoundError("there is no such database", database=name) from error

    def alter_database(
        self, name: str, changes: Mapping[str, str | None], ignore_if_missing: bool = False
    ) -> None:
        """See `Catalog`."""
        try:
            found = self._database(name)
        except NotFoundError:
            if ignore_if_missing:
                return
            raise
        if LOCATION in changes:
            raise UnsupportedFeatureError(
                "the location of a database cannot be changed", database=name
            )
        parameters = dict(found.parameters or {})
        for key, value in changes.items():
            if key == COMMENT:
                found.description = value
            elif key == _OWNER:
                found.ownerName = value
            elif value is None:
                parameters.pop(key, None)
            else:
                parameters[key] = value
        found.parameters = parameters
        self._call("alter_database", name, found)

    def _remove_database(self, name: str) -> None:
        self._call("drop_database", name, True, False)

    def database_path(self, name: str) -> str:
        """See `Catalog`; the metastore says it.

        Raises:
            NotFoundError: there is no such database.
        """
        return self._store_of(str(self._database(name).locationUri))[1]

    # ---- tables

    def list_tables(self, database: str) -> list[str]:
        """See `Catalog`; tables of Hive and of other formats are not among them."""
        return sorted(table.tableName for table in self._tables(database) if _is_paimon(table))

    def _tables(self, database: str) -> list[Any]:
        check_name("database", database)
        names = self._client.call("get_all_tables", database)
        found = self._client.call("get_table_objects_by_name", database, names) if names else []
        return list(found)

    def exists(self, identifier: str) -> bool:
        """See `Catalog`."""
        found = self._find(identifier)
        return found is not None and _is_paimon(found)

    def _find(self, identifier: str) -> Any | None:
        database, name = split_identifier(identifier)
        try:
            return self._client.call("get_table", database, name)
        except NotFoundError:
            return None

    def table_path(self, identifier: str) -> str:
        """See `Catalog`."""
        _check_lower("table", identifier)
        found = self._find(identifier)
        if found is not None and _is_paimon(found):
            return self._store_of(str(found.sd.location))[1]
        database, name = split_identifier(identifier)
        return f"{self.database_path(database)}/{name}"

    def _location(self, identifier: str) -> str:
        found = self._find(identifier)
        if found is None or not _is_paimon(found):
            raise NotFoundError("the Hive Metastore has no such Paimon table", table=identifier)
        return self._store_of(str(found.sd.location))[1]

    def file_io_of(self, identifier: str) -> FileIO:
        """See `Catalog`: with `lock.enabled`, publications happen under the table's lock."""
        file_io, _ = self._store_of(self.table_path(identifier))
        if not self._locked:
            return file_io
        return LockedFileIO(file_io, HiveLock(self._client, identifier, self.options))

    def _environment(self, identifier: str) -> CatalogEnvironment | None:
        options = {key: value for key, value in self.options.items() if key != "warehouse"}
        return _HiveEnvironment(self.warehouse, options, identifier)

    def _check_free(self, identifier: str) -> None:
        database, _ = split_identifier(identifier)
        self._database(database)
        found = self._find(identifier)
        if found is not None and not _is_paimon(found):
            what = "a view" if found.tableType == _VIEW else "a table that is not Paimon's"
            raise InvalidRequestError(f"{what} of this name exists already", table=identifier)

    def _register(self, identifier: str, schema: TableSchema) -> None:
        database, name = split_identifier(identifier)
        table = interface().Table(
            tableName=name,
            dbName=database,
            owner=getpass.getuser(),
            createTime=self.clock.now_ms() // 1000,
            lastAccessTime=self.clock.now_ms() // 1000,
            retention=2**31 - 1,
            partitionKeys=[],
            parameters={"table_type": "PAIMON", "storage_handler": _STORAGE_HANDLER},
            tableType="MANAGED_TABLE",
            sd=_storage(self.table_path(identifier), []),
        )
        self._describe(table, schema)
        try:
            self._client.call("create_table", table)
        except HiveRefusedError as error:
            if error.kind == "AlreadyExistsException":
                return
            self._remove_all(self.table_path(identifier))
            raise _refused(error, table=identifier) from error

    def _describe(self, table: Any, schema: TableSchema) -> None:
        """Write columns and properties of a schema into a table of the metastore."""
        parameters = dict(table.parameters or {})
        if self._syncs:
            parameters |= table_properties(schema)
        else:
            parameters |= {k: v for k, v in schema.options.items() if k.startswith(_HIVE)}
        if schema.comment is not None:
            parameters[COMMENT] = schema.comment
        partitioned = schema.options.get(_PARTITIONED, "").strip().lower() == "true"
        keys = schema.partition_keys if partitioned else ()
        table.sd.cols = [_column(field) for field in schema.fields if field.name not in keys]
        table.partitionKeys = [_column(schema.field(name)) for name in keys]
        table.parameters = parameters

    def sync_table(self, identifier: str, removed: Sequence[str] | set[str] = ()) -> None:
        """Bring what the metastore keeps of a table to its newest schema.

        Args:
            identifier: of the table.
            removed: options that were taken away.

        Raises:
            HiveRefusedError: the metastore refuses it.
        """
        database, name = split_identifier(identifier)
        for _ in range(_SYNC_TRIES):
            table, schema = self._find(identifier), self.schemas(identifier).latest()
            if table is None or schema is None:
                return
            for key in removed:
                table.parameters.pop(key, None)
            self._describe(table, schema)
            self._client.call("alter_table", database, name, table)
            newest = self.schemas(identifier).latest()
            if newest is not None and newest.id == schema.id:
                return

    def _unregister(self, identifier: str) -> None:
        with contextlib.suppress(NotFoundError):
            self._call("drop_table", *split_identifier(identifier), self._owns_files(identifier))

    def _owns_files(self, identifier: str) -> bool:
        found = self._find(identifier)
        return found is None or found.tableType != _EXTERNAL

    def rename_table(self, old: str, new: str, ignore_if_missing: bool = False) -> None:
        """See `Catalog`; the directory of an external table stays."""
        _check_lower("table", new)
        table = self._find(old)
        if table is None or not _is_paimon(table):
            if ignore_if_missing:
                return
            raise NotFoundError("there is no such table", table=old)
        self._check_free(new)
        database, name = split_identifier(new)
        path = self._store_of(str(table.sd.location))[1]
        moves = table.tableType != _EXTERNAL
        if moves and self._store_of(path)[0].distant:
            raise UnsupportedFeatureError(
                "a table in an object store cannot be renamed",
                hint="make a table of the new name and copy the rows",
                table=old,
            )
        if self._find(new) is not None:
            raise InvalidRequestError("the table exists already", table=new)
        table.tableName, table.dbName = name, database
        self._call("alter_table", *split_identifier(old), table)
        if moves:
            self._move_files(old, new, path)

    def _move_files(self, old: str, new: str, path: str) -> None:
        """Move the directory of a table that has its new name, unless the metastore did."""
        database, name = split_identifier(new)
        target = f"{self.database_path(database)}/{name}"
        table = self._find(new)
        if table is None or path == target:
            return
        file_io, _ = self._store_of(path)
        try:
            if file_io.list(f"{path}/schema"):
                file_io.rename_directory(path, target)
        except BaseException:
            table.tableName, table.dbName = split_identifier(old)[::-1]
            self._call("alter_table", database, name, table)
            raise
        table.sd.location = target
        self._call("alter_table", database, name, table)

    def repair_table(self, identifier: str) -> None:
        """See `Catalog`; its partitions are entered, too."""
        schema = self.schemas(identifier).latest()
        if schema is None:
            raise NotFoundError("there are no files of a table", table=identifier)
        if not self.exists(identifier):
            self._register(identifier, schema)
        self.sync_table(identifier)
        table = self.table(identifier)
        snapshot = table.latest_snapshot()
        if snapshot is not None and schema.options.get(_PARTITIONED) == "true":
            entries = live_state(table, snapshot).entries()
            paths = {table.partition_path(entry.partition) for entry in entries}
            self.add_partitions(identifier, [spec_of_path(path) for path in sorted(paths)])

    # ---- partitions

    def list_partitions(self, identifier: str) -> list[str]:
        """Partitions in the metastore, as `dt=a/hh=1`, sorted."""
        return sorted(self._call("get_partition_names", *split_identifier(identifier), -1))

    def add_partitions(self, identifier: str, specs: Sequence[Mapping[str, str]]) -> None:
        """Enter partitions that the metastore does not have."""
        table = self._find(identifier)
        if table is None or not specs:
            return
        thrift = interface()
        parts = [
            thrift.Partition(
                values=[spec[column.name] for column in table.partitionKeys],
                dbName=table.dbName,
                tableName=table.tableName,
                createTime=self.clock.now_ms() // 1000,
                lastAccessTime=self.clock.now_ms() // 1000,
                sd=_storage(f"{table.sd.location}/{path_of_spec(spec)}", table.sd.cols),
                parameters={},
            )
            for spec in specs
        ]
        request = thrift.AddPartitionsRequest(
            dbName=table.dbName,
            tblName=table.tableName,
            parts=parts,
            ifNotExists=True,
            needResult=False,
        )
        self._call("add_partitions_req", request)

    def drop_partitions(self, identifier: str, specs: Sequence[Mapping[str, str]]) -> None:
        """Remove partitions from the metastore; their files are the table's business."""
        for spec in specs:
            with contextlib.suppress(NotFoundError):
                place = split_identifier(identifier)
                self._call("drop_partition", *place, list(spec.values()), False)

    # ---- views

    def create_view(self, identifier: str, view: View, ignore_if_exists: bool = False) -> None:
        """See `Catalog`. A view of Hive has one query.

        Raises:
            UnsupportedFeatureError: a dialect has another one.
        """
        _check_lower("view", identifier)
        found = self._find(identifier)
        if found is not None:
            if found.tableType != _VIEW:
                raise InvalidRequestError("a table of this name exists", table=identifier)
            if ignore_if_exists:
                return
            raise InvalidRequestError("the view exists already", view=identifier)
        self._database(split_identifier(identifier)[0])
        self._call("create_table", self._view_table(identifier, view))

    def _view_table(self, identifier: str, view: View) -> Any:
        if any(query != view.query for query in view.dialects.values()):
            raise UnsupportedFeatureError(
                "a view of a Hive catalog has one query, not one for each engine",
                hint="leave the dialects out",
                view=identifier,
            )
        database, name = split_identifier(identifier)
        comment = {} if view.comment is None else {COMMENT: view.comment}
        columns = [_column(field) for field in view.fields]
        sd = _storage(None, columns, (_VIEW_INPUT, _VIEW_OUTPUT, _VIEW_SERDE))
        return interface().Table(
            tableName=name,
            dbName=database,
            owner=getpass.getuser(),
            createTime=self.clock.now_ms() // 1000,
            lastAccessTime=self.clock.now_ms() // 1000,
            retention=0,
            partitionKeys=[],
            parameters={**view.options, **comment},
            viewOriginalText=view.query,
            viewExpandedText=view.query,
            tableType=_VIEW,
            sd=sd,
        )

    def _hive_view(self, identifier: str) -> Any:
        found = self._find(identifier)
        if found is None or found.tableType != _VIEW:
            raise NotFoundError("there is no such view", view=identifier)
        return found

    def view(self, identifier: str) -> View:
        """See `Catalog`."""
        found = self._hive_view(identifier)
        fields = tuple(
            DataField(
                id=number,
                name=column.name,
                type=paimon_type(column.type),
                description=column.comment,
            )
            for number, column in enumerate(found.sd.cols)
        )
        parameters = dict(found.parameters or {})
        options = {key: text for key, text in parameters.items() if key not in _OWN_PARAMETERS}
        return View(fields, found.viewExpandedText, {}, parameters.get(COMMENT), options)

    def list_views(self, database: str) -> list[str]:
        """See `Catalog`."""
        return sorted(t.tableName for t in self._tables(database) if t.tableType == _VIEW)

    def drop_view(self, identifier: str, ignore_if_missing: bool = False) -> None:
        """See `Catalog`."""
        try:
            self._hive_view(identifier)
        except NotFoundError:
            if ignore_if_missing:
                return
            raise
        self._call("drop_table", *split_identifier(identifier), False)

    def rename_view(self, old: str, new: str, ignore_if_missing: bool = False) -> None:
        """See `Catalog`."""
        _check_lower("view", new)
        try:
            found = self._hive_view(old)
        except NotFoundError:
            if ignore_if_missing:
                return
            raise
        if self._find(new) is not None:
            raise InvalidRequestError("a view or a table of this name exists", view=new)
        self._database(split_identifier(new)[0])
        found.dbName, found.tableName = split_identifier(new)
        self._call("alter_table", *split_identifier(old), found)

    def alter_view(self, identifier: str, view: View, ignore_if_missing: bool = False) -> None:
        """See `Catalog`."""
        try:
            self._hive_view(identifier)
        except NotFoundError:
            if ignore_if_missing:
                return
            raise
        place = split_identifier(identifier)
        self._call("alter_table", *place, self._view_table(identifier, view))

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return self._client.call(method, *arguments)
        except HiveRefusedError as error:
            raise _refused(error) from error


def _is_paimon(table: Any) -> bool:
    formats = (table.sd.inputFormat, table.sd.outputFormat) if table.sd else (None, None)
    return formats == (_INPUT_FORMAT, _OUTPUT_FORMAT)


def _storage(
    location: str | None,
    columns: list[Any],
    classes: tuple[str, str, str] = (_INPUT_FORMAT, _OUTPUT_FORMAT, _SERDE),
) -> Any:
    """What the metastore keeps of files: formats, columns and the location."""
    thrift = interface()
    return thrift.StorageDescriptor(
        cols=columns,
        location=location,
        inputFormat=classes[0],
        outputFormat=classes[1],
        compressed=False,
        numBuckets=-1,
        serdeInfo=thrift.SerDeInfo(serializationLib=classes[2], parameters={}),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def _column(field: DataField) -> Any:
    return interface().FieldSchema(
        name=field.name, type=hive_type(field.type), comment=field.description
    )


def _check_lower(what: str, name: str) -> None:
    if name != name.lower():
        raise InvalidRequestError(
            f"a Hive Metastore keeps the name of a {what} in lower case",
            hint=f"write {name.lower()}",
            name=name,
        )


def _refused(error: HiveRefusedError, **context: str) -> InvalidRequestError:
    return InvalidRequestError("the Hive Metastore refuses this", detail=str(error), **context)
