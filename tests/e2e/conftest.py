# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests."""

import os
import pathlib

import pyspark
import pytest

from ingest.daemon.session import build_session, default_master
from tests.e2e.kafka_broker import kafka_broker
from tests.e2e.s3_server import s3_server

AUTOMATIC = pathlib.Path(__file__).parents[2] / "changelog/spark_source/automatic"
"""What installing the distribution puts on the path: Spark finds `format("lakeward")` there."""

__all__ = ["kafka_broker", "s3_server", "spark"]


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests that do not kill it."""
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(AUTOMATIC)]))
    # Spark's own home, as users have it: in the daemon's, sources are not found by their names
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(pathlib.Path(pyspark.__file__).parent))
        session = build_session("lakeward-tests", master=default_master(), conf={}, parallelism=2)
    yield session
    session.stop()
