# SPDX-License-Identifier: Apache-2.0
"""Manifest and manifest-list records: the Avro codec and the folding of ADD and DELETE.

Takes and gives bytes; where they lie is `manifest_store`'s business. Records are resolved by field
name, so older layouts (missing fields are null) and newer ones (unknown fields are skipped) read.

What is written: the 18-field `_FILE` record that every 1.1+ reader knows and older ones accept,
and the manifest-list record with bucket and level ranges. The fields of row tracking and partial
column files follow only when an entry carries them, so that a rewrite loses nothing.
Source: FORMAT.md §4.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.avro.container import ContainerWriter, read_records
from storage.format.avro.schema import optional_field, record_text, required_field
from storage.format.metadata.file_meta import DataFileMeta, FileKind, ManifestEntry, SimpleStats

__all__ = [
    "ENTRY_SCHEMA",
    "META_SCHEMA",
    "ManifestFileMeta",
    "Wanted",
    "decode_entries",
    "decode_metas",
    "encode_entries",
    "encode_metas",
    "entry_record",
    "entry_schema",
    "fold",
    "merge_entries",
]

_VERSION = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFileMeta:
    """One manifest as its manifest list describes it (FORMAT.md §4.3).

    Attributes:
        file_name: name inside `manifest/`.
        file_size: [bytes].
        num_added_files: ADD entries in it.
        num_deleted_files: DELETE entries in it.
        partition_stats: over the partitions of its entries, full precision.
        schema_id: newest schema of its files.
        min_bucket: and the following ranges: None when the writer did not record them.
    """

    file_name: str
    file_size: int
    num_added_files: int
    num_deleted_files: int
    partition_stats: SimpleStats
    schema_id: int
    min_bucket: int | None = None
    max_bucket: int | None = None
    min_level: int | None = None
    max_level: int | None = None
    min_row_id: int | None = None
    max_row_id: int | None = None

    def may_hold(self, buckets: Collection[int] | None) -> bool:
        """Whether it may have entries of one of some buckets; None = of any."""
        low, high = self.min_bucket, self.max_bucket
        if buckets is None or low is None or high is None:
            return True
        return any(low <= bucket <= high for bucket in buckets)


def _stats_schema(name: str) -> dict[str, object]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            required_field("_MIN_VALUES", "bytes"),
            required_field("_MAX_VALUES", "bytes"),
            optional_field("_NULL_COUNTS", {"type": "array", "items": ["null", "long"]}),
        ],
    }


_STRINGS = {"type": "array", "items": "string"}

_FILE_FIELDS = (
    required_field("_FILE_NAME", "string"),
    required_field("_FILE_SIZE", "long"),
    required_field("_ROW_COUNT", "long"),
    required_field("_MIN_KEY", "bytes"),
    required_field("_MAX_KEY", "bytes"),
    required_field("_KEY_STATS", _stats_schema("record__FILE__KEY_STATS")),
    required_field("_VALUE_STATS", _stats_schema("record__FILE__VALUE_STATS")),
    required_field("_MIN_SEQUENCE_NUMBER", "long"),
    required_field("_MAX_SEQUENCE_NUMBER", "long"),
    required_field("_SCHEMA_ID", "long"),
    required_field("_LEVEL", "int"),
    required_field("_EXTRA_FILES", _STRINGS),
    optional_field("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
    optional_field("_DELETE_ROW_COUNT", "long"),
    optional_field("_EMBEDDED_FILE_INDEX", "bytes"),
    optional_field("_FILE_SOURCE", "int"),
    optional_field("_VALUE_STATS_COLS", _STRINGS),
    optional_field("_EXTERNAL_PATH", "string"),
)
_ROW_TRACKING_FIELDS = (
    optional_field("_FIRST_ROW_ID", "long"),
    optional_field("_WRITE_COLS", _STRINGS),
)


def _entry_schema(file_fields: Iterable[Mapping[str, object]]) -> str:
    file_schema = {"type": "record", "name": "record__FILE", "fields": list(file_fields)}
    return record_text(
        [
            required_field("_VERSION", "int"),
            required_field("_KIND", "int"),
            required_field("_PARTITION", "bytes"),
            required_field("_BUCKET", "int"),
            required_field("_TOTAL_BUCKETS", "int"),
            required_field("_FILE", file_schema),
        ]
    )


_META_FIELDS = (
    required_field("_VERSION", "int"),
    required_field("_FILE_NAME", "string"),
    required_field("_FILE_SIZE", "long"),
    required_field("_NUM_ADDED_FILES", "long"),
    required_field("_NUM_DELETED_FILES", "long"),
    required_field("_PARTITION_STATS", _stats_schema("record__PARTITION_STATS")),
    required_field("_SCHEMA_ID", "long"),
    optional_field("_MIN_BUCKET", "int"),
    optional_field("_MAX_BUCKET", "int"),
    optional_field("_MIN_LEVEL", "int"),
    optional_field("_MAX_LEVEL", "int"),
)
_ROW_ID_FIELDS = (optional_field("_MIN_ROW_ID", "long"), optional_field("_MAX_ROW_ID", "long"))

ENTRY_SCHEMA = _entry_schema(_FILE_FIELDS)
"""Avro schema text of a manifest, as printed in FORMAT.md §4.4."""

_ENTRY_SCHEMA_WITH_ROW_TRACKING = _entry_schema(_FILE_FIELDS + _ROW_TRACKING_FIELDS)

META_SCHEMA = record_text(_META_FIELDS)
"""Avro schema text of a manifest list."""

_META_SCHEMA_WITH_ROW_IDS = record_text(_META_FIELDS + _ROW_ID_FIELDS)


def entry_schema(entries: Iterable[ManifestEntry]) -> str:
    """The Avro schema text that holds these entries without loss."""
    if any(e.file.first_row_id is not None or e.file.write_cols is not None for e in entries):
        return _ENTRY_SCHEMA_WITH_ROW_TRACKING
    return ENTRY_SCHEMA


def encode_entries(entries: Iterable[ManifestEntry]) -> bytes:
    """One manifest file with these entries, in this order."""
    entries = tuple(entries)
    writer = ContainerWriter(entry_schema(entries))
    for entry in entries:
        writer.append(entry_record(entry))
    return writer.finish()


Wanted = Callable[[bytes, int, int], bool]
"""Decides by framed partition, bucket and bucket count whether an entry is wanted."""


def decode_entries(
    data: bytes, *, source: str = "", wanted: Wanted | None = None
) -> tuple[ManifestEntry, ...]:
    """The entries of a manifest file, in file order.

    Args:
        data: the whole file.
        source: path to name in errors.
        wanted: leaves out entries before they are built, which is most of the work.

    Raises:
        CorruptDataError: damaged bytes, a required field is missing, or an unknown `_VERSION`.
        UnsupportedFeatureError: an entry uses what we would lose when rewriting it.
    """
    shared: dict[bytes, bytes] = {}  # entries of one partition hold one bytes object
    records = read_records(data, source=source)
    if wanted is not None:
        records = (record for record in records if _is_wanted(record, wanted, source))
    return tuple(_decoded(_entry, record, shared, source) for record in records)


def _is_wanted(record: dict[str, Any], wanted: Wanted, source: str) -> bool:
    try:
        return wanted(record["_PARTITION"], record["_BUCKET"], record["_TOTAL_BUCKETS"])
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
        writer.append(_meta_record(meta))
    return writer.finish()


def decode_metas(data: bytes, *, source: str = "") -> tuple[ManifestFileMeta, ...]:
    """The manifests of a manifest list, in file order.

    Raises:
        CorruptDataError: damaged bytes, a required field is missing, or an unknown `_VERSION`.
    """
    shared: dict[bytes, bytes] = {}
    return tuple(
        _decoded(_meta, record, shared, source) for record in read_records(data, source=source)
    )


def fold(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """The live ADD entries after applying every DELETE, in order of their ADD.

    Args:
        entries: all entries of a snapshot: base list before delta list, manifests in list order.

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
                    "a manifest adds a file that is already there",
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
    file = entry.file
    return {
        "_VERSION": _VERSION,
        "_KIND": entry.kind.value,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.file_name,
            "_FILE_SIZE": file.file_size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": _stats_record(file.key_stats),
            "_VALUE_STATS": _stats_record(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence_number,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence_number,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": file.extra_files,
            "_CREATION_TIME": file.creation_time_ms,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": file.file_source,
            "_VALUE_STATS_COLS": file.value_stats_cols,
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": file.write_cols,
        },
    }


def _meta_record(meta: ManifestFileMeta) -> dict[str, Any]:
    return {
        "_VERSION": _VERSION,
        "_FILE_NAME": meta.file_name,
        "_FILE_SIZE": meta.file_size,
        "_NUM_ADDED_FILES": meta.num_added_files,
        "_NUM_DELETED_FILES": meta.num_deleted_files,
        "_PARTITION_STATS": _stats_record(meta.partition_stats),
        "_SCHEMA_ID": meta.schema_id,
        "_MIN_BUCKET": meta.min_bucket,
        "_MAX_BUCKET": meta.max_bucket,
        "_MIN_LEVEL": meta.min_level,
        "_MAX_LEVEL": meta.max_level,
        "_MIN_ROW_ID": meta.min_row_id,
        "_MAX_ROW_ID": meta.max_row_id,
    }


def _stats_record(stats: SimpleStats) -> dict[str, Any]:
    return {
        "_MIN_VALUES": stats.min_values,
        "_MAX_VALUES": stats.max_values,
        "_NULL_COUNTS": stats.null_counts,
    }


def _decoded(build: Any, record: dict[str, Any], shared: dict[bytes, bytes], source: str) -> Any:
    if record.get("_VERSION") != _VERSION:
        raise CorruptDataError(
            "unknown manifest record version", path=source, version=record.get("_VERSION")
        )
    try:
        return build(record, shared)
    except KeyError as error:
        raise CorruptDataError(
            "a manifest record lacks a required field", path=source, field=error.args[0]
        ) from error


def _entry(record: dict[str, Any], shared: dict[bytes, bytes]) -> ManifestEntry:
    file = record["_FILE"]
    get = file.get
    if get("_WRITE_COLS_SEQUENCES"):
        raise UnsupportedFeatureError(
            "a file with per-column sequence numbers is not supported",
            hint="read this table with Apache Paimon",
            file=file["_FILE_NAME"],
        )
    partition = record["_PARTITION"]
    return ManifestEntry(
        kind=_KINDS[record["_KIND"]],
        partition=shared.setdefault(partition, partition),
        bucket=record["_BUCKET"],
        total_buckets=record["_TOTAL_BUCKETS"],
        file=DataFileMeta(
            file_name=file["_FILE_NAME"],
            file_size=file["_FILE_SIZE"],
            row_count=file["_ROW_COUNT"],
            min_key=file["_MIN_KEY"],
            max_key=file["_MAX_KEY"],
            key_stats=_stats(file["_KEY_STATS"]),
            value_stats=_stats(file["_VALUE_STATS"]),
            min_sequence_number=file["_MIN_SEQUENCE_NUMBER"],
            max_sequence_number=file["_MAX_SEQUENCE_NUMBER"],
            schema_id=file["_SCHEMA_ID"],
            level=file["_LEVEL"],
            extra_files=tuple(file["_EXTRA_FILES"]),
            creation_time_ms=get("_CREATION_TIME"),
            delete_row_count=get("_DELETE_ROW_COUNT"),
            embedded_index=get("_EMBEDDED_FILE_INDEX"),
            file_source=get("_FILE_SOURCE"),
            value_stats_cols=_strings(get("_VALUE_STATS_COLS")),
            external_path=get("_EXTERNAL_PATH"),
            first_row_id=get("_FIRST_ROW_ID"),
            write_cols=_strings(get("_WRITE_COLS")),
        ),
    )


_KINDS = {kind.value: kind for kind in FileKind}


def _meta(record: dict[str, Any], shared: dict[bytes, bytes]) -> ManifestFileMeta:
    return ManifestFileMeta(
        file_name=record["_FILE_NAME"],
        file_size=record["_FILE_SIZE"],
        num_added_files=record["_NUM_ADDED_FILES"],
        num_deleted_files=record["_NUM_DELETED_FILES"],
        partition_stats=_stats(record["_PARTITION_STATS"]),
        schema_id=record["_SCHEMA_ID"],
        min_bucket=record.get("_MIN_BUCKET"),
        max_bucket=record.get("_MAX_BUCKET"),
        min_level=record.get("_MIN_LEVEL"),
        max_level=record.get("_MAX_LEVEL"),
        min_row_id=record.get("_MIN_ROW_ID"),
        max_row_id=record.get("_MAX_ROW_ID"),
    )


def _stats(record: dict[str, Any]) -> SimpleStats:
    return SimpleStats(
        record["_MIN_VALUES"], record["_MAX_VALUES"], tuple(record.get("_NULL_COUNTS") or ())
    )


def _strings(values: list[str] | None) -> tuple[str, ...] | None:
    return None if values is None else tuple(values)
