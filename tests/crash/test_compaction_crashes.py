# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of flushes, merges, upgrades and the COMPACT half of commits."""

import pathlib

import pytest

from tests.crash.histories import (
    History,
    enumerate_crashes,
    expire_step,
    sample_crashes,
    write_step,
)

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
