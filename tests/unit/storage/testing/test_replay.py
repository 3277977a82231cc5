# SPDX-License-Identifier: Apache-2.0
import functools
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.changelog import ChangeRule, row_changes, side_by_side
from storage.table.table import FileStoreTable
from tests.changelog_kit import read_snapshot_changelog
from tests.changelog_replay import FaultKind, changelog_faults, replay

_GOLDEN = pathlib.Path(__file__).parents[3] / "golden" / "data" / "public"
_KINDS = {kind.short: kind.value for kind in RowKind}
_KEYS = ("k",)


def _changes(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    kinds, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {
            VALUE_KIND: pa.array([_KINDS[kind] for kind in kinds], pa.int8()),
            "k": pa.array(keys, pa.int32()),
            "v": pa.array(values, pa.float64()),
        }
    )


def _state(*rows: tuple[int, float | None]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.int32()),
            "v": pa.array([row[1] for row in rows], pa.float64()),
        }
    )


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_the_last_change_of_a_key_counts() -> None:
    changes = [_changes(("+I", 2, 1.0), ("+I", 1, 1.0)), _changes(("-U", 1, 1.0), ("+U", 1, 2.0))]
    assert _rows(replay(changes, _KEYS)) == [(1, 2.0), (2, 1.0)]
    changes.append(_changes(("-D", 2, 1.0)))
    assert _rows(replay(changes, _KEYS)) == [(1, 2.0)]
    assert _rows(replay(changes[1:], _KEYS, _state((1, 1.0), (2, 1.0)))) == [(1, 2.0)]


def test_nothing_and_no_key() -> None:
    assert _rows(replay([_changes()], _KEYS)) == []
    assert _rows(replay([], _KEYS, _state())) == []
    assert _rows(replay([], _KEYS, _state((1, None)))) == [(1, None)]
    same = [_changes(("+I", 1, 1.0)), _changes(("+I", 1, 1.0))]
    assert _rows(replay(same, ())) == [(1, 1.0), (1, 1.0)]
    with pytest.raises(ValueError, match="neither"):
        replay([], _KEYS)


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        ([("+I", 1, 1.0), ("-U", 1, 1.0), ("+U", 1, 2.0), ("-D", 1, 2.0), ("+I", 1, 3.0)], set()),
        ([("+I", 1, float("nan")), ("-D", 1, float("nan"))], set()),
        ([("+I", 1, None), ("-D", 1, None)], set()),
        ([("+I", 1, 0.0), ("-D", 1, -0.0)], {FaultKind.RETRACTS_OTHER}),
        ([("+I", 1, 1.0), ("+I", 1, 2.0)], {FaultKind.INSERTED_TWICE}),
        ([("-D", 1, 1.0)], {FaultKind.RETRACTS_NOTHING}),
        ([("+I", 1, 1.0), ("-D", 1, 2.0)], {FaultKind.RETRACTS_OTHER}),
        ([("+U", 1, 1.0)], {FaultKind.UPDATE_WITHOUT_BEFORE}),
        ([("+I", 1, 1.0), ("-U", 1, 1.0)], {FaultKind.BEFORE_WITHOUT_UPDATE}),
        (
            [("+I", 1, 1.0), ("-U", 1, 1.0), ("+I", 2, 1.0), ("+U", 1, 2.0)],
            {FaultKind.BEFORE_WITHOUT_UPDATE, FaultKind.UPDATE_WITHOUT_BEFORE},
        ),
        (
            [("-U", 1, 1.0), ("+U", 1, 2.0)],
            {FaultKind.RETRACTS_NOTHING},
        ),
    ],
)
def test_faults_of_a_changelog(rows: list[tuple[Any, ...]], kinds: set[FaultKind]) -> None:
    found = changelog_faults([_changes(*rows)], _KEYS)
    assert {fault.kind for fault in found} == kinds
    assert all(fault.count == 1 and fault.first.num_rows == 1 for fault in found)


def test_a_state_before_the_changes_counts() -> None:
    update = _changes(("-U", 1, 1.0), ("+U", 1, 2.0))
    assert changelog_faults([update], _KEYS, _state((1, 1.0))) == []
    assert changelog_faults([], _KEYS, _state()) == []


@pytest.mark.parametrize(
    "case", ["changelog_lookup", "changelog_full_compaction", "changelog_lookup_row_deduplicate"]
)
def test_java_changelogs_lead_to_java_states(case: str) -> None:
    table = FileStoreTable.open(str(_GOLDEN / case / "table"))
    changes = []
    for snapshot_id in table.snapshots.ids():
        changes += read_snapshot_changelog(table, snapshot_id).to_batches()
    assert changelog_faults(changes, table.schema.primary_keys) == []
    expected = sorted(map(repr, table.to_arrow().to_pylist()))
    found = replay(changes, table.schema.primary_keys)
    assert sorted(map(repr, found.to_pylist())) == expected


def test_sorted_states_stream_through_a_small_window() -> None:
    def batches(start: int, add: int) -> list[pa.RecordBatch]:
        return [
            pa.RecordBatch.from_pydict(
                {
                    SEQUENCE_NUMBER: pa.array(np.arange(first, first + 100)),
                    VALUE_KIND: pa.array(np.zeros(100, dtype=np.int8)),
                    "k": pa.array(np.arange(first, first + 100)),
                    "v": pa.array(np.arange(first, first + 100) // 150 + add),
                }
            )
            for first in range(start, start + 1_000, 100)
        ]

    emit = functools.partial(row_changes, rule=ChangeRule(row_deduplicate=True))
    found = list(side_by_side(batches(0, 0), batches(500, 0), ["k"], emit, window_bytes=4_096))
    assert len(found) > 3
    rows = pa.Table.from_batches(found)
    assert rows.column("k").to_pylist() == [*range(500), *range(1_000, 1_500)]
    assert rows.column(SEQUENCE_NUMBER).to_pylist() == rows.column("k").to_pylist()
    assert set(rows.column(VALUE_KIND).to_pylist()[:500]) == {RowKind.DELETE}
    assert not list(side_by_side(batches(0, 0), batches(0, 0), ["k"], emit, window_bytes=4_096))
