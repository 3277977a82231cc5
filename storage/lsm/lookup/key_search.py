# SPDX-License-Identifier: Apache-2.0
"""Finding keys among the rows of a local copy: what is searched, and with what.

Two ways. A key of one integer-like column is searched for in that column, which is sorted: no byte
more. Any other key is searched for by its hash: one 64-bit word per row, the upper bits those of
the hash, the lower ones the row number, sorted; a row with the right bits is then compared with
the key itself. Either way the cost grows with the keys that are looked for. What is searched lies
in mapped memory, and each look at a line of it that no cache holds costs as much as a hundred
comparisons; so keys are looked for in ascending order, and first among fences: every 64th entry.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.row.key_hash import key_hashes
from storage.format.types.types import AtomicType, DataType, TypeRoot

__all__ = [
    "FENCED",
    "KeyWords",
    "SearchedKeys",
    "key_words",
    "lower_bounds",
    "number_column",
    "same_keys",
    "searches_column",
]

KeyWords = npt.NDArray[np.uint64]
"""Hash bits and row number of every row of a file, ascending; or plain hashes, one per row."""

_INTEGER_LIKE = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INT,
        TypeRoot.BIGINT,
        TypeRoot.DATE,
        TypeRoot.TIME,
        TypeRoot.TIMESTAMP,
        TypeRoot.TIMESTAMP_LTZ,
    }
)
_NARROW = 32

FENCED = 64
"""Entries from fence to fence; a power of two. Between 16 and 128 it hardly matters."""


def searches_column(types: Sequence[DataType]) -> bool:
    """Whether keys of these types can be searched for in their own column."""
    if len(types) != 1:
        return False
    only = types[0]
    return isinstance(only, AtomicType) and only.root in _INTEGER_LIKE


def number_column(column: pa.Array) -> npt.NDArray[np.signedinteger]:
    """The integers behind an integer-like column without nulls; zero copy."""
    kind = column.type
    if not pa.types.is_integer(kind):
        column = column.view(pa.int32() if kind.bit_width == _NARROW else pa.int64())
    found: npt.NDArray[np.signedinteger] = column.to_numpy(zero_copy_only=True)
    return found


def key_words(columns: Sequence[pa.Array], types: Sequence[DataType], seed: int) -> KeyWords:
    """A 64-bit hash of each key; equal keys have equal ones.

    Args:
        columns: the key columns.
        types: their types.
        seed: below 2^64; the same for all that is compared.
    """
    plain = [_one_nan(column) for column in columns]
    return np.ascontiguousarray(key_hashes(plain, types, (seed, 0))[:, 0])


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Row by row, whether two keys are equal; null equals null, NaN equals NaN, -0.0 not 0.0.

    Args:
        left: key columns.
        right: key columns of the same types and length.
    """
    same = np.ones(len(left[0]), np.bool_)
    for one, other in zip(left, right, strict=True):
        equal = pc.equal(_bits(one), _bits(other))
        if equal.null_count:
            both = pc.and_(pc.is_null(one), pc.is_null(other))
            equal = pc.coalesce(equal, both)
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def _one_nan(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)


def _bits(column: pa.Array) -> pa.Array:
    """A column whose equality is that of keys."""
    if not pa.types.is_floating(column.type):
        return column
    return _one_nan(column).view(pa.int32() if column.type.bit_width == _NARROW else pa.int64())


def lower_bounds(
    entries: npt.NDArray[Any], fences: npt.NDArray[Any], wanted: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Position of the first entry that is not below each wanted value.

    Args:
        entries: ascending.
        fences: every `FENCED`-th of them, from the first on.
        wanted: ascending, of the same type.

    Cost: on 100,000 of 30 million entries a third of what `np.searchsorted` takes.
    """
    block = np.searchsorted(fences, wanted) - 1
    at = np.maximum(block, 0) * FENCED
    step = FENCED // 2
    while step:
        middle = at + step
        np.minimum(middle, len(entries) - 1, out=middle)
        below = entries.take(middle) < wanted
        at[below] = middle[below]
        step //= 2
    at += 1
    at[block < 0] = 0
    return at


class SearchedKeys:
    """Keys that are looked for, strictly ascending; what a search needs of them is made once.

    Args:
        columns: key columns in key order.
        types: their types.
        seed: of the hashes.
    """

    def __init__(self, columns: Sequence[pa.Array], types: Sequence[DataType], seed: int) -> None:
        self.columns = tuple(columns)
        self._types = tuple(types)
        self._seed = seed

    def __len__(self) -> int:
        return len(self.columns[0])

    @functools.cached_property
    def numbers(self) -> npt.NDArray[np.signedinteger] | None:
        """The keys as integers; None unless they are one integer-like column without nulls."""
        if not searches_column(self._types) or self.columns[0].null_count:
            return None
        return number_column(self.columns[0])

    @functools.cached_property
    def words(self) -> KeyWords:
        """The hash of each key."""
        return key_words(self.columns, self._types, self._seed)

    def between(self, start: int, end: int) -> "SearchedKeys":
        """Some neighbouring keys."""
        part = SearchedKeys(
            [column.slice(start, end - start) for column in self.columns], self._types, self._seed
        )
        if "words" in self.__dict__:
            part.__dict__["words"] = self.words[start:end]
        return part

    def only(self, numbers: npt.NDArray[np.int64]) -> "SearchedKeys":
        """Some keys by number, ascending."""
        chosen = pa.array(numbers)
        part = SearchedKeys([column.take(chosen) for column in self.columns], self._types,
                            self._seed)  # fmt: skip
        if "words" in self.__dict__:
            part.__dict__["words"] = self.words[numbers]
        return part
