# SPDX-License-Identifier: Apache-2.0
"""Time travel: which snapshot arguments and options choose, and in which schema rows come."""

import datetime
import pathlib
from typing import Any

import pytest

from storage.clock import ManualClock
from storage.errors import (
    CorruptDataError,
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.schema_changes import AddColumn, RenameColumn, SetOption
from storage.format.types.types import parse_type
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.time_travel import TimeTravel, travel_of
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.table_kit import make_table, prepared, reopened, rows_of, write

_START_MS = 1_700_000_000_000


def _history(tmp_path: pathlib.Path) -> FileStoreTable:
    """Snapshot n has the rows 1..n, was made at minute n, and from 2 on has a watermark n * 10."""
    clock = ManualClock(_START_MS)
    table = make_table(tmp_path, clock=clock)
    for number in range(1, 5):
        clock.advance(60_000)
        messages = prepared(table, [("+I", number, "a")], compaction=False)
        watermark = number * 10 if number > 1 else None
        table.new_commit("user").commit(messages, number, watermark=watermark)
    create_tag(table, "two", 2)
    create_tag(table, "4", 3)
    return table


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> FileStoreTable:
    """For tests that only read."""
    return _history(tmp_path_factory.mktemp("history"))


def _minute(number: int) -> int:
    return _START_MS + number * 60_000


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({}, 4),
        ({"snapshot": 3}, 3),
        ({"tag": "two"}, 2),
        ({"timestamp_ms": _minute(2)}, 2),
        ({"timestamp_ms": _minute(3) - 1}, 2),
        ({"timestamp_ms": _minute(99)}, 4),
        ({"watermark": 1}, 2),
        ({"watermark": 20}, 2),
        ({"watermark": 21}, 3),
        ({"version": "two"}, 2),
        ({"version": "4"}, 3),
        ({"version": "1"}, 1),
        ({"version": "watermark-31"}, 4),
    ],
)
def test_one_way_of_choosing(history: FileStoreTable, arguments: dict[str, Any], rows: int) -> None:
    assert rows_of(history, **arguments) == [(number, "a") for number in range(1, rows + 1)]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"snapshot": 9}, NotFoundError, "out of available snapshotId range"),
        ({"tag": "none"}, NotFoundError, "doesn't exist"),
        ({"timestamp_ms": _START_MS}, NotFoundError, "earlier than or equal to timestamp"),
        ({"watermark": 41}, NotFoundError, "watermark"),
        ({"version": "none"}, NotFoundError, "time travel version"),
        ({"snapshot": 1, "tag": "two"}, InvalidRequestError, "only one way"),
    ],
)
def test_what_is_not_there(
    history: FileStoreTable, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        history.to_arrow(**arguments)


@pytest.mark.parametrize(
    ("options", "travel"),
    [
        ({}, TimeTravel()),
        ({"scan.mode": "latest"}, TimeTravel()),
        ({"scan.mode": "compacted-full"}, TimeTravel(compacted=True)),
        ({"scan.snapshot-id": "3"}, TimeTravel(snapshot_id=3)),
        ({"scan.snapshot-id": "3", "scan.mode": "from-snapshot"}, TimeTravel(snapshot_id=3)),
        ({"scan.snapshot-id": "3", "scan.mode": "from-snapshot-full"}, TimeTravel(snapshot_id=3)),
        ({"scan.tag-name": "t"}, TimeTravel(tag="t")),
        ({"scan.timestamp-millis": "5"}, TimeTravel(timestamp_ms=5)),
        ({"scan.watermark": "7"}, TimeTravel(watermark=7)),
        ({"scan.version": "v"}, TimeTravel(version="v")),
    ],
)
def test_options_choose(options: dict[str, str], travel: TimeTravel) -> None:
    assert travel_of(options) == travel


def test_a_local_time_chooses() -> None:
    time = datetime.datetime.fromisoformat("2024-01-31 12:30:00.5").astimezone()
    expected = TimeTravel(timestamp_ms=round(time.timestamp() * 1000))
    assert travel_of({"scan.timestamp": "2024-01-31 12:30:00.500"}) == expected
    with pytest.raises(InvalidOptionError, match="not a date and time"):
        travel_of({"scan.timestamp": "yesterday"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scan.snapshot-id": "1", "scan.timestamp-millis": "5"}, "must be null when you set"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "t"}, "must set only one key"),
        ({"scan.timestamp": "2024-01-31", "scan.timestamp-millis": "5"}, "must set only one key"),
        (
            {"scan.mode": "latest", "scan.snapshot-id": "1"},
            "scan.snapshot-id must be null when you use latest",
        ),
        ({"scan.mode": "from-snapshot"}, "must set only one key"),
        ({"scan.mode": "from-snapshot-full", "scan.tag-name": "t"}, "can not be null when you use"),
        ({"scan.snapshot-id": "x"}, "a whole number"),
    ],
)
def test_options_that_contradict_each_other(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        travel_of(options)


def test_dynamic_options_travel_and_are_not_stored(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    back = table.with_options({"scan.snapshot-id": "2"})
    assert len(rows_of(back)) == 2
    assert back.new_scan().plan().snapshot_id == 2
    assert len(rows_of(back, snapshot=3)) == 3
    assert len(rows_of(table)) == 4
    assert len(rows_of(back.with_options({"scan.snapshot-id": None}))) == 4
    assert len(rows_of(reopened(table))) == 4
    other = back.alter([SetOption("a", "b")])
    stored = table.schemas.read(other.schema.id).options
    assert stored["a"] == "b"
    assert "scan.snapshot-id" not in stored
    assert other.schema.options["scan.snapshot-id"] == "2"
    with pytest.raises(InvalidOptionError, match="Change 'bucket'"):
        table.with_options({"bucket": "7"})
    assert table.with_options({"bucket": "1"}).schema == table.schema
    with pytest.raises(NotFoundError):
        table.with_options({"scan.tag-name": "none"})
    with pytest.raises(InvalidOptionError):
        table.with_options({"scan.snapshot-id": "x"})


def test_stored_options_travel_too(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path).alter([SetOption("scan.version", "two")])
    assert len(rows_of(reopened(table))) == 2


def test_rows_come_in_the_schema_of_the_snapshot(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    table = table.alter([RenameColumn("v", "w"), AddColumn("x", parse_type("INT"))])
    write(table, 9, [("+I", 9, "b", 1)])
    create_tag(table, "wide")
    assert table.to_arrow(tag="two").column_names == ["k", "v"]
    assert rows_of(table, snapshot=1) == [(1, "a")]
    assert table.to_arrow(tag="wide").column_names == ["k", "w", "x"]
    assert table.with_options({"scan.snapshot-id": "1"}).schema.field_names == ("k", "v")
    assert table.to_arrow(version="2", columns=["v"]).column_names == ["v"]


def test_a_tag_of_an_expired_snapshot_is_read(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    write(table, 9, [("+I", 1, "b")], full=True)
    expire_snapshots(table, now_ms=0, retain_max=1, retain_min=1, time_retained_ms=0)
    for arguments in ({"tag": "two"}, {"version": "two"}):
        assert len(rows_of(reopened(table), **arguments)) == 2


def test_the_newest_compacted_snapshot(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    mode = {"scan.mode": "compacted-full"}
    assert rows_of(table.with_options(mode)) == []
    write(table, 1, [("+I", 1, "a")], compaction=False)
    assert len(rows_of(table.with_options(mode))) == 1
    write(table, 2, [("+I", 2, "a")], full=True)
    write(table, 3, [("+I", 3, "a")], compaction=False)
    assert len(rows_of(table.with_options(mode))) == 2


# ---------------------------------------------------------------------- damaged documents


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"id": 4}', b"\xff\xfe"])
def test_a_damaged_snapshot_is_named(tmp_path: pathlib.Path, data: bytes) -> None:
    table = _history(tmp_path)
    pathlib.Path(table.layout.snapshot_file(4)).write_bytes(data)
    with pytest.raises(CorruptDataError, match="snapshot-4"):
        reopened(table).to_arrow()
    assert len(rows_of(reopened(table), snapshot=3)) == 3


def test_a_snapshot_under_another_id_is_corrupt(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    path = pathlib.Path(table.layout.snapshot_file(4))
    path.write_bytes(pathlib.Path(table.layout.snapshot_file(3)).read_bytes())
    with pytest.raises(CorruptDataError, match="another snapshot"):
        reopened(table).to_arrow()


@pytest.mark.parametrize("data", [b"", b"{", b'{"id": 0, "fields": [{}]}'])
def test_a_damaged_schema_is_named(tmp_path: pathlib.Path, data: bytes) -> None:
    table = _history(tmp_path)
    pathlib.Path(table.layout.schema_file(0)).write_bytes(data)
    with pytest.raises(CorruptDataError, match="schema-0"):
        reopened(table)


@pytest.mark.parametrize("hint", ["LATEST", "EARLIEST"])
def test_hints_may_hold_anything(tmp_path: pathlib.Path, hint: str) -> None:
    table = _history(tmp_path)
    folder = pathlib.Path(table.layout.snapshot_dir)
    for name in ("snapshot-5.tmp", ".snapshot-5.abc.tmp", "snapshot-", "snapshot-x", "snapshot-05"):
        (folder / name).write_bytes(b'{"half')
    texts = (b"4\n", b"", b"x", b"-3", b"0", b"1", b"99", b"\xff", b"9" * 40)
    for newest, data in enumerate(texts, 4):
        (folder / hint).write_bytes(data)
        again = reopened(table)
        ends = (again.snapshots.earliest_id(), again.snapshots.latest_id())
        assert ends in ((1, newest), (newest, newest)), data
        assert again.snapshots.ids() == list(range(1, newest + 1)), data
        write(again, newest + 5, [("+I", newest + 5, "b")], compaction=False)
        assert len(rows_of(reopened(table))) == newest + 1, data
        assert len(rows_of(reopened(table), timestamp_ms=_minute(2))) == 2, data
