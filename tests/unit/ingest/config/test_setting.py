# SPDX-License-Identifier: Apache-2.0
"""One declaration gives the attribute, its default, the typed value, the text and the redaction."""

import ast
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ingest.config import settings as settings_module
from ingest.config.choices import FORMATS
from ingest.config.setting import REDACTED, build, declared, docs, redacted
from ingest.config.settings import (
    ROUTE_SETTINGS,
    SETTINGS,
    TABLE_SETTINGS,
    AlertSettings,
    MetricsSettings,
    Route,
    Settings,
    SinkSettings,
    TableRule,
)
from ingest.daemon.configuration import load_settings, resolve
from ingest.decode.decoders import DIALECTS

ROOT = Path(__file__).parents[4]
FILES = "source: {type: files, path: events}\nsink: {warehouse: lake}\npipeline: {name: shop}\n"


@pytest.mark.parametrize("rows", [SETTINGS, TABLE_SETTINGS, ROUTE_SETTINGS])
def test_a_key_is_declared_once(rows):
    keys = [row.key for row in rows]
    assert len(keys) == len(set(keys))


def test_every_key_stands_once_in_the_sources():
    sources = [path.read_text() for path in sorted((ROOT / "ingest/config").glob("*_*.py"))]
    calls = [
        node.args[0].value
        for text in [*sources, (ROOT / "ingest/config/settings.py").read_text()]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setting"
    ]
    rules = [row.key for row in (*TABLE_SETTINGS, *ROUTE_SETTINGS)]
    assert sorted(calls) == sorted([*(row.key for row in SETTINGS[1:]), *rules])


@pytest.mark.parametrize("cls", [Settings, TableRule, Route])
def test_every_setting_says_what_it_means(cls):
    texts = docs(cls)
    assert texts.keys() == {row.key for row in declared(cls)}
    for key, text in texts.items():
        assert re.fullmatch(r"\S.*\.\S?\)?", text.strip()), key
        assert "\n" not in text


def test_defaults_of_attributes_are_those_of_the_reference():
    for cls in vars(settings_module).values():
        if isinstance(cls, type) and dataclasses.is_dataclass(cls):
            for field in dataclasses.fields(cls):
                row = field.metadata.get("setting")
                if row is not None and row.unset is not None and row.default is not None:
                    made = field.default_factory() if isinstance(row.unset, dict) else field.default
                    assert made == row.kind.parse(row.default), row.key
    assert MetricsSettings().port == 9108
    assert TableRule(match="a.b").toast is None


def test_values_are_built_by_key():
    values = {"metrics.port": 7, "metrics.labels": {"a": "b"}, "other": 1}
    assert build(MetricsSettings, values) == MetricsSettings(port=7, labels={"a": "b"})


def test_what_is_secret_is_in_no_text():
    alerts = AlertSettings(urls=("https://h/s3cret",), headers={"X-Key": "s3cret"})
    assert redacted(alerts)["headers"] == {"X-Key": REDACTED}
    assert "s3cret" not in repr(alerts)
    sink = SinkSettings(warehouse="w", options={"s3.secret-key": "s3cret", "s3.region": "eu"})
    assert "s3cret" not in repr(sink)
    assert "eu" in repr(sink)


def test_every_value_travels(tmp_path):
    (tmp_path / "shop.yaml").write_text(FILES)
    settings = load_settings(tmp_path / "shop.yaml", environ={})
    again = Settings.from_json(settings.to_json())
    assert again == settings
    plain = msgspec.to_builtins(again)
    assert {"control", "alerts"} <= plain.keys()
    assert [type(value) for value in plain.values()] == [
        type(value) for value in msgspec.to_builtins(settings).values()
    ]


def test_every_value_of_a_rule_is_shown(tmp_path):
    rule = (
        "tables:\n  - {match: a.b, primary.key: [id], on.resnapshot: upsert, freshness: 5m,"
        " bucket: 4, changelog-producer: input, mask: {m: \"sha256('salt')\"}}\n"
    )
    (tmp_path / "shop.yaml").write_text(FILES + rule)
    lines = {key: text for key, text, _ in resolve(tmp_path / "shop.yaml", environ={}).lines}
    assert lines["tables[a.b]"].split() == [
        "primary.key=id",
        "bucket=4",
        "changelog-producer=input",
        "mask=m",
        "freshness=300s",
        "on.resnapshot=upsert",
    ]


def test_labels_that_metrics_have_are_refused_beside_other_mistakes(tmp_path):
    (tmp_path / "shop.yaml").write_text(
        FILES + "metrics.labels: {topic: x}\ntables: [{match: a.b, filter: 'qty <>'}]\n"
    )
    with pytest.raises(Exception, match="2 mistakes") as caught:
        load_settings(tmp_path / "shop.yaml", environ={})
    assert "metrics.labels.topic" in str(caught.value)
    assert "shop.yaml:4:18" in str(caught.value)


def test_every_format_has_a_decoder():
    own = {"debezium-avro", "upsert-avro"}
    assert set(FORMATS) == {*DIALECTS, *own}


def test_settings_are_read_without_engines():
    heavy = ("pyspark", "confluent_kafka", "pydantic", "prometheus_client", "ingest.decode")
    code = (
        "import sys, ingest.config.loading, ingest.config.settings_page\n"
        f"found = [name for name in {heavy} if name in sys.modules]\n"
        "sys.exit(str(found) if found else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
