# SPDX-License-Identifier: Apache-2.0
"""Changes of tables and views as JSON objects of Paimon's REST protocol.

Source: Paimon's `SchemaChange` and `ViewChange`.
"""

from collections.abc import Mapping
from typing import Any

from storage.catalog.view import View
from storage.errors import UnsupportedFeatureError
from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    DropPrimaryKey,
    MoveColumn,
    RemoveOption,
    RenameColumn,
    SchemaChange,
    SetOption,
    UpdateComment,
    UpdateDefault,
    UpdateNullability,
    UpdateTableComment,
    UpdateType,
)
from storage.format.types.type_text import type_to_json

__all__ = ["change_to_json", "view_changes"]


_CHANGES: Mapping[type[SchemaChange], tuple[str, Mapping[str, str]]] = {
    SetOption: ("setOption", {"key": "key", "value": "value"}),
    RemoveOption: ("removeOption", {"key": "key"}),
    UpdateTableComment: ("updateComment", {"comment": "comment"}),
    AddColumn: (
        "addColumn",
        {"fieldNames": "name", "dataType": "type", "comment": "comment"},
    ),
    RenameColumn: ("renameColumn", {"fieldNames": "name", "newName": "new_name"}),
    DropColumn: ("dropColumn", {"fieldNames": "name"}),
    UpdateType: ("updateColumnType", {"fieldNames": "name", "newDataType": "type"}),
    UpdateNullability: (
        "updateColumnNullability",
        {"fieldNames": "name", "newNullability": "nullable"},
    ),
    UpdateComment: ("updateColumnComment", {"fieldNames": "name", "newComment": "comment"}),
    UpdateDefault: (
        "updateColumnDefaultValue",
        {"fieldNames": "name", "newDefaultValue": "default"},
    ),
    MoveColumn: ("updateColumnPosition", {}),
    DropPrimaryKey: ("dropPrimaryKey", {}),
}
"""Action, and members of the object with the attributes that they hold, by kind of change."""


def change_to_json(change: SchemaChange) -> dict[str, Any]:
    """The JSON object of a change."""
    action, members = _CHANGES[type(change)]
    document: dict[str, Any] = {"action": action}
    for member, attribute in members.items():
        value = getattr(change, attribute)
        converted = _path(value) if attribute == "name" else value
        document[member] = type_to_json(value) if attribute == "type" else converted
    match change:
        case AddColumn():
            document["move"] = _move(change)
        case UpdateType():
            document["keepNullability"] = True
        case MoveColumn():
            last = {"fieldName": _path(change.name)[-1], "type": "LAST"}
            document["move"] = _move(change) or last
        case _:
            pass
    return document


def view_changes(before: View, after: View, identifier: str) -> list[dict[str, Any]]:
    """What makes a view another one.

    Raises:
        UnsupportedFeatureError: its columns or its query differ, for which there is no change.
    """
    if (before.fields, before.query) != (after.fields, after.query):
        raise UnsupportedFeatureError(
            "the query of a view of a REST catalog cannot be changed",
            hint="drop the view and make it anew",
            view=identifier,
        )
    changes: list[dict[str, Any]] = [
        {"action": "setOption", "key": key, "value": value}
        for key, value in after.options.items()
        if before.options.get(key) != value
    ]
    removed = [key for key in before.options if key not in after.options]
    changes += [{"action": "removeOption", "key": key} for key in removed]
    if before.comment != after.comment:
        changes.append({"action": "updateComment", "comment": after.comment})
    for name, query in after.dialects.items():
        if before.dialects.get(name) != query:
            action = "updateDialect" if name in before.dialects else "addDialect"
            changes.append({"action": action, "dialect": name, "query": query})
    dropped = [name for name in before.dialects if name not in after.dialects]
    changes += [{"action": "dropDialect", "dialect": name} for name in dropped]
    return changes


def _path(name: str | tuple[str, ...]) -> list[str]:
    return [name] if isinstance(name, str) else list(name)


def _move(change: AddColumn | MoveColumn) -> dict[str, Any] | None:
    """Where a column goes; None: nothing is said."""
    name = _path(change.name)[-1]
    if change.first:
        return {"fieldName": name, "type": "FIRST"}
    if change.after is not None:
        return {"fieldName": name, "referenceFieldName": change.after, "type": "AFTER"}
    if change.before is not None:
        return {"fieldName": name, "referenceFieldName": change.before, "type": "BEFORE"}
    return None
