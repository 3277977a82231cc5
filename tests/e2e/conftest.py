# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests."""

import os
import pathlib

import py4j
import pyspark
import pytest

from ingest.daemon.session import build_session, default_master, link_home
from tests.e2e.kafka_broker import kafka_broker
from tests.e2e.s3_server import s3_server

AUTOMATIC = pathlib.Path(__file__).parents[2] / "changelog/spark_source/automatic"
"""What installing the distribution puts on the path: Spark finds `format("lakeward")` there."""

__all__ = ["kafka_broker", "s3_server", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One Spark for all tests that do not kill it."""
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(AUTOMATIC)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(_home(tmp_path_factory.mktemp("spark-home"))))
        session = build_session("lakeward-tests", master=default_master(), conf={}, parallelism=2)
    yield session
    session.stop()


def _home(home: pathlib.Path) -> pathlib.Path:
    """A home of Spark as users have it: in the daemon's, sources are not found by their names.

    What is called an archive of Python modules is a directory with links to those that are
    installed. Modules in an archive are compiled by every Python process that Spark starts.
    """
    installed = pathlib.Path(pyspark.__file__).parent
    link_home(home)
    for archive in (installed / "python/lib").glob("*.zip"):
        modules = home / "python/lib" / archive.name
        modules.mkdir(parents=True)
        for module in (pyspark, py4j):
            (modules / module.__name__).symlink_to(pathlib.Path(module.__file__).parent)
    return home
