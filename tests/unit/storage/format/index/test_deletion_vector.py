# SPDX-License-Identifier: Apache-2.0
import struct
import zlib

import numpy as np
import pyroaring
import pytest

from storage.errors import CorruptDataError, InvalidRequestError
from storage.format.index import deletion_vector
from storage.format.index.deletion_vector import (
    bin_bytes,
    decode,
    encode,
    encode_file,
    encoded_64,
    in_form,
    recorded_length,
    roll,
)

NARROW = pyroaring.BitMap([1, 3, 5, 1000, 70000])
WIDE = pyroaring.BitMap64([1, 3, 5, 1000, 70000])
FAR = pyroaring.BitMap64([0, 2**33 + 7])


@pytest.mark.parametrize("bitmap", [NARROW, WIDE, FAR, pyroaring.BitMap(), pyroaring.BitMap64()])
def test_a_vector_is_read_back_in_its_form(bitmap):
    data = encode(bitmap)
    found = decode(data, length=recorded_length(data))
    assert type(found) is type(bitmap)
    assert found == bitmap


@pytest.mark.parametrize("bitmap64", [False, True])
@pytest.mark.parametrize("density", [0.0001, 0.02, 0.5, 0.999])
def test_random_vectors(density, bitmap64):
    random = np.random.default_rng(7)
    positions = np.flatnonzero(random.random(200_000) < density)
    data = encode(pyroaring.BitMap64(positions.astype(np.uint64)), bitmap64)
    assert np.array_equal(np.asarray(decode(data).to_array()), positions)


def test_writing_does_not_change_the_bitmap():
    bitmap = pyroaring.BitMap(range(10_000))
    before = bitmap.serialize()
    encode(bitmap)
    assert bitmap.serialize() == before


def test_a_vector_may_be_followed_by_others():
    data = encode(NARROW)
    assert decode(data + b"rest", length=recorded_length(data)) == NARROW
    assert bin_bytes(recorded_length(data)) >= len(data)
    assert bin_bytes(recorded_length(encode(WIDE))) >= len(encode(WIDE))


@pytest.mark.parametrize("form", [pyroaring.BitMap, pyroaring.BitMap64])
def test_a_vector_is_framed_in_the_64_bit_form(form):
    stored = encode(form([0, 3, 70_000]))
    framed = encoded_64(stored + b"more", length=recorded_length(stored))
    assert framed == encode(pyroaring.BitMap64([0, 3, 70_000]))
    with pytest.raises(CorruptDataError, match="checksum"):
        encoded_64(damaged(stored, 14, stored[14] ^ 1))


def test_forms_are_changed_without_loss():
    assert in_form(NARROW, True) == WIDE
    assert in_form(WIDE, False) == NARROW
    assert in_form(NARROW, False) is NARROW
    with pytest.raises(InvalidRequestError, match="bitmap64"):
        in_form(FAR, False)
    with pytest.raises(InvalidRequestError, match="bitmap64"):
        encode(pyroaring.BitMap64([2**31 - 1]), False)


def damaged(data, at, value):
    return data[:at] + bytes([value ^ data[at]]) + data[at + 1 :]


@pytest.mark.parametrize("bitmap", [NARROW, WIDE])
@pytest.mark.parametrize(
    ("at", "problem"),
    [(4, "magic"), (7, "magic"), (3, "cut short"), (12, "checksum"), (-1, "checksum")],
)
def test_damage_is_found_and_located(bitmap, at, problem):
    data = encode(bitmap)
    at %= len(data)
    with pytest.raises(CorruptDataError, match=problem) as raised:
        decode(damaged(data, at, 0x40), "index/f", 77)
    assert raised.value.context["path"] == "index/f"
    assert raised.value.context["offset"] == 77
    assert "expected" in raised.value.context


@pytest.mark.parametrize("bitmap", [NARROW, WIDE])
def test_every_cut_is_found(bitmap):
    data = encode(bitmap)
    for size in range(len(data)):
        with pytest.raises(CorruptDataError):
            decode(data[:size])


@pytest.mark.parametrize("bitmap", [NARROW, WIDE])
def test_the_recorded_length_must_agree(bitmap):
    data = encode(bitmap)
    with pytest.raises(CorruptDataError, match="wrong size"):
        decode(data, length=recorded_length(data) + 1)


@pytest.mark.parametrize("bitmap", [NARROW, WIDE])
def test_a_bitmap_that_is_none_is_found_behind_a_right_checksum(bitmap):
    content = encode(bitmap)[4:8] + b"\x01\x02\x03\x04\x05\x06\x07\x08\x09"
    data = struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    with pytest.raises(CorruptDataError, match="no bitmap"):
        decode(data)


def test_an_index_file_says_where_its_vectors_are():
    data, metas = encode_file({"a": NARROW, "b": WIDE, "c": FAR})
    assert data[:1] == b"\x01"
    assert [meta.data_file_name for meta in metas] == ["a", "b", "c"]
    assert [meta.cardinality for meta in metas] == [5, 5, 2]
    for meta, bitmap in zip(metas, (NARROW, WIDE, FAR), strict=True):
        assert decode(data[meta.offset :], length=meta.length) == bitmap
    assert encode_file({}) == (b"\x01", ())


def test_files_are_closed_by_size():
    vectors = {str(number): pyroaring.BitMap([number]) for number in range(7)}
    one = len(encode(vectors["0"]))
    assert [list(group) for group in roll(vectors, 1)] == [[str(n)] for n in range(7)]
    assert [len(group) for group in roll(vectors, 2 * one)] == [2, 2, 2, 1]
    assert [len(group) for group in roll(vectors, 10**6)] == [7]
    assert list(roll({}, 10)) == []


def test_a_hash_index_is_big_endian_and_whole():
    hashes = np.array([1, -1, 2**31 - 1, -(2**31)], np.int32)
    data = deletion_vector.encode_hashes(hashes)
    assert data.hex() == "00000001ffffffff7fffffff80000000"
    assert deletion_vector.decode_hashes(data).tolist() == hashes.tolist()
    assert deletion_vector.decode_hashes(b"").tolist() == []
    with pytest.raises(CorruptDataError, match="ends inside") as raised:
        deletion_vector.decode_hashes(data[:-1], "index/h")
    assert raised.value.context["offset"] == 12
