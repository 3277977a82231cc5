# SPDX-License-Identifier: Apache-2.0
"""Publishing the Iceberg metadata of a table in a catalog service: a REST catalog, or Hive.

The metadata files of the table come first and decide; the catalog follows the newest of them. Who
dies in between leaves a catalog that is behind, and the next publication of anyone brings it on.
So that a process which was slow never takes the catalog back, it asks for the newest metadata file
only once it has what the catalog holds (REST: its change applies to nothing else) or the lock of
its entry (Hive), and asks again afterwards.

Source: Iceberg's REST specification (commits with requirements) and the entries of Iceberg's
`HiveTableOperations`; names of options as Apache Paimon has them.
"""

import abc
import contextlib
import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
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
from storage.options.iceberg import REST_PREFIX
from storage.options.options import TableOptions
from storage.table.core import TableCore

Document = dict[str, Any]
"""Content of a metadata file."""

Newest = Callable[[], tuple[str, Document]]
"""Gives the newest metadata file: its path and its content."""

_TRIES = 8
_TIMEOUT_S = 15.0
_LOCK_MS = 10_000
_LOCK_SLEEP_MS = 1_000

OWNER = "lakeward.table"
"""Property of the table in a catalog: where the table lies that it shows."""


class IcebergCatalog(abc.ABC):
    """A catalog service in which a table is published.

    Attributes:
        database: of the table in it.
        name: of the table in it.
    """

    def __init__(self, table: TableCore) -> None:
        options = table.options
        database, _, name = table.layout.root.rpartition("/")
        own = database.rpartition("/")[2].removesuffix(".db")
        self.database = options.iceberg_database or own
        self.name = options.iceberg_table or name
        self._root = table.layout.root

    @abc.abstractmethod
    def follow(self, newest: Newest) -> None:
        """Bring the catalog to the newest metadata file.

        Raises:
            RetryableError: the service does not answer, or others publish again and again.
            InvalidRequestError: it refuses, or has another table of this name.
        """

    @abc.abstractmethod
    def drop(self) -> None:
        """Remove the table from the catalog, without its files; not a table of others.

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
            "the table is published in the Iceberg catalog by others again and again",
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
    named = options.iceberg_uri or options.iceberg_hive_conf_dir or os.environ.get("HIVE_CONF_DIR")
    if options.iceberg_storage == "hive-catalog" and not named:
        raise InvalidOptionError(
            "Iceberg metadata in Hive needs the address of the metastore",
            hint="set `metadata.iceberg.uri` to thrift://host:9083",
            option="metadata.iceberg.uri",
        )


_KNOWN = ("uri", "warehouse", "prefix", "token", "credential", "oauth2-server-uri", "scope")
_HEADER = "header."
_OF_ITS_CLIENT = (
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
    found = {
        key.removeprefix(REST_PREFIX): value
        for key, value in options.items()
        if key.startswith(REST_PREFIX)
    }
    for key in found:
        if key not in _KNOWN and not key.startswith((_HEADER, *_OF_ITS_CLIENT)):
            near = difflib.get_close_matches(key, _KNOWN, 1)
            raise InvalidOptionError(
                "Iceberg REST catalogs have no such property here",
                hint=f"did you mean `{REST_PREFIX}{near[0]}`?"
                if near
                else "bearer tokens and OAuth2 client credentials are supported",
                option=REST_PREFIX + key,
            )
    if "uri" not in found:
        raise InvalidOptionError(
            "an Iceberg REST catalog needs its address",
            hint=f"set `{REST_PREFIX}uri` to https://host/path",
            option=f"{REST_PREFIX}uri",
        )
    return found


def _connected(properties: Mapping[str, str]) -> RestClient:
    """A client with the token and the prefix that the server gives."""
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
        identity, _, secret = properties["credential"].rpartition(":")
        fields = {
            "grant_type": "client_credentials",
            "scope": properties.get("scope", "catalog"),
            "client_secret": secret,
            **({"client_id": identity} if identity else {}),
        }
        url = properties.get("oauth2-server-uri", f"{uri.rstrip('/')}/v1/oauth/tokens")
        token = str(client("").form(url, fields).get("access_token", ""))
    warehouse = properties.get("warehouse")
    found = client(token).get("config", {"warehouse": warehouse} if warehouse else None)
    given = {**found.get("defaults", {}), **properties, **found.get("overrides", {})}
    return client(token, given.get("prefix", ""))


class RestIcebergCatalog(IcebergCatalog):
    """An Iceberg REST catalog. The server writes metadata files of its own.

    One commit makes the table or brings it on, with its identity and the snapshot that it is at as
    requirements. Servers number schemas their own way, so new schemas go ahead in a commit of their
    own, and snapshots are recognized by the numbers in its answers.
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
                held = self._load()
                path, wanted = newest()
                if held is not None:
                    self._check(held, wanted)
                if held is not None and _ahead(held, wanted):
                    self._delete()
                    held = None
                self._bring(held, wanted)
                if newest() == (path, wanted):
                    return
            except AlreadyExistsError:
                continue  # others changed the table meanwhile
        raise self._contended()

    def drop(self) -> None:
        """See `IcebergCatalog`."""
        held = self._load()
        if held is not None and held.get("properties", {}).get(OWNER) == self._root:
            with contextlib.suppress(NotFoundError):
                self._delete()

    def _delete(self) -> None:
        self._client().delete(f"{self._resource}?purgeRequested=false")

    def _client(self) -> RestClient:
        client = _CLIENTS.get(self._key)
        if client is None:
            client = _connected(self._properties)
            _CLIENTS.put(self._key, client)
        return client

    def _load(self) -> Document | None:
        try:
            return self._load_again()
        except InvalidRequestError:
            if "credential" not in self._properties:
                raise
        _CLIENTS.put(self._key, _connected(self._properties))  # the token may have had its time
        return self._load_again()

    def _load_again(self) -> Document | None:
        try:
            return dict(self._client().get(self._resource, {"snapshots": "all"})["metadata"])
        except NotFoundError:
            return None

    def _check(self, held: Document, wanted: Document) -> None:
        owner = held.get("properties", {}).get(OWNER)
        if owner != self._root and held["table-uuid"] != wanted["table-uuid"]:
            raise self._foreign(str(held.get("location")))

    def _bring(self, held: Document | None, wanted: Document) -> None:
        if held is None:
            held = self._created(wanted)
        missing = [
            schema
            for schema in wanted["schemas"]
            if _fields(schema) not in {_fields(one) for one in held["schemas"]}
        ]
        if missing:
            add: list[Document] = []
            for schema in missing:
                last = max(wanted["last-column-id"], held["last-column-id"])
                add.append({"action": "add-schema", "schema": schema, "last-column-id": last})
            held = self._commit(held, add)
        updates = list(_updates(held, wanted))
        if updates:
            self._commit(held, updates)

    def _created(self, wanted: Document) -> Document:
        schema = min(wanted["schemas"], key=lambda one: int(one["schema-id"]))
        version = wanted["format-version"]
        first = [
            {"action": "assign-uuid", "uuid": wanted["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": version},
            {
                "action": "add-schema",
                "schema": schema,
                "last-column-id": wanted["last-column-id"],
            },
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": wanted["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": wanted["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": wanted["location"]},
            {"action": "set-properties", "updates": wanted["properties"]},
        ]
        absent = [{"type": "assert-create"}]
        try:
            return self._send(absent, first)
        except NotFoundError:  # of the database; some catalogs refuse to create what exists
            namespace = {"namespace": [self.database], "properties": {}}
            self._client().create("namespaces", namespace)
            return self._send(absent, first)

    def _commit(self, held: Document, updates: list[Document]) -> Document:
        main = held.get("refs", {}).get("main", {}).get("snapshot-id")
        return self._send(
            [
                {"type": "assert-table-uuid", "uuid": held["table-uuid"]},
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
        return dict(self._client().post(self._resource, body)["metadata"])


def _ahead(held: Document, wanted: Document) -> bool:
    """Whether a table cannot be changed into another, which was made anew or lost its metadata."""
    known = {one["manifest-list"] for one in held.get("snapshots") or ()}
    new = [one for one in wanted["snapshots"] if one["manifest-list"] not in known]
    return (
        held["table-uuid"] != wanted["table-uuid"]
        or held["format-version"] > wanted["format-version"]
        or any(one["sequence-number"] <= held["last-sequence-number"] for one in new)
        or any(one.get("first-row-id", 0) < held.get("next-row-id", 0) for one in new)
    )


def _updates(held: Document, wanted: Document) -> Iterator[Document]:
    """Changes that make what a catalog holds what it should hold."""
    if held["format-version"] < wanted["format-version"]:
        yield {
            "action": "upgrade-format-version",
            "format-version": wanted["format-version"],
        }
    numbers = {_fields(schema): schema["schema-id"] for schema in held["schemas"]}
    ours = {schema["schema-id"]: numbers[_fields(schema)] for schema in wanted["schemas"]}
    current = ours[wanted["current-schema-id"]]
    if held["current-schema-id"] != current:
        yield {"action": "set-current-schema", "schema-id": current}
    properties = held.get("properties", {})
    changed = {
        key: value for key, value in wanted["properties"].items() if properties.get(key) != value
    }
    if changed:
        yield {"action": "set-properties", "updates": changed}
    yield from _snapshot_updates(held, wanted, ours)


def _snapshot_updates(
    held: Document, wanted: Document, schema_ids: Mapping[int, int]
) -> Iterator[Document]:
    """Changes of snapshots and references; a snapshot is what its manifest list is."""
    lists = {one["snapshot-id"]: one["manifest-list"] for one in wanted["snapshots"]}
    known = {one["snapshot-id"]: one["manifest-list"] for one in held.get("snapshots") or ()}
    gone = [one for one, path in known.items() if lists.get(one) != path]
    refs = {name: _reference(ref) for name, ref in wanted["refs"].items()}
    before = {name: _reference(ref) for name, ref in (held.get("refs") or {}).items()}
    replaced = [one for one in gone if one in lists]
    for name, ref in before.items():
        if name not in refs or ref["snapshot-id"] in replaced:
            yield {"action": "remove-snapshot-ref", "ref-name": name}
    if replaced:
        yield {"action": "remove-snapshots", "snapshot-ids": replaced}
    for snapshot in wanted["snapshots"]:
        if snapshot["snapshot-id"] not in known or snapshot["snapshot-id"] in replaced:
            schema_id = schema_ids[snapshot["schema-id"]]
            yield {"action": "add-snapshot", "snapshot": {**snapshot, "schema-id": schema_id}}
    for name, ref in refs.items():
        if before.get(name) != ref or ref["snapshot-id"] in replaced:
            yield {"action": "set-snapshot-ref", "ref-name": name, **ref}
    left = [one for one in gone if one not in lists]
    if left:
        yield {"action": "remove-snapshots", "snapshot-ids": left}


def _reference(ref: Mapping[str, Any]) -> Document:
    return {"type": ref["type"], "snapshot-id": ref["snapshot-id"]}


def _fields(schema: Mapping[str, Any]) -> str:
    """The columns of a schema, however a server writes their types."""
    return json.dumps(_plain(schema["fields"]), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
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
        given = {URI: options.iceberg_uri, CONF_DIR: options.iceberg_hive_conf_dir}
        self._metastore = HiveMetastore.of({key: text for key, text in given.items() if text})
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

        found = thrift()
        path, document = newest()
        with self._metastore.connect() as client:
            try:
                entry = client.get_table(self.database, self.name)
            except found.NoSuchObjectException:
                entry = None
            if entry is None:
                self._make_database(client)
                client.create_table(self._entry(path, document))
                return
            parameters = entry.parameters
            if parameters.get("table_type", "").upper() != "ICEBERG":
                raise self._foreign("it is no table of Iceberg")
            if parameters.get(OWNER, self._root) != self._root:
                raise self._foreign(parameters[OWNER])
            columns = self._columns(document)
            same = [(one.name, one.type) for one in entry.sd.cols] == [
                (one.name, one.type) for one in columns
            ]
            if parameters.get(_LOCATION) == path and same:
                return
            parameters[_PREVIOUS] = parameters.get(_LOCATION, path)
            parameters[_LOCATION] = path
            entry.sd.cols = columns
            context = found.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
            client.alter_table_with_environment_context(self.database, self.name, entry, context)

    def _make_database(self, client: Any) -> None:
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        found = thrift()
        try:
            client.get_database(self.database)
        except found.NoSuchObjectException:
            location = self._root.rpartition("/")[0]
            database = found.Database(name=self.database, locationUri=location, parameters={})
            with contextlib.suppress(found.AlreadyExistsException):
                client.create_database(database)

    def _entry(self, path: str, document: Document) -> Any:
        from storage.clients.hive_client import thrift  # noqa: PLC0415 - as above

        found = thrift()
        now_s = int(document["last-updated-ms"]) // 1000
        return found.Table(
            tableName=self.name,
            dbName=self.database,
            owner=self._metastore.user,
            createTime=now_s,
            lastAccessTime=now_s,
            retention=2_147_483_647,
            sd=found.StorageDescriptor(
                cols=self._columns(document),
                location=self._root,
                inputFormat="org.apache.hadoop.mapred.FileInputFormat",
                outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
                compressed=False,
                numBuckets=0,
                serdeInfo=found.SerDeInfo(
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

        wanted = document["current-schema-id"]
        schema = next(one for one in document["schemas"] if one["schema-id"] == wanted)
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
        fields = (f"{one['name']}:{hive_type(one['type'])}" for one in type_["fields"])
        return f"struct<{','.join(fields)}>"
    raise UnsupportedFeatureError("Hive has no such type", type=str(type_))
