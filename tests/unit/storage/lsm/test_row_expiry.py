# SPDX-License-Identifier: Apache-2.0
"""Rows that compaction drops because of their age."""

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from storage.clock import ManualClock
from storage.errors import InvalidOptionError
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn
from storage.format.types.types import parse_type
from storage.lsm.bucket import RowExpiry
from storage.options.options import TableOptions
from tests.changelog_kit import changelog_of_commit
from tests.table_kit import make_table, rows_of, write
from tests.unit.storage.newest_files import newest_names

NOW_S = 1_700_000_000
DAY_S = 86_400
OPTIONS = {"record-level.expire-time": "1 d", "record-level.time-field": "t"}


def expiry(type_text: str) -> RowExpiry:
    schema = new_schema(
        [("k", parse_type("INT")), ("t", parse_type(type_text))],
        primary_keys=["k"],
        partition_keys=[],
        options=OPTIONS,
        now_ms=0,
    )
    found = RowExpiry.of(TableOptions.from_strings(schema.options), schema)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("type_text", "arrow", "per_second"),
    [
        ("INT", pa.int32(), 1),
        ("BIGINT", pa.int64(), 1),
        ("BIGINT", pa.int64(), 1_000),
        ("TIMESTAMP(3)", pa.timestamp("ms"), 1_000),
        ("TIMESTAMP(6)", pa.timestamp("us"), 1_000_000),
        ("TIMESTAMP(9)", pa.timestamp("ns"), 1_000_000_000),
        ("TIMESTAMP_LTZ(3)", pa.timestamp("ms", "UTC"), 1_000),
    ],
)
def test_rows_older_than_the_age_go(type_text: str, arrow: pa.DataType, per_second: int) -> None:
    seconds = [NOW_S - DAY_S - 1, NOW_S - DAY_S, NOW_S]
    times = pa.array([*(second * per_second for second in seconds), None], pa.int64())
    batch = pa.record_batch({"k": pa.array([1, 2, 3, 4]), "t": times.cast(arrow)})
    left = expiry(type_text).unexpired(batch, NOW_S * 1000 + 999)
    assert left.column("k").to_pylist() == [2, 3, 4]
    assert expiry(type_text).unexpired(left, NOW_S * 1000) is left


def test_tables_without_an_age_keep_their_rows() -> None:
    schema = new_schema(
        [("k", parse_type("INT"))], primary_keys=["k"], partition_keys=[], options={}, now_ms=0
    )
    assert RowExpiry.of(TableOptions.from_strings({}), schema) is None


@pytest.mark.parametrize(
    "columns", [(("k", "INT"), ("t", "INT")), (("k", "INT"), ("t", "TIMESTAMP(3)"))]
)
def test_compactions_drop_them_one_file_at_a_time(
    tmp_path: pathlib.Path, columns: tuple[tuple[str, str], ...]
) -> None:
    clock = ManualClock(NOW_S * 1000)
    options = {**OPTIONS, "target-file-size": "10 kb"}
    table = make_table(tmp_path, columns=columns, options=options, clock=clock)
    scale = 1 if columns[1][1] == "INT" else 1_000
    count = 20_000
    rng = np.random.default_rng(1)
    order = rng.permutation(count) + 1_000
    rows: list[tuple[Any, ...]] = [
        ("+I", key, (NOW_S - int(order[key - 1])) * scale) for key in range(1, count)
    ]
    rows.append(("+I", count, (NOW_S - DAY_S + 50) * scale))
    if scale != 1:
        rows = [(kind, key, np.datetime64(time, "ms").item()) for kind, key, time in rows]
    write(table, 1, rows, full=True)
    assert table.to_arrow().num_rows == count
    before, snapshot = newest_names(table), table.latest_snapshot()
    assert len(before) > 1
    write(table, 2, [], full=True)
    assert table.latest_snapshot() == snapshot  # nothing has grown too old
    clock.advance(51_000)
    write(table, 3, [], full=True)
    assert table.to_arrow().num_rows == count - 1
    after = newest_names(table)
    assert len(before - after) == 1
    clock.advance(DAY_S * 1000)
    write(table, 4, [], full=True)
    assert table.to_arrow().num_rows == 0


def test_files_that_would_only_move_are_rewritten(tmp_path: pathlib.Path) -> None:
    columns = (("k", "INT"), ("t", "INT"))
    clock = ManualClock(NOW_S * 1000)
    options = {**OPTIONS, "compaction.small-file-ratio": "0"}
    table = make_table(tmp_path, columns=columns, options=options, clock=clock)
    write(table, 1, [("+I", 1, NOW_S - DAY_S - 9), ("+I", 2, NOW_S)])
    assert len(rows_of(table)) == 2
    write(table, 2, [], full=True)
    assert rows_of(table) == [(2, NOW_S)]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_nobody_is_told(tmp_path: pathlib.Path, producer: str) -> None:
    columns = (("k", "INT"), ("t", "INT"))
    clock = ManualClock(NOW_S * 1000)
    options = {**OPTIONS, "changelog-producer": producer}
    table = make_table(tmp_path, columns=columns, options=options, clock=clock)
    write(table, 1, [("+I", 1, NOW_S)], stream=True)
    clock.advance(2 * DAY_S * 1000)
    write(table, 2, [("+I", 2, NOW_S + 2 * DAY_S)], full=True)
    assert rows_of(table) == [(2, NOW_S + 2 * DAY_S)]
    assert changelog_of_commit(table, 2) == [("+I", 2, NOW_S + 2 * DAY_S)]


def test_statistics_without_the_column_tell_nothing(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(NOW_S * 1000)
    table = make_table(tmp_path, columns=(("k", "INT"), ("v", "INT")), clock=clock)
    write(table, 1, [("+I", 1, 1)], full=True)
    table = table.alter([AddColumn("t", parse_type("INT"))])
    with_age = table.with_options(OPTIONS)
    write(with_age, 2, [], full=True)
    assert rows_of(table) == [(1, 1, None)]
    none = table.with_options({**OPTIONS, "metadata.stats-mode": "none"})
    write(none, 3, [("+I", 2, 2, 1)], full=True)
    assert rows_of(table) == [(1, 1, None)]


def test_an_age_needs_a_column(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOptionError, match="You should set time field"):
        make_table(tmp_path, options={"record-level.expire-time": "1 d"})
