# SPDX-License-Identifier: Apache-2.0
"""Numeric columns as numpy arrays and back, with decimals as 64-bit halves or Python integers.

Decimals are their unscaled values. Numbers of up to 18 digits, and all that happen to be as
small, are one int64; wider ones are a signed upper and an unsigned lower half.
"""

import numpy as np
import pyarrow as pa

from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.lsm.merge_functions.aggregators.contract import wrong_type

__all__ = [
    "FLOATS",
    "INTEGERS",
    "JAVA_WORDS",
    "decimal_array",
    "halves",
    "narrow",
    "numeric_root",
    "split",
    "unscaled",
]

INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)

JAVA_WORDS = {
    TypeRoot.TINYINT: "byte",
    TypeRoot.SMALLINT: "short",
    TypeRoot.INT: "int",
    TypeRoot.BIGINT: "long",
}
"""What messages about overflow call the types."""

_LOW = (1 << 64) - 1


def numeric_root(field: DataField, name: str) -> TypeRoot:
    """The family of the type of a column of numbers.

    Raises:
        InvalidOptionError: it is none.
    """
    type_ = field.type
    if isinstance(type_, AtomicType) and type_.root in (*INTEGERS, *FLOATS, TypeRoot.DECIMAL):
        return type_.root
    raise wrong_type(name, "'NumericType'", field)


def halves(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Upper (int64) and lower (uint64) halves of decimals without nulls."""
    pairs = np.frombuffer(values.buffers()[1], dtype=np.int64).reshape(-1, 2)
    pairs = pairs[values.offset : values.offset + len(values)]
    return np.ascontiguousarray(pairs[:, 1]), np.ascontiguousarray(pairs[:, 0]).view(np.uint64)


def narrow(values: pa.Array) -> np.ndarray | None:
    """Unscaled decimals (no nulls) as int64; None when one needs more bits."""
    if not len(values):
        return np.empty(0, dtype=np.int64)
    high, low = halves(values)
    signed = low.view(np.int64)
    return signed if bool(np.array_equal(high, signed >> 63)) else None


def unscaled(values: pa.Array) -> np.ndarray:
    """Unscaled decimals (no nulls) as Python integers, an object array."""
    small = narrow(values)
    if small is not None:
        return small.astype(object)
    high, low = halves(values)
    return (high.astype(object) << 64) | low.astype(object)


def decimal_array(
    low: np.ndarray, high: np.ndarray | None, kind: pa.DataType, absent: np.ndarray | None
) -> pa.Array:
    """Unscaled values as decimals.

    Args:
        low: lower halves, int64 or uint64.
        high: upper halves, int64; None when the lower ones are the numbers themselves.
        kind: the decimal type.
        absent: bool per value, true for null; None when there is no null.
    """
    pairs = np.empty((len(low), 2), dtype=np.int64)
    pairs[:, 0] = low.view(np.int64)
    pairs[:, 1] = pairs[:, 0] >> 63 if high is None else high
    validity = None
    if absent is not None and absent.any():
        validity = pa.py_buffer(np.packbits(~absent, bitorder="little"))
    return pa.Array.from_buffers(kind, len(low), [validity, pa.py_buffer(pairs)])


def split(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper halves, int64, of Python integers (an object array)."""
    low = (numbers & _LOW).astype(np.uint64).view(np.int64)
    return low, (numbers >> 64).astype(np.int64)
