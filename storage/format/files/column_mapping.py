# SPDX-License-Identifier: Apache-2.0
"""Columns of a file under an old schema as columns of a newer one.

Columns are matched by field id, also inside ROW types at any depth: a missing id reads as null, a
renamed column keeps its data, a changed type is cast (SEMANTICS.md §H.3). A type change that
cannot be followed is refused when the mapping is made, before any row is read.
"""

import dataclasses
from collections.abc import Callable

import pyarrow as pa

from storage.errors import UnsupportedFeatureError
from storage.format.files.file_columns import list_like, map_entries, struct_like
from storage.format.types.arrow_types import arrow_field, arrow_type
from storage.format.types.cast_columns import can_cast, column_cast
from storage.format.types.type_text import type_name
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

Conversion = Callable[[pa.Array], pa.Array]
"""Takes a column of `arrow_type` of its file's type, returns it in that of the target type, equally
long. Raises `cast_arrays.CastError` for a value that cannot be converted."""

_UNCUT = (TypeRoot.VARCHAR, TypeRoot.VARBINARY)


def conversion(source: DataType, target: DataType, name: str) -> Conversion | None:
    """How to convert a column of one type to another; None when no conversion is needed.

    Raises:
        UnsupportedFeatureError: no schema change leads from one type to the other.
    """
    target_type = arrow_type(target)
    if keeps_values(source, target):
        same = arrow_type(source) == target_type
        return None if same else lambda column: _relabelled(column, target_type)
    match source, target:
        case RowType(), RowType():
            return _row_conversion(source, target, name)
        case ArrayType(), ArrayType():
            return _list_conversion(source.element, target.element, target_type, name)
        case MultisetType(), MultisetType():
            return _map_conversion((source.element, target.element), None, target_type, name)
        case MapType(), MapType():
            keys, values = (source.key, target.key), (source.value, target.value)
            return _map_conversion(keys, values, target_type, name)
        case _, AtomicType() if can_cast(source, dataclasses.replace(target, nullable=True)):
            return column_cast(source, target)
        case _:
            raise UnsupportedFeatureError(
                "a data file has a column that cannot be read as its current type",
                hint="rewrite the old files with the version that changed the type",
                column=name,
                stored=type_name(source),
                wanted=type_name(target),
            )


def keeps_values(source: DataType, target: DataType) -> bool:
    """Whether a column reads as it is stored; at most nullability differs in its Arrow type.

    Then statistics of the stored column also hold for the column as it is read.
    """
    match source, target:
        case AtomicType(), AtomicType():
            plain = dataclasses.replace(source, nullable=target.nullable)
            longer = source.root is target.root in _UNCUT and target.length >= source.length
            return plain == target or longer
        case ArrayType(), ArrayType():
            return keeps_values(source.element, target.element)
        case MultisetType(), MultisetType():
            return keeps_values(source.element, target.element)
        case MapType(), MapType():
            return keeps_values(source.key, target.key) and keeps_values(source.value, target.value)
        case RowType(), RowType():
            return [(f.id, f.name) for f in source.fields] == [
                (f.id, f.name) for f in target.fields
            ] and all(
                keeps_values(old.type, new.type)
                for old, new in zip(source.fields, target.fields, strict=True)
            )
        case _:
            return False


def _relabelled(column: pa.Array, target_type: pa.DataType) -> pa.Array:
    """The same values under a type that differs in the nullability of nested fields."""
    if column.type == target_type:
        return column
    if pa.types.is_struct(target_type):
        fields = [target_type.field(i) for i in range(target_type.num_fields)]
        children = [_relabelled(column.field(i), field.type) for i, field in enumerate(fields)]
        return struct_like(column, fields, children)
    if pa.types.is_map(target_type):
        keys = _relabelled(column.keys, target_type.key_type)
        items = _relabelled(column.items, target_type.item_type)
        return map_entries(column, target_type, keys, items)
    return list_like(column, target_type, _relabelled(column.values, target_type.value_type))


def _row_conversion(source: RowType, target: RowType, name: str) -> Conversion:
    position_of = {field.id: position for position, field in enumerate(source.fields)}
    fields = [arrow_field(field) for field in target.fields]
    steps: list[tuple[int, Conversion | None] | None] = []
    for field in target.fields:
        position = position_of.get(field.id)
        if position is None:
            steps.append(None)
        else:
            old = source.fields[position].type
            steps.append((position, conversion(old, field.type, f"{name}.{field.name}")))

    def convert(column: pa.StructArray) -> pa.Array:
        parts = column.flatten()  # values below a null ROW are undefined: not to be cast
        children = [
            pa.nulls(len(column), field.type) if step is None else _applied(step[1], parts[step[0]])
            for field, step in zip(fields, steps, strict=True)
        ]
        return struct_like(column, fields, children)

    return convert


def _list_conversion(
    source: DataType, target: DataType, target_type: pa.DataType, name: str
) -> Conversion:
    element = conversion(source, target, f"{name}.element")

    def convert(column: pa.ListArray) -> pa.Array:
        trimmed = _own_children(column)
        return list_like(trimmed, target_type, _applied(element, trimmed.values))

    return convert


def _map_conversion(
    keys: tuple[DataType, DataType],
    values: tuple[DataType, DataType] | None,
    target_type: pa.DataType,
    name: str,
) -> Conversion:
    key = conversion(*keys, f"{name}.key")
    value = None if values is None else conversion(*values, f"{name}.value")

    def convert(column: pa.MapArray) -> pa.Array:
        trimmed = _own_children(column)
        children = _applied(key, trimmed.keys), _applied(value, trimmed.items)
        return map_entries(trimmed, target_type, *children)

    return convert


def _own_children(column: pa.Array) -> pa.Array:
    """The column without children of rows that are null or sliced away, which must not be cast."""
    if column.offset == 0 and column.null_count == 0:
        return column
    return column.take(pa.array(range(0)) if len(column) == 0 else pa.arange(0, len(column)))


def _applied(step: Conversion | None, column: pa.Array) -> pa.Array:
    return column if step is None else step(column)
