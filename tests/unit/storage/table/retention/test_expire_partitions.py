# SPDX-License-Identifier: Apache-2.0
import datetime
import pathlib

import pytest

from storage.clock import ManualClock, epoch_of_local_ms
from storage.errors import InvalidOptionError
from storage.table.retention.expire_partitions import (
    choose_expired_partitions,
    expire_partitions,
    partition_time,
)
from storage.table.upkeep import TableUpkeep
from storage.testing.invariants import check_table
from tests.table_kit import make_table, reopened, rows_of, write

DAY = datetime.timedelta(days=1)
DAY_MS = 86_400_000


def at(year: int, month: int, day: int, *rest: int) -> datetime.datetime:
    hour, minute, second, micros = (*rest, 0, 0, 0, 0)[:4]
    return datetime.datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "formatter", "expected"),
    [
        ("2024-07-09", None, at(2024, 7, 9)),
        ("2024-7-9", None, at(2024, 7, 9)),
        ("2024-07-09 05:06:07.25", None, at(2024, 7, 9, 5, 6, 7, 250_000)),
        ("2024-13-32", None, at(2025, 2, 1)),
        ("20240709", None, None),
        ("20240709", "yyyyMMdd", at(2024, 7, 9)),
        ("20240231", "yyyyMMdd", at(2024, 2, 29)),
        ("20240232", "yyyyMMdd", None),
        ("20241309", "yyyyMMdd", None),
        ("bad", "yyyyMMdd", None),
        ("2024070913", "yyyyMMddHH", at(2024, 7, 9, 13)),
        ("09.7.2024", "dd.M.yyyy", at(2024, 7, 9)),
        ("2024-07-09T08", "yyyy-MM-dd'T'HH", at(2024, 7, 9, 8)),
        ("2024-07-09", "yyyy-MM-dd[ HH:mm]", at(2024, 7, 9)),
        ("2024-07-09 08:01", "yyyy-MM-dd[ HH:mm]", at(2024, 7, 9, 8, 1)),
        ("08", "HH", None),
    ],
)
def test_times_that_values_spell(
    text: str, formatter: str | None, expected: datetime.datetime | None
) -> None:
    assert partition_time({"dt": text, "x": "1"}, None, formatter) == expected


def test_patterns_put_values_together() -> None:
    values = {"d": "2024-07-09", "d1": "5", "x": None}
    assert partition_time(values, "$d $d1:00:00", None) == at(2024, 7, 9, 5)
    assert partition_time(values, "$x", None) is None
    assert partition_time({"x": None}, None, None) is None
    with pytest.raises(InvalidOptionError, match="not supported"):
        partition_time(values, "$d", "yyyy-MMM-dd")


def test_only_what_is_strictly_older_goes() -> None:
    names = {b"1": "20240701", b"2": "20240702", b"3": "20240703", b"4": "bad"}
    times = {one: partition_time({"d": text}, None, "yyyyMMdd") for one, text in names.items()}
    chosen = choose_expired_partitions(times, names, now=at(2024, 7, 9), age=7 * DAY, limit=100)
    assert chosen == [b"1"]
    later = choose_expired_partitions(times, names, now=at(2024, 8, 9), age=7 * DAY, limit=2)
    assert later == [b"1", b"2"]


def clock_at(year: int, month: int, day: int) -> ManualClock:
    local = (at(year, month, day) - at(1970, 1, 1)) // datetime.timedelta(milliseconds=1)
    return ManualClock(epoch_of_local_ms(local))


def test_partitions_are_dropped_and_others_stay(tmp_path: pathlib.Path) -> None:
    clock = clock_at(2024, 7, 9)
    table = make_table(
        tmp_path,
        columns=[("d", "STRING"), ("k", "INT")],
        keys=["d", "k"],
        partitions=["d"],
        options={
            "partition.expiration-time": "7 d",
            "partition.timestamp-formatter": "yyyyMMdd",
            "partition.expiration-batch-size": "2",
        },
        clock=clock,
    )
    days = ["20240629", "20240630", "20240701", "20240702", "bad"]
    write(table, 1, [("+I", day, 1) for day in days] + [("+I", "20240708", 2)])
    upkeep = TableUpkeep()
    upkeep.run(table)
    assert [row[0] for row in rows_of(table)] == ["20240702", "20240708", "bad"]
    kinds = [table.snapshots.read(one).commit_kind.value for one in table.snapshots.ids()]
    assert kinds == ["APPEND", "OVERWRITE", "OVERWRITE"]
    clock.advance(30 * 60_000)
    upkeep.run(table)
    assert len(table.snapshots.ids()) == 3  # the interval has not passed
    clock.advance(31 * 60_000)
    upkeep.run(table)
    assert [row[0] for row in rows_of(table)] == ["20240708", "bad"]
    check_table(reopened(table))


def test_partitions_may_age_by_their_files(tmp_path: pathlib.Path) -> None:
    clock = clock_at(2024, 7, 1)
    table = make_table(
        tmp_path,
        columns=[("d", "STRING"), ("k", "INT")],
        keys=[],
        partitions=["d"],
        options={
            "bucket": "-1",
            "partition.expiration-time": "4 d",
            "partition.expiration-strategy": "update-time",
        },
        clock=clock,
    )
    write(table, 1, [("+I", "a", 1), ("+I", None, 1)])
    clock.advance(3 * DAY_MS)
    assert expire_partitions(table, now_ms=clock.now_ms()) == []
    write(table, 2, [("+I", "a", 2)])
    clock.advance(2 * DAY_MS)
    expired = expire_partitions(table, now_ms=clock.now_ms())
    assert expired == [table.options.partition_default_name]
    assert rows_of(table) == [("a", 1), ("a", 2)]


def test_tables_without_partitions_or_snapshots(tmp_path: pathlib.Path) -> None:
    options = {"partition.expiration-time": "1 d"}
    table = make_table(tmp_path, options=options)
    assert expire_partitions(table, now_ms=0) == []
    write(table, 1, [("+I", 1, "a")])
    assert expire_partitions(table, now_ms=1 << 50) == []
