# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests."""

import pytest

from ingest.session import build_session, default_master
from tests.e2e.kafka_broker import kafka_broker

__all__ = ["kafka_broker", "spark"]


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests that do not kill it."""
    session = build_session("lakeward-tests", master=default_master(), conf={}, parallelism=2)
    yield session
    session.stop()
