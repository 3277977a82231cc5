# SPDX-License-Identifier: Apache-2.0
"""Changes of schemas and views as Paimon's REST protocol spells them, both ways.

Source: Paimon's `SchemaChange` and `ViewChange`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from storage.catalog.view import View
from storage.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
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
from storage.format.types.type_text import parse_type, type_to_json

_CHANGES: Mapping[type[SchemaChange], tuple[str, Mapping[str, str]]] = {
    SetOption: ("setOption", {"key": "key", "value": "value"}),
    RemoveOption: ("removeOption", {"key": "key"}),
    UpdateTableComment: ("updateComment", {"comment": "comment"}),
    AddColumn: ("addColumn", {"fieldNames": "name", "dataType": "type", "comment": "comment"}),
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
    """The changes that turn a view into another one.

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
    """The position of a column; None: unspecified."""
    name = _path(change.name)[-1]
    if change.first:
        return {"fieldName": name, "type": "FIRST"}
    if change.after is not None:
        return {"fieldName": name, "referenceFieldName": change.after, "type": "AFTER"}
    if change.before is not None:
        return {"fieldName": name, "referenceFieldName": change.before, "type": "BEFORE"}
    return None


def changes_from_json(document: Mapping[str, Any]) -> list[SchemaChange]:
    """The changes of an object: two where it also states whether nulls are allowed.

    Raises:
        InvalidRequestError: it is no change.
        UnsupportedFeatureError: there is no change of this action.
    """
    action = document.get("action")
    change_type = next((kind for kind, (name, _) in _CHANGES.items() if name == action), None)
    if change_type is None:
        raise UnsupportedFeatureError(
            "unknown action of a table change",
            hint=f"there are {', '.join(name for name, _ in _CHANGES.values())}",
            action=action,
        )
    try:
        return _changes(change_type, document)
    except (KeyError, TypeError, IndexError) as error:
        raise InvalidRequestError(
            "a field of a table change is missing", detail=repr(error), action=action
        ) from error


def _changes(kind: type[SchemaChange], document: Mapping[str, Any]) -> list[SchemaChange]:
    attributes: dict[str, Any] = {}
    for member, attribute in _CHANGES[kind][1].items():
        value: Any = document.get(member) if attribute in _NULLABLE else document[member]
        attributes[attribute] = parse_type(value) if attribute == "type" else value
        if attribute == "name":
            attributes[attribute] = tuple(value)
    move = document.get("move")
    if kind is MoveColumn:
        attributes["name"] = (move["fieldName"],)  # type: ignore[index]
    if kind in (MoveColumn, AddColumn) and move is not None:
        attributes |= _move_json(move)
    change: SchemaChange = kind(**attributes)
    if isinstance(change, UpdateType) and not document.get("keepNullability", True):
        return [change, UpdateNullability(change.name, change.type.nullable)]
    return [change]


_NULLABLE = ("comment", "default")
"""Attributes whose members may be missing."""


def _move_json(move: Mapping[str, Any]) -> dict[str, Any]:
    match move["type"]:
        case "FIRST":
            return {"first": True}
        case "AFTER":
            return {"after": move["referenceFieldName"]}
        case "BEFORE":
            return {"before": move["referenceFieldName"]}
        case "LAST":
            return {}
        case kind:
            raise InvalidRequestError(
                "unknown type of column move", hint="use FIRST, AFTER, BEFORE or LAST", type=kind
            )


def changed_view(view: View, changes: Sequence[Mapping[str, Any]]) -> View:
    """A view after changes.

    Raises:
        AlreadyExistsError: a dialect that is added exists.
        NotFoundError: a dialect that is changed or dropped does not exist.
        InvalidRequestError: one is no change.
        UnsupportedFeatureError: there is no change of this action.
    """
    options, dialects, comment = dict(view.options), dict(view.dialects), view.comment
    for change in changes:
        try:
            match change.get("action"):
                case "setOption":
                    options[change["key"]] = change["value"]
                case "removeOption":
                    options.pop(change["key"], None)
                case "updateComment":
                    comment = change.get("comment")
                case "addDialect" | "updateDialect" | "dropDialect" as action:
                    _change_dialect(dialects, action, change)
                case action:
                    raise UnsupportedFeatureError("unknown action of a view change", action=action)
        except KeyError as error:
            raise InvalidRequestError(
                "a field of a view change is missing", detail=repr(error)
            ) from error
    return dataclasses.replace(view, options=options, dialects=dialects, comment=comment)


def _change_dialect(dialects: dict[str, str], action: str, change: Mapping[str, Any]) -> None:
    name = change["dialect"]
    if action == "addDialect" and name in dialects:
        raise AlreadyExistsError("the view has this dialect already", dialect=name)
    if action != "addDialect" and name not in dialects:
        raise NotFoundError("the view has no such dialect", dialect=name)
    if action == "dropDialect":
        del dialects[name]
    else:
        dialects[name] = change["query"]
