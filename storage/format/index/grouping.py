# SPDX-License-Identifier: Apache-2.0
"""The rows of every distinct value of a column, as the bitmap indexes need them."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.format.index.values import is_text, key_column
from storage.format.types.types import AtomicType

__all__ = ["DistinctRows", "RowGrouping", "cuts"]


@dataclasses.dataclass(frozen=True, slots=True)
class DistinctRows:
    """A column as its distinct values.

    Attributes:
        keys: distinct keys in ascending order: numbers signed, texts by their bytes.
        codes: position in `keys` of every row; meaningless for nulls.
        nulls: rows that are null, ascending.
        rows: valid rows, by key and then ascending.
        starts: where the rows of each key begin in `rows`; one more than keys.
    """

    keys: pa.Array
    codes: npt.NDArray[np.int64]
    nulls: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows of each key."""
        return np.diff(self.starts)

    @property
    def row_count(self) -> int:
        """All rows, nulls included."""
        return len(self.codes)

    def groups(self, least: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """Position of a key and its rows, for keys with at least so many rows."""
        for i in np.flatnonzero(self.counts >= least).tolist():
            yield i, self.rows[self.starts[i] : self.starts[i + 1]]


class RowGrouping:
    """Collects a column batch by batch, four bytes a row besides the distinct values.

    Args:
        type_: of the column.
    """

    def __init__(self, type_: AtomicType) -> None:
        self._type = type_
        self._parts: list[pa.DictionaryArray] = []

    def add(self, column: pa.Array) -> None:
        """Add more rows."""
        self._parts.append(key_column(column, self._type).dictionary_encode())

    def finish(self) -> DistinctRows:
        """The rows of every distinct value."""
        keys, codes = self._unified()
        order = np.asarray(pc.sort_indices(keys)).astype(np.int64)
        rank = np.empty(len(order) + 1, np.int64)
        rank[order] = np.arange(len(order))
        rank[-1] = -1
        codes = rank[codes]
        nulls = np.flatnonzero(codes < 0)
        rows = np.argsort(codes, kind="stable")[len(nulls) :]
        counts = np.bincount(codes[codes >= 0], minlength=len(keys))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        return DistinctRows(keys.take(pa.array(order)), codes, nulls, rows, starts)

    def _unified(self) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Distinct keys in any order and the code of each row, -1 for null."""
        value_type = pa.binary() if is_text(self._type) else pa.int64()
        if not self._parts:
            return pa.array([], value_type), np.empty(0, np.int64)
        whole = pa.chunked_array(self._parts).unify_dictionaries()
        codes = [np.asarray(pc.fill_null(part.indices, -1)) for part in whole.chunks]
        return whole.chunk(0).dictionary, np.concatenate(codes).astype(np.int64)


def cuts(sizes: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """Where pieces begin when entries fill pieces of at most `limit` bytes, each at least one.

    Args:
        sizes: of the entries [bytes].
        limit: of the pieces [bytes].
    """
    ends = np.cumsum(sizes)
    found = [0] if len(sizes) else []
    while found and found[-1] < len(sizes):
        before = int(ends[found[-1] - 1]) if found[-1] else 0
        found.append(max(found[-1] + 1, int(np.searchsorted(ends, before + limit, "right"))))
    return np.array(found, np.int64)
