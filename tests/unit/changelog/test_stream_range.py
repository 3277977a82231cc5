# SPDX-License-Identifier: Apache-2.0
"""Ranges of a stream: they hold what the stream holds, and hold it again however late."""

import random

import pyarrow as pa
import pytest

from changelog.follow import START, RangeLimit, StreamPosition, StreamRange
from changelog.stream_scan import StreamScan
from storage.errors import DataLossError, InvalidOptionError, InvalidRequestError
from storage.table.read.read import TableRead
from storage.table.retention.consumers import all_consumers
from storage.table.retention.expire import expire_snapshots
from tests.table_kit import make_table, prepared, reopened, write
from tests.unit.changelog.rows import change_rows

LOOKUP = {"bucket": "2", "changelog-producer": "lookup"}
MODES = {
    "latest-full": {},
    "compacted-full": {"scan.mode": "compacted-full"},
    "from-snapshot": {"scan.snapshot-id": "3"},
    "from-snapshot-full": {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "3"},
    "from-timestamp": {"scan.timestamp-millis": "0"},
    "latest": {"scan.mode": "latest"},
}


def grow(table, first: int, last: int, seed: int = 0) -> None:
    rng = random.Random(f"{seed} {first}")
    for number in range(first, last + 1):
        keys = rng.sample(range(12), 4)
        write(table, number, [("+I", key, f"{number}.{key}") for key in keys])


def rows_between(table, start: StreamPosition, end: StreamPosition, **options) -> list[tuple]:
    """Read by a process that has planned nothing."""
    fresh = reopened(table).with_options(options)
    reader = TableRead(fresh, kinds=True)
    groups = StreamRange(fresh).splits(start, end)
    batches = [batch for group in groups for one in group for batch in reader.to_batches(one)]
    return change_rows(pa.Table.from_batches(batches, schema=reader.schema))


def as_sent(position: StreamPosition) -> StreamPosition:
    return StreamPosition.from_json(position.to_json())


@pytest.mark.parametrize(
    ("mode", "limit"),
    [
        *((mode, RangeLimit()) for mode in MODES),
        ("latest-full", RangeLimit(snapshots=1)),
        ("from-snapshot", RangeLimit(snapshots=2)),
        ("from-timestamp", RangeLimit(rows=7)),
    ],
)
def test_ranges_hold_what_the_stream_holds(tmp_path, mode, limit):
    options = MODES[mode]
    table = make_table(tmp_path, options=LOOKUP)
    grow(table, 1, 4)
    scan = StreamScan(table.with_options(options))
    ranges = StreamRange(table.with_options(options))
    expected, found, position, ends = [], [], START, []
    for last in (4, 5, 8):
        if last > 4:
            grow(table, {5: 5, 8: 6}[last], last)
        while (batch := scan.next_batch()) is not None:
            expected += change_rows(batch)
        while (end := ranges.advance(position, limit)) != position:
            ends.append((position, as_sent(end)))
            found += rows_between(table, position, as_sent(end), **options)
            position = as_sent(end)
    assert sorted(found) == sorted(expected)
    assert position.next_id == scan.checkpoint()
    # each is what it was, whatever came after it, and whoever reads it
    again = [row for start, end in ends for row in rows_between(table, start, end, **options)]
    assert again == found


def test_changes_of_a_key_are_in_one_group_and_in_order(tmp_path):
    table = make_table(tmp_path, options=LOOKUP)
    grow(table, 1, 6)
    ranges = StreamRange(table.with_options({"scan.snapshot-id": "1"}))
    groups = ranges.splits(START, ranges.advance(START))
    assert len(groups) == 2
    for group in groups:
        ids = [split.snapshot_id for split in group]
        assert ids == sorted(ids)
        assert len({(split.partition, split.bucket) for split in group}) == 1


def test_limits_count_only_snapshots_that_bring_something(tmp_path):
    table = make_table(tmp_path, options=LOOKUP)  # each commit: APPEND without, COMPACT with
    grow(table, 1, 3)
    ranges = StreamRange(table.with_options({"scan.snapshot-id": "1"}))
    first = ranges.advance(START, RangeLimit(snapshots=1))
    assert (first.next_id, first.first_id) == (4, 1)
    assert ranges.advance(first, RangeLimit(snapshots=2)).next_id == 7


def test_a_stream_of_a_table_without_snapshots_begins_when_there_is_one(tmp_path):
    table = make_table(tmp_path, options=LOOKUP)
    whole, latest = StreamRange(table), StreamRange(table.with_options({"scan.mode": "latest"}))
    assert whole.advance(START) == START
    assert whole.splits(START, START) == []
    begun = latest.advance(START)  # decided now: a restart must not leave out what comes meanwhile
    assert begun.next_id == 1
    grow(table, 1, 1)
    assert whole.advance(START) == StreamPosition(next_id=3, first_id=3, whole_state=True)
    fresh = StreamRange(reopened(table).with_options({"scan.mode": "latest"}))
    assert fresh.advance(as_sent(begun)).next_id == 3


def test_what_comes_after_the_end_is_not_taken_in(tmp_path):
    table = make_table(tmp_path, options=LOOKUP)
    grow(table, 1, 2)
    ranges = StreamRange(table.with_options({"scan.snapshot-id": "1"}))
    ranges.end_at_newest()
    grow(table, 3, 3)
    end = ranges.advance(START)
    assert end.next_id == 5
    assert ranges.advance(end) == end
    assert StreamRange(table).newest().next_id == 7


def test_a_watermark_ends_the_stream_and_a_delay_holds_it_back(tmp_path):
    table = make_table(tmp_path)
    for number in (1, 2, 3):
        messages = prepared(table, [("+I", number, "x")])
        table.new_commit("w").commit(messages, number, watermark=number * 10)
    options = {"scan.snapshot-id": "1", "scan.bounded.watermark": "20"}
    assert StreamRange(table.with_options(options)).advance(START).next_id == 3
    options = {"scan.snapshot-id": "1", "streaming.read.snapshot.delay": "1 d"}
    assert StreamRange(table.with_options(options)).advance(START).next_id == 1


def expire(table) -> None:
    expire_snapshots(
        table, now_ms=table.clock.now_ms() + 1, retain_max=1, retain_min=1, time_retained_ms=0
    )


def test_what_has_expired_is_said_and_not_passed_over(tmp_path):
    table = make_table(tmp_path, options=LOOKUP)
    grow(table, 1, 5)
    expire(table)
    ranges = StreamRange(table)
    with pytest.raises(DataLossError, match="snapshot with id 3 has expired"):
        ranges.advance(StreamPosition(next_id=3))
    with pytest.raises(DataLossError, match="snapshot with id 3 has expired"):
        ranges.splits(StreamPosition(next_id=3), StreamPosition(next_id=5))
    with pytest.raises(DataLossError, match="recreated"):
        ranges.advance(StreamPosition(next_id=40))


def test_a_consumer_holds_back_expiry_and_never_stands_for_a_state(tmp_path):
    table = make_table(tmp_path, options=LOOKUP)
    grow(table, 1, 2)
    ranges = StreamRange(table.with_options({"consumer-id": "c"}))
    end = ranges.advance(START)
    ranges.hold_beginning(end)
    assert all_consumers(table) == {"c-beginning": 4}
    grow(table, 3, 3)
    expire(table)
    assert rows_between(table, START, as_sent(end)), "the state is kept until it is read"
    anew = StreamRange(table.with_options({"consumer-id": "c"})).advance(START)
    assert anew.whole_state, "who begins anew begins with the state"
    ranges.hold(end)
    assert all_consumers(table) == {"c": 5}
    grow(table, 4, 5)
    expire(table)
    assert table.snapshots.ids()[0] == 5
    follower = StreamRange(table.with_options({"consumer-id": "c"}))
    assert follower.advance(START).first_id == 5
    assert follower.advance(end).next_id == 11  # a position of one's own comes before the consumer
    other = StreamRange(table.with_options({"consumer-id": "d", "scan.snapshot-id": "6"}))
    other.hold_beginning(other.advance(START))
    assert all_consumers(table)["d"] == 6


def test_mistakes_are_named(tmp_path):
    table = make_table(tmp_path)
    grow(table, 1, 1)
    with pytest.raises(InvalidOptionError, match="in streaming mode"):
        StreamRange(table.with_options({"scan.mode": "from-snapshot", "scan.version": "1"}))
    with pytest.raises(InvalidRequestError, match="belongs to another query"):
        StreamPosition.from_json({"partition-1": 3})
