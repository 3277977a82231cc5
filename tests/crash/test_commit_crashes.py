# SPDX-License-Identifier: Apache-2.0
"""Dying at every operation of writes, commits, schema changes and expiry."""

import pathlib

import pytest

from storage.io.faulty import FaultMode
from tests.crash.histories import (
    MODES,
    History,
    alter_step,
    enumerate_crashes,
    expire_step,
    other_writer_step,
    write_step,
)

HISTORY = History(
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
STRIDE = 29


@pytest.mark.parametrize("mode", MODES)
def test_dying_at_some_operations(tmp_path: pathlib.Path, mode: FaultMode) -> None:
    offset = 3 * MODES.index(mode)  # each mode looks at other operations
    assert enumerate_crashes(tmp_path, HISTORY, mode, STRIDE, offset) > 100


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_dying_at_every_operation(tmp_path: pathlib.Path, mode: FaultMode) -> None:
    enumerate_crashes(tmp_path, HISTORY, mode, 1)
