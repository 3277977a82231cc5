# SPDX-License-Identifier: Apache-2.0
"""Schemas, snapshots, statistics and buckets of tables written by Paimon's Java code."""

import functools
import json
import pathlib

import pyarrow.parquet as pq
import pytest

from storage.format.metadata.layout import TableLayout, partition_path
from storage.format.metadata.manifest import decode_entries
from storage.format.metadata.schema import SchemaStore, TableSchema
from storage.format.metadata.snapshot import Snapshot, SnapshotStore
from storage.format.row.binary_row import decode_row
from storage.format.row.bucket import assign_buckets
from storage.format.row.stats import KEY_STATS_MODE, StatsAccumulator, StatsMode
from storage.format.types.types import AtomicType, TypeRoot
from storage.io.local import LocalFileIO
from tests.unit.storage.column_stats import collect

PACK = pathlib.Path(__file__).parent / "data" / "public"
CASES = sorted(path.name for path in PACK.iterdir())
MAX_MICROS = 6


def documents(pattern):
    paths = sorted(PACK.rglob(pattern))
    assert paths
    return paths


def test_schema_files_survive_rewriting():
    for path in documents("schema/schema-*"):
        written = json.loads(TableSchema.from_json(path.read_bytes()).to_json())
        assert written == json.loads(path.read_bytes()), path


def test_snapshot_files_survive_rewriting():
    for path in [*documents("snapshot/snapshot-*"), *documents("tag/tag-*")]:
        written = json.loads(Snapshot.from_json(path.read_bytes()).to_json())
        assert written == json.loads(path.read_bytes()), path


@pytest.mark.parametrize("case", CASES)
def test_stores_find_what_is_there(case):
    layout = TableLayout(str(PACK / case / "table"))
    snapshots, schemas = (kind(LocalFileIO(), layout) for kind in (SnapshotStore, SchemaStore))
    ids = snapshots.ids()
    assert (snapshots.earliest_id(), snapshots.latest_id()) == (min(ids), max(ids))
    newest = snapshots.latest()
    assert snapshots.at_time(newest.time_ms).id == newest.id
    assert schemas.read(newest.schema_id).id == newest.schema_id
    assert schemas.latest().id == max(schemas.ids())


@functools.cache
def files_of(case):
    """(schema, manifest entry, path) of every Parquet data file that is still there."""
    table = PACK / case / "table"
    schemas = {
        schema.id: schema
        for schema in map(TableSchema.from_json, map(pathlib.Path.read_bytes, _schemas(table)))
    }
    found = []
    for manifest in sorted((table / "manifest").glob("manifest-????????-*")):
        for entry in decode_entries(manifest.read_bytes()):
            schema = schemas[entry.file.schema_id]
            partition = _partition_path(schema, entry.partition)
            layout = TableLayout(str(table))
            path = pathlib.Path(layout.data_file(partition, entry.bucket, entry.file.file_name))
            if path.suffix == ".parquet" and path.exists():
                found.append((schema, entry, path))
    return found


def _schemas(table):
    # a branch may have schemas the main line lacks
    return [*table.glob("branch/*/schema/schema-*"), *table.glob("schema/schema-*")]


def _partition_path(schema, partition):
    fields = schema.partition_fields
    values = decode_row(partition, [field.type for field in fields])
    options = schema.options
    return partition_path(
        values,
        fields,
        default_name=options.get("partition.default-name", "__DEFAULT_PARTITION__"),
        legacy=options.get("partition.legacy-name", "true") == "true",
    )


def test_partition_directories_are_where_java_put_them():
    assert sum(len(files_of(case)) for case in CASES) > 700


@pytest.mark.parametrize("case", CASES)
def test_statistics_are_those_java_stored(case):
    for schema, entry, path in files_of(case):
        options = schema.options
        default = options.get("metadata.stats-mode", "truncate(16)")
        modes = [
            StatsMode.parse(options.get(f"fields.{name}.stats-mode", default))
            for name in schema.field_names
        ]
        rows = pq.read_table(path, partitioning=None)
        statistics = StatsAccumulator(schema.fields, modes, "parquet")
        for batch in rows.to_batches(max_chunksize=3):
            statistics.add([batch[name] for name in schema.field_names])
        stats, names = statistics.dense_stats()
        if options.get("metadata.stats-dense-store") == "false":
            stats, names = statistics.stats(), None
        stored = entry.file.value_stats
        assert names == entry.file.value_stats_cols, path
        assert stats.null_counts == stored.null_counts, path
        types = [f.type for f in schema.fields if names is None or f.name in names]
        # Java takes bounds from Parquet footers, which have none for 96-bit timestamps
        known = [not is_nanos(type_) for type_ in types]
        for ours, java in (
            (stats.min_values, stored.min_values),
            (stats.max_values, stored.max_values),
        ):
            assert shown(ours, types, known) == shown(java, types, known), path
        if schema.primary_keys:
            key_types = [field.type for field in schema.key_fields]
            keys = [rows[name] for name in schema.trimmed_primary_keys]
            assert collect(keys, key_types, KEY_STATS_MODE) == entry.file.key_stats, path


def is_nanos(type_):
    timestamps = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
    is_timestamp = isinstance(type_, AtomicType) and type_.root in timestamps
    return is_timestamp and type_.precision > MAX_MICROS


def shown(framed, types, known):
    values = decode_row(framed, types)
    return [repr(value) for value, wanted in zip(values, known, strict=True) if wanted]


@pytest.mark.parametrize("case", CASES)
def test_rows_are_in_the_bucket_we_would_choose(case):
    for schema, entry, path in files_of(case):
        if schema.num_buckets <= 0 or not schema.bucket_keys:
            continue
        rows = pq.read_table(path, columns=list(schema.bucket_keys), partitioning=None)
        columns = [rows[name] for name in schema.bucket_keys]
        types = [field.type for field in map(schema.field, schema.bucket_keys)]
        function = schema.options.get("bucket-function.type", "default")
        buckets = assign_buckets(columns, types, schema.num_buckets, function)
        assert set(buckets.tolist()) <= {entry.bucket}, path
