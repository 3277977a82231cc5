# SPDX-License-Identifier: Apache-2.0
"""Messages that real connectors wrote, as files: what `tests.e2e.capture` saves and tests read.

A file `<database>.<converter>.jsonl.gz` has a header line, then one message a line. Texts are
UTF-8 where the converter writes JSON; bytes of Avro are one character each (Latin-1).
"""

import dataclasses
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ingest.source.records import RawBatch

FOLDER = Path(__file__).parent / "captured"


@dataclasses.dataclass(frozen=True)
class Message:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    encoded_headers: tuple[tuple[str, bytes], ...] = ()

    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """As Kafka's client gives them."""
        return self.encoded_headers

    def timestamp(self) -> tuple[int, int]:
        """None was kept."""
        return (0, -1)


@dataclasses.dataclass(frozen=True)
class Capture:
    """All messages of one connector.

    Attributes:
        database: product and version.
        connector: and version.
        converter: `json`, `json-schema` or `avro`.
        schemas: of `avro`, by id: the registry's answer to `GET /schemas/ids/<id>`.
        messages: by topic and partition, in offset order.
    """

    database: str
    connector: str
    converter: str
    schemas: dict[int, Any]
    messages: tuple[Message, ...]

    def batches(self) -> Iterator[RawBatch]:
        """One batch for each topic and partition."""
        groups: dict[tuple[str, int], list[Message]] = {}
        for message in self.messages:
            groups.setdefault((message.topic, message.partition), []).append(message)
        for (topic, partition), group in sorted(groups.items()):
            yield RawBatch(
                topic,
                partition,
                [message.offset for message in group],
                [message.key for message in group],
                [message.value for message in group],
                messages=group,
            )

    def save(self, path: Path) -> None:
        """Write the file; the same messages give the same bytes."""
        text = "latin-1" if self.converter == "avro" else "utf-8"
        header = {
            "database": self.database,
            "connector": self.connector,
            "converter": self.converter,
            "schemas": self.schemas,
        }
        lines = [json.dumps(header)]
        for each in self.messages:
            headers = [[name, value.decode("latin-1")] for name, value in each.headers()]
            row = [each.topic, each.partition, each.offset, _text(each.key, text)]
            lines.append(json.dumps([*row, _text(each.value, text), headers], ensure_ascii=False))
        path.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


def load(path: Path) -> Capture:
    """Read a file that `Capture.save` wrote."""
    first, *lines = gzip.decompress(path.read_bytes()).decode().split("\n")
    header = json.loads(first)
    text = "latin-1" if header["converter"] == "avro" else "utf-8"
    return Capture(
        header["database"],
        header["connector"],
        header["converter"],
        {int(number): schema for number, schema in header["schemas"].items()},
        tuple(_message(json.loads(line), text) for line in lines),
    )


def captures(converters: Sequence[str]) -> list[Path]:
    """The files there are for these converters."""
    return sorted(path for name in converters for path in FOLDER.glob(f"*.{name}.jsonl.gz"))


def _message(row: list[Any], text: str) -> Message:
    topic, partition, offset, key, value, headers = row
    encoded = tuple((name, content.encode("latin-1")) for name, content in headers)
    return Message(topic, partition, offset, _bytes(key, text), _bytes(value, text), encoded)


def _text(content: bytes | None, encoding: str) -> str | None:
    return None if content is None else content.decode(encoding)


def _bytes(content: str | None, encoding: str) -> bytes | None:
    return None if content is None else content.encode(encoding)
