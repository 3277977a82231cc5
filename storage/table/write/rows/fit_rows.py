# SPDX-License-Identifier: Apache-2.0
"""Values of a statement as values of the columns of a table; an error names column and row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InvalidRequestError, LakewardError
from storage.format.types.arrow_types import type_from_arrow
from storage.format.types.type_text import type_name

_MOST_DIGITS = 76
_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def _type_text(type_: pa.DataType) -> str:
    try:
        return type_name(type_from_arrow(type_))
    except LakewardError:  # a type of the query that no column has
        return str(type_)


def fit_columns(
    batch: pa.RecordBatch, schema: pa.Schema, *, first_row: int = 1, zone: str | None = None
) -> pa.RecordBatch:
    """Rows in the types of a table.

    A value is converted where that is lossless, except for excess fraction digits of a DECIMAL
    (rounded half up) and of a TIME or TIMESTAMP (truncated). A text is parsed as a value of the
    column.

    Args:
        batch: columns in the order of the schema; their names do not matter.
        schema: of the result.
        first_row: number of the first row, for errors; rows count from 1.
        zone: in which instants and times without zone are converted into each other; None: they
            are not.

    Raises:
        InvalidRequestError: a value does not fit; names the column, the row and the value.
    """
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        fitted = column
        if column.type != field.type:
            fitted = _fitted(column, field, first_row, zone)
        if fitted.null_count and not field.nullable:
            row = int(np.argmax(fitted.is_null().to_numpy(zero_copy_only=False)))
            raise InvalidRequestError(
                f"cannot write null to non-null column({field.name})",
                hint="give the column a value, or make it nullable",
                column=field.name,
                row=first_row + row,
            )
        columns.append(fitted)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted(column: pa.Array, field: pa.Field, first_row: int, zone: str | None) -> pa.Array:
    try:
        return _cast(column, field.type, zone)
    except _ERRORS as error:
        row = _first_misfit(column, field.type, zone)
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            hint="convert the values with CAST, or change the type of the column",
            column=field.name,
            row=first_row + row,
            value=column[row].as_py(),
            expected=_type_text(field.type),
            found=_type_text(column.type),
        ) from error


def _cast(column: pa.Array, target_type: pa.DataType, zone: str | None) -> pa.Array:
    source = column.type
    if pa.types.is_decimal(target_type):
        column = _whole_decimal(column, target_type)
    elif pa.types.is_timestamp(source) and pa.types.is_timestamp(target_type):
        if (source.tz is None) != (target_type.tz is None):
            column = _in_zone(column, target_type, zone)
        return column.cast(target_type, safe=False)
    elif pa.types.is_time(source) and pa.types.is_time(target_type):
        return column.cast(target_type, safe=False)
    elif pa.types.is_struct(source) and pa.types.is_struct(target_type):
        return _cast_struct(column, target_type, zone)
    elif pa.types.is_list(source) and pa.types.is_list(target_type):
        column = _without_offset(column)
        values = _elements(column.values, target_type.value_field, zone)
        return pa.ListArray.from_arrays(
            column.offsets, values, type=target_type, mask=_null_mask(column)
        )
    elif pa.types.is_map(source) and pa.types.is_map(target_type):
        column = _without_offset(column)
        keys = _elements(column.keys, target_type.key_field, zone)
        items = _elements(column.items, target_type.item_field, zone)
        return pa.MapArray.from_arrays(
            column.offsets, keys, items, type=target_type, mask=_null_mask(column)
        )
    return column.cast(target_type)


def _elements(values: pa.Array, field: pa.Field, zone: str | None) -> pa.Array:
    """What lists and maps hold; rows in them by position, which Arrow's cast takes by name."""
    if values.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"null in place of a value: {field.name} is NOT NULL")
    return values if values.type == field.type else _cast(values, field.type, zone)


def _without_offset(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column.slice(0, 0)])


def _null_mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _whole_decimal(column: pa.Array, target_type: pa.Decimal128Type) -> pa.Array:
    """Numbers and texts with the scale of a decimal, and room for its integer digits."""
    source = column.type
    if pa.types.is_integer(source):
        return column.cast(pa.decimal256(_MOST_DIGITS, target_type.scale))
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        column = column.cast(pa.decimal256(_MOST_DIGITS, _MOST_DIGITS // 2))
    if pa.types.is_decimal(column.type) and column.type.scale > target_type.scale:
        return pc.round(column, ndigits=target_type.scale, round_mode="half_towards_infinity")
    return column


def _in_zone(column: pa.Array, target_type: pa.TimestampType, zone: str | None) -> pa.Array:
    if zone is None:
        raise pa.ArrowTypeError("the zone of a time is not known")
    if target_type.tz is not None:
        return pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))


def _cast_struct(column: pa.Array, target_type: pa.StructType, zone: str | None) -> pa.Array:
    """Fields by their names where these are the same, else by their positions."""
    source, names = column.type, [field.name for field in target_type]
    if source.num_fields != target_type.num_fields:
        raise pa.ArrowTypeError(f"a row of {target_type.num_fields} fields is expected")
    by_name = {field.name for field in source} == set(names)
    parts = []
    for place, field in enumerate(target_type):
        part = column.field(source.get_field_index(field.name) if by_name else place)
        parts.append(part if part.type == field.type else _cast(part, field.type, zone))
    return pa.StructArray.from_arrays(parts, fields=list(target_type), mask=column.is_null())


def _first_misfit(column: pa.Array, target_type: pa.DataType, zone: str | None) -> int:
    """The first row whose value cannot be converted, by bisection."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            _cast(column.slice(begin, middle - begin), target_type, zone)
            begin = middle
        except _ERRORS:
            end = middle
    return begin
