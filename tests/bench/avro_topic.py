# SPDX-License-Identifier: Apache-2.0
"""The orders workload of `events` as Debezium events in Avro, and the stub of a registry for them.

The same changes with the same keys in the same partitions; amounts are Connect decimals.
"""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro

from tests.bench import decode_avro, events, workload
from tests.bench.decode_events import COLUMNS
from tests.unit.ingest.stub_registry import stub_registry

TOPIC = f"{events.TOPIC}.avro"
_KEY_ID, _VALUE_ID = 1, 2
_NAMES = {name for name, _, _ in workload.COLUMNS}


class _Encoder:
    """JSON events to Avro."""

    def __init__(self) -> None:
        self.value = decode_avro.schema([row for row in COLUMNS if row[0] in _NAMES])
        self.key = {
            "type": "record",
            "name": "Key",
            "fields": [{"name": "id", "type": "long"}],
        }
        plain = json.dumps(self.value).replace('"logicalType"', '"was"')
        self._value, self._key = (
            fastavro.parse_schema(schema) for schema in (json.loads(plain), dict(self.key))
        )

    def __call__(self, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        event = json.loads(value)
        event["source"] |= {"origin": None, "origin_lsn": None}
        for image in (event["before"], event["after"]):
            if image is not None and image["amount"] is not None:
                cents = int(image["amount"].replace(".", ""))
                image["amount"] = cents.to_bytes(5, "big", signed=True)
        return (
            self._datum(_KEY_ID, self._key, json.loads(key)),
            self._datum(_VALUE_ID, self._value, event),
        )

    def _datum(self, number: int, schema: Any, value: Any) -> bytes:
        out = io.BytesIO()
        out.write(b"\0" + number.to_bytes(4, "big"))
        fastavro.schemaless_writer(out, schema, value)
        return out.getvalue()


@contextmanager
def avro_topic(bootstrap: str, size: workload.Size) -> Iterator[tuple[dict[str, Any], str]]:
    """Fill the topic; gives what was made, and the address of the registry while it runs."""
    encoder = _Encoder()
    made = events.fill_topic(bootstrap, workload.Orders(size), TOPIC, encoder)
    with stub_registry() as stub:
        stub.add(_KEY_ID, encoder.key)
        stub.add(_VALUE_ID, encoder.value)
        yield made, stub.url
