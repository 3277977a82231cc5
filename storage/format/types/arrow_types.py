# SPDX-License-Identifier: Apache-2.0
"""Paimon's logical types as Arrow types, and back.

The one place that decides how a column looks in memory (FORMAT.md §7.3 gives the file side).
Nullability is carried on fields, also inside lists, maps and structs, because the Parquet writer
derives REQUIRED/OPTIONAL from it. Arrow arrays from elsewhere (chunked, dictionary, large strings,
other time units) are converted to this form by `normalize`.
"""

from collections.abc import Sequence

import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.types.type_text import type_name
from storage.format.types.types import (
    MAX_LENGTH,
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

MAX_MILLIS_PRECISION = 3
MAX_MICROS_PRECISION = 6

_SIMPLE = {
    TypeRoot.CHAR: pa.string(),
    TypeRoot.VARCHAR: pa.string(),
    TypeRoot.BOOLEAN: pa.bool_(),
    TypeRoot.BINARY: pa.binary(),
    TypeRoot.VARBINARY: pa.binary(),
    TypeRoot.TINYINT: pa.int8(),
    TypeRoot.SMALLINT: pa.int16(),
    TypeRoot.INT: pa.int32(),
    TypeRoot.BIGINT: pa.int64(),
    TypeRoot.FLOAT: pa.float32(),
    TypeRoot.DOUBLE: pa.float64(),
    TypeRoot.DATE: pa.date32(),
    TypeRoot.TIME: pa.time32("ms"),
}
_ROOTS = {
    pa.bool_(): TypeRoot.BOOLEAN,
    pa.int8(): TypeRoot.TINYINT,
    pa.int16(): TypeRoot.SMALLINT,
    pa.int32(): TypeRoot.INT,
    pa.int64(): TypeRoot.BIGINT,
    pa.uint8(): TypeRoot.SMALLINT,
    pa.uint16(): TypeRoot.INT,
    pa.uint32(): TypeRoot.BIGINT,
    pa.float32(): TypeRoot.FLOAT,
    pa.float64(): TypeRoot.DOUBLE,
    pa.date32(): TypeRoot.DATE,
}
_UNIT_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def arrow_type(type_: DataType) -> pa.DataType:
    """The Arrow type of a column in memory."""
    match type_:
        case AtomicType():
            return _atomic_arrow(type_)
        case ArrayType(element=element):
            return pa.list_(pa.field("element", arrow_type(element), element.nullable))
        case MultisetType(element=element):
            count = pa.field("value", pa.int32(), nullable=False)
            return pa.map_(pa.field("key", arrow_type(element), nullable=False), count)
        case MapType(key=key, value=value):
            return pa.map_(
                pa.field("key", arrow_type(key), nullable=False),
                pa.field("value", arrow_type(value), value.nullable),
            )
        case RowType(fields=fields):
            return pa.struct([arrow_field(field) for field in fields])


def arrow_field(field: DataField) -> pa.Field:
    """Name, type and nullability of a column; without metadata."""
    return pa.field(field.name, arrow_type(field.type), field.type.nullable)


def arrow_schema(fields: Sequence[DataField]) -> pa.Schema:
    """The schema of a value batch: the fields in the given order."""
    return pa.schema([arrow_field(field) for field in fields])


def type_from_arrow(type_: pa.DataType, nullable: bool = True) -> DataType:
    """The narrowest Paimon type that holds every value of an Arrow type.

    Ids of struct fields are placeholders (their position); `schema.new_schema` and
    `schema_changes.evolve` number them.

    Raises:
        UnsupportedFeatureError: there is no such type (e.g. times finer than milliseconds).
    """
    nested = _nested_from_arrow(type_, nullable)
    if nested is not None:
        return nested
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return AtomicType(TypeRoot.VARCHAR, nullable, length=MAX_LENGTH)
    if pa.types.is_fixed_size_binary(type_):
        return AtomicType(TypeRoot.BINARY, nullable, length=type_.byte_width)
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return AtomicType(TypeRoot.VARBINARY, nullable, length=MAX_LENGTH)
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= 38:
        return AtomicType(TypeRoot.DECIMAL, nullable, precision=type_.precision, scale=type_.scale)
    if pa.types.is_timestamp(type_):
        root = TypeRoot.TIMESTAMP if type_.tz is None else TypeRoot.TIMESTAMP_LTZ
        return AtomicType(root, nullable, precision=_UNIT_PRECISION[type_.unit])
    if pa.types.is_time32(type_):
        return AtomicType(TypeRoot.TIME, nullable, precision=_UNIT_PRECISION[type_.unit])
    if type_ in _ROOTS:
        return AtomicType(_ROOTS[type_], nullable)
    raise UnsupportedFeatureError("no Paimon type for this Arrow type", arrow_type=type_)


def normalize(column: pa.Array | pa.ChunkedArray, type_: DataType) -> pa.Array:
    """The column as one array of `arrow_type(type_)`; zero copy when it already is.

    Raises:
        UnsupportedFeatureError: the values cannot be brought to the type without loss.
    """
    target = arrow_type(type_)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    if column.type == target:
        return column
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedFeatureError(
            "column does not have the declared type",
            detail=str(error),
            declared=type_name(type_),
            found=column.type,
        ) from error


def _atomic_arrow(type_: AtomicType) -> pa.DataType:
    root = type_.root
    if root is TypeRoot.DECIMAL:
        return pa.decimal128(type_.precision, type_.scale)
    if root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        zone = "UTC" if root is TypeRoot.TIMESTAMP_LTZ else None
        return pa.timestamp(_timestamp_unit(type_.precision), tz=zone)
    return _SIMPLE[root]


def _timestamp_unit(precision: int) -> str:
    if precision <= MAX_MILLIS_PRECISION:
        return "ms"
    return "us" if precision <= MAX_MICROS_PRECISION else "ns"


def _nested_from_arrow(type_: pa.DataType, nullable: bool) -> DataType | None:
    if pa.types.is_dictionary(type_):
        return type_from_arrow(type_.value_type, nullable)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        item = type_.value_field
        return ArrayType(type_from_arrow(item.type, item.nullable), nullable)
    if pa.types.is_map(type_):
        key = type_from_arrow(type_.key_type, nullable=False)
        value = type_from_arrow(type_.item_type, type_.item_field.nullable)
        return MapType(key, value, nullable)
    if pa.types.is_struct(type_):
        fields = [type_.field(i) for i in range(type_.num_fields)]
        return RowType(
            tuple(
                DataField(id=i, name=f.name, type=type_from_arrow(f.type, f.nullable))
                for i, f in enumerate(fields)
            ),
            nullable,
        )
    return None
