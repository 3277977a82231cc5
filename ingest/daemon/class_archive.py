# SPDX-License-Identifier: Apache-2.0
"""Make the archive of Spark's classes (`ingest.daemon.session`): `python -m` this module.

`make setup` and the image run it after the installation. A pipeline of two micro-batches runs in a
temporary directory, and its JVM writes the classes that it loaded at its end. Takes about half a
minute, 170 MB on disk.
"""

import json
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import yaml
from pyspark import SparkContext

from ingest.daemon.configuration import load_settings
from ingest.daemon.daemon import Daemon
from ingest.daemon.session import (
    ARCHIVE,
    JAVA_DEFAULTS,
    JAVA_OPTIONS,
    PREFIX,
    link_home,
    prepared_home,
)
from ingest.pipeline.batch_report import BatchReport

_DUMP_TIMEOUT_S = 300.0
_TABLES = ("a", "b")
_BATCHES = 2


def make_archive() -> Path | None:
    """Make the archive for this Java and these jars unless it exists.

    Returns:
        Its path; None if Java wrote none.

    Raises:
        OSError: the cache cannot be written.
    """
    home = prepared_home()
    archive = home / ARCHIVE
    if archive.exists():
        return archive
    link_home(home)
    # a JVM that maps half an archive dies: it gets its name when it is whole
    written = home / f"{ARCHIVE}.{os.getpid()}"
    try:
        os.environ["SPARK_HOME"] = str(home)
        with tempfile.TemporaryDirectory(prefix="lakeward-classes-") as scratch:
            _run_pipeline(Path(scratch), f"{JAVA_DEFAULTS} -XX:ArchiveClassesAtExit={written}")
            _end_jvm()
        if not written.exists():
            return None
        written.rename(archive)
    finally:
        written.unlink(missing_ok=True)
    for stale in home.parent.glob(f"{PREFIX}*"):  # of other jars
        if stale != home:
            shutil.rmtree(stale, ignore_errors=True)
    return archive


def _run_pipeline(scratch: Path, options: str) -> None:
    events = scratch / "events"
    events.mkdir()
    for table in _TABLES:
        row = {"before": None, "op": "c", "source": {"db": "d", "schema": "d", "table": table}}
        lines = (json.dumps({**row, "after": {"id": number}}) for number in range(_BATCHES))
        topic = f"x.d.{table}"
        (events / f"{topic}.0001.jsonl").write_text("".join(f"{line}\n" for line in lines))
    config = scratch / "pipeline.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "pipeline": {
                    "name": "classes",
                    "trigger": {"interval": "100ms", "max.records": len(_TABLES)},
                },
                "source": {"type": "files", "path": str(events), "topics.pattern": ".*"},
                "sink": {"type": "paimon", "warehouse": str(scratch / "warehouse")},
                "spark": {"parallelism": 1, "conf": {JAVA_OPTIONS: options}},
                "metrics": {"enabled": False},
            }
        )
    )

    def stop_after_last(report: BatchReport) -> None:
        if report.batch_id == _BATCHES - 1:
            daemon.request_stop()

    daemon = Daemon(load_settings(config, environ={}), on_batch=stop_after_last)
    daemon.run()


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_DUMP_TIMEOUT_S)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    os.nice(10)
    if make_archive() is None:
        sys.exit("Java wrote no archive of classes: Spark starts without one")
