# SPDX-License-Identifier: Apache-2.0
"""A newcomer's way: the README's commands in a fresh environment, with a real broker.

The wheel is built from these sources and installed with the locked packages, as the image does; the
commands run as they stand there, but for the address of the broker.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from storage.errors import LakewardError
from tests.e2e.daemon_process import eventually
from tests.e2e.shop_stream import ShopStream, assert_tables_equal_model
from tests.free_ports import free_port
from tests.image.wheel import build_wheel

pytestmark = [pytest.mark.full, pytest.mark.kafka, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
TABLE = "shop.customers"


def shown():
    """The bash blocks of the section as lists of commands, and its configuration."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## From a topic to a table\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    commands = [[shlex.split(line, comments=True) for line in each.splitlines()] for each in blocks]
    return commands, re.search(r"```yaml\n(.*?)```", section, re.DOTALL).group(1)


class Newcomer:
    """A shell in a directory, with an environment of its own.

    Args:
        directory: where.
        port: of the endpoint; the default one may be in use on this machine.
    """

    def __init__(self, directory, port):
        self.directory = directory
        self._venv = directory / "venv"
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            "LAKEWARD__METRICS__PORT": str(port),
            "PATH": f"{self._venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }

    def install(self):
        subprocess.run([sys.executable, "-m", "venv", self._venv], check=True)
        wheel = build_wheel(self.directory / "wheel")
        pip = [self._venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
        locked = ROOT / "deploy" / "requirements.lock"
        subprocess.run([*pip, "--require-hashes", "-r", locked], check=True)
        subprocess.run([*pip, "--no-deps", wheel], check=True)

    def run(self, command):
        """What the command prints, which must succeed."""
        done = subprocess.run(
            self._here(command),
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command):
        """It, running."""
        with (self.directory / "log").open("w", encoding="utf-8") as log:
            return subprocess.Popen(
                self._here(command), cwd=self.directory, env=self.environment, stderr=log
            )

    def _here(self, command):
        return [str(self._venv / "bin" / command[0]), *command[1:]]


def page(port, path):
    """What the daemon answers; empty while it does not, or says that it is not ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def equal(warehouse, shop):
    try:
        assert_tables_equal_model(warehouse, shop)
    except (AssertionError, LakewardError):
        return False
    return True


def test_from_pip_install_to_the_status_page(kafka_broker, tmp_path):
    (install, before, meanwhile), config = shown()
    assert install == [["pip", "install", "lakeward"]]
    stream = ShopStream(kafka_broker, seed=21)
    stream.snapshot(1_200)
    stream.changes(3_000)
    config = config.replace("127.0.0.1:9092", kafka_broker)
    (tmp_path / "shop.yaml").write_text(config, encoding="utf-8")
    newcomer = Newcomer(tmp_path, port := free_port())
    newcomer.install()

    *checks, run = before
    printed = [newcomer.run(command) for command in checks]
    assert "valid" in printed[0]
    assert TABLE in printed[1]
    assert run[:2] == ["lakeward", "run"]
    daemon = newcomer.start(run)
    try:
        eventually(lambda: page(port, "/readyz"), timeout=120, interval=1, what="readiness")
        eventually(
            lambda: equal(tmp_path / "lake", stream.shop),
            timeout=120,
            interval=2,
            what="the rows of the model",
        )
        assert "<html" in page(port, "/")
        status, tables, rows = (newcomer.run(command) for command in meanwhile)
        assert TABLE in status
        assert TABLE in tables
        assert len(rows.splitlines()) >= 10
    finally:
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(120)
    assert code == 0, (tmp_path / "log").read_text(encoding="utf-8")[-3_000:]
    newcomer.run(["lakeward", "run", "-c", "shop.yaml", "--once"])
