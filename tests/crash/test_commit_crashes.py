# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of writes, commits, schema changes and expiry."""

import pathlib

import pytest

from tests.crash.histories import (
    History,
    alter_step,
    enumerate_crashes,
    expire_step,
    other_writer_step,
    sample_crashes,
    write_step,
)

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
