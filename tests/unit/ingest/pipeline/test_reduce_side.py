# SPDX-License-Identifier: Apache-2.0
"""The reduce side of a batch over every merge engine and changelog producer with fixed buckets."""

import pyarrow as pa
import pytest

from ingest.pipeline.chunk import OFFSET_COLUMN, Chunk, ChunkKind, ipc_bytes
from ingest.pipeline.plan import BatchPlan
from ingest.pipeline.reduce_side import reduce_chunks
from ingest.state.table_cache import Warehouse
from storage.catalog.filesystem import FileSystemCatalog
from storage.format.metadata.schema import new_schema
from storage.format.metadata.snapshot import CommitKind
from storage.format.row.binary_row import encode_row
from storage.format.types.type_text import parse_type
from tests.soak.replay import replayed, rows_by_key
from tests.table_kit import rows_batch

ENGINES = {
    "deduplicate": {},
    "partial-update": {"ignore-delete": "true"},
    "aggregation": {"fields.v.aggregate-function": "sum", "ignore-delete": "true"},
    "first-row": {"ignore-delete": "true"},
}
EXPECTED = {
    "deduplicate": {(1,): (1, 5), (3,): (3, 3)},
    "partial-update": {(1,): (1, 5), (2,): (2, 2), (3,): (3, 3)},
    "aggregation": {(1,): (1, 6), (2,): (2, 2), (3,): (3, 3)},
    "first-row": {(1,): (1, 1), (2,): (2, 2), (3,): (3, 3)},
}
BATCHES = ([("+I", 1, 1), ("+I", 2, 2)], [("+U", 1, 5), ("-D", 2, 2), ("+I", 3, 3)])


def combinations():
    for engine in ENGINES:
        for producer in ("none", "input", "lookup", "full-compaction"):
            if engine == "first-row" and producer in ("input", "full-compaction"):
                continue
            yield engine, producer


def table_with(directory, options):
    catalog = FileSystemCatalog(str(directory))
    schema = new_schema(
        [("k", parse_type("BIGINT")), ("v", parse_type("BIGINT"))],
        primary_keys=("k",),
        partition_keys=(),
        options={"bucket": "1", **options},
        now_ms=0,
    )
    catalog.create_database("db")
    return catalog.create_table("db.t", schema)


def chunk(table, rows, first_offset=0):
    batch = rows_batch(table, rows)
    offsets = list(range(first_offset, first_offset + len(rows)))
    data = batch.append_column(OFFSET_COLUMN, pa.array(offsets))
    return Chunk(
        kind=ChunkKind.CHANGES,
        table="db.t",
        partition=encode_row([], []),
        topic="t",
        first_offset=first_offset,
        payload=ipc_bytes(data),
    )


def ingest(table, rows, identifier):
    """What tasks and driver do with one batch."""
    plan = BatchPlan(batch_id=identifier, identifier=identifier, tables={"db.t": table.schema.id})
    warehouse = Warehouse(table.layout.root.rsplit("/", 2)[0])
    result = reduce_chunks(warehouse, plan, [chunk(table, rows)])
    return result, table.new_commit("stream").commit(list(result.messages), identifier)


@pytest.mark.parametrize(("engine", "producer"), list(combinations()))
def test_rows_and_changelog(tmp_path, monkeypatch, engine, producer):
    monkeypatch.setenv("LAKEWARD_LOOKUP_DIRECTORY", str(tmp_path / "copies"))
    options = {"merge-engine": engine, "changelog-producer": producer, **ENGINES[engine]}
    table = table_with(tmp_path / "warehouse", options)
    for identifier, rows in enumerate(BATCHES):
        ingest(table, rows, identifier)
    assert rows_by_key(table) == EXPECTED[engine]
    if producer in ("lookup", "full-compaction"):
        replay = replayed(table)
        assert replay.wrong == []
        assert replay.rows == EXPECTED[engine]


def test_deletion_vectors_are_written_by_the_batch(tmp_path):
    options = {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"}
    table = table_with(tmp_path / "warehouse", options)
    for identifier, rows in enumerate(BATCHES):
        ingest(table, rows, identifier)
    assert rows_by_key(table) == EXPECTED["deduplicate"]
    assert replayed(table).rows == EXPECTED["deduplicate"]
    assert table.latest_snapshot().index_manifest is not None


def test_the_identifier_decides_on_full_compactions(tmp_path):
    options = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"}
    table = table_with(tmp_path / "warehouse", options)
    kinds = []
    for identifier in range(1, 7):
        _, done = ingest(table, [("+U", 1, identifier)], identifier)
        kinds.append(done.compact_snapshot_id is not None)
    assert kinds == [False, False, True, False, False, True]


def test_a_bucket_says_how_long_it_took_and_how_many_runs_it_has(tmp_path):
    table = table_with(tmp_path / "warehouse", {})
    result, done = ingest(table, BATCHES[0], 0)
    assert result.rows == {"insert": 2}
    assert result.sorted_runs == 1
    assert 0 < result.finish_seconds <= result.seconds
    assert table.snapshots.read(done.append_snapshot_id).commit_kind is CommitKind.APPEND
