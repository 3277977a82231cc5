# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema accepts what the pages show and `load_settings` takes, and finds mistakes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from ingest.cli import main as cli
from ingest.config.settings import ROUTE_SETTINGS, SETTINGS, TABLE_SETTINGS
from ingest.config.settings_page import json_schema
from ingest.daemon.configuration import load_settings
from storage.errors import LakewardError
from tests.unit.ingest.config.schema_check import faults
from tests.unit.ingest.test_validate_mistakes import MISTAKES, SECRETS

ROOT = Path(__file__).parents[4]
SCHEMA = json_schema()
HEADS = {row.key.partition(".")[0] for row in SETTINGS} | {"tables", "route"}
BASE = "source: {type: files, path: events}\nsink: {warehouse: lake}\npipeline: {name: shop}\n"


def of(text):
    return faults(yaml.safe_load(text), SCHEMA, SCHEMA)


def configurations():
    """YAML of pages and examples that is a configuration or a part of one."""
    for path in sorted([*(ROOT / "docs/examples").glob("*.yaml"), *ROOT.glob("docs/**/*.yaml")]):
        if path.name != "kubernetes-values.yaml":  # values of the chart
            yield path.name, path.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for number, text in enumerate(blocks):
            document = yaml.safe_load(text)
            if isinstance(document, dict) and {key.partition(".")[0] for key in document} <= HEADS:
                yield f"{page.name}-{number}", text


SHOWN = dict(configurations())


def test_pages_show_configurations():
    assert len(SHOWN) > 8
    assert "debezium-avro.yaml" in SHOWN


@pytest.mark.parametrize("name", SHOWN)
def test_what_pages_show_is_valid(name):
    assert of(SHOWN[name]) == []


def test_every_setting_can_be_written_nested_and_dotted():
    for row in SETTINGS:
        given = row.default
        dotted, nested = {row.key: given}, given
        for word in reversed(row.key.split(".")):
            nested = {word: nested}
        assert faults(dotted, SCHEMA, SCHEMA) == faults(nested, SCHEMA, SCHEMA) == [], row.key
        head, _, rest = row.key.partition(".")
        assert faults({head: {rest: given}}, SCHEMA, SCHEMA) == []
        if row.kind.mapping:
            entry = {0: 42} if row.key == "source.scan.startup.offsets" else "x"
            assert faults({f"{row.key}.name": entry}, SCHEMA, SCHEMA) == []
            assert faults({f"{row.key}.name": [1]}, SCHEMA, SCHEMA)
    for name, rows in (("tables", TABLE_SETTINGS), ("route", ROUTE_SETTINGS)):
        required = {row.key: "x" for row in rows if row.required}
        for row in rows:
            rule = {**required, row.key: required.get(row.key, row.default)}
            assert faults({name: [rule]}, SCHEMA, SCHEMA) == [], row.key


TAKEN = [
    "metrics: {port: '${PORT}'}",
    "metrics: {port: '9_108', enabled: '${METRICS}'}",
    "pipeline.trigger: {max: {records: 5, bytes: 1gb}, idle.commit: 2 min}",
    "source.topics: a,b",
    "source: {topics: {exclude: [x]}, topics.pattern: y}",
    "source.scan.startup: {mode: specific-offsets, offsets: {t: {0: 42}}}",
    "source.scan.startup.timestamp: 1769846400000",
    "source.schema.registry: {url: http://r, ssl.key: {location: k}}",
    "source.avro.schema.id.bytes: 8",
    "sink.table.properties: {bucket: 4}",
    "sink: {table.properties.bucket: 4, metadata.columns: {columns: op}}",
    "log.levels: {ingest.source: debug}",
    "spark: {conf: {spark.a.b: true}, parallelism:}",
    "control.token: '${file:/token}'",
    "tables: [{match: a.b, bucket: auto, compaction: off, mask: {a: redact}, freshness: 5m}]",
    "route: [{source-table: a, sink-table: b, shard: {column: c, in.primary.key: true}}]",
    "maintenance: {orphan.clean: 7 d, compaction.window: '01:00-05:00'}",
    "bad.records: {max.ratio: 0.01}",
]


@pytest.mark.parametrize("text", TAKEN)
def test_what_the_loader_takes_is_valid(text):
    assert of(text) == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("pipeline: {nmae: shop}", "$.pipeline.nmae"),
        ("pipeline.triger: {interval: 5s}", "$.pipeline.triger"),
        ("source: {schema.registry: {urls: a}}", "$.source.schema.registry.urls"),
        ("metrics: {port: 70000}", "$.metrics.port"),
        ("metrics: {port: many}", "$.metrics.port"),
        ("log: {level: loud}", "$.log.level"),
        ("pipeline: {trigger.interval: 30}", "$.pipeline.trigger.interval"),
        ("spark: {conf: fast}", "$.spark.conf"),
        ("tables: [{primary.key: [id]}]", "$.tables[0]"),
        ("tables: [{match: a, bukket: 3}]", "$.tables[0].bukket"),
        ("tables: {match: a}", "$.tables"),
        ("route: [{source-table: a, sink-table: b, shard: {colum: c}}]", "$.route[0].shard.colum"),
    ],
)
def test_mistakes_are_found_at_their_place(text, where):
    assert any(fault.startswith(f"{where}:") for fault in of(text)), of(text)


SEEN_BY_EDITORS = {
    "unknown-key", "unknown-nested-key", "unknown-section", "unknown-key-of-a-rule",
    "unknown-key-of-a-route", "wrong-duration", "wrong-number", "wrong-choice", "wrong-boolean",
    "wrong-format", "wrong-map", "wrong-list-of-rules", "several-at-once", "key-of-a-later-version",
    "removed-choice", "removed-choice-of-a-rule",
}  # fmt: skip


def test_of_all_mistakes_those_of_keys_and_values_are_seen_by_editors():
    documents = {}
    for name, text in MISTAKES.items():
        try:
            documents[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
    found = {name for name, each in documents.items() if faults(each, SCHEMA, SCHEMA)}
    assert found == SEEN_BY_EDITORS
    assert of(SECRETS) == []


def test_what_the_schema_refuses_the_loader_refuses(tmp_path):
    path = tmp_path / "shop.yaml"
    for row in SETTINGS:
        for value in ({"a": {"b": [1]}}, [1, "x"], "?", -5, True):
            document = yaml.safe_load(BASE)
            document[row.key] = value
            if row.key in ("source.type", "source.path", "sink.warehouse", "pipeline.name"):
                continue
            if not faults(document, SCHEMA, SCHEMA):
                continue
            path.write_text(yaml.safe_dump(document))
            with pytest.raises(LakewardError):
                load_settings(path, environ={})


def test_the_command_prints_it(capsys):
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(SCHEMA))
