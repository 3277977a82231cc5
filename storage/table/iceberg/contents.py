# SPDX-License-Identifier: Apache-2.0
"""What an Iceberg reader sees of a snapshot: data files with bounds, and deletion vectors.

Source: SEMANTICS.md §E. Files are named by path, as Iceberg does.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from storage.errors import UnsupportedFeatureError
from storage.format.metadata.file_meta import (
    DataFileMeta,
    FileKind,
    IndexType,
    ManifestEntry,
)
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.table.commit.index_files import index_files, index_path
from storage.table.commit.live_files import BucketId, delta_entries, live_state
from storage.table.core import TableCore
from storage.table.iceberg.manifests import DATA, DELETES
from storage.table.iceberg.puffin import Blob
from storage.table.iceberg.types import avro_name, bound, partition_value
from storage.table.read.deletion_vectors import DeletionFile, located

_FORMAT = "parquet"


@dataclasses.dataclass(frozen=True, slots=True)
class VisibleFile:
    """A data file that Iceberg readers see.

    Attributes:
        path: of the file.
        entry: of the manifest.
    """

    path: str
    entry: ManifestEntry


class Contents:
    """Visible files of the snapshots of one table.

    Tables without primary key: all files. With `deletion-vectors.enabled` and for `first-row`:
    all files above level 0. Other tables with a primary key: files of the highest level, which is
    the read-optimized view.
    """

    def __init__(self, table: TableCore) -> None:
        self._table = table
        options = table.options
        level_one = options.deletion_vectors_enabled or options.merge_engine == "first-row"
        if not table.schema.primary_keys:
            self._lowest = 0
        else:
            self._lowest = 1 if level_one else options.num_levels - 1

    def files(self, snapshot: Snapshot) -> list[VisibleFile]:
        """All visible files."""
        return list(self._visible(live_state(self._table, snapshot).entries()))

    def changes(self, snapshot: Snapshot) -> tuple[list[VisibleFile], set[str], bool]:
        """Files that a snapshot makes visible, paths of those it hides, and whether rows differ.

        A compaction of visible files alone leaves the rows as they were.
        """
        entries = delta_entries(self._table, snapshot)
        added_files = {file.path: file for file in self._visible(self._of(entries, FileKind.ADD))}
        removed_files = {
            file.path: file for file in self._visible(self._of(entries, FileKind.DELETE))
        }
        hidden_before = any(
            entry.kind is FileKind.DELETE and entry.file.level < self._lowest for entry in entries
        )
        differs = hidden_before or snapshot.commit_kind.value != "COMPACT"
        common = added_files.keys() & removed_files.keys()
        return (
            [file for path, file in added_files.items() if path not in common],
            removed_files.keys() - common,
            differs,
        )

    def vectors(
        self, before: Snapshot | None, snapshot: Snapshot, added: Iterable[VisibleFile]
    ) -> tuple[dict[str, DeletionFile], set[str]]:
        """Changes of the deletion vectors from one snapshot to a later one.

        Args:
            before: None: there were none.
            added: files that became visible.

        Returns:
            Vectors that may be new, by path of the data file, which need not be visible; and paths
            of data files whose vectors were removed.
        """
        table = self._table
        old_vectors = index_files(table, before, IndexType.DELETION_VECTORS)
        new_vectors = index_files(table, snapshot, IndexType.DELETION_VECTORS)
        visible = collections.defaultdict[BucketId, set[str]](set)
        for file in added:
            bucket = (file.entry.partition, file.entry.bucket)
            visible[bucket].add(file.entry.file.file_name)
        vectors: dict[str, DeletionFile] = {}
        stale = set[str]()
        for bucket in old_vectors.keys() | new_vectors.keys():
            prior, current = old_vectors.get(bucket, ()), new_vectors.get(bucket, ())
            names = visible.get(bucket, set())
            if prior == current and not names:
                continue
            was = {
                meta.data_file_name: meta.cardinality
                for index in prior
                for meta in index.deletion_vectors or ()
            }
            directory = table.data_path(*bucket, "")
            for index in current:
                path = index_path(table, *bucket, index)
                for meta in index.deletion_vectors or ():
                    name, deleted = meta.data_file_name, meta.cardinality
                    # a vector never deletes fewer rows than before
                    if was.pop(name, None) != deleted or deleted is None or name in names:
                        vectors[directory + name] = located(path, meta)
            stale.update(directory + name for name in was)
        return vectors, stale

    @staticmethod
    def _of(entries: Iterable[ManifestEntry], kind: FileKind) -> Iterator[ManifestEntry]:
        return (entry for entry in entries if entry.kind is kind)

    def _visible(self, entries: Iterable[ManifestEntry]) -> Iterator[VisibleFile]:
        for entry in entries:
            if entry.file.level >= self._lowest and entry.bucket >= 0:
                path = entry.file.external_path or self._table.data_path(
                    entry.partition, entry.bucket, entry.file.file_name
                )
                yield VisibleFile(path, entry)


def data_file(
    file: VisibleFile, schema: TableSchema, schema_of: Callable[[int], TableSchema]
) -> dict[str, Any]:
    """The `data_file` of a manifest entry for a data file.

    Raises:
        UnsupportedFeatureError: the file is not Parquet, the one format that carries field ids.
    """
    meta = file.entry.file
    if not file.path.endswith(f".{_FORMAT}"):
        raise UnsupportedFeatureError(
            "Iceberg readers need Parquet files",
            hint="set `file.format` to parquet and compact the table in full",
            file=file.path,
        )
    return {
        **_common(file.entry, schema),
        **_statistics(meta, schema, schema_of(meta.schema_id)),
        "content": DATA,
        "file_path": file.path,
        "file_format": _FORMAT.upper(),
        "record_count": meta.row_count,
        "file_size_in_bytes": meta.file_size,
    }


def vector_file(file: Mapping[str, Any], blob: Blob, path: str, size: int) -> dict[str, Any]:
    """The `data_file` of a manifest entry for the deletion vector of a data file.

    Args:
        file: `data_file` of the data file.
        blob: the position of its vector.
        path: of the Puffin file.
        size: of it [bytes].
    """
    return {
        "content": DELETES,
        "file_path": path,
        "file_format": "PUFFIN",
        "partition": file["partition"],
        "record_count": blob.cardinality,
        "file_size_in_bytes": size,
        "referenced_data_file": blob.path,
        "content_offset": blob.offset,
        "content_size_in_bytes": blob.length,
    }


def _common(entry: ManifestEntry, schema: TableSchema) -> dict[str, Any]:
    fields = schema.partition_fields
    values = decode_row(entry.partition, [field.type for field in fields]) if fields else ()
    return {
        "partition": {
            avro_name(field.name): partition_value(value)
            for field, value in zip(fields, values, strict=True)
        }
    }


def _statistics(
    meta: DataFileMeta, schema: TableSchema, written_schema: TableSchema
) -> dict[str, Any]:
    """Null counts and bounds of the columns whose type is still the one that was written."""
    names = meta.value_stats_cols
    if names is None:
        names = written_schema.field_names if meta.write_cols is None else meta.write_cols
    stats = meta.value_stats
    if not names or len(stats.null_counts) != len(names):
        return {}
    fields = [written_schema.field(name) for name in names]
    types = [field.type for field in fields]
    lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
    current = {field.id: field.type for field in schema.fields}
    nulls, counts, lower, upper = [], [], [], []
    for field, low, high, null_count in zip(fields, lows, highs, stats.null_counts, strict=True):
        if field.id not in current:
            continue
        if null_count is not None:
            counts.append({"key": field.id, "value": meta.row_count})
            nulls.append({"key": field.id, "value": null_count})
        if current[field.id] != field.type:
            continue
        first, last = bound(low, field), bound(high, field)
        if first is not None and last is not None:
            lower.append({"key": field.id, "value": first})
            upper.append({"key": field.id, "value": last})
    return {
        "value_counts": counts,
        "null_value_counts": nulls,
        "lower_bounds": lower,
        "upper_bounds": upper,
    }
