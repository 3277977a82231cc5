# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.errors import CorruptDataError
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.changelog import later_images, side_by_side

_KINDS = {kind.short: kind.value for kind in RowKind}


def _state(*rows: tuple[str, int, str | None], first: int = 0) -> pa.RecordBatch:
    kinds, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_pydict(
        {
            SEQUENCE_NUMBER: pa.array(range(first, first + len(rows)), pa.int64()),
            VALUE_KIND: pa.array([_KINDS[kind] for kind in kinds], pa.int8()),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.string()),
        }
    )


def _told(*batches: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [
        (RowKind(row[VALUE_KIND]).short, row["k"], row["v"], row[SEQUENCE_NUMBER])
        for batch in batches
        for row in batch.to_pylist()
    ]


def test_later_images_keep_the_kinds_they_are_stored_with() -> None:
    before = _state(("+I", 1, "a"), ("+U", 2, "a"), ("+I", 3, None), ("+I", 4, "a"))
    after = _state(("+U", 1, "a"), ("+I", 2, "b"), ("+U", 3, "c"), ("+U", 5, "a"), first=10)
    found = side_by_side([before], [after], ["k"], later_images)
    assert _told(*found) == [
        ("+I", 2, "b", 11),
        ("+U", 3, "c", 12),
        ("-D", 4, "a", 3),
        ("+U", 5, "a", 13),
    ]


def test_retracted_rows_count_as_none() -> None:
    before = _state(("-D", 1, "a"), ("+I", 2, "a"), ("-D", 3, "a"))
    after = _state(("+I", 1, "a"), ("-D", 2, "x"), ("-U", 3, "b"), ("-D", 4, "b"), first=10)
    found = side_by_side([before], [after], ["k"], later_images)
    assert _told(*found) == [("+I", 1, "a", 10), ("-D", 2, "a", 1)]


@pytest.mark.parametrize("window", [1, 1 << 10, 1 << 20])
def test_any_window_tells_the_same(window: int) -> None:
    random = np.random.default_rng(1)
    states = []
    for side in (0, 1):
        keys = np.flatnonzero(random.integers(2, size=500)).tolist()
        rows = [("+I", key, str(random.integers(2))) for key in keys]
        cuts = sorted(random.integers(0, len(rows), size=9).tolist())
        parts = zip([0, *cuts], [*cuts, len(rows)], strict=True)
        states.append([_state(*rows[a:b], first=1_000 * side + a) for a, b in parts])
    before, after = (
        {row["k"]: row["v"] for batch in state for row in batch.to_pylist()} for state in states
    )
    expected = {
        *(("+I", key, value) for key, value in after.items() if before.get(key) != value),
        *(("-D", key, value) for key, value in before.items() if key not in after),
    }
    found = _told(*side_by_side(states[0], states[1], ["k"], later_images, window_bytes=window))
    assert [row[1] for row in found] == sorted(row[1] for row in expected)
    assert {row[:3] for row in found} == expected


def test_a_state_that_goes_back_is_corrupt() -> None:
    back = [_state(("+I", 5, "a")), _state(("+I", 3, "a"))]
    with pytest.raises(CorruptDataError, match="descending keys"):
        list(side_by_side(back, [], ["k"], later_images))
