# SPDX-License-Identifier: Apache-2.0
"""`lakeward plan`: topics to tables, from a sample, with nothing written."""

import dataclasses
import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest

from ingest.cli import main as cli
from ingest.config.source_settings import KafkaSourceSettings
from ingest.daemon.configuration import load_settings
from ingest.source.kafka import KafkaSource
from ingest.source.records import RawBatch
from ingest.tools.plan import sample
from ingest.tools.plan.outline import Outline, plan_text
from ingest.tools.plan.planner import outline_of, planned
from ingest.tools.plan.sample import TopicSample, rehearse, topic_samples
from storage.catalog.catalog import FileSystemCatalog
from storage.errors import NotFoundError
from storage.format.metadata.schema import new_schema
from storage.format.types.types import parse_type
from tests.unit.ingest.captured_events import FOLDER, load
from tests.unit.ingest.debezium_events import connect_block, connect_field, dumps, event
from tests.unit.ingest.stub_registry import stub_registry

COLUMNS = connect_block(
    connect_field("id", "int64"),
    connect_field("name", "string"),
    connect_field("at", "int64", "io.debezium.time.MicroTimestamp"),
    connect_field(
        "price",
        "bytes",
        "org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "9"},
    ),
)


def row(number, name="x"):
    return {"id": number, "name": name, "at": 1_700_000_000_000_000, "price": "AQ=="}


def line(value, key=None):
    return dumps({"key": key, "value": value})


def blocked(payload):
    return {"schema": COLUMNS, "payload": payload}


@pytest.fixture
def shop(tmp_path):
    """Makes a directory of events and a configuration."""

    def make(topics, extra="", source=""):
        events = tmp_path / "events"
        events.mkdir(exist_ok=True)
        for topic, lines in topics.items():
            (events / f"{topic}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        path = tmp_path / "shop.yaml"
        path.write_text(
            f"source: {{type: files, path: {events}{source}}}\n"
            f"sink: {{warehouse: {tmp_path / 'lake'}}}\npipeline: {{name: shop}}\n{extra}"
        )
        return path

    return make


def snapshot(count, **source):
    return [line(blocked(event("r", None, row(n), **source)), {"id": n}) for n in range(count)]


def plan(path, **options) -> Outline:
    return planned(load_settings(path, environ={}), records=1000, **options)


def codes(outline):
    return {(each.code, each.about, each.severe) for each in outline.warnings}


def test_a_new_table_with_types_of_source_and_lake(shop, tmp_path):
    outline = plan(shop({"pg.public.orders": snapshot(5)}))
    (table,) = outline.tables
    assert (table.name, table.state) == ("shop.orders", "new")
    assert table.sources == ("pg.shop.public.orders",)
    assert [(c.name, c.source_type, c.type, c.roles) for c in table.columns] == [
        ("id", "int64", "BIGINT NOT NULL", ("key",)),
        ("name", "string", "STRING", ()),
        ("at", "MicroTimestamp (int64)", "TIMESTAMP(6)", ()),
        ("price", "connect.Decimal(9, 2)", "DECIMAL(9, 2)", ()),
    ]
    assert (table.primary_key, table.key_from) == (("id",), "the records' keys")
    assert table.buckets == "1 by a hash of the key"
    assert [policy.kind for policy in outline.policies] == ["timestamp", "decimal"]
    assert outline.warnings == []
    assert not (tmp_path / "lake").exists(), "nothing is written"


def test_an_existing_table_is_only_read(shop, tmp_path):
    path = shop({"pg.public.orders": snapshot(5)})
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    columns = [("id", parse_type("BIGINT")), ("name", parse_type("STRING"))]
    made = new_schema(columns, primary_keys=("id",), options={"bucket": "2"}, now_ms=1)
    catalog.create_table("shop.orders", made)
    before = sorted(each.name for each in (tmp_path / "lake").rglob("*"))
    (table,) = plan(path).tables
    assert table.state == "changes"
    assert table.key_from == "the table as it is"
    assert [column.name for column in table.columns] == ["id", "name", "at", "price"]
    assert len(table.changes) == 2
    assert sorted(each.name for each in (tmp_path / "lake").rglob("*")) == before
    assert catalog.table("shop.orders").schema.field_names == ("id", "name")


def test_bad_records_are_told_by_class_with_an_example(shop):
    bad = [line({"no": "event"}), b"{broken", b"{broken"]
    outline = plan(shop({"pg.public.orders": [*snapshot(3), *bad]}))
    found = {(each.error_class, each.records) for each in outline.bad}
    assert sum(count for _, count in found) == 3
    assert {each.topic for each in outline.bad} == {"pg.public.orders"}
    assert outline.severe
    assert "would go to quarantine" in plan_text(outline)


def test_two_source_tables_in_one_table_and_a_table_that_no_rule_takes(shop):
    path = shop(
        {
            "a": snapshot(3, db="orders_1"),
            "b": snapshot(3, db="orders_2"),
            "c": snapshot(2, table="secrets"),
        },
        "route: [{source-table: 'orders_[0-9]\\.public\\.orders', sink-table: ods.orders, "
        "shard: {keys.are.unique: true}}]",
    )
    outline = plan(path)
    assert [table.name for table in outline.tables] == ["ods.orders"]
    assert outline.unrouted == {"pg.shop.public.secrets": ["c"]}
    assert ("shards_collide", "ods.orders", True) in codes(outline)
    assert ("unrouted", "pg.shop.public.secrets", False) in codes(outline)
    fixed = path.read_text().replace("{keys.are.unique: true}", "{column: _shard}")
    path.write_text(fixed)
    outline = plan(path)
    assert outline.tables[0].primary_key == ("_shard", "id")
    assert outline.tables[0].columns[-1].roles == ("key", "shard")
    assert "shards_collide" not in {each.code for each in outline.warnings}


def test_a_table_of_another_source_table(shop):
    outline = plan(shop({"a": snapshot(3), "b": snapshot(3, name="other")}))
    conflicts = [each for each in outline.bad if each.error_class == "source_table_conflict"]
    assert [each.records for each in conflicts] == [3]


def test_keyless_topics(shop):
    lines = [line(blocked(event("r", None, row(n)))) for n in range(4)]
    path = shop({"pg.public.orders": lines})
    outline = plan(path)
    assert outline.tables[0].state == "refused"
    assert ("keyless", "shop.orders", False) in codes(outline)
    assert any(each.severe and each.about == "shop.orders" for each in outline.warnings)
    path.write_text(path.read_text() + "tables: [{match: shop.orders, primary.key: [id]}]\n")
    assert plan(path).tables[0].key_from == "tables[].primary.key"


def test_before_images_and_toast(shop):
    changes = [
        line(blocked(event("u", None, row(1, "__debezium_unavailable_value"))), {"id": 1}),
        line(blocked(event("u", None, row(2))), {"id": 2}),
    ]
    path = shop(
        {"pg.public.orders": [*snapshot(4), *changes]},
        "tables: [{match: shop.orders, changelog-producer: input}]\n",
    )
    outline = plan(path)
    assert ("toast", "shop.orders", False) in codes(outline)
    assert ("before", "shop.orders", False) in codes(outline)
    path.write_text(path.read_text().replace("changelog-producer: input", "toast: fail"))
    assert ("toast", "shop.orders", True) in codes(plan(path))


def test_a_table_whose_keys_move_between_partitions(shop):
    path = shop(
        {"pg.public.orders": snapshot(4)},
        "tables: [{match: shop.orders, partition.by: [name], bucket: -1}]\n",
    )
    outline = plan(path)
    assert outline.tables[0].partition_keys == ("name",)
    assert ("cross_partition", "shop.orders", False) in codes(outline)


def test_a_mode_in_which_the_stream_would_stop(shop, tmp_path):
    path = shop({"pg.public.orders": snapshot(2)}, "pipeline.schema.change.behavior: exception\n")
    catalog = FileSystemCatalog(str(tmp_path / "lake"))
    made = new_schema(
        [("id", parse_type("BIGINT"))], primary_keys=("id",), options={"bucket": "1"}, now_ms=1
    )
    catalog.create_table("shop.orders", made)
    outline = plan(path)
    assert ("stop", "", True) in codes(outline)


def test_estimate(shop):
    outline = plan(shop({"pg.public.orders": snapshot(300)}), estimates=True)
    found = outline.tables[0].estimate
    assert (found.messages, found.rows, found.buckets, found.recommended) == (300, 300, 1, 1)
    assert found.files == 1
    assert not found.rough
    assert 0 < found.bytes < found.topic_bytes


def test_masks_and_secrets_are_not_shown(shop):
    path = shop(
        {"pg.public.orders": snapshot(2)},
        "tables: [{match: shop.orders, mask: {name: \"sha256('hush')\"}}]\n",
    )
    outline = plan(path)
    assert outline.tables[0].transforms == ("mask: name by sha256",)
    assert "hush" not in plan_text(outline)


@pytest.mark.parametrize(
    ("source_format", "record", "types"),
    [
        ("upsert-json", {"id": 1, "name": "x"}, {"id": "BIGINT NOT NULL", "name": "STRING"}),
        ("debezium-flat", {"id": 1, "name": "x"}, {"id": "BIGINT NOT NULL", "name": "STRING"}),
        ("json", {"id": 1, "name": "x"}, {"id": "BIGINT", "name": "STRING"}),
        (
            "canal-json",
            {
                "data": [{"id": "1", "name": "x"}],
                "database": "shop",
                "table": "t",
                "type": "INSERT",
                "isDdl": False,
                "pkNames": ["id"],
                "mysqlType": {"id": "bigint(20)", "name": "varchar(9)"},
                "sqlType": {"id": -5, "name": 12},
            },
            {"id": "BIGINT NOT NULL", "name": "VARCHAR(9)"},
        ),
    ],
)
def test_other_formats(shop, source_format, record, types):
    key = None if source_format in ("json", "canal-json") else {"id": 1}
    source = f", format: {source_format}, lines: archived"
    path = shop({"t": [line(record, key)]}, source=source)
    outline = plan(path, estimates=True)
    (table,) = outline.tables
    assert {column.name: column.type for column in table.columns} == types
    if source_format == "canal-json":
        assert table.columns[0].source_type == "bigint(20)"
    assert not outline.severe
    assert "json" not in {policy.kind for policy in outline.policies}
    assert plan_text(outline)


def test_the_text(shop, tmp_path):
    """`UPDATE_SNAPSHOTS=1` writes the file anew."""
    changes = [line(blocked(event("u", None, row(1, "__debezium_unavailable_value"))), {"id": 1})]
    bad = [b"{broken", line({"no": "event"})]
    path = shop(
        {
            "pg.public.orders": [*snapshot(5), *changes, *bad],
            "pg.public.secrets": snapshot(2, table="secrets"),
        },
        "route: [{source-table: shop.public.orders, sink-table: ods.orders}]\n"
        "tables: [{match: ods.orders, computed: [\"day = date_format(at, 'yyyy-MM-dd')\"], "
        "partition.by: [day], bucket: -1, mask: {name: sha256}, deletes: soft}]\n"
        "sink.metadata.columns.columns: [op, source_ts_ms]\n",
    )
    found = plan_text(plan(path, estimates=True)) + "\n"
    expected = Path(__file__).parents[1] / "snapshots" / "plan.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        expected.write_text(found, encoding="utf-8")
    assert expected.read_text(encoding="utf-8") == found


def test_captured_events_of_real_connectors():
    capture = load(FOLDER / "postgres.avro.jsonl.gz")
    topics: dict[str, list[RawBatch]] = {}
    for batch in capture.batches():
        topics.setdefault(batch.topic, []).append(batch)
    samples = [
        TopicSample(
            name=name,
            partitions=len(batches),
            records=sum(map(len, batches)),
            bytes=1,
            cleanup_policy="delete",
            batches=tuple(batches),
        )
        for name, batches in sorted(topics.items())
    ]
    with tempfile.TemporaryDirectory() as directory, stub_registry() as stub:
        for number, schema in capture.schemas.items():
            stub.answers[f"/schemas/ids/{number}"] = schema
        path = Path(directory, "shop.yaml")
        path.write_text(
            "source: {type: kafka, bootstrap.servers: 'kafka:9092', topics.pattern: '.*', "
            f"format: debezium-avro, schema.registry: {{url: '{stub.url}'}}}}\n"
            f"sink: {{warehouse: {directory}/lake}}\npipeline: {{name: shop}}\n"
        )
        settings = load_settings(path, environ={})
        outline = outline_of(settings, samples, rehearse(settings, samples), estimates=True)
    tables = {table.name: table for table in outline.tables}
    times = {column.name: column for column in tables["shop.times"].columns}
    assert times["tz"].source_type == "ZonedTime (string)"
    assert len(tables) == 14
    assert {table.state for table in outline.tables} == {"new"}
    assert {each.error_class for each in outline.bad} == {"unrepresentable"}
    assert codes(outline) == {
        ("quarantine", "shop.infinities", True),
        ("toast", "shop.toasted", False),
    }
    kinds = {policy.kind for policy in outline.policies}
    assert {"date", "time of day", "zoned timestamp", "decimal", "bits", "json"} <= kinds


# --- sampling


def test_a_sample_is_the_beginning_and_the_end(shop):
    path = shop({"t": snapshot(5_000)})
    source = load_settings(path, environ={}).source
    (topic,) = topic_samples(source, 100)
    assert 100 >= topic.sampled >= 90
    assert topic.records == pytest.approx(5_000, rel=0.05)
    offsets = [offset for batch in topic.batches for offset in batch.offsets]
    assert offsets == sorted(set(offsets))
    assert json.loads(topic.batches[0].keys[0]) == {"id": 0}
    assert json.loads(topic.batches[-1].keys[-1]) == {"id": 4_999}


def test_many_small_files_and_compressed_ones(shop, tmp_path):
    path = shop({})
    folder = tmp_path / "events" / "t"
    folder.mkdir()
    for number in range(40):
        lines = b"\n".join(snapshot(10)) + b"\n"
        (folder / f"{number:02}.jsonl").write_bytes(lines)
    source = load_settings(path, environ={}).source
    (topic,) = topic_samples(source, 100)
    assert topic.sampled == 100
    assert topic.records == pytest.approx(400, rel=0.05)
    assert len({offset >> 40 for batch in topic.batches for offset in batch.offsets}) == 10
    (topic,) = topic_samples(source, 1000)
    assert (topic.sampled, topic.records) == (400, 400)
    (tmp_path / "events" / "g.jsonl.gz").write_bytes(gzip.compress(b"\n".join(snapshot(1000))))
    topic = topic_samples(source, 100)[0]
    assert topic.name == "g"
    assert topic.sampled == 50
    assert topic.records == pytest.approx(1000, rel=0.1)


def test_a_directory_that_is_not_there(shop):
    path = shop({})
    settings = load_settings(path, {"source.path": "/nowhere/at/all"}, environ={})
    with pytest.raises(NotFoundError):
        topic_samples(settings.source, 10)


KAFKA = KafkaSourceSettings(bootstrap_servers="kafka:9092", topics_pattern=".*")


@pytest.fixture
def cluster(monkeypatch):
    """A topic of three partitions: one empty, one small, one big."""
    marks = {("t", "0"): (5, 5), ("t", "1"): (0, 3), ("t", "2"): (100, 10_100)}
    pieces = []

    def read(piece, settings):
        pieces.append((piece.partition, piece.start, piece.end))
        offsets = list(range(piece.start, piece.end))
        values = [dumps(event("r", None, {"id": n})) for n in offsets]
        keys = [dumps({"id": n}) for n in offsets]
        yield RawBatch(piece.topic, piece.partition, offsets, keys, values)

    monkeypatch.setattr(KafkaSource, "watermarks", lambda self: marks)
    monkeypatch.setattr(
        sample, "open_ranges", lambda pieces, kafka: ((one, read(one, kafka)) for one in pieces)
    )
    return pieces


def test_kafka_is_read_at_both_ends_and_asked_for_its_policy(cluster):
    (topic,) = topic_samples(KAFKA, 20, lambda settings, names: dict.fromkeys(names, "compact"))
    assert cluster == [(1, 0, 3), (2, 100, 105), (2, 10_095, 10_100)]
    assert (topic.partitions, topic.records, topic.sampled) == (3, 10_003, 13)
    assert topic.cleanup_policy == "compact"
    assert topic.bytes > 10_003 * 100


def test_notices_of_kafka_topics(shop, cluster):
    path = shop({}, "sink.table.properties: {bucket: 8}\n")
    settings = dataclasses.replace(load_settings(path, environ={}), source=KAFKA)
    (topic,) = topic_samples(KAFKA, 20, lambda settings, names: dict.fromkeys(names, "compact"))
    topics = [dataclasses.replace(topic, partitions=1, records=2_000_000)]
    empty = TopicSample(
        name="e", partitions=1, records=0, bytes=0, cleanup_policy="delete", batches=()
    )
    played = rehearse(settings, [*topics, empty])
    outline = outline_of(settings, [*topics, empty], played, estimates=True)
    assert codes(outline) == {
        ("compacted", "t", False),
        ("one_partition", "t", False),
        ("few_partitions", "shop.orders", False),
        ("untyped", "shop.orders", False),
        ("empty", "e", False),
    }
    assert outline.tables[0].estimate.buckets == 8


# --- the command


def test_the_command(shop, capsys):
    path = str(shop({"pg.public.orders": [*snapshot(3), b"{broken"]}))
    assert cli.main(["plan", "-c", path]) == 0
    assert "shop.orders  (new)" in capsys.readouterr().out
    assert cli.main(["plan", "-c", path, "--strict"]) == 65
    capsys.readouterr()
    assert cli.main(["plan", "-c", path, "--json", "--estimate"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["tables"][0]["primary_key"] == ["id"]
    assert document["tables"][0]["estimate"]["recommended"] == 1
    assert document["bad"][0]["records"] == 1
    assert cli.main(["plan", "-c", path, "--sample", "0"]) == 78
