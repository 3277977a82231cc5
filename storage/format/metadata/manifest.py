# SPDX-License-Identifier: Apache-2.0
"""Manifest and manifest-list records: the Avro codec and the folding of ADD and DELETE.

Takes and gives bytes; their paths are `manifest_store`'s business. Records are resolved by field
name, so older layouts (missing fields are null) and newer ones (unknown fields are skipped) read.

What is written: the 18-field `_FILE` record that every 1.1+ reader knows and older ones accept,
and the manifest-list record with bucket and level ranges. The fields of row tracking and partial
column files follow only when an entry carries them, so that a rewrite loses nothing.
Source: FORMAT.md §4.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from storage.errors import CorruptDataError, FileConflictError, UnsupportedFeatureError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.avro.schema import required_field
from storage.format.metadata.file_meta import (
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
    Long,
    ManifestEntry,
    SimpleStats,
    avro_name,
    from_record,
    record_fields,
    record_schema,
    to_record,
)

_VERSION = 2


class ManifestFileMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename=avro_name):
    """One manifest as its manifest list describes it (FORMAT.md §4.3).

    Attributes:
        file_size: [bytes].
        num_added_files: ADD entries in it.
        num_deleted_files: DELETE entries in it.
        partition_stats: over the partitions of its entries, full precision.
        schema_id: newest schema of its files.
        min_bucket: and the following ranges: None when the writer did not record them.
    """

    file_name: str
    file_size: Long
    num_added_files: Long
    num_deleted_files: Long
    partition_stats: SimpleStats
    schema_id: Long
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: Long | None = None
    max_row_id: Long | None = None

    def may_hold(self, buckets: Collection[int] | None) -> bool:
        """Whether it may have entries of one of some buckets; None = of any."""
        low, high = self.min_bucket, self.max_bucket
        if buckets is None or low is None or high is None:
            return True
        return any(low <= bucket <= high for bucket in buckets)


_ROW_TRACKING = ("first_row_id", "write_cols")
_ROW_IDS = ("min_row_id", "max_row_id")

ENTRY_SCHEMA = record_schema(record_fields(ManifestEntry, without=_ROW_TRACKING))
"""Avro schema text of a manifest, as printed in FORMAT.md §4.4."""

_ENTRY_SCHEMA_WITH_ROW_TRACKING = record_schema(record_fields(ManifestEntry))

META_SCHEMA = record_schema(record_fields(ManifestFileMeta, without=_ROW_IDS))
"""Avro schema text of a manifest list."""

_META_SCHEMA_WITH_ROW_IDS = record_schema(record_fields(ManifestFileMeta))


def entry_schema(entries: Iterable[ManifestEntry]) -> str:
    """The Avro schema text that holds these entries without loss."""
    if any(e.file.first_row_id is not None or e.file.write_cols is not None for e in entries):
        return _ENTRY_SCHEMA_WITH_ROW_TRACKING
    return ENTRY_SCHEMA


EntryFilter = Callable[[bytes, int, int], bool]
"""Decides by framed partition, bucket and bucket count whether an entry is wanted."""


def decode_entries(
    data: bytes, source: str = "", *, keeps_entry: EntryFilter | None = None
) -> tuple[ManifestEntry, ...]:
    """The entries of a manifest file, in file order.

    Args:
        data: the whole file.
        source: path to name in errors.
        keeps_entry: leaves out entries before they are built, which is most of the work.

    Raises:
        CorruptDataError: damaged bytes, a required field is missing, or an unknown `_VERSION`.
        UnsupportedFeatureError: an entry uses what we would lose when rewriting it.
    """
    records = read_records(data, source=source)
    if keeps_entry is not None:
        records = (record for record in records if _is_wanted(record, keeps_entry, source))
    shared: dict[Any, Any] = {}  # entries of one partition hold one bytes object
    entries = []
    for record in records:
        _check_version(record, source)
        partition = record.get("_PARTITION")
        record["_PARTITION"] = shared.setdefault(partition, partition)
        if (record.get("_FILE") or {}).get("_WRITE_COLS_SEQUENCES"):
            raise UnsupportedFeatureError(
                "a file with per-column sequence numbers is not supported",
                hint="read this table with Apache Paimon",
                file=record["_FILE"].get("_FILE_NAME"),
            )
        entries.append(from_record(record, ManifestEntry, source))
    return tuple(entries)


def _check_version(record: Mapping[str, Any], source: str) -> None:
    if record.get("_VERSION") != _VERSION:
        raise CorruptDataError(
            "unknown manifest record version", path=source, version=record.get("_VERSION")
        )


def _is_wanted(record: dict[str, Any], keeps_entry: EntryFilter, source: str) -> bool:
    try:
        return keeps_entry(record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"])
    except KeyError as error:
        raise CorruptDataError(
            "a manifest record lacks a required field", path=source, field=error.args[0]
        ) from error


def encode_metas(
    metas: Iterable[ManifestFileMeta], *, codec: str = "zstandard", zstd_level: int = 1
) -> bytes:
    """One manifest list with these manifests, in this order; codec as for `ContainerWriter`."""
    metas = tuple(metas)
    with_row_ids = any(meta.min_row_id is not None for meta in metas)
    schema = _META_SCHEMA_WITH_ROW_IDS if with_row_ids else META_SCHEMA
    writer = ContainerWriter(schema, codec=codec, zstd_level=zstd_level)
    for meta in metas:
        writer.append({"_VERSION": _VERSION, **to_record(meta)})
    return writer.finish()


def decode_metas(data: bytes, source: str = "") -> tuple[ManifestFileMeta, ...]:
    """The manifests of a manifest list, in file order.

    Raises:
        CorruptDataError: damaged bytes, a required field is missing, or an unknown `_VERSION`.
    """
    metas = []
    for record in read_records(data, source=source):
        _check_version(record, source)
        metas.append(from_record(record, ManifestFileMeta, source))
    return tuple(metas)


def fold(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The live ADD entries after applying every DELETE, in order of their ADD.

    Entries are those of a snapshot: base list before delta list, manifests in list order.

    Raises:
        CorruptDataError: a file is added twice.
    """
    return [entry for entry in merge_entries(entries) if entry.kind is FileKind.ADD]


def merge_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Cancel ADD/DELETE pairs; a DELETE whose ADD is elsewhere stays (FORMAT.md §4.6).

    Raises:
        CorruptDataError: a file is added twice.
    """
    merged: dict[tuple[object, ...], ManifestEntry] = {}
    for entry in entries:
        identity = entry.identity
        earlier = merged.get(identity)
        if entry.kind is FileKind.ADD:
            if earlier is not None:
                raise CorruptDataError(
                    "a manifest adds a file that was already added",
                    file=entry.file.file_name,
                    bucket=entry.bucket,
                    level=entry.file.level,
                )
            merged[identity] = entry
        elif earlier is not None and earlier.kind is FileKind.ADD:
            del merged[identity]
        else:
            merged[identity] = entry
    return list(merged.values())


def entry_record(entry: ManifestEntry) -> dict[str, Any]:
    """The Avro record of an entry, for a writer of `entry_schema`."""
    return {"_VERSION": _VERSION, **to_record(entry)}


# Index manifests: the Avro codec, and how a commit's index files combine with the previous ones.
#
# An index manifest lists every table index file of a snapshot. Files of index types that this
# version does not know are kept, with every column. Works on bytes; where they are stored is
# up to `manifest_store`. Source: FORMAT.md §4.8.


_INDEX_MANIFEST_VERSION = 1
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
        "_VERSION": _INDEX_MANIFEST_VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        **to_record(entry.file),
    }


def _entry(record: dict[str, Any], shared: dict[bytes, bytes], source: str) -> IndexManifestEntry:
    version, kind = record.get("_VERSION"), record.get("_KIND")
    if version != _INDEX_MANIFEST_VERSION:
        raise CorruptDataError(
            "unknown index manifest record version",
            path=source,
            expected=_INDEX_MANIFEST_VERSION,
            found=version,
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
