# SPDX-License-Identifier: Apache-2.0
"""The rule for the number of buckets: one to two GiB in each, and a power of two."""

import pytest

from ingest.upkeep.bucket_estimate import BYTES_PER_BUCKET, MOST_BUCKETS, recommended_buckets

_GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "buckets"),
    [
        (0, 1),
        (1, 1),
        (2 * _GIB - 1, 1),
        (2 * _GIB, 2),
        (4 * _GIB - 1, 2),
        (4 * _GIB, 4),
        (100 * _GIB, 64),
        (1 << 60, MOST_BUCKETS),
    ],
)
def test_the_number_for_a_size(size: int, buckets: int) -> None:
    assert recommended_buckets(size) == buckets


def test_each_bucket_holds_one_to_two_times_the_measure() -> None:
    for size in range(BYTES_PER_BUCKET, 600 * BYTES_PER_BUCKET, BYTES_PER_BUCKET // 3):
        each = size / recommended_buckets(size)
        assert BYTES_PER_BUCKET <= each < 2 * BYTES_PER_BUCKET


def test_a_negative_size_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="negative"):
        recommended_buckets(-1)
