# SPDX-License-Identifier: Apache-2.0
"""The merge engines row by row, written from SEMANTICS.md §A.7 and §B, to compare ours with.

Rows of one key are folded one after another, as the text of the specification does it; nothing
is shared with the engines under test. A row is (kind, values by column name).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

Values = dict[str, Any]
Change = tuple[str, Values]

_MISSING = object()
_ADDS = ("+I", "+U")


class UnsupportedRetraction(Exception):
    """A row takes back where the engine cannot."""


def order_key(values: Mapping[str, Any], fields: Sequence[str]) -> tuple[Any, ...]:
    """Compares as sequence fields do, ascending; nulls come first."""
    return tuple((values[f] is not None, values[f] if values[f] is not None else 0) for f in fields)


def in_order(
    changes: Sequence[Change], sequence: Sequence[str], *, descending: bool = False
) -> list[Change]:
    """Rows of one key in merge order, given in arrival order."""

    def before(one: Change, other: Change) -> int:
        for field in sequence:
            a, b = one[1][field], other[1][field]
            if a == b:
                continue
            if a is None or b is None:
                return -1 if a is None else 1
            return (-1 if a < b else 1) * (-1 if descending else 1)
        return 0

    return sorted(changes, key=functools.cmp_to_key(before))


class Function:
    """One aggregate function with its state between the rows of one merge."""

    def __init__(self, name: str, *, ignore_retract: bool = False) -> None:
        self.name = name
        self.ignore = ignore_retract
        self.started = False

    def add(self, acc: Any, value: Any) -> Any:
        name = self.name
        if name in ("sum", "product", "max", "min", "listagg"):
            if acc is None or value is None:
                return value if acc is None else acc
            if name == "sum":
                return acc + value
            if name == "listagg":
                return f"{acc},{value}"
            return max(acc, value) if name == "max" else min(acc, value)
        if name == "first_value":
            acc, self.started = (acc if self.started else value), True
            return acc
        if name == "first_non_null_value":
            if not self.started and value is not None:
                self.started = True
                return value
            return acc
        if name == "last_non_null_value":
            return acc if value is None else value
        return value  # last_value, primary-key

    def add_late(self, acc: Any, value: Any) -> Any:
        return self.add(value, acc)

    def retract(self, acc: Any, value: Any) -> Any:
        if self.name == "primary-key":
            return value
        if self.ignore:
            return acc
        if self.name == "sum":
            if value is None:
                return acc
            return -value if acc is None else acc - value
        if self.name == "last_value":
            return None
        if self.name == "last_non_null_value":
            return acc if value is None else None
        raise UnsupportedRetraction(self.name)


class Engine:
    """Folds the rows of one key.

    Args:
        columns: all columns.
        options: of the table, as texts.
        key: key columns.
    """

    def __init__(self, columns: Sequence[str], key: Sequence[str], options: Mapping[str, str]):
        self.columns, self.key, self.options = columns, key, options
        self.engine = options.get("merge-engine", "deduplicate")
        self.sequence = [f for f in options.get("sequence.field", "").split(",") if f]
        self.descending = options.get("sequence.field.sort-order") == "descending"
        self.groups: list[tuple[list[str], list[str]]] = []
        for name, value in options.items():
            if name.endswith(".sequence-group"):
                ordering = name.removeprefix("fields.").removesuffix(".sequence-group").split(",")
                self.groups.append((ordering, value.split(",")))

    def merge(self, changes: Sequence[Change]) -> Change:
        """The result of a merge of rows in merge order; a single row passes unchanged."""
        return changes[0] if len(changes) == 1 else self.fold(changes)

    def fold(self, changes: Sequence[Change]) -> Change:
        """The same without that exception, as lookup compactions do it."""
        fold = getattr(self, "_" + self.engine.replace("-", "_"))
        found: Change = fold(changes)
        return found

    def _flag(self, name: str) -> bool:
        return self.options.get(name) == "true"

    def _deduplicate(self, changes: Sequence[Change]) -> Change:
        return changes[-1]

    def _first_row(self, changes: Sequence[Change]) -> Change:
        if any(kind not in _ADDS for kind, _ in changes):
            raise UnsupportedRetraction("first-row")
        return changes[0]

    def _function(self, column: str) -> str | None:
        own = self.options.get(f"fields.{column}.aggregate-function")
        return own or self.options.get("fields.default-aggregate-function")

    def _functions(self) -> dict[str, Function]:
        found = {}
        for column in self.columns:
            name = self._function(column)
            if self.engine == "aggregation":
                name = name or "last_non_null_value"
                name = "last_value" if column in self.sequence else name
                name = "primary-key" if column in self.key else name
            if name is not None:
                ignore = self._flag(f"fields.{column}.ignore-retract")
                found[column] = Function(name, ignore_retract=ignore)
        return found

    def _aggregation(self, changes: Sequence[Change]) -> Change:
        functions = self._functions()
        row: Values = dict.fromkeys(self.columns)
        result = "+I"
        for kind, values in changes:
            result = "+I"
            if kind == "-D" and self._flag("aggregation.remove-record-on-delete"):
                row, result = dict(values), "-D"
                continue
            for column, function in functions.items():
                apply = function.add if kind in _ADDS else function.retract
                row[column] = apply(row[column], values[column])
        return result, row

    def _partial_update(self, changes: Sequence[Change]) -> Change:
        functions = self._functions()
        row: Values = dict.fromkeys(self.columns)
        opened = inserted = deleted = False
        for kind, values in changes:
            deleted = False
            if kind not in _ADDS and not opened:
                row, opened = dict(values), True
            if kind in _ADDS:
                opened = inserted = True
                self._add(row, values, functions)
            elif self.groups:
                removed = self._take_back(row, kind, values, functions)
                if removed:
                    row, deleted = dict(values), True
            elif self._flag("partial-update.remove-record-on-delete"):
                if kind == "-D":
                    row, deleted = dict(values), True
            else:
                raise UnsupportedRetraction("partial-update")
        return ("-D" if deleted or not inserted else "+I"), row

    def _add(self, row: Values, values: Values, functions: dict[str, Function]) -> None:
        grouped: set[str] = set()
        for ordering, protected in self.groups:
            grouped.update(ordering, protected)
            if all(values[name] is None for name in ordering):
                continue
            accepted = order_key(values, ordering) >= order_key(row, ordering)
            for name in protected:
                function = functions.get(name)
                if function is not None:
                    apply = function.add if accepted else function.add_late
                    row[name] = apply(row[name], values[name])
                elif accepted:
                    row[name] = values[name]
            if accepted:
                row.update((name, values[name]) for name in ordering)
        for name in self.columns:
            if name not in grouped and values[name] is not None:
                row[name] = values[name]

    def _take_back(
        self, row: Values, kind: str, values: Values, functions: dict[str, Function]
    ) -> bool:
        """Apply a retraction; whether the row is to be removed."""
        listed = self.options.get("partial-update.remove-record-on-sequence-group", "").split(",")
        verdicts = []
        for ordering, protected in self.groups:
            counts = any(values[name] is not None for name in ordering)
            accepted = counts and order_key(values, ordering) >= order_key(row, ordering)
            verdicts.append((ordering, protected, counts, accepted))
            if accepted and kind == "-D" and set(ordering) & set(listed):
                return True
        for ordering, protected, counts, accepted in verdicts:
            if not counts:
                continue
            for name in protected:
                if name in functions:
                    row[name] = functions[name].retract(row[name], values[name])
                elif accepted:
                    row[name] = None
            if accepted:
                row.update((name, values[name]) for name in ordering)
        return False
