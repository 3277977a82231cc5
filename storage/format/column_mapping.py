# SPDX-License-Identifier: Apache-2.0
"""Columns of a file under an old schema as columns of a newer one.

Columns are matched by field id, also inside ROW types: a missing id reads as null, a renamed column
keeps its data, a widened type is cast (SEMANTICS: schema evolution, reading old files). A type
change that cannot be followed exactly is refused when the mapping is made, before any row is read.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import UnsupportedFeatureError
from storage.format.arrow_types import arrow_field, arrow_type
from storage.format.int96 import INT96_BYTES, from_int96
from storage.format.type_text import type_name
from storage.format.types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    RowType,
    TypeRoot,
)

__all__ = ["Conversion", "conversion"]

Conversion = Callable[[pa.Array], pa.Array]
"""Takes a column as it is in the file, gives it in the wanted type; same length."""

_INTEGERS = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT)
_FLOATS = (TypeRoot.FLOAT, TypeRoot.DOUBLE)
_TEXTS = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_BLOBS = (TypeRoot.BINARY, TypeRoot.VARBINARY)
_EXACT_TEXT_SOURCES = (*_INTEGERS, TypeRoot.BOOLEAN, TypeRoot.DATE)
"""Types whose text Arrow and Java agree on."""


def conversion(source: DataType, target: DataType, name: str) -> Conversion:
    """How to bring a column of one type to another.

    Args:
        source: type in the schema the file was written with.
        target: type in the schema it is read with.
        name: column to name in an error.

    Raises:
        UnsupportedFeatureError: there is no exact conversion.
    """
    exact = _conversion(source, target, name)
    if source != target:
        return exact
    wanted = arrow_type(target)
    return lambda column: column if column.type == wanted else exact(column)


def _conversion(source: DataType, target: DataType, name: str) -> Conversion:
    match source, target:
        case AtomicType(), AtomicType():
            if not _follows(source, target):
                raise _refusal(source, target, name)
            wanted = arrow_type(target)
            return lambda column: _cast(column, wanted, name)
        case RowType(), RowType():
            return _row_conversion(source, target, name)
        case ArrayType(), ArrayType():
            return _list_conversion(
                conversion(source.element, target.element, name), arrow_type(target)
            )
        case MultisetType(), MultisetType():
            keys = conversion(source.element, target.element, name)
            return _map_conversion(keys, lambda counts: counts, arrow_type(target))
        case MapType(), MapType():
            return _map_conversion(
                conversion(source.key, target.key, name),
                conversion(source.value, target.value, name),
                arrow_type(target),
            )
        case _:
            raise _refusal(source, target, name)


def _follows(source: AtomicType, target: AtomicType) -> bool:
    """Whether every value of `source` has an exact image in `target`, the one Java gives."""
    old, new = source.root, target.root
    if old in _INTEGERS:
        return _integer_follows(old, target)
    if new in _TEXTS and old in _EXACT_TEXT_SOURCES:
        return target.length >= _LONGEST_TEXT
    if old in _TEXTS or old in _BLOBS:
        same_kind = new in (_TEXTS if old in _TEXTS else _BLOBS)
        padded = new in (TypeRoot.CHAR, TypeRoot.BINARY) and old is not new
        return same_kind and not padded and target.length >= source.length
    if old is TypeRoot.DECIMAL:
        grows = target.precision - target.scale >= source.precision - source.scale
        return new is TypeRoot.DECIMAL and grows and target.scale >= source.scale
    if old is TypeRoot.FLOAT:
        return new in _FLOATS
    return old is new and target.precision >= source.precision


_LONGEST_TEXT = 20
"""Characters of the longest BIGINT; no exact source is longer."""


def _integer_follows(old: TypeRoot, target: AtomicType) -> bool:
    new = target.root
    if new in _INTEGERS:
        return _INTEGERS.index(new) >= _INTEGERS.index(old)
    if new in _FLOATS:
        return True
    if new in _TEXTS:
        return target.length >= _LONGEST_TEXT
    if new is TypeRoot.DECIMAL:
        return target.precision - target.scale >= _DIGITS[old]
    return False


_DIGITS = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INT: 10, TypeRoot.BIGINT: 19}


def _cast(column: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    if column.type == wanted:
        return column
    if column.type == INT96_BYTES and pa.types.is_timestamp(wanted):
        return from_int96(column, wanted, name=name)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(column.type):
        # Old and new are both wall clock or both UTC; Arrow forgets the zone of an INT96 column.
        column = column.cast(pa.timestamp(column.type.unit, tz=wanted.tz))
    rounding = pa.types.is_integer(column.type) and pa.types.is_floating(wanted)
    try:
        return column.cast(wanted, safe=not rounding)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedFeatureError(
            "a stored value does not fit the column's present type",
            detail=str(error),
            column=name,
            type=wanted,
        ) from error


def _row_conversion(source: RowType, target: RowType, name: str) -> Conversion:
    position_of = {field.id: position for position, field in enumerate(source.fields)}
    fields = [arrow_field(field) for field in target.fields]
    children: list[tuple[int | None, Conversion]] = [
        (position_of.get(field.id), _child_conversion(field, source.fields, name))
        for field in target.fields
    ]

    def convert(column: pa.StructArray) -> pa.Array:
        arrays = [
            pa.nulls(len(column), fields[i].type)
            if position is None
            else child(column.field(position))
            for i, (position, child) in enumerate(children)
        ]
        mask = pc.is_null(column) if column.null_count else None
        nullable = [field.with_nullable(True) for field in fields]
        built = pa.StructArray.from_arrays(arrays, fields=nullable, mask=mask)
        return _retyped(built, pa.struct(fields))

    return convert


def _child_conversion(field: DataField, old: Sequence[DataField], name: str) -> Conversion:
    for candidate in old:
        if candidate.id == field.id:
            return conversion(candidate.type, field.type, f"{name}.{field.name}")
    return lambda column: column


def _list_conversion(element: Conversion, wanted: pa.DataType) -> Conversion:
    def convert(column: pa.ListArray) -> pa.Array:
        return _with_children(column, wanted, [element(column.values)])

    return convert


def _map_conversion(key: Conversion, value: Conversion, wanted: pa.DataType) -> Conversion:
    def convert(column: pa.MapArray) -> pa.Array:
        entries = pa.StructArray.from_arrays(
            [key(column.keys), value(column.items)], fields=[wanted.key_field, wanted.item_field]
        )
        return _with_children(column, wanted, [entries])

    return convert


def _with_children(column: pa.Array, wanted: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """The same list structure around other children."""
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(column), buffers, offset=column.offset, children=children
    )


def _retyped(column: pa.StructArray, wanted: pa.DataType) -> pa.Array:
    """The same struct with other nullability flags of its fields."""
    children = [column.field(i) for i in range(column.type.num_fields)]
    return pa.Array.from_buffers(wanted, len(column), column.buffers()[:1], children=children)


def _refusal(source: DataType, target: DataType, name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        "a data file has a column whose type cannot be read as its present type",
        hint="read this table with Apache Paimon, or rewrite the old files by a full compaction",
        column=name,
        stored=type_name(source),
        wanted=type_name(target),
    )
