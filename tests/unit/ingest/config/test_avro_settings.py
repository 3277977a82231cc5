# SPDX-License-Identifier: Apache-2.0
"""Settings of the Avro formats: what they become, what contradicts them, what is never shown."""

import pickle
from pathlib import Path

import pytest

from ingest.cli import main as cli
from ingest.config import settings as settings_module
from ingest.config.settings import Settings
from ingest.config.source_settings import AvroSettings
from ingest.daemon.configuration import load_settings, resolve
from storage.errors import InvalidOptionError

EXAMPLE = Path(settings_module.__file__).parents[2] / "docs/examples/debezium-avro.yaml"
COMMENTED = {"ssl", "timeout", "retry", "avro"}
KAFKA = """
sink: {warehouse: /data/warehouse}
pipeline: {name: shop}
source:
  type: kafka
  bootstrap.servers: kafka:9092
  topics: [shop.orders]
"""
AVRO = KAFKA + "  format: debezium-avro\n"
EVERYTHING = """  schema.registry:
    url: [https://one:8081, 'https://two:8081/apis/ccompat/v7']
    basic.auth: 'reader:hid:den-word'
    ssl.ca.location: /ca.pem
    ssl.certificate.location: /me.pem
    ssl.key: {location: /k.pem, password: hidden-word}
    timeout: 3s
    retry.for: 2m
  avro.schema.id.bytes: 8
"""


@pytest.fixture
def load(tmp_path):
    def load_text(text, overrides=None, environ=None):
        path = tmp_path / "lakeward.yaml"
        path.write_text(text, encoding="utf-8")
        return load_settings(path, overrides, environ=environ or {})

    return load_text


def test_an_address_is_enough(load):
    avro = load(AVRO + "  schema.registry.url: http://registry:8081\n").avro
    assert isinstance(avro, AvroSettings)
    assert avro.registry.urls == ("http://registry:8081",)
    assert (avro.registry.timeout_s, avro.registry.retry_for_s, avro.id_bytes) == (10, 60, 4)
    assert (avro.registry.username, avro.registry.token) == ("", "")


def test_the_example_is_a_configuration(load, tmp_path):
    (tmp_path / "registry").write_text("me:hidden-word\n")
    text = EXAMPLE.read_text(encoding="utf-8").replace("/secrets", str(tmp_path))
    assert load(text).avro.registry.username == "me"
    told = {}
    for line in text.splitlines():
        key, colon, value = line.strip().removeprefix("# ").partition(": ")
        if line.strip().startswith("# ") and colon and key.split(".")[0] in COMMENTED:
            section = "source." if key.startswith("avro") else "source.schema.registry."
            told[section + key] = value.partition("#")[0].strip()
    assert len(told) == 6
    assert load(text, told).avro.id_bytes == 8


def test_every_setting_arrives_and_travels(load):
    settings = load(AVRO + EVERYTHING)
    registry = settings.avro.registry
    assert registry.urls == ("https://one:8081", "https://two:8081/apis/ccompat/v7")
    assert (registry.username, registry.password) == ("reader", "hid:den-word")
    assert (registry.ca_file, registry.certificate_file) == ("/ca.pem", "/me.pem")
    assert (registry.key_file, registry.key_password) == ("/k.pem", "hidden-word")
    assert (registry.timeout_s, registry.retry_for_s, settings.avro.id_bytes) == (3, 120, 8)
    assert Settings.from_json(settings.to_json()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    token = load(AVRO + "  schema.registry: {url: 'http://r', bearer.token: abc}\n")
    assert token.avro.registry.token == "abc"


def test_environment_variables_reach_them(load):
    environ = {
        "LAKEWARD__SOURCE__SCHEMA_REGISTRY_URL": "http://a,http://b",
        "LAKEWARD__SOURCE__SCHEMA_REGISTRY_BASIC_AUTH": "me:word",
    }
    registry = load(AVRO, environ=environ).avro.registry
    assert registry.urls == ("http://a", "http://b")
    assert (registry.username, registry.password) == ("me", "word")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (AVRO, "Avro events need a schema registry"),
        (KAFKA + "  format: upsert-avro\n", "set `source.schema.registry.url`"),
        (KAFKA + "  schema.registry.url: http://r\n", "does not apply to the format debezium-json"),
        (KAFKA + "  avro.schema.id.bytes: 4\n", "does not apply to the format debezium-json"),
        (AVRO + "  schema.registry: {url: r:8081}\n", "not the address of a schema registry"),
        (AVRO + "  schema.registry: {url: 'http://r', basic.auth: alone}\n", "user:password"),
        (
            AVRO + "  schema.registry: {url: 'http://r', basic.auth: 'a:b', bearer.token: c}\n",
            "either a token or a user",
        ),
        (AVRO + "  schema.registry: {url: 'http://r', ssl.key.location: k}\n", "its certificate"),
        (AVRO + "  schema.registry.url: http://r\n  avro.schema.id.bytes: 5\n", "one of `4`, `8`"),
        (AVRO + "  schema.registry.urls: http://r\n", "did you mean `source.schema.registry.url`"),
        (AVRO + "  schema.registry: http://r\n", "did you mean `source.schema.registry"),
        (
            "source: {type: files, path: a, format: debezium-avro}\n"
            "sink: {warehouse: w}\npipeline: {name: p}\n",
            "supported from Kafka only",
        ),
    ],
)
def test_contradictions_have_one_clear_message(load, text, wanted):
    with pytest.raises(InvalidOptionError) as caught:
        load(text)
    assert wanted in str(caught.value)


def test_secrets_appear_nowhere(load, tmp_path):
    settings = load(AVRO + EVERYTHING)
    in_address = load(AVRO + "  schema.registry.url: 'http://me:hidden-w@rd@registry'\n")
    assert in_address.avro.registry.password == "hidden-w@rd"
    token = load(AVRO + "  schema.registry: {url: 'http://r', bearer.token: hidden-word}\n")
    for each in (settings, in_address, token):
        for shown in (repr(each), str(each), str(each.redacted()), repr(each.avro)):
            assert "den-w" not in shown
    for text in (EVERYTHING, "  schema.registry.url: ['http://a', 'http://me:hidden-w@rd@b']\n"):
        (tmp_path / "shown.yaml").write_text(AVRO + text)
        lines = resolve(tmp_path / "shown.yaml", environ={}).lines
        assert any(key == "source.schema.registry.url" for key, _, _ in lines)
        assert "den-w" not in str(lines)
        assert "rd@" not in str(lines)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_validate_prints_no_secret(tmp_path, capsys, form):
    path = tmp_path / "avro.yaml"
    path.write_text(AVRO + EVERYTHING + "metrics: {enabled: false}\n")
    assert cli.main(["validate", "-c", str(path), *form]) == 0
    out = capsys.readouterr().out
    assert "source.schema.registry.basic.auth" in out
    assert "https://one:8081" in out
    assert "den-word" not in out


@pytest.mark.parametrize(
    "text",
    [
        "  schema.registry: {url: 'ftp://me:hidden-word@registry'}\n",
        "  schema.registry: {url: 'http://r', basic.auth: hidden-word}\n",
        "  schema.registry: {url: 'http://r', basic.auth: {a: hidden-word}}\n",
        "  schema.registry: {url: 'http://r', basic.auth: [hidden-word]}\n",
        "  schema.registry: {url: 'http://r', bearer.token: [hidden-word]}\n",
        "  schema.registry: {url: 'http://u:hidden-word@r', basic.auth: 'a:hidden-word'}\n",
    ],
)
def test_malformed_secrets_are_not_printed(load, text):
    with pytest.raises(InvalidOptionError) as caught:
        load(AVRO + text)
    assert "hidden-word" not in str(caught.value)
