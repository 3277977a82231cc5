# SPDX-License-Identifier: Apache-2.0
"""Frozen values that describe data files and one writer's contribution to a commit.

Source: FORMAT.md §4.2, §4.4, §4.8. What a manifest holds is a struct whose fields declare their
Avro names and types, in the order of the record (see `records`).
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Collection
from typing import Annotated, Any, TypeVar

import msgspec

from storage.errors import CorruptDataError
from storage.format.avro.schema import optional_field, record_text, required_field

# Metadata records: Avro schema and codec derived from the fields of a `msgspec.Struct`.
#
# A field is declared once, in its class: `file_size: Long` is the Avro field `_FILE_SIZE` of type
# long. It is nullable in Avro where its Python type is, or where it is marked with `NULLABLE`.
# Fields without a member in a record take their defaults, so records of older writers read; members
# without a field are skipped. Source: FORMAT.md §4.


_Struct = TypeVar("_Struct", bound=msgspec.Struct)

NULLABLE = object()
"""Marks a field that is nullable in Avro and never None here: null reads as its default."""


@dataclasses.dataclass(frozen=True, eq=False)
class Avro:
    """Marks a field whose Avro type does not follow from its Python type."""

    schema: Any


Long = Annotated[int, Avro("long")]
"""A 64-bit integer; a plain `int` has 32 bits in Avro."""

_PLAIN = {int: "int", str: "string", bytes: "bytes"}


def avro_name(attribute: str) -> str:
    """Name of a field in Avro, such as `_FILE_SIZE`; for `rename` of a struct."""
    return f"_{attribute.upper()}"


def record_schema(version_and: Collection[dict[str, Any]]) -> str:
    """The schema text of a manifest whose records have a `_VERSION` and these fields."""
    return record_text([required_field("_VERSION", "int"), *version_and])


def record_fields(
    struct: type[msgspec.Struct], path: str = "record", *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The Avro fields of a struct.

    `without` leaves out attributes, also of nested structs.
    """
    fields = []
    for field in msgspec.structs.fields(struct):
        if field.name in without:
            continue
        name = field.encode_name
        schema, nullable = _schema(field.type, f"{path}_{name}", without)
        fields.append(optional_field(name, schema) if nullable else required_field(name, schema))
    return fields


def _schema(type_: Any, path: str, without: Collection[str]) -> tuple[Any, bool]:
    """Avro type of a field, and whether it may be null."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        marks = [mark for mark in arguments[1:] if isinstance(mark, Avro)]
        schema, nullable = (
            (marks[0].schema, False) if marks else _schema(arguments[0], path, without)
        )
        return schema, nullable or NULLABLE in arguments
    if origin in (types.UnionType, typing.Union):
        (inner,) = (part for part in arguments if part is not types.NoneType)
        return _schema(inner, path, without)[0], True
    if origin is tuple:
        items, nullable = _schema(arguments[0], path, without)
        record = isinstance(items, dict)
        return {"type": "array", "items": ["null", items] if nullable or record else items}, False
    if issubclass(type_, msgspec.Struct):
        fields = record_fields(type_, path, without=without)
        return {"type": "record", "name": path, "fields": fields}, False
    return next(name for plain, name in _PLAIN.items() if issubclass(type_, plain)), False


def to_record(value: msgspec.Struct) -> dict[str, Any]:
    """The Avro record of a struct, without a version."""
    record: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(bytes,))
    return record


def from_record(record: dict[str, Any], struct: type[_Struct], source: str) -> _Struct:
    """The struct of an Avro record.

    Raises:
        CorruptDataError: a required field is missing or has a value of another type.
    """
    try:
        return msgspec.convert(record, struct)
    except msgspec.ValidationError:
        pass
    try:  # a null where this version writes none is the default
        return msgspec.convert(_without_nulls(record), struct)
    except msgspec.ValidationError as error:
        raise CorruptDataError(
            "a manifest record lacks a required field or has one of a wrong type",
            detail=str(error),
            path=source,
        ) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return [_without_nulls(part) for part in value if part is not None]
    return value


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


class SimpleStats(msgspec.Struct, frozen=True, gc=False, rename=avro_name):
    """Column statistics of a file or of the partitions in a manifest.

    Attributes:
        min_values: framed BinaryRow of minima; a null field means unknown.
        null_counts: one per field, None = unknown.
    """

    min_values: bytes
    max_values: bytes
    null_counts: Annotated[tuple[Long | None, ...], NULLABLE] = ()


EMPTY_STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())


class DataFileMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename=avro_name):
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


class ManifestEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename=avro_name):
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
        return self == DataIncrement()


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
        return self == CompactIncrement()


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
