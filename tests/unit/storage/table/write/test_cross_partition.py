# SPDX-License-Identifier: Apache-2.0
"""Cross-partition upserts: a key is in one partition at a time, whatever is written how."""

import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.clock import ManualClock
from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.file_meta import EMPTY_ROW, IndexType
from storage.format.types.types import RowKind
from storage.options.options import TableOptions
from storage.table.commit.live_files import index_files
from storage.table.table import FileStoreTable
from storage.table.write.cross_partition import CrossPartitionBuckets, MovedRow
from storage.testing.invariants import check_table
from tests.changelog_kit import changes_of
from tests.property.profiles import profile
from tests.table_kit import data_files, make_table, prepared, reopened, rows_batch, rows_of, write

DAY_MS = 86_400_000


def cross_table(
    root: pathlib.Path,
    *,
    clock: ManualClock | None = None,
    options: dict[str, str] | None = None,
) -> Any:
    return make_table(
        root,
        columns=(("pt", "INT"), ("k", "INT"), ("v", "INT")),
        keys=("k",),
        partitions=("pt",),
        options={"bucket": "-1", **(options or {})},
        clock=clock,
    )


def test_the_last_row_of_a_key_decides_on_its_partition(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    rows = [(1, 1, 1), (2, 1, 2), (1, 3, 3), (2, 4, 4), (3, 3, 5)]
    write(table, 1, [("+I", *row) for row in rows])
    assert rows_of(table) == [(2, 1, 2), (2, 4, 4), (3, 3, 5)]


def test_rows_move_between_commits_and_writers(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path, options={"dynamic-bucket.target-row-num": "3"})
    write(table, 1, [("+I", 1, 1, 1), ("+I", 1, 2, 2), ("+I", 1, 3, 3)])
    write(table, 2, [("+I", 1, 3, 33), ("+I", 1, 1, 11)])
    assert rows_of(table) == [(1, 1, 11), (1, 2, 2), (1, 3, 33)]
    write(reopened(table), 3, [("+I", 2, 1, 2), ("+I", 2, 2, 3)])
    assert rows_of(table) == [(1, 3, 33), (2, 1, 2), (2, 2, 3)]
    write(reopened(table), 4, [("-D", 2, 1, 2), ("+I", 1, 2, 9)])
    assert rows_of(table) == [(1, 2, 9), (1, 3, 33)]


def test_rows_of_engines_that_make_one_row_of_several_stay_where_their_key_came_first(
    tmp_path: pathlib.Path,
) -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = cross_table(tmp_path, options=options)
    write(table, 1, [("+I", 1, 1, 1), ("+I", 2, 1, 2), ("+I", 2, 4, 4)])
    write(table, 2, [("+I", 3, 1, 3), ("+I", 3, 4, 5), ("+I", 3, 5, 6), ("+I", 1, 5, 7)])
    assert rows_of(table) == [(1, 1, 6), (2, 4, 9), (3, 5, 13)]
    write(reopened(table), 3, [("+I", 2, 1, 5)])
    assert rows_of(table) == [(1, 1, 11), (2, 4, 9), (3, 5, 13)]


def test_there_and_back_in_one_batch(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    write(table, 1, [("+I", 1, 7, 0)])
    write(table, 2, [("+I", 2, 7, 1), ("+I", 1, 7, 2), ("+I", 2, 7, 3), ("+I", 1, 7, 4)])
    assert rows_of(table) == [(1, 7, 4)]
    write(table, 3, [("+I", 2, 7, 5), ("+I", 2, 7, 6)])
    assert rows_of(table) == [(2, 7, 6)]


def placed(buckets: CrossPartitionBuckets, table: FileStoreTable, rows: Any) -> dict[int, set[Any]]:
    """Rows of each key as `(kind, pt, bucket)`."""
    found: dict[int, set[Any]] = {}
    for _, bucket, part in buckets.assign(rows_batch(table, rows)):
        for row in part.to_pylist():
            kind = RowKind(row["_VALUE_KIND"]).short
            found.setdefault(row["k"], set()).add((kind, row["pt"], bucket))
    return found


@pytest.fixture
def narrow(tmp_path: pathlib.Path) -> Iterator[tuple[CrossPartitionBuckets, FileStoreTable]]:
    """Buckets with room for one key each; 1 and 2 are in pt=1, in buckets 0 and 1."""
    table = cross_table(tmp_path / "table", options={"dynamic-bucket.target-row-num": "1"})
    buckets = CrossPartitionBuckets(table, tmp_path / "index")
    buckets.bootstrap(None)
    rows = placed(buckets, table, [("+I", 1, 1, 0), ("+I", 1, 2, 0)])
    assert rows == {1: {("+I", 1, 0)}, 2: {("+I", 1, 1)}}
    buckets.end_commit()
    yield buckets, table
    buckets.close()


def test_a_key_that_comes_back_in_its_batch_gets_the_bucket_that_it_left(
    narrow: tuple[CrossPartitionBuckets, FileStoreTable],
) -> None:
    buckets, table = narrow
    wandering = [("+I", pt, 2, step) for step, pt in enumerate((2, 1, 2, 3, 1, 2, 2, 1))]
    found = placed(buckets, table, [("+I", 2, 9, 0), *wandering, ("+I", 1, 8, 0)])
    assert found.pop(9) == {("+I", 2, 0)}
    assert found.pop(8) == {("+I", 1, 2)}
    assert found == {
        2: {(kind, *place) for kind in ("+I", "-D") for place in ((1, 1), (2, 1), (3, 0))}
    }
    # the places that were left have room again, the one that was kept has none
    fresh = [("+I", pt, 20 + pt, 0) for pt in (1, 2, 3)]
    assert placed(buckets, table, fresh) == {
        21: {("+I", 1, 3)},
        22: {("+I", 2, 1)},
        23: {("+I", 3, 0)},
    }


def test_a_key_that_comes_back_in_a_later_batch_of_the_commit_gets_the_bucket_that_it_left(
    narrow: tuple[CrossPartitionBuckets, FileStoreTable],
) -> None:
    buckets, table = narrow
    assert placed(buckets, table, [("+I", 2, 2, 1)]) == {2: {("-D", 1, 1), ("+I", 2, 0)}}
    assert placed(buckets, table, [("+I", 3, 2, 2)]) == {2: {("-D", 2, 0), ("+I", 3, 0)}}
    taking = [("+I", 1, 5, 3), ("+I", 2, 6, 3)]  # the room
    assert placed(buckets, table, taking) == {5: {("+I", 1, 1)}, 6: {("+I", 2, 0)}}
    back = [("+I", 1, 2, 4), ("+I", 2, 2, 5), ("+I", 2, 7, 5)]
    assert placed(buckets, table, back) == {
        2: {("-D", 3, 0), ("+I", 1, 1), ("-D", 1, 1), ("+I", 2, 0)},
        7: {("+I", 2, 1)},
    }


def test_a_bucket_that_a_key_left_in_an_earlier_commit_is_forgotten(
    narrow: tuple[CrossPartitionBuckets, FileStoreTable],
) -> None:
    buckets, table = narrow
    placed(buckets, table, [("+I", 2, 2, 1), ("+I", 1, 5, 1)])
    placed(buckets, table, [("+I", 1, 6, 1)])
    buckets.end_commit()
    assert placed(buckets, table, [("+I", 1, 2, 2)]) == {2: {("-D", 2, 0), ("+I", 1, 3)}}


def test_writers_keep_a_key_in_one_bucket_for_as_long_as_a_commit_takes(
    tmp_path: pathlib.Path,
) -> None:
    table = cross_table(tmp_path, options={"dynamic-bucket.target-row-num": "1"})
    with table.new_write("user") as writer:

        def commit(identifier: int, *batches: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
            for rows in batches:
                writer.write(rows_batch(table, rows))
            table.new_commit("user").commit(writer.prepare_commit(), identifier)
            return changes_of(table, identifier)

        commit(1, [("+I", 1, 1, 0), ("+I", 1, 2, 0)])
        changes = commit(2, [("+I", 2, 2, 1), ("+I", 1, 3, 1)], [("+I", 1, 4, 2), ("+I", 1, 2, 2)])
        told = [("+I", 1, 2), ("+I", 1, 3), ("+I", 1, 4), ("-D", 2, 2)]
        assert sorted(change[:3] for change in changes) == told
        changes = commit(3, [("+I", 2, 2, 3), ("+I", 1, 2, 4)])
        assert sorted(change[:3] for change in changes) == [("+I", 1, 2), ("-D", 2, 2)]
    assert rows_of(table) == [(1, 1, 0), (1, 2, 4), (1, 3, 1), (1, 4, 2)]
    buckets = CrossPartitionBuckets(table, tmp_path / "index")
    assert buckets.bootstrap(table.snapshots.latest_id()) == 4
    buckets.close()


def test_no_hash_index_files_are_written(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    write(table, 1, [("+I", 1, 1, 1)])
    assert index_files(table, table.latest_snapshot(), IndexType.HASH) == {}


def test_buckets_fill_up_and_are_filled_again_after_moves(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path, options={"dynamic-bucket.target-row-num": "2"})
    write(table, 1, [("+I", 1, k, 0) for k in range(5)])
    assert {split.bucket for split in table.new_scan().plan().splits} == {0, 1, 2}
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", 2, 0, 1), ("+I", 2, 1, 1)]))
        writer.write(rows_batch(table, [("+I", 1, k, 2) for k in range(10, 12)]))
        messages = writer.prepare_commit()
    assert sorted((m.partition == messages[0].partition, m.bucket) for m in messages) == [
        *((False, 0), (True, 0))
    ]
    table.new_commit("user").commit(messages, 9)
    assert len(rows_of(table)) == 7


@profile(short=12, long=200)
@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from(["+I", "+U", "-D"]), st.integers(1, 3), st.integers(0, 5)),
            min_size=1,
            max_size=12,
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 3),
    st.booleans(),
)
def test_agrees_with_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[tuple[str, int, int]]],
    target: int,
    fresh_writers: bool,
) -> None:
    root = tmp_path_factory.mktemp("table")
    table = cross_table(root, options={"dynamic-bucket.target-row-num": str(target)})
    model: dict[int, tuple[int, int]] = {}
    writer = table.new_write("user")
    for number, rows in enumerate(commits):
        batch = [(kind, pt, k, 100 * number + i) for i, (kind, pt, k) in enumerate(rows)]
        if fresh_writers:
            writer.close()
            writer = table.new_write("user")
        writer.write(rows_batch(table, batch))
        table.new_commit("user").commit(writer.prepare_commit(), number)
        for kind, pt, k, v in batch:
            if kind == "-D":
                model.pop(k, None)
            else:
                model[k] = (pt, v)
        assert rows_of(table) == sorted(((pt, k, v) for k, (pt, v) in model.items()), key=repr)
    writer.close()


def test_a_lost_index_is_built_anew(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path / "table")
    write(table, 1, [("+I", 1, k, 0) for k in range(10)])
    buckets = CrossPartitionBuckets(table, tmp_path / "index")
    assert buckets.bootstrap(1) == 10
    buckets.index._memory_entries = 0
    list(buckets.assign(rows_batch(table, [("+I", 2, 3, 1)])))
    buckets.index.merge_all()
    assert not buckets.is_incomplete
    shutil.rmtree(tmp_path / "index")
    assert buckets.is_incomplete
    assert buckets.bootstrap(1) == 10
    assert not buckets.is_incomplete
    buckets.close()
    assert not list((tmp_path / "index").glob("*"))


def test_what_was_not_committed_is_forgotten(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    write(table, 1, [("+I", 1, 1, 0)])
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", 2, 1, 1)]))
        table.delete_uncommitted(writer.prepare_commit())
        writer.write(rows_batch(table, [("+I", 2, 1, 2)]))
        table.new_commit("user").commit(writer.prepare_commit(), 2)
    assert rows_of(table) == [(2, 1, 2)]


def test_what_others_wrote_is_noticed(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", 1, 1, 0)]))
        table.new_commit("user").commit(writer.prepare_commit(), 1)
        write(table, 1, [("+I", 2, 2, 0)], user="other")
        writer.write(rows_batch(table, [("+I", 3, 2, 1), ("+I", 3, 1, 1)]))
        table.new_commit("user").commit(writer.prepare_commit(), 2)
    assert rows_of(table) == [(3, 1, 1), (3, 2, 1)]


def test_old_keys_are_forgotten_when_so_configured(tmp_path: pathlib.Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    table = cross_table(tmp_path, clock=clock, options={"cross-partition-upsert.index-ttl": "1 d"})
    write(table, 1, [("+I", 1, 1, 0)])
    clock.advance(2 * DAY_MS)
    write(table, 2, [("+I", 2, 2, 0)])
    write(table, 3, [("+I", 3, 1, 1), ("+I", 3, 2, 1)])
    assert rows_of(table) == [(1, 1, 0), (3, 1, 1), (3, 2, 1)]


def test_partition_values_of_any_kind_come_back_in_retractions(tmp_path: pathlib.Path) -> None:
    table = make_table(
        tmp_path,
        columns=(("d", "DATE"), ("s", "STRING"), ("k", "STRING"), ("v", "INT")),
        keys=("k",),
        partitions=("d", "s"),
        options={"bucket": "-1"},
    )
    kinds = pa.array([0], pa.int8())

    def row(day: int | None, text: str | None, value: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                *(pa.array([day], pa.date32()), pa.array([text]), pa.array(["a"])),
                *(pa.array([value]), kinds),
            ],
            names=["d", "s", "k", "v", "_VALUE_KIND"],
        )

    values = [(1, "x"), (None, None), (None, ""), (2, "å/b=%"), (1, "x")]
    for number, (day, text) in enumerate(values, start=1):
        with reopened(table).new_write("user") as writer:
            writer.write(row(day, text, number))
            table.new_commit("user").commit(writer.prepare_commit(), number)
        (found,) = table.to_arrow().to_pylist()
        assert (found["s"], found["v"]) == (text, number)


def test_bootstrap_reads_many_splits(tmp_path: pathlib.Path) -> None:
    options = {"dynamic-bucket.target-row-num": "5", "source.split.target-size": "1 b"}
    table = cross_table(tmp_path, options=options)
    write(table, 1, [("+I", k % 3, k, 0) for k in range(100)])
    buckets = CrossPartitionBuckets(table, tmp_path / "index")
    assert buckets.bootstrap(1) == 100
    buckets.close()


def test_a_table_with_a_key_in_two_partitions_is_refused(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    one, other = prepared(table, [("+I", 1, 1, 0)]), prepared(table, [("+I", 2, 1, 0)])
    table.new_commit("a").commit([*one, *other], 1)
    assert len(rows_of(table)) == 2
    with pytest.raises(InvalidRequestError, match="more than one partition or bucket"):
        prepared(table, [("+I", 1, 5, 0)])


STATIC = {"dynamic-partition-overwrite": "false"}


@pytest.mark.parametrize("engine", ["deduplicate", "first-row", "partial-update"])
def test_an_overwrite_of_the_whole_table_begins_anew(tmp_path: pathlib.Path, engine: str) -> None:
    table = cross_table(tmp_path, options={**STATIC, "merge-engine": engine})
    write(table, 1, [("+I", 1, 1, 1), ("+I", 2, 2, 2)])
    rows = [("+I", 3, 1, 5), ("+I", 1, 2, 6), ("+I", 4, 1, 7)]
    table.overwrite_rows([rows_batch(table, rows)])
    expected = {
        "deduplicate": [(1, 2, 6), (4, 1, 7)],
        "first-row": [(1, 2, 6), (3, 1, 5)],
        "partial-update": [(1, 2, 6), (3, 1, 7)],
    }
    assert rows_of(table) == expected[engine]
    write(reopened(table), 2, [("+I", 9, 2, 8)])
    assert len(rows_of(table)) == 2
    check_table(table, rows=True)


def test_an_overwrite_of_partitions_leaves_no_key_twice(tmp_path: pathlib.Path) -> None:
    table = cross_table(tmp_path)
    write(table, 1, [("+I", 1, 1, 1), ("+I", 2, 2, 2), ("+I", 2, 3, 3)])
    table.overwrite_rows([rows_batch(table, [("+I", 2, 3, 4), ("+I", 2, 5, 5)])])
    assert rows_of(table) == [(1, 1, 1), (2, 3, 4), (2, 5, 5)]
    before = data_files(table)
    for partition in (None, {"pt": 2}):
        with pytest.raises(InvalidRequestError, match="has a key of the new rows") as refused:
            table.overwrite_rows([rows_batch(table, [("+I", 2, 1, 9)])], partition=partition)
        assert refused.value.context["partition"] == "pt=1"
    assert data_files(table) == before
    table.overwrite_rows([rows_batch(table, [("+I", 2, 1, 9), ("+I", 1, 7, 7)])])
    assert rows_of(table) == [(1, 7, 7), (2, 1, 9)]
    check_table(table, rows=True)


def test_a_sequence_field_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOptionError, match="cross partition update"):
        cross_table(tmp_path, options={"sequence.field": "v"})


def test_the_stream_does_not_write_single_buckets(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="bucket by bucket"):
        cross_table(tmp_path).bucket_writer(EMPTY_ROW, 0, None)


@pytest.mark.parametrize(
    ("engine", "moved"),
    [
        ("deduplicate", MovedRow.DELETE_OLD),
        ("partial-update", MovedRow.KEEP_OLD_PARTITION),
        ("aggregation", MovedRow.KEEP_OLD_PARTITION),
        ("first-row", MovedRow.DROP_NEW),
    ],
)
def test_the_merge_engine_decides_on_moved_rows(engine: str, moved: MovedRow) -> None:
    assert MovedRow.of(TableOptions.from_strings({"merge-engine": engine})) is moved


def test_fixed_buckets_do_not_look_across_partitions(tmp_path: pathlib.Path) -> None:
    table: FileStoreTable = cross_table(tmp_path, options={"bucket": "2"})
    write(table, 1, [("+I", 1, 1, 1)])
    write(table, 2, [("+I", 2, 1, 2)])
    assert rows_of(table) == [(1, 1, 1), (2, 1, 2)]


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_a_delete_finds_its_key_in_whatever_partition(
    tmp_path: pathlib.Path, producer: str
) -> None:
    table = cross_table(tmp_path, options={"changelog-producer": producer})
    write(table, 1, [("+I", 1, 1, 1), ("+I", 2, 2, 2), ("+I", 2, 3, 3), ("+I", None, 4, 4)])
    rows = [
        ("-D", None, 1, None),  # the key alone
        ("-D", 7, 2, None),  # another partition
        ("+U", 3, 3, 33),
        ("-D", None, 3, None),  # after a move
        ("-D", None, 4, None),  # null is its partition
        ("-D", None, 5, None),  # nowhere
        ("-D", None, 6, None),
        ("+I", 3, 6, 6),
    ]
    write(reopened(table), 2, rows)
    assert rows_of(table) == [(3, 6, 6)]
    assert not list(pathlib.Path(table.layout.root).glob("pt=7"))
    write(reopened(table), 3, [("-D", None, 6, None), ("+I", 1, 1, 10)])
    assert rows_of(table) == [(1, 1, 10)]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_a_delete_that_tells_no_partition_makes_none(tmp_path: pathlib.Path, engine: str) -> None:
    options = {"merge-engine": engine, f"{engine}.remove-record-on-delete": "true"}
    table = cross_table(tmp_path, options=options)
    write(table, 1, [("-D", None, 1, None), ("+I", 1, 1, 1), ("+I", 2, 2, 2)])
    assert rows_of(table) == [(1, 1, 1), (2, 2, 2)]
    write(table, 2, [("-D", None, 1, None)])
    assert rows_of(table) == [(2, 2, 2)]
