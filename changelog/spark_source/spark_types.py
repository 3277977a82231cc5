# SPDX-License-Identifier: Apache-2.0
"""Columns between Paimon and Spark: which Spark type a column has, and its values there.

CHAR and VARCHAR are strings, MULTISET is a map to counts, timestamps without zone stay without.
TIME is an INT, milliseconds of the day, since Spark refuses plans with its own TIME type unless a
setting allows them. Spark knows microseconds: finer parts of a timestamp are cut off in reading.
Data plane: whole columns.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from storage.errors import InvalidRequestError, UnsupportedFeatureError

__all__ = ["arrow_schema_of", "chosen_columns", "spark_batches", "spark_schema"]

BATCH_BYTES = 16 << 20
"""Of one batch given to Spark, which holds it in the memory of the JVM as a whole [bytes]."""

_SIMPLE = {
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
}


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of Arrow columns in the form of `storage`.

    Raises:
        UnsupportedFeatureError: Spark has no such type.
    """
    return spark.StructType([_spark_field(field) for field in schema])


def arrow_schema_of(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema in which Spark takes and gives rows."""
    found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return found


def chosen_columns(schema: spark.StructType, there: pa.Schema) -> tuple[str, ...]:
    """Names of the columns that a reader is asked for, which `DataFrameReader.schema` may choose.

    Args:
        schema: of the read.
        there: Arrow columns in the form of `storage`.

    Raises:
        InvalidRequestError: a column is not there, or of another type.
    """
    for field in schema.fields:
        if field.name not in there.names:
            raise InvalidRequestError(
                "no such column", hint=f"there are {', '.join(there.names)}", column=field.name
            )
        own = _spark_field(there.field(field.name)).dataType
        if own.simpleString() != field.dataType.simpleString():
            raise InvalidRequestError(
                "a column has another type than the one asked for",
                hint="leave `.schema(…)` out, and cast",
                column=field.name,
                type=own.simpleString(),
                wanted=field.dataType.simpleString(),
            )
    return tuple(field.name for field in schema.fields)


def spark_batches(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as Spark takes them, in batches of a size that it can hold.

    Args:
        batch: columns in the form of `storage`, in the order of the schema.
        schema: of `arrow_schema_of`.
    """
    arrays = [
        _converted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    pieces = max(1, -(-rows.nbytes // BATCH_BYTES))
    step = max(1, -(-rows.num_rows // pieces))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _spark_field(field: pa.Field) -> spark.StructField:
    return spark.StructField(field.name, _spark_type(field.type, field.name), field.nullable)


def _spark_type(type_: pa.DataType, name: str) -> spark.DataType:
    if type_ in _SIMPLE:
        return _SIMPLE[type_]
    if pa.types.is_decimal(type_):
        return spark.DecimalType(type_.precision, type_.scale)
    if pa.types.is_timestamp(type_):
        return spark.TimestampNTZType() if type_.tz is None else spark.TimestampType()
    if pa.types.is_time(type_):
        return spark.IntegerType()
    if pa.types.is_list(type_):
        item = type_.value_field
        return spark.ArrayType(_spark_type(item.type, name), item.nullable)
    if pa.types.is_map(type_):
        value = type_.item_field
        return spark.MapType(
            _spark_type(type_.key_type, name), _spark_type(value.type, name), value.nullable
        )
    if pa.types.is_struct(type_):
        fields: Sequence[pa.Field] = [type_.field(at) for at in range(type_.num_fields)]
        return spark.StructType([_spark_field(field) for field in fields])
    raise UnsupportedFeatureError(
        "Spark has no type for a column",
        hint="leave it out with the option `columns`",
        column=name,
        type=type_,
    )


def _converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type == wanted:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(wanted, safe=False)
