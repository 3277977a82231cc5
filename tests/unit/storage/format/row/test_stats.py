# SPDX-License-Identifier: Apache-2.0
import math

import pyarrow as pa
import pytest

from storage.errors import InvalidOptionError
from storage.format.files.parquet import ColumnRange
from storage.format.metadata.file_meta import EMPTY_STATS
from storage.format.row.binary_row import decode_row
from storage.format.row.stats import (
    COUNTS,
    FULL,
    NONE,
    StatsAccumulator,
    StatsMode,
)
from storage.format.types.types import DataField, parse_type
from tests.golden.json_values import golden_type
from tests.unit.storage.column_stats import collect
from tests.unit.storage.golden_tables import GoldenTable
from tests.unit.storage.random_rows import read_file

TRUNCATE = StatsMode.parse("truncate(4)")


def bounds(stats, types):
    return decode_row(stats.min_values, types), decode_row(stats.max_values, types)


def fields(*types):
    return [DataField(id=i, name=f"c{i}", type=golden_type(t)) for i, t in enumerate(types)]


@pytest.mark.parametrize(
    ("text", "mode"),
    [("none", NONE), (" Counts", COUNTS), ("FULL", FULL), ("truncate( 4 )", TRUNCATE)],
)
def test_modes(text, mode):
    assert StatsMode.parse(text) == mode


@pytest.mark.parametrize("text", ["", "truncate", "truncate(0)", "truncate(-1)", "some"])
def test_unknown_modes(text):
    with pytest.raises(InvalidOptionError):
        StatsMode.parse(text)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0.0, -0.0], "-0.0", "0.0"),
        ([-0.0, -0.0, -1.0], "-1.0", "-0.0"),
        ([0.0, 2.0], "0.0", "2.0"),
        ([math.nan, 1.0], "1.0", "nan"),
        ([math.nan, None], "nan", "nan"),
        ([-math.inf, math.inf], "-inf", "inf"),
    ],
)
@pytest.mark.parametrize("name", ["FLOAT", "DOUBLE"])
def test_floats_are_ordered_as_in_java(name, values, low, high):
    type_ = parse_type(name)
    stats = collect([pa.array(values, pa.float64()).cast(_float(name))], [type_], FULL)
    (smallest,), (largest,) = bounds(stats, [type_])
    assert (repr(smallest), repr(largest)) == (low, high)


def _float(name):
    return pa.float32() if name == "FLOAT" else pa.float64()


def test_batches_add_up_to_the_whole():
    columns = fields("STRING", "DOUBLE", "INT")
    types = [field.type for field in columns]
    batch = pa.record_batch(
        {
            "c0": ["b", None, "zzzzzz", "aaaaaa", None, "c"],
            "c1": [1.0, math.nan, -5.0, None, 2.0, 0.0],
            "c2": pa.array([None] * 6, pa.int32()),
        }
    )
    accumulator = StatsAccumulator(columns, TRUNCATE)
    for start in range(6):
        accumulator.add(batch[start : start + 1].columns)
    stats = accumulator.stats()
    assert stats == collect(batch.columns, types, TRUNCATE)
    low, high = bounds(stats, types)
    assert low == ("aaaa", -5.0, None)
    assert (high[0], repr(high[1]), high[2]) == ("zzz{", "nan", None)
    assert stats.null_counts == (2, 1, 6)


def test_nothing_added():
    stats = StatsAccumulator(fields("INT"), FULL).stats()
    assert stats.null_counts == (0,)
    assert decode_row(stats.max_values, [parse_type("INT")]) == (None,)


def test_dense_statistics_leave_out_columns_without_any():
    columns = fields("INT", {"type": "ARRAY", "element": "INT"}, "STRING", "BIGINT")
    batch = pa.record_batch(
        {
            "c3": pa.array([3, 1]),
            "c1": pa.array([[1], None], pa.list_(pa.int32())),
            "c2": ["x", "y"],
            "c0": pa.array([1, 2], pa.int32()),
        }
    )

    def dense(fields, modes):
        accumulator = StatsAccumulator(fields, modes, "parquet")
        accumulator.add([batch.column(field.name) for field in fields])
        return accumulator.dense_stats()

    stats, names = dense(columns, [FULL, FULL, NONE, COUNTS])
    assert names == ("c0", "c3")
    assert bounds(stats, [columns[0].type, columns[3].type]) == ((1, None), (2, None))
    assert stats.null_counts == (0, 0)
    assert dense(columns[:1], FULL)[1] is None
    assert dense(columns, NONE) == (EMPTY_STATS, ())


def test_cut_bounds_still_bound():
    surrogates = "ab\ud7ff" + "c"
    type_ = parse_type("STRING")
    stats = collect([pa.array([surrogates])], [type_], StatsMode.parse("truncate(3)"))
    assert bounds(stats, [type_]) == (("ab\ud7ff",), ("ab\ue000",))
    binary = parse_type("BYTES")
    stats = collect([pa.array([b"\xff" * 9])], [binary], TRUNCATE)
    assert bounds(stats, [binary]) == ((None,), (None,))


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_bounds_that_java_cannot_know_are_left_out(file_format):
    """TIMESTAMP(9) in Parquet, bytes in ORC; bounds of a CHAR in ORC are the one difference."""
    golden = GoldenTable(f"types_append_{file_format}")
    columns = golden.schemas[0].fields
    types = [field.type for field in columns]
    for path, entry in golden.files(file_format):
        accumulator = StatsAccumulator(columns, StatsMode.parse("truncate(16)"), file_format)
        for batch in read_file(str(path), columns):
            accumulator.add(batch.columns)
        ours, java = accumulator.stats(), entry.file.value_stats
        assert ours.null_counts == java.null_counts
        for mine, theirs in (
            (ours.min_values, java.min_values),
            (ours.max_values, java.max_values),
        ):
            differing = [
                field.name
                for field, a, b in zip(
                    columns, decode_row(mine, types), decode_row(theirs, types), strict=True
                )
                if a != b
            ]
            assert differing == (["c_char"] if file_format == "orc" else [])


def test_a_bound_that_a_footer_lacks_is_unknown():
    columns = fields("STRING", "STRING", "INT")
    accumulator = StatsAccumulator(columns, FULL, "parquet", footer=True)
    for text in ("b", "a"):
        accumulator.add([pa.array([text]), pa.array([text]), pa.array([1], pa.int32())])
    a, b = (ColumnRange(text, text, 0, 1) for text in "ab")
    accumulator.add_footer([{"c0": b, "c1": b}, {"c0": a, "c1": ColumnRange(None, None, 0, 1)}])
    low, high = bounds(accumulator.stats(), [field.type for field in columns])
    assert (low, high) == (("a", None, 1), ("b", None, 1))
