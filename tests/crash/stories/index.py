# SPDX-License-Identifier: Apache-2.0
"""Histories of commits that carry table index files.

Deletions of rows, compactions that drop vectors, expiry of index files, and hash indexes of
dynamic buckets.
"""

from tests.crash.histories import (
    History,
    compact_step,
    delete_step,
    expire_step,
    other_writer_step,
    write_step,
)
from tests.crash.table_options import DYNAMIC, VECTORS

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
        options=VECTORS | {"bucket": "-1", "deletion-vector.index-file.target-size": "1 b"},
        keys=(),
    ),
    "bucketed": History(
        steps=_STEPS,
        options=VECTORS | {"bucket": "2", "bucket-key": "k"},
        keys=(),
    ),
    "unaware-job": History(
        steps=_JOB,
        options=VECTORS | {"bucket": "-1", "compaction.min.file-num": "2"},
        keys=(),
    ),
    "bucketed-job": History(
        steps=_JOB,
        options=VECTORS | {"bucket": "2", "bucket-key": "k", "write-only": "true"},
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
        options=DYNAMIC,
    ),
}
