# SPDX-License-Identifier: Apache-2.0
"""What batch commits of this process do on a table besides."""

import logging
import pathlib
from typing import Any

import pytest

from storage.clock import ManualClock
from storage.errors import StorageUnavailableError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table import upkeep
from storage.table.table import FileStoreTable
from storage.table.tags import all_tags
from tests.table_kit import make_table, prepared, rows_batch, rows_of, write

NOW = 1_700_000_000_000
FEW = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}
UNAWARE: dict[str, Any] = {"keys": (), "options": {"bucket": "-1", "compaction.min.file-num": "3"}}


def batch(table: FileStoreTable, rows: list[tuple[Any, ...]], user: str = "job") -> None:
    table.new_commit(f"{user}-{table.ids.uuid()}").commit(
        prepared(table, rows), BATCH_COMMIT_IDENTIFIER
    )


def files_of(table: FileStoreTable) -> int:
    snapshot = table.latest_snapshot()
    return 0 if snapshot is None else len(table.new_scan().live_entries(snapshot))


@pytest.mark.parametrize("overwrites", [False, True])
def test_batch_commits_expire_snapshots(tmp_path: pathlib.Path, overwrites: bool) -> None:
    table = make_table(tmp_path, options=FEW)
    for number in range(5):
        rows = [("+I", number, "x")]
        if overwrites:
            table.overwrite_rows([rows_batch(table, rows)])
        else:
            batch(table, rows)
    assert len(list(table.snapshots.ids())) <= 3
    assert len(rows_of(table)) == (1 if overwrites else 5)


def test_commits_of_a_stream_leave_it_to_the_stream(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options=FEW)
    for number in range(5):
        write(table, number, [("+I", number, "x")])
    assert next(iter(table.snapshots.ids())) == 1


def test_write_only_leaves_it_to_another_job(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={**FEW, "write-only": "true"})
    for number in range(5):
        batch(table, [("+I", number, "x")])
    assert len(list(table.snapshots.ids())) == 5


def test_a_batch_gets_its_tag(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, options={"tag.automatic-creation": "batch"})
    batch(table, [("+I", 1, "x")])
    (tag,) = all_tags(table)
    assert tag.name.startswith("batch-write-")


def test_old_partitions_are_dropped(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=(("dt", "STRING"), ("k", "BIGINT")),
        keys=("dt", "k"),
        partitions=("dt",),
        options={"partition.expiration-time": "1 d"},
        clock=ManualClock(NOW),
    )
    batch(table, [("+I", "2020-01-01", 1), ("+I", "2023-11-14", 1)])
    assert rows_of(table) == [("2023-11-14", 1)]


def test_small_files_of_an_append_table_are_merged(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, **UNAWARE)
    for number in range(4):
        batch(table, [("+I", number, "x")])
    assert files_of(table) <= 2
    assert len(rows_of(table)) == 4


def test_only_written_partitions_are_merged(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path, columns=(("p", "STRING"), ("k", "BIGINT")), partitions=("p",), **UNAWARE
    )
    for number in range(2, 7):
        write(table, number, [("+I", "a", number)])
    batch(table, [("+I", "b", 1)])
    assert files_of(table) == 6
    batch(table, [("+I", "a", 9)])
    assert files_of(table) == 2


def test_a_failure_of_upkeep_does_not_fail_the_commit(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise StorageUnavailableError("the store is away")

    monkeypatch.setattr(upkeep, "expire_snapshots", fails)
    table = make_table(tmp_path)
    with caplog.at_level(logging.WARNING):
        batch(table, [("+I", 1, "x")])
    assert rows_of(table) == [(1, "x")]
    assert any(getattr(one, "event", "") == "upkeep_failed" for one in caplog.records)
