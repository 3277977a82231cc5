# SPDX-License-Identifier: Apache-2.0
"""Histories of writers that do not compact, and of the jobs that do it for them.

Another user commits while a job compacts; jobs outrun each other and a writer that compacts itself.
"""

from tests.crash.histories import (
    History,
    Step,
    compact_step,
    expire_step,
    other_writer_step,
    outrun_step,
    outrun_write_step,
    write_step,
)
from tests.crash.table_options import (
    DYNAMIC,
    FIRST_ROW,
    FULL_COMPACTION,
    LOOKUP,
    PARTIAL,
    PARTIAL_COLUMNS,
    SUM,
    SUM_COLUMNS,
    VECTORS,
)


def _beside(*rows: list[tuple[object, ...]]) -> tuple[Step, ...]:
    """Five batches of rows, with jobs between them and beside one."""
    first, second, third, fourth, fifth = rows
    return (
        write_step(first),
        write_step(second),
        compact_step(beside=third),
        write_step(fourth),
        compact_step(full=False),
        other_writer_step(fifth),
        outrun_step(),
        expire_step(2),
        write_step(fifth),
        expire_step(1),
        compact_step(),
    )


_ROWS = _beside(
    [("+I", k, f"a{k}") for k in range(6)],
    [("+U", 1, "b"), ("-D", 2, "a2"), ("+I", 7, "b"), ("-D", 9, None)],
    [("+U", 3, "beside"), ("+I", 20, "beside")],
    [("+U", 1, "c"), ("-D", 7, "b"), ("+I", 2, "again")],
    [("+U", 4, "d"), ("+I", 50, "d")],
)
_SUMS = _beside(
    [("+I", k, k) for k in range(6)],
    [("+I", 1, 5), ("-U", 2, 1), ("+I", 7, 7)],
    [("+I", 3, 30), ("+I", 20, 20)],
    [("+I", 1, 1), ("-D", 7, 7), ("+I", 2, 2)],
    [("+I", 4, 4), ("+I", 50, 50)],
)
_PARTS = _beside(
    [("+I", k, f"a{k}", None) for k in range(6)],
    [("+I", 1, "b", "x"), ("-D", 2, None, None), ("+I", 7, None, "y")],
    [("+I", 3, None, "beside"), ("+I", 20, "beside", None)],
    [("+I", 1, "c", None), ("-D", 7, None, None), ("+I", 2, None, "again")],
    [("+I", 4, None, "d"), ("+I", 50, "d", "d")],
)
_FIRST = _beside(
    [("+I", k, f"a{k}") for k in range(6)],
    [("+I", 1, "late"), ("+I", 7, "b"), ("+I", 7, "late")],
    [("+I", 3, "late"), ("+I", 20, "beside")],
    [("+I", 1, "late"), ("+I", 30, "c")],
    [("+I", 4, "late"), ("+I", 50, "d")],
)
_RACES = (
    write_step([("+I", k, f"a{k}") for k in range(6)]),
    write_step([("+U", 1, "b"), ("-D", 2, "a2")]),
    outrun_write_step([("+U", 3, "c"), ("+I", 7, "c")]),
    other_writer_step([("+I", 50, "other")]),
    outrun_write_step([("-D", 4, "a4"), ("+I", 8, "d")]),
    expire_step(1),
    write_step([("+I", 60, "e")], full=True),
    compact_step(),
)
_JOB = {"write-only": "true"}
HISTORIES = {
    "plain": History(steps=_ROWS, options=_JOB | {"bucket": "2"}),
    "lookup": History(steps=_ROWS, options=_JOB | LOOKUP, changelog=True),
    "lookup-sum": History(
        steps=_SUMS, options=_JOB | LOOKUP | SUM, columns=SUM_COLUMNS, changelog=True
    ),
    "lookup-partial": History(
        steps=_PARTS, options=_JOB | LOOKUP | PARTIAL, columns=PARTIAL_COLUMNS, changelog=True
    ),
    "first-row": History(steps=_FIRST, options=_JOB | LOOKUP | FIRST_ROW, changelog=True),
    "full-compaction": History(steps=_ROWS, options=_JOB | FULL_COMPACTION, changelog=True),
    "vectors": History(steps=_ROWS, options=_JOB | VECTORS | {"bucket": "2"}),
    "vectors-lookup": History(steps=_ROWS, options=_JOB | VECTORS | LOOKUP, changelog=True),
    "dynamic": History(steps=_ROWS, options=_JOB | LOOKUP | DYNAMIC, changelog=True),
    "races": History(steps=_RACES, options={"bucket": "2"}),
    "races-lookup": History(steps=_RACES, options=LOOKUP, changelog=True),
    "races-vectors": History(steps=_RACES, options=VECTORS | LOOKUP, changelog=True),
    "races-full-compaction": History(steps=_RACES, options=FULL_COMPACTION, changelog=True),
}
