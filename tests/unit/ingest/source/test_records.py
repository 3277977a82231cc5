# SPDX-License-Identifier: Apache-2.0
"""Record values in one buffer and as a list are the same values."""

import pytest

from ingest.source.records import Payloads, RawBatch

VALUES = [b"a", None, b"", b"bc", None, *[b"d"] * 20]


def batch(buffered: bool) -> RawBatch:
    values = [*VALUES]
    contents = Payloads.of(values) if buffered else values
    return RawBatch("t", 0, range(10, 10 + len(values)), [None] * len(values), contents)


@pytest.mark.parametrize("buffered", [True, False])
def test_rows_with_a_value_and_the_others(buffered: bool) -> None:
    raw = batch(buffered)
    assert raw.with_value(0, 6) == ([0, 2, 3, 5], [1, 4])
    assert raw.with_value(2, 5) == ([2, 3], [4])
    filled, nulls = raw.with_value(5, 9)
    assert list(filled) == [5, 6, 7, 8]
    assert list(nulls) == []


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("count", [1, len(VALUES)])
def test_values_by_their_index(buffered: bool, count: int) -> None:
    values = batch(buffered).values_for(count)
    assert [values[at] for at in range(len(VALUES))] == VALUES
    assert batch(buffered).value(3) == b"bc"
    assert batch(buffered).value(4) is None
