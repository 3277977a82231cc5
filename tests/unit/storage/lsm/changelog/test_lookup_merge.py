# SPDX-License-Identifier: Apache-2.0
import pytest

from storage.errors import InternalError, InvalidRequestError
from storage.io.local import LocalFileIO
from storage.lsm.changelog import Upgrade, upgrade_of
from storage.lsm.compaction_policy import CompactUnit
from storage.options.options import TableOptions
from tests.faulty_io import Fault, FaultyFileIO
from tests.unit.storage.bucket_of_levels import Bucket, schema_of, with_lookup_of
from tests.unit.storage.file_metas import file_meta

COLUMNS = {"k": "INT", "v": "BIGINT", "g": "INT"}
LOOKUP = {"changelog-producer": "lookup"}
FULL = {"changelog-producer": "full-compaction"}
DV = {"deletion-vectors.enabled": "true"}
PARTIAL = {"merge-engine": "partial-update"}
SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
FIRST = {"merge-engine": "first-row"}


def _bucket(tmp_path, **options):
    return Bucket(tmp_path, schema_of(COLUMNS, options))


def _row(k, v=None, g=None):
    return {"k": k, "v": v, "g": g}


def _stored(bucket):
    """Kinds and values of the rows of every level above 0."""
    return {
        level: sorted(
            (key, kind, values["v"])
            for file in bucket.files
            if file.level == level
            for key, _, kind, values in bucket.rows(file)
        )
        for level in {file.level for file in bucket.files}
    }


def _two(bucket):
    """An old row of key 1 on the last level, and key 2 with it."""
    bucket.flush([("+I", _row(1, 10)), ("+I", _row(2, 20))])
    bucket.full()


def test_an_old_row_is_looked_up_and_told(tmp_path):
    bucket = _bucket(tmp_path, **LOOKUP)
    _two(bucket)
    bucket.flush([("+I", _row(1, 11)), ("+I", _row(3, 30))])
    increment = bucket.up(4)
    assert bucket.lookup.asked == [1, 3]
    assert bucket.changes(increment) == [
        ("-U", _row(1, 10)),
        ("+U", _row(1, 11)),
        ("+I", _row(3, 30)),
    ]
    assert _stored(bucket)[4] == [(1, "+I", 11), (3, "+I", 30)]


def test_the_lowest_row_of_the_unit_is_the_old_one(tmp_path):
    bucket = _bucket(tmp_path, **SUM, **LOOKUP)
    _two(bucket)
    for value in (1, 2):
        bucket.flush([("+I", _row(1, value))])
        bucket.up(4)
    assert bucket.lookup.asked == [1]
    bucket.flush([("+I", _row(1, 4))])
    increment = bucket.full()
    assert bucket.changes(increment) == [("-U", _row(1, 13)), ("+U", _row(1, 17))]
    assert _stored(bucket) == {5: [(1, "+I", 17), (2, "+I", 20)]}


def test_a_lone_row_goes_through_the_merge_function(tmp_path):
    bucket = _bucket(tmp_path / "sum", **SUM, **LOOKUP)
    bucket.flush([("-U", _row(1, 5))])
    increment = bucket.full()
    assert bucket.changes(increment) == [("+I", _row(1, -5))]
    bucket = _bucket(tmp_path / "partial", **PARTIAL, **LOOKUP)
    bucket.flush([("-D", _row(1, 5))])
    with pytest.raises(InvalidRequestError, match="key=`k=1`"):
        bucket.full()
    assert bucket.stored_names() == {bucket.files[0].file_name}


def test_first_row_forgets_what_is_known_above(tmp_path):
    bucket = _bucket(tmp_path, **FIRST, **LOOKUP)
    _two(bucket)
    bucket.flush([("+I", _row(2, 21)), ("+U", _row(3, 30))])
    increment = bucket.up(4)
    assert bucket.changes(increment) == [("+U", _row(3, 30))]
    assert _stored(bucket) == {5: [(1, "+I", 10), (2, "+I", 20)], 4: [(3, "+U", 30)]}
    bucket.flush([("+I", _row(3, 31))])
    assert bucket.changes(bucket.full()) == []
    assert _stored(bucket)[5][-1] == (3, "+U", 30)


def test_replaced_rows_are_marked_and_deletes_dropped(tmp_path):
    bucket = _bucket(tmp_path, **DV)
    _two(bucket)
    (old,) = bucket.files
    bucket.flush([("-D", _row(1)), ("+I", _row(2, 21)), ("-D", _row(9))])
    increment = bucket.up(4)
    assert increment.changelog_files == ()
    assert sorted(bucket.marked.vectors[old.file_name]) == [0, 1]
    assert _stored(bucket) == {5: [], 4: [(2, "+I", 21)]}
    bucket.flush([("+I", _row(1, 12))])
    bucket.up(4)
    assert bucket.lookup.asked == [1, 2, 9, 1]
    assert len(bucket.marked.marks) == 2
    bucket.full()
    assert bucket.marked.vectors == {}
    assert _stored(bucket) == {5: [(1, "+I", 12), (2, "+I", 21)]}


def test_an_old_row_that_wins_is_marked_and_written_again(tmp_path):
    bucket = _bucket(tmp_path, **DV, **LOOKUP, **{"sequence.field": "g"})
    bucket.flush([("+I", _row(1, 10, 5))])
    bucket.full()
    (old,) = bucket.files
    bucket.flush([("+I", _row(1, 11, 4)), ("+I", _row(2, 20, 1))])
    increment = bucket.up(4)
    assert list(bucket.marked.vectors[old.file_name]) == [0]
    assert bucket.changes(increment) == [
        ("-U", _row(1, 10, 5)),
        ("+U", _row(1, 10, 5)),
        ("+I", _row(2, 20, 1)),
    ]
    assert _stored(bucket)[4] == [(1, "+I", 10), (2, "+I", 20)]


def test_a_file_that_moves_keeps_its_vector(tmp_path):
    bucket = _bucket(tmp_path, **DV)
    bucket.flush([("+I", _row(1, 10)), ("+I", _row(2, 20))])
    bucket.up(4)
    (moved,) = bucket.files
    bucket.marked.mark(moved.file_name, [0])
    bucket.full()
    assert [file.level for file in bucket.files] == [5]
    assert list(bucket.marked.vectors[moved.file_name]) == [0]
    unit = CompactUnit(
        files=tuple(bucket.files), output_level=5, max_level=5, drop_deletes=True, each_alone=True
    )
    bucket.compact(unit)
    assert bucket.files[0].row_count == 1
    assert bucket.marked.vectors == {}


def test_full_compaction_tells_what_changed_on_the_last_level(tmp_path):
    bucket = _bucket(tmp_path, **FULL)
    bucket.flush([("+I", _row(1, 10)), ("+I", _row(2, 20)), ("-D", _row(3))])
    assert bucket.changes(bucket.full()) == [("+I", _row(1, 10)), ("+I", _row(2, 20))]
    bucket.flush([("+I", _row(1, 11)), ("-D", _row(2)), ("+U", _row(4, 40))])
    assert bucket.up(4).changelog_files == ()
    assert bucket.changes(bucket.full()) == [
        ("-U", _row(1, 10)),
        ("+U", _row(1, 11)),
        ("-D", _row(2, 20)),
        ("+I", _row(4, 40)),
    ]
    assert bucket.context.lookup.asked == []


def test_a_file_that_moves_to_the_last_level_is_told_without_being_rewritten(tmp_path):
    for number, options in enumerate((LOOKUP, FULL)):
        bucket = _bucket(tmp_path / str(number), **options)
        bucket.flush([("+I", _row(1, 10))])
        (file,) = bucket.files
        increment = bucket.full()
        assert bucket.changes(increment) == [("+I", _row(1, 10))]
        assert [f.file_name for f in increment.compact_after] == [file.file_name]


def _upgrade(level, output, *, deletes=0, vectors=False, **options):
    unit = CompactUnit(files=(), output_level=output, max_level=5, drop_deletes=True)
    file = file_meta(level, deletes=deletes)
    found = upgrade_of(file, unit, TableOptions.from_strings(options), vectors)
    return (found.emits_changelog, found.rewrites)


def test_what_a_moving_file_needs():
    no, tells, both = (False, False), (True, False), (True, True)
    formats = {"file.format.per.level": "0:avro"}
    assert _upgrade(0, 5) == no
    assert _upgrade(0, 5, **FULL) == _upgrade(3, 5, **FULL) == tells
    assert _upgrade(0, 4, **FULL) == no
    assert _upgrade(0, 5, **LOOKUP) == _upgrade(0, 4, **LOOKUP) == tells
    assert _upgrade(3, 5, **LOOKUP) == no
    assert _upgrade(0, 4, **LOOKUP, **formats) == both
    assert _upgrade(0, 4, **LOOKUP, **{"sequence.field": "g"}) == both
    assert _upgrade(0, 5, **LOOKUP, **{"sequence.field": "g"}) == tells
    assert _upgrade(0, 4, **FIRST) == _upgrade(0, 3, **PARTIAL, **DV) == both
    assert _upgrade(0, 4, vectors=True, deletes=1, **DV) == both
    assert _upgrade(0, 4, vectors=True, deletes=None, **DV) == both
    assert _upgrade(0, 4, vectors=True, **DV) == tells
    assert Upgrade(emits_changelog=True, rewrites=True) == Upgrade(True, True)


def test_lookups_need_someone_who_answers(tmp_path):
    bucket = _bucket(tmp_path, **LOOKUP)
    _two(bucket)
    with_lookup_of(bucket, None)
    bucket.flush([("+I", _row(1, 11)), ("+I", _row(2, 21))])
    with pytest.raises(InternalError, match="has no lookup"):
        bucket.up(4)


def test_deduplicate_passes_over_retractions_of_older_writers(tmp_path):
    bucket = _bucket(tmp_path, **LOOKUP, **{"ignore-delete": "true"})
    _two(bucket)
    bucket.flush([("-D", _row(1)), ("+I", _row(2, 21))])
    bucket.flush([("-D", _row(1)), ("-D", _row(3))])
    increment = bucket.up(4)
    assert bucket.changes(increment) == [
        ("-U", _row(1, 10)), ("+U", _row(1, 10)), ("-U", _row(2, 20)), ("+U", _row(2, 21)),
    ]  # fmt: skip
    assert _stored(bucket)[4] == [(1, "+I", 10), (2, "+I", 21)]


@pytest.mark.parametrize("options", [LOOKUP, FULL, DV | LOOKUP])
def test_a_failed_compaction_leaves_no_file_behind(tmp_path, options):
    bucket = _bucket(tmp_path, **options)
    _two(bucket)
    bucket.flush([("+I", _row(1, 11)), ("+I", _row(3, 30))])
    files, before = list(bucket.files), bucket.stored_names()
    counting = FaultyFileIO(LocalFileIO(durable=False))
    object.__setattr__(bucket.context, "file_io", counting)
    bucket.full()
    steps = len(counting.operations)
    assert steps
    after = bucket.stored_names()
    for step in range(1, steps + 1):
        bucket.files = list(files)
        faulty = FaultyFileIO(LocalFileIO(durable=False), Fault(step, "error"))
        object.__setattr__(bucket.context, "file_io", faulty)
        with pytest.raises(Exception):  # noqa: B017
            bucket.full()
        object.__setattr__(bucket.context, "file_io", LocalFileIO(durable=False))
        assert bucket.stored_names() == after
    assert before < after


def test_one_changelog_file_for_all_groups_of_a_unit(tmp_path):
    bucket = _bucket(tmp_path, **LOOKUP, **{"target-file-size": "1 b"})
    for low in (0, 10, 20):
        bucket.flush([("+I", _row(low, 1)), ("+I", _row(low + 1, 1))])
    increment = bucket.full()
    assert [values["k"] for _, values in bucket.changes(increment)] == [0, 1, 10, 11, 20, 21]
    assert len(increment.changelog_files) >= 1
