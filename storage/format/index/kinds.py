# SPDX-License-Identifier: Apache-2.0
"""The types of file index: which column types each takes, and how it is built and read.

Source: FORMAT.md §10.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pyroaring

from storage.format.index.bitmap import BitmapBuilder, BitmapReader
from storage.format.index.bloom import BloomBuilder, BloomReader
from storage.format.index.bsi import BsiBuilder, BsiReader
from storage.format.index.hashing import BLOOM_ROOTS
from storage.format.index.range_bitmap import RangeBitmapBuilder, RangeBitmapReader
from storage.format.index.values import MAX_DECIMAL
from storage.format.index.window import IndexReader, Window
from storage.format.types.types import AtomicType, TypeRoot
from storage.options.values import decimal_number, integer, memory_size

__all__ = [
    "BITMAP",
    "BLOOM",
    "BSI",
    "INDEX_TYPES",
    "RANGE_BITMAP",
    "IndexReader",
    "IndexType",
    "can_index",
    "is_rounded",
    "open_index",
    "takes",
]

BLOOM = "bloom-filter"
BITMAP = "bitmap"
BSI = "bsi"
RANGE_BITMAP = "range-bitmap"

_COUNTS = frozenset(
    {
        *(TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT),
        *(TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ),
    }
)
_VALUES = frozenset(TypeRoot) - {TypeRoot.DECIMAL, TypeRoot.BINARY, TypeRoot.VARBINARY}


@dataclasses.dataclass(frozen=True, slots=True)
class IndexType:
    """One type of file index.

    Attributes:
        roots: families of column types it takes.
        builder: makes the builder of a column.
        reader: opens a stored index.
        settings: by name, the argument of `builder` and the parser of its text.
    """

    roots: frozenset[TypeRoot]
    builder: Callable[..., Any]
    reader: Callable[[Window, AtomicType], IndexReader]
    settings: Mapping[str, tuple[str, Callable[[str], Any]]] = dataclasses.field(
        default_factory=dict
    )


INDEX_TYPES: Mapping[str, IndexType] = {
    BLOOM: IndexType(
        BLOOM_ROOTS,
        BloomBuilder,
        BloomReader,
        {"items": ("items", integer), "fpp": ("fpp", decimal_number)},
    ),
    BITMAP: IndexType(
        _VALUES,
        BitmapBuilder,
        BitmapReader,
        {"version": ("version", integer), "index-block-size": ("block_size", memory_size)},
    ),
    BSI: IndexType(_COUNTS | {TypeRoot.DECIMAL}, BsiBuilder, BsiReader),
    RANGE_BITMAP: IndexType(
        _VALUES | {TypeRoot.DECIMAL},
        RangeBitmapBuilder,
        RangeBitmapReader,
        {"chunk-size": ("chunk_size", memory_size)},
    ),
}

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_MICROS_PRECISION = 6


def is_rounded(type_: AtomicType) -> bool:
    """Whether indexes hold values of this type only rounded down."""
    return type_.root in _TIMESTAMPS and type_.precision > _MICROS_PRECISION


def can_index(index_type: str, type_: AtomicType) -> bool:
    """Whether a column of this type can have an index of a known type."""
    if type_.root is TypeRoot.DECIMAL and type_.precision > MAX_DECIMAL:
        return False
    if is_rounded(type_) and index_type == RANGE_BITMAP:
        return False
    return type_.root in INDEX_TYPES[index_type].roots


def takes(index_type: str) -> str:
    """What a type of index takes, in words."""
    words = []
    for root in sorted(INDEX_TYPES[index_type].roots, key=lambda root: root.value):
        if root is TypeRoot.DECIMAL:
            words.append(f"DECIMAL up to precision {MAX_DECIMAL}")
        elif root in _TIMESTAMPS and index_type == RANGE_BITMAP:
            words.append(f"{root.value} up to precision {_MICROS_PRECISION}")
        else:
            words.append(root.value)
    return ", ".join(words)


class _EmptyReader(IndexReader):
    """An index whose writer got no row: no row of the file has a value."""

    def __init__(self) -> None:
        self._answer = pyroaring.BitMap()

    def null_rows(self) -> None:
        """It cannot decide."""


def open_index(kind: str, window: Window | None, type_: AtomicType) -> IndexReader | None:
    """A reader of a stored index; None when this version does not know the index.

    A window of None is an empty index; the type is that in the schema of the file.

    Raises:
        CorruptDataError: the payload is not of this type.
    """
    if window is None:
        return _EmptyReader()
    if kind not in INDEX_TYPES or not can_index(kind, type_):
        return None
    return INDEX_TYPES[kind].reader(window, type_)
