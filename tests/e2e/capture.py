# SPDX-License-Identifier: Apache-2.0
"""Changes of real databases, captured by real connectors in each encoding, as fixture files.

`python -m tests.e2e.capture [postgres] [mariadb]` writes tests/unit/ingest/captured anew.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.e2e import mariadb_tables, postgres_tables
from tests.e2e.connect_worker import (
    MARIADB_CONNECTOR,
    POSTGRES_CONNECTOR,
    ConnectWorker,
    connect,
    mariadb_config,
    postgres_config,
)
from tests.e2e.kafka_broker import local_broker
from tests.e2e.mariadb_server import VERSION as MARIADB_VERSION
from tests.e2e.mariadb_server import MariaDb, mariadb
from tests.e2e.postgres_server import VERSION as POSTGRES_VERSION
from tests.e2e.postgres_server import Postgres, postgres
from tests.e2e.real_tables import RandomChanges
from tests.e2e.schema_registry import SchemaRegistry, schema_registry
from tests.unit.ingest.captured_events import FOLDER, Capture, Message

CONVERTERS = ("json", "json-schema", "avro")
EVERYTHING = {"skipped.operations": "none", "provide.transaction.metadata": "true"}
"""Connector settings with which every kind of message comes."""

_ROWS = 4
_TRANSACTIONS = 25
_QUIET_S = 8.0


class TopicReader:
    """Reads all messages of all topics of a prefix, from the beginning.

    Args:
        bootstrap: of Kafka.
        prefix: of the connector.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": prefix, "enable.auto.commit": False}
        )
        self._prefix = prefix

    def rows(self) -> int:
        """Messages in the topics of tables."""
        return sum(self._end(each) for each in self._partitions() if self._is_table(each.topic))

    def read(self) -> list[Message]:
        """All messages up to now, of heartbeats only the first two."""
        messages: list[Message] = []
        for place in self._partitions():
            end = self._end(place)
            heartbeat = place.topic.startswith("__debezium-heartbeat")
            messages += self._read(place, min(end, 2) if heartbeat else end)
        return messages

    def close(self) -> None:
        """Leave Kafka."""
        self._consumer.close()

    def _is_table(self, topic: str) -> bool:
        return topic.startswith(f"{self._prefix}.") and not topic.endswith(".transaction")

    def _partitions(self) -> list[TopicPartition]:
        """Of the connector's topics, heartbeats and transactions included."""
        known = self._consumer.list_topics(timeout=20).topics
        alone = (self._prefix, f"__debezium-heartbeat.{self._prefix}")
        own = [name for name in known if name in alone or name.startswith(f"{self._prefix}.")]
        return [TopicPartition(name, n, 0) for name in sorted(own) for n in known[name].partitions]

    def _end(self, place: TopicPartition) -> int:
        """Its end; a topic that is just being made has no leader for a moment."""
        deadline = time.monotonic() + 30
        while True:
            try:
                return int(self._consumer.get_watermark_offsets(place, timeout=20)[1])
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _read(self, place: TopicPartition, count: int) -> list[Message]:
        self._consumer.assign([place])
        found: list[Message] = []
        deadline = time.monotonic() + 60
        while len(found) < count:
            assert time.monotonic() < deadline, (place, len(found), count)
            message = self._consumer.poll(1)
            if message is None or message.error():
                continue
            headers = tuple((name, value or b"") for name, value in message.headers() or ())
            found.append(
                Message(
                    place.topic,
                    place.partition,
                    message.offset(),
                    message.key(),
                    message.value(),
                    headers,
                )
            )
        self._consumer.unassign()
        return found


def wait_for_rows(
    readers: Sequence[TopicReader],
    at_least: int,
    worker: ConnectWorker,
    timeout_s: float = 240.0,
) -> None:
    """Wait until each has so many messages of tables and no more come for a while."""
    deadline = time.monotonic() + timeout_s
    seen: list[int] = []
    since = time.monotonic()
    while True:
        now = [reader.rows() for reader in readers]
        if now != seen:
            seen, since = now, time.monotonic()
        quiet = time.monotonic() - since > _QUIET_S
        if quiet and min(now) >= at_least and len(set(now)) == 1:
            return
        assert time.monotonic() < deadline, f"{now} messages, not {at_least}"
        worker.check()
        time.sleep(0.5)


def capture_postgres(
    bootstrap: str, worker: ConnectWorker, registry: SchemaRegistry, server: Postgres
) -> dict[str, Capture]:
    """Captures of PostgreSQL by converter; topics begin with `pg-<converter>`."""
    tables = (*postgres_tables.TABLES, *postgres_tables.ODD)
    changes = RandomChanges(tables, seed=5)
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in postgres_tables.PREPARE:
            cursor.execute(statement)
        _create(cursor, tables)
        changes.fill(cursor, _ROWS)
        names = [f"public.{table.name}" for table in tables]
        for converter in CONVERTERS:
            config = postgres_config(server, f"pg-{converter}", names)
            worker.add(
                f"pg-{converter}", {**config, **EVERYTHING}, converter=converter, partitions=1
            )
        readers = [TopicReader(bootstrap, f"pg-{converter}") for converter in CONVERTERS]
        wait_for_rows(readers, _ROWS * len(tables), worker)
        changes.run(cursor, _TRANSACTIONS)
        cursor.execute("SELECT pg_logical_emit_message(true, 'outbox', 'content')")
        cursor.execute("ALTER TABLE numbers ADD COLUMN added varchar(30) DEFAULT 'new'")
        cursor.execute("ALTER TABLE numbers DROP COLUMN flag")
        cursor.execute("INSERT INTO numbers (id, sm, added) VALUES (900, 1, NULL)")
        cursor.execute("UPDATE toasted SET small = 99")
        cursor.execute("TRUNCATE ranges")
    wait_for_rows(readers, _ROWS * len(tables) + _TRANSACTIONS, worker)
    about = (f"PostgreSQL {POSTGRES_VERSION}", POSTGRES_CONNECTOR.version)
    return _collect(readers, about, registry)


def capture_mariadb(
    bootstrap: str, worker: ConnectWorker, registry: SchemaRegistry, server: MariaDb
) -> dict[str, Capture]:
    """Captures of MariaDB by converter; topics begin with `maria-<converter>`."""
    tables = (*mariadb_tables.TABLES, *mariadb_tables.ODD)
    changes = RandomChanges(tables, seed=6)
    with server.connect() as connection, connection.cursor() as cursor:
        _create(cursor, tables)
        changes.fill(cursor, _ROWS)
        names = [f"shop.{table.name}" for table in tables]
        for number, converter in enumerate(CONVERTERS):
            config = mariadb_config(server, f"maria-{converter}", names, bootstrap)
            own = {"database.server.id": str(5000 + number)}
            config = {**config, **EVERYTHING, **own}
            worker.add(f"maria-{converter}", config, converter=converter, partitions=1)
        readers = [TopicReader(bootstrap, f"maria-{converter}") for converter in CONVERTERS]
        wait_for_rows(readers, _ROWS * len(tables), worker)
        changes.run(cursor, _TRANSACTIONS)
        cursor.execute("ALTER TABLE numbers ADD COLUMN added varchar(30) DEFAULT 'new'")
        cursor.execute("ALTER TABLE numbers DROP COLUMN flag")
        cursor.execute("ALTER TABLE numbers RENAME COLUMN mi TO renamed")
        cursor.execute("INSERT INTO numbers (id, ti, added) VALUES (900, 1, NULL)")
        cursor.execute("TRUNCATE TABLE geometries")
    wait_for_rows(readers, _ROWS * len(tables) + _TRANSACTIONS, worker)
    about = (f"MariaDB {MARIADB_VERSION}", MARIADB_CONNECTOR.version)
    return _collect(readers, about, registry)


def _create(cursor: Any, tables: Sequence[Any]) -> None:
    for table in tables:
        for statement in table.create():
            cursor.execute(statement)


def _collect(
    readers: Sequence[TopicReader], about: tuple[str, str], registry: SchemaRegistry
) -> dict[str, Capture]:
    found: dict[str, Capture] = {}
    for converter, reader in zip(CONVERTERS, readers, strict=True):
        messages = reader.read()
        reader.close()
        schemas = schemas_of(messages, registry) if converter == "avro" else {}
        found[converter] = Capture(*about, converter, schemas, tuple(messages))
    return found


def schemas_of(messages: Sequence[Message], registry: SchemaRegistry) -> dict[int, Any]:
    """What the registry knows of the schema ids in front of keys and values."""
    contents = [part for each in messages for part in (each.key, each.value) if part]
    assert all(content[0] == 0 for content in contents), "no magic byte"
    numbers = {int.from_bytes(content[1:5], "big") for content in contents}
    return {number: registry.schema(number) for number in sorted(numbers)}


def save(name: str, found: Mapping[str, Capture]) -> None:
    """Write the files of one database."""
    FOLDER.mkdir(exist_ok=True)
    for converter, capture in found.items():
        path = FOLDER / f"{name}.{converter}.jsonl.gz"
        capture.save(path)
        print(f"{path.name}: {len(capture.messages)} messages, {path.stat().st_size} bytes")


def main(names: Sequence[str]) -> None:
    """Capture databases."""
    with (
        local_broker() as bootstrap,
        schema_registry() as registry,
        connect(bootstrap, registry) as worker,
    ):
        if "postgres" in names:
            with postgres() as server:
                save("postgres", capture_postgres(bootstrap, worker, registry, server))
                worker.remove_all()
        if "mariadb" in names:
            with mariadb() as maria:
                save("mariadb", capture_mariadb(bootstrap, worker, registry, maria))
                worker.remove_all()


if __name__ == "__main__":
    main(sys.argv[1:] or ["postgres", "mariadb"])
