# SPDX-License-Identifier: Apache-2.0
"""Databases and views as catalogs give them, and the JSON form in which catalogs keep a view.

Source: Paimon's `ViewSchema`: `fields` as in a schema file, `query`, `dialects`, `comment`,
`options`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from storage.errors import CorruptDataError
from storage.format.metadata.documents import parse_object
from storage.format.types.types import DataField, field_from_json, field_to_json

COMMENT = "comment"
"""Property of a database: what it is for."""

LOCATION = "location"
"""Property of a database: directory of its tables."""


@dataclasses.dataclass(frozen=True, slots=True)
class Database:
    """A database.

    Attributes:
        name: of the database.
        properties: texts by key, without the comment.
        comment: what it is for, or None.
    """

    name: str
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def of(name: str, properties: Mapping[str, str]) -> "Database":
        """A database of properties that may hold its comment."""
        rest = {key: value for key, value in properties.items() if key != COMMENT}
        return Database(name, rest, properties.get(COMMENT))


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A query under a name.

    Attributes:
        fields: its columns.
        query: SQL.
        dialects: the query for other engines, by name of the engine (`spark`, `flink`, …).
        comment: what it is for, or None.
        options: texts by key.
    """

    fields: tuple[DataField, ...]
    query: str
    dialects: Mapping[str, str] = dataclasses.field(default_factory=dict)
    comment: str | None = None
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of Paimon's `ViewSchema`."""
        value: dict[str, Any] = {
            "fields": [field_to_json(field) for field in self.fields],
            "query": self.query,
            "dialects": dict(self.dialects),
            "options": dict(self.options),
        }
        if self.comment is not None:
            value["comment"] = self.comment
        return value

    @staticmethod
    def from_json(data: bytes | Mapping[str, Any], name: str) -> "View":
        """A view of its JSON object.

        Raises:
            CorruptDataError: it is none.
        """
        value = parse_object(data, "view") if isinstance(data, bytes) else data
        try:
            return View(
                fields=tuple(field_from_json(field) for field in value["fields"]),
                query=str(value["query"]),
                dialects=dict(value.get("dialects") or {}),
                comment=value.get("comment"),
                options=dict(value.get("options") or {}),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError("not a view", detail=repr(error), view=name) from error
