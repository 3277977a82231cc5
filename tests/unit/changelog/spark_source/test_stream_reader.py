# SPDX-License-Identifier: Apache-2.0
"""The streaming reader as Spark calls it, without Spark."""

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from changelog.follow import RangeLimit
from changelog.spark_source.batch_scan import StreamView, streamed_table
from changelog.spark_source.data_source import ChangeStreamReader
from changelog.spark_source.source_options import spark_schema
from storage.errors import InvalidRequestError, StorageUnavailableError, UnsupportedFeatureError
from storage.table.retention.consumers import all_consumers
from storage.table.scan.predicate import parse_predicate
from storage.table.table import FileStoreTable
from tests.table_kit import make_table, write

ALL = ReadAllAvailable()
_KEYS = {"scan_snapshot_id": "scan.snapshot-id", "consumer_id": "consumer-id"}


def reader_of(table, *, limit=None, view=None, **options) -> ChangeStreamReader:
    opened = FileStoreTable.open(table.layout.root)
    texts = {_KEYS[key]: value for key, value in options.items()}
    opened = streamed_table(opened.with_options(texts))
    view = view or StreamView(opened, kinds=True)
    return ChangeStreamReader(view, spark_schema(view.schema), limit or RangeLimit())


def rows(reader, start, end) -> list[tuple]:
    """What tasks read, which have the reader as it was when the query began."""
    found = []
    for partition in reader.partitions(start, end):
        task, part = pickle.loads(pickle.dumps((reader, partition)))
        found += [tuple(row.values()) for batch in task.read(part) for row in batch.to_pylist()]
    return sorted(found)


@pytest.fixture
def table(tmp_path):
    table = make_table(tmp_path, options={"bucket": "2", "changelog-producer": "lookup"})
    write(table, 1, [("+I", 1, "a"), ("+I", 2, "b")])
    write(table, 2, [("-D", 2, "b"), ("+U", 1, "aa")])
    return table


def test_batches_in_the_order_of_sparks_calls(table):
    reader = reader_of(table, scan_snapshot_id="1", limit=RangeLimit(snapshots=1))
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxFiles)
    end = reader.latestOffset(start, limit)
    assert rows(reader, reader.initialOffset(), end) == [("+I", 1, "a"), ("+I", 2, "b")]
    last = reader.latestOffset(end, limit)
    assert rows(reader, end, last) == [("+U", 1, "aa"), ("-D", 2, "b"), ("-U", 1, "a")]
    assert reader.latestOffset(last, limit) is last
    assert reader.reportLatestOffset() == last == {"snapshot": 5}
    assert rows(reader, last, last) == []


def test_a_new_process_repeats_a_planned_batch_from_the_log_alone(table):
    first = reader_of(table)
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    before = rows(first, start, end)
    write(table, 3, [("+I", 9, "z")])
    assert rows(reader_of(table), start, end) == before == [("+I", 1, "aa")]


def test_everything_is_taken_where_the_trigger_says_so(table):
    reader = reader_of(table, scan_snapshot_id="1", limit=RangeLimit(snapshots=1))
    assert reader.latestOffset(reader.initialOffset(), ALL)["snapshot"] == 5
    draining = reader_of(table, scan_snapshot_id="1")
    draining.prepareForTriggerAvailableNow()
    write(table, 3, [("+I", 9, "z")])
    assert draining.latestOffset(draining.initialOffset(), ALL)["snapshot"] == 5


def test_a_consumer_moves_when_spark_says_that_a_batch_is_done(table):
    reader = reader_of(table, consumer_id="c")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert all_consumers(table) == {"c-beginning": 4}
    reader.commit(end)
    assert all_consumers(table) == {"c": 5}


def test_an_idle_stream_keeps_its_consumer_alive(table):
    reader = reader_of(table, consumer_id="c")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.commit(end)
    path = table.layout.consumer_file("c")
    table.file_io.delete(path)
    reader._held_ms -= 60_000
    assert reader.latestOffset(end, ALL) is end
    assert table.file_io.exists(path)


def test_a_store_that_is_away_delays_a_stream_and_ends_a_drain(table, monkeypatch):
    def away(*_):
        raise StorageUnavailableError("away")

    for drains in (False, True):
        reader = reader_of(table, scan_snapshot_id="1")
        if drains:
            reader.prepareForTriggerAvailableNow()
        with monkeypatch.context() as patch:
            patch.setattr("changelog.follow.StreamRange.advance", away)
            start = reader.initialOffset()
            if drains:
                with pytest.raises(StorageUnavailableError):
                    reader.latestOffset(start, ALL)
            else:
                assert reader.latestOffset(start, ALL) is start


def test_views(table):
    newest = FileStoreTable.open(table.layout.root)
    opened = newest.with_options({"scan.snapshot-id": "1"})

    def seen(**arguments) -> list[tuple]:
        view = StreamView(opened, **arguments)
        reader = reader_of(table, view=view)
        start = reader.initialOffset()
        return rows(reader, start, reader.latestOffset(start, ALL))

    assert seen(kinds=False, columns=["v"]) == [("a",), ("aa",), ("b",)]
    only = parse_predicate("_row_kind = '-D' or k = 1 and v = 'aa'")
    assert seen(kinds=True, predicate=only, columns=["k", "_row_kind"]) == [(1, "+U"), (2, "-D")]
    audit = [("+I", 1, "a"), ("+I", 2, "b"), ("+U", 1, "aa"), ("-D", 2, "b"), ("-U", 1, "a")]
    assert seen(system="audit_log") == audit
    assert ("+U", [1, 1], ["a", "aa"]) in seen(system="binlog")
    with pytest.raises(UnsupportedFeatureError, match="needs row kinds"):
        StreamView(opened)
    with pytest.raises(UnsupportedFeatureError, match="cannot be read as a stream"):
        StreamView(opened, "snapshots")
    with pytest.raises(UnsupportedFeatureError, match="read optimized"):
        StreamView(opened, "ro")
    with pytest.raises(InvalidRequestError, match="no such column"):
        StreamView(opened, columns=["x"], kinds=True)


def test_sequence_numbers_on_request(table):
    opened = FileStoreTable.open(table.layout.root).with_options(
        {"table-read.sequence-number.enabled": "true", "scan.snapshot-id": "1"}
    )
    view = StreamView(opened, kinds=True)
    assert view.schema.names == ["_row_kind", "_SEQUENCE_NUMBER", "k", "v"]
    assert isinstance(view.schema.field(1).type, type(pa.int64()))


def test_an_append_table_needs_no_kinds(tmp_path):
    table = make_table(tmp_path, keys=(), options={"bucket": "-1"})
    write(table, 1, [("+I", 1, "a")])
    reader = reader_of(table, view=StreamView(FileStoreTable.open(table.layout.root)))
    start = reader.initialOffset()
    assert rows(reader, start, reader.latestOffset(start, ALL)) == [(1, "a")]


def test_a_stream_of_rows_that_the_table_would_merge_is_refused(tmp_path):
    table = make_table(tmp_path, options={"merge-engine": "partial-update"})
    write(table, 1, [("+I", 1, "a")])
    for kinds in (True, False):
        with pytest.raises(UnsupportedFeatureError, match="rows as written"):
            StreamView(table, kinds=kinds)
    assert StreamView(table, "audit_log").schema.names == ["rowkind", "k", "v"]
    raw = FileStoreTable.open(table.layout.root).with_options(
        {"lakeward.streaming-read.unmerged": "true"}
    )
    reader = reader_of(table, view=StreamView(raw, kinds=True))
    end = reader.latestOffset(reader.initialOffset(), ALL)
    assert rows(reader, reader.initialOffset(), end) == [("+I", 1, "a")]
