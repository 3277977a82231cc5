# SPDX-License-Identifier: Apache-2.0
"""Spark Structured Streaming + Paimon's Spark connector over the orders topic (`spark_job.py`).

Batches have the size of Lakeward's. `make peers` creates the virtualenv; Spark's Kafka source is
fetched from Maven into `.cache/spark-kafka`.
"""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from storage.catalog.catalog import FileSystemCatalog
from tests.bench.measure import look, usage_of
from tests.bench.peers.flink import COPY, run_tool
from tests.bench.peers.measured import Measured, commit_times
from tests.interop.artifacts import SPARK, ArtifactUnavailableError, jar

_ROOT = Path(__file__).resolve().parents[3]
_PYTHON = _ROOT / ".venv-spark-peer" / "bin" / "python"
_JARS = _ROOT / ".cache" / "spark-kafka"
_KAFKA = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>peer-spark</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.spark</groupId><artifactId>spark-sql-kafka-0-10_2.12</artifactId>
<version>3.5.7</version></dependency></dependencies></project>
"""
_NEEDED = ("spark-sql-kafka", "spark-token", "kafka-clients", "commons-pool2")
_TIMEOUT_S = 900.0


def set_up() -> None:
    """Fetch the jars.

    Raises:
        ArtifactUnavailableError: Maven, a jar or the virtualenv is missing.
    """
    jar(SPARK)
    if not _PYTHON.exists() or not shutil.which("mvn"):
        raise ArtifactUnavailableError("Spark is set up with mvn and `make peers`")
    if _JARS.exists():
        return
    with tempfile.TemporaryDirectory(dir=_JARS.parent) as scratch:
        Path(scratch, "pom.xml").write_text(_KAFKA)
        run_tool(["mvn", "-q", "-B", COPY, f"-DoutputDirectory={scratch}/lib"], scratch)
        Path(scratch, "lib").rename(_JARS)


def run_spark(
    work: Path, bootstrap: str, topic: str, *, largest: int, events: int, options: Mapping[str, str]
) -> tuple[Measured, FileSystemCatalog]:
    """Read a topic to its end into a fresh table.

    Args:
        work: directory of the run, emptied before.
        bootstrap: the broker.
        topic: of the orders.
        largest: records of a batch.
        events: in the topic.
        options: of the table.

    Raises:
        RuntimeError: the job failed; the message ends with its log.
    """
    shutil.rmtree(work, ignore_errors=True)
    warehouse = work / "warehouse"
    warehouse.mkdir(parents=True)
    kafka = [path for path in sorted(_JARS.glob("*.jar")) if path.name.startswith(_NEEDED)]
    job = work / "job.json"
    job.write_text(
        json.dumps(
            {
                "conf": _conf(work, [jar(SPARK), *kafka]),
                "options": {"bucket": "2", "rowkind.field": "rk", **options},
                "source": {
                    "kafka.bootstrap.servers": bootstrap,
                    "subscribe": topic,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": str(largest),
                },
                "checkpoint": str(work / "checkpoint"),
                "table": f"{warehouse}/shop.db/orders",
            }
        )
    )
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "SPARK_HOME")
    }
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    command = [str(_PYTHON), str(Path(__file__).with_name("spark_job.py")), str(job)]
    samples: list[tuple[float, float]] = []
    ended = threading.Event()
    began = time.time()
    with (work / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=work, stdout=log, stderr=log, env=environment)

        def sample() -> None:
            while not ended.wait(0.2):
                cpu = sum(look(process.pid, exact=False)[1].values())
                samples.append((time.time(), max(cpu, samples[-1][1] if samples else 0.0)))

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        try:
            with usage_of(process.pid) as usage:
                code = process.wait(_TIMEOUT_S)
        finally:
            process.kill()
            ended.set()
            sampler.join()
    whole_s = time.time() - began
    if code != 0:
        raise RuntimeError(f"Spark ended with {code}:\n{(work / 'log.txt').read_text()[-4000:]}")
    catalog = FileSystemCatalog(str(warehouse))
    commits = commit_times(catalog)
    cpu_then = next(cpu for moment, cpu in samples if moment >= commits[0])
    return Measured(
        events=events,
        whole_s=whole_s,
        whole_cpu_s=samples[-1][1],
        steady_events=events - largest,
        steady_s=commits[-1] - commits[0],
        steady_cpu_s=samples[-1][1] - cpu_then,
        first_commit_s=commits[0] - began,
        commits=len(commits),
        peak_mb=usage.peak_mb,
    ), catalog


def _conf(work: Path, jars: list[Path]) -> dict[str, str]:
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseParallelGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, jars)),
        "spark.local.dir": str(work / "local"),
        "spark.sql.warehouse.dir": str(work / "hive"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.extensions": ("org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"),
        "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
        "spark.sql.catalog.paimon.warehouse": f"file://{work / 'warehouse'}",
        "spark.log.level": "ERROR",
    }
