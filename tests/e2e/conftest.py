# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests."""

import pytest

from ingest.session import build_session, default_master
from tests.e2e.kafka_broker import kafka_broker
from tests.e2e.s3_server import s3_server

__all__ = ["kafka_broker", "s3_server", "spark"]


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests that do not kill it."""
    session = build_session("lakeward-tests", master=default_master(), conf={}, parallelism=2)
    yield session
    session.stop()
