# SPDX-License-Identifier: Apache-2.0
"""The compose file fits the specification, what it mounts is there, and its parts agree."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from ingest.daemon.configuration import load_settings
from tests.image.tools import tool

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
STACK = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = STACK["services"]
ENDS = {"bucket", "connector"}
"""Services that do their work and end."""


def mounts(service: str) -> dict[str, str]:
    """Source to target."""
    pairs = [entry.split(":") for entry in SERVICES[service].get("volumes", [])]
    return {pair[0]: pair[1] for pair in pairs}


@pytest.fixture
def settings():
    # the host is the image's
    environ = {**SERVICES["lakeward"]["environment"], "LAKEWARD__METRICS__HOST": "0.0.0.0"}
    return load_settings(DEPLOY / "compose" / "lakeward.yaml", environ=environ)


def test_it_fits_the_specification():
    command = [tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run(
        [*command, str(DEPLOY / "compose.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_a_service_mounts_is_there(name):
    for source in mounts(name):
        if source.startswith("."):
            path = DEPLOY / source
            assert path.exists(), path
            assert path.is_file() or any(path.iterdir())
        else:
            assert source in STACK["volumes"]
    for wanted in SERVICES[name].get("depends_on", {}):
        assert wanted in SERVICES


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_pinned_and_health_is_known(name):
    service = SERVICES[name]
    tag = service["image"].rpartition(":")[2]
    assert re.search(r"\d+\.\d+", tag) or "build" in service
    assert ("healthcheck" in service) != (name in ENDS)
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_all_volumes_are_used():
    used = {source for name in SERVICES for source in mounts(name)}
    assert set(STACK["volumes"]) <= used


def test_lakeward_accepts_its_configuration(settings):
    assert settings.metrics.host == "0.0.0.0"
    assert settings.metrics.port == 9108
    assert settings.source.bootstrap_servers == "kafka:9092"
    assert settings.pipeline.checkpoint.startswith("/var/lib/lakeward")
    assert "/var/lib/lakeward" in mounts("lakeward").values()


def test_the_connectors_topics_are_those_that_lakeward_reads(settings):
    connector = json.loads((DEPLOY / "compose" / "connector.json").read_text())
    tables = connector["table.include.list"].split(",")
    for table in tables:
        assert re.fullmatch(settings.source.topics_pattern, f"{connector['topic.prefix']}.{table}")
    made = re.findall(r"CREATE TABLE (\w+)", (DEPLOY / "compose" / "shop.sql").read_text())
    assert sorted(f"public.{name}" for name in made) == sorted(tables)
    postgres = SERVICES["postgres"]["environment"]
    assert connector["database.user"] == postgres["POSTGRES_USER"]
    assert connector["database.password"] == postgres["POSTGRES_PASSWORD"]
    assert connector["database.dbname"] == postgres["POSTGRES_DB"]


def test_lakeward_may_enter_the_store(settings):
    store = json.loads((DEPLOY / "compose" / "s3.json").read_text())
    (credentials,) = store["identities"][0]["credentials"]
    assert settings.sink.options["s3.access-key"] == credentials["accessKey"]
    assert settings.sink.options["s3.secret-key"] == credentials["secretKey"]
    bucket = settings.sink.warehouse.split("/")[2]
    assert f"s3.bucket.create -name {bucket}" in SERVICES["bucket"]["entrypoint"][-1]


def test_lakeward_runs_as_confined_as_in_a_cluster():
    service = SERVICES["lakeward"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    # Docker's default is noexec, with which the JVM's native libraries cannot be mapped
    assert service["tmpfs"] == ["/tmp:exec,mode=1777"]


def test_docker_waits_until_a_batch_is_given_up(settings):
    minutes = int(SERVICES["lakeward"]["stop_grace_period"].removesuffix("m"))
    assert 60 * minutes >= settings.life.stop_timeout_s + 30


def test_prometheus_accepts_its_configuration(tmp_path):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: `apt-get install prometheus`")
    text = (DEPLOY / "compose" / "prometheus.yaml").read_text()
    inside = {target: DEPLOY / source for source, target in mounts("prometheus").items()}
    for path in yaml.safe_load(text)["rule_files"]:
        text = text.replace(path, str(inside[path].resolve()))
    (tmp_path / "prometheus.yaml").write_text(text)
    command = ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_finds_its_dashboards():
    provider = yaml.safe_load((DEPLOY / "compose" / "grafana" / "dashboards.yaml").read_text())
    assert provider["providers"][0]["options"]["path"] == mounts("grafana")["./dashboards"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "dashboards" / Path(home).name).is_file()
