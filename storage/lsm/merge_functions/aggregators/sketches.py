# SPDX-License-Identifier: Apache-2.0
"""`rbm32`, `rbm64`, `hll_sketch`, `theta_sketch`: unions of serialized sets.

Source: SEMANTICS.md §B.3, detail 9. A single value passes as it is. Only segments of more than
one value are opened, one after the other: each is worth a set, not a number.
"""

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from datasketches import compact_theta_sketch, hll_sketch, hll_union, tgt_hll_type, theta_union
from pyroaring import BitMap, BitMap64

from storage.errors import CorruptDataError
from storage.lsm.merge_functions.aggregators.function import (
    AggregateFunction,
    RowFold,
    objects_of,
)
from storage.lsm.merge_functions.aggregators.java_bitmap64 import (
    decode_java,
    encode_java,
    looks_like_java,
)

__all__ = ["SetUnion"]

_SMALLEST_HLL_UNION = 7
_PREAMBLE_LONGS = 0x3F
_WHOLE = struct.pack("<f", 1.0)
_THETA_UNION = 12
"""log2 of the nominal entries of a union, as Java's builder sets it when nothing is said."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetUnion(AggregateFunction):
    """The union of the sets that are not null; the name of the function says what the bytes are."""

    turns_late: ClassVar[bool] = False

    def open(self, values: pa.Array) -> RowFold:
        """See `AggregateFunction`; a total is a set once it is of two values."""
        union, data_of = _UNIONS[self.name]

        def add(total: Any, value: Any) -> Any:
            if total is None or value is None:
                return value if total is None else total
            try:
                return union(total, value)
            except (ValueError, RuntimeError, IndexError) as error:
                raise CorruptDataError(
                    f"a value of a column with aggregate function '{self.name}' is no such set",
                    detail=str(error),
                    field=self.field.name,
                    expected=_CONTENT[self.name],
                ) from error

        def close(totals: list[Any]) -> pa.Array:
            whole = [t if t is None or isinstance(t, bytes) else data_of(t) for t in totals]
            return pa.array(whole, values.type)

        return RowFold(objects_of(values), add, close)


def _bitmap_32(total: BitMap | bytes, data: bytes) -> BitMap:
    """Portable 32-bit bitmaps."""
    union = BitMap.deserialize(total) if isinstance(total, bytes) else total
    union |= BitMap.deserialize(data)
    return union


@dataclasses.dataclass(slots=True)
class _Bitmap64:
    """A 64-bit bitmap, in Java's layout if one of its parts has it, else portable.

    Portable only when all parts are, because Java reads no other beside its own.
    """

    values: BitMap64
    java: bool

    @staticmethod
    def read(data: "_Bitmap64 | bytes") -> "_Bitmap64":
        if not isinstance(data, bytes):
            return data
        if looks_like_java(data):
            try:
                return _Bitmap64(BitMap64(decode_java(data)), True)
            except CorruptDataError:
                pass  # a portable one after all, or neither
        return _Bitmap64(BitMap64.deserialize(data), False)

    def data(self) -> bytes:
        if self.java:
            return encode_java(np.array(self.values.to_array(), dtype=np.uint64))
        return _portable(self.values)


def _bitmap_64(total: _Bitmap64 | bytes, data: bytes) -> _Bitmap64:
    union, other = _Bitmap64.read(total), _Bitmap64.read(data)
    union.values |= other.values
    union.java |= other.java
    return union


def _portable(values: BitMap | BitMap64) -> bytes:
    values.run_optimize()
    return bytes(values.serialize())


def _hll(total: bytes, data: bytes) -> bytes:
    added = hll_sketch.deserialize(data)
    union = hll_union(max(added.lg_config_k, _SMALLEST_HLL_UNION))
    union.update(added)
    union.update(hll_sketch.deserialize(total))
    return bytes(union.get_result(tgt_hll_type.HLL_4).serialize_compact())


def _theta(total: bytes, data: bytes) -> bytes:
    union = theta_union(_THETA_UNION)
    union.update(compact_theta_sketch.deserialize(total))
    union.update(compact_theta_sketch.deserialize(data))
    return _with_sampling(union.get_result(True).serialize())


def _with_sampling(data: bytes) -> bytes:
    """The bytes of a theta sketch with the sampling rate 1 where Java notes it, and C++ does not.

    Nobody reads it in a compact sketch; with it the bytes are those of Java.
    """
    if data[0] & _PREAMBLE_LONGS < 2:
        return data
    return data[:12] + _WHOLE + data[16:]


_UNIONS: dict[str, tuple[Callable[[Any, bytes], Any], Callable[[Any], bytes]]] = {
    "rbm32": (_bitmap_32, _portable),
    "rbm64": (_bitmap_64, _Bitmap64.data),
    "hll_sketch": (_hll, bytes),
    "theta_sketch": (_theta, bytes),
}
"""The union of a total and a value, and the bytes of a total that is not bytes."""
_CONTENT = {
    "rbm32": "a portable 32-bit roaring bitmap",
    "rbm64": "a 64-bit roaring bitmap, portable or as Java writes it",
    "hll_sketch": "an Apache DataSketches HLL sketch",
    "theta_sketch": "a compact Apache DataSketches Theta sketch",
}
