# SPDX-License-Identifier: Apache-2.0
"""Streams of changes: where they begin, what follows, how they go on elsewhere."""

import json
import pathlib
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from changelog.stream_scan import StreamScan, read_changelog
from storage.clock import ManualClock
from storage.errors import DataLossError, InvalidOptionError, InvalidRequestError
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.table.retention.consumers import read_consumer, write_consumer
from storage.table.retention.expire import expire_snapshots
from storage.table.scan.predicate import Compare, Op
from storage.table.table import FileStoreTable
from storage.table.tags import create_tag
from tests.table_kit import make_table, prepared, write
from tests.unit.changelog.rows import change_rows

_GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "data" / "public"
_STEP_MS = 1_000
_START_MS = 1_700_000_000_000
_ONE = [("+I", 1, "a")]
_TWO = [("+I", 1, "b"), ("+I", 2, "b")]
_THREE = [("-D", 2, "b")]


def _history(tmp_path: pathlib.Path, **options: str) -> FileStoreTable:
    """Snapshots 1 to 3, one second after the other."""
    clock = ManualClock(_START_MS)
    table = make_table(tmp_path, clock=clock, options=options)
    for number, rows in enumerate((_ONE, _TWO, _THREE), 1):
        clock.advance(_STEP_MS)
        write(table, number, rows)
    return table


def _drained(scan: StreamScan) -> list[list[tuple[Any, ...]]]:
    found = []
    while (rows := scan.next_batch()) is not None:
        found.append(change_rows(rows))
    return found


def _stream(table: FileStoreTable, options: Mapping[str, str]) -> list[list[tuple[Any, ...]]]:
    return _drained(StreamScan(table.with_options(dict(options))))


_STATE = [("+I", 1, "b")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [_STATE]),
        ({"scan.mode": "full"}, [_STATE]),
        ({"scan.mode": "latest"}, []),
        ({"scan.mode": "compacted-full"}, [_STATE]),
        ({"scan.snapshot-id": "2"}, [_TWO, _THREE]),
        ({"scan.snapshot-id": "0"}, [_ONE, _TWO, _THREE]),
        ({"scan.snapshot-id": "9"}, None),
        ({"scan.snapshot-id": "4"}, []),
        (
            {"scan.snapshot-id": "2", "scan.mode": "from-snapshot-full"},
            [[("+I", 1, "b"), ("+I", 2, "b")], _THREE],
        ),
        ({"scan.timestamp-millis": "0"}, [_ONE, _TWO, _THREE]),
        ({"scan.timestamp-millis": str(_START_MS + 2 * _STEP_MS)}, [_TWO, _THREE]),
        ({"scan.timestamp-millis": str(_START_MS + 2 * _STEP_MS + 1)}, [_THREE]),
        ({"scan.timestamp-millis": str(_START_MS + 4 * _STEP_MS)}, []),
        ({"scan.creation-time-millis": str(_START_MS + 2 * _STEP_MS)}, [_TWO, _THREE]),
    ],
)
def test_where_a_stream_begins(
    tmp_path: pathlib.Path, options: dict[str, str], expected: list[Any] | None
) -> None:
    table = _history(tmp_path)
    if expected is None:
        with pytest.raises(DataLossError, match="too big"):
            _stream(table, options)
        return
    assert _stream(table, options) == expected


def test_files_made_since_a_time_are_merged_first(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    since = str(_START_MS + 2 * _STEP_MS)
    assert _stream(table, {"scan.file-creation-time-millis": since}) == [[("+I", 1, "b")]]
    early = {"scan.creation-time-millis": str(_START_MS)}  # before all that is known
    assert _stream(table, early) == [_STATE]
    assert table.with_options({"scan.file-creation-time-millis": since}).to_arrow().num_rows == 1
    late = str(_START_MS + 4 * _STEP_MS)
    assert _stream(table, {"scan.file-creation-time-millis": late}) == [[]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scan.tag-name": "t"}, "Cannot scan from tag"),
        ({"scan.version": "1"}, "Cannot scan from version"),
        ({"incremental-between": "1,2"}, "Cannot scan from incremental"),
        ({"scan.mode": "latest-delta"}, "Cannot scan from latest-delta"),
        ({"scan.snapshot-id": "1", "scan.timestamp-millis": "1"}, "must be null when you set"),
        ({"scan.mode": "from-timestamp"}, "must set only one key"),
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "must be null when you set"),
    ],
)
def test_what_no_stream_begins_with(
    tmp_path: pathlib.Path, options: dict[str, str], text: str
) -> None:
    table = _history(tmp_path)
    create_tag(table, "t", 1)
    with pytest.raises(InvalidOptionError, match=text):
        _stream(table, options)


def test_a_stream_goes_on_with_what_is_written_later(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    full, latest = (
        StreamScan(table.with_options({"scan.mode": mode})) for mode in ("latest-full", "latest")
    )
    assert full.next_batch() is None
    assert latest.next_batch() is None
    write(table, 1, _ONE)
    assert _drained(full) == [_ONE]
    assert full.last_starting
    assert _drained(latest) == [_ONE]
    assert not latest.last_starting
    write(table, 2, _TWO)
    assert _drained(full) == _drained(latest) == [_TWO]
    assert full.last_snapshot_id == 2
    assert full.next_batch() is None
    assert not full.ended


def test_without_a_producer_compactions_and_overwrites_are_passed_over(
    tmp_path: pathlib.Path,
) -> None:
    table = _history(tmp_path)
    messages = prepared(table, [("+I", 5, "x")], overwrite=True)
    table.new_commit("user").overwrite(messages, 9)
    write(table, 10, [("+I", 6, "y")], full=True)
    assert _stream(table, {"scan.snapshot-id": "2"}) == [_TWO, _THREE, [("+I", 6, "y")]]
    shown = {"scan.snapshot-id": "3", "streaming-read-overwrite": "true"}
    overwritten = [("-D", 1, "b"), ("+I", 5, "x")]
    assert _stream(table, shown) == [_THREE, overwritten, [("+I", 6, "y")]]


def test_an_append_table_shows_what_overwrites_put_there_if_asked(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    write(table, 1, _ONE)
    table.new_commit("user").overwrite(prepared(table, [("+I", 5, "x")], overwrite=True), 2)
    assert _stream(table, {"scan.snapshot-id": "1"}) == [_ONE]
    shown = {"scan.snapshot-id": "1", "streaming-read-append-overwrite": "true"}
    assert _stream(table, shown) == [_ONE, [("+I", 5, "x")]]
    with pytest.raises(InvalidOptionError, match="primary keys"):
        _stream(table, {"streaming-read-overwrite": "true"})


@pytest.mark.parametrize("producer", ["input", "lookup", "full_compaction"])
def test_java_changelogs_as_a_stream(producer: str) -> None:
    directory = _GOLDEN / f"changelog_{producer}"
    expected = json.loads((directory / "expected" / "changelog.json").read_text())
    table = FileStoreTable.open(str(directory / "table"))
    scan = StreamScan(table.with_options({"scan.snapshot-id": "1"}))
    found = {}
    while (rows := scan.next_batch()) is not None:
        found[str(scan.last_snapshot_id)] = change_rows(rows)
    assert {key: sorted(map(list, rows)) for key, rows in found.items()} == {
        key: sorted(rows) for key, rows in expected.items() if rows
    }


@pytest.mark.parametrize("producer", ["lookup", "full_compaction"])
def test_rows_whose_changes_come_later_are_not_in_the_first_state(producer: str) -> None:
    directory = _GOLDEN / f"changelog_{producer}"
    table = FileStoreTable.open(str(directory / "table"))
    states: dict[int, dict[int, tuple[Any, ...]]] = {}
    for begin in table.snapshots.ids():
        options = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": str(begin)}
        state: dict[int, tuple[Any, ...]] = {}
        for changes in _stream(table, options):
            for kind, key, *values in changes:
                if kind in ("+I", "+U"):
                    assert kind == "+U" or key not in state
                    state[key] = tuple(values)
                else:
                    assert state.pop(key) == tuple(values)
        states[begin] = state
    assert len({repr(sorted(state.items())) for state in states.values()}) == 1


def test_delay_and_bounds(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    assert isinstance(table.clock, ManualClock)
    begin = {"scan.snapshot-id": "1"}
    assert _stream(table, {**begin, "streaming.read.snapshot.delay": "1 s"}) == [_ONE, _TWO]
    bounded = StreamScan(table.with_options({**begin, "scan.bounded": "true"}))
    assert change_rows(bounded.next_batch()) == _ONE
    write(table, 4, [("+I", 9, "z")])
    assert _drained(bounded) == [_TWO, _THREE]
    assert bounded.ended
    empty = StreamScan(make_table(tmp_path / "b").with_options({"scan.bounded": "true"}))
    assert empty.plan() is None
    assert empty.ended


def test_a_watermark_bounds(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path)
    for number, watermark in enumerate((10, 20, 30), 1):
        messages = prepared(table, [("+I", number, "a")])
        table.new_commit("user").commit(messages, number, watermark=watermark)
    options = {"scan.snapshot-id": "1", "scan.bounded.watermark": "20"}
    scan = StreamScan(table.with_options(options))
    assert len(_drained(scan)) == 2
    assert scan.ended
    assert scan.watermark == 20
    beyond = StreamScan(table.with_options({"scan.bounded.watermark": "20"}))
    assert len(_drained(beyond)) == 1  # the state itself is shown
    assert beyond.ended


def test_a_checkpoint_goes_on_in_another_scan(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    scan = StreamScan(table.with_options({"scan.snapshot-id": "1"}))
    assert scan.checkpoint() is None
    scan.next_batch()
    assert scan.checkpoint() == 2
    other = StreamScan(table)
    other.restore(scan.checkpoint())
    assert _drained(other) == [_TWO, _THREE]
    other.restore(2, whole_state=True)
    assert _drained(other) == [[("+I", 1, "b"), ("+I", 2, "b")], _THREE]


def test_splits_travel(tmp_path: pathlib.Path) -> None:
    table = FileStoreTable.open(_history(tmp_path, bucket="4").layout.root)
    scan = StreamScan(table.with_options({"scan.snapshot-id": "2"}), columns=["v", "k"])
    planned, reader = pickle.loads(pickle.dumps((scan.plan(), scan.reader)))
    rows = [batch for split in planned.splits for batch in reader.to_batches(split)]
    assert len(planned.splits) == 2
    assert sorted(value for batch in rows for value in batch.column("k").to_pylist()) == [1, 2]
    assert rows[0].schema.names == [VALUE_KIND, "v", "k"]


def test_filters_and_buckets(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path, bucket="4").with_options({"scan.snapshot-id": "1"})
    only = StreamScan(table, predicate=Compare(Op.EQ, "k", 2), columns=["v"])
    assert _drained(only) == [[("+I", "b")], [("-D", "b")]]
    shares = [StreamScan(table, buckets=frozenset({one})) for one in range(4)]
    parts = [changes for share in shares for found in _drained(share) for changes in found]
    assert sorted(parts) == sorted([*_ONE, *_TWO, *_THREE])


def test_a_consumer_goes_on_and_holds_back_expiry(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path, **{"snapshot.num-retained.min": "1"})
    named = table.with_options({"consumer-id": "c", "scan.snapshot-id": "1"})
    scan = StreamScan(named)
    scan.next_batch()
    assert read_consumer(table, "c") is None  # nothing before a checkpoint
    scan.notify_checkpoint_complete(scan.checkpoint())
    assert isinstance(table.clock, ManualClock)
    table.clock.advance(10 * 3_600_000)
    assert expire_snapshots(table, now_ms=table.clock.now_ms()) == 1
    assert table.snapshots.ids() == [2, 3]
    assert _drained(StreamScan(named)) == [_TWO, _THREE]
    ignoring = named.with_options({"consumer.ignore-progress": "true", "scan.snapshot-id": "3"})
    assert _drained(StreamScan(ignoring)) == [_THREE]
    assert [one.snapshot_id for one in read_changelog(named)] == [2, 3]
    reached = read_consumer(table, "c")
    assert reached is not None
    assert reached.next_snapshot == 4
    assert expire_snapshots(table, now_ms=table.clock.now_ms()) == 1


def test_readers_of_one_consumer(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    scan = StreamScan(table.with_options({"consumer-id": "c"}))
    with pytest.raises(InvalidRequestError, match="different snapshots"):
        scan.notify_checkpoint_complete(2, 3)
    slow = table.with_options({"consumer-id": "c", "consumer.mode": "at-least-once"})
    StreamScan(slow).notify_checkpoint_complete(3, 2)
    found = read_consumer(table, "c")
    assert found is not None
    assert found.next_snapshot == 2
    StreamScan(slow).notify_checkpoint_complete(3, None)  # one has not begun
    assert read_consumer(table, "c") == found


def test_an_expired_snapshot_is_reported_with_what_to_do(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    scan = StreamScan(table.with_options({"scan.snapshot-id": "1"}))
    scan.next_batch()
    assert expire_snapshots(table, now_ms=0, retain_min=1, retain_max=1) == 2
    with pytest.raises(DataLossError, match="has expired") as caught:
        scan.next_batch()
    assert "consumer-id" in str(caught.value)
    # a consumer that comes too late begins with what is left, as in Apache Paimon
    write_consumer(table, "late", 1)
    assert _stream(table, {"consumer-id": "late"}) == [_THREE]


def test_an_expired_snapshot_lives_on_as_a_changelog(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    for one in (1, 2):
        table.changelogs.write(table.snapshots.read(one))
        table.snapshots.delete(one)
    table.snapshots.write_earliest_hint(3)
    assert _stream(table, {"scan.snapshot-id": "1"}) == [_ONE, _TWO, _THREE]
    assert _stream(table, {"scan.timestamp-millis": str(_START_MS + 1_500)}) == [_TWO, _THREE]


def test_the_simple_stream_waits_by_the_clock(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    assert isinstance(table.clock, ManualClock)
    options = {"scan.snapshot-id": "2", "continuous.discovery-interval": "7 s"}
    found = [(one.snapshot_id, one.rows.num_rows) for one in read_changelog(table, options=options)]
    assert found == [(2, 2), (3, 1)]
    first = next(read_changelog(table, "latest-full", wait=True))
    assert first.starting
    assert first.rows.column(VALUE_KIND).to_pylist() == [RowKind.INSERT]
    before = table.clock.now_ms()
    delayed = {"scan.snapshot-id": "3", "streaming.read.snapshot.delay": "20 s", **options}
    delayed["scan.snapshot-id"] = "3"
    assert next(read_changelog(table, options=delayed, wait=True)).snapshot_id == 3
    assert table.clock.now_ms() == before + 21_000


def test_sequence_numbers_on_demand(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path)
    whole = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}
    scan = StreamScan(table.with_options(whole), sequence_numbers=True, columns=["k"])
    state, changes = scan.next_batch(), scan.next_batch()
    assert state is not None
    assert changes is not None
    assert state.schema.names == [VALUE_KIND, SEQUENCE_NUMBER, "k"]
    numbers = [*state.column(SEQUENCE_NUMBER).to_pylist(), *changes.column(1).to_pylist()]
    assert numbers == [1, 2, 3]
    append = make_table(tmp_path / "append", keys=(), options={"bucket": "-1"})
    assert SEQUENCE_NUMBER not in StreamScan(append, sequence_numbers=True).schema.names


def test_changes_outlive_their_snapshots(tmp_path: pathlib.Path) -> None:
    table = _history(tmp_path, **{"changelog.time-retained": "10 d"})
    assert isinstance(table.clock, ManualClock)
    scan = StreamScan(table.with_options({"scan.snapshot-id": "1"}))
    assert change_rows(scan.next_batch()) == _ONE
    table.clock.advance(24 * 3_600_000)
    assert expire_snapshots(table, now_ms=table.clock.now_ms(), retain_min=1) == 2
    assert _drained(scan) == [_TWO, _THREE]
    assert _stream(table, {"scan.snapshot-id": "1"}) == [_ONE, _TWO, _THREE]


def test_a_consumer_of_changes_alone_does_not_hold_back_snapshots(tmp_path: pathlib.Path) -> None:
    options = {"changelog.time-retained": "10 d", "consumer.changelog-only": "true"}
    table = _history(tmp_path, **options)
    assert isinstance(table.clock, ManualClock)
    named = table.with_options({"consumer-id": "c", "scan.snapshot-id": "1"})
    StreamScan(named).notify_checkpoint_complete(2)
    table.clock.advance(24 * 3_600_000)
    assert expire_snapshots(table, now_ms=table.clock.now_ms(), retain_min=1) == 2
    assert _drained(StreamScan(named)) == [_TWO, _THREE]


def test_what_an_overwrite_took_away_is_merged(tmp_path: pathlib.Path) -> None:
    table = make_table(tmp_path, keys=("k", "v"), partitions=("v",))
    for number, rows in enumerate(([("+I", 1, "p"), ("+I", 2, "q")], [("-D", 1, "p")]), 1):
        write(table, number, rows, compaction=False)
    write(table, 3, [("+I", 3, "p")], compaction=False)
    messages = prepared(table, [("+I", 3, "p"), ("+I", 4, "p")], overwrite=True)
    table.new_commit("user").overwrite(messages, 4)
    newest = table.snapshots.latest_id()
    options = {"scan.snapshot-id": str(newest), "streaming-read-overwrite": "true"}
    assert _stream(table, options) == [[("-D", 3, "p"), ("+I", 3, "p"), ("+I", 4, "p")]]
