# SPDX-License-Identifier: Apache-2.0
"""`$files`, `$file_key_ranges`, `$partitions`, `$buckets`: the live files of a snapshot.

Source: SEMANTICS.md §I. Options of time travel choose the snapshot. Counts are of rows before
merging.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.errors import NotFoundError
from storage.format.files.column_mapping import keeps_values
from storage.format.files.file_formats import format_of
from storage.format.metadata.file_meta import DataFileMeta, FileSource, IndexType, ManifestEntry
from storage.format.metadata.layout import value_text
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.table.commit.index_files import index_entries
from storage.table.commit.live_files import live_state
from storage.table.core import TableCore
from storage.table.inspect.system.columns import (
    field_text,
    key_text,
    map_text,
    partition_text,
    schema_of,
    shown_snapshot,
    table_of,
)
from storage.table.read.missing_files import explain_missing_files
from storage.table.retention.mark_done import success_times

_KEY_RANGES = """
    partition text?, bucket int, file_path text, file_format text, schema_id long, level int,
    record_count long, file_size_in_bytes long, min_key text?, max_key text?
"""
_RANGES = schema_of(f"{_KEY_RANGES}, first_row_id long?")
_FILES = schema_of(f"""{_KEY_RANGES},
    null_value_counts text, min_value_stats text, max_value_stats text,
    min_sequence_number long?, max_sequence_number long?, creation_time time?,
    deleteRowCount long?, file_source text?, first_row_id long?, write_cols texts?
""")
_COUNTS = "record_count long, file_size_in_bytes long, file_count long, last_update_time time?"
_BUCKETS = schema_of(f"partition text?, bucket int, {_COUNTS}")
_PARTITIONS = schema_of(f"""
    partition text?, {_COUNTS}, created_at time?, created_by text?, updated_by text?,
    options text?, total_buckets int, done boolean, deleted_record_count long?
""")


def files_table(table: TableCore) -> pa.Table:
    """One row per live data file, of all levels."""
    rows = (_key_range(table, entry) | _statistics(table, entry.file) for entry in _entries(table))
    return table_of(_FILES, rows)


def file_key_ranges_table(table: TableCore) -> pa.Table:
    """The first columns of `$files`, without statistics."""
    rows = (_key_range(table, e) | {"first_row_id": e.file.first_row_id} for e in _entries(table))
    return table_of(_RANGES, rows)


def buckets_table(table: TableCore) -> pa.Table:
    """One row per bucket with live files of the newest snapshot; no time travel, as in Java."""
    by_bucket: dict[tuple[str, int], list[ManifestEntry]] = collections.defaultdict(list)
    for entry in _live(table, table.latest_snapshot()):
        by_bucket[(partition_text(table.schema, entry.partition), entry.bucket)].append(entry)
    rows = (
        {"partition": partition, "bucket": bucket, **_file_totals(by_bucket[(partition, bucket)])}
        for partition, bucket in sorted(by_bucket)
    )
    return table_of(_BUCKETS, rows)


def partitions_table(table: TableCore) -> pa.Table:
    """One row per partition with live files, named `k1=v1/k2=v2`; done if it has a success file."""
    by_partition: dict[bytes, list[ManifestEntry]] = collections.defaultdict(list)
    for entry in _entries(table):
        by_partition[entry.partition].append(entry)
    deleted = _deleted(table)
    paths = {partition: table.partition_path(partition) for partition in by_partition}
    marked = success_times(table, list(paths.values())) if table.schema.partition_keys else {}
    rows = [
        {
            "partition": _spec_text(table, partition),
            **_file_totals(entries),
            "total_buckets": entries[-1].total_buckets,
            "done": paths[partition] in marked,
            "deleted_record_count": deleted.get(partition, 0),
        }
        for partition, entries in by_partition.items()
    ]
    rows.sort(key=lambda row: row["partition"])
    return table_of(_PARTITIONS, rows)


def _entries(table: TableCore) -> list[ManifestEntry]:
    return _live(table, shown_snapshot(table))


def _live(table: TableCore, snapshot: Snapshot | None) -> list[ManifestEntry]:
    if snapshot is None:
        return []
    with explain_missing_files(table, snapshot.id):
        buckets = live_state(table, snapshot).buckets
    return [entry for bucket in sorted(buckets) for entry in buckets[bucket]]


def _key_range(table: TableCore, entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    path = file.external_path or table.data_path(entry.partition, entry.bucket, file.file_name)
    return {
        "partition": partition_text(table.schema, entry.partition),
        "bucket": entry.bucket,
        "file_path": path,
        "file_format": format_of(file.file_name),
        "schema_id": file.schema_id,
        "level": file.level,
        "record_count": file.row_count,
        "file_size_in_bytes": file.file_size,
        "min_key": _key(table, file, file.min_key),
        "max_key": _key(table, file, file.max_key),
    }


def _key(table: TableCore, file: DataFileMeta, key: bytes) -> str | None:
    if not table.schema.primary_keys:
        return None
    fields = table.schemas.read(file.schema_id).key_fields
    return key_text(decode_row(key, [field.type for field in fields]), fields)


def _statistics(table: TableCore, file: DataFileMeta) -> dict[str, Any]:
    nulls, lows, highs = _value_statistics(table, file)
    source = file.file_source
    return {
        "null_value_counts": map_text(nulls),
        "min_value_stats": map_text(lows),
        "max_value_stats": map_text(highs),
        "min_sequence_number": file.min_sequence_number,
        "max_sequence_number": file.max_sequence_number,
        "creation_time": file.creation_time_ms,
        "deleteRowCount": file.delete_row_count,
        "file_source": None if source is None else FileSource(source).name,
        "first_row_id": file.first_row_id,
        "write_cols": None if file.write_cols is None else list(file.write_cols),
    }


def _value_statistics(
    table: TableCore, file: DataFileMeta
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Null counts, lower and upper bounds by the columns of the table, as texts."""
    schema = table.schemas.read(file.schema_id)
    names = file.value_stats_cols
    if names is None:
        names = schema.field_names if file.write_cols is None else file.write_cols
    stats = file.value_stats
    by_id: dict[int, tuple[Any, Any, Any, Any]] = {}
    if len(stats.null_counts) == len(names):
        fields = [schema.field(name) for name in names]
        types = [field.type for field in fields]
        lows, highs = decode_row(stats.min_values, types), decode_row(stats.max_values, types)
        for column in zip(fields, stats.null_counts, lows, highs, strict=True):
            by_id[column[0].id] = column
    in_file = {field.id for field in schema.fields}
    texts: tuple[dict[str, str], dict[str, str], dict[str, str]] = ({}, {}, {})
    for field in table.schema.fields:
        missing = None if field.id in in_file else file.row_count
        source, nulls, low, high = by_id.get(field.id, (field, missing, None, None))
        if not keeps_values(source.type, field.type):
            low = high = None
        texts[0][field.name] = "null" if nulls is None else str(nulls)
        texts[1][field.name] = field_text(low, field)
        texts[2][field.name] = field_text(high, field)
    return texts


def _file_totals(entries: Iterable[ManifestEntry]) -> dict[str, Any]:
    files = [entry.file for entry in entries]
    times = [file.creation_time_ms for file in files if file.creation_time_ms is not None]
    return {
        "record_count": sum(file.row_count for file in files),
        "file_size_in_bytes": sum(file.file_size for file in files),
        "file_count": len(files),
        "last_update_time": max(times, default=None),
    }


def _spec_text(table: TableCore, partition: bytes) -> str:
    fields = table.schema.partition_fields
    values = decode_row(partition, [field.type for field in fields])
    default = table.options.partition_default_name
    return "/".join(
        f"{field.name}={default if value is None else value_text(value, field, legacy=False)}"
        for field, value in zip(fields, values, strict=True)
    )


def _deleted(table: TableCore) -> Mapping[bytes, int | None]:
    """Rows that deletion vectors mark, by partition; None where a vector does not say."""
    counts: dict[bytes, int | None] = {}
    snapshot = shown_snapshot(table)
    if not table.options.deletion_vectors_enabled or snapshot is None:
        return counts
    try:
        entries = index_entries(table, snapshot)
    except FileNotFoundError as error:
        raise NotFoundError("a snapshot expired while it was read", id=snapshot.id) from error
    for entry in entries:
        if entry.file.index_type != IndexType.DELETION_VECTORS:
            continue
        for vector in entry.file.deletion_vectors or ():
            before, more = counts.get(entry.partition, 0), vector.cardinality
            counts[entry.partition] = None if before is None or more is None else before + more
    return counts
