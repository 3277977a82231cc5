# SPDX-License-Identifier: Apache-2.0
"""Source ranges in, chunks out; and chunks in, committed rows out, without Spark between them."""

import itertools

import orjson
import pyarrow as pa
import pytest

from ingest.decode.events import BadRecord, DecodeResult
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import BatchPlan, ChunkKind, chunks_of
from ingest.pipeline.tasks import MapSide, reduce_chunks
from ingest.schema.new_tables import quarantine_schema
from ingest.source.records import RawBatch, SourceRange
from ingest.state.stream_state import Warehouse
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import InternalError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import AtomicType, TypeRoot
from tests.unit.ingest.avro_events import Extra
from tests.unit.ingest.lake_settings import lake_settings

TOPIC = "shop.inventory.items"
BIGINT = AtomicType(TypeRoot.BIGINT)
STRING = AtomicType(TypeRoot.VARCHAR, length=2_147_483_647)


@pytest.fixture
def catalog(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    catalog.create_database("lakeward")
    catalog.create_table("lakeward._quarantine", quarantine_schema(0))
    return catalog


def make_table(catalog, partitions=(), **options):
    schema = new_schema(
        [("id", BIGINT), ("name", STRING)],
        primary_keys=("id",),
        partition_keys=partitions,
        options={"bucket": "1", **options},
        now_ms=0,
    )
    catalog.create_table("shop.items", schema)
    return catalog.table("shop.items")


@pytest.fixture
def settings(tmp_path, catalog):
    return lake_settings(tmp_path)


def event(op, key, name=None, before=None):
    after = None if op == "d" else {"id": key, "name": name}
    value = {
        "before": {"id": key} if op == "d" else before,
        "after": after,
        "op": op,
        "source": {"db": "shop", "schema": "inventory", "table": "items", "ts_ms": 1_000 + key},
        "ts_ms": 2_000,
    }
    return orjson.dumps({"id": key}), orjson.dumps(value)


def raw(events, start=0):
    keys, values = zip(*events, strict=True)
    offsets = list(range(start, start + len(events)))
    return RawBatch(TOPIC, 0, offsets, list(keys), list(values))


def run_map(settings, plan, batches):
    side = MapSide(Decoding(settings), plan)
    end = batches[-1].offsets[-1] + 1
    piece = SourceRange(TOPIC, 0, batches[0].offsets[0], end)
    chunks = list(
        itertools.chain.from_iterable(chunks_of(batch) for batch in side.read(piece, batches))
    )
    return chunks, side.report


def plan_of(tables, **more):
    return BatchPlan(batch_id=0, identifier=1, time_ms=5, tables=tables, **more)


def write_and_read(table, settings, plan, chunks):
    by_bucket = {}
    for chunk in chunks:
        by_bucket.setdefault((chunk.table, chunk.bucket), []).append(chunk)
    results = [
        reduce_chunks(Warehouse.of(settings.sink), plan, reversed(part))
        for part in by_bucket.values()
    ]
    messages = [m for r in results if r.table == "shop.items" for m in r.messages]
    table.new_commit("shop").commit(messages, plan.identifier)
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def test_the_last_change_of_a_key_is_kept_and_deletes_delete(catalog, settings):
    table = make_table(catalog)
    plan = plan_of({"shop.items": 0, "lakeward._quarantine": 0})
    events = [event("c", 1, "a"), event("c", 2, "b"), event("u", 1, "A"), event("d", 2)]
    chunks, report = run_map(settings, plan, [raw(events)])
    assert [chunk.kind for chunk in chunks] == [ChunkKind.CHANGES]
    assert report.tables["shop.items"].rows == 4
    assert (report.tables["shop.items"].min_ts_ms, report.tables["shop.items"].max_ts_ms) == (
        1_001,
        1_002,
    )
    assert write_and_read(table, settings, plan, chunks) == [{"id": 1, "name": "A"}]


def test_chunks_arriving_in_any_order_give_source_order(catalog, settings):
    table = make_table(catalog)
    plan = plan_of({"shop.items": 0})
    first, _ = run_map(settings, plan, [raw([event("c", 1, "old")], start=0)])
    second, _ = run_map(settings, plan, [raw([event("u", 1, "new")], start=1)])
    assert write_and_read(table, settings, plan, first + second) == [{"id": 1, "name": "new"}]


def test_the_same_plan_and_range_give_the_same_chunks(catalog, settings):
    make_table(catalog, bucket="3")
    plan = plan_of({"shop.items": 0})
    events = [event("c", key % 7, f"n{key}") for key in range(100)]
    once, _ = run_map(settings, plan, [raw(events)])
    again, _ = run_map(settings, plan, [raw(events)])
    assert [(c.bucket, c.order, bytes(c.payload)) for c in once] == [
        (c.bucket, c.order, bytes(c.payload)) for c in again
    ]
    assert len({chunk.bucket for chunk in once}) == 3


def test_rows_below_a_tables_floor_are_dropped(catalog, settings):
    make_table(catalog)
    floors = {"shop.items": {TOPIC: {"0": 2}}}
    plan = plan_of({"shop.items": 0}, floors=floors)
    _, report = run_map(settings, plan, [raw([event("c", key, "x") for key in range(4)])])
    assert report.tables["shop.items"].rows == 2


def test_skipped_tables_get_no_chunks(catalog, settings):
    make_table(catalog)
    plan = plan_of({"shop.items": 0}, skip=("shop.items",))
    chunks, report = run_map(settings, plan, [raw([event("c", 1, "x")])])
    assert chunks == []
    assert report.records == {TOPIC: 1}


def test_an_unknown_table_is_reported_and_not_written(catalog, settings):
    chunks, report = run_map(settings, plan_of({}), [raw([event("c", 1, "x")])])
    assert chunks == []
    (delta,) = report.deltas
    assert (delta.target, delta.primary_key) == ("shop.items", ("id",))


def test_a_record_that_does_not_decode_becomes_a_quarantine_row(catalog, settings):
    make_table(catalog)
    plan = plan_of({"shop.items": 0, "lakeward._quarantine": 0})
    bad = RawBatch(TOPIC, 0, [0, 1], [b"k", None], [b"{broken", event("c", 1, "x")[1]])
    chunks, report = run_map(settings, plan, [bad])
    assert {chunk.table for chunk in chunks} == {"shop.items", "lakeward._quarantine"}
    assert report.bad == {TOPIC: {"json": 1}}
    quarantine = catalog.table("lakeward._quarantine")
    part = [chunk for chunk in chunks if chunk.table != "shop.items"]
    result = reduce_chunks(Warehouse.of(settings.sink), plan, part)
    quarantine.new_commit("shop").commit(list(result.messages), 1)
    (row,) = quarantine.to_arrow().to_pylist()
    assert (row["topic"], row["partition"], row["offset"]) == (TOPIC, 0, 0)
    assert (row["key"], row["value"], row["error_class"]) == (b"k", b"{broken", "json")


def test_deletes_that_a_table_ignores_do_not_hide_the_row(catalog, settings):
    table = make_table(catalog, **{"ignore-delete": "true"})
    plan = plan_of({"shop.items": 0})
    chunks, _ = run_map(settings, plan, [raw([event("c", 1, "x"), event("d", 1)])])
    assert write_and_read(table, settings, plan, chunks) == [{"id": 1, "name": "x"}]


def test_chunks_of_another_schema_are_refused(catalog, settings):
    table = make_table(catalog)
    chunks, _ = run_map(settings, plan_of({"shop.items": 0}), [raw([event("c", 1, "x")])])
    table.alter([AddColumn("more", STRING)])
    with pytest.raises(InternalError, match="schema"):
        reduce_chunks(Warehouse.of(settings.sink), plan_of({"shop.items": 1}), chunks)


def test_payload_columns_are_the_tables_then_kind_and_offset(catalog, settings):
    make_table(catalog)
    chunks, _ = run_map(settings, plan_of({"shop.items": 0}), [raw([event("c", 1, "x")])])
    with pa.ipc.open_stream(chunks[0].payload) as reader:
        assert reader.schema.names == ["id", "name", "_VALUE_KIND", "_OFFSET"]


def test_records_of_a_grown_primary_key_go_to_quarantine_not_into_one_row(catalog, settings):
    table = make_table(catalog, **{"lakeward.source-table": "shop.inventory.items"})
    plan = plan_of({"shop.items": 0, "lakeward._quarantine": 0})
    grown = [
        (orjson.dumps({"id": 1, "region": region}), event("c", 1, region)[1])
        for region in ("eu", "us")
    ]
    chunks, report = run_map(settings, plan, [raw([event("c", 1, "a"), *grown])])
    assert report.bad == {TOPIC: {"primary_key_changed": 2}}
    assert report.counts == {TOPIC: {"op.c": 1}}, "a record is counted once"
    items = [chunk for chunk in chunks if chunk.table == "shop.items"]
    assert write_and_read(table, settings, plan, items) == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_an_index_finds_buckets_and_keeps_to_them(catalog, settings, producer):
    options = {"dynamic-bucket.target-row-num": "3", "changelog-producer": producer}
    table = make_table(catalog, bucket="-1", **options)
    events = [event("c", key, f"n{key}") for key in range(10)]
    chunks, _ = run_map(settings, plan_of({"shop.items": 0}), [raw(events)])
    assert {chunk.bucket for chunk in chunks} == {-1}
    write_and_read(table, settings, plan_of({"shop.items": 0}), chunks)
    before = {entry.bucket for entry in table.new_scan().live_entries(table.latest_snapshot())}
    assert len(before) == 4

    more = [event("u", key, "new") for key in range(0, 10, 2)] + [event("d", 1)]
    chunks, _ = run_map(settings, plan_of({"shop.items": 0}), [raw(more, start=10)])
    again = BatchPlan(batch_id=1, identifier=2, time_ms=5, tables={"shop.items": 0})
    rows = write_and_read(table, settings, again, chunks)
    assert [row["id"] for row in rows] == [0, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [row["name"] for row in rows if row["id"] % 2 == 0] == ["new"] * 5


def test_a_key_moves_between_partitions_with_its_row(catalog, settings):
    table = make_table(catalog, ("name",), bucket="-1")
    for number, events in enumerate(
        ([event("c", 1, "a"), event("c", 2, "b")], [event("u", 1, "b"), event("u", 2, "c")])
    ):
        plan = BatchPlan(batch_id=0, identifier=number, time_ms=5, tables={"shop.items": 0})
        chunks, _ = run_map(settings, plan, [raw(events, start=10 * number)])
        rows = write_and_read(table, settings, plan, chunks)
    assert rows == [{"id": 1, "name": "b"}, {"id": 2, "name": "c"}]


def test_values_that_did_not_change_stay_through_a_whole_batch(catalog, settings):
    table = make_table(catalog)
    missing = "__debezium_unavailable_value"
    batches = (
        [event("c", 1, "large one"), event("c", 2, "large two"), event("u", 2, missing)],
        [event("u", 1, missing), event("u", 2, "other"), event("u", 2, missing)],
    )
    for number, events in enumerate(batches):
        plan = BatchPlan(batch_id=0, identifier=number, time_ms=5, tables={"shop.items": 0})
        chunks, _ = run_map(settings, plan, [raw(events, start=10 * number)])
        rows = write_and_read(table, settings, plan, chunks)
    assert rows == [{"id": 1, "name": "large one"}, {"id": 2, "name": "other"}]


def test_events_of_a_parked_table_are_left_alone_and_their_topic_is_noted(catalog, settings):
    make_table(catalog)
    plan = plan_of({"lakeward._quarantine": 0}, parked=("shop.items",))
    wrong = event("c", 2, {"no": "text"})
    chunks, report = run_map(settings, plan, [raw([event("c", 1, "x"), wrong])])
    assert (chunks, report.deltas, report.bad) == ([], [], {})
    assert report.counts == {TOPIC: {"unrouted": 2}}
    assert report.feeds == {"shop.items": {TOPIC}}


def test_bad_records_of_a_table_that_is_read_again_are_quarantined_again(catalog, settings):
    make_table(catalog)
    floors = {"lakeward._quarantine": {TOPIC: {"0": 10}}}
    plan = plan_of(
        {"lakeward._quarantine": 0}, floors=floors, bad_floors={"shop.items": {TOPIC: {"0": 1}}}
    )
    records = [
        BadRecord(offset, -1, None, b"", (), "type", "", target)
        for offset, target in enumerate(["shop.items", "shop.items", "shop.other", ""])
    ]
    side = MapSide(Decoding(settings), plan)
    side._take(raw([event("c", 1, "x")] * 4), DecodeResult([], records, [], {}))
    assert side.report.bad == {TOPIC: {"type": 1}}
    assert side.report.tables["lakeward._quarantine"].rows == 1


def moving(old, new, name):
    """What Debezium writes when a key changes: delete, tombstone, insert; and their headers."""
    (old_key, deleted), (new_key, created) = event("d", old), event("c", new, name)
    records = [(old_key, deleted), (old_key, None), (new_key, created)]
    return records, [("__debezium.newkey", new_key), None, ("__debezium.oldkey", old_key)]


def raw_with_headers(pieces, start):
    records = [record for some, _ in pieces for record in some]
    headers = [header for _, some in pieces for header in some]
    batch = raw(records, start)
    extras = {at: Extra([header], 1) for at, header in enumerate(headers) if header}
    return RawBatch(TOPIC, 0, batch.offsets, batch.keys, batch.values, extras=extras)


@pytest.mark.parametrize("target_bytes", [1, 8 << 20])
def test_values_that_did_not_change_move_with_the_key(catalog, settings, monkeypatch, target_bytes):
    monkeypatch.setattr("ingest.pipeline.tasks.CHUNK_TARGET_BYTES", target_bytes)
    table = make_table(catalog)
    missing = "__debezium_unavailable_value"
    batches = (
        [([event("c", 1, "one"), event("c", 2, "two"), event("c", 3, "three")], [None] * 3)],
        [
            ([event("u", 1, "newer")], [None]),
            moving(1, 5, missing),
            moving(2, 6, missing),
            ([event("u", 5, missing), event("c", 1, "again")], [None] * 2),
            moving(5, 7, missing),
            ([event("u", 6, "sent")], [None]),
        ],
    )
    for number, pieces in enumerate(batches):
        plan = BatchPlan(batch_id=0, identifier=number, time_ms=5, tables={"shop.items": 0})
        chunks, report = run_map(settings, plan, [raw_with_headers(pieces, 100 * number)])
        assert not report.bad
        rows = write_and_read(table, settings, plan, chunks)
    assert rows == [
        {"id": 1, "name": "again"},
        {"id": 3, "name": "three"},
        {"id": 6, "name": "sent"},
        {"id": 7, "name": "newer"},
    ]


@pytest.mark.parametrize("options", [{"bucket": "2"}, {"ignore-delete": "true"}])
def test_values_do_not_move_where_another_task_may_have_the_old_row(catalog, settings, options):
    make_table(catalog, **options)
    pieces = [moving(1, 5, "__debezium_unavailable_value")]
    tables = {"shop.items": 0, "lakeward._quarantine": 0}
    _, report = run_map(settings, plan_of(tables), [raw_with_headers(pieces, 0)])
    assert report.bad[TOPIC] == {"unavailable_value": 1}


def test_pieces_of_rows_that_are_not_combined_keep_their_order(catalog, settings, monkeypatch):
    """All changes of a key count, so the last one must come last, however small the chunks."""
    monkeypatch.setattr("ingest.pipeline.tasks.CHUNK_TARGET_BYTES", 1)
    table = make_table(catalog, **{"changelog-producer": "input"})
    plan = plan_of({"shop.items": 0})
    chunks, _ = run_map(settings, plan, [raw([event("u", 1, f"n{at}") for at in range(30)])])
    assert len({chunk.order for chunk in chunks}) == len(chunks) == 30
    rows = write_and_read(table, settings, plan, chunks)
    assert rows == [{"id": 1, "name": "n29"}]
