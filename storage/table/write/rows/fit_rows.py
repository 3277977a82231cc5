# SPDX-License-Identifier: Apache-2.0
"""Values of a statement as values of the columns of a table; an error names column and row."""

import pyarrow as pa

from storage.errors import InvalidRequestError

__all__ = ["fit_columns"]

_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def fit_columns(batch: pa.RecordBatch, schema: pa.Schema, *, first_row: int = 0) -> pa.RecordBatch:
    """Rows in the types of a table.

    A value is converted where nothing of it is lost; a text is read as a value of the column.

    Args:
        batch: columns in the order of the schema; their names do not matter.
        schema: wanted.
        first_row: number of the first row, for errors.

    Raises:
        InvalidRequestError: a value does not fit; names the column, the row and the value.
    """
    columns = [
        column if column.type == field.type else _fitted(column, field, first_row)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fitted(column: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
    try:
        return column.cast(field.type)
    except _ERRORS as error:
        row = _first_misfit(column, field)
        value = column[row].as_py() if column[row].is_valid else None
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            hint="convert the values with CAST, or change the type of the column",
            column=field.name,
            row=first_row + row,
            value=value,
            expected=field.type,
            found=column.type,
        ) from error


def _first_misfit(column: pa.Array, field: pa.Field) -> int:
    """The first row whose value cannot be converted: by halves, each time the first one wrong."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            column.slice(begin, middle - begin).cast(field.type)
            begin = middle
        except _ERRORS:
            end = middle
    return begin
