# SPDX-License-Identifier: Apache-2.0
"""Views: their queries are kept as text, with the names of tables made complete."""

import dataclasses
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.optimizer.scope import traverse_scope

from storage.catalog.view import View
from storage.sql import nodes
from storage.sql.ddl import query_fields
from storage.sql.dialect import parse_query
from storage.sql.errors import refuse

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

__all__ = ["alter_view", "complete_text", "create_view"]


def create_view(session: "SqlSession", node: nodes.CreateView) -> None:
    """CREATE VIEW."""
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    fields = query_fields(session, node.args["query"])
    names, comments = node.args.get("names") or (), node.args.get("comments") or ()
    if names:
        if len(names) != len(fields):
            refuse(
                "the view does not name as many columns as its query has",
                node,
                names=len(names),
                columns=len(fields),
            )
        fields = [
            dataclasses.replace(field, name=name, description=comment)
            for field, name, comment in zip(fields, names, comments, strict=True)
        ]
    view = View(
        fields=tuple(fields),
        query=complete_text(session, node.args["query_text"]),
        dialects={},
        comment=node.args.get("comment"),
        options=dict(node.args["options"]),
    )
    if node.args["replace"]:
        catalog.drop_view(identifier, ignore_if_missing=True)
    catalog.create_view(identifier, view, ignore_if_exists=node.args["exists"])


def alter_view(session: "SqlSession", node: nodes.AlterView) -> None:
    """ALTER VIEW: another query, options or name."""
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    query = node.args.get("query")
    if query is not None:
        view = dataclasses.replace(
            catalog.view(identifier),
            fields=tuple(query_fields(session, query)),
            query=complete_text(session, node.args["query_text"]),
        )
        catalog.alter_view(identifier, view)
        return
    (change,) = node.args["changes"]
    if change.kind == "rename":
        target = change.value
        catalog.rename_view(
            identifier, f"{target.db or identifier.partition('.')[0]}.{target.name}"
        )
        return
    view = catalog.view(identifier)
    options = {**view.options, **dict(change.options)}
    if change.kind == "reset":
        taken = {key for key, _ in change.options}
        options = {key: value for key, value in view.options.items() if key not in taken}
    catalog.alter_view(identifier, dataclasses.replace(view, options=options))


def complete_text(session: "SqlSession", text: str, *, own_catalog: bool = False) -> str:
    """The text of a query with the database in the name of every table, as it is stored.

    Args:
        session: its catalog is left out of names, its database put into those without.
        text: a query.
        own_catalog: refuse tables of other catalogs.

    Raises:
        SqlError: it is no query, or names a table of another catalog.
    """
    edits: list[tuple[int, int, str]] = []
    sources = {
        id(source): source
        for scope in traverse_scope(parse_query(text))
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
    }
    for table in sources.values():
        place = table.this.meta["start"]
        if table.catalog == session.catalog_name:
            edits.append((table.args["catalog"].meta["start"], table.args["db"].meta["start"], ""))
        elif table.catalog and own_catalog:
            refuse(
                "a materialized table can read only tables of its own catalog",
                table,
                catalog=table.catalog,
            )
        elif not table.db:
            database = session.database.replace("`", "``")
            edits.append((place, place, f"`{database}`."))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
