# SPDX-License-Identifier: Apache-2.0
"""What `lakeward validate` says of mistakes, word for word, against `snapshots/validate/*.txt`.

After a wanted change: `UPDATE_SNAPSHOTS=1 pytest tests/unit/ingest/test_validate_mistakes.py`, and
look at the difference.
"""

import logging
import os
from pathlib import Path

import pytest

from ingest.cli import main as cli
from ingest.daemon import configuration

SNAPSHOTS = Path(__file__).parent / "snapshots" / "validate"

KAFKA = "source: {type: kafka, bootstrap.servers: 'kafka:9092', topics.pattern: 'shop[.].*'}\n"
FILES = "source: {type: files, path: events}\n"
REST = "sink: {warehouse: lake}\npipeline: {name: shop}\n"
REGISTRY = (
    "source:\n  type: kafka\n  bootstrap.servers: kafka:9092\n  topics: [a]\n"
    "  format: debezium-avro\n"
)

ADDED = {
    # unknown keys
    "unknown-key": "pipeline.triger:\n  interval: 5s\n",
    "unknown-section": "metric:\n  port: 1\n",
    "unknown-key-of-a-rule": "tables:\n  - match: shop.*\n    primary.keys: [id]\n",
    "unknown-key-of-a-route": "route:\n  - source: shop.a\n    sink-table: ods.a\n",
    "unknown-table-option": "sink.table.properties:\n  buckets: 4\n",
    "key-of-a-later-version": "transform:\n  - {source-table: shop.x, filter: 'id > 1'}\n",
    # wrong values
    "wrong-number": "metrics:\n  port: many\n",
    "wrong-choice": "log: {level: loud}\n",
    "removed-choice": "source.on.resnapshot: sweep\n",
    "removed-choice-of-a-rule": "tables:\n  - {match: 'shop.*', on.resnapshot: sweep}\n",
    "wrong-format": "source.format: debezium-jsn\n",
    "wrong-map": "spark.conf: fast\n",
    "wrong-list-of-rules": "tables:\n  match: shop.*\n",
    "wrong-bucket": "tables:\n  - {match: 'shop.*', bucket: 0}\n",
    "wrong-type-mapping": "sink.type.mapping: [time-to-txt]\n",
    "wrong-filter": "tables:\n  - match: shop.a\n    filter: 'qty <>'\n",
    "wrong-mask": "tables:\n  - match: shop.a\n    mask: {email: sha265}\n",
    "wrong-schema-change": "sink.include.schema.changes: [add.colum]\n",
    "key-given-twice": "pipeline: {name: other}\n",
    "variable-not-set": "source.properties:\n  sasl.password: '${SHOP_PASS}'\n",
    "file-not-there": "source.properties:\n  sasl.password: '${file:/none/of/this}'\n",
    # combinations
    "colliding-shards": (
        "route:\n  - source-table: shop.orders_[0-9]+.orders\n    sink-table: ods.orders\n"
    ),
    "colliding-shards-out-of-the-key": (
        "route:\n  - source-table: shop.orders_[0-9]+.orders\n"
        "    sink-table: ods.orders\n    shard:\n      column: _shard\n"
        "      in.primary.key: false\n"
    ),
    "shard-value-that-never-varies": (
        "route:\n  - source-table: shop.orders_[0-9]+.orders\n"
        "    sink-table: ods.orders\n    shard: {column: _shard, value: one}\n"
    ),
    "route-to-a-group-that-is-not-there": (
        "route:\n  - {source-table: 'shop.a', sink-table: 'ods.$1'}\n"
    ),
    "route-into-a-table-of-our-own": (
        "route:\n  - {source-table: 'shop.a', sink-table: Lakeward._quarantine}\n"
    ),
    "route-to-a-name-that-is-forbidden": (
        "route:\n  - {source-table: 'shop.a', sink-table: 'ods.SYS$AUDIT'}\n"
    ),
    "quarantine-in-the-history": "bad.records.table: lakeward._schema_history\n",
    "wrong-database": "sink.default.database: sys\n",
    "order-of-the-source-without-positions": "source.format: canal-json\nsource.ordering: source\n",
    "order-of-the-source-and-sequence-field": (
        "source.ordering: source\nsink.table.properties: {sequence.field: updated_at}\n"
    ),
    "contrary-type-mapping": "sink.type.mapping: [time-to-string, time-to-bigint]\n",
    "moving-partitions-with-fixed-buckets": (
        "tables:\n  - match: shop.a\n    primary.key: [id]\n"
        "    partition.by: [day]\n    bucket: 4\n"
    ),
    "startup-mode-without-timestamp": "source.scan.startup.mode: timestamp\n",
    "client-property-that-is-ours": "source.properties: {enable.auto.commit: true}\n",
    "client-property-of-java": (
        "source.properties: {ssl.truststore.location: /etc/kafka/trust.jks}\n"
    ),
    "client-property-that-is-misspelt": "source.properties: {sasl.usernam: shop}\n",
    "rule-without-a-database": "tables:\n  - {match: orders, mask: {email: redact}}\n",
    "rule-as-a-regular-expression": "tables:\n  - {match: 'shop\\.orders.*', bucket: 4}\n",
    "startup-timestamp-in-seconds": (
        "source.scan.startup: {mode: timestamp, timestamp: 1704067200}\n"
    ),
    "unwritable-table-option": (
        "tables:\n  - match: shop.a\n    table.properties: {data-file.external-paths: x}\n"
    ),
}
"""Mistakes that are added to a configuration without any."""

MISTAKES = {name: KAFKA + REST + added for name, added in ADDED.items()} | {
    # unknown keys
    "unknown-nested-key": (
        KAFKA + "sink: {warehouse: lake}\npipeline:\n  name: shop\n  trigger:\n    intervall: 5s\n"
    ),
    "unknown-store-option": (
        KAFKA + "pipeline: {name: shop, checkpoint: c}\nsink:\n  warehouse: s3://lake/w\n"
        "  options:\n    s3.enpoint: http://minio:9000\n"
    ),
    # wrong values
    "wrong-duration": (
        KAFKA + "sink: {warehouse: lake}\npipeline:\n  name: shop\n  trigger.interval: 30\n"
    ),
    "wrong-boolean": FILES + REST + "source.fail.on.data.loss: perhaps\n",
    "wrong-pattern": FILES + REST + "source.topics.pattern: 'shop(.*'\n",
    "not-yaml": KAFKA + "pipeline: {name: shop\n",
    # missing
    "missing-required": KAFKA + "sink: {type: paimon}\n",
    "missing-brokers": "source: {type: kafka, topics: [a]}\n" + REST,
    "missing-topics": "source: {type: kafka, bootstrap.servers: 'kafka:9092'}\n" + REST,
    "missing-registry": REGISTRY + REST,
    # combinations
    "settings-of-the-other-source": (FILES + REST + "source.bootstrap.servers: kafka:9092\n"),
    "checkpoint-in-a-store": KAFKA + "sink: {warehouse: lake}\npipeline:\n  name: shop\n"
    "  checkpoint: s3://lake/state\n",
    # several
    "several-at-once": (
        KAFKA + "sink: {warehouse: lake, tipe: paimon}\npipeline:\n  name: ../shop\n"
        "metrics.port: 70000\n"
        "tables:\n  - {match: a.b, bukket: 3, toast: burn}\n  - {primary.key: [id]}\n"
    ),
}

ONLINE = {
    "unreachable-broker": (
        "source:\n  type: kafka\n  topics: [a]\n  bootstrap.servers: 127.0.0.1:1\n" + REST
    ),
    "unreachable-registry": (
        "source:\n  type: kafka\n  topics: [a]\n  bootstrap.servers: 127.0.0.1:1\n"
        "  format: debezium-avro\n  schema.registry:\n    url: http://127.0.0.1:1\n" + REST
    ),
    "directory-of-events-not-there": "source:\n  type: files\n  path: nowhere\n" + REST,
}


@pytest.fixture(autouse=True)
def silent_log(monkeypatch):
    """No handler that another test left behind, with a stream that is closed by now."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])


def said(text, tmp_path, monkeypatch, capsys, *options):
    """The configuration, and what the command says of it."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in os.environ if each.startswith("LAKEWARD__")]:
        monkeypatch.delenv(name)
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    code = cli.main(["validate", "-c", "shop.yaml", *options])
    captured = capsys.readouterr()
    failed = [line for line in captured.out.splitlines() if line.startswith("FAIL")]
    told = (captured.err + "".join(f"{line}\n" for line in failed)).replace(str(tmp_path), "DIR")
    return f"{text}---\n{told}exit code {code}\n"


def compare(name, found):
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake(name, tmp_path, monkeypatch, capsys):
    found = said(MISTAKES[name], tmp_path, monkeypatch, capsys)
    assert found.endswith("exit code 78\n")
    compare(name, found)


@pytest.mark.parametrize("name", ONLINE)
def test_what_does_not_answer(name, tmp_path, monkeypatch, capsys):
    if name != "directory-of-events-not-there":
        (tmp_path / "events").mkdir()
    monkeypatch.setattr(configuration, "_BROKER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(configuration, "_java", lambda: "java")
    text = ONLINE[name] + "metrics: {enabled: false}\n"
    compare(name, said(text, tmp_path, monkeypatch, capsys, "--check"))


SECRETS = """
source:
  type: kafka
  bootstrap.servers: kafka:9092
  topics: [a]
  format: debezium-avro
  properties: {sasl.username: shop, sasl.password: hush-1, ssl.key.password: '${SHOP_SECRET}'}
  schema.registry: {url: 'http://registry:8081', bearer.token: hush-4}
sink:
  warehouse: s3://lake/warehouse
  options: {s3.secret-key: hush-5, s3.access-key: AKIA-hush-6}
  table.properties: {some.password: hush-7}
pipeline: {name: shop, checkpoint: state}
spark.conf: {spark.some.password: '${file:FILE}'}
tables:
  - {match: shop.a, mask: {email: "sha256('hush-9')"}}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("{name: shop, check", "{name: ../x, check"),
        ("sasl.password: hush-1", "sasl.password: [hush-1]"),
        ("sasl.password: hush-1", "sasl.password: {a: [hush-1]}"),
        (
            "{sasl.username: shop, sasl.password: hush-1, ssl.key.password: '${SHOP_SECRET}'}",
            "hush-1",
        ),
        ("properties: {sasl", "propertys: {sasl"),
        ("SHOP_SECRET", "SHOP_SECRETT"),
        ("bearer.token: hush-4", "bearer.token: [hush-4]"),
        ("bearer.token: hush-4", "basic.auth: hush-4"),
        ("bearer.token: hush-4", "bearer.tokn: hush-4"),
        ("http://registry", "http://user:hush-3@registry"),
        ("http://registry", "htp://user:hush-3@registry"),
        ("http://registry:8081", "http://user:hush-3@registry:port"),
        ("s3.secret-key: hush-5", "s3.secret-kei: hush-5"),
        ("{s3.secret-key: hush-5, s3.access-key: AKIA-hush-6}", "hush-5"),
        ("some.password: hush-7", "some.password: [hush-7]"),
        ("sha256('hush-9')", "sha265('hush-9')"),
        ("sha256('hush-9')", "sha256('hush-9'"),
        ("sha256('hush-9')", "sha256('hush-9', 3)"),
        ("{email: \"sha256('hush-9')\"}", "hush-9"),
        ("mask: {email", "msak: {email"),
        ("format: debezium-avro", "format: json"),
        ("pipeline:", "pipeline: {{"),
    ],
)
def test_secrets_are_never_shown(right, wrong, tmp_path, monkeypatch, capsys):
    (tmp_path / "word").write_text("hush-8\n")
    monkeypatch.setenv("SHOP_SECRET", "hush-2")
    text = SECRETS.replace(right, wrong, 1).replace("FILE", str(tmp_path / "word"))
    (tmp_path / "shop.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--json"]):
        code = cli.main(["validate", "-c", "shop.yaml", *options])
        captured = capsys.readouterr()
        assert code == (78 if wrong else 0)
        assert "hush" not in captured.out + captured.err


def test_every_snapshot_is_of_a_test():
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == {*MISTAKES, *ONLINE}
