# SPDX-License-Identifier: Apache-2.0
import datetime
import decimal
import functools
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import UnsupportedFeatureError
from storage.lsm.key_order import (
    comparable,
    key_at,
    lower_bound,
    sort_and_group,
    sort_permutation,
)


def _java_bits(value, single):
    """Order of Float.compare / Double.compare, from their definition."""
    if math.isnan(value):
        return (1, 0.0, 0)
    return (0, value, 0 if math.copysign(1, value) < 0 else 1)


def _float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


_DECIMAL = decimal.Context(prec=60)


def _decimals(digits, scale):
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(
        lambda unscaled: _DECIMAL.scaleb(decimal.Decimal(unscaled), -scale)
    )


_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=20) | st.text(
    alphabet="ab\0é😀", max_size=30
)
_SHARED = st.builds("customer-{}-{}".format, st.integers(0, 30), st.text("xyz", max_size=9))

# name -> (Arrow type, values, what Python sorts them by)
_TYPES = {
    "int8": (pa.int8(), st.integers(-128, 127), None),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1), None),
    "int64": (pa.int64(), _INT64 | st.integers(-3, 3), None),
    "bool": (pa.bool_(), st.booleans(), None),
    "string": (pa.string(), _TEXT, str.encode),
    "prefix": (pa.string(), _SHARED, str.encode),
    "long": (pa.string(), st.text("ab", min_size=70, max_size=90), str.encode),
    "large": (pa.large_string(), _TEXT, str.encode),
    "binary": (pa.binary(), st.binary(max_size=12), None),
    "float": (pa.float32(), st.floats(width=32), functools.partial(_java_bits, single=True)),
    "double": (pa.float64(), st.floats(), functools.partial(_java_bits, single=False)),
    "small decimal": (pa.decimal128(10, 2), _decimals(10, 2), None),
    "large decimal": (pa.decimal128(38, 4), _decimals(38, 4), None),
    "date": (pa.date32(), st.dates(), None),
    "time": (pa.time32("ms"), st.times().map(lambda t: t.replace(microsecond=0)), None),
    "timestamp": (pa.timestamp("us"), st.datetimes(), None),
    "zoned": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(datetime.UTC)), None),
    "nanoseconds": (pa.timestamp("ns"), _INT64, None),
}


@st.composite
def _keyed(draw, columns=None, max_size=40):
    names = columns or draw(st.lists(st.sampled_from(sorted(_TYPES)), min_size=1, max_size=3))
    size = draw(st.integers(0, max_size))
    arrays, orders = [], []
    for name in names:
        arrow_type, values, order = _TYPES[name]
        pool = draw(st.lists(st.none() | values, min_size=1, max_size=12))
        column = draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size))
        arrays.append(pa.array(column, arrow_type))
        order = order or (lambda value: value)
        orders.append([(0,) if v is None else (1, order(v)) for v in column])
    labels = [f"k{position}" for position in range(len(names))]
    keys = [tuple(column[row] for column in orders) for row in range(size)]
    return pa.RecordBatch.from_arrays(arrays, names=labels), labels, keys


@given(_keyed())
@settings(max_examples=80, deadline=None)
def test_rows_are_sorted_stably_in_key_order(case):
    batch, names, keys = case
    expected = sorted(range(len(keys)), key=lambda row: keys[row])
    assert sort_permutation(batch, names).tolist() == expected
    groups = sort_and_group(batch, names)
    order = list(range(len(keys))) if groups.order is None else groups.order.tolist()
    assert order == expected
    ordered = [keys[row] for row in expected]
    starts = [row for row in range(len(keys)) if row == 0 or ordered[row] != ordered[row - 1]]
    assert groups.starts.tolist() == starts


@given(_keyed(), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_slices_sort_like_copies(case, front, back):
    batch, names, keys = case
    end = max(front, batch.num_rows - back)
    part = batch.slice(front, end - front)
    keys = keys[front:end]
    expected = sorted(range(len(keys)), key=lambda row: keys[row])
    assert sort_permutation(part, names).tolist() == expected


@given(_keyed())
@settings(max_examples=25, deadline=None)
def test_single_keys_compare_like_rows(case):
    batch, names, keys = case
    batch = batch.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64()))
    keys = sorted(keys)
    singles = [key_at(batch, names, row) for row in range(len(keys))]
    for left in range(len(keys)):
        first = next(row for row in range(len(keys)) if keys[row] == keys[left])
        assert lower_bound(batch, names, singles[left]) == first
    assert singles == sorted(singles)


@pytest.mark.parametrize("kind", ["random", "runs", "sorted", "wide"])
def test_many_rows_take_every_sorting_path(kind):
    generator = np.random.default_rng(7)
    keys = {
        "random": generator.integers(0, 5_000, 10_000),
        "runs": np.concatenate([np.sort(generator.integers(0, 9_000, 2_500)) for _ in range(4)]),
        "sorted": np.sort(generator.integers(0, 3_000, 10_000)),
        "wide": generator.integers(-(2**63), 2**63 - 1, 10_000),
    }[kind]
    batch = pa.RecordBatch.from_arrays([pa.array(keys)], names=["k"])
    groups = sort_and_group(batch, ["k"])
    expected = np.argsort(keys, kind="stable")
    assert (groups.order is None) == (kind == "sorted")
    order = np.arange(len(keys)) if groups.order is None else groups.order
    assert (order == expected).all()
    assert len(groups.starts) == len(np.unique(keys))


def test_many_texts_with_a_common_prefix_sort_by_bytes():
    generator = np.random.default_rng(3)
    texts = [f"customer-{value:x}" for value in generator.integers(0, 2**40, 5_000)]
    batch = pa.RecordBatch.from_arrays([pa.array(texts)], names=["k"])
    assert [texts[row] for row in sort_permutation(batch, ["k"])] == sorted(texts)


def test_the_second_column_orders_rows_of_one_key():
    batch = pa.RecordBatch.from_pydict({"k": [2, 1, 2, 1], "s": [5, 9, 4, 8]})
    assert sort_permutation(batch, ["k", "s"]).tolist() == [3, 1, 2, 0]


def test_code_points_sort_as_utf8_bytes_not_as_utf16():
    texts = ["\U00010000", "\uffff", "z", "\u00e9", ""]
    batch = pa.RecordBatch.from_arrays([pa.array(texts)], names=["k"])
    ordered = [texts[row] for row in sort_permutation(batch, ["k"])]
    assert ordered == ["", "z", "\u00e9", "\uffff", "\U00010000"]


def test_floats_sort_as_java_compares_them():
    values = [math.nan, math.inf, 0.0, -0.0, -math.inf, None, 1.5, -math.nan]
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], names=["k"])
    assert sort_permutation(batch, ["k"]).tolist() == [5, 4, 3, 2, 6, 1, 0, 7]
    assert comparable((-0.0,)) < comparable((0.0,)) < comparable((math.inf,))
    assert comparable((math.inf,)) < comparable((math.nan,)) == comparable((-math.nan,))
    assert comparable((None,)) < comparable((-math.inf,))


def test_a_nested_column_is_no_key():
    batch = pa.RecordBatch.from_pydict({"k": [[1], [2]]})
    with pytest.raises(UnsupportedFeatureError, match="cannot be part of a key"):
        sort_permutation(batch, ["k"])


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one_row_are_sorted(rows):
    batch = pa.RecordBatch.from_pydict({"k": pa.array([1][:rows], pa.int64())})
    groups = sort_and_group(batch, ["k"])
    assert groups.order is None
    assert groups.starts.tolist() == [0][:rows]
    assert sort_permutation(batch, ["k"]).tolist() == list(range(rows))
