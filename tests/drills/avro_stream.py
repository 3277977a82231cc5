# SPDX-License-Identifier: Apache-2.0
"""Changes of one table in Avro, with the schema registry's ids, and the rows they must become."""

import random
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

from storage.table.table import FileStoreTable
from tests.e2e.shop_stream import recreate_topics
from tests.unit.ingest.avro_events import Writer, envelope, event, key_schema
from tests.unit.ingest.stub_registry import StubRegistry

_KEY = Writer(key_schema(id="long"), 1)
_FIRST = Writer(envelope({"id": "long", "v": "string"}), 2)
_WIDER = Writer(envelope({"id": "long", "v": "string", "w": [{"type": "long"}, "null"]}), 3)


class AvroStream:
    """See the module.

    Args:
        bootstrap: the broker.
        registry: gets the schemas.
    """

    def __init__(self, bootstrap: str, registry: StubRegistry) -> None:
        self.topics = [f"avro.{time.time_ns()}"]
        self.corrupt: set[tuple[str, int, int]] = set()
        self.rows: dict[int, dict[str, Any]] = {}
        for number, writer in enumerate((_KEY, _FIRST, _WIDER), start=1):
            registry.add(number, writer.schema)
        self._wider = False
        self._chance = random.Random(1)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        recreate_topics(bootstrap, self.topics, 2)

    def changes(self, count: int) -> None:
        """Inserts and updates of 500 keys."""
        writer = _WIDER if self._wider else _FIRST
        for _ in range(count):
            number = self._chance.randrange(500)
            row: dict[str, Any] = {"id": number, "v": f"v{self._chance.randrange(1000)}"}
            if self._wider:
                row["w"] = self._chance.randrange(1000)
            self.rows[number] = row
            value = writer(event("c", None, row))
            self._producer.produce(self.topics[0], value, _KEY({"id": number}), number % 2)
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def widen(self) -> None:
        """From now on rows have another column, in a schema that nobody has asked for yet."""
        self._wider = True

    def assert_rows(self, tables: Mapping[str, FileStoreTable]) -> None:
        """The table has the rows."""
        [table] = tables.values()
        found = {row["id"]: row for row in table.to_arrow().to_pylist()}
        assert found == {number: {"w": None, **row} for number, row in self.rows.items()}
