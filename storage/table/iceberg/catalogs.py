# SPDX-License-Identifier: Apache-2.0
"""Publishing the Iceberg metadata of a table in a catalog service: a REST catalog, or Hive.

The metadata files of the table are written first and are authoritative; the catalog follows the
newest. A process that dies in between leaves a stale catalog, which the next publication of any
process updates. So that a slow process never reverts the catalog, it looks up the newest metadata
file only after it has read the catalog's state (REST: its commit applies to no other) or locked
its entry (Hive), and checks again afterwards.

Source: Iceberg's REST specification (commits with requirements) and the entries of Iceberg's
`HiveTableOperations`; names of options as Apache Paimon has them.
"""

import abc
import contextlib
import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from storage.clients.rest_client import RestClient
from storage.clock import Clock
from storage.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    UnsupportedFeatureError,
)
from storage.lru import LruCache
from storage.options.options import TableOptions
from storage.options.table import REST_PREFIX
from storage.table.core import TableCore

T = TypeVar("T")
Document = dict[str, Any]
"""Content of a metadata file."""

Newest = Callable[[], tuple[str, Document]]
"""Returns the newest metadata file: its path and its content."""

_TRIES = 8
_TIMEOUT_S = 15.0
_REFUSED = (401, 403, 419)
"""Statuses with which servers refuse a token that has expired."""
_LOCK_MS = 10_000
_LOCK_SLEEP_MS = 1_000

OWNER = "lakeward.table"
"""Property of the table in a catalog: location of the table that it publishes."""


class IcebergCatalog(abc.ABC):
    """A catalog service in which a table is published.

    Attributes:
        database: of the table in it.
        name: of the table in it.
    """

    def __init__(self, table: TableCore) -> None:
        options = table.options
        database, _, name = table.layout.root.rpartition("/")
        default = database.rpartition("/")[2].removesuffix(".db")
        self.database = options.iceberg_database or default
        self.name = options.iceberg_table or name
        self._root = table.layout.root

    @abc.abstractmethod
    def follow(self, newest: Newest) -> None:
        """Bring the catalog to the newest metadata file.

        Raises:
            RetryableError: the service does not answer, or other writers keep publishing.
            InvalidRequestError: it refuses, or has another table of this name.
        """

    @abc.abstractmethod
    def drop(self) -> None:
        """Remove the table from the catalog, without its files; not a foreign table.

        Raises:
            RetryableError: the service does not answer.
            InvalidRequestError: it refuses.
        """

    def _foreign(self, detail: str) -> InvalidRequestError:
        return InvalidRequestError(
            "the Iceberg catalog has another table of this name",
            detail=detail,
            hint="set `metadata.iceberg.database` or `metadata.iceberg.table` to a free name, "
            "or remove the other table from the catalog",
            table=self._root,
            name=f"{self.database}.{self.name}",
        )

    def _contended(self) -> CommitConflictError:
        return CommitConflictError(
            "other writers published to the Iceberg catalog at every attempt",
            hint="run `lakeward table iceberg-sync`",
            table=self._root,
        )


def catalog_of(table: TableCore) -> IcebergCatalog | None:
    """The catalog service in which the options of a table publish it, if any.

    Raises:
        InvalidOptionError: an option that it needs is missing or wrong.
    """
    if table.options.iceberg_storage == "rest-catalog":
        return RestIcebergCatalog(table)
    if table.options.iceberg_storage == "hive-catalog":
        return HiveIcebergCatalog(table)
    return None


def check_catalog(options: TableOptions) -> None:
    """Check the options of a table that say where its catalog service is.

    Raises:
        InvalidOptionError: one is missing or wrong.
    """
    if options.iceberg_storage == "rest-catalog":
        rest_properties(options.raw)
    conf = options.iceberg_uri or options.iceberg_hive_conf_dir or os.environ.get("HIVE_CONF_DIR")
    if options.iceberg_storage == "hive-catalog" and not conf:
        raise InvalidOptionError(
            "Iceberg metadata in Hive needs the address of the metastore",
            hint="set `metadata.iceberg.uri` to thrift://host:9083",
            option="metadata.iceberg.uri",
        )


_PROPERTIES = ("uri", "warehouse", "prefix", "token", "credential", "oauth2-server-uri", "scope")
_HEADER = "header."
_CLIENT_PREFIXES = (
    "clients",
    "io-impl",
    "cache-enabled",
    "client.",
    "cache.",
    "s3.",
    "gcs.",
    "adls.",
)
_CLIENTS: LruCache[tuple[tuple[str, str], ...], RestClient] = LruCache(100)


def rest_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Properties of the REST catalog among the options of a table.

    Raises:
        InvalidOptionError: one is unknown, or the address is missing.
    """
    properties = {
        key.removeprefix(REST_PREFIX): value
        for key, value in options.items()
        if key.startswith(REST_PREFIX)
    }
    for key in properties:
        if key not in _PROPERTIES and not key.startswith((_HEADER, *_CLIENT_PREFIXES)):
            near = difflib.get_close_matches(key, _PROPERTIES, 1)
            raise InvalidOptionError(
                "this Iceberg REST catalog property is not supported",
                hint=f"did you mean `{REST_PREFIX}{near[0]}`?"
                if near
                else "bearer tokens and OAuth2 client credentials are supported",
                option=REST_PREFIX + key,
            )
    if "uri" not in properties:
        raise InvalidOptionError(
            "an Iceberg REST catalog needs its address",
            hint=f"set `{REST_PREFIX}uri` to https://host/path",
            option=f"{REST_PREFIX}uri",
        )
    return properties


def _fetch_token(client: RestClient, properties: Mapping[str, str]) -> str:
    """A token for OAuth2 client credentials: `identity:secret`, or the secret alone."""
    identity, colon, secret = properties["credential"].partition(":")
    fields = {
        "grant_type": "client_credentials",
        "scope": properties.get("scope", "catalog"),
        "client_secret": secret if colon else identity,
        **({"client_id": identity} if colon else {}),
    }
    url = properties.get("oauth2-server-uri", f"{properties['uri'].rstrip('/')}/v1/oauth/tokens")
    try:
        return str(client.form(url, fields)["access_token"])
    except (InvalidRequestError, NotFoundError, KeyError) as error:
        raise InvalidRequestError(
            "the Iceberg catalog grants no token",
            detail=str(error),
            hint=f"check `{REST_PREFIX}credential`, `scope` and `oauth2-server-uri`",
            url=url,
        ) from error


def _connect(properties: Mapping[str, str]) -> RestClient:
    """A client with the token and the prefix that the server returns."""
    headers = {
        key.removeprefix(_HEADER): value
        for key, value in properties.items()
        if key.startswith(_HEADER)
    }
    uri = properties["uri"]

    def client(token: str, prefix: str = "") -> RestClient:
        return RestClient(uri, token, headers, prefix, timeout_s=_TIMEOUT_S, tries=1)

    token = properties.get("token", "")
    if "credential" in properties and not token:
        token = _fetch_token(client(""), properties)
    warehouse = properties.get("warehouse")
    config = client(token).get("config", {"warehouse": warehouse} if warehouse else None)
    settings = {**config.get("defaults", {}), **properties, **config.get("overrides", {})}
    return client(token, settings.get("prefix", ""))


class RestIcebergCatalog(IcebergCatalog):
    """An Iceberg REST catalog. The server writes metadata files of its own.

    One commit creates or updates the table, with its uuid and its current snapshot as requirements.
    Servers assign their own schema ids, so new schemas precede in a commit of their own, and
    snapshots use the ids in its response.
    """

    def __init__(self, table: TableCore) -> None:
        super().__init__(table)
        self._properties = rest_properties(table.options.raw)
        self._key = tuple(sorted(self._properties.items()))
        self._namespace = f"namespaces/{quote(self.database, safe='')}"
        self._tables = f"{self._namespace}/tables"
        self._resource = f"{self._tables}/{quote(self.name, safe='')}"

    def follow(self, newest: Newest) -> None:
        """See `IcebergCatalog`."""
        for _ in range(_TRIES):
            try:
                current = self._load()
                path, target = newest()
                if current is not None:
                    self._check(current, target)
                if current is not None and _must_recreate(current, target):
                    self._delete()
                    current = None
                self._update(current, target)
                if newest() == (path, target):
                    return
            except AlreadyExistsError:
                continue  # another writer changed the table meanwhile
        raise self._contended()

    def drop(self) -> None:
        """See `IcebergCatalog`."""
        current = self._load()
        if current is not None and current.get("properties", {}).get(OWNER) == self._root:
            with contextlib.suppress(NotFoundError):
                self._delete()

    def _delete(self) -> None:
        self._answer(lambda client: client.delete(f"{self._resource}?purgeRequested=false"))

    def _client(self) -> RestClient:
        client = _CLIENTS.get(self._key)
        if client is None:
            client = _connect(self._properties)
            _CLIENTS.put(self._key, client)
        return client

    def _answer(self, request: Callable[[RestClient], T]) -> T:
        """The answer to a request, sent again with a new token where the old one has expired."""
        try:
            return request(self._client())
        except InvalidRequestError as error:
            refused = error.context.get("status") in _REFUSED
            if not refused or "credential" not in self._properties:
                raise
        _CLIENTS.put(self._key, _connect(self._properties))
        return request(self._client())

    def _load(self) -> Document | None:
        query = {"snapshots": "all"}
        try:
            return dict(self._answer(lambda client: client.get(self._resource, query))["metadata"])
        except NotFoundError:
            return None

    def _check(self, current: Document, target: Document) -> None:
        owner = current.get("properties", {}).get(OWNER)
        if owner != self._root and current["table-uuid"] != target["table-uuid"]:
            raise self._foreign(str(current.get("location")))

    def _update(self, current: Document | None, target: Document) -> None:
        if current is None:
            current = self._create(target)
        new_schemas = [
            schema
            for schema in target["schemas"]
            if _fields(schema) not in {_fields(entry) for entry in current["schemas"]}
        ]
        if new_schemas:
            add: list[Document] = []
            for schema in new_schemas:
                last_id = max(target["last-column-id"], current["last-column-id"])
                add.append({"action": "add-schema", "schema": schema, "last-column-id": last_id})
            current = self._commit(current, add)
        updates = list(_updates(current, target))
        if updates:
            self._commit(current, updates)

    def _create(self, target: Document) -> Document:
        schema = min(target["schemas"], key=lambda entry: int(entry["schema-id"]))
        version = target["format-version"]
        updates = [
            {"action": "assign-uuid", "uuid": target["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": version},
            {
                "action": "add-schema",
                "schema": schema,
                "last-column-id": target["last-column-id"],
            },
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": target["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": target["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": target["location"]},
            {"action": "set-properties", "updates": target["properties"]},
        ]
        absent = [{"type": "assert-create"}]
        try:
            return self._send(absent, updates)
        except NotFoundError:  # of the database; some catalogs refuse to create what exists
            namespace = {"namespace": [self.database], "properties": {}}
            self._answer(lambda client: client.create("namespaces", namespace))
            return self._send(absent, updates)

    def _commit(self, current: Document, updates: list[Document]) -> Document:
        main = current.get("refs", {}).get("main", {}).get("snapshot-id")
        return self._send(
            [
                {"type": "assert-table-uuid", "uuid": current["table-uuid"]},
                {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": main},
            ],
            updates,
        )

    def _send(self, requirements: list[Document], updates: list[Document]) -> Document:
        body = {
            "identifier": {"namespace": [self.database], "name": self.name},
            "requirements": requirements,
            "updates": updates,
        }
        return dict(self._answer(lambda client: client.post(self._resource, body))["metadata"])


def _must_recreate(current: Document, target: Document) -> bool:
    """Whether no update leads to the target, which was recreated or lost its metadata."""
    lists = {snapshot["manifest-list"] for snapshot in current.get("snapshots") or ()}
    new = [snapshot for snapshot in target["snapshots"] if snapshot["manifest-list"] not in lists]
    return (
        current["table-uuid"] != target["table-uuid"]
        or current["format-version"] > target["format-version"]
        or any(snapshot["sequence-number"] <= current["last-sequence-number"] for snapshot in new)
        or any(snapshot.get("first-row-id", 0) < current.get("next-row-id", 0) for snapshot in new)
    )


def _updates(current: Document, target: Document) -> Iterator[Document]:
    """Updates that bring the catalog's metadata to the target."""
    if current["format-version"] < target["format-version"]:
        yield {
            "action": "upgrade-format-version",
            "format-version": target["format-version"],
        }
    numbers = {_fields(schema): schema["schema-id"] for schema in current["schemas"]}
    schema_ids = {schema["schema-id"]: numbers[_fields(schema)] for schema in target["schemas"]}
    current_id = schema_ids[target["current-schema-id"]]
    if current["current-schema-id"] != current_id:
        yield {"action": "set-current-schema", "schema-id": current_id}
    properties = current.get("properties", {})
    new_properties = {
        key: value for key, value in target["properties"].items() if properties.get(key) != value
    }
    if new_properties:
        yield {"action": "set-properties", "updates": new_properties}
    yield from _snapshot_updates(current, target, schema_ids)


def _snapshot_updates(
    current: Document, target: Document, schema_ids: Mapping[int, int]
) -> Iterator[Document]:
    """Updates of snapshots and references; a snapshot is identified by its manifest list."""
    lists = {item["snapshot-id"]: item["manifest-list"] for item in target["snapshots"]}
    old_lists = {
        item["snapshot-id"]: item["manifest-list"] for item in current.get("snapshots") or ()
    }
    stale = [key for key, path in old_lists.items() if lists.get(key) != path]
    refs = {name: _reference(ref) for name, ref in target["refs"].items()}
    current_refs = {name: _reference(ref) for name, ref in (current.get("refs") or {}).items()}
    replaced = [key for key in stale if key in lists]
    for name, ref in current_refs.items():
        if name not in refs or ref["snapshot-id"] in replaced:
            yield {"action": "remove-snapshot-ref", "ref-name": name}
    if replaced:
        yield {"action": "remove-snapshots", "snapshot-ids": replaced}
    for snapshot in target["snapshots"]:
        if snapshot["snapshot-id"] not in old_lists or snapshot["snapshot-id"] in replaced:
            schema_id = schema_ids[snapshot["schema-id"]]
            yield {"action": "add-snapshot", "snapshot": {**snapshot, "schema-id": schema_id}}
    for name, ref in refs.items():
        if current_refs.get(name) != ref or ref["snapshot-id"] in replaced:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref}
    removals = [key for key in stale if key not in lists]
    if removals:
        yield {"action": "remove-snapshots", "snapshot-ids": removals}


def _reference(ref: Mapping[str, Any]) -> Document:
    return {"type": ref["type"], "snapshot-id": ref["snapshot-id"]}


def _fields(schema: Mapping[str, Any]) -> str:
    """The columns of a schema, independent of how a server formats their types."""
    return json.dumps(_plain(schema["fields"]), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.replace(" ", "") if isinstance(value, str) else value


_LOCATION = "metadata_location"
_PREVIOUS = "previous_metadata_location"


class HiveIcebergCatalog(IcebergCatalog):
    """A Hive metastore, whose entry of the table names its newest metadata file.

    The entry changes under the lock of the metastore that Iceberg's engines take, too.
    """

    def __init__(self, table: TableCore) -> None:
        from storage.clients.hive_client import (  # noqa: PLC0415 - needs an extra
            CONF_DIR,
            URI,
            HiveMetastore,
        )

        super().__init__(table)
        options = table.options
        settings = {URI: options.iceberg_uri, CONF_DIR: options.iceberg_hive_conf_dir}
        self._metastore = HiveMetastore.of({key: text for key, text in settings.items() if text})
        self._clock: Clock = table.clock

    def follow(self, newest: Newest) -> None:
        """See `IcebergCatalog`."""
        with self._locked():
            self._follow(newest)

    def drop(self) -> None:
        """See `IcebergCatalog`."""
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        with (
            self._locked(),
            contextlib.suppress(thrift().NoSuchObjectException),
            self._metastore.connect() as client,
        ):
            if client.get_table(self.database, self.name).parameters.get(OWNER) == self._root:
                client.drop_table(self.database, self.name, False)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._metastore.lock(
            self.database,
            self.name,
            clock=self._clock,
            timeout_ms=_LOCK_MS,
            max_sleep_ms=_LOCK_SLEEP_MS,
        )
        try:
            yield
        finally:
            with contextlib.suppress(RetryableError, InvalidRequestError):
                self._metastore.unlock(lock)

    def _follow(self, newest: Newest) -> None:
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        hive = thrift()
        path, document = newest()
        with self._metastore.connect() as client:
            try:
                entry = client.get_table(self.database, self.name)
            except hive.NoSuchObjectException:
                entry = None
            if entry is None:
                self._make_database(client)
                client.create_table(self._entry(path, document))
                return
            parameters = entry.parameters
            if parameters.get("table_type", "").upper() != "ICEBERG":
                raise self._foreign("it is not an Iceberg table")
            if parameters.get(OWNER, self._root) != self._root:
                raise self._foreign(parameters[OWNER])
            columns = self._columns(document)
            same_columns = [(column.name, column.type) for column in entry.sd.cols] == [
                (column.name, column.type) for column in columns
            ]
            if parameters.get(_LOCATION) == path and same_columns:
                return
            parameters[_PREVIOUS] = parameters.get(_LOCATION, path)
            parameters[_LOCATION] = path
            entry.sd.cols = columns
            context = hive.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
            client.alter_table_with_environment_context(self.database, self.name, entry, context)

    def _make_database(self, client: Any) -> None:
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        hive = thrift()
        try:
            client.get_database(self.database)
        except hive.NoSuchObjectException:
            location = self._root.rpartition("/")[0]
            database = hive.Database(name=self.database, locationUri=location, parameters={})
            with contextlib.suppress(hive.AlreadyExistsException):
                client.create_database(database)

    def _entry(self, path: str, document: Document) -> Any:
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        hive = thrift()
        now_s = int(document["last-updated-ms"]) // 1000
        return hive.Table(
            tableName=self.name,
            dbName=self.database,
            owner=self._metastore.user,
            createTime=now_s,
            lastAccessTime=now_s,
            retention=2_147_483_647,
            sd=hive.StorageDescriptor(
                cols=self._columns(document),
                location=self._root,
                inputFormat="org.apache.hadoop.mapred.FileInputFormat",
                outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
                compressed=False,
                numBuckets=0,
                serdeInfo=hive.SerDeInfo(
                    serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                    parameters={},
                ),
                bucketCols=[],
                sortCols=[],
                parameters={},
            ),
            partitionKeys=[],
            parameters={
                "EXTERNAL": "TRUE",
                "table_type": "ICEBERG",
                "external.table.purge": "FALSE",
                "DO_NOT_UPDATE_STATS": "true",
                _LOCATION: path,
                OWNER: self._root,
            },
            tableType="EXTERNAL_TABLE",
        )

    @staticmethod
    def _columns(document: Document) -> list[Any]:
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        schema_id = document["current-schema-id"]
        schema = next(entry for entry in document["schemas"] if entry["schema-id"] == schema_id)
        return [
            thrift().FieldSchema(name=field["name"], type=hive_type(field["type"]), comment=None)
            for field in schema["fields"]
        ]


_HIVE_TYPES = {
    "long": "bigint",
    "timestamptz": "timestamp with local time zone",
}


def hive_type(type_: Any) -> str:
    """Hive's text for a type of Iceberg, as a JSON value."""
    if isinstance(type_, str):
        return _HIVE_TYPES.get(type_, type_.replace(" ", ""))
    if type_["type"] == "list":
        return f"array<{hive_type(type_['element'])}>"
    if type_["type"] == "map":
        return f"map<{hive_type(type_['key'])},{hive_type(type_['value'])}>"
    if type_["type"] == "struct":
        fields = (f"{field['name']}:{hive_type(field['type'])}" for field in type_["fields"])
        return f"struct<{','.join(fields)}>"
    raise UnsupportedFeatureError("Hive has no such type", type=str(type_))
