# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of writes that look up, mark rows as deleted and tell of changes.

Nothing may be told twice or never, whatever was left behind, and whether or not the local copies
of data files are still there.
"""

import pathlib

import pytest

from storage.io.faulty import FaultMode
from storage.lsm.lookup.store import DIRECTORY_VARIABLE
from tests.crash.histories import (
    MODES,
    History,
    enumerate_crashes,
    expire_step,
    lose_lookup_step,
    other_writer_step,
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
_LOOKUP = {"changelog-producer": "lookup"}
_VECTORS = {"deletion-vectors.enabled": "true"}
_SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
_NUMBERS = (("k", "BIGINT"), ("v", "BIGINT"))
HISTORIES = {
    "lookup": History(steps=_STEPS, options=_LOOKUP | {"bucket": "2"}, changelog=True),
    "lookup-sum": History(steps=_SUMS, options=_LOOKUP | _SUM, columns=_NUMBERS, changelog=True),
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
    "first-row": History(
        steps=_FIRST, options=_LOOKUP | {"merge-engine": "first-row"}, changelog=True
    ),
    "dynamic": History(
        steps=_STEPS,
        options=_LOOKUP | {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
        changelog=True,
    ),
}
STRIDE = 251


@pytest.fixture(autouse=True)
def _own_lookup_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "lookup"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_dying_at_some_operations(tmp_path: pathlib.Path, name: str, mode: FaultMode) -> None:
    offset = 17 * MODES.index(mode) + 5 * len(name)  # each looks at other operations
    assert enumerate_crashes(tmp_path, HISTORIES[name], mode, STRIDE, offset) > 100


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(HISTORIES))
def test_dying_at_every_operation(tmp_path: pathlib.Path, name: str, mode: FaultMode) -> None:
    enumerate_crashes(tmp_path, HISTORIES[name], mode, 1)
