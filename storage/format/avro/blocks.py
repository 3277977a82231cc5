# SPDX-License-Identifier: Apache-2.0
"""Blocks of Avro object container files: header, codecs, sync markers; streaming both ways.

Source: Avro specification, "Object Container Files". What records hold is not known here.
"""

import bz2
import dataclasses
import hashlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import cramjam
import pyarrow as pa

from storage.errors import CorruptDataError, InvalidOptionError, UnsupportedFeatureError

__all__ = [
    "COMPRESSION_ERRORS",
    "Block",
    "BlockReader",
    "BlockWriter",
    "codec_of",
    "compressed",
    "decompressed",
]

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_WINDOW_BYTES = 4 << 20
_CRC_BYTES = 4
_MAX_VARINT = 10

COMPRESSION_ERRORS = (cramjam.DecompressionError, zlib.error, lzma.LZMAError, OSError, EOFError)
"""What `decompressed` raises of damaged blocks."""

_CODECS = {
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


def codec_of(compression: str) -> str:
    """The Avro codec of a `file.compression` or `avro.codec`.

    Raises:
        InvalidOptionError: Avro has none of this name, such as lz4.
    """
    codec = _CODECS.get(compression.lower())
    if codec is None:
        raise InvalidOptionError(
            "Avro files cannot have this compression",
            hint="use one of zstd, snappy, deflate, bzip2, xz or null",
            compression=compression,
        )
    return codec


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """One block, decompressed only when asked.

    Attributes:
        offset: of its compressed bytes in the file.
        count: number of records.
        codec: Avro name.
        stored: compressed bytes.
        path: file, for errors.
    """

    offset: int
    count: int
    codec: str
    stored: bytes
    path: str

    def data(self) -> bytes:
        """The records.

        Raises:
            CorruptDataError: the block does not decompress.
            UnsupportedFeatureError: unknown codec.
        """
        try:
            return decompressed(self.codec, self.stored, self.path)
        except COMPRESSION_ERRORS as error:
            raise CorruptDataError(
                "a data file cannot be decoded",
                detail=str(error),
                path=self.path,
                offset=self.offset,
                expected=f"an Avro block compressed with {self.codec}",
            ) from error


class BlockReader:
    """Reads a container file from front to back, a few megabytes at a time.

    Args:
        source: the open file.
        path: for errors.

    Attributes:
        schema_text: `avro.schema` of the header.

    Raises:
        CorruptDataError: not an Avro file, or cut short.
    """

    def __init__(self, source: pa.NativeFile, path: str) -> None:
        self._source = source
        self._path = path
        self._size = int(source.size())
        self._window = b""
        self._start = 0
        """Position in the file of the window's first byte."""
        if self._bytes(0, len(MAGIC)) != MAGIC:
            raise self._corrupt(0, "the file does not begin with the Avro magic")
        metadata, position = self._metadata(len(MAGIC))
        if "avro.schema" not in metadata:
            raise self._corrupt(len(MAGIC), "the header has no schema")
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
        result = 0
        for i, byte in enumerate(raw):
            result |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1), position + i + 1
        raise self._corrupt(position, "a number is cut short or too long")

    def _bytes(self, position: int, size: int) -> bytes:
        """Bytes of the file, through the window."""
        begin = position - self._start
        if begin < 0 or begin + size > len(self._window):
            self._source.seek(position)
            wanted = min(max(size, _WINDOW_BYTES), self._size - position)
            self._window = self._source.read(max(0, wanted))
            self._start, begin = position, 0
        found = self._window[begin : begin + size]
        if len(found) != size:
            raise self._corrupt(position, "the file is cut short")
        return found

    def _corrupt(self, offset: int, detail: str) -> CorruptDataError:
        return CorruptDataError(
            "a data file cannot be decoded",
            detail=detail,
            path=self._path,
            offset=offset,
            expected="an Avro file",
        )


class BlockWriter:
    """Writes a container file.

    The sync marker is a digest of the schema and the first block, so that equal content gives
    equal bytes.

    Args:
        output: binary sink.
        schema_text: goes into the header.
        codec: from `codec_of`.
        zstd_level: level for zstandard.
    """

    def __init__(self, output: Any, schema_text: str, codec: str, zstd_level: int) -> None:
        self._output = output
        self._schema_text = schema_text
        self._codec = codec
        self._level = zstd_level
        self._sync = b""

    def write(self, data: bytes | memoryview, count: int) -> None:
        """Write one block of `count` records."""
        stored = compressed(self._codec, data, self._level)
        self._begin(stored)
        self._output.write(_long(count) + _long(len(stored)) + stored + self._sync)

    def close(self) -> None:
        """Write the header if there was no block; nothing follows the last one."""
        self._begin(b"")

    def _begin(self, first: bytes) -> None:
        if self._sync:
            return
        schema = self._schema_text.encode()
        self._sync = hashlib.blake2b(schema + first, digest_size=_SYNC_BYTES).digest()
        parts = [MAGIC, _long(2)]
        for text in (b"avro.schema", schema, b"avro.codec", self._codec.encode()):
            parts += [_long(len(text)), text]
        self._output.write(b"".join([*parts, _long(0), self._sync]))


def compressed(codec: str, data: bytes | memoryview, level: int) -> bytes:
    """A block as it is stored.

    Args:
        codec: from `codec_of`.
        data: the records.
        level: for zstandard.
    """
    match codec:
        case "zstandard":
            return bytes(cramjam.zstd.compress(data, level=level))
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(data)) + _crc(data)
        case "deflate":
            deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            return deflate.compress(data) + deflate.flush()
        case "bzip2":
            return bz2.compress(data)
        case "xz":
            return lzma.compress(data)
        case "null":
            return bytes(data)
        case _:
            raise UnsupportedFeatureError("unknown Avro codec", codec=codec)


def decompressed(codec: str, stored: bytes, path: str) -> bytes:
    """The records of a stored block.

    Args:
        codec: Avro name, from the header.
        stored: the block.
        path: for an error.

    Raises:
        UnsupportedFeatureError: unknown codec.
        COMPRESSION_ERRORS: damaged.
    """
    decompress = _DECOMPRESS.get(codec)
    if decompress is None:
        raise UnsupportedFeatureError("unknown Avro codec", codec=codec, path=path)
    return decompress(stored)


def _crc(data: bytes | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _snappy(stored: bytes) -> bytes:
    data = bytes(cramjam.snappy.decompress_raw(stored[:-_CRC_BYTES]))
    if _crc(data) != stored[-_CRC_BYTES:]:
        raise EOFError("the checksum of a block is wrong")
    return data


_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "zstandard": lambda stored: bytes(cramjam.zstd.decompress(stored)),
    "null": bytes,
    "deflate": lambda stored: zlib.decompress(stored, -zlib.MAX_WBITS),
    "snappy": _snappy,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}


def _long(value: int) -> bytes:
    """Zig-zag number of variable length."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
