# SPDX-License-Identifier: Apache-2.0
"""Avro source ranges in, chunks out, with a stub of a schema registry behind the decoder."""

import dataclasses

import pytest

from ingest.daemon.configuration import load_settings
from ingest.daemon.retry import error_in
from ingest.errors import AccessDeniedError, ExitCode, exit_code_of
from ingest.pipeline.decoding import Decoding
from ingest.pipeline.exchange import ChunkKind
from ingest.pipeline.tasks import reduce_chunks
from ingest.schema.new_tables import quarantine_schema
from ingest.state.stream_state import Warehouse
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import InvalidRequestError, RetryableError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import AtomicType, TypeRoot
from tests.unit.ingest.avro_events import TOPIC, Writer, batch, envelope, event, key_schema
from tests.unit.ingest.pipeline.test_map_side import plan_of, run_map
from tests.unit.ingest.stub_registry import stub_registry

KEY = Writer(key_schema(id="long"), 1)
VALUE = Writer(envelope({"id": "long", "v": "string"}), 2)
GROWN = Writer(key_schema(id="long", region="string"), 3)
PLAN = plan_of({"shop.orders": 0, "lakeward._quarantine": 0})


@pytest.fixture
def stub():
    with stub_registry() as running:
        for writer in (KEY, VALUE, GROWN):
            running.add(int.from_bytes(writer.prefix[1:], "big"), writer.schema)
        yield running


@pytest.fixture
def catalog(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    for database in ("shop", "lakeward"):
        catalog.create_database(database)
    catalog.create_table("lakeward._quarantine", quarantine_schema(0))
    schema = new_schema(
        [
            ("id", AtomicType(TypeRoot.BIGINT, nullable=False)),
            ("v", AtomicType(TypeRoot.VARCHAR, length=2_147_483_647)),
        ],
        primary_keys=("id",),
        partition_keys=(),
        options={"bucket": "1", "lakeward.source-table": "pg.shop.public.orders"},
        now_ms=0,
    )
    catalog.create_table("shop.orders", schema)
    return catalog


@pytest.fixture
def settings(tmp_path, stub):
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"""
sink: {{warehouse: {tmp_path / "lake"}}}
pipeline: {{name: shop}}
source:
  type: kafka
  bootstrap.servers: "127.0.0.1:1"
  topics: [{TOPIC}]
  format: debezium-avro
  schema.registry: {{url: "{stub.url}", retry.for: 1ms}}
"""
    )
    return load_settings(path, environ={})


def created(number, text="a"):
    return VALUE(event("c", None, {"id": number, "v": text}))


def keys(*numbers):
    return [KEY({"id": number}) for number in numbers]


def quarantined(catalog, settings, chunks):
    part = [chunk for chunk in chunks if chunk.table == "lakeward._quarantine"]
    result = reduce_chunks(Warehouse.of(settings.sink), PLAN, part)
    catalog.table("lakeward._quarantine").new_commit("shop").commit(list(result.messages), 1)
    found = catalog.table("lakeward._quarantine").to_arrow().to_pylist()
    return sorted((row["offset"], row["error_class"], row["error"]) for row in found)


def test_rows_deletes_and_one_request_per_schema(catalog, settings, stub):
    deleted = VALUE(event("d", {"id": 2, "v": "b"}))
    raw = batch([created(1), created(2, "b"), deleted, None], keys(1, 2, 2, 2))
    chunks, report = run_map(settings, PLAN, [raw, batch([created(3)], keys(3))])
    assert {chunk.kind for chunk in chunks} == {ChunkKind.CHANGES}
    assert report.counts == {TOPIC: {"op.c": 3, "op.d": 1, "tombstone": 1}}
    table = catalog.table("shop.orders")
    assert written(table, settings, chunks) == [
        {"id": 1, "v": "a"},
        {"id": 3, "v": "a"},
    ]
    asked = [path for path, _ in stub.requests]
    assert sorted(asked) == sorted(set(asked))
    again, _ = run_map(settings, PLAN, [raw, batch([created(3)], keys(3))])
    assert [bytes(chunk.payload) for chunk in again] == [bytes(chunk.payload) for chunk in chunks]


def written(table, settings, chunks):
    result = reduce_chunks(Warehouse.of(settings.sink), PLAN, chunks)
    table.new_commit("shop").commit(list(result.messages), PLAN.identifier)
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def test_a_grown_primary_key_is_seen_in_avro_keys(catalog, settings):
    grown = [GROWN({"id": 1, "region": region}) for region in ("eu", "us")]
    raw = batch([created(1), created(1, "eu"), created(1, "us")], [*keys(1), *grown])
    chunks, report = run_map(settings, PLAN, [raw])
    assert report.bad == {TOPIC: {"primary_key_changed": 2}}
    assert report.counts == {TOPIC: {"op.c": 1}}, "a record is counted once"
    found = quarantined(catalog, settings, chunks)
    assert [row[:2] for row in found] == [
        (101, "primary_key_changed"),
        (102, "primary_key_changed"),
    ]


def test_bad_records_go_to_quarantine_and_the_rest_flows(catalog, settings, stub):
    stub.add(7, {"type": "object"}, schemaType="JSON")
    stub.add(8, 'syntax = "proto3";', schemaType="PROTOBUF")
    stub.add(9, "{no schema")
    values = [
        b'{"op":"c"}',
        b"\0\0\0\0\x63junk",
        b'\0\0\0\0\7{"op": "c"}',
        b"\0\0\0\0\x08\0junk",
        b"\0\0\0\0\x09junk",
        created(1)[:-2],
        b"",
        created(5),
    ]
    chunks, report = run_map(settings, PLAN, [batch(values, keys(*range(8)))])
    assert report.bad == {TOPIC: {"avro": 6, "schema_id": 1}}
    assert report.tables["shop.orders"].rows == 1
    found = {offset: (kind, text) for offset, kind, text in quarantined(catalog, settings, chunks)}
    assert "magic byte" in found[100][1]
    assert found[101][0] == "schema_id"
    assert "id=`99` subject=`pg.public.orders-value`" in found[101][1]
    assert "schema 7 is JSON, not Avro" in found[102][1]
    assert "schema 8 is PROTOBUF, not Avro" in found[103][1]
    assert "schema 9 cannot be decoded" in found[104][1]
    assert "does not match its schema" in found[105][1]


def test_a_registry_outage_is_retryable_and_loses_nothing(catalog, settings, stub):
    raw = batch([created(1), created(2)], keys(1, 2))
    stub.away = True
    for _ in range(2):
        with pytest.raises(RetryableError, match="does not answer") as caught:
            run_map(settings, PLAN, [raw])
    assert exit_code_of(caught.value) == ExitCode.UNAVAILABLE
    stub.away = False
    _, report = run_map(settings, PLAN, [raw])
    assert (report.tables["shop.orders"].rows, report.bad) == (2, {})


def test_an_outage_in_the_middle_is_felt_by_new_schemas_only(catalog, settings, stub):
    decoding = Decoding(settings)
    decoding.use(PLAN)
    assert decoding.decode(batch([created(1)], keys(1))).counts == {"op.c": 1}
    stub.away = True
    assert decoding.decode(batch([created(2)], keys(2))).counts == {"op.c": 1}
    newer = Writer(envelope({"id": "long", "v": "string", "w": ["null", "long"]}), 4)
    changed = newer(event("c", None, {"id": 3, "v": "x", "w": 5}))
    with pytest.raises(RetryableError):
        decoding.decode(batch([created(2), changed], keys(2, 3)))
    stub.away = False
    stub.add(4, newer.schema)
    result = decoding.decode(batch([created(2), changed], keys(2, 3)))
    assert result.counts == {"op.c": 1, "pending": 1}
    assert [field.name for field in result.deltas[0].fields] == ["w"]


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_stop_the_pipeline(catalog, settings, stub, status):
    stub.failures = [(status, {"error_code": status * 100})] * 4
    with pytest.raises(AccessDeniedError) as caught:
        run_map(settings, PLAN, [batch([created(1)], keys(1))])
    assert exit_code_of(caught.value) == ExitCode.ACCESS
    text = (
        f"Traceback\n  File …\ningest.errors.AccessDeniedError: {caught.value}\n\n\tat org.apache"
    )
    found = error_in(text)
    assert isinstance(found, AccessDeniedError)
    assert exit_code_of(found) == ExitCode.ACCESS
    assert "check user and password" in str(found)


def test_what_is_no_registry_stops_the_pipeline(catalog, settings, stub):
    avro = settings.avro
    wrong = dataclasses.replace(avro.registry, urls=(f"{stub.url}/elsewhere",))
    settings = dataclasses.replace(settings, avro=dataclasses.replace(avro, registry=wrong))
    with pytest.raises(InvalidRequestError, match="no schema registry") as caught:
        run_map(settings, PLAN, [batch([created(1)], keys(1))])
    assert exit_code_of(caught.value) == ExitCode.CONFIG
