# SPDX-License-Identifier: Apache-2.0
"""Java's rules of time zones; files of JVMs in other zones are in tests/interop/test_orc_zones."""

import datetime
import io
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest

from storage.errors import UnsupportedFeatureError
from storage.format.files.orc.tail import (
    OtherTail,
    Zone,
    instants_to_walls,
    stored_to_walls,
    zone_of,
)


def found(name: str) -> Zone:
    zone = zone_of(name)
    assert zone is not None
    return zone


def seconds(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp())


def offsets(name: str, *instants: str) -> list[int]:
    return [int(n) for n in found(name).at(np.array([seconds(text) for text in instants]))]


@pytest.mark.parametrize("name", ["", "UTC", "GMT", "Etc/UTC", "GMT+00:00", "Zulu"])
def test_nothing_is_to_be_done_in_utc(name: str) -> None:
    assert zone_of(name) is None


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="Mars/Olympus"):
        zone_of("Mars/Olympus")


def test_zones_by_their_distance() -> None:
    assert offsets("GMT+08:00", "1800-01-01", "2200-01-01") == [28_800, 28_800]
    assert offsets("GMT-3:30", "2024-01-01") == [-12_600]


def test_daylight_saving_begins_to_the_second() -> None:
    begin = seconds("2024-03-10T07:00:00")
    zone = found("America/New_York")
    assert zone.at(np.array([begin - 1, begin])).tolist() == [-18_000, -14_400]
    assert offsets("America/New_York", "2090-01-01", "2090-07-01") == [-18_000, -14_400]


@pytest.mark.parametrize("name", ["America/New_York", "Europe/Berlin", "Australia/Sydney"])
def test_yearly_rules_hold_in_all_later_years(name: str) -> None:
    info = zoneinfo.ZoneInfo(name)
    moments = [
        datetime.datetime(year, month, 1, 12, tzinfo=datetime.UTC)
        for year in (2100, 2262, 2263, 2437, 2438, 2439, 3000, 5555, 9998)
        for month in (1, 4, 7, 10)
    ]
    expected = [int(one.astimezone(info).utcoffset().total_seconds()) for one in moments]  # type: ignore[union-attr]
    found_there = found(name).at(np.array([int(one.timestamp()) for one in moments]))
    assert found_there.tolist() == expected
    assert len(set(expected)) == 2


def test_before_1900_java_knows_only_the_standard_time_of_today() -> None:
    assert offsets("Asia/Shanghai", "1899-12-31", "1900-06-01", "1950-01-01") == [
        28_800,
        29_143,
        28_800,
    ]
    assert offsets("Australia/Lord_Howe", "1800-01-01") == [37_800]
    assert offsets("Europe/Dublin", "1800-01-01") == [0]


def test_a_wall_clock_of_a_jvm_is_read_back() -> None:
    zone = found("Asia/Shanghai")
    walls = ["2024-01-01T00:00:00.123456", "1970-01-01T07:39:15.001", "1969-12-31T00:00:00.000007"]
    expected = pa.array(walls).cast(pa.timestamp("us"))
    # seconds since 2015 in the zone, one too high before 1970 with a whole millisecond on top;
    # the library gives them as if 2015 had begun in UTC
    stored = []
    for wall in walls:
        moment = datetime.datetime.fromisoformat(wall)
        instant = seconds(wall[:19]) - 28_800
        millis = moment.microsecond >= 1_000
        raw = instant + (instant < 0 and millis) + 28_800
        library = raw - (raw < 0 and millis)
        stored.append(library * 1_000_000 + moment.microsecond)
    column = pa.array([*stored, None], pa.timestamp("us"))
    assert stored_to_walls(column, zone).to_pylist() == [*expected.to_pylist(), None]


def test_slices_and_units_keep_their_nulls() -> None:
    for unit in ("ms", "us", "ns"):
        column = pa.array([0, None, 1_000, None], pa.timestamp(unit, "UTC")).slice(1)
        walls = instants_to_walls(column, found("GMT+01:00"))
        walls.validate(full=True)
        assert walls.type == column.type
        assert walls.is_valid().to_pylist() == [False, True, False]
        assert walls[1].value - 1_000 == 3_600 * {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]


def test_a_wall_clock_beyond_the_unit_is_told() -> None:
    column = pa.array([2**63 - 1], pa.timestamp("ns"))
    with pytest.raises(pa.ArrowInvalid, match="out of range for nanosecond resolution"):
        instants_to_walls(column, found("GMT+01:00"))


def test_a_file_with_another_tail_reads_through_the_seam() -> None:
    with OtherTail(pa.BufferReader(b"0123456789"), 6, b"abc") as file:
        assert file.read() == b"012345abc"
        assert file.seek(-5, io.SEEK_END) == 4
        assert file.read(3) == b"45a"
        assert file.read(9) == b"bc"
        assert file.read(1) == b""
        assert file.seek(2) == file.tell() == 2
        assert file.read(2) == b"23"
