# SPDX-License-Identifier: Apache-2.0
"""What scan options mean together, and the states of batch reads that go by time or compaction."""

import pathlib

import pytest

from storage.clock import ManualClock, epoch_of_local_ms
from storage.errors import InvalidOptionError, NotFoundError
from storage.format.metadata.snapshot import CommitKind
from storage.options.options import TableOptions
from storage.table.scan.time_travel import (
    ScanMode,
    TimeTravel,
    first_since,
    newest_compacted,
    scan_mode_of,
    travel_of,
)
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, rows_of, write

_START_MS = 1_700_000_000_000


def _history(tmp_path: pathlib.Path, **options: str) -> FileStoreTable:
    """Snapshot n was made at second n and has the rows 1..n."""
    clock = ManualClock(_START_MS)
    table = make_table(tmp_path, clock=clock, options=options)
    for number in range(1, 4):
        clock.advance(1_000)
        write(table, number, [("+I", number, "a")], compaction=False)
    return table


@pytest.mark.parametrize(
    ("options", "mode", "key"),
    [
        ({}, ScanMode.LATEST_FULL, None),
        ({"scan.mode": "FULL"}, ScanMode.LATEST_FULL, None),
        ({"scan.mode": "COMPACTED_FULL"}, ScanMode.COMPACTED_FULL, None),
        ({"scan.timestamp": "2024-01-01"}, ScanMode.FROM_TIMESTAMP, "scan.timestamp"),
        ({"scan.tag-name": "t"}, ScanMode.FROM_SNAPSHOT, "scan.tag-name"),
        (
            {"scan.file-creation-time-millis": "1"},
            ScanMode.FROM_FILE_CREATION_TIME,
            "scan.file-creation-time-millis",
        ),
        (
            {"scan.creation-time-millis": "1"},
            ScanMode.FROM_CREATION_TIMESTAMP,
            "scan.creation-time-millis",
        ),
        ({"incremental-between": "1,2"}, ScanMode.INCREMENTAL, "incremental-between"),
        ({"incremental-to-auto-tag": "t"}, ScanMode.INCREMENTAL, "incremental-to-auto-tag"),
        ({"scan.mode": "latest-delta"}, ScanMode.LATEST_DELTA, None),
    ],
)
def test_the_mode_and_what_it_goes_by(
    options: dict[str, str], mode: ScanMode, key: str | None
) -> None:
    assert scan_mode_of(options) == (mode, key)
    assert TableOptions.from_strings({"bucket": "1", **options}).raw["bucket"] == "1"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scan.mode": "soon"}, "`latest-full`"),
        ({"scan.mode": "incremental"}, "must set only one key"),
        ({"scan.mode": "from-file-creation-time"}, "must set only one key"),
        ({"incremental-between": "1,2", "scan.snapshot-id": "1"}, "must be null when you set"),
        (
            {"incremental-between": "1,2", "incremental-between-timestamp": "1,2"},
            "must set only one key",
        ),
        ({"scan.mode": "latest-delta", "incremental-between": "1,2"}, "must be null when you set"),
        (
            {"scan.creation-time-millis": "1", "scan.file-creation-time-millis": "1"},
            "must be null when you set",
        ),
        ({"scan.creation-time-millis": "x"}, "a whole number"),
    ],
)
def test_options_that_cannot_stand_together(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        travel_of(options)


def test_an_unknown_mode_is_no_option_value() -> None:
    with pytest.raises(InvalidOptionError, match="cannot be read"):
        TableOptions.from_strings({"scan.mode": "soon"})


def test_the_first_snapshot_since_a_time(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    found = [first_since(table, _START_MS + ms) for ms in (0, 1_000, 1_001, 3_000, 3_001)]
    assert found == [1, 1, 2, 3, 4]
    assert first_since(make_table(tmp_path / "empty"), 5) is None


@pytest.mark.parametrize(
    ("since_ms", "rows"), [(_START_MS + 1_500, 2), (_START_MS + 3_000, 3), (_START_MS, 3)]
)
def test_a_state_by_creation_time(tmp_path: pathlib.Path, since_ms: int, rows: int) -> None:
    table = _history(tmp_path)
    options = {"scan.creation-time-millis": str(since_ms)}
    assert travel_of(options) == TimeTravel(since_ms=since_ms)
    read = table.with_options(dict(options))
    assert len(rows_of(read)) == rows
    assert read.new_read().to_table(read.new_scan().plan()).num_rows == rows


def test_only_files_made_since(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    wanted = {"scan.file-creation-time-millis": str(_START_MS + 2_000)}
    assert rows_of(table.with_options(dict(wanted))) == [(2, "a"), (3, "a")]
    late = {"scan.file-creation-time-millis": str(_START_MS + 9_000)}
    assert rows_of(table.with_options(dict(late))) == []


def test_local_wall_times_are_moments() -> None:
    assert epoch_of_local_ms(1_700_000_000_123) % 1_000 == 123


def test_what_is_not_there_is_told_when_it_is_read(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path).with_options({"scan.snapshot-id": "9"})
    with pytest.raises(NotFoundError, match="out of available snapshotId range"):
        table.to_arrow()
    with pytest.raises(NotFoundError):
        table.new_scan().plan()


def test_the_newest_compaction_of_regular_full_ones(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    for number in range(1, 6):
        write(table, number, [("+I", number, "a")], full=number in (2, 3, 4))
    compactions = [
        (one.id, one.commit_identifier)
        for one in map(table.snapshots.read, table.snapshots.ids())
        if one.commit_kind is CommitKind.COMPACT
    ]
    assert [identifier for _, identifier in compactions] == [2, 3, 4]
    newest, regular = (
        newest_compacted(table),
        newest_compacted(table.with_options({"full-compaction.delta-commits": "3"})),
    )
    assert newest is not None
    assert regular is not None
    assert (newest.id, regular.id) == (compactions[2][0], compactions[1][0])
    assert len(rows_of(table.with_options({"scan.mode": "compacted-full"}))) == 4
