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
from storage.table.inspect.system.columns import INT, LONG, TEXT, columns, shown_snapshot
from storage.table.inspect.system.texts import partition_text
from storage.table.read.missing_files import explain_missing_files

__all__ = ["aggregation_fields_table", "manifests_table", "statistics_table", "table_indexes_table"]

_MANIFESTS = {
    "file_name": TEXT,
    "file_size": LONG,
    "num_added_files": LONG,
    "num_deleted_files": LONG,
    "schema_id": LONG,
    "min_partition_stats": TEXT,
    "max_partition_stats": TEXT,
    "min_row_id": LONG,
    "max_row_id": LONG,
}
_VECTOR = pa.struct(
    [
        pa.field("f0", TEXT, nullable=False),
        pa.field("f1", INT, nullable=False),
        pa.field("f2", INT, nullable=False),
        pa.field("_CARDINALITY", LONG),
    ]
)
_INDEXES = {
    "partition": TEXT,
    "bucket": INT,
    "index_type": TEXT,
    "file_name": TEXT,
    "file_size": LONG,
    "row_count": LONG,
    "dv_ranges": pa.list_(pa.field("element", _VECTOR)),
    "row_range_start": LONG,
    "row_range_end": LONG,
    "index_field_id": INT,
    "index_field_name": TEXT,
}
_STATISTICS = {
    "snapshot_id": LONG,
    "schema_id": LONG,
    "mergedRecordCount": LONG,
    "mergedRecordSize": LONG,
    "colstat": TEXT,
}
_AGGREGATION = {
    "field_name": TEXT,
    "field_type": TEXT,
    "function": TEXT,
    "function_options": TEXT,
    "comment": TEXT,
}


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
                    **{name: getattr(meta, name, None) for name in _MANIFESTS},
                    "min_partition_stats": None if low is None else _partition(table, low),
                    "max_partition_stats": None if high is None else _partition(table, high),
                }
            )
    optional = "min_partition_stats max_partition_stats min_row_id max_row_id"
    return columns(_MANIFESTS, rows, nullable=optional)


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
    optional = "partition dv_ranges row_range_start row_range_end index_field_id index_field_name"
    return columns(_INDEXES, rows, nullable=optional)


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
    return columns(_STATISTICS, rows, nullable="mergedRecordCount mergedRecordSize colstat")


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
    return columns(_AGGREGATION, rows, nullable="function function_options comment")


def _partition(table: TableCore, partition: bytes) -> str:
    return partition_text(table.schema, partition)
