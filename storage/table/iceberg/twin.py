# SPDX-License-Identifier: Apache-2.0
"""Bringing the Iceberg metadata of a table to the table's newest snapshot.

`v<N>.metadata.json` describes the table as of its snapshot N, and all snapshots and tags that the
table still has; Iceberg's snapshot ids and sequence numbers are the table's snapshot ids. It is
published by create-if-absent after snapshot N, so it never shows what the table does not have. Who
dies between the two leaves a twin that is behind; the next `sync` of anyone publishes all missing
versions in order, from the manifests of the last one or, where snapshots between have expired, anew
from the live files. Several at once do no harm: one creates a version, the others start over.

After a rollback versions beyond the newest snapshot are removed, and snapshots whose id was given
anew are distinguished by the time and uuid in their summary.

Source: Iceberg table specification, versions 2 and 3; names of files as Apache Paimon has them.
"""

import dataclasses
import json
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from storage.errors import CommitConflictError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.tag import list_tags
from storage.lru import LruCache
from storage.table.core import TableCore
from storage.table.iceberg.contents import Contents, VisibleFile, data_file, vector_file
from storage.table.iceberg.manifests import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    decode,
    encode_list,
    encode_manifest,
)
from storage.table.iceberg.puffin import encode_puffin
from storage.table.iceberg.types import (
    PARTITION_FIELD_ID_START,
    avro_partition,
    iceberg_schema,
    partition_spec,
)
from storage.table.read.deletion_vectors import DeletionFile, load_vectors

_LOG = logging.getLogger(__name__)

_HINT = "version-hint.text"
_VERSION = re.compile(r"v(\d+)\.metadata\.json")
_TRIES = 20
_MARK = "lakeward.snapshot"
"""Member of a snapshot's summary that distinguishes it from an earlier one of the same id."""

_SMALL_ENTRIES = 500
"""Manifests with fewer live entries are merged ..."""

_SMALL_MANIFESTS = 16
"""... when there are as many of them."""

_CACHED_ENTRIES = 200_000
_ENTRIES: LruCache[str, list[dict[str, Any]]] = LruCache(_CACHED_ENTRIES, weigh=len)
"""Entries of manifests by path, which are never changed."""

_CACHED_MANIFESTS = 20_000
_LISTS: LruCache[str, list[dict[str, Any]]] = LruCache(_CACHED_MANIFESTS, weigh=len)
"""Manifest lists by path."""

_Manifest = dict[str, Any]
_Entry = dict[str, Any]


@dataclasses.dataclass(slots=True)
class _Version:
    """A version under way.

    Attributes:
        document: content of the metadata file.
        manifests: of its current snapshot.
        written: paths of new files, removed if the version is lost.
    """

    document: dict[str, Any]
    manifests: list[_Manifest]
    written: list[str] = dataclasses.field(default_factory=list)


class IcebergTwin:
    """The Iceberg metadata of a table.

    Raises:
        UnsupportedFeatureError: the table has what Iceberg lacks.
    """

    def __init__(self, table: TableCore) -> None:
        options = table.options
        self._table = table
        self._version = options.iceberg_format_version
        self._contents = Contents(table)
        self._schema = iceberg_schema(table.schema)
        self._spec = partition_spec(table.schema)
        self.directory = _directory(table)

    def sync(self) -> int:
        """Publish what is missing up to the newest snapshot.

        Returns:
            Number of versions published.

        Raises:
            CommitConflictError: others published again and again meanwhile.
        """
        for _ in range(_TRIES):
            published = self._sync()
            if published is not None:
                return published
        raise CommitConflictError(
            "the Iceberg metadata is published by others again and again",
            hint="run `lakeward table iceberg-sync`",
            table=self._table.layout.root,
        )

    def _sync(self) -> int | None:
        """One try; None when another was faster."""
        head = max(self._versions(), default=None)
        latest = self._table.latest_snapshot()
        if latest is None:
            return 0
        document = None if head is None else self._read(head)
        base = None if document is None else self._common(document, latest)
        if document is None or base is None:
            version = self._from_live_files(latest, document)
            if document is not None and head is not None and head >= latest.id:
                self._replace(version.document, latest.id)
            elif not self._publish(version, latest):
                return None
            if document is not None:
                self._remove_unreferenced(document, version.document)
            return 1
        refreshed = self._refreshed(document, base, latest)
        if base["snapshot-id"] == latest.id:
            if head == latest.id and refreshed == document:
                return 0
            self._replace(refreshed, latest.id)
            self._remove_unreferenced(document, refreshed)
            return 0
        version = _Version(refreshed, self._manifests(base))
        snapshots = [*self._between(base["snapshot-id"], latest)]
        for snapshot in snapshots:
            version = self._advanced(version, snapshot)
            if not self._publish(version, snapshot):
                return None
        self._remove_unreferenced(document, version.document)
        return len(snapshots)

    def _versions(self) -> dict[int, str]:
        """Paths of the versions there are; files that others named are not among them."""
        return {
            int(found[1]): status.path
            for status in self._table.file_io.list(self.directory)
            if (found := _VERSION.fullmatch(status.name))
        }

    def _read(self, version: int) -> dict[str, Any] | None:
        try:
            found = json.loads(self._table.file_io.read_bytes(self._path(version)))
        except FileNotFoundError:
            return None
        return found if isinstance(found, dict) else None

    def _common(self, document: dict[str, Any], latest: Snapshot) -> dict[str, Any] | None:
        """The newest Iceberg snapshot whose snapshot, and all later ones, the table has."""
        table = self._table
        if document.get("format-version") != self._version:
            return None
        for known in sorted(document["snapshots"], key=lambda one: -int(one["snapshot-id"])):
            if known["snapshot-id"] > latest.id:
                continue
            try:
                own = table.snapshots.recall(known["snapshot-id"])
                if known["summary"].get(_MARK) == _mark(own):
                    for between in range(own.id + 1, latest.id):
                        table.snapshots.recall(between)
                    return dict(known)
            except NotFoundError:
                return None
        return None

    def _between(self, after: int, latest: Snapshot) -> Iterator[Snapshot]:
        for snapshot_id in range(after + 1, latest.id):
            yield self._table.snapshots.recall(snapshot_id)
        yield latest

    def _from_live_files(self, latest: Snapshot, before: dict[str, Any] | None) -> _Version:
        """A version with the newest snapshot alone."""
        document = self._empty(before, latest)
        version = _Version(document, [])
        added = self._contents.files(latest)
        self._write_snapshot(version, latest, added, set(), differs=True)
        return version

    def _advanced(self, before: _Version, snapshot: Snapshot) -> _Version:
        version = _Version(dict(before.document), before.manifests)
        version.document["snapshots"] = [*before.document["snapshots"]]
        added, removed, differs = self._contents.changes(snapshot)
        self._write_snapshot(version, snapshot, added, removed, differs=differs)
        return version

    def _write_snapshot(
        self,
        version: _Version,
        snapshot: Snapshot,
        added: Sequence[VisibleFile],
        removed: set[str],
        *,
        differs: bool,
    ) -> None:
        """Write manifests, vectors and the list; add the snapshot to the document."""
        document = version.document
        first_row_id = int(document.get("next-row-id", 0))
        writer = _ManifestWriter(self, version, snapshot, first_row_id)
        data = [each for each in version.manifests if each["content"] == DATA]
        deletes = [each for each in version.manifests if each["content"] == DELETES]
        kept = writer.without(data, removed)
        if added:
            files = [data_file(one, self._table.schema, self._table.schemas.read) for one in added]
            kept.append(writer.write([writer.added(one) for one in files], DATA))
        kept = writer.merged(kept, DATA)
        marked = self._marked(writer, snapshot, kept, deletes, removed)
        version.manifests = [*kept, *marked]
        counts = writer.counts
        totals = _totals(version.manifests)
        changes = {name: str(number) for name, number in counts.items() if number}
        if not differs:
            operation = "replace"
        elif counts["deleted-data-files"] or counts["added-dvs"] or counts["removed-dvs"]:
            operation = "overwrite"
        else:
            operation = "append"
        path = f"{self.directory}/snap-{snapshot.id}-{self._table.ids.uuid()}.avro"
        previous = document.get("current-snapshot-id", -1)
        parent = None if previous in (-1, None) else previous
        content = encode_list(
            version.manifests,
            version=self._version,
            snapshot_id=snapshot.id,
            parent_id=parent,
            sequence_number=snapshot.id,
            first_row_id=first_row_id,
        )
        self.write(version, path, content)
        time_ms = max(snapshot.time_ms, int(document["last-updated-ms"]))
        entry: dict[str, Any] = {
            "sequence-number": snapshot.id,
            "snapshot-id": snapshot.id,
            "timestamp-ms": time_ms,
            "manifest-list": path,
            "schema-id": snapshot.schema_id,
            "summary": {"operation": operation, **changes, **totals, _MARK: _mark(snapshot)},
        }
        if parent is not None:
            entry["parent-snapshot-id"] = parent
        if self._version >= 3:
            entry["first-row-id"] = first_row_id
            entry["added-rows"] = writer.next_row_id - first_row_id
            document["next-row-id"] = writer.next_row_id
        document["snapshots"].append(entry)
        document["snapshot-log"] = [
            *document["snapshot-log"],
            {"timestamp-ms": time_ms, "snapshot-id": snapshot.id},
        ]
        document["current-snapshot-id"] = snapshot.id
        document["last-sequence-number"] = snapshot.id
        document["last-updated-ms"] = time_ms
        document["current-schema-id"] = snapshot.schema_id
        document["refs"] = self._refs(document)

    def _marked(
        self,
        writer: "_ManifestWriter",
        snapshot: Snapshot,
        data: Sequence[_Manifest],
        deletes: Sequence[_Manifest],
        removed: set[str],
    ) -> list[_Manifest]:
        """Delete manifests of the snapshot: of every data file the newest vector alone."""
        if self._version < 3:
            return []
        known = {
            entry["data_file"]["referenced_data_file"]: entry
            for manifest in deletes
            for entry in self.entries(manifest)
            if entry["status"] != DELETED
        }
        files = {
            entry["data_file"]["file_path"]: entry["data_file"]
            for manifest in data
            for entry in self.entries(manifest)
            if entry["status"] != DELETED
        }
        wanted = {
            path: vector
            for path, vector in self._contents.vectors(snapshot).items()
            if path in files
        }
        fresh = {
            path: vector
            for path, vector in wanted.items()
            if path not in known
            or vector.cardinality is None
            or known[path]["data_file"]["record_count"] != vector.cardinality
        }
        stale = {path for path in known if path in fresh or path not in wanted or path in removed}
        kept = writer.without(deletes, stale)
        if fresh:
            kept.append(writer.write(list(self._vectors(writer, snapshot, fresh, files)), DELETES))
        return writer.merged(kept, DELETES)

    def _vectors(
        self,
        writer: "_ManifestWriter",
        snapshot: Snapshot,
        fresh: Mapping[str, DeletionFile],
        files: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[_Entry]:
        """Write one Puffin file; its entries."""
        loaded = load_vectors(self._table.file_io, fresh)
        content, blobs = encode_puffin(sorted(loaded.items()))
        path = f"{self.directory}/dv-{snapshot.id}-{self._table.ids.uuid()}.puffin"
        self.write(writer.version, path, content)
        for blob in blobs:
            found = vector_file(files[blob.path], blob, path, len(content))
            yield writer.added(found)

    def _empty(self, before: dict[str, Any] | None, latest: Snapshot) -> dict[str, Any]:
        """A document without snapshots, of the same table as the one before."""
        table = self._table
        first = table.schemas.read(min(table.schemas.ids()))
        name = f"{table.layout.root}#{first.time_ms}"
        document: dict[str, Any] = {
            "format-version": self._version,
            "table-uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "location": table.layout.root,
            "last-sequence-number": latest.id,
            "last-updated-ms": 0,
            "last-column-id": table.schema.highest_field_id,
            "schemas": self._schemas(latest),
            "current-schema-id": latest.schema_id,
            "partition-specs": [self._spec],
            "default-spec-id": self._spec["spec-id"],
            "last-partition-id": PARTITION_FIELD_ID_START + len(self._spec["fields"]) - 1,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {"lakeward.table": "true"},
            "current-snapshot-id": -1,
            "snapshots": [],
            "snapshot-log": [],
            "metadata-log": [],
            "refs": {},
        }
        if self._version >= 3:
            document["next-row-id"] = 0 if before is None else int(before.get("next-row-id", 0))
        return document

    def _schemas(self, latest: Snapshot) -> list[dict[str, Any]]:
        ids = [one for one in self._table.schemas.ids() if one <= latest.schema_id]
        return [iceberg_schema(self._table.schemas.read(one)) for one in ids]

    def _refreshed(
        self, document: dict[str, Any], base: dict[str, Any], latest: Snapshot
    ) -> dict[str, Any]:
        """The document at the base, with the schemas, snapshots and tags that the table has."""
        kept = self._kept_ids()
        snapshots = [
            one
            for one in document["snapshots"]
            if one["snapshot-id"] <= base["snapshot-id"]
            and (one["snapshot-id"] in kept or one["snapshot-id"] == base["snapshot-id"])
        ]
        ids = {one["snapshot-id"] for one in snapshots}
        found = {
            **document,
            "schemas": self._schemas(latest),
            "last-column-id": self._table.schema.highest_field_id,
            "current-schema-id": base["schema-id"],
            "current-snapshot-id": base["snapshot-id"],
            "last-sequence-number": base["snapshot-id"],
            "snapshots": snapshots,
            "snapshot-log": [one for one in document["snapshot-log"] if one["snapshot-id"] in ids],
        }
        return {**found, "refs": self._refs(found)}

    def _kept_ids(self) -> set[int]:
        """Ids of the snapshots that the table has, tagged ones included."""
        latest = self._table.latest_snapshot()
        ids = {snapshot.snapshot.id for snapshot in self._tags()}
        if latest is not None:
            names = (
                status.name for status in self._table.file_io.list(self._table.snapshots.directory)
            )
            ids |= {
                int(name.partition("-")[2]) for name in names if name[len("snapshot-") :].isdigit()
            }
        return ids

    def _tags(self) -> list[Any]:
        return list_tags(self._table.file_io, self._table.layout)

    def _refs(self, document: dict[str, Any]) -> dict[str, Any]:
        current = document["current-snapshot-id"]
        ids = {one["snapshot-id"] for one in document["snapshots"]}
        tags = {
            tag.name: {"snapshot-id": tag.snapshot.id, "type": "tag"}
            for tag in self._tags()
            if tag.snapshot.id in ids
        }
        return {**tags, "main": {"snapshot-id": current, "type": "branch"}}

    def entries(self, manifest: _Manifest) -> list[_Entry]:
        """Entries of a manifest, what is inherited filled in."""
        path = manifest["manifest_path"]
        known = _ENTRIES.get(path)
        if known is None:
            known = decode(self._table.file_io.read_bytes(path))
            _ENTRIES.put(path, known)
        return known

    def _manifests(self, snapshot: Mapping[str, Any]) -> list[_Manifest]:
        path = snapshot["manifest-list"]
        known = _LISTS.get(path)
        if known is None:
            known = decode(self._table.file_io.read_bytes(path))
            _LISTS.put(path, known)
        return known

    def encode(self, entries: Iterable[_Entry], content: int) -> bytes:
        """A manifest of this table."""
        return encode_manifest(
            entries,
            content=content,
            version=self._version,
            partition=avro_partition(self._table.schema),
            schema=self._schema,
            spec=self._spec,
        )

    def write(self, version: _Version, path: str, content: bytes) -> None:
        """Write a new file of a version."""
        version.written.append(path)
        self._table.file_io.write_bytes(path, content)

    def manifest_path(self) -> str:
        """Path of a new manifest."""
        return f"{self.directory}/{self._table.ids.uuid()}-m0.avro"

    def _publish(self, version: _Version, snapshot: Snapshot) -> bool:
        """Create a version; False when another was faster."""
        document = self._logged(version.document, snapshot.id)
        file_io = self._table.file_io
        if not file_io.put_if_absent(self._path(snapshot.id), _json(document)):
            self._table.delete_quietly(version.written)
            return False
        version.document = document
        file_io.overwrite_bytes(f"{self.directory}/{_HINT}", str(snapshot.id).encode())
        self._remove_old(document, snapshot.id)
        return True

    def _logged(self, document: dict[str, Any], version: int) -> dict[str, Any]:
        """The document with the versions before it in its log."""
        kept = self._table.options.iceberg_previous_versions_max
        before = document.get("metadata-log", [])
        last = document["snapshot-log"][-2:-1]
        if last:
            previous = last[0]["snapshot-id"]
            before = [
                *(one for one in before if one["metadata-file"] != self._path(previous)),
                {"timestamp-ms": last[0]["timestamp-ms"], "metadata-file": self._path(previous)},
            ]
        return {**document, "metadata-log": before[len(before) - kept :] if kept else []}

    def _replace(self, document: dict[str, Any], version: int) -> None:
        """Publish other snapshots or tags of a version that is there, and go back to it."""
        file_io = self._table.file_io
        file_io.overwrite_bytes(self._path(version), _json(document))
        file_io.overwrite_bytes(f"{self.directory}/{_HINT}", str(version).encode())
        later = [path for number, path in self._versions().items() if number > version]
        self._table.delete_quietly(later)

    def _remove_old(self, document: dict[str, Any], version: int) -> None:
        if self._table.options.iceberg_delete_after_commit:
            kept = {one["metadata-file"] for one in document["metadata-log"]}
            found = self._versions().items()
            old = [path for number, path in found if number < version and path not in kept]
            self._table.delete_quietly(old)

    def _remove_unreferenced(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Remove lists, manifests and vectors of snapshots that are no longer in the document.

        What a snapshot needs and its nearest kept neighbours do not, no other one needs: a manifest
        or a vector that left the table never comes back.
        """
        kept = {one["manifest-list"] for one in after["snapshots"]}
        lost = [one for one in before["snapshots"] if one["manifest-list"] not in kept]
        if not lost:
            return
        ids = [one["snapshot-id"] for one in after["snapshots"]]
        near = set[int]()
        for one in lost:
            near.update([other for other in ids if other <= one["snapshot-id"]][-1:])
            near.update([other for other in ids if other >= one["snapshot-id"]][:1])
        neighbours = [one for one in after["snapshots"] if one["snapshot-id"] in near]
        files = self._metadata_files(lost) - self._metadata_files(neighbours)
        self._table.delete_quietly(sorted(files))

    def _metadata_files(self, snapshots: Iterable[Mapping[str, Any]]) -> set[str]:
        """Paths of the lists, manifests and Puffin files of snapshots."""
        found = set[str]()
        for snapshot in snapshots:
            found.add(snapshot["manifest-list"])
            for manifest in self._manifests(snapshot):
                found.add(manifest["manifest_path"])
                if manifest["content"] == DELETES:
                    found.update(
                        entry["data_file"]["file_path"]
                        for entry in self.entries(manifest)
                        if entry["status"] != DELETED
                    )
        return found

    def _path(self, version: int) -> str:
        return f"{self.directory}/v{version}.metadata.json"


class _ManifestWriter:
    """Writes the manifests of one Iceberg snapshot.

    Attributes:
        version: where written files are noted.
        next_row_id: first row id that is free.
        counts: files and rows added and removed, by their names in a summary.
    """

    def __init__(
        self, twin: IcebergTwin, version: _Version, snapshot: Snapshot, next_row_id: int
    ) -> None:
        self.version = version
        self.next_row_id = next_row_id
        self.counts = dict.fromkeys(
            (
                "added-data-files",
                "deleted-data-files",
                "added-records",
                "deleted-records",
                "added-dvs",
                "removed-dvs",
            ),
            0,
        )
        self._twin = twin
        self._snapshot = snapshot

    def added(self, file: dict[str, Any]) -> _Entry:
        """An entry for a new file."""
        if file["content"] == DATA:
            self.counts["added-data-files"] += 1
            self.counts["added-records"] += file["record_count"]
            file = {**file, "first_row_id": self.next_row_id}
            self.next_row_id += file["record_count"]
        else:
            self.counts["added-dvs"] += 1
        return {
            "status": ADDED,
            "snapshot_id": self._snapshot.id,
            "sequence_number": self._snapshot.id,
            "file_sequence_number": self._snapshot.id,
            "data_file": file,
        }

    def _removed(self, entry: _Entry) -> _Entry:
        file = entry["data_file"]
        if file["content"] == DATA:
            self.counts["deleted-data-files"] += 1
            self.counts["deleted-records"] += file["record_count"]
        else:
            self.counts["removed-dvs"] += 1
        return {**entry, "status": DELETED, "snapshot_id": self._snapshot.id}

    def without(self, manifests: Iterable[_Manifest], removed: set[str]) -> list[_Manifest]:
        """The manifests without some files: those that hold one are written anew."""
        kept = []
        for manifest in manifests:
            if not manifest["added_files_count"] + manifest["existing_files_count"]:
                continue  # all its files were removed by an earlier snapshot
            entries = self._twin.entries(manifest)
            if not removed or not any(_name(one) in removed for one in entries):
                kept.append(manifest)
                continue
            live = [one for one in entries if one["status"] != DELETED]
            kept.append(
                self.write(
                    [
                        self._removed(one) if _name(one) in removed else {**one, "status": EXISTING}
                        for one in live
                    ],
                    manifest["content"],
                )
            )
        return kept

    def merged(self, manifests: list[_Manifest], content: int) -> list[_Manifest]:
        """Small manifests of earlier snapshots as one, once there are many of them."""
        small = [
            one
            for one in manifests
            if one["added_snapshot_id"] != self._snapshot.id
            and one["existing_files_count"] + one["added_files_count"] < _SMALL_ENTRIES
        ]
        if len(small) < _SMALL_MANIFESTS:
            return manifests
        entries = [
            {**entry, "status": EXISTING}
            for manifest in small
            for entry in self._twin.entries(manifest)
            if entry["status"] != DELETED
        ]
        paths = {one["manifest_path"] for one in small}
        rest = [one for one in manifests if one["manifest_path"] not in paths]
        return [self.write(entries, content), *rest]

    def write(self, entries: Sequence[_Entry], content: int) -> _Manifest:
        """Write a manifest; how the list describes it."""
        data = self._twin.encode(entries, content)
        path = self._twin.manifest_path()
        self._twin.write(self.version, path, data)
        counts = {
            name: [one for one in entries if one["status"] == status]
            for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED))
        }
        live = [one["sequence_number"] for one in entries if one["status"] != DELETED]
        found: _Manifest = {
            "manifest_path": path,
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": self._snapshot.id,
            "min_sequence_number": min(live, default=self._snapshot.id),
            "added_snapshot_id": self._snapshot.id,
        }
        for name, some in counts.items():
            found[f"{name}_files_count"] = len(some)
            found[f"{name}_rows_count"] = sum(one["data_file"]["record_count"] for one in some)
        if content == DATA:
            # what a reader would give to files without row ids; all of ours have their own
            found["first_row_id"] = min(
                (one["data_file"].get("first_row_id") or 0 for one in entries), default=0
            )
        return found


def _name(entry: _Entry) -> str:
    file = entry["data_file"]
    return str(file.get("referenced_data_file") or file["file_path"])


def _totals(manifests: Iterable[_Manifest]) -> dict[str, str]:
    totals = dict.fromkeys(("total-records", "total-data-files", "total-position-deletes"), 0)
    totals["total-delete-files"] = 0
    for one in manifests:
        files = one["added_files_count"] + one["existing_files_count"]
        rows = one["added_rows_count"] + one["existing_rows_count"]
        names = ("total-data-files", "total-records")
        if one["content"] == DELETES:
            names = ("total-delete-files", "total-position-deletes")
        totals[names[0]] += files
        totals[names[1]] += rows
    return {name: str(number) for name, number in totals.items()}


def _mark(snapshot: Snapshot) -> str:
    return f"{snapshot.time_ms}-{snapshot.uuid or snapshot.commit_user}"


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode()


def _directory(table: TableCore) -> str:
    if table.options.iceberg_storage == "table-location":
        return f"{table.layout.root}/metadata"
    database, _, name = table.layout.root.rpartition("/")
    warehouse, _, database_name = database.rpartition("/")
    return f"{warehouse}/iceberg/{database_name.removesuffix('.db')}/{name}/metadata"
