# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors of buckets: finding them for a read, and changing them for a commit.

Source: SEMANTICS.md §E, FORMAT.md §9.2. Where a table has fixed or dynamic buckets, one index file
holds all vectors of a bucket and a change rewrites the whole file. Append tables without
buckets have any number of index files, and a change rewrites those it touches.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from storage.errors import CorruptDataError
from storage.format.files.row_selection import Bitmap, Except
from storage.format.index.deletion_vector import (
    bin_bytes,
    decode,
    encoded_64,
    in_form,
    roll,
    widened,
)
from storage.format.metadata.file_meta import (
    DataFileMeta,
    DeletionVectorMeta,
    IndexFileMeta,
    IndexType,
)
from storage.format.metadata.snapshot import Snapshot
from storage.io.file_io import FileIO
from storage.table.commit.live_files import (
    BucketId,
    IndexChange,
    by_file_name,
    index_files,
    index_path,
    write_deletion_vectors,
)
from storage.table.core import TableCore

_SPAN_BYTES = 4 * 1024 * 1024
"""Vectors of one index file within this distance are read at once: two files of the default
target size. Requests to an object store cost more than the bytes between."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeletionFile:
    """The position of the deletion vector of a data file. Picklable.

    Attributes:
        offset: of the vector in it [bytes].
        length: as the index manifest records it [bytes].
        cardinality: deleted rows; None when unknown.
    """

    path: str
    offset: int
    length: int
    cardinality: int | None = None


def deletion_files(
    table: TableCore, snapshot: Snapshot | None
) -> Callable[[BucketId], Mapping[str, DeletionFile]]:
    """Returns the deletion vectors of a bucket in a snapshot, by data file name.

    Raises:
        FileNotFoundError: the index manifest is missing, as after expiry.
        CorruptDataError: it is damaged, or names two vectors of one data file.
    """
    grouped = index_files(table, snapshot, IndexType.DELETION_VECTORS)
    return lambda bucket: bucket_vectors(table, bucket, grouped.get(bucket, ()))


def bucket_vectors(
    table: TableCore, bucket: BucketId, files: Iterable[IndexFileMeta]
) -> Mapping[str, DeletionFile]:
    """The deletion vectors in index files of a bucket, by data file name.

    Raises:
        CorruptDataError: there are two of one data file.
    """
    vectors: dict[str, DeletionFile] = {}
    for file in files:
        path = index_path(table, *bucket, file)
        for vector in file.deletion_vectors or ():
            if vector.data_file_name in vectors:
                raise CorruptDataError(
                    "a data file has two deletion vectors",
                    path=path,
                    offset=vector.offset,
                    file=vector.data_file_name,
                )
            vectors[vector.data_file_name] = located(path, vector)
    return vectors


def located(path: str, vector: DeletionVectorMeta) -> DeletionFile:
    """A vector in the index file at a path."""
    return DeletionFile(path, vector.offset, vector.length, vector.cardinality)


def load_vectors(file_io: FileIO, files: Mapping[str, DeletionFile]) -> dict[str, Bitmap]:
    """Read vectors, each index file once.

    Args:
        files: by data file name.

    Raises:
        FileNotFoundError: an index file is missing, as after expiry.
        CorruptDataError: a vector is damaged, or holds another number of rows than recorded.
    """
    return {
        name: _checked(decode(data, file.path, file.offset, length=file.length), file)
        for name, file, data in _stored(file_io, files)
    }


def load_encoded(file_io: FileIO, files: Mapping[str, DeletionFile]) -> dict[str, bytes]:
    """The same vectors in the 64-bit form; bitmaps are not decoded."""
    return {
        name: encoded_64(data, file.path, file.offset, length=file.length)
        for name, file, data in _stored(file_io, files)
    }


def _stored(
    file_io: FileIO, files: Mapping[str, DeletionFile]
) -> Iterator[tuple[str, DeletionFile, bytes]]:
    """Vectors as they are stored, perhaps with some bytes more; each index file is read once."""
    ordered = sorted(files.items(), key=lambda item: (item[1].path, item[1].offset))
    for path, group in itertools.groupby(ordered, key=lambda item: item[1].path):
        items = list(group)
        start = items[0][1].offset
        end = max(file.offset + bin_bytes(file.length) for _, file in items)
        with file_io.open_input(path) as source:
            whole = _read(source, start, end - start) if end - start <= _SPAN_BYTES else None
            for name, file in items:
                size = bin_bytes(file.length)
                at = file.offset - start
                data = _read(source, file.offset, size) if whole is None else whole[at : at + size]
                yield name, file, data


def _read(source: pa.NativeFile, offset: int, size: int) -> bytes:
    """The bytes of a range, as far as the file has them; that of a last vector may exceed it."""
    size = min(size, source.size() - offset)
    return bytes(source.read_at(size, offset)) if size > 0 else b""


def _checked(bitmap: Bitmap, file: DeletionFile) -> Bitmap:
    if file.cardinality is not None and len(bitmap) != file.cardinality:
        raise CorruptDataError(
            "a deletion vector holds another number of rows than recorded",
            path=file.path,
            offset=file.offset,
            expected=file.cardinality,
            found=len(bitmap),
        )
    return bitmap


def selections(file_io: FileIO, files: Iterable[tuple[str, DeletionFile]]) -> dict[str, Except]:
    """The rows that vectors leave, by data file name. Raises as `load_vectors`."""
    vectors = load_vectors(file_io, dict(files))
    return {name: Except(bitmap) for name, bitmap in vectors.items() if bitmap}


class BucketVectors:
    """The deletion vectors of one bucket, being changed. Not thread-safe.

    Protocol: `mark` rows and `drop` data files in any order, then `changes`, and so on. The caller
    commits the changes before the next ones, or removes the new files and starts over
    from the newest snapshot. Vectors are read when they are needed.

    Args:
        partition: framed partition.
        files: the live index files of the bucket, as `index_files` gives them.
    """

    def __init__(
        self, table: TableCore, partition: bytes, bucket: int, files: Sequence[IndexFileMeta]
    ) -> None:
        self._table = table
        self._bucket: BucketId = (partition, bucket)
        self._files = {file.file_name: file for file in files}
        self._held_by = _holders(files)
        self._vectors: dict[str, Bitmap] = {}
        self._loaded: set[str] = set()
        self._changed_files: set[str] = set()

    @staticmethod
    def of(
        table: TableCore, snapshot: Snapshot | None, partition: bytes, bucket: int
    ) -> "BucketVectors":
        """The vectors of a bucket in a snapshot; none on a table without deletion vectors."""
        files: Sequence[IndexFileMeta] = ()
        if table.options.deletion_vectors_enabled:
            grouped = index_files(table, snapshot, IndexType.DELETION_VECTORS)
            files = grouped.get((partition, bucket), ())
        return BucketVectors(table, partition, bucket, files)

    def __contains__(self, data_file: object) -> bool:
        """Whether a data file has a vector in the state that was read; reads nothing."""
        return data_file in self._held_by

    def vector_of(self, data_file: str) -> Bitmap | None:
        """The deleted rows of a data file; not to be changed."""
        if data_file in self._held_by and data_file not in self._changed_files:
            self._load(self._held_by[data_file])
        return self._vectors.get(data_file)

    def selections(self, files: Iterable[DataFileMeta]) -> dict[str, Except]:
        """The live rows of data files with deleted rows, by name."""
        vectors = ((file.file_name, self.vector_of(file.file_name)) for file in files)
        return {name: Except(vector) for name, vector in vectors if vector}

    def mark(self, data_file: str, positions: npt.NDArray[np.integer] | Iterable[int]) -> int:
        """Mark rows of a data file as deleted.

        Args:
            positions: 0-based, in any order; also some that are marked already.

        Returns:
            How many were not marked before.
        """
        previous = self.vector_of(data_file)
        if isinstance(positions, np.ndarray):
            rows = pyroaring.BitMap64(positions.astype(np.uint64))
        else:
            rows = pyroaring.BitMap64(positions)
        if previous is not None:
            rows |= widened(previous)
        marked = len(rows) - (0 if previous is None else len(previous))
        if marked:
            self._changed_files.add(data_file)
            bitmap64 = self._table.options.deletion_vectors_bitmap64
            self._vectors[data_file] = in_form(rows, bitmap64)
        return marked

    def drop(self, data_file: str) -> None:
        """Drop the vector of a data file that is removed from the table."""
        if self.vector_of(data_file) is not None:
            self._changed_files.add(data_file)
            del self._vectors[data_file]

    def without(self, data_files: Iterable[str]) -> IndexChange:
        """Index files without the vectors of data files that a compaction removes.

        For the increment of the message that removes the data files: the commit fails when rows of
        them were deleted since the snapshot.
        """
        for name in data_files:
            self.drop(name)
        return IndexChange(*self.changes())

    def changes(self) -> tuple[tuple[IndexFileMeta, ...], tuple[IndexFileMeta, ...]]:
        """Write what changed since the last call: the new index files, and those they replace.

        The changes count as committed: the next call returns only later ones. A bucket that had an
        index file and has no vectors any more gets a file without vectors where one file stands
        for the bucket (Java's readers and writers expect one).
        """
        changed = {
            name for name in self._changed_files if name in self._vectors or name in self._held_by
        }
        if not changed:
            self._changed_files = set()
            return (), ()
        if by_file_name(self._table):
            replaced = {self._held_by[name] for name in changed if name in self._held_by}
        else:
            replaced = set(self._files)
        for name in replaced:
            self._load(name)
        vectors = {
            name: bitmap
            for name, bitmap in self._vectors.items()
            if name in changed or self._held_by[name] in replaced
        }
        new = self._write(vectors)
        deleted = tuple(self._files.pop(name) for name in sorted(replaced))
        self._files |= {file.file_name: file for file in new}
        self._held_by = _holders(self._files.values())
        self._loaded = (self._loaded - replaced) | {file.file_name for file in new}
        self._changed_files = set()
        return new, deleted

    def _write(self, vectors: Mapping[str, Bitmap]) -> tuple[IndexFileMeta, ...]:
        groups: list[Mapping[str, Bitmap]] = [vectors]
        if by_file_name(self._table):
            target = self._table.options.deletion_vector_index_file_target_size
            groups = list(roll(vectors, target))
        new: list[IndexFileMeta] = []
        try:
            new.extend(write_deletion_vectors(self._table, *self._bucket, part) for part in groups)
        except BaseException:
            paths = [index_path(self._table, *self._bucket, file) for file in new]
            self._table.delete_quietly(paths)
            raise
        return tuple(new)

    def _load(self, name: str) -> None:
        """Read the vectors of an index file that were not changed since."""
        if name in self._loaded:
            return
        self._loaded.add(name)
        file = self._files[name]
        path = index_path(self._table, *self._bucket, file)
        files = {
            vector.data_file_name: located(path, vector)
            for vector in file.deletion_vectors or ()
            if vector.data_file_name not in self._changed_files
        }
        self._vectors |= load_vectors(self._table.file_io, files)


def _holders(files: Iterable[IndexFileMeta]) -> dict[str, str]:
    """Name of the index file of each data file that has a vector."""
    return {
        vector.data_file_name: file.file_name
        for file in files
        for vector in file.deletion_vectors or ()
    }
