# SPDX-License-Identifier: Apache-2.0
"""Statements that sqlglot has no node for, or one without the parts that Paimon's tables need.

Queries, INSERT, DELETE, UPDATE and MERGE are sqlglot's own nodes. Names of tables are `exp.Table`,
as in queries. Values that are no SQL (options, types of columns) are Python values in `args`.
"""

import dataclasses

from sqlglot import exp

from storage.format.types.types import DataType

ZONE_OPTIONS = ("table.local-time-zone", "spark.sql.session.timeZone")
"""What SET calls the time zone of a session."""

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


def _arguments(required: str, optional: str = "") -> dict[str, bool]:
    """The names in `args` of a node, and whether each must be there."""
    return dict.fromkeys(required.split(), True) | dict.fromkeys(optional.split(), False)


class TableHint(exp.Expression):
    """`OPTIONS('key' = 'value')` of a hint."""

    arg_types = _arguments("options")


class CreateCatalog(exp.Expression):
    """CREATE CATALOG name WITH (…)."""

    arg_types = _arguments("this", "options exists")


class DropCatalog(exp.Expression):
    """DROP CATALOG name."""

    arg_types = _arguments("this", "exists")


class CreateDatabase(exp.Expression):
    """CREATE DATABASE; `this` is a Table without a table's name."""

    arg_types = _arguments("this", "exists options comment")


class AlterDatabase(exp.Expression):
    """ALTER DATABASE … SET (…)."""

    arg_types = _arguments("this options")


class DropDatabase(exp.Expression):
    """DROP DATABASE [CASCADE]."""

    arg_types = _arguments("this", "exists cascade")


class CreateTable(exp.Expression):
    """CREATE [MATERIALIZED] TABLE.

    Args: `columns` are ColumnDefinitions; `primary_key`, `partition` names (of columns);
    `options`, `comment`; `like` a Table, of which `excluded` is not copied; `query` a query,
    `query_text` its text; `kind` "table" or "materialized table"; of the latter `freshness`
    (amount, unit) and `refresh_mode`.
    """

    arg_types = _arguments(
        "this",
        "kind columns primary_key partition options comment exists replace like query query_text"
        " excluded freshness refresh_mode",
    )


class CreateView(exp.Expression):
    """CREATE [TEMPORARY] VIEW; `query_text` is stored; `names` of columns have `comments`."""

    arg_types = _arguments(
        "this query query_text", "names comments exists replace comment options temporary"
    )


class AlterTable(exp.Expression):
    """ALTER TABLE: a new name, or `changes` (SchemaChanges), `options` to set, keys to `reset`.

    `if_column_exists`: dropped columns may be missing.
    """

    arg_types = _arguments("this", "exists changes options reset rename if_column_exists")


class AlterTag(exp.Expression):
    """ALTER TABLE … CREATE, CREATE OR REPLACE, REPLACE, RENAME or DELETE TAG, of Spark.

    `exists`: IF NOT EXISTS, IF EXISTS; `retained` a time span, `new_name` of RENAME.
    """

    arg_types = _arguments("this action name", "exists snapshot_id retained new_name")


class AlterView(exp.Expression):
    """ALTER VIEW: a new query, a new name, `options` to set, or keys to `reset`."""

    arg_types = _arguments("this", "query query_text rename options reset")


class AlterMaterializedTable(exp.Expression):
    """ALTER MATERIALIZED TABLE; `action` is suspend, resume, refresh or as."""

    arg_types = _arguments("this action", "options partition query query_text")


class DropObject(exp.Expression):
    """DROP TABLE, DROP VIEW, DROP MATERIALIZED TABLE; `kind` in lower case."""

    arg_types = _arguments("this kind", "exists")


class DropPartition(exp.Expression):
    """ALTER TABLE … DROP PARTITION; `partitions` are dicts from column to text (None: null)."""

    arg_types = _arguments("this partitions", "exists")


class Truncate(exp.Expression):
    """TRUNCATE TABLE; `partition` is a dict from column to text, or None."""

    arg_types = _arguments("this", "partition")


class Analyze(exp.Expression):
    """ANALYZE TABLE; `columns` are names, None: no statistics of columns, (): of all columns."""

    arg_types = _arguments("this", "columns")


class Refresh(exp.Expression):
    """REFRESH TABLE."""


class Show(exp.Expression):
    """SHOW; `kind` in lower case, `this` the Table or database it is of, `like` a pattern."""

    arg_types = _arguments("kind", "this like partition")


class Describe(exp.Expression):
    """DESCRIBE; `kind` is table, database, catalog, procedure or query."""

    arg_types = _arguments("this kind", "extended column")


class UseCatalog(exp.Expression):
    """USE CATALOG name."""


class UseDatabase(exp.Expression):
    """USE [catalog.]database; `this` is a Table without a table's name."""


class SetOption(exp.Expression):
    """SET 'key' = 'value'; without a key all options are shown."""

    arg_types = _arguments("", "key_text value")


class ResetOption(exp.Expression):
    """RESET ['key']."""

    arg_types = _arguments("", "key_text")


class Explain(exp.Expression):
    """EXPLAIN a query."""


class CallProcedure(exp.Expression):
    """CALL [catalog.]sys.name(…); `name` in lower case, `arguments` pairs (name or None, node)."""

    arg_types = _arguments("this name", "arguments catalog")
