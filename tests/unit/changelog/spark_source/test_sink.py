# SPDX-License-Identifier: Apache-2.0
"""Rows of tasks become one commit, whatever dies in between."""

import pickle

import pyarrow as pa
import pytest

from changelog.spark_source import sink as sink_module
from changelog.spark_source.data_source import BatchWriter, CommitName, StreamWriter, TaskMessage
from changelog.spark_source.sink import RowSink, partition_values
from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER
from storage.table.compaction.compact_table import CompactRequest, compact_table
from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.inline_executor import InlineExecutor
from tests.table_kit import data_files, make_table, named_files, rows_of, write


def batch(*rows, kinds: bool = False) -> pa.RecordBatch:
    names = ["_row_kind", "k", "v"] if kinds else ["k", "v"]
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names)


def sink_of(table, sample: pa.RecordBatch | None = None, **arguments) -> RowSink:
    return RowSink(table, (sample or batch((1, "a"))).schema, **arguments)


def test_tasks_share_a_bucket_and_the_later_one_wins(tmp_path):
    table = make_table(tmp_path)
    sink = sink_of(table)
    later = sink.write(3, [batch((1, "later"), (2, "b"))])
    first = sink.write(0, [batch((1, "first")), batch((3, "c"), (3, "cc"))])
    sink.commit([later, first], "u", 1)
    assert rows_of(table) == [(1, "later"), (2, "b"), (3, "cc")]
    second = sink.write(0, [batch((1, "newest"))])
    sink.commit([second], "u", 2)
    assert rows_of(table)[0] == (1, "newest")
    check_table(table)


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_of_every_producer_is_told(tmp_path, producer):
    table = make_table(tmp_path, options={"changelog-producer": producer})
    sink = sink_of(table)
    sink.commit([sink.write(n, [batch((n, "a"))]) for n in range(3)], "u", 0)
    told = batch(("-U", 0, "a"), ("+U", 0, "b"), ("-D", 1, "a"), kinds=True)
    kinds = sink_of(table, told)
    kinds.commit([kinds.write(5, [told])], "u", 1)
    found = [one for number in table.snapshots.ids() for one in changes_of(table, number)]
    assert sorted(found) == sorted(
        [("+I", n, "a") for n in range(3)] + [("-U", 0, "a"), ("+U", 0, "b"), ("-D", 1, "a")]
    )
    assert rows_of(table) == [(0, "b"), (2, "a")]


def test_a_repeated_batch_changes_nothing_and_leaves_no_files(tmp_path):
    table = make_table(tmp_path, options={"changelog-producer": "lookup"})
    for _ in range(3):
        sink = pickle.loads(pickle.dumps(sink_of(reopenable(table))))
        sink.commit([sink.write(0, [batch((1, "a"))])], "u", 7)
    assert table.snapshots.latest_id() == 2
    assert data_files(table) >= named_files(table)[0]
    assert rows_of(table) == [(1, "a")]


def reopenable(table):
    return type(table).open(table.layout.root)


def test_a_commit_without_its_compaction_is_compacted_when_repeated(tmp_path, monkeypatch):
    table = make_table(tmp_path, options={"changelog-producer": "lookup"})
    sink = sink_of(table)
    files = sink.write(0, [batch((1, "a"))])

    def die(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sink_module, "compact_table", die)
        with pytest.raises(KeyboardInterrupt):
            sink.commit([files], "u", 1)
    assert table.snapshots.latest_id() == 1
    again = sink.write(0, [batch((1, "a"))])
    sink.commit([again], "u", 1)
    assert changes_of(table, 2) == [("+I", 1, "a")]
    assert rows_of(table) == [(1, "a")]


def test_a_failed_task_leaves_no_files_and_a_failed_commit_leaves_them(tmp_path):
    table = make_table(tmp_path)
    sink = sink_of(table)
    with pytest.raises(InvalidRequestError, match="a value does not fit its column"):
        sink.write(0, [batch((1, "a")), batch(("one", "b"))])
    assert data_files(table) == set()
    written = TaskMessage(sink.write(0, [batch((1, "a"))]), "query")
    for writer in (BatchWriter(sink, None, "u"), StreamWriter(sink)):
        arguments = () if isinstance(writer, BatchWriter) else (3,)
        writer.abort([written], *arguments)  # a commit whose outcome is unknown
        assert len(data_files(table)) == 1
    writer.abort([written, None], *arguments)  # a task failed: there was no commit
    assert data_files(table) == set()


def test_streams_commit_under_the_name_of_their_query(tmp_path):
    table = make_table(tmp_path)
    sink = sink_of(table)
    writer = StreamWriter(sink)
    writer.commit([TaskMessage(sink.write(0, [batch((1, "a"))]), "q")], 4)
    writer.commit([], 5)
    newest = table.latest_snapshot()
    assert (newest.commit_user, newest.commit_identifier) == ("spark-q", 4)


def test_batches_are_named_by_options_or_by_their_micro_batch(tmp_path):
    table = make_table(tmp_path)
    sink = sink_of(table)

    def commit(name: CommitName | None, **place) -> tuple[str, int]:
        files = sink.write(0, [batch((1, "a"))])
        BatchWriter(sink, name, "unnamed").commit([TaskMessage(files, **place), None])
        newest = table.latest_snapshot()
        return newest.commit_user, newest.commit_identifier

    assert commit(None) == ("unnamed", BATCH_COMMIT_IDENTIFIER)
    assert commit(CommitName("job", 3)) == ("job", 3)
    assert commit(CommitName("job", None), query="q", batch=0) == ("job-q", 0)
    assert commit(CommitName("job", None), query="other", batch=0) == ("job-other", 0)
    with pytest.raises(InvalidOptionError, match=r"commit\.identifier"):
        commit(CommitName("job", None))


def test_overwrites(tmp_path):
    columns = (("dt", "STRING"), ("k", "BIGINT"))
    table = make_table(tmp_path, columns=columns, keys=("dt", "k"), partitions=("dt",))
    write(table, 1, [("+I", "a", 1), ("+I", "b", 2)])
    static = table.with_options({"dynamic-partition-overwrite": "false"})
    rows = pa.RecordBatch.from_pydict({"dt": ["b"], "k": [3]})
    sink = RowSink(static, rows.schema, overwrite=True, partition=partition_values("dt=b"))
    sink.commit([sink.write(n, [rows]) for n in range(2)], "u", 1)
    assert rows_of(table) == [("a", 1), ("b", 3)]
    sink = RowSink(static, rows.schema, overwrite=True)
    sink.commit([sink.write(0, [])], "u", 2)
    assert rows_of(table) == []


def test_columns_that_are_absent_are_null_and_others_are_named(tmp_path):
    columns = (("k", "BIGINT"), ("v", "STRING"), ("at", "TIMESTAMP(3)"), ("clock", "TIME(3)"))
    table = make_table(tmp_path, columns=columns)
    rows = pa.RecordBatch.from_pydict({"clock": pa.array([1_000], pa.int32()), "k": [1]})
    sink = RowSink(table, rows.schema)
    sink.commit([sink.write(0, [rows])], "u", 1)
    (found,) = table.to_arrow().to_pylist()
    assert (found["k"], found["v"], str(found["clock"])) == (1, None, "00:00:01")
    for wrong, message in [
        (pa.schema([("k", pa.int64()), ("w", pa.string())]), "the table has no such column"),
        (pa.schema([("v", pa.string())]), "a required column is missing"),
        (
            pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))]),
            "with a time zone does not match",
        ),
    ]:
        with pytest.raises(InvalidRequestError, match=message):
            RowSink(table, wrong)


def test_what_one_writer_must_do_is_refused_to_several(tmp_path):
    table = make_table(tmp_path, keys=("k",), partitions=("v",), options={"bucket": "-1"})
    sink = sink_of(table)
    files = [sink.write(n, [batch((n, "a"))]) for n in range(2)]
    with pytest.raises(UnsupportedFeatureError, match="coalesce"):
        sink.commit(files, "u", 1)
    assert data_files(table) == set()
    sink.commit([sink.write(1, [batch((1, "a"))]), sink.write(0, [])], "u", 1)
    assert rows_of(table) == [(1, "a")]


@pytest.mark.parametrize(
    ("initial", "assigners", "buckets"),
    [(None, None, {0}), ("3", None, {0, 1, 2}), (None, "4", {0, 1, 2, 3}), ("2", "4", {0, 1})],
)
def test_several_tasks_write_dynamic_buckets(tmp_path, initial, assigners, buckets):
    options = {
        "bucket": "-1",
        "dynamic-bucket.initial-buckets": initial,
        "dynamic-bucket.assigner-parallelism": assigners,
    }
    given = {key: value for key, value in options.items() if value is not None}
    table = make_table(tmp_path, options=given)
    sink = sink_of(table)
    for number in range(3):
        files = [
            sink.write(task, [batch(*((k, f"{number}.{task}") for k in range(50)))])
            for task in (1, 0, 2)
        ]
        sink.commit(files, "u", number)
        sink.commit([sink.write(0, [batch((1, "repeated"))])], "u", number)
    assert rows_of(table) == sorted(((k, "2.2") for k in range(50)), key=repr)
    snapshot = table.latest_snapshot()
    assert {entry.bucket for entry in table.new_scan().live_entries(snapshot)} == buckets
    assert data_files(table) == named_files(table)[0]
    check_table(table, rows=True)
    over = sink_of(table, overwrite=True)
    over.commit([over.write(n, [batch((n, "new"))]) for n in range(2)], "o", 1)
    assert rows_of(table) == [(0, "new"), (1, "new")]
    check_table(table, rows=True)


def test_assigners_may_become_more_or_fewer(tmp_path):
    table = make_table(tmp_path, options={"bucket": "-1"})
    for number, assigners in enumerate(["1", "3", "2", "5", "1"]):
        several = table.with_options({"dynamic-bucket.assigner-parallelism": assigners})
        sink = sink_of(several)
        rows = [(k, str(number)) for k in range(10 * number, 30 + 10 * number)]
        sink.commit([sink.write(n, [batch(*rows[n::2])]) for n in range(2)], "u", number)
        check_table(table, rows=True)
    found = dict(rows_of(table))
    assert len(found) == len(rows_of(table)) == 70
    assert [found[k] for k in (0, 15, 25, 69)] == ["0", "1", "2", "4"]


@pytest.mark.parametrize("fixed", ["true", "false"])
def test_tasks_write_postponed_tables_in_their_order(tmp_path, fixed):
    options = {
        "bucket": "-2",
        "postpone.default-bucket-num": "2",
        "postpone.batch-write-fixed-bucket": fixed,
    }
    table = make_table(tmp_path, options=options)
    sink = sink_of(table)
    later = sink.write(2, [batch((1, "later"), (2, "b"))])
    first = sink.write(0, [batch((1, "first"), (3, "c"))])
    sink.commit([later, first], "u", 1)
    expected = [(1, "later"), (2, "b"), (3, "c")]
    assert rows_of(table) == (expected if fixed == "true" else [])
    sink.commit([sink.write(1, [batch((2, "streamed"))])], "s", 1, batch=False)
    compact_table(table, CompactRequest(), InlineExecutor())
    assert rows_of(table) == [(1, "later"), (2, "streamed"), (3, "c")]
    assert data_files(table) == named_files(table)[0]
    check_table(table, rows=True)


def test_sequence_numbers_that_meet_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sink_module, "_TASK_NUMBERS", 2)
    table = make_table(tmp_path)
    sink = sink_of(table)
    files = [
        sink.write(0, [batch((1, "a"), (2, "a"), (3, "a"))]),
        sink.write(1, [batch((4, "a"))]),
    ]
    with pytest.raises(UnsupportedFeatureError, match="more rows to one bucket"):
        sink.commit(files, "u", 1)
    assert data_files(table) == set()


def test_options_of_a_partition():
    assert partition_values("dt=2026-01-31, hh = 10") == {"dt": "2026-01-31", "hh": "10"}
    with pytest.raises(InvalidOptionError, match="malformed partition"):
        partition_values("dt")
