# SPDX-License-Identifier: Apache-2.0
"""Changes of tables and views as JSON objects of Paimon's REST protocol.

Source: Paimon's `SchemaChange` and `ViewChange`.
"""

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


def change_to_json(change: SchemaChange) -> dict[str, Any]:  # noqa: C901 - one case a class
    """The JSON object of a change."""
    match change:
        case SetOption():
            return {"action": "setOption", "key": change.key, "value": change.value}
        case RemoveOption():
            return {"action": "removeOption", "key": change.key}
        case UpdateTableComment():
            return {"action": "updateComment", "comment": change.comment}
        case AddColumn():
            return {
                "action": "addColumn",
                "fieldNames": _path(change.name),
                "dataType": type_to_json(change.type),
                "comment": change.comment,
                "move": _move(change),
            }
        case RenameColumn():
            names = _path(change.name)
            return {"action": "renameColumn", "fieldNames": names, "newName": change.new_name}
        case DropColumn():
            return {"action": "dropColumn", "fieldNames": _path(change.name)}
        case UpdateType():
            return {
                "action": "updateColumnType",
                "fieldNames": _path(change.name),
                "newDataType": type_to_json(change.type),
                "keepNullability": True,
            }
        case UpdateNullability():
            return {
                "action": "updateColumnNullability",
                "fieldNames": _path(change.name),
                "newNullability": change.nullable,
            }
        case UpdateComment():
            return {
                "action": "updateColumnComment",
                "fieldNames": _path(change.name),
                "newComment": change.comment,
            }
        case UpdateDefault():
            return {
                "action": "updateColumnDefaultValue",
                "fieldNames": _path(change.name),
                "newDefaultValue": change.default,
            }
        case MoveColumn():
            move = _move(change) or {"fieldName": _path(change.name)[-1], "type": "LAST"}
            return {"action": "updateColumnPosition", "move": move}
        case DropPrimaryKey():
            return {"action": "dropPrimaryKey"}


def view_changes(before: View, after: View, identifier: str) -> list[dict[str, Any]]:
    """What makes a view another one.

    Raises:
        UnsupportedFeatureError: its columns or its query differ, for which there is no change.
    """
    if (before.fields, before.query) != (after.fields, after.query):
        raise UnsupportedFeatureError(
            "the query of a view of a REST catalog cannot be changed",
            hint="drop the view and create it again",
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
