# SPDX-License-Identifier: Apache-2.0
import socket

import pytest

from ingest.daemon import configuration
from ingest.daemon.configuration import load_settings
from ingest.daemon.requests.request_handler import _check as would_start
from ingest.daemon.requests.request_handler import changed_sections, fixed_changes
from ingest.errors import ExitCode
from storage.errors import InvalidOptionError
from tests.unit.ingest.stub_registry import stub_registry


@pytest.fixture
def settings(tmp_path):
    events = tmp_path / "events" / "shop.orders"
    events.mkdir(parents=True)
    (events / "0001.jsonl").write_text("{}\n")

    def make(**overrides):
        text = (
            f"source: {{type: files, path: {tmp_path / 'events'}}}\n"
            f"sink: {{warehouse: {tmp_path / 'warehouse'}}}\n"
            "pipeline: {name: shop}\nmetrics: {enabled: false}\n"
        )
        path = tmp_path / "lakeward.yaml"
        path.write_text(text)
        return load_settings(path, overrides, environ={})

    return make


@pytest.fixture(autouse=True)
def java(monkeypatch, tmp_path):
    """A `java` on the PATH, so that the outcome does not depend on this machine."""
    program = tmp_path / "jre" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jre"))


def by_name(findings):
    return {finding.name: finding for finding in findings}


def test_everything_in_order(settings, tmp_path):
    findings = by_name(configuration.online(settings()))
    assert all(finding.ok for finding in findings.values())
    assert findings["source"].finding == "1 topics: shop.orders (1 files)"
    assert "will be created" in findings["warehouse"].finding
    assert not (tmp_path / "warehouse").exists()
    assert not list(tmp_path.glob(".lakeward-check-*"))


def test_missing_source_directory(settings, tmp_path):
    found = by_name(configuration.online(settings(**{"source.path": str(tmp_path / "none")})))[
        "source"
    ]
    assert not found.ok
    assert found.exit_code == ExitCode.CONFIG
    assert "source.path" in found.finding


def test_empty_source_directory_is_fine_but_said(settings):
    found = by_name(configuration.online(settings(**{"source.topics": "other"})))["source"]
    assert found.ok
    assert "no topic matches yet" in found.finding


def test_warehouse_that_is_a_file(settings, tmp_path):
    (tmp_path / "plain").write_text("")
    found = by_name(configuration.online(settings(**{"sink.warehouse": str(tmp_path / "plain")})))
    assert not found["warehouse"].ok
    assert "not a directory" in found["warehouse"].finding


def test_missing_java(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    found = by_name(configuration.online(settings()))["java"]
    assert not found.ok
    assert "install a JRE" in found.finding


def test_taken_metrics_port(settings):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        chosen = settings(**{"metrics.enabled": "true", "metrics.port": str(port)})
        found = by_name(configuration.online(chosen))["metrics port"]
    assert not found.ok
    assert "metrics.port" in found.finding


def test_options_that_cannot_be_written_fail_offline(settings):
    chosen = settings(**{"sink.table.properties.row-tracking.enabled": "true"})
    (found,) = configuration.offline(chosen)
    assert not found.ok
    assert found.exit_code == ExitCode.CONFIG


def of_a_silent_broker(directory, source="", **overrides):
    """Settings of a Kafka source where nobody listens."""
    path = directory / "kafka.yaml"
    path.write_text(
        "source: {type: kafka, topics: [a], bootstrap.servers: '127.0.0.1:1', "
        f"{source}}}\n"
        f"sink: {{warehouse: {directory}}}\npipeline: {{name: shop}}\n"
        "metrics: {enabled: false}\n"
    )
    return load_settings(path, overrides, environ={})


def test_silent_broker_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "_BROKER_TIMEOUT_S", 0.3)
    found = by_name(configuration.online(of_a_silent_broker(tmp_path)))["source"]
    assert not found.ok
    assert found.exit_code == ExitCode.UNAVAILABLE
    assert "127.0.0.1:1" in found.finding


def test_unknown_client_property_is_a_configuration_error(tmp_path):
    chosen = of_a_silent_broker(tmp_path, "properties: {no.such.property: x}")
    found = by_name(configuration.online(chosen))["source"]
    assert not found.ok
    assert found.exit_code == ExitCode.CONFIG
    assert "no.such.property" in found.finding


AVRO = "format: debezium-avro"


def registry_finding(tmp_path, monkeypatch, url, **more):
    monkeypatch.setattr(configuration, "_BROKER_TIMEOUT_S", 0.1)
    given = {f"source.schema.registry.{key.replace('_', '.')}": more[key] for key in more}
    given["source.schema.registry.url"] = url
    settings = of_a_silent_broker(tmp_path, AVRO, **given)
    return by_name(configuration.online(settings))["schema registry"]


def test_the_schema_registry_is_asked(tmp_path, monkeypatch):
    with stub_registry() as stub:
        stub.answers["/subjects"] = ["a-key", "a-value"]
        found = registry_finding(tmp_path, monkeypatch, stub.url)
        assert (found.ok, found.finding) == (True, f"{stub.url} answers, 2 subjects")

        stub.authorization = "Bearer right"
        found = registry_finding(tmp_path, monkeypatch, stub.url, bearer_token="wrong-word")
        assert (found.ok, found.exit_code) == (False, ExitCode.ACCESS)
        assert "refused our credentials" in found.finding
        assert "wrong-word" not in found.finding
        assert registry_finding(tmp_path, monkeypatch, stub.url, bearer_token="right").ok

        found = registry_finding(tmp_path, monkeypatch, f"{stub.url}/other")
        assert (found.ok, found.exit_code) == (False, ExitCode.ACCESS)
        stub.authorization = None
        found = registry_finding(tmp_path, monkeypatch, f"{stub.url}/other")
        assert (found.ok, found.exit_code) == (False, ExitCode.CONFIG)
        assert "no schema registry" in found.finding

        stub.answers["/subjects"] = {"subjects": []}
        found = registry_finding(tmp_path, monkeypatch, stub.url)
        assert (found.ok, found.exit_code) == (False, ExitCode.CONFIG)

    found = registry_finding(tmp_path, monkeypatch, stub.url)
    assert (found.ok, found.exit_code) == (False, ExitCode.UNAVAILABLE)
    assert "does not answer" in found.finding


def test_certificates_of_the_registry_are_read(tmp_path, monkeypatch):
    missing = str(tmp_path / "none.pem")
    found = registry_finding(tmp_path, monkeypatch, "https://127.0.0.1:1", ssl_ca_location=missing)
    assert (found.ok, found.exit_code) == (False, ExitCode.CONFIG)
    assert missing in found.finding


def test_reload_takes_other_credentials_only_when_they_work(tmp_path):
    with stub_registry() as stub:
        url = {"source.schema.registry.url": stub.url}
        token = "source.schema.registry.bearer.token"
        old, new = (of_a_silent_broker(tmp_path, AVRO, **url, **{token: word}) for word in "ab")
        assert (changed_sections(old, new), fixed_changes(old, new, {})) == (["avro"], [])
        stub.authorization = "Bearer b"
        would_start(old, new)
        would_start(old, old)
        with pytest.raises(InvalidOptionError, match="schema registry") as caught:
            would_start(new, old)
    assert "refused our credentials" in str(caught.value)
