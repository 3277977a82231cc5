# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of writes that look up, mark rows as deleted and tell of changes.

Nothing may be told twice or never, whatever was left behind, and whether or not the local copies
of data files are still there.
"""

import pathlib

import pytest

from tests.crash.histories import (
    History,
    compact_step,
    enumerate_crashes,
    expire_step,
    lose_lookup_step,
    other_writer_step,
    sample_crashes,
    write_step,
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
_LOOKUP = {"changelog-producer": "lookup"}
_VECTORS = {"deletion-vectors.enabled": "true"}
_SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
_NUMBERS = (("k", "BIGINT"), ("v", "BIGINT"))
_PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
_TWO = (("k", "BIGINT"), ("a", "STRING"), ("b", "STRING"))
_FULL = {"changelog-producer": "full-compaction"}


def _moving(options: dict[str, str]) -> History:
    return History(
        steps=_MOVES,
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "3"} | options,
        keys=("k",),
        partitions=("pt",),
        columns=(("pt", "INT"), ("k", "INT"), ("v", "BIGINT")),
        changelog="changelog-producer" in options,
    )


HISTORIES = {
    "lookup": History(steps=_STEPS, options=_LOOKUP | {"bucket": "2"}, changelog=True),
    "lookup-sum": History(steps=_SUMS, options=_LOOKUP | _SUM, columns=_NUMBERS, changelog=True),
    "lookup-partial": History(
        steps=_PARTS, options=_LOOKUP | _PARTIAL, columns=_TWO, changelog=True
    ),
    "lookup-left": History(steps=_LEFT, options=_LOOKUP | {"lookup-wait": "false"}, changelog=True),
    "full-compaction-sum": History(
        steps=_SUMS, options=_FULL | _SUM, columns=_NUMBERS, changelog=True
    ),
    "full-compaction-partial": History(
        steps=_PARTS, options=_FULL | _PARTIAL, columns=_TWO, changelog=True
    ),
    "full-compaction": History(
        steps=_STEPS, options={"changelog-producer": "full-compaction"}, changelog=True
    ),
    "input": History(steps=_STEPS, options={"changelog-producer": "input"}, changelog=True),
    "vectors": History(steps=_STEPS, options=_VECTORS | {"bucket": "2"}),
    "vectors-lookup": History(steps=_STEPS, options=_VECTORS | _LOOKUP, changelog=True),
    "vectors-input": History(
        steps=_STEPS, options=_VECTORS | {"changelog-producer": "input"}, changelog=True
    ),
    "vectors-sum": History(
        steps=_SUMS, options=_VECTORS | _LOOKUP | _SUM, columns=_NUMBERS, changelog=True
    ),
    "vectors-partial": History(
        steps=_PARTS, options=_VECTORS | _LOOKUP | _PARTIAL, columns=_TWO, changelog=True
    ),
    "vectors-left": History(
        steps=_LEFT, options=_VECTORS | _LOOKUP | {"lookup-wait": "false"}, changelog=True
    ),
    "moving": _moving({}),
    "moving-lookup": _moving(_LOOKUP),
    "moving-sum": _moving(_LOOKUP | _SUM),
    "moving-vectors": _moving(_VECTORS | _LOOKUP),
    "moving-full-compaction": _moving(_FULL),
    "first-row": History(
        steps=_FIRST, options=_LOOKUP | {"merge-engine": "first-row"}, changelog=True
    ),
    "dynamic": History(
        steps=_STEPS,
        options=_LOOKUP | {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
        changelog=True,
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
