# SPDX-License-Identifier: Apache-2.0
"""The Hive catalog: names, columns and locations of tables in a Hive metastore.

Source: FORMAT.md §12.3 and Paimon's `HiveCatalog`, with which it shares the metastore. A table is
an entry whose input and output formats are Paimon's; its schema files are authoritative, the entry
repeats columns, options and keys for other engines. Schemas, snapshots and data are files below the
location of the entry, which a database may choose.
"""

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.catalog.catalog import Catalog, check_name, split_identifier
from storage.catalog.options import (
    ACQUIRE_TIMEOUT,
    LOCK_ENABLED,
    SYNC_ALL_PROPERTIES,
    URI,
    CatalogLock,
    LockedFileIO,
    flag,
    split_options,
    table_properties,
)
from storage.catalog.system_tables import partition_changes, path_of_spec, spec_of_path
from storage.catalog.view import COMMENT, LOCATION, Database, View
from storage.clients.hive_client import CONF_DIR, HiveMetastore, configured_warehouse, thrift
from storage.errors import (
    AlreadyExistsError,
    InvalidOptionError,
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.layout import MAIN_BRANCH, TableLayout
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)
from storage.io.file_io import FileIO
from storage.io.resolve import is_local, resolve_file_io
from storage.options.options import TableOptions
from storage.table.commit.live_files import live_entries
from storage.table.core import CatalogEnvironment

if TYPE_CHECKING:
    from storage.format.metadata.schema_changes import SchemaChange
    from storage.table.core import TableCore
    from storage.table.table import FileStoreTable

# Entries of the Hive metastore for tables, partitions and views, as Paimon writes them.


_LONGEST_CHAR = 255
_LONGEST_VARCHAR = 65_535

_NAMES = {
    TypeRoot.BOOLEAN: "boolean",
    TypeRoot.TINYINT: "tinyint",
    TypeRoot.SMALLINT: "smallint",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "bigint",
    TypeRoot.FLOAT: "float",
    TypeRoot.DOUBLE: "double",
    TypeRoot.BINARY: "binary",
    TypeRoot.VARBINARY: "binary",
    TypeRoot.DATE: "date",
    TypeRoot.TIME: "string",
    TypeRoot.TIMESTAMP: "timestamp",
    TypeRoot.TIMESTAMP_LTZ: "timestamp with local time zone",
}

_ATOMS = {
    name: AtomicType(root)
    for root, name in _NAMES.items()
    if root not in (TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.TIME)
} | {
    "string": AtomicType(TypeRoot.VARCHAR, length=MAX_LENGTH),
    "binary": AtomicType(TypeRoot.VARBINARY, length=MAX_LENGTH),
    "timestamp": AtomicType(TypeRoot.TIMESTAMP, precision=6),
    "timestamp with local time zone": AtomicType(TypeRoot.TIMESTAMP_LTZ, precision=6),
    "decimal": AtomicType(TypeRoot.DECIMAL, precision=10),
}

_SIZED = re.compile(r"(decimal|char|varchar)\((\d+)(?:,(\d+))?\)")


def to_hive(data_type: DataType) -> str:
    """Hive's text for a type."""
    match data_type:
        case ArrayType(element):
            return f"array<{to_hive(element)}>"
        case MultisetType(element):
            return f"map<{to_hive(element)},int>"
        case MapType(key, value):
            return f"map<{to_hive(key)},{to_hive(value)}>"
        case RowType(fields):
            return f"struct<{','.join(f'{field.name}:{to_hive(field.type)}' for field in fields)}>"
        case AtomicType(TypeRoot.DECIMAL):
            return f"decimal({data_type.precision},{data_type.scale})"
        case AtomicType(TypeRoot.CHAR) if data_type.length <= _LONGEST_CHAR:
            return f"char({data_type.length})"
        case AtomicType(TypeRoot.VARCHAR) if data_type.length <= _LONGEST_VARCHAR:
            return f"varchar({data_type.length})"
        case AtomicType(TypeRoot.CHAR | TypeRoot.VARCHAR):
            return "string"
        case AtomicType(root):
            return _NAMES[root]


def from_hive(text: str) -> DataType:
    """The type of Hive's text.

    Raises:
        UnsupportedFeatureError: it has no counterpart.
    """
    text = text.strip()
    outer, less, inner = text.partition("<")
    if less and text.endswith(">"):
        parts, kind = _split(inner[:-1]), outer.strip().lower()
        if kind == "array" and len(parts) == 1:
            return ArrayType(from_hive(parts[0]))
        if kind == "map" and len(parts) == 2:
            return MapType(from_hive(parts[0]), from_hive(parts[1]))
        if kind == "struct":
            pairs = [part.partition(":") for part in parts]
            return RowType(
                tuple(
                    DataField(id=number, name=name.strip(), type=from_hive(value))
                    for number, (name, _, value) in enumerate(pairs)
                )
            )
    name = text.lower()
    if name in _ATOMS:
        return _ATOMS[name]
    if sized := _SIZED.fullmatch(name.replace(" ", "")):
        size = int(sized[2])
        if sized[1] == "decimal":
            return AtomicType(TypeRoot.DECIMAL, precision=size, scale=int(sized[3] or 0))
        return AtomicType(TypeRoot(sized[1].upper()), length=size)
    raise UnsupportedFeatureError("no Paimon type for this Hive type", type=text)


def _split(text: str) -> list[str]:
    """Parts between the commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


EXTERNAL_TABLE = "EXTERNAL_TABLE"
VIRTUAL_VIEW = "VIRTUAL_VIEW"

LOCATION_PROPERTY = "paimon_location"
"""Parameter that holds a location with `location-in-properties`."""

_INPUT = "org.apache.paimon.hive.mapred.PaimonInputFormat"
_OUTPUT = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
_SERDE = "org.apache.paimon.hive.PaimonSerDe"
_HANDLER = "org.apache.paimon.hive.PaimonStorageHandler"

_VIEW_INPUT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
_VIEW_OUTPUT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
_VIEW_SERDE = "org.apache.hadoop.hive.serde2.MetadataTypedColumnsetSerDe"

_DIALECT = "lakeward.dialect."
"""Prefix of parameters that hold a view's query for other engines; Paimon drops those queries."""

_OF_THE_METASTORE = frozenset({"transient_lastDdlTime", "EXTERNAL"})
_LONGEST_COMMENT = 255
_FOR_EVER = 2_147_483_647


def is_paimon(entry: Any) -> bool:
    """Whether an entry is a table of Paimon."""
    sd = entry.sd
    return sd is not None and (sd.inputFormat, sd.outputFormat) == (_INPUT, _OUTPUT)


def new_entry(database: str, name: str, owner: str, now_s: int, *, external: bool) -> Any:
    """An entry of a table without columns; `describe` fills it."""
    parameters = {"table_type": "PAIMON", "storage_handler": _HANDLER}
    if external:
        parameters["EXTERNAL"] = "TRUE"
    return thrift().Table(
        tableName=name,
        dbName=database,
        owner=owner,
        createTime=now_s,
        lastAccessTime=now_s,
        retention=_FOR_EVER,
        sd=_descriptor(_INPUT, _OUTPUT, _SERDE, {}),
        partitionKeys=[],
        parameters=parameters,
        tableType=EXTERNAL_TABLE if external else "MANAGED_TABLE",
    )


def _descriptor(
    input_format: str, output_format: str, serde: str, parameters: Mapping[str, str]
) -> Any:
    api = thrift()
    return api.StorageDescriptor(
        cols=[],
        inputFormat=input_format,
        outputFormat=output_format,
        compressed=False,
        numBuckets=0,
        serdeInfo=api.SerDeInfo(serializationLib=serde, parameters=dict(parameters)),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )


def describe(entry: Any, schema: TableSchema, old: TableSchema | None, *, every: bool) -> None:
    """Write columns, keys and options of a schema into an entry.

    Args:
        entry: of the table.
        schema: of the table.
        old: the schema that the entry was written from, whose former options are removed; None: a
            new entry.
        every: all options; else those with the prefix `hive.`, without it.
    """
    keys = schema.partition_keys if _registers_partitions(schema) else ()
    entry.partitionKeys = [
        _column(field, field.description) for field in schema.partition_fields if keys
    ]
    entry.sd.cols = [
        _column(field, _short_comment(field.description))
        for field in schema.fields
        if field.name not in keys
    ]
    if old is not None:
        for key in set(_properties(old, every=every)) - set(_properties(schema, every=every)):
            entry.parameters.pop(key, None)
    entry.parameters.update(_properties(schema, every=every))


def _registers_partitions(schema: TableSchema) -> bool:
    return TableOptions.from_strings(schema.options).metastore_partitioned_table


def _properties(schema: TableSchema, *, every: bool) -> dict[str, str]:
    if every:
        return table_properties(schema)
    hive = "hive."
    comment = {} if schema.comment is None else {COMMENT: schema.comment}
    return comment | {
        key.removeprefix(hive): value
        for key, value in schema.options.items()
        if key.startswith(hive)
    }


def _column(field: DataField, comment: str | None) -> Any:
    return thrift().FieldSchema(name=field.name, type=to_hive(field.type), comment=comment)


def _short_comment(comment: str | None) -> str | None:
    """A comment that a column of the metastore's database can hold."""
    if comment is None:
        return None
    line = comment.replace("\n", " ").replace("\r", " ")
    return line if len(line) <= _LONGEST_COMMENT else line[: _LONGEST_COMMENT - 3] + "..."


def new_partition(entry: Any, values: Iterable[str], location: str | None, now_s: int) -> Any:
    """An entry of a partition of a table.

    Args:
        entry: of the table.
        values: of the partition keys.
        location: directory; None: kept in a property, see `LOCATION_PROPERTY`.
        now_s: time.
    """
    sd = thrift().StorageDescriptor(**{name: getattr(entry.sd, name) for name in _SD_FIELDS})
    sd.location = location
    return thrift().Partition(
        values=list(values),
        dbName=entry.dbName,
        tableName=entry.tableName,
        createTime=now_s,
        lastAccessTime=now_s,
        sd=sd,
        parameters={},
    )


_SD_FIELDS = (
    "cols",
    "inputFormat",
    "outputFormat",
    "compressed",
    "numBuckets",
    "serdeInfo",
    "bucketCols",
    "sortCols",
    "parameters",
)


def new_view(database: str, name: str, view: View, owner: str, now_s: int) -> Any:
    """An entry of a view."""
    parameters = dict(view.options)
    if view.comment is not None:
        parameters[COMMENT] = view.comment
    parameters |= {_DIALECT + key: query for key, query in view.dialects.items()}
    sd = _descriptor(_VIEW_INPUT, _VIEW_OUTPUT, _VIEW_SERDE, {"serialization.format": "1"})
    sd.numBuckets = -1
    sd.cols = [_column(field, _short_comment(field.description)) for field in view.fields]
    return thrift().Table(
        tableName=name,
        dbName=database,
        owner=owner,
        createTime=now_s,
        lastAccessTime=0,
        retention=0,
        sd=sd,
        partitionKeys=[],
        parameters=parameters,
        viewOriginalText=view.query,
        viewExpandedText=view.query,
        tableType=VIRTUAL_VIEW,
    )


def view_of(entry: Any) -> View:
    """The view of an entry."""
    texts = {key: value for key, value in entry.parameters.items() if key not in _OF_THE_METASTORE}
    dialects = {
        key.removeprefix(_DIALECT): texts.pop(key)
        for key in list(texts)
        if key.startswith(_DIALECT)
    }
    fields = tuple(
        DataField(
            id=number, name=column.name, type=from_hive(column.type), description=column.comment
        )
        for number, column in enumerate(entry.sd.cols)
    )
    comment = texts.pop(COMMENT, None)
    return View(fields, entry.viewExpandedText, dialects, comment, texts)


# The lock of a Hive catalog.


class HiveLock(CatalogLock):
    """An exclusive lock of a table in the metastore, as Paimon's `HiveCatalogLock` takes it."""

    def __init__(
        self, identifier: str, options: Mapping[str, str], metastore: HiveMetastore
    ) -> None:
        super().__init__(identifier, options)
        self._metastore = metastore

    def acquire(self) -> str | None:
        """See `CatalogLock`: a request that waits keeps its place in the metastore's queue."""
        token = self._metastore.lock(
            *split_identifier(self.name),
            clock=self.clock,
            timeout_ms=self.timeout_ms,
            max_sleep_ms=self.max_sleep_ms,
            hint=f"try again, or raise `{ACQUIRE_TIMEOUT}`",
        )
        return str(token)

    def release(self, token: str) -> None:
        """See `CatalogLock`."""
        self._metastore.unlock(int(token))


_LOG = logging.getLogger(__name__)

_OWNER = "owner"
"""Property of a database: its owner."""

_HADOOP_CONF_DIR = "hadoop-conf-dir"
_LOCATION_IN_PROPERTIES = "location-in-properties"
_TABLE_TYPE = "table.type"
_CASCADE = "alter-table-cascade"
_SKIP_STATISTICS = "hive.skip-update-stats"
_WITHOUT_EFFECT = ("client-pool-cache.eviction-interval-ms", "client-pool-cache.keys")
_ONLY_VALUES = {
    "metastore.client.class": "org.apache.hadoop.hive.metastore.HiveMetaStoreClient",
    "format-table.enabled": "false",
}
"""Options with the only value that is supported."""

_BATCH = 300
"""Entries per request."""

_MAX_PARTITIONS = 32_767


class _HiveEnvironment(CatalogEnvironment):
    """Keeps the entries of a table and of its partitions up to date."""

    registers_partitions = True

    def __init__(self, catalog: "HiveCatalog", identifier: str) -> None:
        self._catalog = catalog
        self._identifier = identifier

    def alter(self, table: "FileStoreTable", changes: Sequence["SchemaChange"]) -> "FileStoreTable":
        """See `CatalogEnvironment`. When the metastore refuses, the new schema is rolled back."""
        before = table.schemas.latest()
        altered = table.alter_files(changes)
        if before is None or altered.schema.id == before.id:
            return altered
        try:
            self._catalog.sync_entry(self._identifier, before)
        except InvalidRequestError:
            newest = table.schemas.latest()
            if newest is not None and newest.id == altered.schema.id:
                table.file_io.delete(table.layout.schema_file(altered.schema.id))
                table.schemas.forget()
            raise
        return altered

    def published(self, table: "TableCore", snapshot: Snapshot) -> None:
        """See `CatalogEnvironment`: with `metastore.partitioned-table`, register new partitions."""
        if not (table.options.metastore_partitioned_table and table.schema.partition_keys):
            return
        entry_errors = (thrift().NoSuchObjectException, thrift().AlreadyExistsException)
        try:
            self._enter(table, snapshot)
        except (LakewardError, OSError, *entry_errors) as error:
            _LOG.warning(
                "partitions were committed but not added to the Hive metastore; "
                "`repair_table` adds them",
                extra={"table": self._identifier, "snapshot": snapshot.id},
                exc_info=error,
            )

    def add_partitions(self, partitions: Sequence[Mapping[str, str]]) -> None:
        """See `CatalogEnvironment`."""
        self._catalog.add_partitions(self._identifier, partitions)

    def mark_done(self, partitions: Sequence[Mapping[str, str]]) -> None:
        """See `CatalogEnvironment`: the event LOAD_DONE of each partition."""
        self._catalog.mark_loaded(self._identifier, partitions)

    def _enter(self, table: "TableCore", snapshot: Snapshot) -> None:
        changes = partition_changes(table, snapshot)
        added = [change.spec for change in changes if change.last_created_ms]
        if added:
            self._catalog.add_partitions(self._identifier, added)
        if snapshot.commit_kind is not CommitKind.OVERWRITE or len(added) == len(changes):
            return
        live_partitions = {entry.partition for entry in live_entries(table, snapshot)}
        specs = [spec_of_path(table.partition_path(partition)) for partition in live_partitions]
        self._catalog.drop_partitions(
            self._identifier, [change.spec for change in changes if change.spec not in specs]
        )


class HiveCatalog(Catalog):
    """See the module. Made by `Catalog.open`."""

    keeps_views = True

    def __init__(self, file_io: FileIO, warehouse: str, options: Mapping[str, str]) -> None:
        super().__init__(file_io, warehouse, options)
        self._metastore = HiveMetastore.of(options)
        stores_objects = file_io.distant and not warehouse.startswith("hdfs:")
        self._locked = flag(options, LOCK_ENABLED, stores_objects)
        self._syncs_all = flag(options, SYNC_ALL_PROPERTIES, True)
        self._in_properties = flag(options, _LOCATION_IN_PROPERTIES, False)
        self._cascades = flag(options, _CASCADE, True)
        self._skips_statistics = flag(options, _SKIP_STATISTICS, False)
        self._external = _table_type(options)

    @classmethod
    def of(cls, warehouse: str, options: Mapping[str, str]) -> "HiveCatalog":
        """See `Catalog.open`."""
        settings, store = split_options(options, _OWN_OPTIONS)
        for key, value in _ONLY_VALUES.items():
            if settings.get(key, value).strip() != value:
                raise UnsupportedFeatureError(
                    "this option of a Hive catalog is not supported",
                    hint=f"remove it, or set it to {value}",
                    option=key,
                    value=settings[key],
                )
        warehouse = warehouse or configured_warehouse(settings)
        if not warehouse.startswith("hdfs:"):
            store.pop(_HADOOP_CONF_DIR, None)  # has no meaning for other stores
        file_io, root = resolve_file_io(warehouse, store)
        return cls(file_io, root, {**settings, **store})

    # ---- locations

    def database_path(self, name: str) -> str:
        """See `Catalog`: as in the metastore; in the warehouse if the metastore names none."""
        path = super().database_path(name)
        with contextlib.suppress(NotFoundError):
            return self._database_place(self._database_entry(name))[1]
        return path

    def table_path(self, identifier: str) -> str:
        """See `Catalog`: as in the metastore, for an existing table."""
        return self._location_of(identifier)[1]

    def file_io_of(self, identifier: str) -> FileIO:
        """See `Catalog`: with `lock.enabled`, publications happen under the table's lock."""
        file_io = self._location_of(identifier)[0]
        if not self._locked:
            return file_io
        return LockedFileIO(file_io, HiveLock(identifier, self.options, self._metastore))

    def _location_of(self, identifier: str) -> tuple[FileIO, str]:
        """Store and directory of a table that exists or is about to be created."""
        database, name = split_identifier(identifier)
        entry = self._entry(identifier)
        location = _location(entry.parameters, entry.sd.location) if entry is not None else ""
        if location:
            return self._store_of(location)
        try:
            file_io, path = self._database_place(self._database_entry(database))
        except NotFoundError:
            file_io, path = self.file_io, super().database_path(database)
        return file_io, f"{path}/{name}"

    def _database_place(self, entry: Any) -> tuple[FileIO, str]:
        location = _location(entry.parameters, entry.locationUri)
        return self._store_of(location or super().database_path(entry.name))

    def _location_text(self, path: str) -> str:
        """A path as a location in the metastore, for which one without a scheme is in HDFS."""
        return f"file:{path}" if is_local(path) else path

    # ---- databases

    def _make_database(self, name: str, properties: dict[str, str]) -> bool:
        location = properties.pop(LOCATION, "") or self._location_text(super().database_path(name))
        entry = thrift().Database(
            name=name,
            description=properties.pop(COMMENT, None),
            ownerName=properties.pop(_OWNER, None),
            parameters=properties,
        )
        if self._in_properties:
            entry.parameters[LOCATION_PROPERTY] = location
        else:
            entry.locationUri = location
        try:
            with self._metastore.connect() as client:
                client.create_database(entry)
        except thrift().AlreadyExistsException:
            return False
        return True

    def list_databases(self) -> list[str]:
        """See `Catalog`."""
        with self._metastore.connect() as client:
            return sorted(client.get_all_databases())

    def database(self, name: str) -> Database:
        """See `Catalog`."""
        check_name("database", name)
        entry = self._database_entry(name)
        properties = dict(entry.parameters or {})
        fields = {
            COMMENT: entry.description,
            _OWNER: entry.ownerName,
            LOCATION: _location(properties, entry.locationUri),
        }
        return Database.of(name, properties | {key: text for key, text in fields.items() if text})

    def _change_database(self, name: str, changes: Mapping[str, str | None]) -> None:
        if LOCATION in changes:
            raise UnsupportedFeatureError(
                "this property of a database cannot be changed", database=name, property=LOCATION
            )
        entry, rest = self._database_entry(name), dict(changes)
        if COMMENT in rest:
            entry.description = rest.pop(COMMENT)
        if _OWNER in rest:
            entry.ownerName = rest.pop(_OWNER)
        texts = {**(entry.parameters or {}), **rest}
        entry.parameters = {key: value for key, value in texts.items() if value is not None}
        with self._metastore.connect() as client:
            client.alter_database(name, entry)

    def _remove_database(self, name: str) -> None:
        with self._metastore.connect() as client:
            tables = client.get_all_tables(name)
        if tables:
            raise InvalidRequestError(
                "the database holds tables that are not Paimon's",
                hint="drop them in Hive",
                database=name,
                tables=", ".join(sorted(tables)[:5]),
            )
        file_io, path = self._database_place(self._database_entry(name))
        with self._metastore.connect() as client:
            client.drop_database(name, not self._in_properties, False)
        file_io.prune(path)

    def _database_entry(self, name: str) -> Any:
        try:
            with self._metastore.connect() as client:
                return client.get_database(name)
        except thrift().NoSuchObjectException:
            raise NotFoundError("there is no such database", database=name) from None

    # ---- tables

    def list_tables(self, database: str) -> list[str]:
        """See `Catalog`: the tables of Paimon among those of the metastore."""
        check_name("database", database)
        with self._metastore.connect() as client:
            names = client.get_all_tables(database)
            entries = [
                entry
                for start in range(0, len(names), _BATCH)
                for entry in client.get_table_objects_by_name(
                    database, names[start : start + _BATCH]
                )
            ]
        return sorted(entry.tableName for entry in entries if is_paimon(entry))

    def exists(self, identifier: str) -> bool:
        """See `Catalog`."""
        entry = self._entry(identifier)
        return entry is not None and is_paimon(entry)

    def _entry(self, identifier: str) -> Any | None:
        """The entry of a name in the metastore: a table of any kind, a view, or None."""
        database, name = split_identifier(identifier)
        try:
            with self._metastore.connect() as client:
                return client.get_table(database, name)
        except thrift().NoSuchObjectException:
            return None

    def _location(self, identifier: str) -> str:
        if not self.exists(identifier):
            raise NotFoundError("the table is not in the catalog", table=identifier)
        return self.table_path(identifier)

    def _check_free(self, identifier: str) -> None:
        database, _ = split_identifier(identifier)
        try:
            self._database_entry(database)
        except NotFoundError as error:
            error.hint = "create it first"
            raise
        entry = self._entry(identifier)
        if entry is not None and not is_paimon(entry):
            what = "view" if entry.tableType == VIRTUAL_VIEW else "table that is not Paimon's"
            raise AlreadyExistsError(f"a {what} of this name exists", table=identifier)

    def _register(self, identifier: str, schema: TableSchema) -> None:
        database, name = split_identifier(identifier)
        path = self.table_path(identifier)
        now_s = self.clock.now_ms() // 1000
        user = self._metastore.user
        entry = new_entry(database, name, user, now_s, external=self._external)
        describe(entry, schema, None, every=self._syncs_all)
        if self._in_properties:
            entry.parameters[LOCATION_PROPERTY] = self._location_text(path)
        else:
            entry.sd.location = self._location_text(path)
        try:
            with self._metastore.connect() as client:
                client.create_table(entry)
        except thrift().AlreadyExistsException:
            if not self.exists(identifier):
                self._check_free(identifier)
        except InvalidRequestError:
            self.file_io_of(identifier).delete(TableLayout(path).schema_file(schema.id))
            raise

    def _unregister(self, identifier: str) -> None:
        database, name = split_identifier(identifier)
        owns = self._owns_files(identifier)
        file_io, path = self._location_of(identifier)
        with (
            contextlib.suppress(thrift().NoSuchObjectException),
            self._metastore.connect() as client,
        ):
            client.drop_table(database, name, owns and not self._in_properties)
        if owns:
            file_io.prune(path)

    def _owns_files(self, identifier: str) -> bool:
        entry = self._entry(identifier)
        return entry is None or entry.tableType != EXTERNAL_TABLE

    def _move(self, old: str, new: str, move_files: Callable[[], None]) -> None:
        """See `Catalog`: the files of a table that is not external move, and move back on error."""
        entry, moves = self._entry(old), self._owns_files(old)
        if entry is None:
            raise NotFoundError("there is no such table", table=old)
        old_path, new_path = self.table_path(old), self.table_path(new)
        if moves:
            move_files()
            if self._in_properties:
                entry.parameters[LOCATION_PROPERTY] = self._location_text(new_path)
            else:
                entry.sd.location = self._location_text(new_path)
        try:
            self._rename_entry(entry, new)
        except LakewardError:
            if moves:
                self.file_io_of(old).rename_directory(new_path, old_path)
            raise

    def _rename_entry(self, entry: Any, new: str) -> None:
        old = entry.dbName, entry.tableName
        entry.dbName, entry.tableName = split_identifier(new)
        self._alter_entry(*old, entry)

    def _alter_entry(self, database: str, name: str, entry: Any) -> None:
        properties = {"CASCADE": "true"} if self._cascades and entry.partitionKeys else {}
        properties["DO_NOT_UPDATE_STATS"] = str(self._skips_statistics).lower()
        with self._metastore.connect() as client:
            client.alter_table_with_environment_context(
                database, name, entry, thrift().EnvironmentContext(properties=properties)
            )

    def sync_entry(self, identifier: str, old: TableSchema | None) -> None:
        """Write columns, keys and options of the newest schema into a table's entry.

        Of concurrent calls the last one has read the newest schema.

        Args:
            identifier: of the table.
            old: the schema that the entry may have been described by.

        Raises:
            InvalidRequestError: the metastore refuses the change.
        """
        schemas = self.schemas(identifier)
        schema = schemas.latest()
        while schema is not None:
            entry = self._entry(identifier)
            if entry is None:
                raise NotFoundError("there is no such table", table=identifier)
            describe(entry, schema, old, every=self._syncs_all)
            self._alter_entry(entry.dbName, entry.tableName, entry)
            written, old = schema, schema
            schemas.forget()
            schema = schemas.latest()
            if schema is None or schema.id == written.id:
                return

    def _environment(self, identifier: str, branch: str) -> CatalogEnvironment | None:
        return _HiveEnvironment(self, identifier) if branch == MAIN_BRANCH else None

    def repair_table(self, identifier: str) -> None:
        """See `Catalog`; partitions, too, with `metastore.partitioned-table`."""
        schema = self.schemas(identifier).latest()
        if schema is None:
            raise NotFoundError(
                "no table files found", table=identifier, path=self.table_path(identifier)
            )
        self.create_database(split_identifier(identifier)[0], ignore_if_exists=True)
        self._check_free(identifier)
        if self.exists(identifier):
            self.sync_entry(identifier, None)
        else:
            self._register(identifier, schema)
        table = self.table(identifier)
        snapshot = table.latest_snapshot()
        if snapshot is not None and table.options.metastore_partitioned_table:
            live = {entry.partition for entry in live_entries(table, snapshot)}
            self.add_partitions(
                identifier, [spec_of_path(table.partition_path(partition)) for partition in live]
            )

    # ---- partitions

    def add_partitions(self, identifier: str, specs: Iterable[Mapping[str, str]]) -> None:
        """Register partitions of a table, except existing ones.

        Args:
            identifier: of the table.
            specs: values as texts, by partition column, in their order.
        """
        entry = self._entry(identifier)
        if entry is None or not entry.partitionKeys:
            return
        now_s = self.clock.now_ms() // 1000
        root = self._location_text(self.table_path(identifier))
        partitions = []
        for spec in specs:
            location = f"{root}/{path_of_spec(spec)}"
            partition = new_partition(entry, spec.values(), location, now_s)
            if self._in_properties:
                partition.sd.location = None
                partition.parameters[LOCATION_PROPERTY] = location
            partitions.append(partition)
        request = thrift().AddPartitionsRequest(
            dbName=entry.dbName,
            tblName=entry.tableName,
            parts=partitions,
            ifNotExists=True,
            needResult=False,
        )
        if partitions:
            with self._metastore.connect() as client:
                client.add_partitions_req(request)

    def mark_loaded(self, identifier: str, specs: Iterable[Mapping[str, str]]) -> None:
        """Mark partitions of a table with the metastore's event LOAD_DONE.

        Args:
            identifier: of the table.
            specs: values as texts, by partition column.

        Raises:
            NotFoundError: the metastore has no such table.
            InvalidRequestError: the metastore refuses it.
        """
        database, name = split_identifier(identifier)
        loaded = thrift().PartitionEventType.LOAD_DONE
        with self._metastore.connect() as client:
            for spec in specs:
                try:
                    client.markPartitionForEvent(database, name, dict(spec), loaded)
                except thrift().NoSuchObjectException as error:
                    raise NotFoundError(
                        "the Hive metastore has no such table",
                        hint="call `repair_table`",
                        table=identifier,
                    ) from error

    def drop_partitions(self, identifier: str, specs: Iterable[Mapping[str, str]]) -> None:
        """Remove the entries of partitions, but not their files."""
        database, name = split_identifier(identifier)
        for spec in specs:
            with (
                contextlib.suppress(thrift().NoSuchObjectException),
                self._metastore.connect() as client,
            ):
                client.drop_partition(database, name, list(spec.values()), False)

    def partitions(self, identifier: str) -> list[dict[str, str]]:
        """Partitions that are registered in the metastore: values as texts, by column.

        Raises:
            NotFoundError: there is no such table.
        """
        entry = self._entry(identifier)
        if entry is None:
            raise NotFoundError("there is no such table", table=identifier)
        keys = [column.name for column in entry.partitionKeys or ()]
        with self._metastore.connect() as client:
            partitions = client.get_partitions(entry.dbName, entry.tableName, _MAX_PARTITIONS)
        return [dict(zip(keys, partition.values, strict=True)) for partition in partitions]

    # ---- views

    def _make_view(self, identifier: str, view: View) -> bool:
        """See `Catalog`. Paimon keeps one query; those of `dialects` are parameters of Lakeward."""
        now_s = self.clock.now_ms() // 1000
        entry = new_view(*split_identifier(identifier), view, self._metastore.user, now_s)
        try:
            with self._metastore.connect() as client:
                client.create_table(entry)
        except thrift().AlreadyExistsException:
            return False
        return True

    def view(self, identifier: str) -> View:
        """See `Catalog`."""
        return view_of(self._view_entry(identifier))

    def list_views(self, database: str) -> list[str]:
        """See `Catalog`."""
        check_name("database", database)
        with self._metastore.connect() as client:
            return sorted(client.get_tables_by_type(database, "*", VIRTUAL_VIEW))

    def _remove_view(self, identifier: str) -> None:
        entry = self._view_entry(identifier)
        with self._metastore.connect() as client:
            client.drop_table(entry.dbName, entry.tableName, False)

    def _move_view(self, old: str, new: str) -> bool:
        if self._entry(new) is not None:
            return False
        self._rename_entry(self._view_entry(old), new)
        return True

    def _change_view(self, identifier: str, view: View) -> None:
        old = self._view_entry(identifier)
        entry = new_view(old.dbName, old.tableName, view, old.owner, old.createTime)
        self._alter_entry(old.dbName, old.tableName, entry)

    def _require_view(self, identifier: str) -> None:
        self._view_entry(identifier)  # its columns may be of types that only Hive has

    def _view_entry(self, identifier: str) -> Any:
        entry = self._entry(identifier)
        if entry is None or entry.tableType != VIRTUAL_VIEW:
            raise NotFoundError("there is no such view", view=identifier)
        return entry


_OWN_OPTIONS = (
    URI,
    CONF_DIR,
    SYNC_ALL_PROPERTIES,
    _LOCATION_IN_PROPERTIES,
    _TABLE_TYPE,
    _CASCADE,
    _SKIP_STATISTICS,
    *_WITHOUT_EFFECT,
    *_ONLY_VALUES,
)


def _table_type(options: Mapping[str, str]) -> bool:
    """Whether new tables are external."""
    text = options.get(_TABLE_TYPE, "managed").strip().lower()
    if text not in ("managed", "external"):
        raise InvalidOptionError(
            "option is not managed or external", key=_TABLE_TYPE, value=options[_TABLE_TYPE]
        )
    return text == "external"


def _location(parameters: Mapping[str, str] | None, location: str | None) -> str:
    """The location of an entry: the one in its properties takes precedence."""
    return (parameters or {}).get(LOCATION_PROPERTY) or location or ""
