# SPDX-License-Identifier: Apache-2.0
"""How many buckets a table of a given size should have: one rule, in one pure function.

A bucket is the unit that is written, compacted and read by one task. Small ones make many small
files and commits; big ones make compaction slow and limit how many tasks write. Apache Paimon
recommends 200 MB to 1 GB of data files per bucket. A power of two keeps every size from 512 MiB up
to 1 GiB, and lets a later rescale double the number without moving rows between more than two
buckets.
"""

__all__ = ["BYTES_PER_BUCKET", "MOST_BUCKETS", "recommended_buckets"]

BYTES_PER_BUCKET = 512 << 20
"""What a bucket holds at least, except in a table smaller than that; at most twice as much."""

MOST_BUCKETS = 1024
"""Above this every batch touches too many files; partition such a table instead."""


def recommended_buckets(size: int) -> int:
    """The number of buckets for a table, or for one partition of a partitioned table.

    The greatest power of two that leaves at least `BYTES_PER_BUCKET` to each bucket: one bucket
    below 1 GiB, two from 1 GiB, four from 2 GiB, up to `MOST_BUCKETS`.

    Args:
        size: bytes of data files, expected or measured; what is unknown is given as 0.

    Returns:
        A power of two between 1 and `MOST_BUCKETS`.

    Raises:
        ValueError: the size is negative.
    """
    if size < 0:
        raise ValueError(f"a size is not negative: {size}")
    full = size // BYTES_PER_BUCKET
    return min(MOST_BUCKETS, 1 << max(0, full.bit_length() - 1))
