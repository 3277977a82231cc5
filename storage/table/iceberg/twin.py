# SPDX-License-Identifier: Apache-2.0
"""Bringing the Iceberg metadata of a table to the table's newest snapshot.

`v<N>.metadata.json` describes the table as of its snapshot N, and all snapshots and tags that the
table still has; Iceberg's snapshot ids are the table's. It is published by create-if-absent after
snapshot N, so it never shows what the table does not have. A process that dies between the two
leaves stale metadata; the next `sync` of any process publishes all missing versions in order, from
the manifests of the last one or, where snapshots between have expired, from the live files.
Concurrent processes do no harm: one creates a version, the others retry.

After a rollback versions beyond the newest snapshot are removed, and snapshots whose id was reused
are distinguished by the time and uuid in their summary. Sequence numbers only grow.

A branch has versions of its own in its directory, made the same way. The table's versions show the
newest snapshot of each as a reference, under an id of its own: ids of branches and of the table
overlap. A branch whose columns the table does not have is left out.

Where options name a catalog service, it follows the newest version; files of earlier versions are
removed only then.

Source: Iceberg table specification, versions 2 and 3; names of files as Apache Paimon has them.
"""

import contextlib
import dataclasses
import logging
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from storage.errors import CommitConflictError, CorruptDataError, NotFoundError
from storage.format.index.deletion_vector import decode as decode_vector
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot, list_tags
from storage.io.file_io import FileIO, FileStatus
from storage.lru import LruCache
from storage.table.core import TableCore
from storage.table.iceberg.catalogs import OWNER, catalog_of
from storage.table.iceberg.manifests import (
    DATA,
    DELETES,
    Contents,
    Entry,
    Manifest,
    ManifestFormat,
    ManifestReader,
    SnapshotManifests,
    VisibleFile,
    clear_manifests,
    data_file,
    decode,
    encode_list,
    encode_puffin,
    entry_name,
    totals,
    vector_file,
)
from storage.table.iceberg.types import (
    PARTITION_FIELD_ID_START,
    avro_partition,
    iceberg_schema,
    name_mapping,
    partition_spec,
)
from storage.table.read.deletion_vectors import DeletionFile, load_encoded
from storage.table.retention.reachability import branch_names

_LOG = logging.getLogger(__name__)

_MAIN = "main"
_HINT = "version-hint.text"
_VERSION = re.compile(r"v(\d+)\.metadata\.json")
_OWN_FILE = re.compile(
    r"v\d+\.metadata\.json|[0-9a-f-]{36}-m\d+\.avro|snap-\d+-[0-9a-f-]{36}\.avro"
    r"|dv-[0-9a-f-]+\.puffin|\.(v\d+\.metadata\.json|version-hint\.text)\..+\.tmp"
)
"""Names of the files that are written here, except the hint."""

_TRIES = 20
_MARK = "lakeward.snapshot"
"""Member of a snapshot's summary that distinguishes it from an earlier one of the same id."""

_BRANCH = "lakeward.branch"
"""Member of the summary of a snapshot that is the newest of a branch."""

_NAME_MAPPING = "schema.name-mapping.default"

_CACHED_MANIFESTS = 20_000
_LISTS: LruCache[str, list[Manifest]] = LruCache(_CACHED_MANIFESTS, weigh=len)
"""Manifest lists by path."""

_Document = dict[str, Any]

_SCHEMAS: LruCache[
    tuple[str, int, int], tuple[TableSchema, _Document, ManifestFormat, dict[str, str]]
] = LruCache(10_000)
"""Iceberg's form of schemas, manifests and properties, by table, id and format version."""

_DOCUMENTS: LruCache[str, tuple[bytes, _Document]] = LruCache(
    16 << 20, weigh=lambda cached: len(cached[0])
)
"""The last version that was read or written, by directory; documents are never changed."""


@dataclasses.dataclass(slots=True)
class PublishedFiles:
    """What publications wrote.

    Attributes:
        versions: metadata files that were published.
        manifests: manifests that were written.
        size: of all files [bytes].
    """

    versions: int = 0
    manifests: int = 0
    size: int = 0


@dataclasses.dataclass(slots=True)
class _Version:
    """A version being written.

    Attributes:
        document: content of the metadata file.
        manifests: of its current snapshot.
        files: paths of new files, removed if another writer creates the version.
    """

    document: _Document
    manifests: list[Manifest]
    files: list[str] = dataclasses.field(default_factory=list)


def clear_iceberg_cache() -> None:
    """Drop what this process caches of manifests and schemas; for tests and memory emergencies."""
    clear_manifests()
    _LISTS.clear()
    _SCHEMAS.clear()
    _DOCUMENTS.clear()


class IcebergTwin:
    """The Iceberg metadata of a table.

    Args:
        follow: update the catalog service, and remove what no version needs any more.

    Attributes:
        directory: of the metadata files.
        written: what was published.

    Raises:
        InvalidOptionError: an option of the catalog service is missing or wrong.
        UnsupportedFeatureError: the table uses what Iceberg lacks.
    """

    def __init__(self, table: TableCore, *, follow: bool = True) -> None:
        options = table.options
        self._table = table
        self._version = options.iceberg_format_version
        self._contents = Contents(table)
        self._reader = ManifestReader(table.file_io)
        self._format = self._form(table.schema)[1]
        self._catalog = catalog_of(table) if follow and table.layout.branch == _MAIN else None
        self._follow = follow
        self.directory = metadata_directory(table)
        self.written = PublishedFiles()

    def sync(self, *, hidden: Collection[int] = (), added: Snapshot | None = None) -> int:
        """Publish what is missing up to the newest snapshot.

        Args:
            hidden: ids of snapshots that are about to expire, which are left out.
            added: the newest snapshot, where it was just added and nothing was rolled back.

        Returns:
            Number of versions published.

        Raises:
            CommitConflictError: other writers published concurrently at every attempt.
            RetryableError, InvalidRequestError: of the catalog service, see `IcebergCatalog`. The
                metadata files are published then.
        """
        for number in range(_TRIES):
            published = self._sync(hidden, None if number else added)
            if published is not None:
                return published
        raise CommitConflictError(
            "other writers published the Iceberg metadata at every attempt",
            hint="run `lakeward table iceberg-sync`",
            table=self._table.layout.root,
        )

    def retract(self) -> None:
        """Remove the table from the catalog service, and metadata files outside of its directory.

        Raises:
            RetryableError, InvalidRequestError: of the catalog service, see `IcebergCatalog`.
        """
        if self._catalog is not None:
            self._catalog.drop()
        if not self.directory.startswith(f"{self._table.layout.root}/"):
            paths = [status.path for status in self.candidates()]
            self._table.file_io.delete_many([*paths, f"{self.directory}/{_HINT}"])
            self._table.file_io.prune(self.directory.removesuffix("/metadata"))

    def candidates(self) -> list[FileStatus]:
        """The existing metadata files, except the hint and foreign files."""
        files = self._table.file_io.list(self.directory)
        return [status for status in files if _OWN_FILE.fullmatch(status.name)]

    def referenced_names(self) -> set[str]:
        """Names of the metadata files of all versions that readers may use.

        Those are the newest version, and those before it that it still lists.
        """
        versions = self.versions()
        if not versions:
            return set()
        newest = self._read(max(versions)) or {}
        logged = {entry["metadata-file"] for entry in newest.get("metadata-log", ())}
        numbers = [number for number, path in versions.items() if path in logged]
        documents = [newest, *(self._read(number) or {} for number in numbers)]
        snapshots = {
            item["manifest-list"]: item for doc in documents for item in doc.get("snapshots", ())
        }
        paths = {versions[max(versions)], *logged}
        for snapshot in snapshots.values():
            with contextlib.suppress(FileNotFoundError):  # of a snapshot that has expired since
                paths |= self._metadata_files([snapshot])
        return {path.rpartition("/")[2] for path in paths}

    def _sync(self, hidden: Collection[int], added: Snapshot | None) -> int | None:
        """One attempt; None when another writer won."""
        latest = added or self._table.latest_snapshot()
        if latest is None:
            return 0
        head, document = self._head(latest, listing=added is None)
        base = None if document is None else self._common(document, latest)
        if document is None or base is None or head is None:
            current = self._restart(latest, document, head)
            published = 1
        elif base["snapshot-id"] < latest.id <= head:
            # versions of snapshots that were rolled back occupy the ids
            self._replace(self._refreshed(document, base, latest, hidden), base["snapshot-id"])
            return None
        elif base["snapshot-id"] == latest.id:
            current = self._refreshed(document, base, latest, hidden)
            published = 0
            if head != latest.id or current != document:
                if self._table.snapshots.exists(latest.id + 1):
                    return None
                self._replace(current, latest.id)
        else:
            snapshots = [*self._between(base["snapshot-id"], latest)]
            current = self._continue(document, base, latest, snapshots, hidden)
            published = len(snapshots)
        if current is None or (hidden and published):
            return None  # the next attempt removes the hidden snapshots from the version
        if self._catalog is not None:
            self._catalog.follow(self._newest)
        if document is not None and self._follow:
            self._remove_superseded(document, current)
        return published

    def _restart(
        self, latest: Snapshot, before: _Document | None, head: int | None
    ) -> _Document | None:
        """Publish a version with the newest snapshot alone; None when another writer won."""
        version = _Version(self._empty(before, latest), [])
        files = self._contents.files(latest)
        self._write_snapshot(version, latest, None, files, set(), differs=True)
        (newest,) = version.document["snapshots"]
        version.document = self._refreshed(version.document, newest, latest, ())
        if head is None or head < latest.id:
            return version.document if self._publish(version, latest) else None
        self._replace(version.document, latest.id)
        return version.document

    def _continue(
        self,
        document: _Document,
        base: _Document,
        latest: Snapshot,
        snapshots: Sequence[Snapshot],
        hidden: Collection[int],
    ) -> _Document | None:
        """Publish a version for each snapshot; None when another writer won."""
        refreshed = self._refreshed(document, base, latest, hidden)
        version = _Version(refreshed, self._manifests(base))
        before = self._table.snapshots.recall(base["snapshot-id"])
        for snapshot in snapshots:
            version = _Version(dict(version.document), version.manifests)
            version.document["snapshots"] = [*version.document["snapshots"]]
            added, removed, differs = self._contents.changes(snapshot)
            self._write_snapshot(version, snapshot, before, added, removed, differs=differs)
            if not self._publish(version, snapshot):
                return None
            before = snapshot
        return version.document

    def versions(self) -> dict[int, str]:
        """Paths of the existing versions, without foreign files."""
        return _versions(self._table.file_io, self.directory)

    def _head(self, latest: Snapshot, *, listing: bool) -> tuple[int | None, _Document | None]:
        """The newest version and its content.

        Right after a commit it is usually that of the previous snapshot; if it is another, creating
        the new version fails, and the next attempt lists them.
        """
        if not listing and latest.id > 1:
            document = self._read(latest.id - 1)
            if document is not None:
                return latest.id - 1, document
        head = max(self.versions(), default=None)
        return head, None if head is None else self._read(head)

    def _newest(self) -> tuple[str, _Document]:
        """Path and content of the newest version, for the catalog service."""
        for _ in range(_TRIES):
            head = max(self.versions())
            document = self._read(head)
            if document is not None:
                return self._path(head), document
        raise CorruptDataError("the newest Iceberg metadata is missing", path=self.directory)

    def _read(self, version: int) -> _Document | None:
        return _read(self._table, self._path(version))

    def _common(self, document: _Document, latest: Snapshot) -> _Document | None:
        """The newest Iceberg snapshot whose snapshot, and all later ones, the table has."""
        table = self._table
        if document.get("format-version") != self._version:
            return None
        snapshots = _main_snapshots(document)
        for candidate in sorted(snapshots, key=lambda item: -int(item["snapshot-id"])):
            if candidate["snapshot-id"] > latest.id:
                continue
            try:
                snapshot = table.snapshots.recall(candidate["snapshot-id"])
                if candidate["summary"].get(_MARK) == _mark(snapshot):
                    for between in range(snapshot.id + 1, latest.id):
                        table.snapshots.recall(between)
                    return dict(candidate)
            except NotFoundError:
                return None
        return None

    def _between(self, after: int, latest: Snapshot) -> Iterator[Snapshot]:
        for snapshot_id in range(after + 1, latest.id):
            yield self._table.snapshots.recall(snapshot_id)
        yield latest

    def _write_snapshot(
        self,
        version: _Version,
        snapshot: Snapshot,
        before: Snapshot | None,
        added: Sequence[VisibleFile],
        removed: set[str],
        *,
        differs: bool,
    ) -> None:
        """Write manifests, vectors and the list; add the snapshot to the document."""
        document = version.document
        first_row_id = int(document.get("next-row-id", 0))
        manifests = SnapshotManifests(
            self._reader,
            self._format,
            self._table.options,
            lambda data: self._write_manifest(version, data),
            snapshot=snapshot,
            sequence=max(snapshot.id, int(document["last-sequence-number"]) + 1),
            next_row_id=first_row_id,
        )
        data = [manifest for manifest in version.manifests if manifest["content"] == DATA]
        deletes = [manifest for manifest in version.manifests if manifest["content"] == DELETES]
        result = manifests.without_files(data, removed)
        if added:
            files = [data_file(f, self._table.schema, self._table.schemas.read) for f in added]
            result += manifests.write([manifests.add_entry(file) for file in files], DATA)
        result = manifests.with_small_merged(result, DATA)
        if self._version > 2:
            changes = self._contents.vectors(before, snapshot, added)
            result += self._delete_manifests(version, manifests, result, deletes, removed, changes)
        version.manifests = result
        self._add_snapshot(version, snapshot, manifests, differs=differs)

    def _add_snapshot(
        self, version: _Version, snapshot: Snapshot, manifests: SnapshotManifests, *, differs: bool
    ) -> None:
        """Write the manifest list, and add the snapshot to the document."""
        document, counts = version.document, manifests.counts
        first_row_id = int(document.get("next-row-id", 0))
        if not differs:
            operation = "replace"
        elif not counts["deleted-data-files"] + counts["added-dvs"] + counts["removed-dvs"]:
            operation = "append"
        else:
            operation = "overwrite" if counts["added-data-files"] else "delete"
        path = f"{self.directory}/snap-{snapshot.id}-{self._table.ids.uuid()}.avro"
        parent = document["current-snapshot-id"] if document["snapshots"] else None
        content = encode_list(
            version.manifests,
            version=self._version,
            snapshot_id=snapshot.id,
            parent_id=parent,
            sequence_number=manifests.sequence,
            first_row_id=first_row_id,
        )
        self._write(version, path, content)
        _LISTS.put(path, version.manifests)
        time_ms = max(snapshot.time_ms, int(document["last-updated-ms"]))
        changes = {name: str(number) for name, number in counts.items() if number}
        summaries = {item["snapshot-id"]: item["summary"] for item in document["snapshots"]}
        total = totals(summaries.get(parent, {}), counts)
        summary = {"operation": operation, **changes, **total, _MARK: _mark(snapshot)}
        entry: _Document = {
            "sequence-number": manifests.sequence,
            "snapshot-id": snapshot.id,
            "timestamp-ms": time_ms,
            "manifest-list": path,
            "schema-id": snapshot.schema_id,
            "summary": summary,
            **({} if parent is None else {"parent-snapshot-id": parent}),
        }
        if self._version > 2:
            entry["first-row-id"] = first_row_id
            entry["added-rows"] = manifests.next_row_id - first_row_id
            document["next-row-id"] = manifests.next_row_id
        document["snapshots"].append(entry)
        document["snapshot-log"] = [
            *document["snapshot-log"],
            {"timestamp-ms": time_ms, "snapshot-id": snapshot.id},
        ]
        document["current-snapshot-id"] = snapshot.id
        document["last-sequence-number"] = manifests.sequence
        document["last-updated-ms"] = time_ms
        document["current-schema-id"] = snapshot.schema_id
        main = {"snapshot-id": snapshot.id, "type": "branch"}
        document["refs"] = {**document["refs"], "main": main}

    def _delete_manifests(
        self,
        version: _Version,
        manifests: SnapshotManifests,
        data: Sequence[Manifest],
        deletes: Sequence[Manifest],
        removed: set[str],
        changes: tuple[Mapping[str, DeletionFile], set[str]],
    ) -> list[Manifest]:
        """Delete manifests of the snapshot: only the newest vector of every data file."""
        newest, stale = changes
        rows = {
            entry_name(entry): entry["data_file"]["record_count"]
            for entry in self._reader.find(deletes, newest)
        }
        changed = [
            path
            for path, vector in newest.items()
            if path not in rows or vector.cardinality is None or rows[path] != vector.cardinality
        ]
        files = {entry_name(e): e["data_file"] for e in self._reader.find(data, changed)}
        fresh = {path: newest[path] for path in changed if path in files}
        result = manifests.without_files(deletes, stale | removed | fresh.keys())
        if fresh:
            vectors = list(self._vectors(version, manifests, fresh, files))
            result += manifests.write(vectors, DELETES)
        return manifests.with_small_merged(result, DELETES)

    def _vectors(
        self,
        version: _Version,
        manifests: SnapshotManifests,
        fresh: Mapping[str, DeletionFile],
        files: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[Entry]:
        """Write one Puffin file; yields its entries."""
        loaded = load_encoded(self._table.file_io, fresh)
        content, blobs = encode_puffin(
            (path, data, _cardinality(fresh[path], data)) for path, data in sorted(loaded.items())
        )
        path = f"{self.directory}/dv-{self._table.ids.uuid()}.puffin"
        self._write(version, path, content)
        for blob in blobs:
            file = vector_file(files[blob.path], blob, path, len(content))
            yield manifests.add_entry(file)

    def _empty(self, before: _Document | None, latest: Snapshot) -> _Document:
        """A document without snapshots, of the same table as the one before."""
        table = self._table
        first_schema = table.schemas.read(min(table.schemas.ids()))
        spec = partition_spec(table.schema)
        name = f"{table.layout.branch_root}#{first_schema.time_ms}"
        document: _Document = {
            "format-version": self._version,
            "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "location": table.layout.root,
            "last-sequence-number": 0 if before is None else before["last-sequence-number"],
            "last-updated-ms": 0,
            "last-column-id": table.schema.highest_field_id,
            "schemas": self._schemas(latest),
            "current-schema-id": latest.schema_id,
            "partition-specs": [spec],
            "default-spec-id": spec["spec-id"],
            "last-partition-id": PARTITION_FIELD_ID_START + len(spec["fields"]) - 1,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": self._form(self._table.schema)[2],
            "current-snapshot-id": -1,
            "snapshots": [],
            "snapshot-log": [],
            "metadata-log": [],
            "refs": {},
        }
        if self._version > 2:
            document["next-row-id"] = 0 if before is None else int(before.get("next-row-id", 0))
        return document

    def _form(self, schema: TableSchema) -> tuple[_Document, ManifestFormat, dict[str, str]]:
        """Iceberg's form of a schema, of manifests and of properties: data files are shared."""
        key = (self._table.layout.root, schema.id, self._version)
        cached = _SCHEMAS.get(key)
        if cached is None or (cached[0] is not schema and cached[0] != schema):
            form = iceberg_schema(schema)
            partition, spec = avro_partition(schema), partition_spec(schema)
            manifests = ManifestFormat(self._version, partition, form, spec)
            mapping = msgspec.json.encode(name_mapping(form)).decode()
            properties = {OWNER: key[0], "gc.enabled": "false", _NAME_MAPPING: mapping}
            cached = (schema, form, manifests, properties)
            _SCHEMAS.put(key, cached)
        return cached[1:]

    def _schemas(self, latest: Snapshot) -> list[_Document]:
        schemas = []
        for schema_id in range(latest.schema_id + 1):
            try:
                schema = self._table.schemas.read(schema_id)
            except NotFoundError:
                continue
            schemas.append(self._form(schema)[0])
        return schemas

    def _refreshed(
        self, document: _Document, base: _Document, latest: Snapshot, hidden: Collection[int]
    ) -> _Document:
        """The document at the base, with the schemas, snapshots and tags that the table has."""
        tags = list_tags(self._table.file_io, self._table.layout)
        earliest = self._table.snapshots.earliest_id() or 0
        tagged = {tag.snapshot.id for tag in tags}
        snapshots = [
            snapshot
            for snapshot in _main_snapshots(document)
            if snapshot["snapshot-id"] <= base["snapshot-id"]
            and (
                snapshot["snapshot-id"] in tagged
                or (snapshot["snapshot-id"] >= earliest and snapshot["snapshot-id"] not in hidden)
                or snapshot["snapshot-id"] == base["snapshot-id"]
            )
        ]
        ids = {snapshot["snapshot-id"] for snapshot in snapshots}
        refs = {
            tag.name: {"snapshot-id": tag.snapshot.id, "type": "tag"}
            for tag in tags
            if tag.snapshot.id in ids
        }
        schemas = self._schemas(latest)
        branches = dict(self._branches(document, schemas))
        return {
            **document,
            "schemas": schemas,
            "last-column-id": self._table.schema.highest_field_id,
            "current-schema-id": base["schema-id"],
            "current-snapshot-id": base["snapshot-id"],
            "properties": self._form(self._table.schema)[2],
            "snapshots": [*snapshots, *branches.values()],
            "snapshot-log": [log for log in document["snapshot-log"] if log["snapshot-id"] in ids],
            "metadata-log": [
                # not of versions that a rollback took: Iceberg refuses times that go back
                entry
                for entry in document.get("metadata-log", ())
                if _version_number(entry["metadata-file"]) < base["snapshot-id"]
            ],
            "refs": {
                **{
                    name: {"snapshot-id": head["snapshot-id"], "type": "branch"}
                    for name, head in branches.items()
                },
                **refs,
                "main": {"snapshot-id": base["snapshot-id"], "type": "branch"},
            },
        }

    def _branches(
        self, document: _Document, schemas: Sequence[_Document]
    ) -> Iterator[tuple[str, _Document]]:
        """The newest snapshots of branches by name, as the document shows them."""
        table = self._table
        if table.layout.branch != _MAIN:
            return
        heads = {item["manifest-list"]: item for item in document["snapshots"] if _is_branch(item)}
        for name in branch_names(table):
            directory = _branch_directory(table, name)
            versions = _versions(table.file_io, directory)
            doc = _read(table, versions[max(versions)]) if versions else None
            if doc is None:
                continue
            head = next(item for item in doc["snapshots"] if item["snapshot-id"] == _current(doc))
            fields = next(
                item["fields"] for item in doc["schemas"] if item["schema-id"] == head["schema-id"]
            )
            matching_ids = [schema["schema-id"] for schema in schemas if schema["fields"] == fields]
            if not matching_ids:
                _LOG.warning(
                    "a branch is not shown to Iceberg readers: the table lacks its columns",
                    extra={"table": table.layout.root, "branch": name},
                )
                continue
            present = heads.get(head["manifest-list"])
            yield name, present or _branch_snapshot(head, name, matching_ids[-1], document)

    def _manifests(self, snapshot: Mapping[str, Any]) -> list[Manifest]:
        path = snapshot["manifest-list"]
        cached = _LISTS.get(path)
        if cached is None:
            cached = decode(self._table.file_io.read_bytes(path))
            _LISTS.put(path, cached)
        return cached

    def _write(self, version: _Version, path: str, content: bytes) -> None:
        """Write a new file of a version."""
        version.files.append(path)
        self._table.file_io.write_bytes(path, content)
        self.written.size += len(content)

    def _write_manifest(self, version: _Version, content: bytes) -> str:
        path = f"{self.directory}/{self._table.ids.uuid()}-m0.avro"
        self._write(version, path, content)
        self.written.manifests += 1
        return path

    def _publish(self, version: _Version, snapshot: Snapshot) -> bool:
        """Create a version; False when another writer won."""
        document = self._with_log(version.document)
        file_io = self._table.file_io
        content = msgspec.json.encode(document)
        if not file_io.put_if_absent(self._path(snapshot.id), content):
            self._table.delete_quietly(version.files)
            return False
        version.document = document
        _DOCUMENTS.put(self.directory, (content, document))
        self._point(snapshot.id)
        self.written.versions += 1
        self.written.size += len(content)
        return True

    def _with_log(self, document: _Document) -> _Document:
        """The document with the versions before it in its log."""
        limit = self._table.options.iceberg_previous_versions_max
        entries = document.get("metadata-log", [])
        previous = document["snapshot-log"][-2:-1]
        if previous:
            path = self._path(previous[0]["snapshot-id"])
            entries = [
                *(entry for entry in entries if entry["metadata-file"] != path),
                {"timestamp-ms": previous[0]["timestamp-ms"], "metadata-file": path},
            ]
        return {**document, "metadata-log": entries[len(entries) - limit :] if limit else []}

    def _replace(self, document: _Document, version: int) -> None:
        """Replace the snapshots or tags of an existing version.

        Later versions are removed, unless another writer has just published them.
        """
        content = msgspec.json.encode(document)
        self._table.file_io.overwrite_bytes(self._path(version), content)
        self.written.size += len(content)
        later = {number: path for number, path in self.versions().items() if number > version}
        stale = [path for number, path in later.items() if self._stale(number)]
        if len(stale) == len(later):
            self._point(version)
        self._table.delete_quietly(stale)

    def _stale(self, version: int) -> bool:
        """Whether a version is of a snapshot that the table does not have."""
        snapshot = self._table.snapshots.read_again(version)
        document = self._read(version)
        if snapshot is None or document is None:
            return snapshot is None
        return _main_snapshots(document)[-1]["summary"].get(_MARK) != _mark(snapshot)

    def _point(self, version: int) -> None:
        self._table.file_io.overwrite_bytes(f"{self.directory}/{_HINT}", str(version).encode())

    def _remove_superseded(self, before: _Document, after: _Document) -> None:
        """Remove what a later document does not need: versions, lists, manifests and vectors.

        What a snapshot needs and its nearest retained neighbours do not, no other one needs: a
        manifest or a vector that was removed from the table is never added again.
        """
        snapshots = _main_snapshots(after)
        lists = {snapshot["manifest-list"] for snapshot in snapshots}
        earlier = _main_snapshots(before)
        expired = [snapshot for snapshot in earlier if snapshot["manifest-list"] not in lists]
        paths = set[str]()
        if expired:
            ids = [snapshot["snapshot-id"] for snapshot in snapshots]
            near = set[int]()
            for snapshot in expired:
                near.update([number for number in ids if number <= snapshot["snapshot-id"]][-1:])
                near.update([number for number in ids if number >= snapshot["snapshot-id"]][:1])
            neighbours = [snapshot for snapshot in snapshots if snapshot["snapshot-id"] in near]
            paths = self._metadata_files(expired) - self._metadata_files(neighbours)
        if self._table.options.iceberg_delete_after_commit:
            logged = {entry["metadata-file"] for entry in after["metadata-log"]}
            current = self._path(after["current-snapshot-id"])
            last = before["snapshot-log"][-1:]
            older = {entry["metadata-file"] for entry in before["metadata-log"]}
            older |= {self._path(entry["snapshot-id"]) for entry in last}
            paths |= older - logged - {current}
        self._table.delete_quietly(sorted(paths))

    def _metadata_files(self, snapshots: Iterable[Mapping[str, Any]]) -> set[str]:
        """Paths of the lists, manifests and Puffin files of snapshots."""
        paths = set[str]()
        for snapshot in snapshots:
            paths.add(snapshot["manifest-list"])
            for manifest in self._manifests(snapshot):
                paths.add(manifest["manifest_path"])
                if manifest["content"] == DELETES:
                    live = self._reader.live(manifest).values()
                    paths.update(entry["data_file"]["file_path"] for entry in live)
        return paths

    def _path(self, version: int) -> str:
        return f"{self.directory}/v{version}.metadata.json"


def _cardinality(vector: DeletionFile, data: bytes) -> int:
    """Deleted rows of a vector, which some writers do not record."""
    return len(decode_vector(data)) if vector.cardinality is None else vector.cardinality


def _mark(snapshot: Snapshot) -> str:
    return f"{snapshot.time_ms}-{snapshot.uuid or snapshot.commit_user}"


def _current(document: _Document) -> int:
    return int(document["current-snapshot-id"])


def _is_branch(snapshot: Mapping[str, Any]) -> bool:
    return _BRANCH in snapshot["summary"]


def _main_snapshots(document: _Document) -> list[_Document]:
    """The snapshots of the table itself, without those of its branches."""
    return [snapshot for snapshot in document["snapshots"] if not _is_branch(snapshot)]


def _branch_snapshot(
    head: _Document, branch: str, schema_id: int, document: _Document
) -> _Document:
    """The newest snapshot of a branch as a snapshot of the table that has no parent."""
    snapshot = {
        **head,
        "snapshot-id": uuid.uuid5(uuid.NAMESPACE_URL, head["manifest-list"]).int >> 66,
        "sequence-number": document["last-sequence-number"],
        "timestamp-ms": max(head["timestamp-ms"], document["last-updated-ms"]),
        "schema-id": schema_id,
        "summary": {**head["summary"], _BRANCH: branch},
    }
    snapshot.pop("parent-snapshot-id", None)
    if "first-row-id" in snapshot:
        snapshot |= {"first-row-id": document["next-row-id"], "added-rows": 0}
    return snapshot


def _versions(file_io: FileIO, directory: str) -> dict[int, str]:
    """Paths of the versions in a directory, without foreign files."""
    return {
        int(match[1]): status.path
        for status in file_io.list(directory)
        if (match := _VERSION.fullmatch(status.name))
    }


def _version_number(path: str) -> int:
    match = _VERSION.fullmatch(path.rpartition("/")[2])
    return int(match[1]) if match else 0


def _read(table: TableCore, path: str) -> _Document | None:
    """A version of the table or of a branch of it; None: there is none at the path."""
    try:
        content = table.file_io.read_bytes(path)
    except FileNotFoundError:
        return None
    directory = path.rpartition("/")[0]
    cached = _DOCUMENTS.get(directory)
    if cached is not None and cached[0] == content:
        return cached[1]
    document = msgspec.json.decode(content)
    if not isinstance(document, dict) or document.get("location") != table.layout.root:
        return None  # the directory was renamed: the document names files of the old one
    _DOCUMENTS.put(directory, (content, document))
    return document


def _branch_directory(table: TableCore, branch: str) -> str:
    return f"{dataclasses.replace(table.layout, branch=branch).branch_root}/metadata"


def metadata_directory(table: TableCore) -> str:
    """The directory of the metadata files of a table, or of a branch of it."""
    if table.layout.branch != _MAIN:
        return _branch_directory(table, table.layout.branch)
    options = table.options
    beside = options.iceberg_storage_location
    if beside is None:
        beside = "table-location" if options.iceberg_storage == "table-location" else ""
    if beside == "table-location":
        return f"{table.layout.root}/metadata"
    database, _, name = table.layout.root.rpartition("/")
    warehouse, _, database_name = database.rpartition("/")
    return f"{warehouse}/iceberg/{database_name.removesuffix('.db')}/{name}/metadata"
