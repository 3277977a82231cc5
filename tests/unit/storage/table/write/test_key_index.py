# SPDX-License-Identifier: Apache-2.0
"""The on-disk key index against a plain dictionary, and the hashes it keeps."""

import pathlib
import shutil

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.format.row.bucket import key_hashes
from storage.format.types.types import parse_type
from storage.table.write import cross_partition
from storage.table.write.cross_partition import ABSENT, KeyIndex

SEED = (1, 2)


def hashes_of(*pairs: tuple[int, int]) -> npt.NDArray[np.uint64]:
    return np.array(pairs, np.uint64).reshape(-1, 2)


def places(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def test_found_and_absent_keys(tmp_path: pathlib.Path) -> None:
    index = KeyIndex(tmp_path / "index")
    assert index.find(hashes_of((1, 1))).tolist() == [ABSENT]
    index.put(hashes_of((5, 5), (1, 1)), places(50, 10))
    assert index.find(hashes_of((1, 1), (9, 9), (5, 5), (1, 1))).tolist() == [10, -1, 50, 10]


def test_hashes_that_agree_in_one_half_are_told_apart(tmp_path: pathlib.Path) -> None:
    index = KeyIndex(tmp_path / "index")
    pairs = [(7, 3), (7, 1), (7, 2), (8, 2)]
    index.put(hashes_of(*pairs), places(0, 1, 2, 3))
    assert index.find(hashes_of(*pairs)).tolist() == [0, 1, 2, 3]
    assert index.find(hashes_of((7, 9), (7, 0), (8, 1), (6, 2))).tolist() == [-1] * 4
    index.put(hashes_of((7, 2)), places(20))
    index.merge_all()
    assert index.find(hashes_of(*pairs)).tolist() == [0, 1, 20, 3]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 40), st.integers(0, 9), min_size=1), max_size=9))
def test_agrees_with_a_dictionary_on_disk_and_in_memory(
    tmp_path_factory: pytest.TempPathFactory, batches: list[dict[int, int]]
) -> None:
    directory = tmp_path_factory.mktemp("index")
    for memory_entries in (0, 10, 1_000):
        index = KeyIndex(directory / "i", memory_entries=memory_entries)
        model: dict[int, int] = {}
        for batch in batches:
            # few first halves, so that second halves matter
            index.put(hashes_of(*((key % 5, key) for key in batch)), places(*batch.values()))
            model |= batch
            wanted = [model.get(key, ABSENT) for key in range(41)]
            assert index.find(hashes_of(*((k % 5, k) for k in range(41)))).tolist() == wanted
        index.merge_all()
        assert len(index) == len(model)
        assert index.run_count <= 1
        wanted = [model.get(key, ABSENT) for key in range(41)]
        assert index.find(hashes_of(*((k % 5, k) for k in range(41)))).tolist() == wanted
        index.close()


def test_large_runs_are_merged_piece_by_piece(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_partition, "_MERGED_ENTRIES", 100)
    index = KeyIndex(tmp_path / "index", memory_entries=50)
    keys = pa.array(range(3_000), pa.int64())
    hashes = key_hashes([keys], [parse_type("BIGINT")], SEED)
    for start in range(0, 3_000, 250):
        index.put(hashes[start : start + 250], np.arange(start, start + 250))
    index.put(hashes[:1_000], np.arange(10_000, 11_000))
    index.merge_all()
    assert len(index) == 3_000
    assert index.disk_bytes == 3_000 * 24
    expected = np.r_[np.arange(10_000, 11_000), np.arange(1_000, 3_000)]
    assert (index.find(hashes) == expected).all()


def test_few_runs_are_searched(tmp_path: pathlib.Path) -> None:
    index = KeyIndex(tmp_path / "index")
    hashes = key_hashes([pa.array(range(64_000))], [parse_type("BIGINT")], SEED)
    for start in range(0, 64_000, 500):
        index.put(hashes[start : start + 500], np.arange(500))
        assert index.run_count <= 9


def test_entries_come_to_the_end_of_their_life(tmp_path: pathlib.Path) -> None:
    index = KeyIndex(tmp_path / "index", ttl_s=100, memory_entries=0)
    index.put(hashes_of((1, 1)), places(1), now_s=1_000)
    index.put(hashes_of((2, 2)), places(2), now_s=1_050)
    assert index.find(hashes_of((1, 1), (2, 2)), now_s=1_100).tolist() == [1, 2]
    assert index.find(hashes_of((1, 1), (2, 2)), now_s=1_101).tolist() == [ABSENT, 2]
    index.put(hashes_of((1, 1)), places(7), now_s=1_101)
    assert index.find(hashes_of((1, 1), (2, 2)), now_s=1_151).tolist() == [7, ABSENT]
    index.put(hashes_of((3, 3), (4, 4), (5, 5)), places(3, 4, 5), now_s=1_300)
    assert len(index) == 3


def test_close_removes_the_files_and_a_lost_directory_is_noticed(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "index"
    index = KeyIndex(directory, memory_entries=0)
    index.put(hashes_of((1, 1)), places(1))
    index.put(hashes_of((2, 2)), places(2))
    assert directory.is_dir()
    assert not index.is_incomplete
    shutil.rmtree(directory)
    assert index.is_incomplete
    index.close()
    index.close()
    assert not directory.exists()
    assert len(index) == 0


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("INT", pa.array([None, 0, 1, -1, 2**31 - 1], pa.int32())),
        ("STRING", pa.array([None, "", "a", "abcdefg", "abcdefgh", "abcdefgh\0", "x" * 300])),
        ("BYTES", pa.array([b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9, b"\0" * 16])),
        ("TIMESTAMP(6)", pa.array([None, 0, -1, 1, 1_000], pa.timestamp("us"))),
        ("DECIMAL(30, 2)", pa.array([None, "0.00", "0.01", "-0.01"]).cast(pa.decimal128(30, 2))),
    ],
)
def test_different_keys_have_different_hashes(type_: str, column: pa.Array) -> None:
    types = [parse_type(type_), parse_type("INT")]
    columns = [
        pa.concat_arrays([column, column]),
        pa.array([1] * len(column) + [None] * len(column), pa.int32()),
    ]
    hashes = key_hashes(columns, types, SEED)
    for lane in range(2):
        assert len(np.unique(hashes[:, lane])) == 2 * len(column)
    again = key_hashes([one.slice(1, 2) for one in columns], types, SEED)
    assert (again == hashes[1:3]).all()


def test_every_seed_has_hashes_of_its_own() -> None:
    keys = pa.array(range(1_000), pa.int64())
    types = [parse_type("BIGINT")]
    one, other = key_hashes([keys], types, (1, 2)), key_hashes([keys], types, (3, 4))
    assert len(np.intersect1d(one, other)) == 0
    assert len(np.intersect1d(one[:, 0], one[:, 1])) == 0


def test_bits_of_hashes_are_even() -> None:
    hashes = key_hashes([pa.array(range(20_000))], [parse_type("BIGINT")], (0, 0))
    for lane in range(2):
        bits = np.unpackbits(np.ascontiguousarray(hashes[:, lane]).view(np.uint8))
        shares = bits.reshape(-1, 64).mean(axis=0)
        assert abs(shares - 0.5).max() < 0.03
