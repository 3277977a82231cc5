# SPDX-License-Identifier: Apache-2.0
"""Histories of writes, commits, schema changes and expiry."""

from tests.crash.histories import History, alter_step, expire_step, other_writer_step, write_step

HISTORIES = {
    "commit": History(
        steps=(
            write_step([("+I", 1, "a"), ("+I", 2, "b")]),
            write_step([("+U", 1, "A"), ("-D", 2, "b"), ("+I", 3, "c")]),
            other_writer_step([("+I", 50, "other")]),
            write_step([("+I", 4, "d")], full=True),
            alter_step("w"),
            write_step([("+I", 5, "e", 5), ("-D", 3, "c", None)]),
            expire_step(2),
            write_step([("+I", 6, "f", 6)]),
        ),
        options={"bucket": "2", "manifest.merge-min-count": "4"},
    )
}
