# SPDX-License-Identifier: Apache-2.0
"""Compares `files.json` of a golden case with the snapshots and manifests as we read them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.format.metadata.file_meta import DataFileMeta, FileSource, IndexType, ManifestEntry
from storage.format.metadata.schema import TableSchema
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.types.types import DataField
from storage.table.commit.live_files import index_entries, read_hash_index
from storage.table.read.deletion_vectors import deletion_files, load_vectors
from storage.table.scan.scan import changelog_entries
from storage.table.table import FileStoreTable
from tests.golden.values import from_internal, rows_from_text

if TYPE_CHECKING:
    from tests.golden.runner import Case

__all__ = ["check_files", "format_needs"]

_SNAPSHOT_KEYS = {
    *("schema_id", "columns", "commit_kind", "commit_identifier", "total_record_count"),
    *("delta_record_count", "changelog_record_count", "watermark", "merged_row_count", "files"),
    *("index_files", "changelog_files"),
}
_FILE_KEYS = {
    *("partition", "bucket", "total_buckets", "level", "name", "rows", "deletes", "min_seq"),
    *("max_seq", "schema_id", "extra_files", "embedded_index", "source", "min_key", "max_key"),
    *("value_stats", "deleted_positions"),
}
_INDEX_KEYS = {"type", "partition", "bucket", "name", "rows", "hashes"}
_STATS_KEYS = {"dense_columns", "min", "max", "null_count", "min_hex", "max_hex"}


def format_needs(files: Mapping[str, Any], kind: str) -> list[str]:
    """Formats other than Parquet among the `files` or `changelog_files` of all snapshots."""
    names = {file["name"] for content in files.values() for file in content.get(kind) or []}
    formats = {name.rpartition(".")[2] for name in names} - {"parquet"}
    return [f"file.format={name}" for name in sorted(formats)]


def check_files(case: "Case") -> Iterator[str]:
    """Every difference between files.json and the live metadata."""
    expected = case.expected["files"]
    ids = case.table.snapshots.ids()
    if sorted(map(int, expected)) != ids:
        yield f"expected snapshots {sorted(map(int, expected))}, found {ids}"
    for snapshot_id in ids:
        for text in _check_snapshot(case.table, snapshot_id, expected.get(str(snapshot_id), {})):
            yield f"snapshot {snapshot_id}: {text}"


def _check_snapshot(
    table: FileStoreTable, snapshot_id: int, expected: Mapping[str, Any]
) -> Iterator[str]:
    unknown = set(expected) - _SNAPSHOT_KEYS
    if unknown:
        yield f"unknown keys {sorted(unknown)}"
    snapshot = table.snapshots.read(snapshot_id)
    found = _snapshot_facts(table, snapshot)
    for key, value in found.items():
        if expected.get(key) != value:
            yield f"{key}: expected {expected.get(key)}, found {value}"
    entries = table.new_scan().live_entries(snapshot)
    yield from _compare(table, expected.get("files", []), entries)
    yield from _compare_positions(table, snapshot, expected.get("files", []))
    yield from _compare_index(table, snapshot, expected.get("index_files", []))
    yield from _compare(
        table, expected.get("changelog_files") or [], changelog_entries(table, snapshot)
    )


def _snapshot_facts(table: FileStoreTable, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "schema_id": snapshot.schema_id,
        "columns": list(table.schemas.read(snapshot.schema_id).field_names),
        "commit_kind": snapshot.commit_kind.value,
        "commit_identifier": snapshot.commit_identifier,
        "total_record_count": snapshot.total_record_count,
        "delta_record_count": snapshot.delta_record_count,
        "changelog_record_count": snapshot.changelog_record_count or None,
        "watermark": snapshot.watermark,
    }


def _compare(
    table: FileStoreTable, expected: Sequence[Mapping[str, Any]], entries: Sequence[ManifestEntry]
) -> Iterator[str]:
    found = {(entry.file.level, entry.file.file_name): entry for entry in entries}
    wanted = {(file["level"], file["name"]): file for file in expected}
    for key in sorted(wanted.keys() - found.keys()):
        yield f"file {key} is not live"
    for key in sorted(found.keys() - wanted.keys()):
        yield f"file {key} should not be live"
    for key in sorted(found.keys() & wanted.keys()):
        for text in _check_file(table, wanted[key], found[key]):
            yield f"file {key[1]}: {text}"


def _compare_positions(
    table: FileStoreTable, snapshot: Snapshot, expected: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    located = deletion_files(table, snapshot)
    found: dict[str, list[int]] = {}
    for entry in table.new_scan().live_entries(snapshot):
        known = located((entry.partition, entry.bucket))
        name = entry.file.file_name
        if name in known:
            found |= {
                name: sorted(rows)
                for name, rows in load_vectors(table.file_io, {name: known[name]}).items()
            }
    wanted = {
        file["name"]: file["deleted_positions"] for file in expected if "deleted_positions" in file
    }
    wanted = {name: positions for name, positions in wanted.items() if positions is not None}
    if found != wanted:
        yield f"deleted positions: expected {wanted}, found {found}"


def _compare_index(
    table: FileStoreTable, snapshot: Snapshot, expected: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    partition = table.schema.partition_fields
    found = []
    for entry in index_entries(table, snapshot):
        facts = {
            "type": entry.file.index_type,
            "partition": _decoded(entry.partition, partition),
            "bucket": entry.bucket,
            "name": entry.file.file_name,
            "rows": entry.file.row_count,
        }
        if entry.file.index_type == IndexType.HASH:
            hashes = read_hash_index(table, entry.partition, entry.bucket, entry.file)
            facts["hashes"] = sorted(hashes.tolist())
        found.append(facts)
    wanted = [{**one, "partition": _row(one["partition"], partition)} for one in expected]
    for one in wanted:
        if set(one) - _INDEX_KEYS:
            yield f"unknown keys {sorted(set(one) - _INDEX_KEYS)} in index_files"
    if sorted(found, key=repr) != sorted(wanted, key=repr):
        yield f"index files: expected {wanted}, found {found}"


def _check_file(
    table: FileStoreTable, expected: Mapping[str, Any], entry: ManifestEntry
) -> Iterator[str]:
    unknown = set(expected) - _FILE_KEYS
    if unknown:
        yield f"unknown keys {sorted(unknown)}"
    schema = table.schemas.read(entry.file.schema_id)
    partition = table.schema.partition_fields
    wanted = _wanted_facts(expected, partition, schema)
    for key, value in _file_facts(entry, partition, schema).items():
        if key in wanted and wanted[key] != value:
            yield f"{key}: expected {wanted[key]}, found {value}"
    if "value_stats" in expected:
        yield from _check_stats(expected["value_stats"], entry.file, schema)


def _wanted_facts(
    expected: Mapping[str, Any], partition: Sequence[DataField], schema: TableSchema
) -> dict[str, Any]:
    facts = dict(expected)
    facts["partition"] = _row(expected["partition"], partition)
    for key in ("min_key", "max_key"):
        if key in expected:
            facts[key] = _row(expected[key], schema.key_fields)
    return facts


def _file_facts(
    entry: ManifestEntry, partition: Sequence[DataField], schema: TableSchema
) -> dict[str, Any]:
    file = entry.file
    source = None if file.file_source is None else FileSource(file.file_source).name
    return {
        "partition": _decoded(entry.partition, partition),
        "bucket": entry.bucket,
        "total_buckets": entry.total_buckets,
        "level": file.level,
        "rows": file.row_count,
        "deletes": file.delete_row_count,
        "min_seq": file.min_sequence_number,
        "max_seq": file.max_sequence_number,
        "schema_id": file.schema_id,
        "extra_files": list(file.extra_files),
        "embedded_index": file.embedded_index is not None,
        "source": source,
        "min_key": _decoded(file.min_key, schema.key_fields),
        "max_key": _decoded(file.max_key, schema.key_fields),
    }


def _check_stats(
    expected: Mapping[str, Any], file: DataFileMeta, schema: TableSchema
) -> Iterator[str]:
    unknown = set(expected) - _STATS_KEYS
    if unknown:
        yield f"unknown keys {sorted(unknown)} in value_stats"
    dense = None if file.value_stats_cols is None else list(file.value_stats_cols)
    if dense != expected["dense_columns"]:
        yield f"dense columns: expected {expected['dense_columns']}, found {dense}"
        return
    fields = schema.fields if dense is None else tuple(schema.field(name) for name in dense)
    stats = file.value_stats
    for name, row in (("min", stats.min_values), ("max", stats.max_values)):
        if row.hex() != expected[f"{name}_hex"]:
            yield f"{name}_hex: expected {expected[f'{name}_hex']}, found {row.hex()}"
        wanted = _row(expected[name], fields)
        if _decoded(row, fields) != wanted:
            yield f"{name}: expected {wanted}, found {_decoded(row, fields)}"
    if list(stats.null_counts) != expected["null_count"]:
        yield f"null_count: expected {expected['null_count']}, found {stats.null_counts}"


def _row(values: Sequence[Any], fields: Sequence[DataField]) -> tuple[Any, ...]:
    return rows_from_text([values], [field.type for field in fields])[0]


def _decoded(row: bytes, fields: Sequence[DataField]) -> tuple[Any, ...]:
    types = [field.type for field in fields]
    values = decode_row(row, types)
    return tuple(from_internal(value, type_) for value, type_ in zip(values, types, strict=True))
