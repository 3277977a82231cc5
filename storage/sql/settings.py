# SPDX-License-Identifier: Apache-2.0
"""USE, SET and RESET: what a session remembers."""

from typing import TYPE_CHECKING

import pyarrow as pa

from storage.errors import NotFoundError
from storage.sql import nodes
from storage.sql.errors import SqlError, locate, suggestion
from storage.sql.relations import SYSTEM_DATABASE

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

__all__ = ["ZONE_OPTIONS", "reset_option", "set_option", "use_catalog", "use_database"]

ZONE_OPTIONS = ("table.local-time-zone", "spark.sql.session.timeZone")


def use_catalog(session: "SqlSession", node: nodes.UseCatalog) -> None:
    """USE CATALOG."""
    session.named_catalog(node.this.name)
    session.catalog_name, session.database = node.this.name, "default"


def use_database(session: "SqlSession", node: nodes.UseDatabase) -> None:
    """USE [catalog.]database."""
    name, catalog = node.this.db, session.catalog_of(node.this)
    if name != SYSTEM_DATABASE and name not in (known := catalog.list_databases()):
        hint = suggestion(name, known, f"there are {', '.join(known)}" if known else "")
        raise locate(NotFoundError("there is no such database", hint=hint, database=name), node)
    if node.this.catalog:
        session.catalog_name = node.this.catalog
    session.database = name


def set_option(session: "SqlSession", node: nodes.SetOption) -> pa.Table | None:
    """SET: keep an option, or show one or all."""
    key, value = node.args.get("key_text"), node.args.get("value")
    if key is not None and value is not None:
        if key in ZONE_OPTIONS:
            _require_zone(node, value)
        session.options[key] = value
        return None
    shown = {name: text for name, text in session.options.items() if key in (None, name)}
    return pa.table(
        {
            "key": pa.array(shown.keys(), pa.string()),
            "value": pa.array(shown.values(), pa.string()),
        }
    )


def _require_zone(node: nodes.SetOption, zone: str) -> None:
    from storage.sql.engine import connect  # DuckDB is loaded where it is used

    try:
        connect(zone).close()
    except SqlError as error:
        raise locate(error, node) from error.__cause__


def reset_option(session: "SqlSession", node: nodes.ResetOption) -> None:
    """RESET: forget one option or all."""
    key = node.args.get("key_text")
    if key is None:
        session.options.clear()
        return
    session.options.pop(key, None)
