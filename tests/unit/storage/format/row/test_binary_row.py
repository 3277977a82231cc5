# SPDX-License-Identifier: Apache-2.0
"""Many rows at once must be the bytes of one row at a time; the latter is pinned by golden data."""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.row.binary_row import (
    Timestamp,
    arity,
    decode_row,
    encode_row,
    encode_rows,
    frame,
)
from storage.format.row.row_codec import from_row_values, to_row_values
from storage.format.types.types import parse_type
from tests.golden.json_values import golden_type
from tests.property.profiles import profile

INT64 = st.integers(-(2**63), 2**63 - 1)


def decimals(precision, scale):
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(
        lambda unscaled: decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=40))
    )


def timestamps(step):
    nanos = st.integers(0, 999_999 // step).map(lambda n: n * step)
    return st.builds(Timestamp, st.integers(-(2**42), 2**42), nanos)


COLUMNS = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": INT64,
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "DATE": st.integers(-(2**31), 2**31 - 1),
    "TIME(3)": st.integers(0, 86_399_999),
    "STRING": st.text(max_size=30),
    "BYTES": st.binary(max_size=40),
    "DECIMAL(18, 2)": decimals(18, 2),
    "DECIMAL(19, 4)": decimals(19, 4),
    "DECIMAL(38, 10)": decimals(38, 10),
    "TIMESTAMP(3)": timestamps(1_000_000),
    "TIMESTAMP(6)": timestamps(1_000),
    "TIMESTAMP_LTZ(9)": timestamps(1),
}
NESTED = {
    "ARRAY": ({"type": "ARRAY", "element": "STRING"}, st.lists(st.none() | st.text(max_size=12))),
    "ROW": (
        {"type": "ROW", "fields": [{"name": "t", "type": "TIMESTAMP(6)"},
                                   {"name": "i", "type": "INT"}]},
        st.tuples(st.none() | timestamps(1_000), st.none() | st.integers(0, 9)),
    ),
    "MAP": (
        {"type": "MAP", "key": "STRING", "value": "DOUBLE"},
        st.lists(st.tuples(st.text(max_size=10), st.none() | st.floats(allow_nan=False))),
    ),
}  # fmt: skip


@st.composite
def batches(draw, nested=False):
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5))
    types = [parse_type(name) for name in names]
    values = [COLUMNS[name] for name in names]
    if nested:
        type_, value = NESTED[draw(st.sampled_from(sorted(NESTED)))]
        types.append(golden_type(type_))
        values.append(value)
    row = st.tuples(*(st.none() | value for value in values))
    return types, draw(st.lists(row, max_size=8))


def columns_of(types, rows):
    return [from_row_values([row[i] for row in rows], type_) for i, type_ in enumerate(types)]


@given(batches())
@profile(short=60, long=600)
def test_columns_and_single_rows_agree(batch):
    types, rows = batch
    columns = columns_of(types, rows)
    framed = [encode_row(row, types) for row in rows]
    assert [frame(row, len(types)) for row in encode_rows(columns, types).to_pylist()] == framed


@given(batches(nested=True))
@settings(max_examples=60, deadline=None)
def test_values_return(batch):
    types, rows = batch
    assert [decode_row(encode_row(row, types), types) for row in rows] == rows
    columns = columns_of(types, rows)
    returned = [to_row_values(c, t) for c, t in zip(columns, types, strict=True)]
    assert list(zip(*returned, strict=True)) == rows
    framed = [frame(row, len(types)) for row in encode_rows(columns, types).to_pylist()]
    assert framed == [encode_row(row, types) for row in rows]
    tail = [column[2:] for column in columns]
    returned = [to_row_values(c, t) for c, t in zip(tail, types, strict=True)]
    assert list(zip(*returned, strict=True)) == rows[2:]


def test_slices_of_columns_are_encoded_from_their_own_start():
    types = [parse_type("STRING"), parse_type("BOOLEAN"), parse_type("DECIMAL(20, 0)")]
    rows = [(f"text number {i}" * (i % 3), i % 2 == 0, decimal.Decimal(i)) for i in range(50)]
    columns = [column[17:31] for column in columns_of(types, rows)]
    encoded = encode_rows(columns, types).to_pylist()
    assert [frame(row, 3) for row in encoded] == [encode_row(row, types) for row in rows[17:31]]


def test_bytes_under_nulls_do_not_leak():
    valid = pa.py_buffer(b"\x01")  # row 0 only; row 1 is null over leftover bytes
    offsets = pa.py_buffer(np.array([0, 1, 12], np.int32))
    texts = pa.Array.from_buffers(
        pa.string(), 2, [valid, offsets, pa.py_buffer(b"a" + b"leftover..." + bytes(64))]
    )
    numbers = pa.Array.from_buffers(
        pa.int64(), 2, [valid, pa.py_buffer(np.array([7, 9], np.int64))]
    )
    types = [parse_type("STRING"), parse_type("BIGINT")]
    rows = encode_rows([texts, numbers], types).to_pylist()
    assert [frame(row, 2) for row in rows] == [
        encode_row(("a", 7), types),
        encode_row((None, None), types),
    ]


def test_columns_of_nulls_only():
    types = [parse_type("STRING"), parse_type("TIMESTAMP(6)"), parse_type("DECIMAL(30, 2)")]
    columns = [from_row_values([None, None], type_) for type_ in types]
    expected = encode_row([None] * 3, types)
    assert [frame(row, 3) for row in encode_rows(columns, types).to_pylist()] == [expected] * 2


def test_empty_batches():
    types = [parse_type("STRING"), parse_type("INT")]
    columns = columns_of(types, [])
    assert len(encode_rows(columns, types)) == 0


@pytest.mark.parametrize(
    "framed",
    [
        b"",
        b"\0\0",
        frame(bytes(16), 2),
        frame(bytes(8), 1),
        encode_row(["x" * 9], [parse_type("STRING")])[:-8],
        frame(bytes(8) + b"\xff" * 7 + b"\x7f", 1),
        encode_row([b"\xff"], [parse_type("BYTES")]),
    ],
)
def test_damaged_rows_are_named(framed):
    with pytest.raises(CorruptDataError):
        decode_row(framed, [parse_type("STRING")])


def test_arity_comes_before_the_row():
    assert arity(encode_row([1, 2], [parse_type("INT")] * 2)) == 2


def test_columns_of_the_wrong_type_are_refused():
    with pytest.raises(UnsupportedFeatureError):
        encode_rows([pa.array(["x"])], [parse_type("INT")])
