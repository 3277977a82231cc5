# SPDX-License-Identifier: Apache-2.0
"""64-bit bitmaps in Java's layout: bytes that Paimon 2.0's library wrote, and all shapes back."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from storage.errors import CorruptDataError
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import DataField, parse_type
from storage.lsm.merge_functions.aggregators import aggregator_for
from storage.lsm.merge_functions.aggregators.sketches import (
    decode_java,
    encode_java,
    looks_like_java,
)
from storage.lsm.merge_functions.segments import Segments

JAVA = {
    (): "00",
    (1, 2, 3, 70000, 1 << 40): (
        "010300000000000000000200020000000001000002000200000000010004000000000000000000000000000000"
        "000004000000000000000001010000000000000004000000000001000000020000000000000001000000fe0300"
        "00000102030000000100020003000102010000007011010201000000000003000000000000000000000002000000"
    ),
    (5, 2**64 - 1): (
        "010200000000000000000200000000ff0004000000000000000000000000000000000004000000ffffffffffff"
        "010000000000000001000000fe020000000102010000000500010201000000ffff020000000000000000000000"
        "01000000"
    ),
    tuple(range(65530, 65630)): (
        "0102000000000000000002000500000000000000010004000000000000000000000000000000000004000000"
        "000000000001010000000000000001000000fe020000000100060000000100faff050001005e00000001000000"
        "5d0002000000000000000000000001000000"
    ),
}


def union_64(sets):
    """What `rbm64` makes of the sets of one key."""
    field = DataField(id=0, name="v", type=parse_type("BYTES"))
    schema = TableSchema(id=0, fields=(), highest_field_id=0)
    values = pa.array(sets, pa.binary())
    (union,) = aggregator_for("rbm64", field, {}, schema).reduce(
        values, Segments(np.zeros(1, dtype=np.int64), len(sets))
    )
    return union.as_py()


def uint64(values):
    return np.array(values, dtype=np.uint64)


@pytest.mark.parametrize("values", JAVA, ids=lambda values: f"{len(values)} values")
def test_bytes_of_java(values):
    data = bytes.fromhex(JAVA[values])
    assert looks_like_java(data)
    assert decode_java(data).tolist() == list(values)
    assert encode_java(uint64(values)) == data


def test_a_container_of_bits_as_java_writes_it():
    data = encode_java(np.arange(0, 210_000, 3, dtype=np.uint64))
    wanted = "01192c05cb93ecf256494b99a3b3617e3650526e585b56847f920a0be9190047"
    assert hashlib.sha256(data).hexdigest() == wanted


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16, 17, 48, 49, 256])
@pytest.mark.parametrize("shift", [16, 24, 40, 56])
def test_nodes_of_every_size(count, shift):
    values = uint64([(place * 7 % 256) << shift | place for place in range(count)])
    assert decode_java(encode_java(np.sort(values))).tolist() == sorted(values.tolist())


NUMBERS = (
    st.integers(0, 2**64 - 1) | st.integers(0, 2**20) | st.integers(0, 9).map(lambda n: n << 40)
)


@given(values=st.sets(NUMBERS, max_size=60), run=st.integers(0, 2**63))
@settings(derandomize=True, max_examples=80, deadline=None)
def test_sets_come_back(values, run):
    values = sorted(values | set(range(run, run + 50)))
    assert decode_java(encode_java(uint64(values))).tolist() == values


@given(values=st.sets(NUMBERS, max_size=20), further=st.sets(NUMBERS, max_size=20))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_unions_are_in_javas_layout_when_a_part_is(values, further):
    java = encode_java(uint64(sorted(values)))
    portable, other = BitMap64(values).serialize(), BitMap64(further).serialize()
    union = sorted(values | further)
    assert decode_java(union_64([java, other])).tolist() == union
    assert decode_java(union_64([other, java])).tolist() == union
    assert BitMap64.deserialize(union_64([portable, other])) == BitMap64(union)


@pytest.mark.parametrize("bitmaps", [0, 1, 2, 257, 513])
@pytest.mark.parametrize("first", [0, 1, 255, 256])
def test_portable_bytes_are_taken_for_what_they_are(bitmaps, first):
    values = BitMap64((first + place) << 32 | 7 for place in range(bitmaps))
    data = values.serialize()
    assert BitMap64.deserialize(union_64([data, data])) == values


def test_broken_bytes():
    data = bytes.fromhex(JAVA[5, 2**64 - 1])
    for broken in (data[:-1], data + b"\0", data[:30], data[:1] + b"\5" + data[2:], b"\1"):
        with pytest.raises(CorruptDataError, match="not a 64-bit Java roaring bitmap"):
            decode_java(broken)
