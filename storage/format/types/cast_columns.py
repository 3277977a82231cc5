# SPDX-License-Identifier: Apache-2.0
"""Casting a column of one type to another: which kernel does it.

Every pair that `casts.can_cast` allows has one; the results are Java's. Pure, whole columns.
"""

from collections.abc import Callable

import pyarrow as pa

from storage.format.types.arrow_types import arrow_type
from storage.format.types.cast_numbers import to_boolean, to_number
from storage.format.types.cast_parse import from_text
from storage.format.types.cast_texts import fit_binary, to_text
from storage.format.types.cast_times import number_to_timestamp, to_time
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = ["CastColumn", "column_cast"]

CastColumn = Callable[[pa.Array], pa.Array]
"""Takes a column of the old type, gives it in the new one; raises CastError."""

_R = TypeRoot
_TEXTS = (_R.CHAR, _R.VARCHAR)
_BLOBS = (_R.BINARY, _R.VARBINARY)
_TIMES = (_R.DATE, _R.TIME, _R.TIMESTAMP, _R.TIMESTAMP_LTZ)
_NUMBERS = (_R.TINYINT, _R.SMALLINT, _R.INT, _R.BIGINT, _R.FLOAT, _R.DOUBLE, _R.DECIMAL)


def column_cast(source: DataType, target: AtomicType) -> CastColumn:
    """The cast from one type to another.

    The pair is one that `casts.can_cast` allows, and differs in more than nullability.
    """
    kernel = _kernel(source, target)
    wanted = arrow_type(target)

    def cast(column: pa.Array) -> pa.Array:
        # kernels take a whole array: Arrow's own for parts of one are not all right about offsets
        result = kernel(column)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        return result if result.type == wanted else result.cast(wanted)

    return cast


def _kernel(source: DataType, target: AtomicType) -> CastColumn:
    if not isinstance(source, AtomicType):
        return lambda column: to_text(column, source, target)
    if source.root in _TEXTS:
        return lambda column: from_text(column, target)
    if target.root in _TEXTS:
        return lambda column: to_text(column, source, target)
    if target.root in _BLOBS:
        return lambda column: fit_binary(column, target)
    if source.root in _TIMES:
        return lambda column: to_time(column, source, target)
    if target.root in _TIMES:
        return lambda column: number_to_timestamp(column, target)
    if target.root is _R.BOOLEAN:
        return to_boolean
    return lambda column: to_number(column, source, target)
