# SPDX-License-Identifier: Apache-2.0
"""The manifests of one Iceberg snapshot, derived from those of the previous snapshot.

The cost of a commit is proportional to its changes: manifest entries, also by name, are cached per
process, manifests hold a bounded number of files, those that lose none are reused, and small ones
are merged once there are enough of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO
from storage.lru import LruCache
from storage.options.options import TableOptions
from storage.table.iceberg.manifests import (
    ADDED,
    DATA,
    DELETED,
    EXISTING,
    ManifestFormat,
    decode,
)

Manifest = dict[str, Any]
"""How a manifest list describes a manifest."""

Entry = dict[str, Any]
"""An entry of a manifest."""

_FULL_ENTRIES = 1_000
"""Files of one manifest; with fewer it is small."""

_CACHED_ENTRIES = 200_000


_TOTALS = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
)
_COUNTS = (*(name for _, *names in _TOTALS for name in names), "added-dvs", "removed-dvs")
"""Names of totals and changes in a summary."""


class _CachedManifest:
    """Entries of a manifest, which never change; live ones by name, too."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.live = {entry_name(entry): entry for entry in entries if entry["status"] != DELETED}

    def __len__(self) -> int:
        return len(self.entries)


_CACHE: LruCache[str, _CachedManifest] = LruCache(_CACHED_ENTRIES, weigh=len)
"""Entries of manifests by path."""


def clear_manifests() -> None:
    """Drop every cached manifest of this process."""
    _CACHE.clear()


def entry_name(entry: Entry) -> str:
    """The data file that an entry is about: itself, or the one whose rows it deletes."""
    file = entry["data_file"]
    return str(file.get("referenced_data_file") or file["file_path"])


def _existing(entry: Entry) -> Entry:
    """The entry in a later manifest."""
    return entry if entry["status"] == EXISTING else {**entry, "status": EXISTING}


class ManifestReader:
    """Manifests of one table."""

    def __init__(self, file_io: FileIO) -> None:
        self._file_io = file_io

    def _cached(self, manifest: Manifest) -> _CachedManifest:
        path = manifest["manifest_path"]
        cached = _CACHE.get(path)
        if cached is None:
            cached = _CachedManifest(decode(self._file_io.read_bytes(path)))
            _CACHE.put(path, cached)
        return cached

    def entries(self, manifest: Manifest) -> list[Entry]:
        """All entries of a manifest."""
        return self._cached(manifest).entries

    def live(self, manifest: Manifest) -> dict[str, Entry]:
        """The entries that are not removed, by `entry_name`; not to be changed."""
        return self._cached(manifest).live

    def find(self, manifests: Sequence[Manifest], names: Iterable[str]) -> Iterator[Entry]:
        """Live entries of some names."""
        names = list(names)
        lookups = [self._cached(manifest).live for manifest in manifests] if names else []
        for name in names:
            for live in lookups:
                if name in live:
                    yield live[name]
                    break


class SnapshotManifests:
    """Writes the manifests of one Iceberg snapshot.

    Attributes:
        sequence: its sequence number.
        next_row_id: first row id that is free.
        counts: files and rows added and removed, by their names in a summary.
        write_file: writes a new manifest; returns its path.
    """

    def __init__(
        self,
        reader: ManifestReader,
        manifest_format: ManifestFormat,
        options: TableOptions,
        write_file: Callable[[bytes], str],
        *,
        snapshot: Snapshot,
        sequence: int,
        next_row_id: int,
    ) -> None:
        self.next_row_id = next_row_id
        self.sequence = sequence
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.write_file = write_file
        self._reader = reader
        self._format = manifest_format
        self._options = options
        self._snapshot = snapshot

    def add_entry(self, file: dict[str, Any]) -> Entry:
        """An entry for a new file."""
        if file["content"] == DATA:
            self.counts["added-data-files"] += 1
            self.counts["added-records"] += file["record_count"]
            file = {**file, "first_row_id": self.next_row_id}
            self.next_row_id += file["record_count"]
        else:
            self._count("added", file)
        return {
            "status": ADDED,
            "snapshot_id": self._snapshot.id,
            "sequence_number": self.sequence,
            "file_sequence_number": self.sequence,
            "data_file": file,
        }

    def _removed_entry(self, entry: Entry) -> Entry:
        file = entry["data_file"]
        if file["content"] == DATA:
            self.counts["deleted-data-files"] += 1
            self.counts["deleted-records"] += file["record_count"]
        else:
            self._count("removed", file)
        return {**entry, "status": DELETED, "snapshot_id": self._snapshot.id}

    def _count(self, change: str, vector: Mapping[str, Any]) -> None:
        self.counts[f"{change}-dvs"] += 1
        self.counts[f"{change}-delete-files"] += 1
        self.counts[f"{change}-position-deletes"] += vector["record_count"]

    def without_files(self, manifests: Iterable[Manifest], removed: set[str]) -> list[Manifest]:
        """The manifests without some files: those that hold one are rewritten."""
        result = []
        for manifest in manifests:
            if not live_files(manifest):
                continue  # all its files were removed by an earlier snapshot
            if not removed:
                result.append(manifest)
                continue
            live = self._reader.live(manifest)
            if live.keys().isdisjoint(removed):
                result.append(manifest)
                continue
            entries = [
                self._removed_entry(entry) if name in removed else _existing(entry)
                for name, entry in live.items()
            ]
            result += self.write(entries, manifest["content"])
        return result

    def with_small_merged(self, manifests: list[Manifest], content: int) -> list[Manifest]:
        """The manifests, with small ones of earlier snapshots merged once they are many."""
        small = [
            item
            for item in manifests
            if item["added_snapshot_id"] != self._snapshot.id and live_files(item) < _FULL_ENTRIES
        ]
        options = self._options
        fills = sum(map(live_files, small)) >= _FULL_ENTRIES
        least = (
            options.iceberg_compaction_min_files if fills else options.iceberg_compaction_max_files
        )
        if len(small) < least:
            return manifests
        entries = [
            _existing(entry) for manifest in small for entry in self._reader.live(manifest).values()
        ]
        paths = {manifest["manifest_path"] for manifest in small}
        large = [manifest for manifest in manifests if manifest["manifest_path"] not in paths]
        return [*self.write(entries, content), *large]

    def write(self, entries: Sequence[Entry], content: int) -> list[Manifest]:
        """Write manifests; returns their records in the manifest list."""
        return [
            self._written(entries[at : at + _FULL_ENTRIES], content)
            for at in range(0, len(entries), _FULL_ENTRIES)
        ]

    def _written(self, entries: Sequence[Entry], content: int) -> Manifest:
        data = self._format.encode(entries, content)
        path = self.write_file(data)
        _CACHE.put(path, _CachedManifest(list(entries)))
        files, rows = [0, 0, 0], [0, 0, 0]
        oldest = self.sequence
        for entry in entries:
            status = entry["status"]
            files[status] += 1
            rows[status] += entry["data_file"]["record_count"]
            if status != DELETED and entry["sequence_number"] < oldest:
                oldest = entry["sequence_number"]
        manifest: Manifest = {
            "manifest_path": path,
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": self.sequence,
            "min_sequence_number": oldest,
            "added_snapshot_id": self._snapshot.id,
        }
        for name, status in (("added", ADDED), ("existing", EXISTING), ("deleted", DELETED)):
            manifest[f"{name}_files_count"] = files[status]
            manifest[f"{name}_rows_count"] = rows[status]
        if content == DATA:
            # base of the row ids that readers assign to files without; ours all have their own
            manifest["first_row_id"] = min(
                (entry["data_file"].get("first_row_id") or 0 for entry in entries), default=0
            )
        return manifest


def live_files(manifest: Manifest) -> int:
    """Files of a manifest that are not removed."""
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def totals(before: Mapping[str, str], counts: Mapping[str, int]) -> dict[str, str]:
    """Totals of a summary: those of its parent's, if any, with the changes since."""
    return {
        total: str(int(before[total] if before else 0) + counts[added] - counts[removed])
        for total, added, removed in _TOTALS
    }
