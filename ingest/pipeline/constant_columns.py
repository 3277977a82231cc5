# SPDX-License-Identifier: Apache-2.0
"""Columns whose value follows from the source table alone, as that of a shard (`routing`).

Decoders see a table without them (`source_part`), and `with_constants` puts them where the table
has them.
"""

import dataclasses
from collections.abc import Collection

import pyarrow as pa

from ingest.decode.events import ChangeBatch, Target
from storage.format.metadata.schema import TableSchema
from storage.format.types.types import VALUE_KIND

__all__ = ["constants_refused", "source_part", "with_constants"]


def source_part(schema: TableSchema, constant: Collection[str]) -> TableSchema:
    """The schema without columns that do not come from events."""
    if not constant:
        return schema
    return dataclasses.replace(
        schema,
        fields=tuple(field for field in schema.fields if field.name not in constant),
        primary_keys=tuple(name for name in schema.primary_keys if name not in constant),
        partition_keys=tuple(name for name in schema.partition_keys if name not in constant),
    )


def constants_refused(schema: TableSchema, target: Target) -> str:
    """Why a table cannot take the constant columns of a source table; "" when it can."""
    for name, _ in target.constants:
        if name not in schema.field_names:
            return f"the table has no column {name}, which the route adds: route to another table"
        if name in target.key_prefix and name not in schema.primary_keys:
            return f"the shard column {name} is not in the table's primary key"
    return ""


def with_constants(change: ChangeBatch, schema: TableSchema) -> ChangeBatch:
    """The change batch with all columns of the table.

    Args:
        change: columns of `source_part` in its order, then those of the change.
        schema: of the table.
    """
    rows, constants = change.rows, dict(change.constants)
    arrow = schema.arrow_schema
    arrays = [
        _repeated(constants[field.name], rows.num_rows, field.type)
        if field.name in constants
        else rows.column(field.name)
        for field in arrow
    ]
    at = rows.schema.get_field_index(VALUE_KIND)
    fields = [*arrow, *(rows.schema.field(i) for i in range(at, rows.num_columns))]
    arrays += rows.columns[at:]
    whole = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return dataclasses.replace(change, rows=whole, constants=())


def _repeated(value: str, count: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count).cast(type_)
