# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pickle

import pyarrow as pa
import pytest

from storage.errors import InvalidRequestError, StorageUnavailableError
from storage.format.metadata.file_meta import CompactIncrement, FileSource
from storage.format.metadata.schema import new_schema
from storage.format.types.types import AtomicType, DataField, TypeRoot
from storage.io.local import LocalFileIO
from storage.lsm.merge_tree_writer import MergeTreeWriter, _CompactChanges
from tests.faulty_io import Fault, FaultyFileIO
from tests.property.bucket_table import BucketTable
from tests.property.strategies import SHAPES, input_batch
from tests.unit.storage.file_metas import file_meta

_SHAPE = SHAPES[0]


@pytest.fixture
def new_table(tmp_path):
    def make(**options):
        keys = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
        return BucketTable(tmp_path, _SHAPE.schema(keys))

    return make


def _write(table, *changes):
    table.writer.write(input_batch(changes, table.context.schema))


def test_a_commit_of_nothing_is_empty(new_table):
    message = new_table().commit()
    assert message.data.empty
    assert message.compact.empty


def test_a_flush_keeps_the_last_row_of_each_key_and_counts_deletes(new_table):
    table = new_table()
    _write(table, ("+I", (2, "a")), ("+I", (1, "b")), ("+U", (2, "c")), ("-D", (3, None)))
    message = table.commit()
    (file,) = message.data.new_files
    assert (file.level, file.file_source) == (0, FileSource.APPEND)
    assert (file.row_count, file.delete_row_count) == (3, 1)
    # the numbers of the rows that stay: the last arrivals of keys 1, 2 and 3
    assert (file.min_sequence_number, file.max_sequence_number) == (1, 3)
    assert table.context.key_of(file.min_key) == ((1, 1),)
    assert table.context.key_of(file.max_key) == ((1, 3),)
    assert table.scan() == [(1, "b"), (2, "c")]


def test_sequence_numbers_continue_across_batches_commits_and_writers(new_table):
    table = new_table()
    assert table.writer._next_sequence == 0
    _write(table, ("+I", (1, "a")), ("+I", (1, "b")))
    _write(table, ("+I", (1, "c")))
    assert table.writer._next_sequence == 3
    table.commit()
    _write(table, ("+I", (2, "d")))
    table.commit()
    assert [file.max_sequence_number for file in table.levels().level0] == [3, 2]
    table.reopen()
    assert table.writer._next_sequence == 4


def test_numbers_of_rows_that_lost_inside_a_buffer_are_not_given_again(new_table):
    table = new_table()
    _write(table, ("-D", (1, None)), ("+I", (1, "a")))
    table.commit()
    assert table.writer._next_sequence == 2


def test_a_full_buffer_is_flushed_by_the_write_that_fills_it(new_table):
    table = new_table(write_buffer_size="100 b")
    _write(table, ("+I", (1, "a")))
    assert table.writer.sorted_run_count == 0
    assert table.writer._buffer_bytes > 0
    _write(table, *(("+I", (key, "x" * 40)) for key in range(10)))
    assert table.writer.sorted_run_count == 1
    assert table.writer._buffer_bytes == 0


def test_the_fifth_sorted_run_is_compacted_into_the_last_level(new_table):
    # conformance case lsm-auto-compaction-at-trigger
    table = new_table()
    for value in range(4):
        _write(table, ("+I", (1, str(value))))
        assert table.commit().compact.empty
    _write(table, ("+I", (1, "4")))
    message = table.commit()
    (new,) = message.data.new_files
    assert new in message.compact.compact_before
    assert len(message.compact.compact_before) == 5
    (file,) = message.compact.compact_after
    assert (file.level, file.row_count, file.file_source) == (5, 1, FileSource.COMPACT)
    assert file.max_sequence_number == 4
    assert table.scan() == [(1, "4")]


def test_write_only_never_compacts(new_table):
    # conformance case lsm-write-only-never-compacts
    table = new_table(write_only="true")
    for value in range(8):
        _write(table, ("+I", (1, str(value))))
        assert table.commit().compact.empty
    assert table.levels().run_count == 8
    assert table.scan() == [(1, "7")]


def test_a_writer_told_not_to_compact_leaves_it_to_others(new_table):
    table = new_table()
    for value in range(7):
        table.writer = MergeTreeWriter(table.context, list(table.live.values()), compaction=False)
        _write(table, ("+I", (1, str(value))))
        table.commit()
    assert table.levels().run_count == 7
    table.writer = MergeTreeWriter(table.context, list(table.live.values()), compaction=False)
    assert table.writer.compact()
    table.commit()
    assert table.levels().run_count == 1


def test_deletes_stay_until_nothing_older_lies_below(new_table):
    table = new_table(num_sorted_run__compaction_trigger="99")
    _write(table, ("+I", (1, "a")), ("+I", (2, "b")))
    table.writer.compact(full=True)
    table.commit()
    _write(table, ("-D", (1, None)))
    table.commit()
    assert [file.delete_row_count for file in table.levels().files()] == [1, 0]
    assert table.scan() == [(2, "b")]
    table.writer.compact(full=True)
    table.commit()
    assert [(f.row_count, f.delete_row_count) for f in table.levels().files()] == [(1, 0)]


def test_a_delete_compacted_above_older_rows_is_kept(new_table):
    table = new_table(
        num_sorted_run__compaction_trigger="5",
        compaction__force_up_level_0="true",
        compaction__max_size_amplification_percent="9999999",
        compaction__size_ratio="0",
    )
    _write(table, *(("+I", (key, "x" * 40)) for key in range(200)))
    table.writer.compact(full=True)
    table.commit()
    _write(table, ("-D", (1, None)))
    table.commit()
    assert [(f.level, f.delete_row_count) for f in table.levels().files()] == [(4, 1), (5, 0)]
    assert len(table.scan()) == 199


def test_a_full_compaction_of_deletes_alone_leaves_no_file(new_table):
    table = new_table()
    _write(table, ("-D", (1, None)))
    assert table.writer.compact(full=True)
    message = table.commit()
    assert message.compact.compact_after == ()
    assert table.live == {}
    assert not table.writer.compact(full=True)


def test_a_large_file_alone_is_upgraded_without_being_rewritten(new_table):
    table = new_table(target_file_size="1 kb", compaction__small_file_ratio="0")
    _write(table, ("+I", (1, "a")))
    table.writer.compact(full=True)
    message = table.commit()
    (file,) = message.data.new_files
    assert message.compact.compact_before == (file,)
    assert message.compact.compact_after == (file.at_level(5),)
    assert table.stored_files() == {file.file_name}
    assert table.scan() == [(1, "a")]


def test_upgrading_a_file_with_deletes_to_the_last_level_rewrites_it(new_table):
    table = new_table(compaction__small_file_ratio="0")
    _write(table, ("+I", (1, "a")), ("-D", (2, None)))
    table.writer.compact(full=True)
    message = table.commit()
    (file,) = message.compact.compact_after
    assert file.file_name != message.data.new_files[0].file_name
    assert (file.row_count, file.delete_row_count) == (1, 0)


def test_files_that_live_between_two_compactions_of_one_commit_are_removed(new_table):
    table = new_table(write_buffer_size="1 b", num_sorted_run__compaction_trigger="2")
    for value in range(9):
        _write(table, ("+I", (1, str(value))))
    message = table.commit()
    named = {
        file.file_name
        for files in (message.data.new_files, message.compact.compact_after)
        for file in files
    }
    assert len(message.data.new_files) == 9
    assert table.stored_files() == named
    assert table.scan() == [(1, "8")]


def test_close_removes_what_was_not_handed_over(new_table):
    table = new_table(write_buffer_size="1 b", num_sorted_run__compaction_trigger="2")
    _write(table, ("+I", (1, "kept")))
    table.commit()
    kept = {file.file_name for file in table.live.values()}
    for value in range(5):
        _write(table, ("+I", (1, str(value))))
    assert table.stored_files() > kept
    table.writer.close()
    table.writer.close()
    assert table.stored_files() == kept
    table.reopen()
    assert table.scan() == [(1, "kept")]


def test_closing_keeps_a_committed_file_that_was_only_upgraded(new_table):
    table = new_table(compaction__small_file_ratio="0")
    _write(table, ("+I", (1, "a")))
    table.commit()
    table.writer.compact(full=True)
    table.writer.close()
    table.reopen()
    assert table.scan() == [(1, "a")]


def test_the_writer_is_a_context_manager_that_closes(new_table):
    table = new_table(write_buffer_size="1 b")
    with table.writer:
        _write(table, ("+I", (1, "a")))
        assert len(table.stored_files()) == 1
    assert table.stored_files() == set()


def test_ignored_kinds_take_no_sequence_number(new_table):
    table = new_table(ignore_delete="true")
    _write(table, ("+I", (1, "a")), ("-D", (1, "a")), ("-U", (1, "a")))
    assert table.writer._next_sequence == 1
    table.commit()
    assert table.scan() == [(1, "a")]


def test_ignored_update_before_keeps_deletes(tmp_path):
    table = BucketTable(tmp_path, _SHAPE.schema({"ignore-update-before": "true"}))
    _write(table, ("+I", (1, "a")), ("+I", (2, "b")), ("-U", (1, "a")), ("-D", (2, "b")))
    table.commit()
    assert table.scan() == [(1, "a")]


_NOT_NULL_INT = AtomicType(TypeRoot.INT, nullable=False)
_BIGINT = AtomicType(TypeRoot.BIGINT)


def _custom(tmp_path, *columns):
    return BucketTable(
        tmp_path,
        new_schema(columns, primary_keys=["k"], options={"bucket": "1"}, now_ms=0),
    )


def test_null_in_a_not_null_column_is_refused_by_name(tmp_path):
    table = _custom(tmp_path, ("k", _BIGINT), ("n", _NOT_NULL_INT))
    batch = pa.RecordBatch.from_pydict(
        {
            "k": [1],
            "n": pa.array([None], pa.int32()),
            "_VALUE_KIND": pa.array([0], pa.int8()),
        }
    )
    with pytest.raises(InvalidRequestError, match=r"cannot write null to non-null column\(n\)"):
        table.writer.write(batch)


def test_columns_are_found_by_name_widened_filled_and_left_out(tmp_path):
    default = DataField(id=0, name="d", type=AtomicType(TypeRoot.INT), default="7")
    table = _custom(tmp_path, ("k", _BIGINT), ("v", _BIGINT), default, ("missing", _BIGINT))
    batch = pa.RecordBatch.from_pydict(
        {
            "_OFFSET": [99, 98],
            "_VALUE_KIND": pa.array([0, 0], pa.int8()),
            "d": pa.array([None, 5], pa.int32()),
            "v": pa.array([10, 20], pa.int16()),
            "k": pa.array([2, 1], pa.int32()),
        }
    )
    table.writer.write(batch)
    table.commit()
    assert table.scan() == [(1, 20, 5, None), (2, 10, 7, None)]


def test_values_that_do_not_fit_their_column_are_refused(tmp_path):
    table = _custom(tmp_path, ("k", _BIGINT), ("n", AtomicType(TypeRoot.TINYINT)))
    batch = pa.RecordBatch.from_pydict(
        {"k": [1], "n": [300], "_VALUE_KIND": pa.array([0], pa.int8())}
    )
    with pytest.raises(InvalidRequestError, match="does not fit its column"):
        table.writer.write(batch)


def test_compaction_rewrites_old_files_in_the_new_schema(tmp_path):
    table = _custom(tmp_path, ("k", _BIGINT), ("v", AtomicType(TypeRoot.INT)))
    _write_rows(table, {"k": [1, 2], "v": pa.array([10, 20], pa.int32())})
    table.commit()
    old = table.context.schema
    wider = old.fields[1].type.__class__(TypeRoot.BIGINT)
    fields = (
        old.fields[0],
        DataField(id=old.fields[1].id, name="renamed", type=wider),
        DataField(id=99, name="added", type=_BIGINT),
    )
    table.with_schema(type(old)(**{**_parts(old), "id": 1, "fields": fields}))
    _write_rows(table, {"k": [2, 3], "renamed": [2**40, 30], "added": [1, None]})
    table.writer.compact(full=True)
    table.commit()
    assert [file.schema_id for file in table.live.values()] == [1]
    assert table.scan() == [(1, 10, None), (2, 2**40, 1), (3, 30, None)]


def _parts(schema):
    names = ("highest_field_id", "partition_keys", "primary_keys", "options")
    return {name: getattr(schema, name) for name in names}


def _write_rows(table, columns):
    rows = len(columns["k"])
    kinds = pa.array([0] * rows, pa.int8())
    table.writer.write(pa.RecordBatch.from_pydict({**columns, "_VALUE_KIND": kinds}))


def test_a_commit_message_pickles(new_table):
    table = new_table()
    _write(table, ("+I", (1, "a")))
    message = table.commit()
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_failed_flush_leaves_no_file_behind(new_table):
    table = new_table()
    counting = FaultyFileIO(LocalFileIO(durable=False))
    object.__setattr__(table.context, "file_io", counting)
    _write(table, ("+I", (1, "a")))
    table.writer.flush()
    steps = len(counting.operations)
    table.writer.close()
    for step in range(1, steps + 1):
        faulty = FaultyFileIO(LocalFileIO(durable=False), Fault(step, "error"))
        object.__setattr__(table.context, "file_io", faulty)
        table.writer = MergeTreeWriter(table.context, [])
        _write(table, ("+I", (1, "a")))
        with pytest.raises(StorageUnavailableError):
            table.writer.flush()
        table.writer.close()
        assert table.stored_files() == set()


def test_changes_of_several_compactions_are_folded():
    changes = _CompactChanges()
    a, b, c = file_meta(0, name="a"), file_meta(0, name="b"), file_meta(0, name="c")
    merged, again = file_meta(4, name="m"), file_meta(5, name="n")
    assert changes.add(_increment([a, b], [merged])) == []
    assert changes.add(_increment([c], [c.at_level(3)])) == []
    # `m` was made and used up in between; `c` only moved, its bytes belong to a snapshot
    assert changes.add(_increment([merged, c.at_level(3)], [again])) == [merged]
    assert changes.written() == [again]
    increment = changes.increment()
    assert [(f.file_name, f.level) for f in increment.compact_before] == [
        ("a", 0),
        ("b", 0),
        ("c", 0),
    ]
    assert increment.compact_after == (again,)


def test_a_file_written_and_then_upgraded_is_new_at_its_last_level():
    changes = _CompactChanges()
    a, merged = file_meta(0, name="a"), file_meta(4, name="m")
    changes.add(_increment([a], [merged]))
    assert changes.add(_increment([merged], [merged.at_level(5)])) == []
    assert changes.increment() == _increment([a], [merged.at_level(5)])
    assert changes.written() == [merged.at_level(5)]


def _increment(before, after):
    return CompactIncrement(compact_before=tuple(before), compact_after=tuple(after))


def test_a_compaction_does_not_read_the_file_that_was_just_written(new_table):
    table = new_table(num_sorted_run__compaction_trigger="1")
    _write(table, ("+I", (1, "a")), ("+I", (2, "b")))
    table.commit()
    table.context = dataclasses.replace(table.context, file_io=FaultyFileIO(LocalFileIO()))
    table.reopen()
    _write(table, ("+U", (2, "c")), ("+I", (3, "d")))
    message = table.commit()
    opened = [path for name, path in table.context.file_io.operations if name == "open_input"]
    (newest,) = message.data.new_files
    assert message.compact.compact_before
    assert not [path for path in opened if path.endswith(newest.file_name)]
    assert table.scan() == [(1, "a"), (2, "c"), (3, "d")]
