# SPDX-License-Identifier: Apache-2.0
"""Columns between Paimon and Spark: the Spark types of columns, and their values.

CHAR and VARCHAR are strings, MULTISET is a map to counts, timestamps without zone stay without.
TIME is an INT, milliseconds of the day, since Spark refuses plans with its own TIME type unless a
setting allows them. Spark has microseconds: finer timestamps are truncated in reading. Data plane:
whole columns.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema

from storage.errors import InvalidRequestError, UnsupportedFeatureError
from storage.table.scan import predicate as own
from storage.table.scan.predicate import Op, Predicate, literal_scalar, require_known

_COMPARISONS: Mapping[type[Filter], Op] = {
    EqualTo: Op.EQ,
    GreaterThan: Op.GT,
    GreaterThanOrEqual: Op.GE,
    LessThan: Op.LT,
    LessThanOrEqual: Op.LE,
}
_PATTERNS: Mapping[type[Filter], str] = {
    StringStartsWith: "{}%",
    StringEndsWith: "%{}",
    StringContains: "%{}%",
}
_LIKE_MARKS = frozenset("%_\\\n\r")


def pushed_predicate(spark_filter: Filter, schema: pa.Schema) -> Predicate | None:
    """Spark's filter as a predicate of `storage`, if the semantics are identical.

    Excluded are conditions on parts of a column, on types whose values are converted for Spark
    (finer than microseconds, TIME), and texts with wildcards of LIKE.

    Args:
        schema: columns as `storage` types.

    Returns:
        None if Spark has to filter.
    """
    if isinstance(spark_filter, Not):
        part = pushed_predicate(spark_filter.child, schema)
        return None if part is None else own.Not(part)
    path: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    name = path[0]
    if isinstance(spark_filter, IsNull):
        return own.IsNull(name)
    if isinstance(spark_filter, IsNotNull):
        return own.Not(own.IsNull(name))
    type_ = schema.field(name).type
    return _compared(spark_filter, name, type_) if _keeps_values(type_) else None


def _compared(spark_filter: Filter, name: str, type_: pa.DataType) -> Predicate | None:
    value: Any = getattr(spark_filter, "value", None)
    if isinstance(spark_filter, In):
        return (
            own.In(name, tuple(value))
            if all(_literal_matches(item, type_) for item in value)
            else None
        )
    pattern = _PATTERNS.get(type(spark_filter))
    if pattern is not None:
        plain = isinstance(value, str) and not _LIKE_MARKS & set(value)
        return own.Like(name, pattern.format(value)) if plain else None
    if not _literal_matches(value, type_):
        return None
    if isinstance(spark_filter, EqualNullSafe):
        if value is None:
            return own.IsNull(name)
        return own.And((own.Not(own.IsNull(name)), own.Compare(Op.EQ, name, value)))
    op = _COMPARISONS.get(type(spark_filter))
    return None if op is None else own.Compare(op, name, value)


_EXACT: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
)


def _keeps_values(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return type_.unit != "ns"
    return any(is_of(type_) for is_of in _EXACT)


def _literal_matches(value: Any, type_: pa.DataType) -> bool:
    """Whether a literal can be compared without conversion; null always can."""
    if value is None:
        return True
    if pa.types.is_timestamp(type_):
        if not isinstance(value, datetime.datetime):
            return False
        if (value.tzinfo is None) is not (type_.tz is None):
            return False
        if type_.unit == "ms" and value.microsecond % 1000:
            return False  # Arrow would truncate it
    elif pa.types.is_string(type_) is not isinstance(value, str):
        return False
    try:
        return literal_scalar(value, type_) is not None
    except (pa.ArrowException, InvalidRequestError, OverflowError):
        return False


BATCH_BYTES = 16 << 20
"""Of one batch for Spark, which holds it in the memory of the JVM as a whole [bytes]."""

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
    """The Spark schema of Arrow columns as `storage` types.

    Raises:
        UnsupportedFeatureError: Spark has no such type.
    """
    return spark.StructType([_spark_field(field) for field in schema])


def arrow_schema_of(schema: spark.StructType) -> pa.Schema:
    """The Arrow schema in which Spark exchanges rows."""
    result: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return result


def chosen_columns(schema: spark.StructType, stored_schema: pa.Schema) -> tuple[str, ...]:
    """Names of the columns that a read requests, perhaps by `DataFrameReader.schema`.

    Args:
        schema: of the read.
        stored_schema: Arrow columns as `storage` types.

    Raises:
        InvalidRequestError: a column is missing, or of another type.
    """
    names = tuple(field.name for field in schema.fields)
    require_known(names, stored_schema.names)
    for field in schema.fields:
        column_type = _spark_field(stored_schema.field(field.name)).dataType
        if column_type.simpleString() != field.dataType.simpleString():
            raise InvalidRequestError(
                "a column's type differs from the requested one",
                hint="leave `.schema(…)` out, and cast",
                column=field.name,
                type=column_type.simpleString(),
                wanted=field.dataType.simpleString(),
            )
    return names


def spark_batches(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in Spark's types, in batches that fit its memory.

    Args:
        batch: columns as `storage` types, in the order of the schema.
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


def _converted(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    if column.type == target_type:
        return column
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(target_type, safe=False)
