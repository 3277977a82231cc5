# SPDX-License-Identifier: Apache-2.0
"""The rule for the number of buckets: what Paimon recommends for each, and a power of two."""

import pytest

from ingest.schema.new_tables import BYTES_PER_BUCKET, MOST_BUCKETS, recommended_buckets

_GIB = 1 << 30


@pytest.mark.parametrize(
    ("size", "buckets"),
    [
        (0, 1),
        (1, 1),
        (_GIB - 1, 1),
        (_GIB, 2),
        (2 * _GIB - 1, 2),
        (2 * _GIB, 4),
        (100 * _GIB, 128),
        (1 << 60, MOST_BUCKETS),
    ],
)
def test_the_number_for_a_size(size: int, buckets: int) -> None:
    assert recommended_buckets(size) == buckets


def test_each_bucket_holds_what_paimon_recommends() -> None:
    """200 MB to 1 GB, but for tables that are smaller than one bucket, or need too many."""
    for size in range(200 << 20, MOST_BUCKETS * _GIB, _GIB // 3):
        each = size / recommended_buckets(size)
        assert 200 << 20 <= each <= _GIB
        assert size < BYTES_PER_BUCKET or BYTES_PER_BUCKET <= each < 2 * BYTES_PER_BUCKET


def test_a_negative_size_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="negative"):
        recommended_buckets(-1)
