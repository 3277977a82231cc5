# SPDX-License-Identifier: Apache-2.0
"""Columns on their way to Spark."""

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from changelog.spark_source import source_options
from changelog.spark_source.source_options import (
    arrow_schema_of,
    chosen_columns,
    spark_batches,
    spark_schema,
)
from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.format.types.types import arrow_type, parse_type

TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "DECIMAL(20, 3)": "decimal(20,3)",
    "CHAR(3)": "string",
    "VARCHAR(9)": "string",
    "STRING": "string",
    "BINARY(2)": "binary",
    "BYTES": "binary",
    "DATE": "date",
    "TIME(3)": "int",
    "TIMESTAMP(0)": "timestamp_ntz",
    "TIMESTAMP(9)": "timestamp_ntz",
    "TIMESTAMP_LTZ(3)": "timestamp",
}


@pytest.mark.parametrize("text", TYPES)
def test_types_and_the_arrow_form_that_spark_checks(text):
    schema = pa.schema([pa.field("a", arrow_type(parse_type(text)), nullable=False)])
    found = spark_schema(schema)
    assert found["a"].dataType.simpleString() == TYPES[text]
    assert not found["a"].nullable
    empty = pa.RecordBatch.from_arrays([pa.nulls(3, schema.field("a").type)], ["a"])
    (batch,) = spark_batches(empty, arrow_schema_of(found))
    assert batch.schema == arrow_schema_of(found)


def test_nested_types():
    multiset = parse_type({"type": "MULTISET", "element": "STRING NOT NULL"})
    inner = {"id": 1, "name": "at", "type": "TIMESTAMP(3) NOT NULL"}
    row = parse_type({"type": "ROW", "fields": [inner]})
    array = parse_type({"type": "ARRAY", "element": "TIMESTAMP(9)"})
    schema = pa.schema(
        [("m", arrow_type(multiset)), ("r", arrow_type(row)), ("a", arrow_type(array))]
    )
    found = spark_schema(schema)
    assert found.simpleString() == (
        "struct<m:map<string,int>,r:struct<at:timestamp_ntz>,a:array<timestamp_ntz>>"
    )
    noon = datetime.datetime.fromisoformat("2026-01-31T12:00")
    rows = [{"m": [("x", 2)], "r": {"at": noon}, "a": [noon, None]}]
    (batch,) = spark_batches(
        pa.RecordBatch.from_pylist(rows, schema=schema), arrow_schema_of(found)
    )
    assert batch.to_pylist() == rows


def test_times_are_cut_down_to_microseconds():
    before_1970 = pa.array([-1_001, 1_999], pa.timestamp("ns"))
    batch = pa.RecordBatch.from_arrays([before_1970], ["a"])
    (found,) = spark_batches(batch, arrow_schema_of(spark_schema(batch.schema)))
    assert found.column(0).cast(pa.int64()).to_pylist() == [-2, 1]
    clock = pa.RecordBatch.from_arrays([pa.array([3_723_000], pa.time32("ms"))], ["a"])
    (found,) = spark_batches(clock, arrow_schema_of(spark_schema(clock.schema)))
    assert found.column(0).to_pylist() == [3_723_000]


def test_large_batches_are_cut(monkeypatch):
    monkeypatch.setattr(source_options, "BATCH_BYTES", 1_000)
    batch = pa.RecordBatch.from_arrays([pa.array(range(1_000), pa.int64())], ["a"])
    found = list(spark_batches(batch, batch.schema))
    assert len(found) == 8
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches([batch]))


def test_a_schema_chooses_columns_of_their_own_types():
    there = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert chosen_columns(StructType().add("b", "string"), there) == ("b",)
    with pytest.raises(InvalidRequestError, match="differs from the requested"):
        chosen_columns(StructType().add("a", "integer"), there)
    with pytest.raises(InvalidRequestError, match="no such column"):
        chosen_columns(StructType().add("c", "integer"), there)


def test_what_spark_has_no_type_for_is_named():
    with pytest.raises(UnsupportedFeatureError, match=r"leave it out.*column=`x`|column=`x`"):
        spark_schema(pa.schema([("x", pa.duration("s"))]))
