# SPDX-License-Identifier: Apache-2.0
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.row.binary_row import encode_row
from storage.format.row.bucket import assign_buckets, hash_rows, murmur_rows
from storage.format.row.row_codec import from_row_values
from storage.format.types.types import parse_type
from tests.unit.storage.format.row.test_binary_row import batches, columns_of

BIGINT, STRING = parse_type("BIGINT"), parse_type("STRING")


def murmur(data):
    """The textbook form, one word at a time."""
    mask = 0xFFFFFFFF

    def rotated(x, bits):
        return (x << bits | x >> (32 - bits)) & mask

    state = 42
    for i in range(0, len(data), 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & mask
        state ^= rotated(k, 15) * 0x1B873593 & mask
        state = (rotated(state, 13) * 5 + 0xE6546B64) & mask
    state ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & mask
    return state - 2**32 if state >> 31 else state


@given(batches(nested=True))
@settings(max_examples=100, deadline=None)
def test_columns_hash_like_the_bytes_of_their_rows(batch):
    types, rows = batch
    expected = [murmur(encode_row(row, types)[4:]) for row in rows]
    assert hash_rows(columns_of(types, rows), types).tolist() == expected


def test_blocks_do_not_show():
    count = 40_000
    texts = [None if i % 11 == 0 else "x" * (i % 23) + str(i) for i in range(count)]
    column = pa.array(texts)
    whole = hash_rows([column], [STRING])
    for start in (0, 16_383, 16_384, 39_999):
        assert hash_rows([column[start : start + 1]], [STRING])[0] == whole[start]
        assert whole[start] == murmur(encode_row([texts[start]], [STRING])[4:])


def test_chunked_and_empty_columns():
    chunked = pa.chunked_array([[1], [2, 3]])
    assert (
        hash_rows([chunked], [BIGINT]).tolist()
        == hash_rows([pa.array([1, 2, 3])], [BIGINT]).tolist()
    )
    assert len(hash_rows([pa.array([], pa.int64())], [BIGINT])) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 100, 1023])
def test_default_buckets_are_java_remainders(count):
    column = pa.array(np.arange(-500, 500))
    hashes = hash_rows([column], [BIGINT]).tolist()
    expected = [abs(int(np.fmod(h, count))) for h in hashes]
    assert assign_buckets([column], [BIGINT], count).tolist() == expected


def test_mod_takes_the_floor_and_one_integer():
    buckets = assign_buckets([pa.array([17, -3, 5, None])], [BIGINT], 5, "mod")
    assert buckets.tolist() == [2, 2, 0, 0]
    with pytest.raises(UnsupportedFeatureError, match="exactly one"):
        assign_buckets([pa.array(["a"])], [STRING], 5, "mod")
    with pytest.raises(UnsupportedFeatureError, match="exactly one"):
        assign_buckets([pa.array([1])] * 2, [BIGINT] * 2, 5, "mod")


def test_hive_hash_ignores_trailing_zeros_and_the_sign_of_zero():
    small, large = parse_type("DECIMAL(18, 4)"), parse_type("DECIMAL(38, 4)")
    values = [decimal.Decimal(text) for text in ("0", "1.5", "-120", "12345678901.25", "-0.0001")]
    for type_ in (small, large):
        columns = [from_row_values([*values, None], type_)]
        buckets = assign_buckets(columns, [type_], 2**20, "hive").tolist()
        wide = parse_type("DECIMAL(38, 10)")
        again = assign_buckets([from_row_values([*values, None], wide)], [wide], 2**20, "hive")
        assert buckets == again.tolist()
    zeros = pa.array([0.0, -0.0])
    first, second = assign_buckets([zeros], [parse_type("DOUBLE")], 1000, "hive")
    assert first == second


def test_hive_hash_of_texts_is_a_polynomial():
    texts = ["", "a", "Lakeward", "ü" * 5, None]

    def java(text):
        h = 0
        for byte in np.frombuffer(text.encode(), np.int8).tolist():
            h = (31 * h + byte) & 0xFFFFFFFF
        return (h & 0x7FFFFFFF) % 97

    buckets = assign_buckets([pa.array(["skipped", *texts])[1:]], [STRING], 97, "hive")
    assert buckets.tolist() == [java(text or "") for text in texts]


def test_requests_that_make_no_sense():
    with pytest.raises(InvalidRequestError, match="bucket-key"):
        hash_rows([], [])
    with pytest.raises(InvalidRequestError, match="fixed number"):
        assign_buckets([pa.array([1])], [BIGINT], -1)
    with pytest.raises(InvalidRequestError, match="unknown bucket function"):
        assign_buckets([pa.array([1])], [BIGINT], 2, "murmur9")


def test_encoded_rows_hash_too():
    data = bytes(range(16))
    assert murmur_rows(np.frombuffer(data, np.uint8).reshape(1, 16)).tolist() == [murmur(data)]
