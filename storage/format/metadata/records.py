# SPDX-License-Identifier: Apache-2.0
"""Metadata records: Avro schema and codec derived from the fields of a `msgspec.Struct`.

A field is declared once, in its class: `file_size: Long` is the Avro field `_FILE_SIZE` of type
long. It is nullable in Avro where its Python type is, or where it is marked with `NULLABLE`.
Fields without a member in a record take their defaults, so records of older writers read; members
without a field are skipped. Source: FORMAT.md §4.
"""

import dataclasses
import types
import typing
from collections.abc import Collection
from typing import Annotated, Any, TypeVar

import msgspec

from storage.errors import CorruptDataError
from storage.format.avro.schema import optional_field, record_text, required_field

_Struct = TypeVar("_Struct", bound=msgspec.Struct)

NULLABLE = object()
"""Marks a field that is nullable in Avro and never None here: null reads as its default."""


@dataclasses.dataclass(frozen=True, eq=False)
class Avro:
    """Marks a field whose Avro type does not follow from its Python type."""

    schema: Any


Long = Annotated[int, Avro("long")]
"""A 64-bit integer; a plain `int` has 32 bits in Avro."""

_PLAIN = {int: "int", str: "string", bytes: "bytes"}


def avro_name(attribute: str) -> str:
    """Name of a field in Avro, such as `_FILE_SIZE`; for `rename` of a struct."""
    return f"_{attribute.upper()}"


def record_schema(version_and: Collection[dict[str, Any]]) -> str:
    """The schema text of a manifest whose records have a `_VERSION` and these fields."""
    return record_text([required_field("_VERSION", "int"), *version_and])


def record_fields(
    struct: type[msgspec.Struct], path: str = "record", *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The Avro fields of a struct.

    `without` leaves out attributes, also of nested structs.
    """
    fields = []
    for field in msgspec.structs.fields(struct):
        if field.name in without:
            continue
        name = field.encode_name
        schema, nullable = _schema(field.type, f"{path}_{name}", without)
        fields.append(optional_field(name, schema) if nullable else required_field(name, schema))
    return fields


def _schema(type_: Any, path: str, without: Collection[str]) -> tuple[Any, bool]:
    """Avro type of a field, and whether it may be null."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is Annotated:
        marks = [mark for mark in arguments[1:] if isinstance(mark, Avro)]
        schema, nullable = (
            (marks[0].schema, False) if marks else _schema(arguments[0], path, without)
        )
        return schema, nullable or NULLABLE in arguments
    if origin in (types.UnionType, typing.Union):
        (inner,) = (part for part in arguments if part is not types.NoneType)
        return _schema(inner, path, without)[0], True
    if origin is tuple:
        items, nullable = _schema(arguments[0], path, without)
        record = isinstance(items, dict)
        return {"type": "array", "items": ["null", items] if nullable or record else items}, False
    if issubclass(type_, msgspec.Struct):
        fields = record_fields(type_, path, without=without)
        return {"type": "record", "name": path, "fields": fields}, False
    return next(name for plain, name in _PLAIN.items() if issubclass(type_, plain)), False


def to_record(value: msgspec.Struct) -> dict[str, Any]:
    """The Avro record of a struct, without a version."""
    record: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(bytes,))
    return record


def from_record(record: dict[str, Any], struct: type[_Struct], source: str) -> _Struct:
    """The struct of an Avro record.

    Raises:
        CorruptDataError: a required field is missing or has a value of another type.
    """
    try:
        return msgspec.convert(record, struct)
    except msgspec.ValidationError:
        pass
    try:  # a null where this version writes none is the default
        return msgspec.convert(_without_nulls(record), struct)
    except msgspec.ValidationError as error:
        raise CorruptDataError(
            "a manifest record lacks a required field or has one of a wrong type",
            detail=str(error),
            path=source,
        ) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        return [_without_nulls(part) for part in value if part is not None]
    return value
