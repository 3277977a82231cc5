# SPDX-License-Identifier: Apache-2.0
"""The ORC types of columns: as Java declares them, and where timestamps are among them.

Columns of an ORC file are numbered depth first, the root being 0. Source: FORMAT.md §7.4.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from storage.format.files.orc.tail import CHAR, VARCHAR
from storage.format.types.arrow_types import arrow_type
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
    key_id,
    value_id,
)

COUNT = AtomicType(TypeRoot.INT, nullable=False)
"""Type of a multiset's counts."""

INSTANT_ROOTS = (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
UNITS_PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Steps of an Arrow timestamp, by its unit."""

_FIELD_ID = b"paimon.id"


def stored_field(name: str, type_: DataType, field_id: int, owner: int, depth: int) -> pa.Field:
    """The Arrow field that makes pyarrow declare the ORC type Java would declare.

    Args:
        name: in the file.
        type_: the Paimon type.
        field_id: goes into the attribute.
        owner: id of the enclosing schema field, from which ids of elements derive.
        depth: collections between the owner and this type.
    """
    stored = _stored_type(type_, owner, depth)
    return pa.field(name, stored, type_.nullable, {_FIELD_ID: str(field_id).encode()})


def _stored_type(type_: DataType, owner: int, depth: int) -> pa.DataType:
    below = depth + 1
    match type_:
        case AtomicType(root=TypeRoot.TIME):
            return pa.int32()
        case AtomicType():
            return arrow_type(type_)
        case ArrayType(element=element):
            return pa.list_(stored_field("element", element, value_id(owner, below), owner, below))
        case MultisetType(element=key):
            return _stored_map(key, COUNT, owner, below)
        case MapType(key=key, value=value):
            return _stored_map(key, value, owner, below)
        case RowType(fields=fields):
            return pa.struct([stored_field(f.name, f.type, f.id, f.id, 0) for f in fields])


def _stored_map(key: DataType, value: DataType, owner: int, depth: int) -> pa.DataType:
    key_field = stored_field("key", key, key_id(owner, depth), owner, depth)
    value_field = stored_field("value", value, value_id(owner, depth), owner, depth)
    return pa.map_(key_field.with_nullable(False), value_field)


def declared_kinds(fields: Sequence[DataField]) -> dict[int, tuple[int, int]]:
    """CHAR and VARCHAR columns by column id: the types below the root, depth first from 1."""
    kinds: dict[int, tuple[int, int]] = {}
    for column, type_ in enumerate(depth_first([field.type for field in fields]), 1):
        if isinstance(type_, AtomicType):
            if type_.root is TypeRoot.CHAR:
                kinds[column] = CHAR, type_.length
            elif type_.root is TypeRoot.VARCHAR and type_.length < MAX_LENGTH:
                kinds[column] = VARCHAR, type_.length
    return kinds


def depth_first(types: Sequence[DataType]) -> Iterator[DataType]:
    """The types and all that is inside them, in the order of ORC's columns."""
    for type_ in types:
        yield type_
        yield from depth_first(children(type_))


def children(type_: DataType) -> list[DataType]:
    """The types directly inside."""
    match type_:
        case AtomicType():
            return []
        case ArrayType(element=element):
            return [element]
        case MultisetType(element=element):
            return [element, COUNT]
        case MapType(key=key, value=value):
            return [key, value]
        case RowType(fields=fields):
            return [field.type for field in fields]


def has_instants(type_: DataType) -> bool:
    """Whether there is a timestamp at any depth."""
    return any(
        isinstance(part, AtomicType) and part.root in INSTANT_ROOTS for part in depth_first([type_])
    )
