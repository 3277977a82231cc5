# SPDX-License-Identifier: Apache-2.0
"""The archive of Spark's classes that set-up makes is the one that a daemon's JVM reads."""

import os
import subprocess
import sys

import pytest

from tests.e2e.daemon_process import ROOT

pytestmark = pytest.mark.full

_START = """
from ingest.daemon.session import build_session, default_master
build_session("x", master=default_master(), conf={}, parallelism=1).range(1).collect()
"""


def test_java_reads_spark_s_classes_from_the_archive(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("SPARK_HOME", None)
    make = [sys.executable, "-m", "ingest.daemon.class_archive"]
    subprocess.run(make, env=environment, check=True, timeout=600)
    loaded = tmp_path / "classes.log"
    environment["JAVA_TOOL_OPTIONS"] = f"-Xlog:class+load:file={loaded}"
    start = [sys.executable, "-c", _START]
    subprocess.run(start, env=environment, check=True, timeout=300)
    # of lambdas that can be serialized, as Scala's are, no archive is made
    spark = [line for line in loaded.read_text().splitlines() if "org.apache.spark." in line]
    lines = [line for line in spark if "Lambda" not in line]
    shared = [line for line in lines if "shared objects file (top)" in line]
    assert len(shared) > 0.9 * len(lines) > 1_000
