# SPDX-License-Identifier: Apache-2.0
"""System tables of metadata: snapshots, schemas, tags, manifests, index files, statistics, options.

Source: SEMANTICS.md §I; columns as in Java, in its order. Options of time travel choose the
snapshot of `$manifests`, `$table_indexes` and `$statistics`.
"""

import dataclasses
import datetime
import itertools
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from storage.errors import NotFoundError
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.format.metadata.tag import list_tags
from storage.format.types.type_text import field_to_json, type_name
from storage.table.branches import branch_names
from storage.table.commit.index_files import index_entries
from storage.table.core import TableCore
from storage.table.inspect.shown_options import shown_options
from storage.table.inspect.statistics import read_statistics
from storage.table.inspect.system.columns import (
    local_time,
    partition_text,
    schema_of,
    shown_snapshot,
    table_of,
)
from storage.table.read.missing_files import explain_missing_files
from storage.table.retention.consumers import all_consumers
from storage.table.tags import all_tags

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
