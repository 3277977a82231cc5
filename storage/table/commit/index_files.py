# SPDX-License-Identifier: Apache-2.0
"""Table index files of a snapshot: listing them, their paths, reading and writing them.

Source: FORMAT.md §4.8, §9. An index manifest is a complete list and never changes, so its
groupings are cached per process by its name. The change of the list by a commit is in
`storage.format.metadata.index_manifest.combine`.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from storage.errors import CorruptDataError
from storage.format.files.row_selection import Bitmap
from storage.format.index import hash_index
from storage.format.index.deletion_vector import encode_file
from storage.format.metadata.file_meta import IndexFileMeta, IndexManifestEntry, IndexType
from storage.format.metadata.snapshot import Snapshot
from storage.lru import LruCache
from storage.table.commit.live_files import BucketId
from storage.table.core import TableCore

_Grouped = Mapping[BucketId, tuple[IndexFileMeta, ...]]


@dataclasses.dataclass(frozen=True, slots=True)
class IndexChange:
    """Index files for an increment of a commit message; both empty when nothing changed.

    Attributes:
        new: written; the caller removes them unless it commits them.
        deleted: live ones that they replace. The commit fails when another writer replaced them.
    """

    new: tuple[IndexFileMeta, ...] = ()
    deleted: tuple[IndexFileMeta, ...] = ()


_HELD_MANIFESTS = 16
"""Groupings cached by a process: those of the newest snapshots of the tables it works on."""


_GROUPS: LruCache[tuple[str, str], _Grouped] = LruCache(_HELD_MANIFESTS)
"""The newest groupings by index manifest path and index type."""


def clear_index_cache() -> None:
    """Drop every cached grouping of this process; for tests and memory emergencies."""
    _GROUPS.clear()


def by_file_name(table: TableCore) -> bool:
    """Whether a bucket has any number of deletion vector files: append tables without buckets.

    Elsewhere a bucket has one file, which a new one replaces.
    """
    return not table.schema.primary_keys and table.options.bucket < 0


def index_entries(table: TableCore, snapshot: Snapshot | None) -> tuple[IndexManifestEntry, ...]:
    """All index files of a snapshot, of types unknown to this version too.

    Raises:
        FileNotFoundError: the index manifest is missing, as after expiry.
        CorruptDataError: it is damaged.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return ()
    return table.manifests.read_index_manifest(snapshot.index_manifest)


def index_files(table: TableCore, snapshot: Snapshot | None, index_type: IndexType) -> _Grouped:
    """Index files of one type by (framed partition, bucket). Cached.

    Raises:
        As `index_entries`.
    """
    if snapshot is None or snapshot.index_manifest is None:
        return {}
    key = (table.layout.manifest(snapshot.index_manifest), index_type.value)
    groups = _GROUPS.get(key)
    if groups is None:
        grouped: dict[BucketId, list[IndexFileMeta]] = {}
        for entry in index_entries(table, snapshot):
            if entry.file.index_type == index_type:
                grouped.setdefault((entry.partition, entry.bucket), []).append(entry.file)
        groups = {bucket: tuple(files) for bucket, files in grouped.items()}
        _GROUPS.put(key, groups)
    return groups


def index_path(table: TableCore, partition: bytes, bucket: int, file: IndexFileMeta) -> str:
    """Full path of an index file of a bucket."""
    if file.external_path is not None:
        return file.external_path
    return _path(table, partition, bucket, file.file_name)


def _path(table: TableCore, partition: bytes, bucket: int, name: str) -> str:
    if table.options.index_file_in_data_file_dir:
        return table.data_path(partition, bucket, name)
    return table.layout.index_file(name)


def read_hash_index(
    table: TableCore, partition: bytes, bucket: int, file: IndexFileMeta
) -> npt.NDArray[np.int32]:
    """The key hashes of a dynamic bucket, in file order.

    Raises:
        FileNotFoundError: it is missing, as after expiry.
        CorruptDataError: it is cut short, or has another number of hashes than recorded.
    """
    path = index_path(table, partition, bucket, file)
    hashes = hash_index.decode(table.file_io.read_bytes(path), path)
    if len(hashes) != file.row_count:
        raise CorruptDataError(
            "a hash index file does not have the recorded length",
            path=path,
            expected=file.row_count,
            found=len(hashes),
        )
    return hashes


def write_hash_index(
    table: TableCore, partition: bytes, bucket: int, hashes: npt.NDArray[np.int32]
) -> IndexFileMeta:
    """Write all key hashes of a bucket: the existing and the new ones.

    The commit message names the file that this one replaces in `deleted_index_files`.
    """
    data = hash_index.encode(hashes)
    name = _write(table, partition, bucket, data)
    return IndexFileMeta(
        index_type=IndexType.HASH,
        file_name=name,
        file_size=len(data),
        row_count=len(hashes),
    )


def write_deletion_vectors(
    table: TableCore, partition: bytes, bucket: int, vectors: Mapping[str, Bitmap]
) -> IndexFileMeta:
    """Write deletion vectors as one index file; an empty mapping gives a file without any.

    Args:
        partition: framed partition.
        vectors: by data file name, each in the form it is to be written in.
    """
    data, metas = encode_file(vectors)
    name = _write(table, partition, bucket, data)
    return IndexFileMeta(
        index_type=IndexType.DELETION_VECTORS,
        file_name=name,
        file_size=len(data),
        row_count=len(metas),
        deletion_vectors=metas,
    )


def _write(table: TableCore, partition: bytes, bucket: int, data: bytes) -> str:
    name = f"index-{table.ids.uuid()}-0"
    table.file_io.write_bytes(_path(table, partition, bucket, name), data)
    return name
