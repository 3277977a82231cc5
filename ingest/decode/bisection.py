# SPDX-License-Identifier: Apache-2.0
"""Finds, by bisection, the rows for which an operation on whole columns fails.

A few rows of many cost a few attempts on small ranges, and the operation need not report which row
failed.
"""

from collections.abc import Callable


def failing_positions(
    attempt: Callable[[int, int], object], count: int, errors: tuple[type[Exception], ...]
) -> list[int]:
    """Positions that fail alone.

    Args:
        attempt: tries the rows of a range; fails as a whole.
        count: of rows, at least one.
        errors: exceptions of a failure.

    Returns:
        Ascending. Rows that fail only together are not included.
    """
    return _failing_rows(attempt, 0, count, errors)


def _failing_rows(
    attempt: Callable[[int, int], object],
    start: int,
    end: int,
    errors: tuple[type[Exception], ...],
) -> list[int]:
    if end - start == 1:
        return [start]
    middle = (start + end) // 2
    positions: list[int] = []
    for low, high in ((start, middle), (middle, end)):
        try:
            attempt(low, high)
        except errors:
            positions += _failing_rows(attempt, low, high, errors)
    return positions
