# SPDX-License-Identifier: Apache-2.0
"""Avro object container files: header, codecs, blocks, sync markers; and records as mappings.

Data files read and write blocks (`BlockReader`, `BlockWriter`), whose records `decode` and `encode`
turn into columns. Manifests are records (`ContainerWriter`, `read_records`), which fastavro encodes
and decodes; the container is handled here because Java must find exactly our schema text in it.
Source: Avro specification, "Object Container Files"; FORMAT.md §4.1.
"""

import bz2
import dataclasses
import functools
import hashlib
import io
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import cramjam
import fastavro
import fastavro.schema
import pyarrow as pa

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.avro.schema import read_zigzag, zigzag

BLOCK_BYTES = 64_000
"""Uncompressed size at which a block is closed; the default of Avro's Java library."""

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_WINDOW_BYTES = 4 << 20
_CRC_BYTES = 4
_MAX_VARINT = 10

_COMPRESSION_ERRORS = (cramjam.DecompressionError, zlib.error, lzma.LZMAError, OSError, EOFError)
"""Exceptions of codecs for damaged blocks."""

_MALFORMED = (
    *(EOFError, LookupError, TypeError, ValueError, struct.error),
    fastavro.schema.SchemaParseException,
)
"""Exceptions of fastavro for damaged records and schemas."""

CODECS = {
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "snappy": "snappy",
    "deflate": "deflate",
    "gzip": "deflate",
    "zlib": "deflate",
    "bzip2": "bzip2",
    "xz": "xz",
    "null": "null",
    "none": "null",
    "uncompressed": "null",
}
"""Avro's names by `file.compression`, `avro.codec` or `manifest.compression`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """One block, decompressed on demand.

    Attributes:
        offset: of its compressed bytes in the file.
    """

    offset: int
    count: int
    codec: str
    compressed: bytes
    path: str

    def data(self) -> bytes:
        """The records.

        Raises:
            CorruptDataError: the block does not decompress.
            UnsupportedFeatureError: unknown codec.
        """
        try:
            return _codec(self.codec, self.path).decompressed(self.compressed)
        except _COMPRESSION_ERRORS as error:
            raise CorruptDataError(
                "an Avro file cannot be decoded",
                detail=str(error),
                path=self.path,
                offset=self.offset,
                expected=f"an Avro block compressed with {self.codec}",
            ) from error


class BlockReader:
    """Reads a container file from front to back, a few megabytes at a time.

    Raises:
        CorruptDataError: not an Avro file, or cut short.
    """

    def __init__(self, source: pa.NativeFile | bytes, path: str) -> None:
        self._path = path
        if isinstance(source, bytes):
            self._source, self._window, self._size = None, source, len(source)
        else:
            self._source, self._window, self._size = source, b"", int(source.size())
        self._start = 0
        """Position in the file of the window's first byte."""
        if self._bytes(0, len(_MAGIC)) != _MAGIC:
            raise self._corrupt(0, "the file does not begin with the Avro magic")
        metadata, position = self._metadata(len(_MAGIC))
        if "avro.schema" not in metadata:
            raise self._corrupt(len(_MAGIC), "the header has no schema")
        self.schema_text = metadata["avro.schema"]
        self._codec = metadata.get("avro.codec", "null")
        self._sync = self._bytes(position, _SYNC_BYTES)
        self._first = position + _SYNC_BYTES

    def blocks(self) -> Iterator[Block]:
        """All blocks in file order.

        Raises:
            CorruptDataError: a block is cut short or its sync marker is wrong.
        """
        position = self._first
        while position < self._size:
            count, position = self._long(position)
            size, position = self._long(position)
            if count < 0 or size < 0 or position + size + _SYNC_BYTES > self._size:
                raise self._corrupt(position, "a block is cut short or damaged")
            end = position + size
            stored = self._bytes(position, size)
            if self._bytes(end, _SYNC_BYTES) != self._sync:
                raise self._corrupt(position, "a block does not end with the sync marker")
            yield Block(position, count, self._codec, stored, self._path)
            position = end + _SYNC_BYTES

    def _metadata(self, position: int) -> tuple[dict[str, str], int]:
        metadata: dict[str, str] = {}
        while True:
            count, position = self._long(position)
            if count == 0:
                return metadata, position
            if count < 0:
                _, position = self._long(position)
            for _ in range(abs(count)):
                key, position = self._text(position)
                metadata[key], position = self._text(position)

    def _text(self, position: int) -> tuple[str, int]:
        size, position = self._long(position)
        if not 0 <= size <= self._size - position:
            raise self._corrupt(position, "a text of the header is cut short")
        try:
            return self._bytes(position, size).decode(), position + size
        except UnicodeDecodeError as error:
            raise self._corrupt(position, "a text of the header is not UTF-8") from error

    def _long(self, position: int) -> tuple[int, int]:
        raw = self._bytes(position, min(_MAX_VARINT, self._size - position))
        try:
            value, size = read_zigzag(raw, 0)
        except (IndexError, ValueError) as error:
            raise self._corrupt(position, "a number is cut short or too long") from error
        return value, position + size

    def _bytes(self, position: int, size: int) -> bytes:
        """Bytes of the file, through the window."""
        begin = position - self._start
        if self._source is not None and (begin < 0 or begin + size > len(self._window)):
            self._source.seek(position)
            length = min(max(size, _WINDOW_BYTES), self._size - position)
            self._window = self._source.read(max(0, length))
            self._start, begin = position, 0
        data = self._window[begin : begin + size]
        if len(data) != size:
            raise self._corrupt(position, "the file is cut short")
        return data

    def _corrupt(self, offset: int, detail: str) -> CorruptDataError:
        return CorruptDataError(
            "an Avro file cannot be decoded",
            detail=detail,
            path=self._path,
            offset=offset,
            expected="an Avro file",
        )


class BlockWriter:
    """Writes a container file.

    The sync marker is a digest of the schema and the first block, so that equal content gives
    equal bytes.
    """

    def __init__(self, output: Any, schema_text: str, codec: str, zstd_level: int) -> None:
        self._output = output
        self._schema_text = schema_text
        self._codec = codec
        self._level = zstd_level
        self._sync = b""

    def write(self, data: bytes | memoryview, count: int) -> None:
        """Write one block of `count` records."""
        stored = _codec(self._codec).compressed(data, self._level)
        self._begin(stored)
        self._output.write(zigzag(count) + zigzag(len(stored)) + stored + self._sync)

    def close(self) -> None:
        """Write the header if there was no block; nothing follows the last one."""
        self._begin(b"")

    def _begin(self, first: bytes) -> None:
        if self._sync:
            return
        schema = self._schema_text.encode()
        self._sync = hashlib.blake2b(schema + first, digest_size=_SYNC_BYTES).digest()
        parts = [_MAGIC, zigzag(2)]
        for text in (b"avro.schema", schema, b"avro.codec", self._codec.encode()):
            parts += [zigzag(len(text)), text]
        self._output.write(b"".join([*parts, zigzag(0), self._sync]))


class ContainerWriter:
    """Builds one container file of records in memory.

    Protocol: `append` records, watch `size`, then `finish` once. Equal records give equal bytes.

    Args:
        schema_text: as written to the header.
    """

    def __init__(self, schema_text: str, *, codec: str = "zstandard", zstd_level: int = 1) -> None:
        self._schema = _parsed(schema_text)
        self._output = io.BytesIO()
        self._blocks = BlockWriter(self._output, schema_text, codec, zstd_level)
        self._pending = io.BytesIO()
        self._pending_count = 0

    @property
    def size(self) -> int:
        """Lower bound of the file's size: what closed blocks take [bytes]."""
        return self._output.tell()

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; keys are field names, logical types are given as plain numbers."""
        fastavro.schemaless_writer(self._pending, self._schema, record, disable_tuple_notation=True)
        self._pending_count += 1
        if self._pending.tell() >= BLOCK_BYTES:
            self._close_block()

    def finish(self) -> bytes:
        """The whole file."""
        self._close_block()
        self._blocks.close()
        return self._output.getvalue()

    def _close_block(self) -> None:
        if self._pending_count:
            self._blocks.write(self._pending.getvalue(), self._pending_count)
            self._pending = io.BytesIO()
            self._pending_count = 0


def read_records(data: bytes, *, source: str = "") -> Iterator[dict[str, Any]]:
    """Decode all records of a container file, in file order.

    Yields:
        One mapping per record, by the file's own field names; logical types as plain numbers.

    Raises:
        CorruptDataError: the bytes are no Avro file, or are cut short or damaged.
        UnsupportedFeatureError: unknown codec.
    """
    reader = BlockReader(data, source)
    for block in reader.blocks():
        content = block.data()
        try:
            # one array of records is read in one call: much faster than a call for each of them
            count = zigzag(block.count) if block.count else b""
            array = io.BytesIO(b"".join((count, content, b"\0")))
            schema = _parsed_array(reader.schema_text)
            records = cast(list[dict[str, Any]], fastavro.schemaless_reader(array, schema, None))
        except _MALFORMED as error:
            raise _undecodable(block, f"{type(error).__name__}: {error}") from error
        if array.read(1):
            raise _undecodable(block, "the block holds more than its records")
        yield from records


def _undecodable(block: Block, detail: str) -> CorruptDataError:
    return CorruptDataError(
        "an Avro file cannot be decoded",
        detail=detail,
        path=block.path,
        offset=block.offset,
        expected=f"{block.count} Avro records",
    )


def _crc(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _snappy(stored: bytes) -> bytes:
    data = bytes(cramjam.snappy.decompress_raw(stored[:-_CRC_BYTES]))
    if _crc(data) != stored[-_CRC_BYTES:]:
        raise EOFError("the checksum of a block is wrong")
    return data


def _deflate(data: bytes | memoryview) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(data) + deflate.flush()


class _Codec(NamedTuple):
    """Compresses the records of a block, with a level for zstandard, and decompresses them.

    Damaged blocks raise one of `_COMPRESSION_ERRORS`.
    """

    compressed: Callable[[bytes | memoryview, int], bytes]
    decompressed: Callable[[bytes], bytes]


_CODECS = {
    "zstandard": _Codec(
        lambda data, level: bytes(cramjam.zstd.compress(data, level=level)),
        lambda stored: bytes(cramjam.zstd.decompress(stored)),
    ),
    "snappy": _Codec(
        lambda data, _: bytes(cramjam.snappy.compress_raw(data)) + _crc(data), _snappy
    ),
    "deflate": _Codec(
        lambda data, _: _deflate(data), lambda stored: zlib.decompress(stored, -zlib.MAX_WBITS)
    ),
    "bzip2": _Codec(lambda data, _: bz2.compress(data), bz2.decompress),
    "xz": _Codec(lambda data, _: lzma.compress(data), lzma.decompress),
    "null": _Codec(lambda data, _: bytes(data), bytes),
}


def _codec(name: str, path: str = "") -> _Codec:
    if name not in _CODECS:
        raise UnsupportedFeatureError("unknown Avro codec", codec=name, path=path)
    return _CODECS[name]


@functools.lru_cache(maxsize=64)
def _parsed(schema_text: str) -> Any:
    """The parsed schema, without logical types: converting them to objects is slow."""
    return fastavro.parse_schema(_plain(json.loads(schema_text)))


@functools.lru_cache(maxsize=64)
def _parsed_array(schema_text: str) -> Any:
    """The parsed schema of an array of such records: the form of a block with its count."""
    return fastavro.parse_schema({"type": "array", "items": _plain(json.loads(schema_text))})


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return schema
