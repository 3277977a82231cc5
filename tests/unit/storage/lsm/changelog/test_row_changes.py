# SPDX-License-Identifier: Apache-2.0
import math
import struct

import numpy as np
import pyarrow as pa
import pytest

from storage.lsm.changelog import ChangeRule, equal_rows, row_changes
from storage.options.options import TableOptions

SCHEMA = pa.schema(
    [("_SEQUENCE_NUMBER", pa.int64()), ("_VALUE_KIND", pa.int8()), ("k", pa.int64()),
     ("v", pa.string()), ("w", pa.float64())]
)  # fmt: skip
KINDS = ("+I", "-U", "+U", "-D")
ALWAYS = ChangeRule()
ONCE = ChangeRule(row_deduplicate=True)


def _batch(*rows):
    """Rows (sequence number, kind, k, v, w)."""
    columns = [[row[i] for row in rows] for i in range(5)]
    columns[1] = [KINDS.index(kind) for kind in columns[1]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _told(before, before_at, after, after_at, rule=ALWAYS):
    changes = row_changes(
        before, np.array(before_at, np.int64), after, np.array(after_at, np.int64), rule=rule
    )
    assert changes.schema == SCHEMA
    return [
        (row["_SEQUENCE_NUMBER"], KINDS[row["_VALUE_KIND"]], row["k"], row["v"], row["w"])
        for row in changes.to_pylist()
    ]


def test_each_case_of_the_table():
    before = _batch((1, "+U", 2, "b", None), (2, "+I", 3, "c", None), (3, "+I", 4, "d", 1.0))
    after = _batch((5, "+U", 1, "a", None), (6, "-D", 2, "x", None), (7, "+I", 3, "C", 2.0))
    assert _told(before, [-1, 0, 1, 2, -1], after, [0, 1, 2, -1, -1]) == [
        (5, "+I", 1, "a", None),
        (1, "-D", 2, "b", None),
        (2, "-U", 3, "c", None),
        (7, "+U", 3, "C", 2.0),
        (3, "-D", 4, "d", 1.0),
    ]


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_a_row_that_takes_back_counts_as_none(kind):
    row, gone = _batch((1, "+I", 1, "a", None)), _batch((2, kind, 1, "b", None))
    assert _told(gone, [0], row, [0]) == [(1, "+I", 1, "a", None)]
    assert _told(row, [0], gone, [0]) == [(1, "-D", 1, "a", None)]
    assert _told(gone, [0], gone, [0]) == []


def test_equal_rows_are_told_unless_deduplicated():
    before = _batch((1, "+I", 1, "a", math.nan), (2, "+I", 2, None, 0.0))
    after = _batch((3, "+U", 1, "a", math.nan), (4, "+U", 2, None, -0.0))
    kinds = [row[1] for row in _told(before, [0, 1], after, [0, 1])]
    assert kinds == ["-U", "+U", "-U", "+U"]
    assert _told(before, [0, 1], after, [0, 1], ONCE) == [
        (2, "-U", 2, None, 0.0),
        (4, "+U", 2, None, -0.0),
    ]
    but_w = ChangeRule(row_deduplicate=True, ignore_fields=("w",))
    assert _told(before, [0, 1], after, [0, 1], but_w) == []


def test_rows_may_be_in_any_order_and_in_one_batch():
    rows = _batch((1, "+I", 2, "b", None), (2, "+I", 1, "a", None), (3, "+I", 2, "c", None))
    assert _told(rows, [-1, 0], rows, [1, 2]) == [
        (2, "+I", 1, "a", None),
        (1, "-U", 2, "b", None),
        (3, "+U", 2, "c", None),
    ]
    empty = rows.slice(0, 0)
    assert _told(empty, [-1, -1], rows, [1, 0])[0] == (2, "+I", 1, "a", None)
    assert _told(empty, [], empty, []) == []


def test_the_rule_comes_from_the_options():
    raw = {
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
        "changelog-producer.row-deduplicate-ignore-fields": "a, b",
    }
    assert ChangeRule.of(TableOptions.from_strings(raw)) == ChangeRule(True, ("a", "b"))
    assert ChangeRule.of(TableOptions.from_strings({})) == ChangeRule()


OTHER_NAN = struct.unpack("<d", struct.pack("<q", 0x7FF8_0000_0000_0001))[0]


@pytest.mark.parametrize(
    ("type_", "pairs"),
    [
        (pa.int32(), [(1, 1, True), (1, 2, False), (None, None, True), (None, 0, False)]),
        (pa.string(), [("a", "a", True), ("", None, False), ("a", "b", False)]),
        (pa.bool_(), [(True, True, True), (True, False, False), (False, None, False)]),
        (pa.binary(), [(b"\0", b"\0", True), (b"", b"\0", False)]),
        (pa.float64(), [(math.nan, OTHER_NAN, True), (0.0, -0.0, False), (1.5, 1.5, True)]),
        (pa.float32(), [(math.nan, 1.0, False), (math.inf, math.inf, True)]),
        (
            pa.list_(pa.int32()),
            [([1, None], [1, None], True), ([1], [1, 1], False), ([], None, False),
             ([], [], True), ([2], [3], False), (None, None, True)],
        ),
        (
            pa.map_(pa.string(), pa.float64()),
            [([("a", 1.0), ("b", math.nan)], [("b", math.nan), ("a", 1.0)], True),
             ([("a", 1.0)], [("a", 2.0)], False), ([("a", 1.0)], [("c", 1.0)], False),
             ([], None, False), ([("a", None)], [("a", None)], True)],
        ),
        (
            pa.struct([("x", pa.int32()), ("y", pa.list_(pa.float64()))]),
            [({"x": 1, "y": [0.0]}, {"x": 1, "y": [-0.0]}, False),
             ({"x": 1, "y": None}, {"x": 1, "y": None}, True),
             (None, {"x": None, "y": None}, False), (None, None, True)],
        ),
        (pa.list_(pa.float32(), 2), [([1.0, 2.0], [1.0, 2.0], True), ([1.0, 2.0], None, False),
                                     ([1.0, 2.0], [1.0, 3.0], False)]),
    ],
)  # fmt: skip
def test_values_are_compared_by_what_they_hold(type_, pairs):
    left = pa.array([None, *(pair[0] for pair in pairs)], type_)
    right = pa.array([None, *(pair[1] for pair in pairs)], type_)
    expected = [pair[2] for pair in pairs]
    assert equal_rows(left, right).tolist() == [True, *expected]
    assert equal_rows(left.slice(1), right.slice(1)).tolist() == expected
    assert equal_rows(left.slice(0, 0), right.slice(0, 0)).tolist() == []
