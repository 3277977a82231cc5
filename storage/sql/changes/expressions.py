# SPDX-License-Identifier: Apache-2.0
"""Names of columns in the expressions of statements that change rows. Pure: trees in, trees out."""

from collections.abc import Iterator

from sqlglot import exp

__all__ = ["source_only", "split_target_only", "unqualified"]


def unqualified(node: exp.Expr, *tables: exp.Expr) -> exp.Expr:
    """A copy in which `db.t.column` is `t.column`: the relations of a query have no databases.

    Args:
        node: the expression.
        tables: that it may speak of.
    """
    copied = node.copy()
    for column in copied.find_all(exp.Column):
        if not column.args.get("db"):
            continue
        for table in tables:
            if column.table.lower() == table.name.lower() and column.text("db") == table.text("db"):
                column.set("db", None)
                column.set("catalog", None)
                column.set("table", exp.to_identifier(table.alias_or_name, quoted=True))
    return copied


def source_only(node: exp.Expr, name: str) -> exp.Expr:
    """A copy in which columns without a table, outside of queries, are of one table."""
    copied = node.copy()
    for column in copied.find_all(exp.Column):
        if not column.table and column.find_ancestor(exp.Query) is None:
            column.set("table", exp.to_identifier(name, quoted=True))
    return copied


def split_target_only(condition: exp.Expr, name: str) -> Iterator[exp.Expr]:
    """Copies of those parts of a conjunction that speak of one table alone."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from split_target_only(condition.this, name)
        yield from split_target_only(condition.expression, name)
        return
    columns = list(condition.find_all(exp.Column))
    own = all(column.table.lower() == name.lower() for column in columns)
    if columns and own and condition.find(exp.Query) is None:
        yield condition.copy()
