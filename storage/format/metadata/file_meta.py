# SPDX-License-Identifier: Apache-2.0
"""Frozen values that describe data files and one writer's contribution to a commit.

Source: FORMAT.md §4.2, §4.4, §4.8. What a manifest holds is a struct whose fields declare their
Avro names and types, in the order of the record (see `records`).
"""

import dataclasses
import enum
from typing import Annotated, Any

import msgspec

from storage.format.avro.schema import optional_field, required_field
from storage.format.metadata.records import NULLABLE, Avro, Long, avro_name

EMPTY_ROW = bytes(12)
"""The framed BinaryRow of arity 0: partition of an unpartitioned table, key of an append file."""


_TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}


class FileKind(enum.IntEnum):
    """`_KIND` of a manifest entry."""

    ADD = 0
    DELETE = 1


class FileSource(enum.IntEnum):
    """`_FILE_SOURCE`."""

    APPEND = 0
    COMPACT = 1


class SimpleStats(msgspec.Struct, frozen=True, rename=avro_name):
    """Column statistics of a file or of the partitions in a manifest.

    Attributes:
        min_values: framed BinaryRow of minima; a null field means unknown.
        null_counts: one per field, None = unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: Annotated[tuple[Long | None, ...], NULLABLE] = ()


EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


class DataFileMeta(msgspec.Struct, frozen=True, kw_only=True, rename=avro_name):
    """One data or changelog file. Field by field the `_FILE` record of FORMAT.md §4.4.

    Keys are framed BinaryRows of the trimmed primary key (`EMPTY_ROW` on append tables). Identity
    inside a bucket is the file name (and the level, because an upgrade keeps the name).
    """

    file_name: str
    file_size: Long
    row_count: Long
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: Long
    max_sequence_number: Long
    schema_id: Long
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: Annotated[int, Avro(_TIMESTAMP)] | None = msgspec.field(
        default=None, name="_CREATION_TIME"
    )
    delete_row_count: Long | None = None
    embedded_index: bytes | None = msgspec.field(default=None, name="_EMBEDDED_FILE_INDEX")
    file_source: int | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: Long | None = None
    write_cols: tuple[str, ...] | None = None

    def at_level(self, level: int) -> "DataFileMeta":
        """The same physical file at another level."""
        return msgspec.structs.replace(self, level=level)


class ManifestEntry(msgspec.Struct, frozen=True, kw_only=True, rename=avro_name):
    """A file added to or removed from a bucket.

    Attributes:
        partition: framed BinaryRow of the partition keys.
        total_buckets: bucket count of the table when written (-1 dynamic, -2 postpone).
    """

    kind: FileKind
    partition: bytes
    bucket: int
    total_buckets: int
    file: DataFileMeta

    @property
    def identity(self) -> tuple[object, ...]:
        """What an ADD and its DELETE share (FORMAT.md §4.6)."""
        file = self.file
        return (
            self.partition,
            self.bucket,
            file.level,
            file.file_name,
            file.extra_files,
            file.embedded_index,
            file.external_path,
        )


class IndexType(enum.StrEnum):
    """`_INDEX_TYPE` of the table indexes that this version writes."""

    HASH = "HASH"
    DELETION_VECTORS = "DELETION_VECTORS"


class DeletionVectorMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The position of the deletion vector of one data file in an index file.

    Attributes:
        offset: of the vector's size word [bytes].
        length: as recorded, which depends on the kind of vector (FORMAT.md §9.2) [bytes].
        cardinality: number of deleted rows, None when unknown.
    """

    data_file_name: str = msgspec.field(name="f0")
    offset: int = msgspec.field(name="f1")
    length: int = msgspec.field(name="f2")
    cardinality: Long | None = msgspec.field(default=None, name="_CARDINALITY")


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


class IndexFileMeta(msgspec.Struct, frozen=True, kw_only=True, rename=avro_name):
    """One table index file.

    Attributes:
        index_type: an `IndexType`, or the text of a type that this version does not know.
        file_size: [bytes].
        row_count: hashes or deletion vectors in it.
        deletion_vectors: in file order; None for other types.
        external_path: full path when the file is not in `index/`.
        global_index: the `_GLOBAL_INDEX` record as read, kept for rewrites.
    """

    index_type: str
    file_name: str
    file_size: Long
    row_count: Long
    deletion_vectors: tuple[DeletionVectorMeta, ...] | None = msgspec.field(
        default=None, name="_DELETIONS_VECTORS_RANGES"
    )
    external_path: str | None = None
    global_index: Annotated[Any, Avro(_GLOBAL_INDEX), NULLABLE] = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class IndexManifestEntry:
    """An index file of one bucket, as the index manifest of a snapshot lists it."""

    kind: FileKind
    partition: bytes
    bucket: int
    file: IndexFileMeta


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataIncrement:
    """What writing added: goes into the APPEND snapshot."""

    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (
            self.new_files
            or self.deleted_files
            or self.changelog_files
            or self.new_index_files
            or self.deleted_index_files
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompactIncrement:
    """What compaction replaced: goes into the COMPACT snapshot."""

    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (
            self.compact_before
            or self.compact_after
            or self.changelog_files
            or self.new_index_files
            or self.deleted_index_files
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommitMessage:
    """One bucket's contribution to a commit; the only thing a writer sends to the committer.

    Picklable; a few kilobytes. `index_base`: snapshot of the index of all keys that placed rows.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    data: DataIncrement = DataIncrement()
    compact: CompactIncrement = CompactIncrement()
    index_base: int | None = None
