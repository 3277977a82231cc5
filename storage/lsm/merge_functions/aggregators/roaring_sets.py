# SPDX-License-Identifier: Apache-2.0
"""Unions of serialized roaring bitmaps. Source: SEMANTICS.md §B.3, detail 9.

32-bit bitmaps are portable everywhere. 64-bit ones come in the portable layout or in that of
Java's class; a union stays portable only when all its parts are, because Java reads no other.
"""

from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap, BitMap64

from storage.errors import CorruptDataError
from storage.lsm.merge_functions.aggregators.java_bitmap64 import (
    decode_java,
    encode_java,
    looks_like_java,
)

__all__ = ["union_32", "union_64"]


def union_32(sets: Sequence[bytes]) -> bytes:
    """The union of portable 32-bit bitmaps."""
    union = BitMap.deserialize(sets[0])
    for data in sets[1:]:
        union |= BitMap.deserialize(data)
    union.run_optimize()
    return bytes(union.serialize())


def union_64(sets: Sequence[bytes]) -> bytes:
    """The union of 64-bit bitmaps, in Java's layout if one of them has it, else portable."""
    union, java = _opened(sets[0])
    for data in sets[1:]:
        further, also = _opened(data)
        union |= further
        java |= also
    if java:
        return encode_java(np.array(union.to_array(), dtype=np.uint64))
    union.run_optimize()
    return bytes(union.serialize())


def _opened(data: bytes) -> tuple[BitMap64, bool]:
    if looks_like_java(data):
        try:
            return BitMap64(decode_java(data)), True
        except CorruptDataError:
            pass  # a portable one after all, or neither
    return BitMap64.deserialize(data), False
