# SPDX-License-Identifier: Apache-2.0
"""System tables by name."""

import collections
import dataclasses
import datetime
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from storage.errors import NotFoundError
from storage.format.files.file_columns import keeps_values
from storage.format.files.file_formats import format_of
from storage.format.metadata.file_meta import DataFileMeta, FileSource, IndexType, ManifestEntry
from storage.format.metadata.layout import value_text
from storage.format.metadata.snapshot import Snapshot, SnapshotStore, list_tags
from storage.format.row.binary_row import decode_row
from storage.format.types.types import field_to_json, type_name
from storage.table.commit.live_files import index_entries, live_state
from storage.table.core import TableCore
from storage.table.inspect.statistics import read_statistics
from storage.table.inspect.system import row_tables
from storage.table.inspect.system.columns import (
    field_text,
    key_text,
    local_time,
    map_text,
    partition_text,
    schema_of,
    shown_options,
    shown_snapshot,
    table_of,
)
from storage.table.read.missing_files import explain_missing_files
from storage.table.retention.consumers import all_consumers
from storage.table.retention.expire_partitions import success_times
from storage.table.retention.reachability import branch_names
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags

# `$files`, `$file_key_ranges`, `$partitions`, `$buckets`: the live files of a snapshot.
#
# Source: SEMANTICS.md §I. Options of time travel choose the snapshot. Counts are of rows before
# merging.


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


# System tables of metadata: snapshots, schemas, tags, manifests, index files, statistics, options.
#
# Source: SEMANTICS.md §I; columns as in Java, in its order. Options of time travel choose the
# snapshot of `$manifests`, `$table_indexes` and `$statistics`.


_MANIFESTS = schema_of("""
    file_name text, file_size long, num_added_files long, num_deleted_files long, schema_id long,
    min_partition_stats text?, max_partition_stats text?, min_row_id long?, max_row_id long?
""")
_INDEXES = schema_of("""
    partition text?, bucket int, index_type text, file_name text, file_size long, row_count long,
    dv_ranges vectors?, row_range_start long?, row_range_end long?, index_field_id int?,
    index_field_name text?
""")
_STATISTICS = schema_of("""
    snapshot_id long, schema_id long, mergedRecordCount long?, mergedRecordSize long?, colstat text?
""")
_AGGREGATION = schema_of("""
    field_name text, field_type text, function text?, function_options text?, comment text?
""")


def manifests_table(table: TableCore) -> pa.Table:
    """One row per manifest of a snapshot, those of its changelog last."""
    rows = []
    snapshot = shown_snapshot(table)
    if snapshot is not None:
        with explain_missing_files(table, snapshot.id):
            metas = list(itertools.chain(*table.manifests.read_lists(snapshot.lists)))
        for meta in metas:
            stats = meta.partition_stats
            bounded = len(stats.null_counts) == len(table.schema.partition_keys)
            low, high = (stats.min_values, stats.max_values) if bounded else (None, None)
            rows.append(
                {
                    **{name: getattr(meta, name, None) for name in _MANIFESTS.names},
                    "min_partition_stats": None if low is None else _partition(table, low),
                    "max_partition_stats": None if high is None else _partition(table, high),
                }
            )
    return table_of(_MANIFESTS, rows)


def table_indexes_table(table: TableCore) -> pa.Table:
    """One row per table index file of a snapshot."""
    rows = []
    snapshot = shown_snapshot(table)
    if snapshot is not None:
        with explain_missing_files(table, snapshot.id):
            entries = index_entries(table, snapshot)
        for entry in entries:
            vectors = entry.file.deletion_vectors
            ranges = None
            if vectors is not None:
                ranges = [
                    {
                        "f0": vector.data_file_name,
                        "f1": vector.offset,
                        "f2": vector.length,
                        "_CARDINALITY": vector.cardinality,
                    }
                    for vector in vectors
                ]
            rows.append(
                {
                    "partition": _partition(table, entry.partition),
                    "bucket": entry.bucket,
                    "index_type": str(entry.file.index_type),
                    "file_name": entry.file.file_name,
                    "file_size": entry.file.file_size,
                    "row_count": entry.file.row_count,
                    "dv_ranges": ranges,
                }
            )
    return table_of(_INDEXES, rows)


def statistics_table(table: TableCore) -> pa.Table:
    """The statistics of the snapshot: one row, or none."""
    snapshot = shown_snapshot(table)
    statistics = None if snapshot is None else read_statistics(table, snapshot)
    rows = []
    if statistics is not None:
        document = json.loads(statistics.to_json())
        rows.append(
            {
                "snapshot_id": statistics.snapshot_id,
                "schema_id": statistics.schema_id,
                "mergedRecordCount": statistics.merged_record_count,
                "mergedRecordSize": statistics.merged_record_size,
                "colstat": _as_jackson(document.get("colStats") or {}),
            }
        )
    return table_of(_STATISTICS, rows)


def _as_jackson(value: Mapping[str, Any]) -> str:
    """JSON text with the blanks that Java's writer puts into it."""
    if not value:
        return "{ }"
    return json.dumps(value, indent=2, separators=(",", " : "), ensure_ascii=False)


def aggregation_fields_table(table: TableCore) -> pa.Table:
    """One row per column of the newest schema, with its `fields.<name>.*` options."""
    schema = table.schemas.latest() or table.schema
    by_field: dict[str, list[tuple[str, str]]] = {}
    for key, value in schema.options.items():
        parts = key.split(".")
        if len(parts) > 2 and parts[0] == "fields":
            by_field.setdefault(parts[1], []).append((key, value))
    rows = []
    for field in schema.fields:
        options = by_field.get(field.name, [])
        rows.append(
            {
                "field_name": field.name,
                "field_type": type_name(field.type),
                "function": "[" + ", ".join(value for _, value in options) + "]",
                "function_options": "[" + ", ".join(key for key, _ in options) + "]",
                "comment": field.description,
            }
        )
    return table_of(_AGGREGATION, rows)


def _partition(table: TableCore, partition: bytes) -> str:
    return partition_text(table.schema, partition)


_SNAPSHOTS = schema_of("""
    snapshot_id long, schema_id long, commit_user text, commit_identifier long, commit_kind text,
    commit_time time, base_manifest_list text, delta_manifest_list text,
    changelog_manifest_list text?, total_record_count long?, delta_record_count long?,
    changelog_record_count long?, watermark long?, next_row_id long?, operation text?,
    writer_version text?
""")
_SCHEMAS = schema_of("""
    schema_id long, fields text, partition_keys text, primary_keys text, options text,
    comment text?, update_time time
""")
_OPTIONS = schema_of("key text, value text")
_TAGS = schema_of("""
    tag_name text, snapshot_id long, schema_id long, commit_time time, record_count long?,
    create_time time?, time_retained text?, branches text
""")
_BRANCHES = schema_of("branch_name text, create_time time")
_CONSUMERS = schema_of("consumer_id text, next_snapshot_id long")


def snapshots_table(table: TableCore) -> pa.Table:
    """One row per snapshot, ascending; those that expire meanwhile are left out."""
    rows = []
    ids = table.snapshots.ids()
    table.snapshots.preload(ids)
    for snapshot_id in ids:
        try:
            snapshot = table.snapshots.recall(snapshot_id)
        except NotFoundError:
            continue
        row = {name: getattr(snapshot, name, None) for name in _SNAPSHOTS.names}
        row |= {
            "snapshot_id": snapshot.id,
            "commit_kind": snapshot.commit_kind.value,
            "commit_time": local_time(snapshot.time_ms),
            "operation": snapshot.extra.get("operation"),
            "writer_version": snapshot.extra.get("writerVersion"),
        }
        rows.append(row)
    return table_of(_SNAPSHOTS, rows)


def schemas_table(table: TableCore) -> pa.Table:
    """One row per version of the schema, ascending."""
    rows = (
        {
            "schema_id": schema.id,
            "fields": _json([field_to_json(field) for field in schema.fields]),
            "partition_keys": _json(list(schema.partition_keys)),
            "primary_keys": _json(list(schema.primary_keys)),
            "options": _json(shown_options(schema.options)),
            "comment": schema.comment,
            "update_time": local_time(schema.time_ms),
        }
        for schema in map(table.schemas.read, table.schemas.ids())
    )
    return table_of(_SCHEMAS, rows)


def options_table(table: TableCore) -> pa.Table:
    """The options that the newest schema sets, without secrets."""
    newest = table.schemas.latest() or table.schema
    rows = [{"key": key, "value": text} for key, text in shown_options(newest.options).items()]
    return table_of(_OPTIONS, rows)


def tags_table(table: TableCore) -> pa.Table:
    """One row per tag, by name.

    `branches` are those that start at the tag: a column of the documents of Paimon 0.8 that later
    versions lack, so it is the last.
    """
    branches = _branches_by_tag(table)
    rows = [
        {
            "tag_name": tag.name,
            "snapshot_id": tag.snapshot.id,
            "schema_id": tag.snapshot.schema_id,
            "commit_time": local_time(tag.snapshot.time_ms),
            "record_count": tag.snapshot.total_record_count,
            "create_time": _wall(tag.created),
            "time_retained": _duration(tag.time_retained_ms),
            "branches": f"[{', '.join(branches.get(tag.name, ()))}]",
        }
        for tag in sorted(all_tags(table), key=lambda tag: tag.name)
    ]
    return table_of(_TAGS, rows)


def _branches_by_tag(table: TableCore) -> dict[str, list[str]]:
    """Names of the branches created from a tag: those whose first snapshot is that of the tag."""
    by_tag: dict[str, list[str]] = {}
    for name in branch_names(table):
        layout = dataclasses.replace(table.layout, branch=name)
        snapshots = SnapshotStore(table.file_io, layout)
        ids = snapshots.ids()
        for tag in list_tags(table.file_io, layout):
            if ids and tag.snapshot.id == ids[0]:
                by_tag.setdefault(tag.name, []).append(name)
    return by_tag


def branches_table(table: TableCore) -> pa.Table:
    """One row per branch besides `main`, by name."""
    times = {file.name: file.modified_ms for file in table.file_io.list(table.layout.branches_dir)}
    rows = [
        {"branch_name": name, "create_time": local_time(times.get(f"branch-{name}", 0))}
        for name in branch_names(table)
    ]
    return table_of(_BRANCHES, rows)


def consumers_table(table: TableCore) -> pa.Table:
    """One row per consumer, by name."""
    rows = [
        {"consumer_id": name, "next_snapshot_id": next_id}
        for name, next_id in all_consumers(table).items()
    ]
    return table_of(_CONSUMERS, rows)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _wall(moment: datetime.datetime | None) -> int | None:
    if moment is None:
        return None
    since_epoch = moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)  # noqa: DTZ001
    return since_epoch // datetime.timedelta(milliseconds=1)


def _duration(milliseconds: int | None) -> str | None:
    """As Java's `Duration.toString`: hours, minutes and seconds."""
    if milliseconds is None:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    hours, minutes, second = seconds // 3600, seconds // 60 % 60, seconds % 60
    text = f"{hours}H" if hours else ""
    text += f"{minutes}M" if minutes else ""
    if second or rest or not text:
        text += f"{second}" + (f".{rest:03d}".rstrip("0") if rest else "") + "S"
    return "PT" + text


SYSTEM_TABLES: Mapping[str, Callable[[FileStoreTable], pa.Table]] = {
    "snapshots": snapshots_table,
    "schemas": schemas_table,
    "options": options_table,
    "audit_log": row_tables.audit_log_table,
    "binlog": row_tables.binlog_table,
    "ro": row_tables.read_optimized_table,
    "files": files_table,
    "tags": tags_table,
    "branches": branches_table,
    "consumers": consumers_table,
    "manifests": manifests_table,
    "aggregation_fields": aggregation_fields_table,
    "partitions": partitions_table,
    "buckets": buckets_table,
    "statistics": statistics_table,
    "table_indexes": table_indexes_table,
    "file_key_ranges": file_key_ranges_table,
}
"""Reader by name, without the `$`."""


def system_table(
    table: FileStoreTable, name: str, options: Mapping[str, str | None] | None = None
) -> pa.Table:
    """The rows of a system table.

    Args:
        name: without the `$`.
        options: dynamic options of the table, as those of time travel.

    Raises:
        NotFoundError: there is no system table of that name, or no snapshot that options name.
    """
    reader = SYSTEM_TABLES.get(name.lower())
    if reader is None:
        raise NotFoundError(
            "there is no system table of this name",
            hint=f"there are {', '.join(SYSTEM_TABLES)}",
            name=name,
            table=table.layout.root,
        )
    return reader(table.with_options(options) if options else table)
