# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of writers that do not compact, and of the jobs that do it for them.

Another user commits while a job compacts; jobs outrun each other and a writer that compacts itself.
"""

import pathlib

import pytest

from tests.crash.histories import (
    History,
    Step,
    compact_step,
    enumerate_crashes,
    expire_step,
    other_writer_step,
    outrun_step,
    outrun_write_step,
    sample_crashes,
    write_step,
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
_LOOKUP = {"changelog-producer": "lookup"}
_FULL = {"changelog-producer": "full-compaction"}
_VECTORS = {"deletion-vectors.enabled": "true"}
_SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
_PARTIAL = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
_NUMBERS = (("k", "BIGINT"), ("v", "BIGINT"))
_TWO = (("k", "BIGINT"), ("a", "STRING"), ("b", "STRING"))
HISTORIES = {
    "plain": History(steps=_ROWS, options=_JOB | {"bucket": "2"}),
    "lookup": History(steps=_ROWS, options=_JOB | _LOOKUP, changelog=True),
    "lookup-sum": History(
        steps=_SUMS, options=_JOB | _LOOKUP | _SUM, columns=_NUMBERS, changelog=True
    ),
    "lookup-partial": History(
        steps=_PARTS, options=_JOB | _LOOKUP | _PARTIAL, columns=_TWO, changelog=True
    ),
    "first-row": History(
        steps=_FIRST, options=_JOB | _LOOKUP | {"merge-engine": "first-row"}, changelog=True
    ),
    "full-compaction": History(steps=_ROWS, options=_JOB | _FULL, changelog=True),
    "vectors": History(steps=_ROWS, options=_JOB | _VECTORS | {"bucket": "2"}),
    "vectors-lookup": History(steps=_ROWS, options=_JOB | _VECTORS | _LOOKUP, changelog=True),
    "dynamic": History(
        steps=_ROWS,
        options=_JOB | _LOOKUP | {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
        changelog=True,
    ),
    "races": History(steps=_RACES, options={"bucket": "2"}),
    "races-lookup": History(steps=_RACES, options=_LOOKUP, changelog=True),
    "races-vectors": History(steps=_RACES, options=_VECTORS | _LOOKUP, changelog=True),
    "races-full-compaction": History(steps=_RACES, options=_FULL, changelog=True),
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
