# SPDX-License-Identifier: Apache-2.0
"""Which rows of a section are merged, where finished rows of a key lie on several levels."""

import itertools

import pyarrow as pa
import pytest

from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND
from storage.lsm.changelog import merge_inputs
from storage.lsm.levels import Levels, sections
from storage.lsm.merge import merge_runs
from storage.lsm.merge_functions import merge_function_for
from storage.options.options import TableOptions
from tests.unit.storage.bucket_of_levels import schema_of
from tests.unit.storage.file_metas import file_meta, key_of

OPTIONS = {
    "merge-engine": "aggregation",
    "fields.v.aggregate-function": "sum",
    "changelog-producer": "lookup",
}
ROWS = {
    "last-high": (4, [(9, 0, 1)]),
    "last-low": (4, [(0, 1, 10), (1, 2, 20)]),
    "lower": (3, [(0, 4, 100), (3, 5, 200), (9, 6, 300)]),
    "newest": (0, [(2, 7, 1000), (9, 8, 2000)]),
}
"""Level of each file; key, sequence number and value of its rows."""


def _file(name):
    level, rows = ROWS[name]
    return file_meta(
        level, rows[0][0], rows[-1][0], name=name, min_sequence=rows[0][1], sequence=rows[-1][1]
    )


def _batch(name):
    keys, numbers, values = zip(*ROWS[name][1], strict=True)
    return pa.record_batch(
        {
            SEQUENCE_NUMBER: pa.array(numbers, pa.int64()),
            VALUE_KIND: pa.array([0] * len(keys), pa.int8()),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.int64()),
        }
    )


@pytest.mark.parametrize("names", list(itertools.permutations(ROWS)))
def test_of_the_levels_above_0_the_lowest_row_counts_however_files_share_runs(names):
    files = [_file(name) for name in names]
    Levels.of(files, 5, key_of)  # legal: no files of a level overlap
    (section,) = sections(files, key_of)
    assert any({file.file_name for file in run.files} == {"last-low", "newest"} for run in section)
    schema = schema_of({"k": "BIGINT", "v": "BIGINT"}, OPTIONS)
    options = TableOptions.from_strings(OPTIONS)
    inputs = merge_inputs(
        section,
        lambda run: iter([_batch(file.file_name) for file in run.files]),
        ["k"],
        key_of,
        options,
    )
    merged = pa.Table.from_batches(merge_runs(inputs, ["k"], merge_function_for(options, schema)))
    assert dict(zip(merged["k"].to_pylist(), merged["v"].to_pylist(), strict=True)) == {
        0: 100,
        1: 20,
        2: 1000,
        3: 200,
        9: 2300,
    }
