# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of flushes, merges, upgrades and the COMPACT half of commits."""

import pathlib

import pytest

from storage.io.faulty import FaultMode
from tests.crash.histories import (
    MODES,
    History,
    enumerate_crashes,
    expire_step,
    write_step,
)

HISTORY = History(
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
STRIDE = 31


@pytest.mark.parametrize("mode", MODES)
def test_dying_at_some_operations(tmp_path: pathlib.Path, mode: FaultMode) -> None:
    offset = 4 * MODES.index(mode)
    assert enumerate_crashes(tmp_path, HISTORY, mode, STRIDE, offset) > 100


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_dying_at_every_operation(tmp_path: pathlib.Path, mode: FaultMode) -> None:
    enumerate_crashes(tmp_path, HISTORY, mode, 1)
