# SPDX-License-Identifier: Apache-2.0
"""Hints that are wrong are put right; right ones are left alone."""

import pathlib

import pytest

from storage.table.branches import repair_hints
from storage.table.retention.expire import expire_snapshots
from tests.table_kit import make_table, reopened, write


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path)
    for number in range(1, 5):
        write(table, number, [("+I", number, "a")])
    expire_snapshots(table, now_ms=table.clock.now_ms(), retain_min=1, retain_max=3)
    return table


def hint(path: str) -> str:
    return pathlib.Path(path).read_text()


def test_right_hints_are_left_alone(table):
    assert repair_hints(table) == []


def test_wrong_and_missing_hints_are_written(table):
    layout = table.layout
    pathlib.Path(layout.latest_hint).write_text("2")
    pathlib.Path(layout.earliest_hint).unlink()
    told = repair_hints(table, dry_run=True)
    assert hint(layout.latest_hint) == "2"
    assert repair_hints(table) == told
    assert [(one.recorded, one.corrected) for one in told] == [(2, 4), (None, 2)]
    assert (hint(layout.latest_hint), hint(layout.earliest_hint)) == ("4", "2")
    assert repair_hints(table) == []
    assert reopened(table).latest_snapshot().id == 4


def test_nonsense_is_a_wrong_hint(table):
    pathlib.Path(table.layout.latest_hint).write_text("four")
    assert [one.corrected for one in repair_hints(table)] == [4]


def test_a_hint_at_nothing_is_removed(tmp_path):
    table = make_table(tmp_path)
    latest = pathlib.Path(table.layout.latest_hint)
    latest.parent.mkdir(parents=True)
    latest.write_text("7")
    assert [(one.recorded, one.corrected) for one in repair_hints(table)] == [(7, None)]
    assert not latest.exists()
