# SPDX-License-Identifier: Apache-2.0
"""Changes for a Python program: where it begins, and where it goes on after it died."""

import datetime
import pathlib
from typing import Any

import pyarrow as pa
import pytest

import changelog
from changelog import ChangelogReader
from changelog.stream_scan import StreamScan, read_changelog
from storage.clock import ManualClock
from storage.errors import DataLossError, InvalidRequestError, UnsupportedFeatureError
from storage.table.retention.consumers import read_consumer
from storage.table.retention.expire import expire_snapshots
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, write

_START_MS = 1_700_000_000_000


@pytest.fixture
def table(tmp_path: pathlib.Path) -> FileStoreTable:
    """Snapshots 1 to 3, one second after the other."""
    clock = ManualClock(_START_MS)
    made = make_table(tmp_path, clock=clock, options={"changelog-producer": "input"})
    history = [[("+I", 1, "a"), ("+I", 2, "a")], [("-U", 1, "a"), ("+U", 1, "b")], [("-D", 2, "a")]]
    for number, rows in enumerate(history, 1):
        clock.advance(1_000)
        write(made, number, rows)
    return made


def rows(changes: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in changes.columns), strict=True))


SECOND, THIRD = [("-U", 1, "a"), ("+U", 1, "b")], [("-D", 2, "a")]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest-full", [[("+I", 1, "b")]]),
        ("latest", []),
        (2, [SECOND, THIRD]),
        (datetime.datetime.fromtimestamp(_START_MS / 1000 + 3, datetime.UTC), [THIRD]),
    ],
)
def test_where_it_begins(table, start, expected):
    assert [rows(changes) for changes in ChangelogReader(table, start)] == expected


def test_a_place_is_where_another_reader_goes_on(table):
    reader = ChangelogReader(table, 1)
    first = reader.read()
    assert len(rows(first)) == 2
    assert reader.snapshot_id == 1
    others = ChangelogReader(table, position=reader.position)
    assert [rows(changes) for changes in others] == [SECOND, THIRD]


def test_what_was_not_dealt_with_is_given_again(table):
    with_consumer = {"start": 1, "consumer": "sums"}
    taken = iter(ChangelogReader(table, **with_consumer))
    next(taken)
    assert rows(next(taken)) == SECOND  # and then it dies
    again = ChangelogReader(table, **with_consumer)
    assert [rows(changes) for changes in again] == [SECOND, THIRD]
    assert read_consumer(table, "sums").next_snapshot == 4
    assert list(ChangelogReader(table, **with_consumer)) == []


def test_a_consumer_holds_back_expiry(table):
    next(iter(ChangelogReader(table, 1, consumer="sums")))
    reader = ChangelogReader(table, 1, consumer="sums")
    next(iter(reader))
    keep_one = table.with_options(
        {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
    )
    iterator = iter(reader)
    next(iterator)  # the first snapshot is dealt with, the second is not
    expire_snapshots(keep_one, now_ms=_START_MS + 86_400_000)
    assert table.snapshots.ids() == [2, 3]
    with pytest.raises(DataLossError):
        ChangelogReader(table, position=1).read()


def test_columns_and_filter(table):
    reader = ChangelogReader(table, 1, columns=["v"], filter="k = 2")
    assert reader.schema.names == ["_row_kind", "v"]
    assert [rows(changes) for changes in reader] == [[("+I", "a")], [("-D", "a")]]


def test_follow_sees_what_comes(table):
    looks = []

    def enough() -> bool:
        looks.append(1)
        return len(looks) > 3

    reader = ChangelogReader(table, "latest")
    assert reader.read() is None
    following = reader.follow(every_s=1, until=enough)
    write(table, 4, [("+I", 3, "c")])
    seen = [rows(next(following))]
    write(table, 5, [("+I", 4, "d")])
    seen += [rows(changes) for changes in following]
    assert seen == [[("+I", 3, "c")], [("+I", 4, "d")]]
    assert len(looks) == 4


def test_a_time_needs_a_zone(table):
    with pytest.raises(InvalidRequestError, match="zone"):
        ChangelogReader(table, datetime.datetime(2026, 1, 1))  # noqa: DTZ001 - what is tested


def test_public_names_are_there():
    assert {name for name in changelog.__all__ if getattr(changelog, name) is None} == set()
    with pytest.raises(AttributeError, match="Nothing"):
        _ = changelog.Nothing


_UNMERGED = "lakeward.streaming-read.unmerged"
_ENGINES = {
    "partial-update": {},
    "aggregation": {"fields.v.aggregate-function": "last_value"},
    "first-row": {},
}


@pytest.mark.parametrize("engine", _ENGINES)
def test_rows_that_the_table_would_merge_are_no_changes_of_it(tmp_path, engine):
    options = {"merge-engine": engine, **_ENGINES[engine]}
    table = make_table(tmp_path, options=options)
    write(table, 1, [("+I", 1, "a")])
    write(table, 2, [("+I", 1, "b")], compaction=False)
    for follow in (ChangelogReader, StreamScan, lambda table: next(read_changelog(table))):
        with pytest.raises(UnsupportedFeatureError, match=engine) as caught:
            follow(table)
        assert "continuous reading is not supported" in caught.value.detail
        assert _UNMERGED in caught.value.hint
        assert "changelog-producer" in caught.value.hint
    reader = ChangelogReader(table, 1, options={_UNMERGED: "true"})
    assert [rows(changes) for changes in reader] == [[("+I", 1, "a")], [("+I", 1, "b")]]


@pytest.mark.parametrize("engine", _ENGINES)
def test_a_producer_makes_changes_that_may_be_followed(tmp_path, engine):
    options = {"merge-engine": engine, "changelog-producer": "lookup", **_ENGINES[engine]}
    table = make_table(tmp_path, options=options)
    write(table, 1, [("+I", 1, "a")])
    assert [rows(changes) for changes in ChangelogReader(table)] == [[("+I", 1, "a")]]
