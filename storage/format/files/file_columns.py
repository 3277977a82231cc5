# SPDX-License-Identifier: Apache-2.0
"""Columns as a file library decodes them, converted to the Arrow types of `arrow_types`.

The same values under another Arrow type: zones, units, nullability flags, INT96, fields of ROWs
in another order. Nothing is cast here in the sense of a schema change; that is `column_mapping`.
Columns and the fields of ROWs are found by name, as Java finds them in every format.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.files.parquet.int96 import INT96_BYTES, from_int96, holds_nanoseconds
from storage.format.files.row_selection import RowSelection
from storage.format.types.arrow_types import arrow_field, arrow_type
from storage.format.types.type_text import type_name
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

_COUNT = AtomicType(TypeRoot.INT, nullable=False)


def selected(batch: pa.RecordBatch, start: int, selection: RowSelection | None) -> pa.RecordBatch:
    """The selected rows of a batch whose first row is row `start` of its file; may be empty."""
    mask = None if selection is None else selection.mask(start, batch.num_rows)
    if mask is None:
        return batch
    if batch.num_columns == 0:
        return batch.slice(0, int(mask.sum()))
    return batch.filter(pa.array(mask))


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch that only carries a number of rows."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def conform_batch(batch: pa.RecordBatch, columns: Sequence[DataField], path: str) -> pa.RecordBatch:
    """The requested columns of a decoded batch, in the requested order and types.

    Columns that the batch lacks are left out. A column that is dictionary-encoded stays so.

    Raises:
        CorruptDataError: a column does not have its field's type.
        UnsupportedFeatureError: a timestamp outside of what 64-bit nanoseconds hold.
    """
    positions = {name: i for i, name in enumerate(batch.schema.names)}
    present = [field for field in columns if field.name in positions]
    if not present:
        return batch.select([])
    arrays = [conform(batch.column(positions[f.name]), f.type, f.name, path) for f in present]
    fields = [
        arrow_field(f).with_type(array.type) for f, array in zip(present, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def conform(column: pa.Array, type_: DataType, name: str, path: str) -> pa.Array:
    """One column as an array of `arrow_type(type_)`; zero copy when it already is one.

    A dictionary of values of that type stays one.

    Raises:
        CorruptDataError: the column holds something else.
        UnsupportedFeatureError: a timestamp outside of what 64-bit nanoseconds hold.
    """
    target = arrow_type(type_)
    if column.type == target:
        return column
    if pa.types.is_dictionary(column.type) and column.type.value_type == target:
        return column
    match type_:
        case AtomicType():
            return _atomic(column, target, type_, name, path)
        case ArrayType(element=element) if pa.types.is_list(column.type):
            return list_like(column, target, conform(column.values, element, name, path))
        case MultisetType(element=element) if pa.types.is_map(column.type):
            return _map(column, target, element, _COUNT, name, path)
        case MapType(key=key, value=value) if pa.types.is_map(column.type):
            return _map(column, target, key, value, name, path)
        case RowType(fields=fields) if pa.types.is_struct(column.type):
            return _row(column, fields, name, path)
    raise _mismatch(column, type_, name, path)


def list_like(column: pa.Array, target_type: pa.DataType, child: pa.Array) -> pa.Array:
    """The list structure of `column` (a list or map) with another child array.

    The child is all values, slices not cut away; of a map a struct of key and value.
    """
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(
        target_type, len(column), buffers, offset=column.offset, children=[child]
    )


def map_entries(
    column: pa.Array, target_type: pa.DataType, keys: pa.Array, items: pa.Array
) -> pa.Array:
    """The map structure of `column` with other keys and values, slices not cut away."""
    entries = pa.Array.from_buffers(
        pa.struct([target_type.key_field, target_type.item_field]),
        len(keys),
        [None],
        children=[keys, items],
    )
    return list_like(column, target_type, entries)


def struct_like(column: pa.Array, fields: Sequence[pa.Field], children: list[pa.Array]) -> pa.Array:
    """A struct with the nulls of `column` and other children, each as long as `column`."""
    validity = pc.is_valid(column).buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(
        pa.struct(list(fields)), len(column), [validity], children=children
    )


def without_nulls(column: pa.Array) -> pa.Array:
    """The same array with nothing marked null; what was null holds any value of the type."""
    if pa.types.is_struct(column.type):
        children = [column.field(i) for i in range(column.type.num_fields)]
        return pa.Array.from_buffers(column.type, len(column), [None], children=children)
    if pa.types.is_list(column.type):
        children = [column.values]
    elif pa.types.is_map(column.type):
        keys, items = column.type.key_field, column.type.item_field
        children = [
            pa.Array.from_buffers(
                pa.struct([keys, items]),
                len(column.keys),
                [None],
                children=[column.keys, column.items],
            )
        ]
    else:
        buffers = [None, *column.buffers()[1:]]
        return pa.Array.from_buffers(column.type, len(column), buffers, offset=column.offset)
    return pa.Array.from_buffers(
        column.type,
        len(column),
        [None, column.buffers()[1]],
        offset=column.offset,
        children=children,
    )


def mapped_values(
    column: pa.Array,
    type_: DataType,
    roots: Sequence[TypeRoot],
    change: Callable[[pa.Array, AtomicType], pa.Array],
) -> pa.Array:
    """The column with its values of some types changed, at any depth.

    `change` returns other values of the same type.
    """
    match type_:
        case AtomicType():
            return change(column, type_) if type_.root in roots else column
        case ArrayType(element=element):
            return list_like(
                column, column.type, mapped_values(column.values, element, roots, change)
            )
        case MultisetType(element=key):
            keys = mapped_values(column.keys, key, roots, change)
            return map_entries(column, column.type, keys, column.items)
        case MapType(key=key, value=value):
            keys = mapped_values(column.keys, key, roots, change)
            items = mapped_values(column.items, value, roots, change)
            return map_entries(column, column.type, keys, items)
        case RowType(fields=fields):
            children = [
                mapped_values(column.field(i), f.type, roots, change) for i, f in enumerate(fields)
            ]
            return struct_like(column, list(column.type), children)


def _map(
    column: pa.MapArray,
    target_type: pa.DataType,
    key: DataType,
    value: DataType,
    name: str,
    path: str,
) -> pa.Array:
    keys = conform(column.keys, key, name, path)
    return map_entries(column, target_type, keys, conform(column.items, value, name, path))


def _row(column: pa.StructArray, fields: Sequence[DataField], name: str, path: str) -> pa.Array:
    positions = {column.type.field(i).name: i for i in range(column.type.num_fields)}
    children = [
        conform(_field_of(column, positions[field.name]), field.type, f"{name}.{field.name}", path)
        if field.name in positions
        else pa.nulls(len(column), arrow_type(field.type))
        for field in fields
    ]
    return struct_like(column, [arrow_field(field) for field in fields], children)


def _field_of(column: pa.StructArray, position: int) -> pa.Array:
    """A field of a ROW, null where the ROW is: below it an INT96 would have no valid day."""
    child = column.field(position)
    if column.null_count and (child.type == INT96_BYTES or pa.types.is_struct(child.type)):
        return column.flatten()[position]
    return child


def _atomic(
    column: pa.Array, target_type: pa.DataType, type_: AtomicType, name: str, path: str
) -> pa.Array:
    if column.type == INT96_BYTES and pa.types.is_timestamp(target_type):
        return from_int96(column, target_type, name=name)
    if pa.types.is_timestamp(target_type) and pa.types.is_timestamp(column.type):
        # Both are wall clocks or both instants: a library may only forget or invent the zone.
        column = column.view(pa.timestamp(column.type.unit, tz=target_type.tz))
    try:
        return column.cast(target_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if pa.types.is_timestamp(column.type) and holds_nanoseconds(target_type):
            raise UnsupportedFeatureError(
                "a timestamp with nanoseconds is outside the years 1677 to 2262",
                detail=str(error),
                hint="read this table with Apache Paimon, or use TIMESTAMP(6)",
                column=name,
                path=path,
            ) from error
        raise _mismatch(column, type_, name, path, str(error)) from error


def _mismatch(
    column: pa.Array, type_: DataType, name: str, path: str, detail: str = ""
) -> CorruptDataError:
    return CorruptDataError(
        "a data file's column type differs from its schema",
        detail=detail,
        column=name,
        expected=type_name(type_),
        found=column.type,
        path=path,
    )
