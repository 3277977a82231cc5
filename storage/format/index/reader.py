# SPDX-License-Identifier: Apache-2.0
"""What every stored file index can be asked, and opening one by the name of its type.

An answer is a set of rows that holds every row in question, or None when the index cannot decide.
It is exact but for timestamps finer than microseconds, which indexes round down
(`is_rounded`).
"""

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
import pyroaring

from storage.format.index.bitmap import BitmapReader
from storage.format.index.bloom import BloomReader
from storage.format.index.bsi import BsiReader
from storage.format.index.kinds import BITMAP, BLOOM, BSI, RANGE_BITMAP, can_index
from storage.format.index.range_bitmap import RangeBitmapReader
from storage.format.index.window import Window
from storage.format.types.types import AtomicType, TypeRoot

__all__ = ["IndexReader", "is_rounded", "open_index"]

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_MICROS_PRECISION = 6


class IndexReader(Protocol):
    """One stored index of one column. Values are columns in the form of `arrow_types`.

    Raises (all methods): CorruptDataError.
    """

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap | None:
        """Rows with any of these values, none of which is null."""

    def above(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap | None:
        """Rows with a greater value, or also this one."""

    def below(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap | None:
        """Rows with a smaller value, or also this one."""

    def valid_rows(self) -> pyroaring.BitMap | None:
        """Rows that are not null."""

    def null_rows(self) -> pyroaring.BitMap | None:
        """Rows that are null."""


class _EmptyReader:
    """An index whose writer got no row: no row of the file has a value."""

    def equal_to(self, values: pa.Array) -> pyroaring.BitMap:
        """No rows."""
        return pyroaring.BitMap()

    def above(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap:
        """No rows."""
        return pyroaring.BitMap()

    def below(self, value: pa.Array, inclusive: bool) -> pyroaring.BitMap:
        """No rows."""
        return pyroaring.BitMap()

    def valid_rows(self) -> pyroaring.BitMap:
        """No rows."""
        return pyroaring.BitMap()

    def null_rows(self) -> None:
        """It cannot decide."""


_READERS: Mapping[str, type[BloomReader | BitmapReader | BsiReader | RangeBitmapReader]] = {
    BLOOM: BloomReader,
    BITMAP: BitmapReader,
    BSI: BsiReader,
    RANGE_BITMAP: RangeBitmapReader,
}


def open_index(kind: str, window: Window | None, type_: AtomicType) -> IndexReader | None:
    """A reader of a stored index; None when this version does not know the index.

    A window of None is an empty index; the type is that in the schema of the file.

    Raises:
        CorruptDataError: the payload is not of this type.
    """
    if window is None:
        return _EmptyReader()
    if kind not in _READERS or not can_index(kind, type_):
        return None
    return _READERS[kind](window, type_)


def is_rounded(type_: AtomicType) -> bool:
    """Whether indexes hold values of this type only rounded down."""
    return type_.root in _TIMESTAMPS and type_.precision > _MICROS_PRECISION
