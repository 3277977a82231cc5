# SPDX-License-Identifier: Apache-2.0
"""Histories of flushes, merges, upgrades and the COMPACT half of commits."""

from tests.crash.histories import History, expire_step, write_step

HISTORIES = {
    "compaction": History(
        steps=(
            write_step([("+I", k, f"a{k}") for k in range(8)], parts=4),
            write_step([("+I", k, f"b{k}") for k in range(3, 12)], parts=4),
            write_step([("+I", 90, "far")], full=True),  # an upgrade of a file
            write_step([("-D", 4, None), ("+U", 90, "farther")], full=True),
            expire_step(1),
            write_step([], full=True),
        ),
        options={
            "num-sorted-run.compaction-trigger": "3",
            "target-file-size": "1 kb",
            "manifest.merge-min-count": "3",
        },
    )
}
