# SPDX-License-Identifier: Apache-2.0
"""Index manifests: the Avro codec, and how a commit's index files combine with the previous ones.

An index manifest lists every table index file of a snapshot. Files of index types that this
version does not know are kept, with every column. Takes and gives bytes; where they lie is
`manifest_store`'s business. Source: FORMAT.md §4.8.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from storage.errors import CorruptDataError, FileConflictError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.avro.schema import optional_field, record_text, required_field
from storage.format.metadata.file_meta import (
    DeletionVectorMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
)

__all__ = ["INDEX_SCHEMA", "combine", "decode_index_entries", "encode_index_entries", "removal"]

_VERSION = 1
_RANGE = {
    "type": "record",
    "name": "record__DELETIONS_VECTORS_RANGES",
    "fields": [
        required_field("f0", "string"),
        required_field("f1", "int"),
        required_field("f2", "int"),
        optional_field("_CARDINALITY", "long"),
    ],
}
_GLOBAL_INDEX = {
    "type": "record",
    "name": "record__GLOBAL_INDEX",
    "fields": [
        required_field("_ROW_RANGE_START", "long"),
        required_field("_ROW_RANGE_END", "long"),
        required_field("_INDEX_FIELD_ID", "int"),
        optional_field("_EXTRA_FIELD_IDS", {"type": "array", "items": "int"}),
        optional_field("_INDEX_META", "bytes"),
        optional_field("_SOURCE_META", "bytes"),
    ],
}
INDEX_SCHEMA = record_text(
    [
        required_field("_VERSION", "int"),
        required_field("_KIND", "int"),
        required_field("_PARTITION", "bytes"),
        required_field("_BUCKET", "int"),
        required_field("_INDEX_TYPE", "string"),
        required_field("_FILE_NAME", "string"),
        required_field("_FILE_SIZE", "long"),
        required_field("_ROW_COUNT", "long"),
        optional_field("_DELETIONS_VECTORS_RANGES", {"type": "array", "items": ["null", _RANGE]}),
        optional_field("_EXTERNAL_PATH", "string"),
        optional_field("_GLOBAL_INDEX", _GLOBAL_INDEX),
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

    Args:
        data: the whole file.
        source: path to name in errors.

    Raises:
        CorruptDataError: damaged bytes, a required field is missing, an unknown `_VERSION`, or
            an entry that is not an ADD.
    """
    shared: dict[bytes, bytes] = {}
    return tuple(_entry(record, shared, source) for record in read_records(data, source=source))


def _record(entry: IndexManifestEntry) -> dict[str, Any]:
    file = entry.file
    ranges = None
    if file.deletion_vectors is not None:
        ranges = [
            {
                "f0": one.data_file_name,
                "f1": one.offset,
                "f2": one.length,
                "_CARDINALITY": one.cardinality,
            }
            for one in file.deletion_vectors
        ]
    return {
        "_VERSION": _VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_INDEX_TYPE": str(file.index_type),
        "_FILE_NAME": file.file_name,
        "_FILE_SIZE": file.file_size,
        "_ROW_COUNT": file.row_count,
        "_DELETIONS_VECTORS_RANGES": ranges,
        "_EXTERNAL_PATH": file.external_path,
        "_GLOBAL_INDEX": file.global_index,
    }


def _entry(
    record: Mapping[str, Any], shared: dict[bytes, bytes], source: str
) -> IndexManifestEntry:
    version, kind = record.get("_VERSION"), record.get("_KIND")
    if version != _VERSION:
        raise CorruptDataError(
            "unknown index manifest record version", path=source, expected=_VERSION, found=version
        )
    if kind != FileKind.ADD:
        raise CorruptDataError(
            "an index manifest holds an entry that is not an addition",
            path=source,
            expected=FileKind.ADD.value,
            found=kind,
        )
    try:
        partition = record["_PARTITION"]
        return IndexManifestEntry(
            kind=FileKind.ADD,
            partition=shared.setdefault(partition, partition),
            bucket=record["_BUCKET"],
            file=IndexFileMeta(
                index_type=record["_INDEX_TYPE"],
                file_name=record["_FILE_NAME"],
                file_size=record["_FILE_SIZE"],
                row_count=record["_ROW_COUNT"],
                deletion_vectors=_ranges(record.get("_DELETIONS_VECTORS_RANGES")),
                external_path=record.get("_EXTERNAL_PATH"),
                global_index=record.get("_GLOBAL_INDEX"),
            ),
        )
    except KeyError as error:
        raise CorruptDataError(
            "an index manifest record lacks a required field", path=source, field=error.args[0]
        ) from error


def _ranges(
    records: Sequence[Mapping[str, Any] | None] | None,
) -> tuple[DeletionVectorMeta, ...] | None:
    if records is None:
        return None
    return tuple(
        DeletionVectorMeta(
            data_file_name=record["f0"],
            offset=record["f1"],
            length=record["f2"],
            cardinality=record.get("_CARDINALITY"),
        )
        for record in records
        if record is not None
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

    A bucket has one file of each type, and replacing it means to name the file replaced: a writer
    that did not see the file that is there now would lose what is in it. Java replaces silently.

    Args:
        previous: of the snapshot before, ADD entries only.
        changes: DELETE and ADD entries of a commit; removals are applied first.
        by_file_name: deletion vectors are told apart by file name, not by bucket: append tables
            without fixed buckets, where one bucket has many files.

    Returns:
        ADD entries: kept ones in their order, then new ones.

    Raises:
        FileConflictError: a file to remove is not there, a file to add is, a bucket would have
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
    there = files.pop(key, None)
    if there is None or there.file.file_name != entry.file.file_name:
        raise FileConflictError(
            "index file conflicts detected! give up committing",
            detail="an index file that this commit replaces is not live any more",
            hint="another job changed the bucket; start from the newest snapshot",
            file=entry.file.file_name,
            bucket=entry.bucket,
            found=None if there is None else there.file.file_name,
        )


def _add(files: dict[_Key, IndexManifestEntry], key: _Key, entry: IndexManifestEntry) -> None:
    there = files.get(key)
    if there is not None:
        raise FileConflictError(
            "index file conflicts detected! give up committing",
            detail="the bucket has an index file that this commit does not replace",
            hint="another job changed the bucket; start from the newest snapshot",
            file=entry.file.file_name,
            bucket=entry.bucket,
            found=there.file.file_name,
        )
    files[key] = entry


def _check_vectors(
    entries: Iterable[IndexManifestEntry], changes: Sequence[IndexManifestEntry]
) -> None:
    """At most one vector for each data file that the changes name."""
    new = {vector for entry in changes if entry.kind is FileKind.ADD for vector in _vectors(entry)}
    if not new:
        return
    seen: set[tuple[bytes, int, str]] = set()
    for entry in entries:
        for vector in _vectors(entry):
            if vector in new and vector in seen:
                raise FileConflictError(
                    "index file conflicts detected! give up committing",
                    detail="a data file would have two deletion vectors",
                    hint="another job deleted rows of the file; start from the newest snapshot",
                    file=vector[2],
                    bucket=entry.bucket,
                )
            seen.add(vector)


def _vectors(entry: IndexManifestEntry) -> Iterator[tuple[bytes, int, str]]:
    for vector in entry.file.deletion_vectors or ():
        yield entry.partition, entry.bucket, vector.data_file_name
