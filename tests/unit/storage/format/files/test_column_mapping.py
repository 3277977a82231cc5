# SPDX-License-Identifier: Apache-2.0
"""Columns of old files follow the schema by field id, at any depth."""

import numpy as np
import pyarrow as pa
import pytest

from storage.errors import UnsupportedFeatureError
from storage.format.files.file_columns import conversion, keeps_values
from storage.format.types.casts import CastError
from storage.format.types.types import arrow_type, parse_type


def row(*fields, null=True):
    """A ROW of (id, name, type)."""
    return {
        "type": "ROW" if null else "ROW NOT NULL",
        "fields": [{"id": i, "name": name, "type": type_} for i, name, type_ in fields],
    }


def array(element):
    return {"type": "ARRAY", "element": element}


def mapped(key, value):
    return {"type": "MAP", "key": key, "value": value}


def convert(old, new, values):
    """The values as the new type; also as a slice, which must give the same."""
    source, target = parse_type(old), parse_type(new)
    step = conversion(source, target, "c")
    column = pa.array(values, arrow_type(source))
    padded = pa.concat_arrays([column, column]).slice(len(values))
    results = [column, padded] if step is None else [step(column), step(padded)]
    for result in results:
        result.validate(full=True)
        assert result.type == arrow_type(target)
    assert results[0].equals(results[1])
    return results[0].to_pylist()


OLD = row((1, "a", "INT"), (2, "b", "STRING"), (3, "gone", "INT"))
NEW = row((4, "added", "DATE"), (2, "bb", "STRING"), (1, "a", "BIGINT"))
BEFORE = {"a": 7, "b": "x", "gone": 1}
AFTER = {"added": None, "bb": "x", "a": 7}


@pytest.mark.parametrize(
    ("wrap", "before", "after"),
    [
        (lambda r: r, [BEFORE, None], [AFTER, None]),
        (array, [[BEFORE, None], None, []], [[AFTER, None], None, []]),
        (lambda r: mapped("INT", r), [[(1, BEFORE)], None], [[(1, AFTER)], None]),
        (lambda r: array(array(r)), [[[BEFORE], None]], [[[AFTER], None]]),
        (lambda r: row((9, "r", array(mapped("STRING", r)))),
         [{"r": [[("k", BEFORE)]]}, {"r": None}, None],
         [{"r": [[("k", AFTER)]]}, {"r": None}, None]),
        (lambda r: {"type": "MULTISET", "element": r}, [[(BEFORE, 2)], []], [[(AFTER, 2)], []]),
        (lambda r: row((9, "deep", row((8, "deeper", r)))),
         [{"deep": {"deeper": BEFORE}}, {"deep": None}],
         [{"deep": {"deeper": AFTER}}, {"deep": None}]),
    ],
)  # fmt: skip
def test_rows_follow_their_ids_at_any_depth(wrap, before, after):
    assert convert(wrap(OLD), wrap(NEW), before) == after


def test_elements_keys_and_values_are_cast():
    assert convert(array("STRING"), array("INT"), [["1", None], None]) == [[1, None], None]
    old, new = mapped("STRING", "DOUBLE"), mapped("STRING", "STRING")
    assert convert(old, new, [[("a", 1e10)]]) == [[("a", "1.0E10")]]
    assert convert(array("INT"), "STRING", [[1, None], None]) == ["[1, null]", None]


def test_values_of_null_or_other_rows_are_not_cast():
    lists = pa.array([["x"], ["1"], ["y"]])
    step = conversion(parse_type(array("STRING")), parse_type(array("INT")), "c")
    assert step(lists.slice(1, 1)).to_pylist() == [[1]]
    null = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array(["x", "1"]), mask=pa.array([True, False])
    )
    assert step(null).to_pylist() == [None, [1]]
    with pytest.raises(CastError):
        step(lists)


def test_what_a_file_holds_below_a_null_row_is_not_cast():
    """Parquet files give an empty text for a required field of a ROW that is null."""
    old, new = row((1, "a", "STRING NOT NULL")), row((1, "a", "INT NOT NULL"))
    rows = pa.StructArray.from_arrays(
        [pa.array(["1", "", "3"])],
        fields=list(arrow_type(parse_type(old))),
        mask=pa.array([False, True, False]),
    )
    step = conversion(parse_type(old), parse_type(new), "c")
    assert step(rows).to_pylist() == [{"a": 1}, None, {"a": 3}]
    assert step(rows.slice(1)).to_pylist() == [None, {"a": 3}]
    inside = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), rows)
    step = conversion(parse_type(array(old)), parse_type(array(new)), "c")
    assert step(inside).to_pylist() == [[{"a": 1}, None], [{"a": 3}]]


def test_a_nested_field_may_become_nullable():
    old = row((1, "a", "INT NOT NULL"), null=False)
    assert convert(array(old), array(row((1, "a", "INT"))), [[{"a": 1}]]) == [[{"a": 1}]]
    wide = mapped("STRING NOT NULL", row((1, "a", "INT")))
    assert convert(mapped("STRING NOT NULL", old), wide, [[("k", {"a": 1})]]) == [[("k", {"a": 1})]]


def test_columns_that_stay_need_no_step():
    assert conversion(parse_type(OLD), parse_type(OLD), "c") is None
    assert conversion(parse_type("VARCHAR(3)"), parse_type("STRING"), "c") is None
    assert keeps_values(parse_type("INT NOT NULL"), parse_type("INT"))
    assert not keeps_values(parse_type("VARCHAR(5)"), parse_type("VARCHAR(3)"))
    assert not keeps_values(parse_type("TIMESTAMP(3)"), parse_type("TIMESTAMP(1)"))
    assert not keeps_values(parse_type(OLD), parse_type(NEW))


def test_changes_without_a_cast_are_refused_by_name():
    old, new = row((1, "a", array("DATE"))), row((1, "b", array("INT")))
    with pytest.raises(UnsupportedFeatureError, match=r"column=`c\.b\.element`"):
        conversion(parse_type(old), parse_type(new), "c")
    with pytest.raises(UnsupportedFeatureError, match="column=`c`"):
        conversion(parse_type(OLD), parse_type(array("INT")), "c")


def test_many_rows_are_converted_as_columns():
    numbers = pa.array(np.arange(200_000))
    column = pa.StructArray.from_arrays([numbers], ["a"])
    step = conversion(parse_type(row((1, "a", "BIGINT"))), parse_type(row((1, "a", "STRING"))), "c")
    assert step(column).field(0)[199_999].as_py() == "199999"
