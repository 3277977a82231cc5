# SPDX-License-Identifier: Apache-2.0
"""Nanosecond timestamps as the 12 bytes of a Parquet INT96 value, and back; all vectorised.

Bytes: i64 LE nanosecond of the day, i32 LE Julian day. We write the day rounded down; Java rounds
instants before 1970 towards zero and stores a negative nanosecond, which reads all the same
(FORMAT.md §7.3). A stored instant outside the int64 nanosecond range is an error here, never a
wrapped value.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError

INT96_BYTES = pa.binary(12)
"""The Arrow type of raw INT96 values."""

_VALUE = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_NANOS_PER_DAY = 86_400_000_000_000
_NANOS_PER_SECOND = 1_000_000_000
_SECONDS_PER_DAY = 86_400
_JULIAN_EPOCH = 2_440_588
_MAX_SECONDS = 9_223_372_036
"""Whole seconds that fit into int64 nanoseconds, less the last incomplete one."""


def holds_nanoseconds(type_: pa.DataType) -> bool:
    """Whether a column of this type is stored as INT96: a nanosecond timestamp."""
    return pa.types.is_timestamp(type_) and type_.unit == "ns"


def to_int96(column: pa.Array) -> pa.Array:
    """The 12-byte values of a `timestamp('ns')` array; nulls stay null."""
    nanos = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    values = np.empty(len(nanos), _VALUE)
    days, values["nanos"] = np.divmod(nanos, _NANOS_PER_DAY)
    values["day"] = days + _JULIAN_EPOCH
    validity = _bitmap(_present(column)) if column.null_count else None
    return pa.Array.from_buffers(INT96_BYTES, len(column), [validity, pa.py_buffer(values)])


def from_int96(column: pa.Array, type_: pa.DataType, *, name: str) -> pa.Array:
    """Timestamps of 12-byte values.

    Raises:
        UnsupportedFeatureError: a value is outside the years 1677 to 2262.
    """
    data = column.buffers()[1]
    if len(column) == 0 or data is None:
        return pa.nulls(len(column), type_)
    values = np.frombuffer(data, _VALUE, count=len(column), offset=column.offset * _VALUE.itemsize)
    days = values["day"].astype(np.int64) - _JULIAN_EPOCH
    nanos = values["nanos"].copy()
    validity = None
    if column.null_count:
        present = _present(column)
        validity = _bitmap(present)
        days[~present] = 0
        nanos[~present] = 0
    seconds = days * _SECONDS_PER_DAY + nanos // _NANOS_PER_SECOND
    if np.any((seconds < -_MAX_SECONDS) | (seconds >= _MAX_SECONDS)):
        raise UnsupportedFeatureError(
            "a timestamp with nanoseconds is outside the years 1677 to 2262",
            hint="read this table with Apache Paimon, or use TIMESTAMP(6)",
            column=name,
        )
    total = days * _NANOS_PER_DAY + nanos
    return pa.Array.from_buffers(type_, len(column), [validity, pa.py_buffer(total)])


def _present(column: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    present: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.is_valid(column).to_numpy(
        zero_copy_only=False
    )
    return present


def _bitmap(present: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> pa.Buffer:
    """A validity bitmap of its own: Arrow's would start at the array's offset."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))
