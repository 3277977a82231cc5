# SPDX-License-Identifier: Apache-2.0
"""Sort codes: one number per row by which rows are clustered. Pure.

Each column is cut into ranges of about equally many rows, by a sample of its values, and the
numbers of a row's ranges make its code: alone (`order`), with their bits interleaved (`zorder`),
or as a position on Hilbert's curve (`hilbert`). So any sortable type works, and columns of few
and of many values weigh the same. Nulls come first.
"""

import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.uint64]

_WORD_BITS = 64
_MOST_BITS = 16
"""Bits of one column's number: the sample distinguishes no more ranges."""


class SortOrder(enum.Enum):
    """How rows are ordered by several columns."""

    ORDER = "order"
    """By the first column, then the second, and so on: for filters on the first."""

    ZORDER = "zorder"
    """By all columns alike: for filters on any of them."""

    HILBERT = "hilbert"
    """As z-order, without its jumps."""


class SortCodes:
    """Codes of rows.

    Args:
        samples: values of each column, most significant first; equally many, at least one.
    """

    def __init__(self, order: SortOrder, samples: Sequence[pa.Array]) -> None:
        self._order = order if len(samples) > 1 else SortOrder.ORDER
        if self._order is SortOrder.ORDER:
            # ranges of the first column alone: the order by the others is left to an exact sort
            samples = samples[:1]
        self._bits = min(_MOST_BITS, _WORD_BITS // len(samples))
        self._bounds = [_bounds(sample, (1 << self._bits) - 1) for sample in samples]

    @property
    def exact(self) -> bool:
        """Whether rows of equal code still must be sorted by their columns."""
        return self._order is SortOrder.ORDER

    def of(self, columns: Sequence[pa.Array]) -> Codes:
        """The codes of some rows, given by the same columns as the samples."""
        parts = [
            _numbers(column, bounds, self._bits)
            for column, bounds in zip(columns, self._bounds, strict=False)
        ]
        if self._order is SortOrder.HILBERT:
            _along_hilbert(parts, self._bits)
        return _interleaved(parts, self._bits)


def _bounds(sample: pa.Array, max_bounds: int) -> pa.Array:
    """Values that cut a column into ranges, ascending, each once; none of them null."""
    values = sample.drop_null()
    values = values.take(pc.sort_indices(values))
    if len(values) > max_bounds:
        values = values.take(pa.array(np.linspace(0, len(values) - 1, max_bounds).astype(np.int64)))
    return pc.unique(values)


def _numbers(column: pa.Array, bounds: pa.Array, bits: int) -> Codes:
    """The range of each value, spread over all numbers of so many bits."""
    if not len(bounds):
        return np.zeros(len(column), np.uint64)
    values = pa.concat_arrays([bounds, column.drop_null().cast(bounds.type)])
    ranks = pc.rank(values, tiebreaker="dense").to_numpy()
    numbers = np.zeros(len(column), np.uint64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    numbers[valid] = np.searchsorted(ranks[: len(bounds)], ranks[len(bounds) :], side="right")
    return numbers * np.uint64((1 << bits) - 1) // np.uint64(len(bounds))


def _interleaved(parts: Sequence[Codes], bits: int) -> Codes:
    """The interleaved bits of all parts, highest first."""
    codes = np.zeros(len(parts[0]), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for part in parts:
            codes = (codes << np.uint64(1)) | ((part >> np.uint64(bit)) & np.uint64(1))
    return codes


def _along_hilbert(parts: list[Codes], bits: int) -> None:
    """Coordinates become the transposed bits of a position on Hilbert's curve, in place.

    By Skilling's algorithm ("Programming the Hilbert curve", 2004).
    """
    for bit in range(bits - 1, 0, -1):
        low = np.uint64((1 << bit) - 1)
        for number, part in enumerate(parts):
            set_ = (part >> np.uint64(bit)) & np.uint64(1) == 1
            swapped = np.where(set_, np.uint64(0), (parts[0] ^ part) & low)
            parts[0] ^= np.where(set_, low, swapped)
            if number:
                part ^= swapped
    for number in range(1, len(parts)):
        parts[number] ^= parts[number - 1]
    flipped = np.zeros(len(parts[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        set_ = (parts[-1] >> np.uint64(bit)) & np.uint64(1) == 1
        flipped ^= np.where(set_, np.uint64((1 << bit) - 1), np.uint64(0))
    for part in parts:
        part ^= flipped
