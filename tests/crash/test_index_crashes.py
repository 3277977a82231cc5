# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of commits that carry table index files.

Deletions of rows, compactions that drop vectors, expiry of index files, and hash indexes of
dynamic buckets.
"""

import pathlib

import pytest

from tests.crash.histories import (
    History,
    compact_step,
    delete_step,
    enumerate_crashes,
    expire_step,
    other_writer_step,
    sample_crashes,
    write_step,
)

_STEPS = (
    write_step([("+I", k, f"a{k}") for k in range(6)]),
    delete_step("k = 1 OR k = 4"),
    write_step([("+I", k, f"b{k}") for k in range(6, 9)]),
    delete_step("k >= 5 AND k < 8"),
    other_writer_step([("+I", 50, "other")]),
    write_step([("+I", 9, "c")], full=True),
    delete_step("v = 'other' OR k = 9"),
    expire_step(2),
    delete_step("k = 0"),
)
_JOB = (
    *_STEPS[:4],
    compact_step(beside=[("+I", 20, "beside")]),
    *_STEPS[4:5],
    compact_step(),
    *_STEPS[6:],
    compact_step(),
)
HISTORIES = {
    "unaware": History(
        steps=_STEPS,
        options={
            "bucket": "-1",
            "deletion-vectors.enabled": "true",
            "deletion-vector.index-file.target-size": "1 b",
        },
        keys=(),
    ),
    "bucketed": History(
        steps=_STEPS,
        options={"bucket": "2", "bucket-key": "k", "deletion-vectors.enabled": "true"},
        keys=(),
    ),
    "unaware-job": History(
        steps=_JOB,
        options={
            "bucket": "-1",
            "deletion-vectors.enabled": "true",
            "compaction.min.file-num": "2",
        },
        keys=(),
    ),
    "bucketed-job": History(
        steps=_JOB,
        options={
            "bucket": "2",
            "bucket-key": "k",
            "deletion-vectors.enabled": "true",
            "write-only": "true",
        },
        keys=(),
    ),
    "dynamic": History(
        steps=(
            write_step([("+I", k, f"a{k}") for k in range(5)]),
            write_step([("+U", 1, "b"), ("+I", 7, "b"), ("-D", 2, None)]),
            write_step([("+I", 8, "c")], full=True),
            expire_step(1),
            write_step([("+I", 9, "d"), ("+U", 7, "d")]),
        ),
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    ),
}
SAMPLES = 5


@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_dying_at_some_operations(tmp_path: pathlib.Path, name: str) -> None:
    assert sample_crashes(tmp_path, HISTORIES[name], SAMPLES).faults >= SAMPLES


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_dying_at_every_operation(tmp_path: pathlib.Path, name: str) -> None:
    done = enumerate_crashes(tmp_path, HISTORIES[name])
    assert done.faults > 1.5 * done.operations
    assert done.distinct > done.operations / 4
