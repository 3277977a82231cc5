# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the real parts around Lakeward; each skips with the reason where it cannot be had."""

from collections.abc import Iterator

import pytest

from tests.e2e.availability import had
from tests.e2e.connect_worker import ConnectWorker, connect
from tests.e2e.mariadb_server import MariaDb, mariadb
from tests.e2e.postgres_server import Postgres, postgres
from tests.e2e.schema_registry import SchemaRegistry, schema_registry


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """A schema registry."""
    with had(schema_registry(), "schema registry") as value:
        yield value


@pytest.fixture(scope="module")
def connect_worker(kafka_broker: str, registry: SchemaRegistry) -> Iterator[ConnectWorker]:
    """Kafka Connect with Debezium's connectors."""
    with had(connect(kafka_broker, registry), "Kafka Connect") as value:
        yield value


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL with an empty database."""
    with had(postgres(), "PostgreSQL") as value:
        yield value


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaDb]:
    """A MariaDB with an empty database."""
    with had(mariadb(), "MariaDB") as value:
        yield value
