# SPDX-License-Identifier: Apache-2.0
"""Dynamic buckets: who gets which bucket, and what the HASH index files hold afterwards."""

import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import InvalidOptionError, InvalidRequestError, UnsupportedFeatureError
from storage.format.metadata.file_meta import EMPTY_ROW, IndexType
from storage.format.row.bucket import hash_rows
from storage.format.types.types import parse_type
from storage.table.commit.live_files import index_files, read_hash_index
from storage.table.table import FileStoreTable
from storage.table.write.dynamic_bucket import AssignerShare, PartitionIndex, assigners_of
from tests.table_kit import make_table, prepared, reopened, rows_batch, rows_of, write

GOLDEN = pathlib.Path(__file__).parents[4] / "golden/data/public/dynamic_bucket"
INT = parse_type("INT NOT NULL")


def hashes(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(values, np.int32)


def dynamic_table(
    root: pathlib.Path, *, partitioned: bool = False, options: dict[str, str] | None = None
) -> Any:
    return make_table(
        root,
        columns=(("p", "STRING"), ("k", "INT"), ("v", "STRING")),
        keys=("p", "k"),
        partitions=("p",) if partitioned else (),
        options={"bucket": "-1", **(options or {})},
    )


def index_of(table: FileStoreTable) -> dict[tuple[bytes, int], list[int]]:
    found = index_files(table, table.latest_snapshot(), IndexType.HASH)
    return {
        bucket: sorted(read_hash_index(table, *bucket, file).tolist())
        for bucket, files in found.items()
        for file in files
    }


def buckets_by_row(table: FileStoreTable) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = {}
    for split in table.new_scan().plan().splits:
        for batch in table.new_read().to_batches(split):
            for row in batch.to_pylist():
                key = tuple(row[name] for name in table.schema.primary_keys)
                assert key not in found, "a key in two places"
                found[key] = split.bucket
    return found


# ---------------------------------------------------------------------------- assignment


def test_a_known_hash_keeps_its_bucket() -> None:
    index = PartitionIndex(target_rows=2)
    assert index.assign(hashes(5, 6, 7, 5)).tolist() == [0, 0, 1, 0]
    assert index.assign(hashes(7, 8, 6, 9)).tolist() == [1, 1, 0, 2]
    assert index.bucket_counts == {0: 2, 1: 2, 2: 1}
    assert sorted(index.hashes_of(1).tolist()) == [7, 8]


def test_new_hashes_go_in_arrival_order() -> None:
    index = PartitionIndex(target_rows=1)
    assert index.assign(hashes(9, -4, 9, 2)).tolist() == [0, 1, 0, 2]


def test_an_assigner_opens_only_its_own_buckets() -> None:
    index = PartitionIndex(1, share=AssignerShare(number=1, channels=2, assigners=2))
    assert index.assign(hashes(1, 3, 5)).tolist() == [1, 3, 5]


def test_buckets_of_others_are_looked_up_but_not_filled() -> None:
    index = PartitionIndex(10, share=AssignerShare(number=0, channels=2, assigners=2))
    index.load({0: hashes(2), 1: hashes(4)})
    assert index.assign(hashes(4, 2, 6)).tolist() == [1, 0, 0]
    assert index.bucket_counts == {0: 2}
    assert index.changed == {0}


def test_the_first_keys_are_spread_over_the_initial_buckets() -> None:
    index = PartitionIndex(2, initial_buckets=3)
    given = hashes(0, 3, 6, 1, -1, 4, 7, 2, 9, 12)
    # by |hash| modulo 3: 0 3 6 9 12 | 1 -1 4 7 | 2
    assert index.assign(given).tolist() == [0, 0, 3, 1, 1, 4, 4, 2, 3, 6]
    assert index.assign(given[::-1]).tolist() == [6, 3, 2, 4, 4, 1, 1, 3, 0, 0]


def test_initial_buckets_keep_to_the_bound_and_to_buckets_that_are_there() -> None:
    bounded = PartitionIndex(1, 2, initial_buckets=5)
    assert set(bounded.assign(np.arange(50, dtype=np.int32)).tolist()) == {0, 1}
    grown = PartitionIndex(2, initial_buckets=2)
    grown.load({0: hashes(1, 3), 5: hashes(5)})
    assert grown.assign(hashes(1, 3, 5, 7, 2, 9)).tolist() == [0, 0, 5, 5, 2, 1]


def test_a_table_spreads_its_first_keys(tmp_path: pathlib.Path) -> None:
    options = {"dynamic-bucket.initial-buckets": "4"}
    table = dynamic_table(tmp_path, options=options)
    write(table, 1, [("+I", "a", k, "x") for k in range(200)])
    assert sorted(bucket for _, bucket in index_of(table)) == [0, 1, 2, 3]
    for found in index_of(reopened(table)).items():
        (_, bucket), entries = found
        assert {abs(int(np.fmod(one, 4))) for one in entries} == {bucket}
    with pytest.raises(InvalidOptionError, match="initial-buckets"):
        dynamic_table(tmp_path / "bad", options={"dynamic-bucket.initial-buckets": "0"})


def test_beyond_the_bound_keys_go_to_any_bucket_and_stay() -> None:
    index = PartitionIndex(1, max_buckets=2)
    first = index.assign(hashes(1, 2, 3, 4, 5))
    assert first[:2].tolist() == [0, 1]
    assert set(first[2:].tolist()) <= {0, 1}
    assert index.assign(hashes(1, 2, 3, 4, 5)).tolist() == first.tolist()


@pytest.mark.parametrize("bound", [0, -2, 32_768])
def test_a_bound_that_means_nothing_is_refused(bound: int) -> None:
    with pytest.raises(InvalidRequestError, match="max-buckets"):
        PartitionIndex(1, max_buckets=bound)


def test_bucket_numbers_run_out() -> None:
    index = PartitionIndex(1)
    with pytest.raises(InvalidRequestError, match="increase target bucket row number"):
        index.assign(np.arange(32_768, dtype=np.int32))


def test_memory_is_four_to_six_bytes_a_key() -> None:
    one = PartitionIndex(target_rows=100_000)
    one.assign(np.arange(100_000, dtype=np.int32))
    assert one.nbytes == 4 * 100_000
    several = PartitionIndex(target_rows=10_000)
    several.assign(np.arange(100_000, dtype=np.int32))
    assert several.nbytes <= 5 * 100_000
    many = PartitionIndex(target_rows=100)
    many.assign(np.arange(100_000, dtype=np.int32))
    assert many.nbytes <= 6 * 100_000


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-30, 30), min_size=1, max_size=40), max_size=8),
    st.integers(1, 7),
    st.integers(1, 3),
)
def test_assignment_agrees_with_the_plain_rule(
    batches: list[list[int]], target: int, assigners: int
) -> None:
    share = AssignerShare(number=assigners - 1, channels=assigners, assigners=assigners)
    index = PartitionIndex(target, share=share)
    known: dict[int, int] = {}
    counts: dict[int, int] = {}
    for batch in batches:
        expected = []
        for value in batch:
            if value not in known:
                open_ones = [b for b in sorted(counts) if counts[b] < target]
                bucket = open_ones[0] if open_ones else share.number + assigners * len(counts)
                counts[bucket] = counts.get(bucket, 0) + 1
                known[value] = bucket
            expected.append(known[value])
        assert index.assign(hashes(*batch)).tolist() == expected
    for bucket in counts:
        assert sorted(index.hashes_of(bucket).tolist()) == sorted(
            value for value, where in known.items() if where == bucket
        )


def test_rows_find_their_assigner() -> None:
    found = assigners_of(hashes(-7, -7, 4), hashes(-3, 5, 0), channels=4, assigners=2)
    assert found.tolist() == [(3 + 1) % 4, (3 + 1) % 4, 0]


# --------------------------------------------------------------------------------- tables


def test_replayed_golden_steps_give_the_same_index(tmp_path: pathlib.Path) -> None:
    case = json.loads((GOLDEN / "case.json").read_text(encoding="utf-8"))
    expected = json.loads((GOLDEN / "expected/files.json").read_text(encoding="utf-8"))
    columns = [(column["name"], column["type"]) for column in case["columns"]]
    table = make_table(tmp_path, columns=columns, keys=("k",), options=case["options"])
    for number, step in enumerate(case["steps"], start=1):
        write(table, number, step["rows"])
        wanted = {
            (EMPTY_ROW, file["bucket"]): file["hashes"]
            for file in expected[str(number)]["index_files"]
        }
        assert index_of(table) == wanted
    latest = json.loads((GOLDEN / "expected/latest.json").read_text(encoding="utf-8"))
    assert rows_of(reopened(table)) == sorted(map(tuple, latest), key=repr)


def test_the_golden_table_can_be_written_on(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(tmp_path, options={"dynamic-bucket.target-row-num": "3"})
    write(table, 1, [("+I", "a", i, "x") for i in range(7)])
    before = buckets_by_row(table)
    again = reopened(table)
    write(again, 2, [("+U", "a", i, "y") for i in range(10)], user="other")
    after = buckets_by_row(again)
    assert {key: after[key] for key in before} == before
    assert {row[2] for row in rows_of(again)} == {"y"}
    assert sum(map(len, index_of(again).values())) == 10
    assert max(map(len, index_of(again).values())) == 3


def test_an_index_file_is_written_only_for_buckets_with_new_keys(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(tmp_path, options={"dynamic-bucket.target-row-num": "2"})
    write(table, 1, [("+I", "a", 1, "x"), ("+I", "a", 2, "x"), ("+I", "a", 3, "x")])
    (message,) = prepared(table, [("+U", "a", 1, "y")])
    assert message.data.new_index_files == ()
    table.delete_uncommitted([message])
    (message,) = prepared(table, [("+I", "a", 4, "y")])
    assert message.bucket == 1
    assert [file.row_count for file in message.data.new_index_files] == [2]
    assert len(message.data.deleted_index_files) == 1
    before = set(pathlib.Path(table.layout.index_dir).iterdir())
    table.delete_uncommitted([message])
    assert len(before - set(pathlib.Path(table.layout.index_dir).iterdir())) == 1


def test_partitions_have_indexes_of_their_own(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(
        tmp_path, partitioned=True, options={"dynamic-bucket.target-row-num": "2"}
    )
    write(table, 1, [("+I", p, i, "x") for i in range(4) for p in "ab"])
    assert sorted(bucket for _, bucket in index_of(table)) == [0, 0, 1, 1]
    write(table, 2, [("-D", "a", 0, None), ("+I", "b", 9, "z")])
    assert len(rows_of(table)) == 8


def test_one_writer_over_several_commits_keeps_its_index(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(tmp_path, options={"dynamic-bucket.target-row-num": "4"})
    with table.new_write("user") as writer:
        for number in range(1, 6):
            rows = [("+I", "a", i, str(number)) for i in range(number * 3)]
            writer.write(rows_batch(table, rows))
            table.new_commit("user").commit(writer.prepare_commit(), number)
    assert len(buckets_by_row(table)) == 15
    assert sorted(map(len, index_of(table).values())) == [3, 4, 4, 4]


def test_what_was_not_committed_is_forgotten(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(tmp_path, options={"dynamic-bucket.target-row-num": "1"})
    write(table, 1, [("+I", "a", 0, "x")])
    with table.new_write("user") as writer:
        writer.write(rows_batch(table, [("+I", "a", 1, "x")]))
        table.delete_uncommitted(writer.prepare_commit())
        write(table, 2, [("+I", "a", 2, "x")], user="other")  # takes bucket 1
        writer.write(rows_batch(table, [("+I", "a", 1, "y")]))
        table.new_commit("user").commit(writer.prepare_commit(), 3)
    assert buckets_by_row(table) == {("a", 0): 0, ("a", 2): 1, ("a", 1): 2}
    assert len(index_of(table)) == 3


def test_an_overwrite_starts_with_a_fresh_index(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(
        tmp_path, partitioned=True, options={"dynamic-bucket.target-row-num": "2"}
    )
    write(table, 1, [("+I", p, i, "x") for i in range(6) for p in "ab"])
    kept = {bucket: found for bucket, found in index_of(table).items() if b"b" in bucket[0]}
    messages = prepared(table, [("+I", "a", i, "y") for i in range(5, 7)], overwrite=True)
    table.new_commit("batch").overwrite(messages, 1)
    assert [row for row in rows_of(table) if row[0] == "a"] == [("a", 5, "y"), ("a", 6, "y")]
    found = index_of(table)
    assert {bucket: one for bucket, one in found.items() if b"b" in bucket[0]} == kept
    assert sum(len(one) for bucket, one in found.items() if b"b" not in bucket[0]) == 2


def test_two_processes_share_the_keys(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(
        tmp_path, partitioned=True, options={"dynamic-bucket.target-row-num": "3"}
    )
    shares = [AssignerShare(number, channels=2, assigners=2) for number in range(2)]
    part = hash_rows([pa.array(["a"])], [parse_type("STRING NOT NULL")])
    keys = list(range(40))
    owners = assigners_of(
        part, hash_rows([pa.array(keys, pa.int32())], [INT]), channels=2, assigners=2
    )
    for number in (1, 2):
        messages = []
        for share in shares:
            rows = [("+I", "a", k, str(number)) for k in keys if owners[k] == share.number]
            with table.new_write("user", share=share) as writer:
                writer.write(rows_batch(table, rows))
                messages += writer.prepare_commit()
        table.new_commit("user").commit(messages, number)
        found = buckets_by_row(table)
        assert len(found) == 40
        assert {bucket % 2 for key, bucket in found.items() if owners[key[1]] == 0} == {0}
    assert sum(map(len, index_of(table).values())) == 40
    with (
        pytest.raises(InvalidRequestError, match="does not assign"),
        table.new_write("user", share=shares[0]) as writer,
    ):
        writer.write(rows_batch(table, [("+I", "a", k, "x") for k in keys]))


def test_the_hash_is_that_of_the_trimmed_key(tmp_path: pathlib.Path) -> None:
    table = dynamic_table(tmp_path, partitioned=True)
    write(table, 1, [("+I", "a", 42, "x")])
    (found,) = index_of(table).values()
    assert found == hash_rows([pa.array([42], pa.int32())], [INT]).tolist() == [907821237]


def test_a_bucket_key_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidOptionError, match="Cannot define 'bucket-key' with bucket = -1"):
        dynamic_table(tmp_path, options={"bucket-key": "k"})


def test_the_stream_does_not_write_single_buckets(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="bucket by bucket"):
        dynamic_table(tmp_path).bucket_writer(EMPTY_ROW, 0, None)
