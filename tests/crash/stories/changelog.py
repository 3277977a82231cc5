# SPDX-License-Identifier: Apache-2.0
"""Histories of writes that look up, mark rows as deleted and tell of changes.

Nothing may be told twice or never, whatever was left behind, and whether or not the local copies
of data files are still there.
"""

from tests.crash.histories import (
    History,
    compact_step,
    expire_step,
    lose_lookup_step,
    other_writer_step,
    write_step,
)
from tests.crash.table_options import (
    DYNAMIC,
    FIRST_ROW,
    FULL_COMPACTION,
    INPUT,
    LOOKUP,
    PARTIAL,
    PARTIAL_COLUMNS,
    SUM,
    SUM_COLUMNS,
    VECTORS,
)

_STEPS = (
    write_step([("+I", k, f"a{k}") for k in range(6)]),
    write_step([("+U", 1, "b"), ("-D", 2, "a2"), ("+I", 7, "b"), ("-D", 9, None)]),
    lose_lookup_step(),
    write_step([("+U", k, f"c{k}") for k in (1, 3, 8)], parts=2),
    other_writer_step([("+U", 4, "other"), ("+I", 50, "other")]),
    write_step([("-D", 3, "c3"), ("+I", 2, "again")], full=True),
    expire_step(2),
    write_step([("+U", 1, "d"), ("-D", 50, "other")]),
    write_step([], full=True),
)
_SUMS = (
    write_step([("+I", k, k) for k in range(6)]),
    write_step([("+U", 1, 5), ("-U", 2, 1), ("+I", 7, 7)]),
    lose_lookup_step(),
    write_step([("+I", k, 10 * k) for k in (1, 3, 8)], parts=2),
    other_writer_step([("+I", 4, 40), ("+I", 50, 50)]),
    write_step([("-D", 3, 3), ("+I", 2, 9)], full=True),
    expire_step(2),
    write_step([("+U", 1, 1), ("-U", 50, 50)]),
    write_step([], full=True),
)
_FIRST = (
    write_step([("+I", k, f"a{k}") for k in range(5)]),
    write_step([("+I", 1, "late"), ("+I", 7, "b"), ("+I", 7, "late")]),
    lose_lookup_step(),
    write_step([("+I", k, "c") for k in (1, 3, 8, 9)], parts=2),
    other_writer_step([("+I", 4, "late"), ("+I", 50, "other")]),
    write_step([("+I", 50, "late"), ("+I", 60, "d")], full=True),
    expire_step(1),
    write_step([], full=True),
)
_PARTS = (
    write_step([("+I", k, f"a{k}", None) for k in range(6)]),
    write_step([("+I", 1, "b", "x"), ("-D", 2, None, None), ("+I", 7, None, "y")]),
    lose_lookup_step(),
    write_step([("+I", k, None, f"z{k}") for k in (1, 3, 8)], parts=2),
    other_writer_step([("+I", 4, "other", None), ("+I", 50, "other", "o")]),
    write_step([("-D", 3, None, None), ("+I", 2, None, "again")], full=True),
    expire_step(2),
    write_step([("+I", 1, None, "d"), ("-D", 50, None, None)]),
    write_step([], full=True),
)
_MOVES = (
    write_step([("+I", k % 2, k, k) for k in range(6)]),
    write_step([("+I", 1, 2, 20), ("+I", 2, 3, 30), ("+I", 0, 0, 1), ("+I", 2, 9, 9)]),
    lose_lookup_step(),
    write_step([("+I", 0, 2, 200), ("+I", 0, 3, 300), ("+I", 1, 9, 90)], parts=2),
    expire_step(2),
    write_step([("+I", 2, 5, 50), ("+I", 0, 4, 4)], full=True),
    compact_step(),
    write_step([("+I", 2, 0, 11), ("+I", 1, 7, 7)]),
    expire_step(1),
    write_step([], full=True),
    compact_step(),
)
_LEFT = (
    *_STEPS[:2],
    compact_step(full=False),
    *_STEPS[2:5],
    compact_step(full=False, beside=[("+U", 5, "beside")]),
    *_STEPS[6:],
    compact_step(),
)


def _moving(options: dict[str, str]) -> History:
    return History(
        steps=_MOVES,
        options=DYNAMIC | options,
        keys=("k",),
        partitions=("pt",),
        columns=(("pt", "INT"), ("k", "INT"), ("v", "BIGINT")),
        changelog="changelog-producer" in options,
    )


HISTORIES = {
    "lookup": History(steps=_STEPS, options=LOOKUP | {"bucket": "2"}, changelog=True),
    "lookup-sum": History(steps=_SUMS, options=LOOKUP | SUM, columns=SUM_COLUMNS, changelog=True),
    "lookup-partial": History(
        steps=_PARTS, options=LOOKUP | PARTIAL, columns=PARTIAL_COLUMNS, changelog=True
    ),
    "lookup-left": History(steps=_LEFT, options=LOOKUP | {"lookup-wait": "false"}, changelog=True),
    "full-compaction-sum": History(
        steps=_SUMS, options=FULL_COMPACTION | SUM, columns=SUM_COLUMNS, changelog=True
    ),
    "full-compaction-partial": History(
        steps=_PARTS, options=FULL_COMPACTION | PARTIAL, columns=PARTIAL_COLUMNS, changelog=True
    ),
    "full-compaction": History(steps=_STEPS, options=FULL_COMPACTION, changelog=True),
    "input": History(steps=_STEPS, options=INPUT, changelog=True),
    "vectors": History(steps=_STEPS, options=VECTORS | {"bucket": "2"}),
    "vectors-lookup": History(steps=_STEPS, options=VECTORS | LOOKUP, changelog=True),
    "vectors-input": History(steps=_STEPS, options=VECTORS | INPUT, changelog=True),
    "vectors-sum": History(
        steps=_SUMS, options=VECTORS | LOOKUP | SUM, columns=SUM_COLUMNS, changelog=True
    ),
    "vectors-partial": History(
        steps=_PARTS, options=VECTORS | LOOKUP | PARTIAL, columns=PARTIAL_COLUMNS, changelog=True
    ),
    "vectors-left": History(
        steps=_LEFT, options=VECTORS | LOOKUP | {"lookup-wait": "false"}, changelog=True
    ),
    "moving": _moving({}),
    "moving-lookup": _moving(LOOKUP),
    "moving-sum": _moving(LOOKUP | SUM),
    "moving-vectors": _moving(VECTORS | LOOKUP),
    "moving-full-compaction": _moving(FULL_COMPACTION),
    "first-row": History(steps=_FIRST, options=LOOKUP | FIRST_ROW, changelog=True),
    "dynamic": History(steps=_STEPS, options=LOOKUP | DYNAMIC, changelog=True),
}
