# SPDX-License-Identifier: Apache-2.0
"""Paths into nested columns, and rebuilding a field tree around one changed place. Pure."""

import dataclasses
from collections.abc import Callable

from storage.errors import AlreadyExistsError, InvalidSchemaChangeError, NotFoundError
from storage.format.types.types import ArrayType, DataField, DataType, MapType, RowType

ColumnPath = str | tuple[str, ...]
"""A column's name, or the steps to a nested field: field names, `element` for what an ARRAY holds,
`value` for what a MAP holds."""

Siblings = tuple[DataField, ...]


class ColumnExistsError(InvalidSchemaChangeError, AlreadyExistsError):
    """A column of this name is there."""


class ColumnNotFoundError(InvalidSchemaChangeError, NotFoundError):
    """There is no column of this name."""


def as_path(name: ColumnPath) -> tuple[str, ...]:
    """The steps of a path, at least one.

    Raises:
        InvalidSchemaChangeError: the path is empty.
    """
    path = (name,) if isinstance(name, str) else name
    if not path:
        raise InvalidSchemaChangeError("a column path needs at least one step")
    return path


def path_text(path: tuple[str, ...]) -> str:
    """The path for messages."""
    return ".".join(path)


def edit_siblings(
    fields: Siblings, path: tuple[str, ...], edit: Callable[[Siblings], Siblings]
) -> Siblings:
    """The fields with those that hold the last step of `path` replaced by `edit`'s result.

    All steps but the last must exist; `edit` gets the fields among which the last one is, or
    will be.

    Raises:
        InvalidSchemaChangeError: a step leads nowhere, or `edit` refuses.
    """
    if len(path) == 1:
        return edit(fields)

    def edit_row(type_: DataType) -> DataType:
        if not isinstance(type_, RowType):
            raise InvalidSchemaChangeError(
                "the path does not name a field of a ROW", column=path_text(path)
            )
        return dataclasses.replace(type_, fields=edit(type_.fields))

    return edit_type(fields, path[:-1], edit_row)


def edit_type(
    fields: Siblings, path: tuple[str, ...], edit: Callable[[DataType], DataType]
) -> Siblings:
    """The fields with the type that `path` leads to replaced by `edit`'s result.

    The last step may also be `element` or `value`, for what an ARRAY or a MAP holds.

    Raises:
        InvalidSchemaChangeError: a step leads nowhere, or `edit` refuses.
    """
    return _fields_edited(fields, path, 0, edit)


def _fields_edited(
    fields: Siblings, path: tuple[str, ...], depth: int, edit: Callable[[DataType], DataType]
) -> Siblings:
    for index, field in enumerate(fields):
        if field.name == path[depth]:
            type_ = _type_edited(field.type, path, depth + 1, edit)
            changed = dataclasses.replace(field, type=type_)
            return (*fields[:index], changed, *fields[index + 1 :])
    raise ColumnNotFoundError("no such column", column=path_text(path[: depth + 1]))


def _type_edited(
    type_: DataType, path: tuple[str, ...], depth: int, edit: Callable[[DataType], DataType]
) -> DataType:
    if depth == len(path):
        return edit(type_)
    match type_:
        case RowType():
            fields = _fields_edited(type_.fields, path, depth, edit)
            return dataclasses.replace(type_, fields=fields)
        case ArrayType() if path[depth] == "element":
            element = _type_edited(type_.element, path, depth + 1, edit)
            return dataclasses.replace(type_, element=element)
        case MapType() if path[depth] == "value":
            value = _type_edited(type_.value, path, depth + 1, edit)
            return dataclasses.replace(type_, value=value)
    raise ColumnNotFoundError("no such column", column=path_text(path[: depth + 1]))
