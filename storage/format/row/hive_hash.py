# SPDX-License-Identifier: Apache-2.0
"""The row hash of bucket function `hive`.

Source: FORMAT.md §6. For tables whose buckets must agree with Hive's; rare, so DECIMAL of more
than 18 digits goes value by value, everything else is vectorised.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.row.row_codec import MAX_COMPACT_DECIMAL, RowValue
from storage.format.row.row_values import to_row_values
from storage.format.types.arrow_types import normalize
from storage.format.types.type_text import type_name
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["hive_hash"]

Hashes = npt.NDArray[np.uint32]

_INTEGERS = (
    TypeRoot.BOOLEAN,
    TypeRoot.TINYINT,
    TypeRoot.SMALLINT,
    TypeRoot.INT,
    TypeRoot.DATE,
    TypeRoot.TIME,
)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
_FACTOR = np.uint32(31)


def hive_hash(columns: Sequence[pa.Array], types: Sequence[DataType]) -> Hashes:
    """Hash of each row, wrapping at 32 bits; nulls count as 0.

    Args:
        columns: equally long, one per type, in bucket key order.
        types: TIMESTAMPs and nested types have no such hash, unless all values are null.

    Raises:
        UnsupportedFeatureError: a value of a type without a hash.
    """
    state = np.zeros(len(columns[0]), np.uint32)
    for column, type_ in zip(columns, types, strict=True):
        state *= _FACTOR
        state += _column_hash(normalize(column, type_), type_)
    return state


def _column_hash(column: pa.Array, type_: DataType) -> Hashes:
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint32)
    hashes = _value_hash(column, type_)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def _value_hash(column: pa.Array, type_: DataType) -> Hashes:
    root = type_.root if isinstance(type_, AtomicType) else None
    if root in _INTEGERS:
        integers = _filled(column.cast(pa.int32()), 0)
        return cast(Hashes, integers.astype(np.int32).view(np.uint32))
    if root is TypeRoot.BIGINT:
        return _folded(_filled(column, 0).view(np.uint64))
    if root is TypeRoot.FLOAT:
        floats = _canonical(_filled(column, 0.0).astype(np.float32))
        return cast(Hashes, floats.view(np.uint32))
    if root is TypeRoot.DOUBLE:
        return _folded(_canonical(_filled(column, 0.0)).view(np.uint64))
    if root in _TEXTS:
        return _text_hash(column)
    if root is TypeRoot.DECIMAL and isinstance(type_, AtomicType):
        return _decimal_hash(column, type_)
    raise UnsupportedFeatureError(
        "bucket function hive does not take this type", type=type_name(type_)
    )


def _filled(column: pa.Array, value: float) -> npt.NDArray[Any]:
    return np.array(column.fill_null(value).to_numpy(zero_copy_only=False))


def _folded(bits: npt.NDArray[np.uint64]) -> Hashes:
    return (bits ^ (bits >> np.uint64(32))).astype(np.uint32)


def _canonical(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = np.where(values == 0, values.dtype.type(0), values)
    return np.where(np.isnan(values), values.dtype.type(np.nan), values)


def _text_hash(column: pa.Array) -> Hashes:
    """Sum of 31^(distance to the end) * signed byte, by one running sum over the buffer."""
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, column.offset * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    if data is None or last == first:
        return np.zeros(len(column), np.uint32)
    content = np.frombuffer(data, np.int8, last - first, first).astype(np.uint32)
    lengths = np.diff(offsets)
    ends = np.repeat(offsets[1:] - first, lengths)
    powers = np.full(int(lengths.max()), _FACTOR, np.uint32)
    powers[0] = 1
    np.multiply.accumulate(powers, out=powers)
    content *= powers[ends - 1 - np.arange(last - first)]
    sums = np.zeros(last - first + 1, np.uint32)
    np.cumsum(content, dtype=np.uint32, out=sums[1:])
    return cast(Hashes, sums[offsets[1:] - first] - sums[offsets[:-1] - first])


def _decimal_hash(column: pa.Array, type_: AtomicType) -> Hashes:
    if type_.precision > MAX_COMPACT_DECIMAL:
        values = (_decimal_value_hash(value) for value in to_row_values(column, type_))
        return np.fromiter(values, np.uint32, len(column))
    pairs = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), column.offset * 16)
    unscaled = pairs[::2].copy()
    if column.null_count:
        unscaled[column.is_null().to_numpy(zero_copy_only=False)] = 0
    scales = np.where(unscaled == 0, 0, type_.scale).astype(np.uint32)
    for _ in range(type_.scale):
        quotients = unscaled // 10
        strip = (scales > 0) & (quotients * 10 == unscaled)
        unscaled = np.where(strip, quotients, unscaled)
        scales -= strip
    magnitude = np.abs(unscaled).view(np.uint64)
    hashes = (magnitude >> np.uint64(32)).astype(np.uint32) * _FACTOR
    hashes += magnitude.astype(np.uint32)
    hashes = np.where(unscaled < 0, np.uint32(0) - hashes, hashes)
    return hashes * _FACTOR + scales


def _decimal_value_hash(value: RowValue) -> int:
    """Java's `BigDecimal.hashCode` of the value without trailing zeros."""
    if value is None or value == 0:
        return 0
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits)))
    while exponent < 0 and unscaled % 10 == 0:
        unscaled //= 10
        exponent += 1
    hashed = 0
    for shift in range((unscaled.bit_length() + 31) // 32 * 32 - 32, -1, -32):
        hashed = 31 * hashed + (unscaled >> shift & 0xFFFFFFFF)
    return (31 * (-hashed if sign else hashed) - exponent) & 0xFFFFFFFF
