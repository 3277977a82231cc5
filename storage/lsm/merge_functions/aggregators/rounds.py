# SPDX-License-Identifier: Apache-2.0
"""Folds whose steps must happen one after the other, done for all segments at once.

Round `n` applies the n-th row of every segment that has one; segments are visited longest first,
so that those still going on are a prefix. When few are left, they are finished one by one. Data
plane: whole arrays, except for the tails of a few long segments.
"""

from collections.abc import Iterator

import numpy as np

from storage.lsm.merge_functions.segments import Segments

__all__ = ["FEW", "Rounds", "float_totals"]

FEW = 48
"""Segments for which a round over arrays costs more than to go through them one by one."""


class Rounds:
    """The order in which rows are applied.

    Attributes:
        tails: after the rounds, the segments that are not done yet: number of the segment, and
            the positions of its next row and of the one behind its last.
    """

    def __init__(self, segments: Segments) -> None:
        self._starts = segments.starts
        self._sizes = segments.lasts + 1 - segments.starts
        self.tails: list[tuple[int, int, int]] = []

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """From the second row on: numbers of segments, and positions of their rows."""
        order = np.argsort(-self._sizes, kind="stable")
        sizes = -self._sizes[order]  # ascending
        done = 1
        while True:
            active = int(np.searchsorted(sizes, -done, side="left"))
            if active <= FEW:
                break
            groups = order[:active]
            yield groups, self._starts[groups] + done
            done += 1
        groups = order[:active]
        firsts = self._starts[groups] + done
        behind = self._starts[groups] + self._sizes[groups]
        self.tails = list(zip(groups.tolist(), firsts.tolist(), behind.tolist(), strict=True))


def float_totals(numbers: np.ndarray, segments: Segments) -> np.ndarray:
    """Sums of floating numbers, added one after the other in their own precision.

    Args:
        numbers: float32 or float64 per row.
        segments: whose `retract` is not looked at.
    """
    totals = numbers[segments.starts]
    with np.errstate(all="ignore"):
        rounds = Rounds(segments)
        for groups, rows in rounds:
            totals[groups] += numbers[rows]
        for group, first, behind in rounds.tails:
            tail = numbers[first - 1 : behind].copy()
            tail[0] = totals[group]
            totals[group] = np.add.accumulate(tail)[-1]
    return totals
