# SPDX-License-Identifier: Apache-2.0
"""ORC files of nested columns with nulls on every level give back what was written."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pytest

from storage.format.files.orc.orc import OrcSink
from storage.format.types.types import DataField, arrow_type, parse_type
from tests.interop.generated_values import Chance, random_value

TYPES = (
    "ROW<x ROW<y INT>>",
    "ROW<x ROW<y DATE, z ARRAY<BIGINT>>, w DOUBLE>",
    "ARRAY<ROW<a ROW<b INT, c STRING>, d MAP<STRING, ROW<e INT, f ROW<g INT>>>>>",
    "MAP<INT, ROW<a ROW<b ROW<c BIGINT, d STRING>>>>",
    "ROW<a ARRAY<ROW<b ROW<c INT>>>>",
    "ROW<m MAP<INT, ROW<x ROW<y INT>>>, u MULTISET<STRING>>",
)


def written_and_read(text: str, column: pa.Array) -> list[Any]:
    """What the library reads of a file that we write."""
    output = io.BytesIO()
    field = DataField(id=0, name="c", type=parse_type(text))
    sink = OrcSink(output, [field], compression="zstd", options={})
    sink.write([column])
    sink.close()
    found: list[Any] = pyarrow.orc.read_table(io.BytesIO(output.getvalue()))["c"].to_pylist()
    return found


def test_rows_in_rows_that_are_never_null_keep_their_fields() -> None:
    type_ = arrow_type(parse_type("ROW<x ROW<y INT>>"))
    rows = [{"x": None}, {"x": {"y": 5}}, {"x": None}, {"x": {"y": None}}, {"x": {"y": 7}}]
    assert written_and_read("ROW<x ROW<y INT>>", pa.array(rows, type_)) == rows


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("seed", range(12))
def test_random_nested_values_come_back(text: str, seed: int) -> None:
    chance = Chance(seed)
    type_ = parse_type(text)
    values = [random_value(chance, type_) for _ in range(chance.randrange(1, 30))]
    column = pa.array(values, arrow_type(type_)).slice(seed % 2)
    assert repr(written_and_read(text, column)) == repr(column.to_pylist())
