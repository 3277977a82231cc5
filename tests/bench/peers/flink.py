# SPDX-License-Identifier: Apache-2.0
"""Flink SQL + Paimon over the orders topic, in one JVM; set up from Maven into `.cache/flink`.

The job reads Debezium's JSON with Flink's `json` format and takes `before` and `after` apart in
SQL, because its `debezium-json` format drops updates whose `before` is null.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.catalog.catalog import FileSystemCatalog
from tests.bench.measure import usage_of
from tests.bench.peers.measured import Measured, commit_times
from tests.interop.artifacts import CORE, ArtifactUnavailableError, jar

_HERE = Path(__file__).parent
_HOME = Path(__file__).resolve().parents[3] / ".cache" / "flink"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_HEAP = "4g"
_TIMEOUT_S = 900.0
_OPENED = (
    *("lang", "lang.reflect", "net", "io", "nio", "text", "time"),
    *("util", "util.concurrent", "util.concurrent.atomic", "util.concurrent.locks"),
)
_COLUMNS = (
    "id BIGINT NOT NULL, user_id BIGINT, amount DECIMAL(12, 2), status STRING, note STRING, "
    "updated_at TIMESTAMP(6), rk STRING"
)
_SELECT = (
    "SELECT COALESCE(`after`.id, `before`.id), `after`.user_id, `after`.amount, `after`.status, "
    "`after`.note, MICROS(`after`.updated_at), CASE op WHEN 'd' THEN '-D' ELSE '+I' END FROM k"
)
_SOURCE = (
    "op STRING, `before` ROW<id BIGINT>, `after` ROW<id BIGINT, user_id BIGINT, "
    "amount DECIMAL(12, 2), status STRING, note STRING, updated_at BIGINT>"
)


def set_up() -> Path:
    """Fetch Flink and Paimon, compile the job; the folder with `lib` and `classes`.

    Raises:
        ArtifactUnavailableError: Maven, a Java compiler or an artifact is missing.
    """
    if (_HOME / ".ready").exists():
        return _HOME
    if not (shutil.which("mvn") and shutil.which("javac")):
        raise ArtifactUnavailableError("Flink is set up with mvn and javac")
    lib, classes = _HOME / "lib", _HOME / "classes"
    lib.mkdir(parents=True, exist_ok=True)
    shutil.copy(jar(CORE), lib)
    sources = [str(path) for path in sorted((_HERE / "java").rglob("*.java"))]
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(_HERE / "pom.xml", scratch)
        run_tool(
            ["mvn", "-q", "-B", COPY, f"-DoutputDirectory={lib}", "-DincludeScope=runtime"],
            scratch,
        )
        run_tool(["javac", "-nowarn", "-d", str(classes), "-cp", f"{lib}/*", *sources], scratch)
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True, exist_ok=True)
    factory = "org.apache.flink.metrics.reporter.MetricReporterFactory"
    (services / factory).write_text("peer.Reporter$Factory\n")
    (_HOME / ".ready").touch()
    return _HOME


def run_tool(command: list[str], folder: str) -> None:
    """Run a tool of the set-up.

    Raises:
        ArtifactUnavailableError: it failed.
    """
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stdout", "") or getattr(error, "stderr", "") or ""
        raise ArtifactUnavailableError(f"{command[0]}: {error}\n{output[-2000:]}") from error


def run_flink(
    work: Path,
    bootstrap: str,
    topic: str,
    *,
    first: int,
    interval_s: int,
    options: Mapping[str, str],
) -> tuple[Measured, FileSystemCatalog]:
    """Read a topic to its end into a fresh table.

    Args:
        work: directory of the run, emptied before.
        bootstrap: the broker.
        topic: of the orders.
        first: events that are read before the steady state.
        interval_s: seconds between checkpoints, which are commits.
        options: of the table.

    Raises:
        RuntimeError: the job failed; the message ends with its log.
    """
    shutil.rmtree(work, ignore_errors=True)
    warehouse = work / "warehouse"
    warehouse.mkdir(parents=True)
    (work / "tmp").mkdir()
    result = work / "result.json"
    (work / "job.properties").write_text(
        "\n".join(_job(work, bootstrap, topic, interval_s, options, result))
    )
    home = set_up()
    command = [
        *("java", f"-Xms{_HEAP}", f"-Xmx{_HEAP}", "-XX:+UseParallelGC", "-Duser.timezone=UTC"),
        *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        *("-cp", f"{home / 'classes'}:{home / 'lib'}/*", "peer.PeerJob"),
        str(work / "job.properties"),
    ]
    began = time.time()
    with (work / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=work, stdout=log, stderr=log, env=dict(os.environ))
        try:
            with usage_of(process.pid) as usage:
                code = process.wait(_TIMEOUT_S)
        finally:
            process.kill()
    whole_s = time.time() - began
    if code != 0:
        raise RuntimeError(f"Flink ended with {code}:\n{(work / 'log.txt').read_text()[-4000:]}")
    catalog = FileSystemCatalog(str(warehouse))
    return _measured(
        json.loads(result.read_text()), catalog, began, whole_s, first, usage.peak_mb
    ), catalog


def _measured(
    document: dict[str, Any],
    catalog: FileSystemCatalog,
    began: float,
    whole_s: float,
    first: int,
    peak_mb: float,
) -> Measured:
    """Steady state: from the sample that has read the first events to the last commit."""
    series = document["series"]
    read = series[-1][1]
    start = next(sample for sample in series if sample[1] >= min(first, read // 2))
    commits = commit_times(catalog)
    return Measured(
        events=read,
        whole_s=whole_s,
        whole_cpu_s=series[-1][2] / 1000,
        steady_events=read - start[1],
        steady_s=commits[-1] - start[0] / 1000,
        steady_cpu_s=(series[-1][2] - start[2]) / 1000,
        first_commit_s=commits[0] - began,
        commits=len(commits),
        peak_mb=peak_mb,
    )


def _job(
    work: Path,
    bootstrap: str,
    topic: str,
    interval_s: int,
    options: Mapping[str, str],
    result: Path,
) -> list[str]:
    """Lines of the job's properties."""
    source = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "properties.fetch.min.bytes": "65536",
        "properties.max.partition.fetch.bytes": "4194304",
        "properties.max.poll.records": "5000",
        "format": "json",
        "json.ignore-parse-errors": "false",
    }
    table = {
        "bucket": "2",
        "merge-engine": "deduplicate",
        "changelog-producer": "none",
        "sink.parallelism": "2",
        "rowkind.field": "rk",
        **options,
    }
    statements = [
        f"CREATE TEMPORARY TABLE k ({_SOURCE}) WITH ({_with(source)})",
        f"CREATE CATALOG p WITH ('type'='paimon','warehouse'='file://{work / 'warehouse'}')",
        "CREATE DATABASE p.shop",
        f"CREATE TABLE p.shop.orders ({_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) "
        f"WITH ({_with(table)})",
        f"INSERT INTO p.shop.orders {_SELECT}",
    ]
    configuration = {
        "execution.target": "local",
        "parallelism.default": "2",
        "execution.checkpointing.interval": f"{interval_s} s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.unaligned.enabled": "false",
        "execution.checkpointing.dir": f"file://{work}/checkpoints",
        "state.backend.type": "hashmap",
        "restart-strategy.type": "none",
        "pipeline.object-reuse": "true",
        "table.exec.sink.upsert-materialize": "NONE",
        "table.exec.sink.not-null-enforcer": "ERROR",
        "table.local-time-zone": "UTC",
        "taskmanager.memory.network.max": "256 mb",
        "taskmanager.memory.network.min": "256 mb",
        "taskmanager.memory.managed.size": "256 mb",
        "io.tmp.dirs": str(work / "tmp"),
        "metrics.reporters": "peer",
        "metrics.reporter.peer.factory.class": "peer.Reporter$Factory",
    }
    return [
        *(f"conf.{key}={value}" for key, value in configuration.items()),
        *(f"sql.{number}={text}" for number, text in enumerate(statements)),
        f"statements={len(statements)}",
        f"result={result}",
    ]


def _with(options: Mapping[str, str]) -> str:
    return ",".join(f"'{key}'='{value}'" for key, value in options.items())
