# SPDX-License-Identifier: Apache-2.0
"""`$manifests`, `$table_indexes`, `$statistics`, `$aggregation_fields`.

Source: SEMANTICS.md §I. Options of time travel choose the snapshot of the first three.
"""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from storage.format.types.type_text import type_name
from storage.table.commit.index_files import index_entries
from storage.table.core import TableCore
from storage.table.inspect.statistics import read_statistics
from storage.table.inspect.system.columns import schema_of, shown_snapshot, table_of
from storage.table.inspect.system.texts import partition_text
from storage.table.read.missing_files import explain_missing_files

__all__ = ["aggregation_fields_table", "manifests_table", "statistics_table", "table_indexes_table"]

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
            shown = None
            if vectors is not None:
                shown = [
                    {
                        "f0": one.data_file_name,
                        "f1": one.offset,
                        "f2": one.length,
                        "_CARDINALITY": one.cardinality,
                    }
                    for one in vectors
                ]
            rows.append(
                {
                    "partition": _partition(table, entry.partition),
                    "bucket": entry.bucket,
                    "index_type": str(entry.file.index_type),
                    "file_name": entry.file.file_name,
                    "file_size": entry.file.file_size,
                    "row_count": entry.file.row_count,
                    "dv_ranges": shown,
                }
            )
    return table_of(_INDEXES, rows)


def statistics_table(table: TableCore) -> pa.Table:
    """The statistics of the snapshot: one row, or none."""
    snapshot = shown_snapshot(table)
    found = None if snapshot is None else read_statistics(table, snapshot)
    rows = []
    if found is not None:
        written = json.loads(found.to_json())
        rows.append(
            {
                "snapshot_id": found.snapshot_id,
                "schema_id": found.schema_id,
                "mergedRecordCount": found.merged_record_count,
                "mergedRecordSize": found.merged_record_size,
                "colstat": _as_jackson(written.get("colStats") or {}),
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
        found = by_field.get(field.name, [])
        rows.append(
            {
                "field_name": field.name,
                "field_type": type_name(field.type),
                "function": "[" + ", ".join(value for _, value in found) + "]",
                "function_options": "[" + ", ".join(key for key, _ in found) + "]",
                "comment": field.description,
            }
        )
    return table_of(_AGGREGATION, rows)


def _partition(table: TableCore, partition: bytes) -> str:
    return partition_text(table.schema, partition)
