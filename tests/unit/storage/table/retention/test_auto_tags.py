# SPDX-License-Identifier: Apache-2.0
import datetime
import pathlib

import pytest

from storage.clock import ManualClock
from storage.errors import InvalidOptionError
from storage.options.options import TableOptions
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from storage.table.tags import (
    TagPeriod,
    TagSchedule,
    all_tags,
    create_automatic_tags,
    create_batch_tag,
    create_tag,
    expire_tags,
)
from storage.table.upkeep import TableUpkeep
from storage.testing.invariants import check_table
from tests.table_kit import make_table, prepared, reopened, rows_of

HOUR = 3_600_000


def utc(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text + "+00:00").timestamp() * 1000)


def period(**options: str) -> TagPeriod:
    keys = {f"tag.{key.replace('_', '-')}": value for key, value in options.items()}
    return TagPeriod.of(TableOptions.from_strings(keys))


def due(schedule: TagSchedule, *times: str) -> list[str | None]:
    names = []
    for one in times:
        name, schedule = schedule.due(datetime.datetime.fromisoformat(f"2023-07-18T{one}"))
        names.append(name)
    return names


def test_hours_and_their_delays() -> None:
    hourly = period(creation_period="hourly")
    assert due(TagSchedule(hourly), "12:12", "12:59", "13:00", "14:30") == [
        "2023-07-18 11",
        None,
        "2023-07-18 12",
        "2023-07-18 13",
    ]
    late = TagSchedule(hourly, datetime.timedelta(seconds=10))
    assert due(late, "12:00:09", "13:00:09", "13:00:10") == ["2023-07-18 11", None, "2023-07-18 12"]


def test_other_periods() -> None:
    two = TagSchedule(period(creation_period="two-hours"))
    assert due(two, "12:00:01", "13:00:01", "14:00:09") == ["2023-07-18 10", None, "2023-07-18 12"]
    daily = TagSchedule(period(period_formatter="without_dashes"))
    assert due(daily, "12:00", "23:59") == ["20230717", None]
    short = TagSchedule(period(creation_period_duration="10 min"))
    assert due(short, "12:05", "12:10") == ["202307181150", "202307181200"]


def test_completion_fills_gaps_one_snapshot_each() -> None:
    hourly = period(creation_period="hourly")
    schedule = TagSchedule(hourly, completion=True)
    assert due(schedule, "12:00", "16:00", "16:01", "16:02", "16:03") == [
        "2023-07-18 11",
        "2023-07-18 12",
        "2023-07-18 13",
        "2023-07-18 14",
        "2023-07-18 15",
    ]


def test_names_are_told_from_others() -> None:
    hourly = period(creation_period="hourly", period_formatter="without_dashes_and_spaces")
    assert hourly.start("2023071811") == datetime.datetime.fromisoformat("2023-07-18T11:00")
    assert hourly.start("202307181") is None
    assert hourly.start("release") is None
    assert period().start("2023-07-18 11") == datetime.datetime.fromisoformat("2023-07-18")
    assert period().start("2023-7-18") is None
    with pytest.raises(InvalidOptionError, match="shorter than its period"):
        period(creation_period="hourly", creation_delay="1 h")


def tagged(table: FileStoreTable) -> list[str]:
    return [tag.name for tag in all_tags(table)]


def commit(table: FileStoreTable, number: int, watermark: str | None) -> None:
    messages = prepared(table, [("+I", number, "v")])
    mark = None if watermark is None else utc(watermark)
    table.new_commit("user").commit(messages, number, watermark=mark)


def test_tags_follow_watermarks(tmp_path: pathlib.Path) -> None:
    options = {
        "tag.automatic-creation": "watermark",
        "tag.creation-period": "hourly",
        "tag.num-retained-max": "3",
    }
    table = make_table(tmp_path, options=options)
    commit(table, 0, None)
    assert create_automatic_tags(table) == []
    create_tag(table, "mine", 1)
    marks = ["12:12", "12:59", "13:00", "14:00", "15:00"]
    found = []
    for number, mark in enumerate(marks, 1):
        commit(table, number, f"2023-07-18T{mark}:00")
        create_automatic_tags(reopened(table))
        found.append([name[-2:] for name in tagged(table) if name != "mine"])
    assert found == [["11"], ["11"], ["11", "12"], ["11", "12", "13"], ["12", "13", "14"]]
    assert "mine" in tagged(table)
    assert create_automatic_tags(table) == []


def test_tags_follow_commits_and_outlive_them(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(utc("2023-07-18T12:12:00"))
    options = {
        "tag.automatic-creation": "process-time",
        "tag.creation-period": "hourly",
        "sink.process-time-zone": "Asia/Tokyo",
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
        "tag.default-time-retained": "90 min",
    }
    table = make_table(tmp_path, options=options, clock=clock)
    upkeep = TableUpkeep()
    for number in range(3):
        commit(table, number, None)
        upkeep.run(table)
        clock.advance(HOUR)
    assert tagged(table) == ["2023-07-18 21", "2023-07-18 22"]  # the first one has had its time
    assert table.snapshots.ids() == [3]
    assert rows_of(table, tag="2023-07-18 21") == [(0, "v"), (1, "v")]
    assert expire_tags(table, now_ms=clock.now_ms() + 2 * HOUR) == [
        "2023-07-18 21",
        "2023-07-18 22",
    ]
    expire_snapshots(table, now_ms=clock.now_ms())
    check_table(reopened(table))


def test_a_table_that_is_write_only_is_left_alone(tmp_path: pathlib.Path) -> None:
    options = {
        "write-only": "true",
        "snapshot.num-retained.min": "1",
        "snapshot.num-retained.max": "1",
    }
    table = make_table(tmp_path, options=options)
    for number in range(3):
        commit(table, number, None)
    assert TableUpkeep().run(table) == 0
    assert TableUpkeep().run(table, dedicated=True) == 2


def test_batches_have_a_tag_a_day(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(utc("2023-07-18T12:12:00"))
    options = {
        "tag.automatic-creation": "batch",
        "sink.process-time-zone": "UTC",
        "tag.num-retained-max": "2",
    }
    table = make_table(tmp_path, options=options, clock=clock)
    assert create_batch_tag(table) is None
    for number in range(4):
        commit(table, number, None)
        TableUpkeep().run(table, batch=True)
        clock.advance(HOUR)
    assert [(tag.name, tag.snapshot.id) for tag in all_tags(table)] == [
        ("batch-write-2023-07-18", 4)
    ]
    for _ in range(2):
        clock.advance(24 * HOUR)
        commit(table, clock.now_ms(), None)
        create_batch_tag(table)
    assert tagged(table) == ["batch-write-2023-07-19", "batch-write-2023-07-20"]
    named = table.with_options({"tag.batch.customized-name": "last"})
    assert create_batch_tag(named) == "last"
