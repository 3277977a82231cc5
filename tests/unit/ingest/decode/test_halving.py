# SPDX-License-Identifier: Apache-2.0
"""The rows to blame are found, with few attempts."""

import pytest

from ingest.decode.events import failing_positions


@pytest.mark.parametrize("bad", [{0}, {4_999}, {7, 8, 4_000}, set(range(9))])
def test_exactly_the_failing_rows_are_named(bad):
    attempts = []

    def attempt(low, high):
        attempts.append((low, high))
        if bad & set(range(low, high)):
            raise ValueError

    assert failing_positions(attempt, 5_000, (ValueError,)) == sorted(bad)
    assert len(attempts) <= 2 * 13 * len(bad)


def test_a_single_row_needs_no_further_attempt():
    assert failing_positions(lambda low, high: None, 1, (ValueError,)) == [0]


def test_other_errors_are_not_swallowed():
    def attempt(low, high):
        raise KeyError

    with pytest.raises(KeyError):
        failing_positions(attempt, 4, (ValueError,))
