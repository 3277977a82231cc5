# SPDX-License-Identifier: Apache-2.0
"""Avro object container files: header, compressed blocks, sync markers.

fastavro encodes and decodes the records; the container is handled here because the codecs are
those of `avro_blocks`, and because Java must find exactly our schema text in the header. Knows
nothing of manifests. Source: Avro specification, "Object Container Files"; FORMAT.md §4.1.
"""

import functools
import hashlib
import io
import json
import struct
from collections.abc import Iterator
from typing import Any, cast

import fastavro
import fastavro.schema

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.avro.blocks import COMPRESSION_ERRORS, compressed, decompressed

__all__ = ["ContainerWriter", "read_records"]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BLOCK_BYTES = 64 * 1024
"""Uncompressed size at which a block is closed; the default of Avro's Java library."""

_MALFORMED = (
    *(EOFError, LookupError, TypeError, ValueError, struct.error),
    fastavro.schema.SchemaParseException,
)


class ContainerWriter:
    """Builds one container file in memory.

    Protocol: `append` records, watch `size`, then `finish` once. The sync marker is a digest of
    the content, so that equal records give equal bytes.

    Args:
        schema_text: as it is to stand in the header.
        codec: `zstandard`, `deflate`, `snappy` or `null`.
        zstd_level: of the first.
    """

    def __init__(self, schema_text: str, *, codec: str = "zstandard", zstd_level: int = 1) -> None:
        self._schema_text = schema_text
        self._schema = _parsed(schema_text)
        self._codec = codec
        self._level = zstd_level
        self._blocks: list[tuple[int, bytes]] = []
        self._closed_bytes = 0
        self._pending = io.BytesIO()
        self._pending_count = 0

    @property
    def size(self) -> int:
        """Lower bound of the file's size: what closed blocks take [bytes]."""
        return self._closed_bytes

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; keys are field names, logical types are given as plain numbers."""
        fastavro.schemaless_writer(self._pending, self._schema, record, disable_tuple_notation=True)
        self._pending_count += 1
        if self._pending.tell() >= _BLOCK_BYTES:
            self._close_block()

    def finish(self) -> bytes:
        """The whole file."""
        self._close_block()
        digest = hashlib.blake2b(self._schema_text.encode(), digest_size=_SYNC_BYTES)
        for _, block in self._blocks:
            digest.update(block)
        sync = digest.digest()
        metadata = {"avro.schema": self._schema_text, "avro.codec": self._codec}
        parts = [_MAGIC, _long(len(metadata))]
        for key, value in metadata.items():
            parts += [_bytes(key.encode()), _bytes(value.encode())]
        parts += [_long(0), sync]
        for count, block in self._blocks:
            parts += [_long(count), _bytes(block), sync]
        return b"".join(parts)

    def _close_block(self) -> None:
        if self._pending_count == 0:
            return
        block = compressed(self._codec, self._pending.getvalue(), self._level)
        self._blocks.append((self._pending_count, block))
        self._closed_bytes += len(block)
        self._pending = io.BytesIO()
        self._pending_count = 0


def read_records(data: bytes, *, source: str = "") -> Iterator[dict[str, Any]]:
    """Decode all records of a container file, in file order.

    Args:
        data: the whole file.
        source: what to name in an error, usually the path.

    Yields:
        One mapping per record, by the file's own field names; logical types as plain numbers.

    Raises:
        CorruptDataError: the bytes are no Avro file, or are cut short or damaged.
        UnsupportedFeatureError: unknown codec.
    """
    try:
        yield from _read(data, source)
    except _MALFORMED as error:
        if isinstance(error, UnsupportedFeatureError):
            raise
        raise CorruptDataError(
            "not a readable Avro file", detail=f"{type(error).__name__}: {error}", path=source
        ) from error
    except COMPRESSION_ERRORS as error:
        raise CorruptDataError(
            "an Avro block does not decompress", detail=str(error), path=source
        ) from error


def _read(data: bytes, source: str) -> Iterator[dict[str, Any]]:
    if not data.startswith(_MAGIC):
        raise CorruptDataError("not an Avro file", detail=f"starts with {data[:4]!r}", path=source)
    position, metadata = _read_metadata(data, len(_MAGIC))
    schema = _parsed_array(metadata["avro.schema"].decode())
    codec = metadata.get("avro.codec", b"null").decode()
    sync = data[position : position + _SYNC_BYTES]
    position += _SYNC_BYTES
    while position < len(data):
        count, position = _read_long(data, position)
        size, position = _read_long(data, position)
        end = position + size
        if size < 0 or count < 0 or data[end : end + _SYNC_BYTES] != sync:
            raise CorruptDataError(
                "an Avro block is cut short or damaged", path=source, offset=position
            )
        block = decompressed(codec, data[position:end], source)
        # one array of records is read in one call: much faster than a call for each of them
        array = io.BytesIO(_long(count) + block + _long(0)) if count else io.BytesIO(_long(0))
        yield from cast(list[dict[str, Any]], fastavro.schemaless_reader(array, schema, None))
        if array.tell() != len(array.getvalue()):
            raise CorruptDataError(
                "an Avro block holds more than its records", path=source, offset=position
            )
        position = end + _SYNC_BYTES


def _read_metadata(data: bytes, position: int) -> tuple[int, dict[str, bytes]]:
    metadata: dict[str, bytes] = {}
    while True:
        count, position = _read_long(data, position)
        if count == 0:
            return position, metadata
        if count < 0:
            _, position = _read_long(data, position)
        for _ in range(abs(count)):
            key, position = _read_bytes(data, position)
            metadata[key.decode()], position = _read_bytes(data, position)


@functools.lru_cache(maxsize=64)
def _parsed(schema_text: str) -> Any:
    """The parsed schema, without logical types: converting them to objects is slow."""
    return fastavro.parse_schema(_plain(json.loads(schema_text)))


@functools.lru_cache(maxsize=64)
def _parsed_array(schema_text: str) -> Any:
    """The parsed schema of an array of such records, as a block with its count around it is."""
    return fastavro.parse_schema({"type": "array", "items": _plain(json.loads(schema_text))})


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return schema


def _long(value: int) -> bytes:
    """Zig-zag variable-length encoding."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = _read_long(data, position)
    end = position + size
    if size < 0 or end > len(data):
        raise EOFError("a length points behind the end")
    return data[position:end], end
