# SPDX-License-Identifier: Apache-2.0
"""Columns as a file library decodes them, converted to the Arrow types of `arrow_types`.

The same values under another Arrow type: zones, units, nullability flags, INT96, fields of ROWs
in another order. Nothing is cast here in the sense of a schema change; that is `column_mapping`.
Columns and the fields of ROWs are found by name, as Java finds them in every format.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import CorruptDataError, UnsupportedFeatureError
from storage.format.files.row_selection import RowSelection
from storage.format.types.casts import can_cast, column_cast
from storage.format.types.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
    arrow_field,
    arrow_type,
    type_name,
)

# Nanosecond timestamps as the 12 bytes of a Parquet INT96 value, and back; all vectorised.
#
# Bytes: i64 LE nanosecond of the day, i32 LE Julian day. We write the day rounded down; Java rounds
# instants before 1970 towards zero and stores a negative nanosecond, which reads all the same
# (FORMAT.md §7.3). A stored instant outside the int64 nanosecond range is an error here, never a
# wrapped value.


INT96_BYTES = pa.binary(12)
"""The Arrow type of raw INT96 values."""

_VALUE = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_NANOS_PER_DAY = 86_400_000_000_000
_NANOS_PER_SECOND = 1_000_000_000
_SECONDS_PER_DAY = 86_400
_JULIAN_EPOCH = 2_440_588
_MAX_SECONDS = 9_223_372_036
"""Whole seconds that fit into int64 nanoseconds, less the last incomplete one."""


def holds_nanoseconds(type_: pa.DataType) -> bool:
    """Whether a column of this type is stored as INT96: a nanosecond timestamp."""
    return pa.types.is_timestamp(type_) and type_.unit == "ns"


def to_int96(column: pa.Array) -> pa.Array:
    """The 12-byte values of a `timestamp('ns')` array; nulls stay null."""
    nanos = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    values = np.empty(len(nanos), _VALUE)
    days, values["nanos"] = np.divmod(nanos, _NANOS_PER_DAY)
    values["day"] = days + _JULIAN_EPOCH
    validity = _bitmap(_present(column)) if column.null_count else None
    return pa.Array.from_buffers(INT96_BYTES, len(column), [validity, pa.py_buffer(values)])


def from_int96(column: pa.Array, type_: pa.DataType, *, name: str) -> pa.Array:
    """Timestamps of 12-byte values.

    Raises:
        UnsupportedFeatureError: a value is outside the years 1677 to 2262.
    """
    data = column.buffers()[1]
    if len(column) == 0 or data is None:
        return pa.nulls(len(column), type_)
    values = np.frombuffer(data, _VALUE, count=len(column), offset=column.offset * _VALUE.itemsize)
    days = values["day"].astype(np.int64) - _JULIAN_EPOCH
    nanos = values["nanos"].copy()
    validity = None
    if column.null_count:
        present = _present(column)
        validity = _bitmap(present)
        days[~present] = 0
        nanos[~present] = 0
    seconds = days * _SECONDS_PER_DAY + nanos // _NANOS_PER_SECOND
    if np.any((seconds < -_MAX_SECONDS) | (seconds >= _MAX_SECONDS)):
        raise UnsupportedFeatureError(
            "a timestamp with nanoseconds is outside the years 1677 to 2262",
            hint="read this table with Apache Paimon, or use TIMESTAMP(6)",
            column=name,
        )
    total = days * _NANOS_PER_DAY + nanos
    return pa.Array.from_buffers(type_, len(column), [validity, pa.py_buffer(total)])


def _present(column: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    present: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.is_valid(column).to_numpy(
        zero_copy_only=False
    )
    return present


def _bitmap(present: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> pa.Buffer:
    """A validity bitmap of its own: Arrow's would start at the array's offset."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))


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


# Columns of a file under an old schema as columns of a newer one.
#
# Columns are matched by field id, also inside ROW types at any depth: a missing id reads as null, a
# renamed column keeps its data, a changed type is cast (SEMANTICS.md §H.3). A type change that
# cannot be followed is refused when the mapping is made, before any row is read.


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
