# SPDX-License-Identifier: Apache-2.0
"""Values: described, in the schema, and refused when they cannot work, with words that help."""

import json
import re

import pytest
import yaml

from deploy.chart_files import main, read_values
from tests.helm.chart import (
    CHART,
    HELMS,
    chart_file,
    jsonschema,
    lakeward,
    refused,
    render,
)

VALUES = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
README = (CHART / "README.md").read_text(encoding="utf-8")


def test_generated_files_are_as_they_would_be_made(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_the_schema_is_one_and_takes_the_defaults():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert not list(jsonschema.Draft7Validator(SCHEMA).iter_errors(defaults))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ".".join(value.path))
def test_every_value_is_in_the_schema_and_in_the_readme(value):
    schema = SCHEMA
    for name in value.path:
        assert schema["additionalProperties"] is False or value.path[0] == "global"
        schema = schema["properties"][name]
    if not value.is_map:
        assert schema["description"].endswith((".", ")")), value.doc
        assert f"| `{'.'.join(value.path)}` |" in README


def test_every_value_is_used_by_a_template():
    text = "".join(path.read_text("utf-8") for path in (CHART / "templates").rglob("*.*"))
    for value in VALUES:
        named = rf'[."]{value.path[-1]}\b'  # a field, not a word of a comment
        assert re.search(named, text), value.path


PLAIN = 'config.source.properties={"sasl.password":"geheim"}'

MISTAKES = [
    (["replicaCount=2"], "replicaCount"),
    (["replicas=1"], "replicas"),
    (["image.tags=1"], "tags"),
    (["image.tag=1"], "tag"),
    (['mode="cluster"'], "mode"),
    (['podMonitor.job="shop"'], "job"),
    (['image.digest="abc"'], "digest"),
    (["metrics.port=80"], "port"),
    (["executors.instances=0"], "instances"),
    (['executors.memory="2Gi"'], "memory"),
    (['warehouse.url="/data"'], "url"),
    (['warehouse.persistence.accessModes=["ReadOnlyMany"]'], "accessModes"),
    (["terminationGracePeriodSeconds=5"], "terminationGracePeriodSeconds"),
    (['extraEnv={"A":"b"}'], "extraEnv"),
    (['extraSecretMounts=[{"name":"A B","secretName":"s"}]'], "extraSecretMounts"),
    (['prometheusRule.thresholds={"LakewardDown":{"forr":"1h"}}'], "forr"),
    (["config={}"], "`config` is empty"),
    (['existingConfigMap="a"'], "not both"),
    (["config={}", 'existingConfigMap="a"', 'existingConfigSecret="b"'], "one of"),
    (['config={"source":{"type":"kafka"}}'], "must set `pipeline.name`"),
    (['config={"pipeline.name":"shop"}'], "must set `source.type`"),
    (["config.metrics.port=9000"], "must not set `metrics.port`"),
    (['config={"pipeline.name":"a","source.type":"kafka","metrics.enabled":false}'], "the probes"),
    (['config.pipeline.checkpoint="/tmp/x"'], "below /var/lib/lakeward"),
    (['config.sink.warehouse="/data"'], "mounted at /warehouse"),
    (['mode="kubernetes"'], "ReadWriteMany"),
    (
        ['mode="kubernetes"', 'warehouse.url="s3://a/b"', 'config.spark.master="local[2]"'],
        "must not set `spark.master`",
    ),
    (["compaction.enabled=true", 'warehouse.url="s3://a/b"'], "set the tables to compact"),
    (["compaction.enabled=true", 'compaction.database="shop"'], "ReadWriteMany"),
    (["catalogService.enabled=true", 'warehouse.url="s3://a/b"'], "needs tokens"),
    (
        [
            "catalogService.enabled=true",
            "catalogService.withoutTokens=true",
            'catalogService.tokens.existingSecret="a"',
            'warehouse.url="s3://a/b"',
        ],
        "only one of",
    ),
    (["catalogService.enabled=true", "catalogService.withoutTokens=true"], "ReadWriteMany"),
    ([PLAIN], "has a secret in `source.properties` (sasl.password)"),
    (['config.sink.options={"s3.secret-key":"geheim"}'], "(s3.secret-key)"),
    (['kafka.security.protocol="SASL_SSL"'], "needs `kafka.security.existingSecret`"),
    (['s3.existingSecretKeys.sessionToken="t"'], "needs `s3.existingSecret`"),
    (["prometheusRule.enabled=true", 'prometheusRule.disabled={"X":true}'], "unknown alert `X`"),
]


@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize(("sets", "words"), MISTAKES, ids=lambda each: str(each)[:60])
def test_what_cannot_work_is_refused(sets, words, version):
    message = refused("default", *sets, version=version)
    assert words in message
    assert "geheim" not in message


TAKEN = [
    ['global={"imageRegistry":"r","ofAnotherChart":{"a":1}}'],
    ['config.source.properties={"sasl.password":"${file:/run/secrets/lakeward/x/y}"}'],
    [PLAIN, 'configKind="Secret"'],
    ['config.sink.warehouse="/warehouse/eu"'],
    ['config.pipeline.checkpoint="/var/lib/lakeward/other"'],
    ['config.spark.master="spark://master:7077"'],
    [
        'kafka.security.protocol="SASL_SSL"',
        'config.source.properties={"sasl.mechanism":"OAUTHBEARER"}',
    ],
    ["startupProbe=null", "nodeSelector=null"],
]


@pytest.mark.parametrize("version", HELMS)
@pytest.mark.parametrize("sets", TAKEN, ids=lambda each: each[0][:60])
def test_what_can_work_is_taken(sets, version):
    assert render("default", *sets, version=version)


def test_zero_pauses():
    objects = render("default", "replicaCount=0")
    assert next(e for e in objects if e["kind"] == "StatefulSet")["spec"]["replicas"] == 0
    assert not [each for each in objects if each["metadata"]["name"].endswith("-test")]


@pytest.mark.parametrize(
    ("spelling", "warehouse"),
    [
        (
            'config={"pipeline.name":"a","source.type":"files","sink.warehouse":"s3://b/c"}',
            "s3://b/c",
        ),
        (
            'config={"pipeline":{"name":"a"},"source":{"type":"files"},"sink":{"warehouse":"s3://b/c"}}',
            "s3://b/c",
        ),
        ('warehouse.url="s3://d/e"', "s3://d/e"),
        ("cores=3", "/warehouse"),
    ],
)
def test_where_the_warehouse_is_decides_about_its_volume(spelling, warehouse):
    objects = render("default", spelling)
    assert chart_file(objects)["sink"]["warehouse"] == warehouse
    mounted = "/warehouse" in {each["mountPath"] for each in lakeward(objects)["volumeMounts"]}
    assert mounted == ("://" not in warehouse)


def test_values_with_braces_and_brackets_survive():
    """Templates write some maps on one line, where a wrong quote or indentation breaks them."""
    objects = render(
        "default",
        'fullnameOverride="x"',
        'image.repository="{a}"',
        'extraArgs=["--set=a={b: [c]}", "{{ .Release.Name }}"]',
        'podAnnotations={"a":"{b: [c, d]}","e":"x: y # z"}',
        'existingConfigKey="a: b"',
        "config={}",
        'existingConfigMap="m"',
        'dashboards.labelValue="yes"',
        "dashboards.enabled=true",
    )
    container = lakeward(objects)
    assert container["args"][-2:] == ["--set=a={b: [c]}", "shop"]
    assert container["image"] == "{a}:0.1.0"
    template = next(e for e in objects if e["kind"] == "StatefulSet")["spec"]["template"]
    assert template["metadata"]["annotations"]["a"] == "{b: [c, d]}"
    assert template["metadata"]["annotations"]["e"] == "x: y # z"
    sources = template["spec"]["volumes"][0]["projected"]["sources"]
    assert sources[1]["configMap"]["items"] == [{"key": "a: b", "path": "pipeline.yaml"}]
    labels = [each["metadata"]["labels"].get("grafana_dashboard") for each in objects]
    assert "yes" in labels


def test_no_template_puts_a_block_into_a_map_on_one_line():
    for path in (CHART / "templates").rglob("*.*"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            inside = line.split("nindent")[0]
            opened = inside.replace("{{", "").count("{") - inside.replace("}}", "").count("}")
            assert "nindent" not in line or opened <= 0, f"{path.name}:{number}"


def test_the_script_knows_what_is_stale(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("deploy.chart_files.ALERTS", tmp_path)
    (tmp_path / "lakeward.yaml").write_text("groups: []\n", encoding="utf-8")
    assert main([]) == 1
    assert "files/alerts/lakeward.yaml" in capsys.readouterr().out
