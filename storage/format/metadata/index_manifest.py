# SPDX-License-Identifier: Apache-2.0
"""Index manifests: the Avro codec, and how a commit's index files combine with the previous ones.

An index manifest lists every table index file of a snapshot. Files of index types that this
version does not know are kept, with every column. Works on bytes; where they are stored is
up to `manifest_store`. Source: FORMAT.md §4.8.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from storage.errors import CorruptDataError, FileConflictError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.avro.schema import required_field
from storage.format.metadata.file_meta import (
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
)
from storage.format.metadata.records import from_record, record_fields, record_schema, to_record

_VERSION = 1
INDEX_SCHEMA = record_schema(
    [
        required_field("_KIND", "int"),
        required_field("_PARTITION", "bytes"),
        required_field("_BUCKET", "int"),
        *record_fields(IndexFileMeta),
    ]
)
"""Avro schema text of an index manifest."""


def encode_index_entries(
    entries: Iterable[IndexManifestEntry], *, codec: str = "zstandard", zstd_level: int = 1
) -> bytes:
    """One index manifest with these entries, in this order; codec as for `ContainerWriter`."""
    writer = ContainerWriter(INDEX_SCHEMA, codec=codec, zstd_level=zstd_level)
    for entry in entries:
        writer.append(_record(entry))
    return writer.finish()


def decode_index_entries(data: bytes, *, source: str = "") -> tuple[IndexManifestEntry, ...]:
    """The entries of an index manifest, in file order.

    Raises:
        CorruptDataError: damaged bytes, a required field is missing, an unknown `_VERSION`, or
            an entry that is not an ADD.
    """
    shared: dict[bytes, bytes] = {}
    return tuple(_entry(record, shared, source) for record in read_records(data, source=source))


def _record(entry: IndexManifestEntry) -> dict[str, Any]:
    return {
        "_VERSION": _VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        **to_record(entry.file),
    }


def _entry(record: dict[str, Any], shared: dict[bytes, bytes], source: str) -> IndexManifestEntry:
    version, kind = record.get("_VERSION"), record.get("_KIND")
    if version != _VERSION:
        raise CorruptDataError(
            "unknown index manifest record version", path=source, expected=_VERSION, found=version
        )
    if kind != FileKind.ADD:
        raise CorruptDataError(
            "an index manifest holds an entry that is not ADD",
            path=source,
            expected=FileKind.ADD.value,
            found=kind,
        )
    try:
        partition, bucket = record["_PARTITION"], record["_BUCKET"]
    except KeyError as error:
        raise CorruptDataError(
            "an index manifest record lacks a required field", path=source, field=error.args[0]
        ) from error
    return IndexManifestEntry(
        kind=FileKind.ADD,
        partition=shared.setdefault(partition, partition),
        bucket=bucket,
        file=from_record(record, IndexFileMeta, source),
    )


def removal(entry: IndexManifestEntry) -> IndexManifestEntry:
    """The DELETE of an entry."""
    return IndexManifestEntry(
        kind=FileKind.DELETE, partition=entry.partition, bucket=entry.bucket, file=entry.file
    )


_Key = tuple[object, ...]


def combine(
    previous: Sequence[IndexManifestEntry],
    changes: Sequence[IndexManifestEntry],
    *,
    by_file_name: bool,
) -> tuple[IndexManifestEntry, ...]:
    """The index files of a snapshot. Pure.

    A bucket has one file of each type, and replacing it requires naming the replaced file: a
    writer that did not see the current file would lose its content. Java replaces silently.

    Args:
        previous: of the snapshot before, ADD entries only.
        changes: DELETE and ADD entries of a commit; removals are applied first.
        by_file_name: deletion vectors are identified by file name, not by bucket: append tables
            without fixed buckets, where one bucket has many files.

    Returns:
        ADD entries: kept ones in their order, then new ones.

    Raises:
        FileConflictError: a file to remove is missing, a file to add exists, a bucket would have
            two files of one type, or a data file two deletion vectors.
    """

    def key_of(entry: IndexManifestEntry) -> _Key:
        kind = entry.file.index_type
        bucketed = kind == IndexType.HASH or (
            kind == IndexType.DELETION_VECTORS and not by_file_name
        )
        if bucketed:
            return (kind, entry.partition, entry.bucket)
        return (kind, entry.file.file_name)

    files = {key_of(entry): entry for entry in previous}
    for entry in changes:
        if entry.kind is FileKind.DELETE:
            _remove(files, key_of(entry), entry)
    for entry in changes:
        if entry.kind is FileKind.ADD:
            _add(files, key_of(entry), entry)
    _check_vectors(files.values(), changes)
    return tuple(files.values())


def _remove(files: dict[_Key, IndexManifestEntry], key: _Key, entry: IndexManifestEntry) -> None:
    current = files.pop(key, None)
    if current is None or current.file.file_name != entry.file.file_name:
        problem = "an index file that this commit replaces is not live any more"
        raise _conflict(problem, entry, current)


def _add(files: dict[_Key, IndexManifestEntry], key: _Key, entry: IndexManifestEntry) -> None:
    if key in files:
        problem = "the bucket has an index file that this commit does not replace"
        raise _conflict(problem, entry, files[key])
    files[key] = entry


def _conflict(
    problem: str, entry: IndexManifestEntry, existing: IndexManifestEntry | None
) -> FileConflictError:
    return FileConflictError(
        "index file conflicts detected! give up committing",
        detail=problem,
        hint="another job changed the bucket; start from the newest snapshot",
        file=entry.file.file_name,
        bucket=entry.bucket,
        found=None if existing is None else existing.file.file_name,
    )


def _check_vectors(
    entries: Iterable[IndexManifestEntry], changes: Sequence[IndexManifestEntry]
) -> None:
    """At most one vector for each data file that the changes name."""
    new = {vector for entry in changes if entry.kind is FileKind.ADD for vector in _vectors(entry)}
    if not new:
        return
    vectors: set[tuple[bytes, int, str]] = set()
    for entry in entries:
        for vector in _vectors(entry):
            if vector in new and vector in vectors:
                raise FileConflictError(
                    "index file conflicts detected! give up committing",
                    detail="a data file would have two deletion vectors",
                    hint="another job deleted rows of the file; start from the newest snapshot",
                    file=vector[2],
                    bucket=entry.bucket,
                )
            vectors.add(vector)


def _vectors(entry: IndexManifestEntry) -> Iterator[tuple[bytes, int, str]]:
    for vector in entry.file.deletion_vectors or ():
        yield entry.partition, entry.bucket, vector.data_file_name
