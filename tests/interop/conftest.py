# SPDX-License-Identifier: Apache-2.0
"""The peers of a test session: one JVM with Apache Paimon's Java classes, one Spark with its
connector. The seed and the versions stand in the report's header."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.interop import artifacts, generated_tables, spark_peer
from tests.interop.java_peer import JavaPeer
from tests.interop.peers import missing, required_jars


def pytest_report_header() -> str:
    return (
        f"interop: LAKEWARD_SEED={generated_tables.SEED}; Apache Paimon Java "
        f"{artifacts.CORE[2]}; its Spark connector {artifacts.SPARK[2]} on Spark "
        f"{spark_peer.SPARK_VERSION}; {generated_tables.COUNT} generated tables"
    )


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    """Apache Paimon's Java implementation and its warehouse."""
    required_jars(artifacts.CORE)
    with JavaPeer.running(tmp_path_factory.mktemp("java")) as peer:
        yield peer


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[spark_peer.SparkPeer]:
    """Spark with Apache Paimon's connector, and its warehouse."""
    try:
        spark_peer.installed()
    except artifacts.ArtifactUnavailableError as error:
        missing(str(error))
    peer = spark_peer.SparkPeer.start(tmp_path_factory.mktemp("spark"))
    yield peer
    peer.close()


@pytest.fixture
def warehouse(java: JavaPeer) -> pathlib.Path:
    """Where Java's tables lie; ours go there, too."""
    return java.warehouse
