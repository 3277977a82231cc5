# SPDX-License-Identifier: Apache-2.0
"""Casts between dates, times, timestamps and numbers with the results of Java.

A TIMESTAMP WITH LOCAL TIME ZONE is converted in UTC, so that the same file reads the same
everywhere (Java takes the zone of its process). Source: SEMANTICS.md §H.2 and the cast rules of
Apache Paimon.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from storage.format.types.arrow_types import arrow_type
from storage.format.types.cast_arrays import CastError, numbers_of, rebuilt
from storage.format.types.types import AtomicType, TypeRoot

_R = TypeRoot
DAY_MILLIS = 86_400_000
_NANOS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_MILLIS_DIGITS = 3

Numbers = np.ndarray[Any, Any]


def nanos_of_unit(type_: pa.DataType) -> int:
    """Nanoseconds of one step of an Arrow timestamp type [ns]."""
    return _NANOS[type_.unit]


def to_time(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    """A DATE, TIME or timestamp as another of them, or a timestamp as a number of seconds.

    Raises:
        CastError: a timestamp does not fit 64-bit nanoseconds.
    """
    if source.root in (_R.TIMESTAMP, _R.TIMESTAMP_LTZ):
        return _from_timestamp(column, source, target)
    days_or_millis = numbers_of(column, pa.int32()).astype(np.int64)
    scale = DAY_MILLIS if source.root is _R.DATE else 1
    return _scaled(days_or_millis * scale, _NANOS["ms"], column, target)


def number_to_timestamp(column: pa.Array, target: AtomicType) -> pa.Array:
    """Seconds since 1970 as a timestamp.

    Raises:
        CastError: it does not fit the steps of the target.
    """
    seconds = numbers_of(column).astype(np.int64)
    return _scaled(seconds, 1_000_000_000, column, target)


def with_precision(values: Numbers, source_type: pa.DataType, digits: int) -> Numbers:
    """Timestamps cut to so many digits as Paimon does: towards zero in whole milliseconds."""
    per_milli = _NANOS["ms"] // _NANOS[source_type.unit]
    millis = values // per_milli
    below = values - millis * per_milli
    if digits > _MILLIS_DIGITS:
        step = max(1, 10 ** (9 - digits) // _NANOS[source_type.unit])
        return millis * per_milli + below // step * step
    step = 10 ** (_MILLIS_DIGITS - digits)
    cut = np.sign(millis) * (np.abs(millis) // step * step)
    exact = (millis % step == 0) & (below == 0)
    return np.where(exact, values, cut * per_milli)


def _from_timestamp(column: pa.Array, source: AtomicType, target: AtomicType) -> pa.Array:
    values = numbers_of(column, pa.int64())
    per_milli = _NANOS["ms"] // _NANOS[column.type.unit]
    match target.root:
        case _R.TIMESTAMP | _R.TIMESTAMP_LTZ:
            if source.precision > target.precision:
                values = with_precision(values, column.type, target.precision)
            return _scaled(values, _NANOS[column.type.unit], column, target)
        case _R.DATE:
            days = values // (per_milli * DAY_MILLIS)
            return rebuilt(days.astype(np.int32), column, arrow_type(target))
        case _R.TIME:
            millis = values // per_milli % DAY_MILLIS
            return rebuilt(millis.astype(np.int32), column, arrow_type(target))
        case _:
            millis = values // per_milli
            seconds = np.sign(millis) * (np.abs(millis) // 1000)
            target_type = arrow_type(target)
            return rebuilt(seconds.astype(target_type.to_pandas_dtype()), column, target_type)


def _scaled(values: Numbers, step_nanos: int, like: pa.Array, target: AtomicType) -> pa.Array:
    """Steps of so many nanoseconds as a timestamp type."""
    kind = arrow_type(target)
    unit = _NANOS[kind.unit]
    if step_nanos < unit:
        return rebuilt(values // (unit // step_nanos), like, kind)
    factor = step_nanos // unit
    limits = np.iinfo(np.int64)
    outside = (values > limits.max // factor) | (values < -(limits.max // factor))
    if outside.any():
        first = int(np.argmax(outside))
        raise CastError(f"the time does not fit {kind}", str(like[first]), pa.array(outside))
    return rebuilt(values * factor, like, kind)
