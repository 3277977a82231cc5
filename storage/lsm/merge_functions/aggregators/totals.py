# SPDX-License-Identifier: Apache-2.0
"""Exact running totals of whole numbers of 64 or 128 bits, and whether they leave given bounds.

Numbers are cut into limbs of 32 bits. The limbs are summed over the batch in 64 bits, which is
exact for fewer than 2**31 rows, and the carries are settled once at the end. Data plane.
"""

from collections.abc import Sequence

import numpy as np

from storage.lsm.merge_functions.segments import Segments

__all__ = ["joined", "leaves", "running_totals", "signed"]

_LIMB = (1 << 32) - 1


def signed(numbers: np.ndarray, segments: Segments) -> np.ndarray:
    """The numbers with those that are taken back negated (the least integer stays as it is)."""
    if segments.retract is None:
        return numbers
    return np.where(segments.retract, -numbers, numbers)


def running_totals(halves: Sequence[np.ndarray], segments: Segments) -> list[np.ndarray]:
    """The total of each segment up to each row.

    Args:
        halves: int64 numbers; or the upper halves (int64) and the lower ones (uint64).
        segments: rows that take back are subtracted.

    Returns:
        int64 limbs, least first; all but the last are between 0 and 2**32 - 1.
    """
    limbs: list[np.ndarray] = []
    for half in reversed(halves):
        whole = half.view(np.int64)
        upper = whole >> 32
        limbs += [whole & _LIMB, upper if half is halves[0] else upper & _LIMB]
    before = np.repeat(segments.starts, segments.lasts + 1 - segments.starts)
    totals: list[np.ndarray] = []
    carry = np.zeros(segments.rows, dtype=np.int64)
    for limb in limbs:
        summed = np.zeros(segments.rows + 1, dtype=np.int64)
        np.cumsum(signed(limb, segments), out=summed[1:])
        total = summed[1:] - summed[before] + carry
        carry = total >> 32
        totals.append(total & _LIMB if len(totals) < len(limbs) - 1 else total)
    return totals


def leaves(totals: Sequence[np.ndarray], least: int, most: int) -> np.ndarray:
    """Where a total is below `least` or above `most`: bool per row."""
    return _above(totals, most) | ~_above(totals, least - 1)


def joined(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Two neighbouring limbs as one int64."""
    return (upper << 32) | lower


def _above(totals: Sequence[np.ndarray], bound: int) -> np.ndarray:
    level = np.ones(len(totals[0]), dtype=bool)
    above = np.zeros(len(totals[0]), dtype=bool)
    for position in reversed(range(len(totals))):
        limb = bound >> (32 * position)
        if position < len(totals) - 1:
            limb &= _LIMB
        above |= level & (totals[position] > limb)
        level &= totals[position] == limb
    return above
