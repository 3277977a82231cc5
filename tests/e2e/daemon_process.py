# SPDX-License-Identifier: Apache-2.0
"""Configurations of pipelines, and the real daemon in a process of its own, to be killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from tests.sessions import signal_session

ROOT = Path(__file__).resolve().parents[2]

_WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def kafka_config(
    directory: Path,
    bootstrap: str,
    pattern: str,
    *,
    name: str = "shop",
    max_records: int = 5_000,
    interval: str = "500ms",
    spark: dict | None = None,
    table_properties: dict | None = None,
) -> Path:
    """A configuration file for a Kafka pipeline below `directory`."""
    source = {
        "type": "kafka",
        "bootstrap.servers": bootstrap,
        "topics.pattern": pattern,
        "format": "debezium-json",
        "topic.discovery.interval": "1s",
    }
    trigger = {"interval": interval, "max.records": max_records}
    sections = {"metrics": {"port": 0}, **({"spark": spark} if spark else {})}
    return _write_config(directory, name, trigger, source, table_properties, sections)


def files_config(
    directory: Path,
    *,
    name: str = "shop",
    trigger: dict | None = None,
    table_properties: dict | None = None,
    **sections: object,
) -> Path:
    """A configuration file for a pipeline below `directory` that reads its `events`.

    It serves no metrics unless `sections`, written as they are, say so.
    """
    source = {"type": "files", "path": str(directory / "events"), "topics.pattern": ".*"}
    sections = {"metrics": {"enabled": False}, **sections}
    return _write_config(directory, name, trigger, source, table_properties, sections)


def _write_config(
    directory: Path,
    name: str,
    trigger: dict | None,
    source: dict,
    table_properties: dict | None,
    sections: dict,
) -> Path:
    pipeline = {"name": name, "checkpoint": str(directory / "checkpoint")}
    sink = {"type": "paimon", "warehouse": str(directory / "warehouse")}
    if trigger:
        pipeline["trigger"] = trigger
    if table_properties:
        sink["table.properties"] = table_properties
    path = directory / f"{name}.yaml"
    raw = {"pipeline": pipeline, "source": source, "sink": sink, **sections}
    path.write_text(yaml.safe_dump(raw))
    return path


class DaemonProcess:
    """`lakeward run` as a child process; logs go to a file beside the configuration.

    Args:
        config: the configuration.
        arguments: of the command.
        inside: words before it, such as a program that executes it somewhere else.
        environment: added to this process's.
    """

    def __init__(
        self,
        config: Path,
        *arguments: str,
        inside: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log_path = config.parent / f"{config.stem}.log"
        self._log = self.log_path.open("ab")
        command = [sys.executable, "-m", "ingest.cli.main", "run", "-c", str(config), *arguments]
        self.process = subprocess.Popen(
            [*inside, *command],
            stdout=self._log,
            stderr=self._log,
            cwd=config.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL of the Python process alone; the JVM notices by itself."""
        self.process.kill()
        self.process.wait(timeout=30)
        self._log.close()

    def kill_all(self) -> None:
        """SIGKILL of the process and everything it started, as a container runtime does."""
        signal_session(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        self._log.close()

    def terminate(self, timeout: float = 120.0) -> int:
        """SIGTERM to its process group, as `timeout` sends it; the exit code after draining."""
        os.killpg(self.process.pid, signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float) -> int:
        """The exit code; who takes longer is killed."""
        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill_all()
            raise
        self._log.close()
        return code

    def log_tail(self, count: int = 60) -> str:
        """The last lines of the log, for failure messages."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-count:])

    def log_lines(self) -> list[dict[str, Any]]:
        """Every line of a JSON log; all of them have the same first fields."""
        found: list[dict[str, Any]] = [
            json.loads(line) for line in self.log_path.read_text().splitlines()
        ]
        for line in found:
            assert list(line)[:3] == ["ts", "level", "logger"], line
            assert _WHEN.fullmatch(line["ts"]), line
            assert line["level"] in {"debug", "info", "warning", "error", "critical"}, line
            assert line["msg"], line
            assert "\n" not in line["msg"], line
        return found

    def __enter__(self) -> "DaemonProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.kill_all()


def drain(config: Path, spark, **overrides) -> None:
    """Drain the backlog in this process, on a session that several tests share."""
    settings = load_settings(config, {k.replace("_", "."): v for k, v in overrides.items()})
    daemon = Daemon(settings, once=True, session=spark)
    assert daemon.run() == 0


def run_once(config: Path, timeout: float = 300.0) -> None:
    """Drain the backlog; fails with the log's tail on any exit code but 0."""
    daemon = DaemonProcess(config, "--once")
    code = daemon.wait(timeout)
    assert code == 0, f"exit code {code}\n{daemon.log_tail()}"


def eventually(check, *, timeout: float, interval: float = 0.2, what: str = ""):
    """Poll until `check` gives something true; its last value is returned."""
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what or check}")
        time.sleep(interval)


def newest_snapshot(warehouse: Path, table: str) -> int:
    """Largest snapshot id of `db.table`, 0 when there is none."""
    database, name = table.split(".")
    directory = warehouse / f"{database}.db" / name / "snapshot"
    if not directory.is_dir():
        return 0
    found = [re.fullmatch(r"snapshot-(\d+)", entry.name) for entry in directory.iterdir()]
    return max((int(match.group(1)) for match in found if match), default=0)
