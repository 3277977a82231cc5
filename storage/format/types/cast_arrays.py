# SPDX-License-Identifier: Apache-2.0
"""Shared by all casts of columns: values as numpy arrays and back, and how a cast fails."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class CastError(ValueError):
    """A value cannot be converted to the target type.

    Attributes:
        value: text of the first such value.
        failed: mask of the values that cannot, if known; null where the value is null.
    """

    def __init__(self, reason: str, value: str, failed: pa.Array | None = None) -> None:
        super().__init__(reason)
        self.value = value
        self.failed = failed


def numbers_of(column: pa.Array, stored: pa.DataType | None = None) -> np.ndarray[Any, Any]:
    """The values as numpy numbers; zero where the column is null.

    `stored` is the number type as which the bits are read; that of the column unless given.
    """
    if stored is not None:
        column = column.view(stored)
    if column.null_count:
        column = column.fill_null(0)
    return np.asarray(column.to_numpy(zero_copy_only=False))


def rebuilt(values: np.ndarray[Any, Any], like: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Numbers as a column of `target_type`, null where `like` is."""
    nulls = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    if (
        pa.types.is_integer(target_type)
        or pa.types.is_floating(target_type)
        or pa.types.is_boolean(target_type)
    ):
        return pa.array(values, target_type, mask=nulls)
    stored = pa.int32() if target_type.bit_width == 32 else pa.int64()
    return pa.array(values, stored, mask=nulls).view(target_type)


def require_all(valid: pa.Array, texts: pa.Array, reason: str) -> None:
    """Check that a condition holds wherever it is not null.

    Raises:
        CastError: for the first text that violates it.
    """
    broken = pc.index(valid, pa.scalar(False)).as_py()
    if broken >= 0:
        raise CastError(reason, str(texts[broken].as_py()), pc.invert(valid))


def parts_of(texts: pa.Array, pattern: str) -> dict[str, pa.Array]:
    """Named groups of a regular expression, by name; null where a text does not match."""
    groups = pc.extract_regex(texts, pattern)
    valid = groups.is_valid()
    return {
        name: pc.if_else(valid, groups.field(i), pa.scalar(None, pa.string()))
        for i, name in enumerate(groups.type.names)
    }
