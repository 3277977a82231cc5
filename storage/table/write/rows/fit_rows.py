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


def _cast(column: pa.Array, wanted: pa.DataType, zone: str | None) -> pa.Array:
    source = column.type
    if pa.types.is_decimal(wanted):
        column = _whole_decimal(column, wanted)
    elif pa.types.is_timestamp(source) and pa.types.is_timestamp(wanted):
        if (source.tz is None) != (wanted.tz is None):
            column = _in_zone(column, wanted, zone)
        return column.cast(wanted, safe=False)
    elif pa.types.is_time(source) and pa.types.is_time(wanted):
        return column.cast(wanted, safe=False)
    elif pa.types.is_struct(source) and pa.types.is_struct(wanted):
        return _cast_struct(column, wanted, zone)
    return column.cast(wanted)


def _whole_decimal(column: pa.Array, wanted: pa.Decimal128Type) -> pa.Array:
    """Numbers and texts with the scale of a decimal, and room for its integer digits."""
    source = column.type
    if pa.types.is_integer(source):
        return column.cast(pa.decimal256(_MOST_DIGITS, wanted.scale))
    if pa.types.is_string(source) or pa.types.is_large_string(source):
        column = column.cast(pa.decimal256(_MOST_DIGITS, _MOST_DIGITS // 2))
    if pa.types.is_decimal(column.type) and column.type.scale > wanted.scale:
        return pc.round(column, ndigits=wanted.scale, round_mode="half_towards_infinity")
    return column


def _in_zone(column: pa.Array, wanted: pa.TimestampType, zone: str | None) -> pa.Array:
    if zone is None:
        raise pa.ArrowTypeError("the zone of a time is not known")
    if wanted.tz is not None:
        return pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="latest")
    return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, zone)))


def _cast_struct(column: pa.Array, wanted: pa.StructType, zone: str | None) -> pa.Array:
    """Fields by their names where these are the same, else by their positions."""
    source, names = column.type, [field.name for field in wanted]
    if source.num_fields != wanted.num_fields:
        raise pa.ArrowTypeError(f"a row of {wanted.num_fields} fields is expected")
    by_name = {field.name for field in source} == set(names)
    parts = []
    for place, field in enumerate(wanted):
        part = column.field(source.get_field_index(field.name) if by_name else place)
        parts.append(part if part.type == field.type else _cast(part, field.type, zone))
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=column.is_null())


def _first_misfit(column: pa.Array, wanted: pa.DataType, zone: str | None) -> int:
    """The first row whose value cannot be converted, by bisection."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            _cast(column.slice(begin, middle - begin), wanted, zone)
            begin = middle
        except _ERRORS:
            end = middle
    return begin
