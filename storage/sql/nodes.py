# SPDX-License-Identifier: Apache-2.0
"""Statements that sqlglot has no node for, or one without the parts that Paimon's tables need.

Queries, INSERT, DELETE, UPDATE and MERGE are sqlglot's own nodes. Names of tables are `exp.Table`,
as in queries. Values that are no SQL (options, types of columns) are Python values in `args`.
"""

import dataclasses
from typing import Any

from sqlglot import exp

from storage.format.types.types import DataType

__all__ = [
    "OPTIONS",
    "AlterDatabase",
    "AlterMaterializedTable",
    "AlterTable",
    "AlterView",
    "Analyze",
    "CallProcedure",
    "ColumnChange",
    "ColumnDefinition",
    "CreateCatalog",
    "CreateDatabase",
    "CreateTable",
    "CreateView",
    "Describe",
    "DropCatalog",
    "DropDatabase",
    "DropObject",
    "DropPartition",
    "Explain",
    "ResetOption",
    "SetOption",
    "Show",
    "TableHint",
    "Truncate",
    "UseCatalog",
    "UseDatabase",
    "table_options",
]

OPTIONS = "options"
"""Key in `meta` of an `exp.Table`: what `/*+ OPTIONS(…) */` says of it."""


def table_options(table: exp.Table) -> dict[str, str]:
    """The options that a hint gives a table."""
    return dict(table.meta.get(OPTIONS, {}))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column of CREATE TABLE or of ALTER TABLE … ADD / MODIFY.

    Attributes:
        name: path from the column to the nested field, of ALTER TABLE.
        type: with its nullability; None where a column is altered but not its type.
        comment: None: not given.
        default: text of the value; None: not given.
        primary_key: whether the column says PRIMARY KEY.
        first: whether it is placed FIRST.
        after: column it is placed AFTER.
    """

    name: tuple[str, ...]
    type: DataType | None = None
    comment: str | None = None
    default: str | None = None
    primary_key: bool = False
    first: bool = False
    after: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChange:
    """One change of ALTER TABLE.

    Attributes:
        kind: `add`, `modify`, `type`, `drop`, `rename column`, `nullable`, `default`, `comment`,
            `place`, `set`, `reset`, `rename`, `table comment`, `drop primary key`.
        column: what is added or modified.
        name: path of the column.
        value: new name, default, comment; None takes it away.
        options: what is set, or names of what is reset.
    """

    kind: str
    column: ColumnDefinition | None = None
    name: tuple[str, ...] = ()
    value: Any = None
    options: tuple[tuple[str, str], ...] = ()


class TableHint(exp.Expression):
    """`OPTIONS('key' = 'value')` of a hint."""

    arg_types = {"options": True}


class CreateCatalog(exp.Expression):
    """CREATE CATALOG name WITH (…)."""

    arg_types = {"this": True, "options": False, "exists": False}


class DropCatalog(exp.Expression):
    """DROP CATALOG name."""

    arg_types = {"this": True, "exists": False}


class CreateDatabase(exp.Expression):
    """CREATE DATABASE; `this` is a Table without a table's name."""

    arg_types = {"this": True, "exists": False, "options": False, "comment": False}


class AlterDatabase(exp.Expression):
    """ALTER DATABASE … SET (…)."""

    arg_types = {"this": True, "options": True}


class DropDatabase(exp.Expression):
    """DROP DATABASE [CASCADE]."""

    arg_types = {"this": True, "exists": False, "cascade": False}


class CreateTable(exp.Expression):
    """CREATE [MATERIALIZED] TABLE.

    Args: `columns` are ColumnDefinitions; `primary_key`, `partition` names (of columns);
    `partition_columns` ColumnDefinitions that only PARTITIONED BY lists (Hive's way); `options`,
    `comment`; `like` a Table, `query` a query, `query_text` its text; `kind` "table" or
    "materialized table"; of the latter `freshness` (amount, unit) and `refresh_mode`.
    """

    arg_types = {
        "this": True,
        "kind": False,
        "columns": False,
        "primary_key": False,
        "partition": False,
        "partition_columns": False,
        "options": False,
        "comment": False,
        "exists": False,
        "replace": False,
        "like": False,
        "query": False,
        "query_text": False,
        "freshness": False,
        "refresh_mode": False,
    }


class CreateView(exp.Expression):
    """CREATE VIEW; `query_text` is stored. `names` of its columns have `comments`."""

    arg_types = {
        "this": True,
        "query": True,
        "query_text": True,
        "names": False,
        "comments": False,
        "exists": False,
        "replace": False,
        "comment": False,
        "options": False,
    }


class AlterTable(exp.Expression):
    """ALTER TABLE; `changes` are ColumnChanges."""

    arg_types = {"this": True, "changes": True, "exists": False}


class AlterView(exp.Expression):
    """ALTER VIEW; `changes` of the kinds set, reset, rename; or a new query."""

    arg_types = {"this": True, "changes": False, "query": False, "query_text": False}


class AlterMaterializedTable(exp.Expression):
    """ALTER MATERIALIZED TABLE; `action` is suspend, resume, refresh or as."""

    arg_types = {
        "this": True,
        "action": True,
        "options": False,
        "partition": False,
        "query": False,
        "query_text": False,
    }


class DropObject(exp.Expression):
    """DROP TABLE, DROP VIEW, DROP MATERIALIZED TABLE; `kind` in lower case."""

    arg_types = {"this": True, "kind": True, "exists": False}


class DropPartition(exp.Expression):
    """ALTER TABLE … DROP PARTITION; `partitions` are dicts from column to text (None: null)."""

    arg_types = {"this": True, "partitions": True, "exists": False}


class Truncate(exp.Expression):
    """TRUNCATE TABLE; `partition` is a dict from column to text, or None."""

    arg_types = {"this": True, "partition": False}


class Analyze(exp.Expression):
    """ANALYZE TABLE; `columns` are names, None: no statistics of columns, (): of all columns."""

    arg_types = {"this": True, "columns": False}


class Show(exp.Expression):
    """SHOW; `kind` in lower case, `this` the Table or database it is of, `like` a pattern."""

    arg_types = {"kind": True, "this": False, "like": False, "partition": False}


class Describe(exp.Expression):
    """DESCRIBE; `kind` is table, database, catalog, procedure or query."""

    arg_types = {"this": True, "kind": True, "extended": False, "column": False}


class UseCatalog(exp.Expression):
    """USE CATALOG name."""

    arg_types = {"this": True}


class UseDatabase(exp.Expression):
    """USE [catalog.]database; `this` is a Table without a table's name."""

    arg_types = {"this": True}


class SetOption(exp.Expression):
    """SET 'key' = 'value'; without a key all options are shown."""

    arg_types = {"key_text": False, "value": False}


class ResetOption(exp.Expression):
    """RESET ['key']."""

    arg_types = {"key_text": False}


class Explain(exp.Expression):
    """EXPLAIN a query."""

    arg_types = {"this": True}


class CallProcedure(exp.Expression):
    """CALL [catalog.]sys.name(…); `name` in lower case, `arguments` pairs (name or None, node)."""

    arg_types = {"this": True, "name": True, "arguments": False}
