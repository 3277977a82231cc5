# SPDX-License-Identifier: Apache-2.0
"""Which schema an Avro record was written with, and where its value begins.

The id stands before the value (magic byte 0 and a big-endian id, or magic byte 1 and a GUID) or in
a header, and then the value stands alone. A value alone may begin with a zero byte too, so headers
are read first; since reading them costs as much as decoding, only the first and the last record of
a batch are read, and all of them where one of the two has such a header: a producer changes its
ways once, not back and forth within a few thousand records. `header_id` is for the doubtful rest.

Apicurio's converters may name a schema by its content id, which registries answer for through
Confluent's API, or by its global id, for which they do not: such records are refused with the
producer's setting that changes it. So are values in Avro's JSON encoding, which a header declares.

Source: CDC.md §1.7; `SchemaId` of Confluent's clients (`__key_schema_id`, `__value_schema_id`);
header names of Apicurio's serdes.
"""

import enum
import uuid

from ingest.decode.registry.client import SchemaId
from ingest.source.records import RawBatch

__all__ = ["Framing", "FramingError", "Part", "usual_subject"]

_ID, _GUID = 0, 1
_GUID_BYTES = 16
_CONFLUENT_BYTES, _APICURIO_BYTES = 4, 8
_BINARY = b"BINARY"
_SIZES = {b"\0": 1 + _CONFLUENT_BYTES, b"\1": 1 + _GUID_BYTES}
"""Of a header by its magic byte."""


class FramingError(ValueError):
    """No schema id can be found; says why."""


class Part(enum.Enum):
    """Key or value of a record; its value is (Confluent's header, Apicurio's headers)."""

    KEY = ("__key_schema_id", "apicurio.key.contentId", "apicurio.key.globalId")
    VALUE = ("__value_schema_id", "apicurio.value.contentId", "apicurio.value.globalId")

    @property
    def encoding_header(self) -> str:
        """The header that says how the content is encoded."""
        return f"apicurio.{self.name.lower()}.encoding"


def usual_subject(topic: str, part: Part) -> str:
    """Under which name producers register schemas of a topic by default."""
    return f"{topic}-{part.name.lower()}"


class Framing:
    """Finds ids.

    Args:
        id_bytes: of an id before a value: 4, or 8 as Apicurio writes it by default.
    """

    def __init__(self, id_bytes: int) -> None:
        if id_bytes not in (_CONFLUENT_BYTES, _APICURIO_BYTES):
            raise ValueError(f"ids of {id_bytes} bytes")
        self._id_bytes = id_bytes

    @property
    def prefix_bytes(self) -> int:
        """Length of the usual prefix: magic byte and id."""
        return 1 + self._id_bytes

    def has_headers(self, raw: RawBatch) -> bool:
        """Whether headers of a batch's records are to be read."""
        ends = {0, len(raw) - 1} if len(raw) else set()
        return any(_header(raw, at, part) is not None for at in ends for part in Part)

    def header_id(self, raw: RawBatch, at: int, part: Part) -> SchemaId | None:
        """The id in a record's headers.

        Raises:
            FramingError: the header holds no id.
        """
        found = _header(raw, at, part)
        if found is None:
            return None
        name, content = found
        if name == part.value[2]:
            raise FramingError(
                f"the header {name} names a schema by Apicurio's global id: set "
                "apicurio.registry.use-id=contentId on the producer"
            )
        if name == part.value[1] and len(content) == _APICURIO_BYTES:
            encoding = dict(raw.headers(at)).get(part.encoding_header, _BINARY)
            if encoding.upper() != _BINARY:
                raise FramingError(
                    f"the header {part.encoding_header} names an encoding that is not binary: set "
                    "apicurio.registry.avro.encoding=BINARY on the producer"
                )
            return int.from_bytes(content, "big")
        if name == part.value[0] and content[:1] in _SIZES and len(content) == _SIZES[content[:1]]:
            return self._before(content, _CONFLUENT_BYTES)[0]
        raise FramingError(f"the header {name} holds no schema id")

    def prefix(self, value: bytes) -> bytes:
        """The bytes that identify the schema."""
        if value[:1] == b"\x01":
            return value[: 1 + _GUID_BYTES]
        return value[: 1 + self._id_bytes]

    def id_before(self, value: bytes) -> tuple[SchemaId, int]:
        """The id before a value, and where the value begins.

        Raises:
            FramingError: there is none.
        """
        return self._before(value, self._id_bytes)

    def _before(self, value: bytes, id_bytes: int) -> tuple[SchemaId, int]:
        magic = value[0] if value else -1
        size = {_ID: id_bytes, _GUID: _GUID_BYTES}.get(magic, 0)
        content = value[1 : 1 + size]
        if not size or len(content) < size:
            raise FramingError(
                "no schema id: the value does not begin with a registry's magic byte, "
                "and no header names a schema"
            )
        if magic == _GUID:
            return uuid.UUID(bytes=content), 1 + size
        return int.from_bytes(content, "big"), 1 + size


def _header(raw: RawBatch, at: int, part: Part) -> tuple[str, bytes] | None:
    headers = dict(raw.headers(at))
    for name in part.value:
        if name in headers:
            return name, headers[name]
    return None
