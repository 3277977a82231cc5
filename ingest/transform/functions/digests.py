# SPDX-License-Identifier: Apache-2.0
"""SHA-256 and MD5 of columns as hexadecimal text.

Arrow has no such kernels, so each distinct value goes through `hashlib`, straight from the column's
buffer: about a microsecond each.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ALGORITHMS", "hex_digests"]


def _md5(data: Any) -> Any:
    return hashlib.md5(data, usedforsecurity=False)


ALGORITHMS: dict[str, Callable[[Any], Any]] = {"sha256": hashlib.sha256, "md5": _md5}
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def hex_digests(column: pa.Array, algorithm: str, salt: bytes = b"") -> pa.Array:
    """Digests of texts (as UTF-8) or bytes, the salt in front; null stays null."""
    coded = column.dictionary_encode()
    digests = _digests(coded.dictionary, ALGORITHMS[algorithm], salt)
    return digests.take(coded.indices)


def _digests(column: pa.Array, make: Callable[[Any], Any], salt: bytes) -> pa.Array:
    count = len(column)
    if count == 0:
        return pa.array([], pa.string())
    _, ends, content = column.cast(pa.binary()).buffers()
    data = memoryview(b"" if content is None else content)
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + count + 1].tolist()
    base = make(salt)

    def digest(start: int, end: int) -> bytes:
        state = base.copy()
        state.update(data[start:end])
        return bytes(state.digest())

    raw = b"".join(map(digest, offsets[:-1], offsets[1:]))
    octets = np.frombuffer(raw, np.uint8)
    letters = np.stack([_DIGITS[octets >> 4], _DIGITS[octets & 15]], axis=1).tobytes()
    width = 2 * base.digest_size
    places = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(letters)]
    return pc.if_else(column.is_valid(), pa.Array.from_buffers(pa.string(), count, buffers), None)
