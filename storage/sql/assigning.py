# SPDX-License-Identifier: Apache-2.0
"""The SET of UPDATE and MERGE: values of columns, and of fields of rows (`SET a.city = …`).

A row of which fields are set is built from those values and its other fields, as in Spark: where
the row was null, its other fields are null.
"""

import dataclasses
from collections.abc import Sequence

from sqlglot import exp

from storage.format.types.types import DataType, RowType
from storage.sql.errors import refuse, suggestion
from storage.sql.inserting import column_of, value_or_default
from storage.table.table import FileStoreTable


@dataclasses.dataclass(frozen=True, slots=True)
class _Assignment:
    """The value of a column, or of the field of a row that a path of names leads to."""

    path: tuple[exp.Identifier, ...]
    value: exp.Expr

    @property
    def remainder(self) -> "_Assignment":
        return _Assignment(self.path[1:], self.value)


def assignments(table: FileStoreTable, node: exp.Update, name: str) -> dict[str, exp.Expr]:
    """Columns and values of SET.

    Args:
        name: of the table in the statement.

    Raises:
        SqlError: there is no such column or field, or one is set twice.
    """
    if not node.expressions:
        refuse("SET is not complete", node, hint="write SET column = value")
    groups: dict[str, list[_Assignment]] = {}
    for item in node.expressions:
        assignment = _assignment(item, name)
        column = column_of(table, exp.Column(this=assignment.path[0]))
        groups.setdefault(column, []).append(assignment.remainder)
    return {
        column: _value(
            exp.column(column, table=name, quoted=True),
            table.schema.field(column).type,
            group,
            node,
        )
        for column, group in groups.items()
    }


def _assignment(node: exp.Expr, name: str) -> _Assignment:
    """What `column = value` or `row.field = value` sets; the name of the table may come first."""
    if not isinstance(node, exp.EQ) or not isinstance(node.this, exp.Column | exp.Dot):
        refuse("SET takes column = value", node)
    for aggregate in node.expression.find_all(exp.AggFunc):
        if aggregate.find_ancestor(exp.Query, exp.Window) is None:
            refuse("aggregates are not allowed here", aggregate, hint="write (SELECT … FROM …)")
    target = node.this
    if isinstance(target, exp.Column) and target.table.lower() == name.lower():
        path = [target.this]
    else:
        path = list(target.parts)
        if len(path) > 1 and path[0].name.lower() == name.lower():
            path = path[1:]
    return _Assignment(tuple(path), value_or_default(node.expression))


def _value(
    current: exp.Expr, type_: DataType, group: Sequence[_Assignment], node: exp.Expr
) -> exp.Expr:
    """The new value of a column or field of which parts are set."""
    if any(not assignment.path for assignment in group):
        if len(group) > 1:
            refuse("a column is set twice", node)
        return group[0].value
    step_name = group[0].path[0]
    if not isinstance(type_, RowType):
        refuse("only rows have fields that can be set", step_name, name=step_name.name)
    names = [field.name for field in type_.fields]
    by_name: dict[str, list[_Assignment]] = {}
    for assignment in group:
        step = assignment.path[0]
        match = next((field for field in names if field.lower() == step.name.lower()), None)
        if match is None:
            hint = suggestion(step.name, names, f"the row has {', '.join(names)}")
            refuse("there is no such field", step, hint=hint, name=step.name)
        by_name.setdefault(match, []).append(assignment.remainder)
    fields = []
    for field in type_.fields:
        part: exp.Expr = exp.Dot(
            this=current.copy(), expression=exp.to_identifier(field.name, quoted=True)
        )
        if field.name in by_name:
            part = _value(part, field.type, by_name[field.name], node)
        fields.append(
            exp.PropertyEQ(this=exp.to_identifier(field.name, quoted=True), expression=part)
        )
    return exp.Struct(expressions=fields)
