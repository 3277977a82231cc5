# SPDX-License-Identifier: Apache-2.0
"""The reduce side of a batch over every merge engine and changelog producer with fixed buckets."""

import contextlib
import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pyarrow as pa
import pytest

from ingest.decode.events import OFFSET_COLUMN
from ingest.pipeline import tasks
from ingest.pipeline.exchange import BatchPlan, Chunk, ChunkKind, encode_chunk, ipc_bytes
from ingest.pipeline.tasks import reduce_chunks, reducer
from ingest.state.stream_state import Warehouse
from storage.errors import FileConflictError
from storage.format.metadata.snapshot import CommitKind
from storage.format.row.binary_row import encode_row
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.testing.invariants import check_table
from tests.soak.replay import replayed, rows_by_key
from tests.table_kit import make_table, rows_batch
from tests.unit.ingest import emptied_tables
from tests.unit.ingest.emptied_tables import KINDS, make_tables
from tests.unit.ingest.simulated_stream import SimulatedStream, event

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
    return make_table(directory, columns=(("k", "BIGINT"), ("v", "BIGINT")), options=options)


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


def test_a_task_gives_no_result_before_all_its_files_are_durable(tmp_path, monkeypatch):
    table = table_with(tmp_path / "warehouse", {"bucket": "2", "changelog-producer": "input"})
    plan = BatchPlan(batch_id=1, identifier=1, tables={"db.t": table.schema.id})
    context = SimpleNamespace(getLocalProperty=lambda _: plan.to_property())
    monkeypatch.setattr(tasks.TaskContext, "get", lambda: context)
    synced = set()
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    buckets = (chunk(table, [("+I", 1, 1)]), chunk(table, [("+I", 2, 2)]))
    sent = [
        encode_chunk(dataclasses.replace(one, bucket=bucket)) for bucket, one in enumerate(buckets)
    ]
    results = reducer(Warehouse(str(tmp_path / "warehouse")))(iter(sent))
    next(results)
    files = {str(path) for path in tmp_path.rglob("bucket-*/*")}
    assert len(files) == 4  # data and changelog
    assert files <= synced
    assert len(list(results)) == 1


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


@contextlib.contextmanager
def committed_meanwhile(stream, statement):
    """A statement that is committed while a batch is written."""
    commit_all = stream.sink._commit_all

    def commit(*arguments):
        statement()
        return commit_all(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream.sink, "_commit_all", commit)
        yield


STATEMENTS = {
    "update": lambda table: table.update_where({"n": 7}, "id < 8", "sql"),
    "delete": lambda table: table.delete_where("id < 8", "sql"),
}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("kind", sorted({*KINDS} - {"moving"}))  # see below
def test_a_batch_counts_as_later_than_a_statement_that_was_committed_while_it_was_written(
    tmp_path, monkeypatch, kind, statement
):
    stream = SimulatedStream(tmp_path, monkeypatch)
    make_tables(stream, [kind])
    table = f"shop.{kind}"

    def batch(*records):
        for record in records:
            stream.topics.add("a", 0, *event(kind, *record))
        stream.batch()

    batch((0, 0))  # offsets begin
    for start in (0, 6):
        batch(*((key, key) for key in range(start, start + 6)))
    with committed_meanwhile(stream, lambda: STATEMENTS[statement](stream.catalog.table(table))):
        batch((0, 100), (5, 0, "d"), (9, 900), (20, 1))
    rows = {key: 7 for key in range(8) if statement == "update"}
    rows |= {0: 100, 8: 8, 9: 900, 10: 10, 11: 11, 20: 1}
    rows.pop(5, None)
    if kind != "vectors":  # where rows are read once they are compacted
        assert stream.rows(table) == rows
    with ThreadPoolExecutor(1) as executor:
        compact_table(stream.catalog.table(table), CompactRequest(), executor)
    assert stream.rows(table) == rows
    check_table(stream.catalog.table(table))
    if kind in ("lookup", "full"):
        assert emptied_tables.replayed(stream.catalog.table(table))[0] == rows


def test_a_delete_is_not_compacted_away_beside_an_older_row_that_was_committed_meanwhile(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(KINDS, "busy", {"bucket": "1", "num-sorted-run.compaction-trigger": "2"})
    stream = SimulatedStream(tmp_path, monkeypatch)
    make_tables(stream, ["busy"])
    stream.topics.add("a", 0, *event("busy", 1, 1))
    stream.work()
    stream.topics.add("a", 0, *event("busy", 1, 0, "d"))
    writer = stream.catalog.table("shop.busy").with_options({"write-only": "true"})
    with committed_meanwhile(stream, lambda: writer.update_where({"n": 7}, "id = 1", "sql")):
        stream.batch()
    assert stream.rows("shop.busy") == {}
    stream.topics.add("a", 0, *event("busy", 2, 2))
    stream.batch()
    assert stream.rows("shop.busy") == {2: 2}
    newest = stream.catalog.table("shop.busy").latest_snapshot()
    assert newest.commit_kind is CommitKind.COMPACT, "the next batch compacts"


def test_a_statement_beside_a_batch_makes_the_batch_of_moving_keys_run_again(tmp_path, monkeypatch):
    stream = SimulatedStream(tmp_path, monkeypatch)
    make_tables(stream, ["moving"])
    for key in range(6):
        stream.topics.add("a", 0, *event("moving", key, key))
    stream.work()
    table = stream.catalog.table("shop.moving")
    stream.topics.add("a", 0, *event("moving", 5, 0, "d"))
    stream.topics.add("a", 0, *event("moving", 0, 100))
    with (
        committed_meanwhile(stream, lambda: table.update_where({"n": 7}, "id < 6", "sql")),
        pytest.raises(FileConflictError, match="one job at a time"),
    ):
        stream.batch()
    stream.open()
    stream.work()
    found = stream.catalog.table("shop.moving").to_arrow().to_pylist()
    assert sorted((row["id"], row["n"]) for row in found) == [
        (0, 100),
        (1, 7),
        (2, 7),
        (3, 7),
        (4, 7),
    ]
