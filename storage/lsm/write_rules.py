# SPDX-License-Identifier: Apache-2.0
"""What happens to rows before they reach the write buffer: checks, defaults, kind filters.

Source: SEMANTICS.md §A.3 and §A.4. Data plane: whole columns.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError, InvalidRequestError
from storage.format.metadata.schema import TableSchema
from storage.format.types.default_values import default_of, fill_null
from storage.format.types.types import VALUE_KIND, DataField, RowKind
from storage.options.options import TableOptions

_KIND_TEXTS = ("+I", "-U", "+U", "-D")
"""Texts of the row kinds, indexed by code; lower case is accepted, too."""


def accept_rows(
    batch: pa.RecordBatch, schema: TableSchema, options: TableOptions
) -> tuple[pa.Array, list[pa.Array]]:
    """The rows that go into the buffer, in the columns of the table.

    Columns are found by name: a nullable one that is missing is null, one of a narrower type is
    widened, further columns are left out.

    Args:
        batch: input batch: value columns and `_VALUE_KIND` int8, in arrival order.
        schema: of the table.
        options: of the table; `rowkind.field` names a column that replaces the kinds, and
            `ignore-delete` and `ignore-update-before` drop rows.

    Returns:
        The kinds (int8) and the value columns in schema order, of the rows that stay.

    Raises:
        InvalidRequestError: a NOT NULL column holds null, a value does not fit its column, or
            the column of row kinds holds something else.
        InternalError: there is no `_VALUE_KIND`.
    """
    position = batch.schema.get_field_index(VALUE_KIND)
    if position < 0:
        raise InternalError("a writer received rows without row kinds", column=VALUE_KIND)
    kinds = batch.column(position)
    columns = [
        _column(batch, field, target)
        for field, target in zip(schema.fields, schema.arrow_schema, strict=True)
    ]
    if options.rowkind_field is not None:
        kinds = _kinds_of(columns[schema.field_names.index(options.rowkind_field)], options)
    dropped_kinds = _dropped_kinds(options)
    if dropped_kinds:
        stays = np.isin(kinds.to_numpy(zero_copy_only=False), dropped_kinds, invert=True)
        if not stays.all():
            mask = pa.array(stays)
            kinds = kinds.filter(mask)
            columns = [column.filter(mask) for column in columns]
    return kinds, columns


def without_ignored(
    batch: pa.RecordBatch, schema: TableSchema, options: TableOptions
) -> pa.RecordBatch:
    """The rows of a batch that a writer would accept, before their keys are looked up.

    Rows that `ignore-delete` and `ignore-update-before` drop reach no bucket: they open no writer,
    and no index records their keys.

    Args: and raises: as `accept_rows`.
    """
    if not _dropped_kinds(options):
        return batch
    kinds, columns = accept_rows(batch, schema, options)
    return pa.RecordBatch.from_arrays([*columns, kinds], names=[*schema.field_names, VALUE_KIND])


def _kinds_of(column: pa.Array, options: TableOptions) -> pa.Array:
    """Row kinds (int8) from the texts of a column."""
    if column.null_count:
        raise InvalidRequestError(
            "Row kind cannot be null",
            hint="give the column one of +I, -U, +U, -D",
            column=options.rowkind_field,
        )
    texts = pa.array(_KIND_TEXTS)
    codes = pc.index_in(pc.ascii_upper(column.cast(pa.string())), value_set=texts)
    if codes.null_count:
        row = int(np.argmax(pc.is_null(codes).to_numpy(zero_copy_only=False)))
        raise InvalidRequestError(
            f"Unsupported short string '{column[row]}' for row kind",
            hint="give the column one of +I, -U, +U, -D",
            column=options.rowkind_field,
        )
    return codes.cast(pa.int8())


def _dropped_kinds(options: TableOptions) -> tuple[int, ...]:
    if options.ignore_delete:
        return (RowKind.UPDATE_BEFORE, RowKind.DELETE)
    return (RowKind.UPDATE_BEFORE,) if options.ignore_update_before else ()


def _column(batch: pa.RecordBatch, field: DataField, arrow_field: pa.Field) -> pa.Array:
    position = batch.schema.get_field_index(field.name)
    if position < 0:
        column = pa.nulls(batch.num_rows, arrow_field.type)
    else:
        column = batch.column(position)
        if column.type != arrow_field.type:
            column = _widened(column, arrow_field)
    if column.null_count == 0:
        return column
    if not field.type.nullable:
        raise InvalidRequestError(
            f"cannot write null to non-null column({field.name})",
            hint="give the column a value, or make it nullable",
            column=field.name,
        )
    if field.default is None:
        return column
    return fill_null(column, default_of(field.default, field.type, field.name))


def _widened(column: pa.Array, arrow_field: pa.Field) -> pa.Array:
    try:
        return column.cast(arrow_field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "a value does not fit its column",
            detail=str(error),
            hint="change the type of the column, or convert the values before writing",
            column=arrow_field.name,
            expected=arrow_field.type,
            found=column.type,
        ) from error
