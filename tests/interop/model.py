# SPDX-License-Identifier: Apache-2.0
"""What a generated table holds after each step, in plain dictionaries.

Columns are followed by a number of their own through renames and moves, so that the model needs
nothing of the storage layer but the comparable form of values (`tests.golden.values`).
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from storage.format.metadata.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    UpdateType,
)
from storage.format.types.types import DataField, DataType, RowType, arrow_type
from tests.golden.values import Value, from_arrow
from tests.interop.generated_tables import Alter, Case, Delete, Step, Write

__all__ = ["Model"]


class Model:
    """The rows of one case; a step at a time."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._numbers = itertools.count()
        self._columns = [(next(self._numbers), name, type_) for name, type_ in case.columns]
        self._rows: dict[Any, dict[int, Value]] = {}
        self._arrivals = itertools.count()

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [name for _, name, _ in self._columns]

    def fields(self) -> list[DataField]:
        """Columns in order, with ids that mean nothing."""
        return [
            DataField(id=number, name=name, type=type_) for number, name, type_ in self._columns
        ]

    def rows(self) -> list[tuple[Value, ...]]:
        """All rows in the comparable form, columns in order, rows in no order."""
        return [
            tuple(row.get(number) for number, _, _ in self._columns) for row in self._rows.values()
        ]

    def apply(self, step: Step) -> None:
        """Take a step."""
        match step:
            case Write(rows=rows):
                self._write(rows)
            case Delete(ids=ids):
                place = self._number("id")
                self._rows = {k: row for k, row in self._rows.items() if row[place] not in ids}
            case Alter(change=change):
                self._alter(change)

    def _write(self, rows: Sequence[tuple[str, tuple[Any, ...]]]) -> None:
        columns = [
            from_arrow(pa.array([values[i] for _, values in rows], arrow_type(type_)), type_)
            for i, (_, _, type_) in enumerate(self._columns)
        ]
        keys = [self._number(name) for name in self._case.keys]
        for position, (kind, _) in enumerate(rows):
            row = {
                number: column[position]
                for (number, _, _), column in zip(self._columns, columns, strict=True)
            }
            key = tuple(row[number] for number in keys) if keys else next(self._arrivals)
            if kind in ("-D", "-U"):
                self._rows.pop(key, None)
            else:
                self._rows[key] = row

    def _number(self, name: str) -> int:
        return next(number for number, found, _ in self._columns if found == name)

    def _place(self, name: str) -> int:
        return self.names.index(name)

    def _alter(self, change: SchemaChange) -> None:
        match change:
            case AddColumn(name=str(name), type=type_):
                place = len(self._columns)
                if change.first:
                    place = 0
                elif change.after is not None:
                    place = self._place(change.after) + 1
                self._columns.insert(place, (next(self._numbers), name, type_))
            case AddColumn(name=tuple(path), type=type_):
                self._add_nested(path, type_)
            case DropColumn(name=str(name)):
                del self._columns[self._place(name)]
            case RenameColumn(name=str(name), new_name=new_name):
                place = self._place(name)
                number, _, type_ = self._columns[place]
                self._columns[place] = (number, new_name, type_)
            case UpdateType(name=str(name), type=type_):
                place = self._place(name)
                self._columns[place] = (self._columns[place][0], name, type_)
            case MoveColumn(name=str(name)):
                column = self._columns.pop(self._place(name))
                place = 0 if change.first else self._place(change.after or "") + 1
                self._columns.insert(place, column)
            case _:
                raise NotImplementedError(change)

    def _add_nested(self, path: tuple[str, ...], type_: DataType) -> None:
        """A nullable field at the end of a ROW column: old rows get null there."""
        column, name = path
        place = self._place(column)
        number, _, row_type = self._columns[place]
        assert isinstance(row_type, RowType)
        self._columns[place] = (number, column, Case.with_field(row_type, name, type_))
        for row in self._rows.values():
            if row.get(number) is not None:
                row[number] = (*row[number], None)
