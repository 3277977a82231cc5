# SPDX-License-Identifier: Apache-2.0
"""Which rows are to blame when something done to whole columns fails: found by halves.

A few rows of many cost a few attempts at small pieces, and what is done to columns needs no way of
saying which row it stumbled over.
"""

from collections.abc import Callable


def failing_positions(
    attempt: Callable[[int, int], object], count: int, errors: tuple[type[Exception], ...]
) -> list[int]:
    """Positions that fail alone.

    Args:
        attempt: tries the rows from a position up to another; fails for the whole.
        count: of rows, at least one.
        errors: what a failure raises.

    Returns:
        Ascending. Two rows that fail only together are not among them.
    """
    return _within(attempt, 0, count, errors)


def _within(
    attempt: Callable[[int, int], object],
    start: int,
    end: int,
    errors: tuple[type[Exception], ...],
) -> list[int]:
    if end - start == 1:
        return [start]
    middle = (start + end) // 2
    found: list[int] = []
    for low, high in ((start, middle), (middle, end)):
        try:
            attempt(low, high)
        except errors:
            found += _within(attempt, low, high, errors)
    return found
