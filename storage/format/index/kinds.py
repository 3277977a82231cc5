# SPDX-License-Identifier: Apache-2.0
"""The types of file index and which column types each of them takes. Source: FORMAT.md §10."""

from collections.abc import Mapping

from storage.format.index.hashing import BLOOM_ROOTS
from storage.format.index.values import MAX_DECIMAL
from storage.format.types.types import AtomicType, TypeRoot

__all__ = ["BITMAP", "BLOOM", "BSI", "INDEX_TYPES", "RANGE_BITMAP", "can_index", "takes"]

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
_VALUES = _COUNTS | {
    *(TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BOOLEAN, TypeRoot.FLOAT, TypeRoot.DOUBLE)
}

INDEX_TYPES: Mapping[str, frozenset[TypeRoot]] = {
    BLOOM: BLOOM_ROOTS,
    BITMAP: _VALUES,
    BSI: _COUNTS | {TypeRoot.DECIMAL},
    RANGE_BITMAP: _VALUES | {TypeRoot.DECIMAL},
}
"""Index type -> families of column types it takes."""

_TIMESTAMPS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
_MICROS_PRECISION = 6


def can_index(index_type: str, type_: AtomicType) -> bool:
    """Whether a column of this type can have an index of a known type."""
    if type_.root is TypeRoot.DECIMAL and type_.precision > MAX_DECIMAL:
        return False
    fine = type_.root in _TIMESTAMPS and type_.precision > _MICROS_PRECISION
    if fine and index_type == RANGE_BITMAP:
        return False
    return type_.root in INDEX_TYPES[index_type]


def takes(index_type: str) -> str:
    """What a type of index takes, in words."""
    words = []
    for root in sorted(INDEX_TYPES[index_type], key=lambda root: root.value):
        if root is TypeRoot.DECIMAL:
            words.append(f"DECIMAL up to precision {MAX_DECIMAL}")
        elif root in _TIMESTAMPS and index_type == RANGE_BITMAP:
            words.append(f"{root.value} up to precision {_MICROS_PRECISION}")
        else:
            words.append(root.value)
    return ", ".join(words)
