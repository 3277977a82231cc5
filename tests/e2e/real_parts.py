# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the real parts around Lakeward; each skips with the reason where it cannot be had."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.connect_worker import ConnectWorker, connect
from tests.e2e.mariadb_server import MariaDb, mariadb
from tests.e2e.maven_artifacts import PartUnavailableError
from tests.e2e.postgres_server import Postgres, postgres
from tests.e2e.schema_registry import SchemaRegistry, schema_registry


@contextlib.contextmanager
def _had(part: contextlib.AbstractContextManager[Any], name: str) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        try:
            value = stack.enter_context(part)
        except PartUnavailableError as error:
            if os.environ.get("CI") == "true":
                raise
            pytest.skip(f"no {name}: {error}")
        yield value


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """A schema registry."""
    with _had(schema_registry(), "schema registry") as value:
        yield value


@pytest.fixture(scope="module")
def connect_worker(kafka_broker: str, registry: SchemaRegistry) -> Iterator[ConnectWorker]:
    """Kafka Connect with Debezium's connectors."""
    with _had(connect(kafka_broker, registry), "Kafka Connect") as value:
        yield value


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL with an empty database."""
    with _had(postgres(), "PostgreSQL") as value:
        yield value


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaDb]:
    """A MariaDB with an empty database."""
    with _had(mariadb(), "MariaDB") as value:
        yield value
