# SPDX-License-Identifier: Apache-2.0
"""Deletion vectors and the index files that hold them.

A deletion vector is a bitmap of 0-based row positions of one data file. A `BitMap` is written in
the 32-bit form, a `BitMap64` in the 64-bit form of `deletion-vectors.bitmap64`; one index file may
hold both. Source: FORMAT.md §9.2. Knows nothing of tables or stores.
"""

import functools
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyroaring

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.files.row_selection import Bitmap
from storage.format.metadata.file_meta import DeletionVectorMeta

FILE_VERSION = b"\x01"
"""First byte of an index file; an index file without vectors is nothing else."""

_MAGIC_32 = struct.pack(">i", 1581511376)
_MAGIC_64 = struct.pack("<i", 1681511377)
_ONE_PART = struct.pack("<qi", 1, 0)
"""Of a 64-bit bitmap without positions beyond 32 bits: number of parts, key of the part."""

_SIZE = struct.Struct(">i")
_WORD = 4
_LARGEST_32 = 0x7FFF_FFFF - 1
"""Java's bound of positions in the 32-bit form."""


def encode(bitmap: Bitmap, bitmap64: bool | None = None) -> bytes:
    """One vector as stored in an index file: size, magic, bitmap, CRC.

    `bitmap64` is the form to write; None: as the bitmap is.

    Raises:
        InvalidRequestError: a position is too large for the 32-bit form.
    """
    if bitmap64 is not None:
        bitmap = in_form(bitmap, bitmap64)
    if isinstance(bitmap, pyroaring.BitMap64):
        content = _MAGIC_64 + _packed_64(bitmap)
    else:
        content = _MAGIC_32 + _packed_32(bitmap)
    return struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def in_form(bitmap: Bitmap, bitmap64: bool) -> Bitmap:
    """The same positions as a 32-bit or a 64-bit bitmap.

    Raises:
        InvalidRequestError: a position is too large for the 32-bit form.
    """
    if bitmap64 == isinstance(bitmap, pyroaring.BitMap64):
        return bitmap
    if bitmap64:
        return widened(bitmap)
    if bitmap and bitmap.max() > _LARGEST_32:
        raise InvalidRequestError(
            "a row position does not fit a 32-bit deletion vector",
            hint="set `deletion-vectors.bitmap64` to true",
            position=bitmap.max(),
        )
    return pyroaring.BitMap(np.asarray(bitmap.to_array(), np.uint64).astype(np.uint32))


def widened(bitmap: Bitmap) -> pyroaring.BitMap64:
    """The same positions as a new 64-bit bitmap."""
    return pyroaring.BitMap64(np.asarray(bitmap.to_array(), np.uint64))


def _packed_32(bitmap: pyroaring.BitMap) -> bytes:
    compact = bitmap.copy()
    compact.run_optimize()
    return bytes(compact.serialize())


def _packed_64(bitmap: pyroaring.BitMap64) -> bytes:
    """Number of 32-bit bitmaps, then each with its key; empty ones fill the gaps, as in Java."""
    positions = np.asarray(bitmap.to_array(), np.uint64)
    keys = positions >> np.uint64(32)
    count = int(keys[-1]) + 1 if len(keys) else 0
    parts = [struct.pack("<q", count)]
    for key in range(count):
        low = positions[keys == key].astype(np.uint32)
        parts += [struct.pack("<i", key), _packed_32(pyroaring.BitMap(low))]
    return b"".join(parts)


def recorded_length(vector: bytes) -> int:
    """The length that the index manifest records for an encoded vector, by its form."""
    return len(vector) if vector[_WORD : 2 * _WORD] == _MAGIC_64 else len(vector) - 2 * _WORD


def bin_bytes(length: int) -> int:
    """How much to read for a vector of a recorded length: enough for both forms [bytes].

    May reach a few bytes past the vector, and past the end of the file.
    """
    return length + 2 * _WORD


def decode(data: bytes, path: str = "", offset: int = 0, *, length: int | None = None) -> Bitmap:
    """The positions of one vector.

    Args:
        data: from the vector's size word on; may be longer than the vector.
        path: of the index file, to name in errors.
        offset: of the vector in the file, to name in errors.
        length: recorded in the index manifest, to be checked; None: unknown.

    Raises:
        CorruptDataError: too short, an unknown magic number, a size other than recorded, a wrong
            checksum, or no bitmap.
    """
    corrupt = functools.partial(_corrupt, path, offset)
    content, wide = _content(data, corrupt, length)
    try:
        return (
            _unpacked_64(content[_WORD:]) if wide else pyroaring.BitMap.deserialize(content[_WORD:])
        )
    except (ValueError, struct.error) as error:
        raise corrupt(
            "no bitmap", expected="a portable Roaring bitmap", actual=str(error)
        ) from error


def encoded_64(data: bytes, path: str = "", offset: int = 0, *, length: int | None = None) -> bytes:
    """The same vector in the 64-bit form; its bitmap is not decoded.

    Args:
        data: as for `decode`.
        path: as for `decode`.
        offset: as for `decode`.
        length: as for `decode`.

    Raises:
        CorruptDataError: as `decode`, except for what only the bitmap shows.
    """
    content, wide = _content(data, functools.partial(_corrupt, path, offset), length)
    if wide:
        return data[: len(content) + 2 * _WORD]
    content = b"".join((_MAGIC_64, _ONE_PART, content[_WORD:]))
    return b"".join((_SIZE.pack(len(content)), content, struct.pack(">I", zlib.crc32(content))))


def _corrupt(
    path: str, offset: int, problem: str, *, expected: object, actual: object
) -> CorruptDataError:
    return CorruptDataError(
        f"a deletion vector is damaged: {problem}",
        path=path,
        offset=offset,
        expected=expected,
        found=actual,
    )


def _content(
    data: bytes, corrupt: Callable[..., CorruptDataError], length: int | None
) -> tuple[bytes, bool]:
    """Magic number and bitmap of a vector, whose checksum is right; whether it is 64-bit."""
    if len(data) < 3 * _WORD:
        raise corrupt("it is cut short", expected="at least 12 bytes", actual=len(data))
    (size,) = _SIZE.unpack_from(data)
    magic = data[_WORD : 2 * _WORD]
    if magic not in (_MAGIC_32, _MAGIC_64):
        expected = f"{_MAGIC_32.hex()} or {_MAGIC_64.hex()}"
        raise corrupt("wrong magic number", expected=expected, actual=magic.hex())
    wide = magic == _MAGIC_64
    recorded = None if length is None else length - 2 * _WORD if wide else length
    if recorded is not None and recorded != size:
        raise corrupt("wrong size", expected=recorded, actual=size)
    if size < _WORD or len(data) < size + 2 * _WORD:
        raise corrupt("it is cut short", expected=size + 2 * _WORD, actual=len(data))
    content = data[_WORD : _WORD + size]
    (checksum,) = struct.unpack_from(">I", data, _WORD + size)
    if zlib.crc32(content) != checksum:
        raise corrupt(
            "wrong checksum", expected=f"{checksum:08x}", actual=f"{zlib.crc32(content):08x}"
        )
    return content, wide


def _unpacked_64(data: bytes) -> pyroaring.BitMap64:
    """Every 32-bit part is tried first: the library's 64-bit reader trusts its input."""
    (count,) = struct.unpack_from("<q", data)
    if count < 0 or count > len(data):
        raise ValueError(f"invalid number of parts: {count}")
    position = 2 * _WORD
    for expected in range(count):
        (key,) = struct.unpack_from("<i", data, position)
        if key < expected:
            raise ValueError(f"part {key} follows part {expected - 1}")
        position += _WORD
        position += len(pyroaring.BitMap.deserialize(data[position:]).serialize())
    if position > len(data):
        raise ValueError(f"parts need {position} of {len(data)} bytes")
    return pyroaring.BitMap64.deserialize(data)


def encode_file(vectors: Mapping[str, Bitmap]) -> tuple[bytes, tuple[DeletionVectorMeta, ...]]:
    """A whole index file, and the position of each vector.

    Each is written in its own form, in the order of the mapping by data file name.
    """
    parts, metas = [FILE_VERSION], []
    offset = len(FILE_VERSION)
    for name, bitmap in vectors.items():
        vector = encode(bitmap)
        parts.append(vector)
        metas.append(
            DeletionVectorMeta(
                data_file_name=name,
                offset=offset,
                length=recorded_length(vector),
                cardinality=len(bitmap),
            )
        )
        offset += len(vector)
    return b"".join(parts), tuple(metas)


def roll(vectors: Mapping[str, Bitmap], target_size: int) -> Iterator[dict[str, Bitmap]]:
    """Groups of vectors for one file each: a file ends with the vector that takes it over a size.

    `target_size` is `deletion-vector.index-file.target-size` [bytes].
    """
    rest = iter(vectors.items())
    for first in rest:
        group: dict[str, Bitmap] = {}
        size = len(FILE_VERSION)
        for name, bitmap in itertools.chain((first,), rest):
            group[name] = bitmap
            size += len(encode(bitmap))
            if size > target_size:
                break
        yield group


# The HASH index file of a dynamic bucket: the hashes of all keys that live in it.
#
# Source: FORMAT.md §9.1. No header; big-endian 32-bit words, in any order.


HASH_BYTES = 4
"""Size of one hash in the file."""


def encode_hashes(hashes: npt.NDArray[np.int32]) -> bytes:
    """The file with these hashes, in this order."""
    return hashes.astype(">i4").tobytes()


def decode_hashes(data: bytes, path: str = "") -> npt.NDArray[np.int32]:
    """The hashes of a file, in file order.

    Raises:
        CorruptDataError: the file ends inside a hash.
    """
    if len(data) % HASH_BYTES:
        raise CorruptDataError(
            "a hash index file ends inside a hash",
            path=path,
            offset=len(data) - len(data) % HASH_BYTES,
            expected="a multiple of 4 bytes",
            found=len(data),
        )
    return np.frombuffer(data, ">i4").astype(np.int32)
