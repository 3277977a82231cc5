# SPDX-License-Identifier: Apache-2.0
"""Materialized tables: CREATE, ALTER … SUSPEND / RESUME / REFRESH / AS, scheduled refreshes.

A refresh runs the stored query and puts its rows in place of those of the table, or of one
partition, in one commit. What is stored and when a refresh is due is in
`storage.table.materialized_table`.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from storage.catalog.catalog import Catalog
from storage.format.metadata.schema import new_schema
from storage.format.metadata.schema_changes import AddColumn, SchemaChange, SetOption
from storage.format.types.types import type_name
from storage.sql import nodes
from storage.sql.ddl import complete_text, query_fields
from storage.sql.dialect import parse_query
from storage.sql.errors import refuse
from storage.sql.session import SqlSession
from storage.table.materialized_table import REFRESH_USER, MaterializedTable, last_refresh_ms

if TYPE_CHECKING:
    from storage.table.table import FileStoreTable


def create(session: SqlSession, node: nodes.CreateTable) -> int:
    """CREATE MATERIALIZED TABLE: create it and refresh it; the number of rows written.

    Raises:
        SqlError: a clause is missing or not allowed.
        UnsupportedFeatureError: REFRESH_MODE = CONTINUOUS.
        As of creating tables and of the query; then there is no table.
    """
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    if node.args.get("exists") and catalog.exists(identifier):
        return 0
    query = node.args.get("query")
    if query is None:
        refuse("a materialized table needs a query", node, hint="add AS SELECT …")
    if node.args["columns"]:
        refuse(
            "columns of a materialized table come from its query", node, hint="remove the columns"
        )
    fields = query_fields(session, query)
    names = [field.name for field in fields]
    definition = MaterializedTable.of(
        complete_text(session, node.args["query_text"], names, own_catalog=True),
        node.args.get("freshness"),
        node.args.get("refresh_mode"),
    )
    schema = new_schema(
        fields,
        primary_keys=node.args["primary_key"],
        partition_keys=node.args["partition"],
        options={**node.args["options"], **definition.options()},
        comment=node.args.get("comment"),
    )
    table = catalog.create_table(identifier, schema)
    try:
        return refresh(session, table)
    except BaseException:
        catalog.drop_table(identifier)
        raise


def alter(session: SqlSession, node: nodes.AlterMaterializedTable) -> int | None:
    """ALTER MATERIALIZED TABLE; of REFRESH how many rows were written.

    Raises:
        SqlError: the table is not materialized, or is suspended or refreshed already.
    """
    catalog, identifier = session.catalog_of(node.this), session.identifier(node.this)
    table, action = catalog.table(identifier), node.args["action"]
    definition = MaterializedTable.from_schema(table.schema)
    if action == "refresh":
        if node.args.get("options"):
            refuse(
                "REFRESH takes no options", node, hint="put them into the query as an OPTIONS hint"
            )
        return refresh(session, table, node.args.get("partition"))
    if action == "as":
        table.alter(_new_query(session, table, node))
        return None
    suspended = action == "suspend"
    if suspended == definition.suspended:
        what = "suspended" if suspended else "refreshed by the clock"
        refuse(f"the materialized table is {what} already", node, table=identifier)
    changed_definition = dataclasses.replace(definition, suspended=suspended)
    options = {**dict(node.args.get("options") or ()), **changed_definition.options()}
    table.alter(_set(table, options))
    return None


def refresh(
    session: SqlSession, table: "FileStoreTable", partition: Mapping[str, Any] | None = None
) -> int:
    """Run the query of a materialized table; its rows replace the existing ones.

    Args:
        session: finds the tables of the query.
        table: the materialized table.
        partition: values of some partition columns: only the rows that have them are computed
            and replaced. None: all.

    Returns:
        How many rows were written.

    Raises:
        InvalidRequestError: the table is no materialized table, or a column is no partition key.
        As of the query and of overwriting; the table stays as it was.
    """
    query = parse_query(MaterializedTable.from_schema(table.schema).query)
    extra = sorted(set(partition or {}) - set(table.schema.partition_keys))
    if extra:
        keys = ", ".join(table.schema.partition_keys) or "nothing"
        refuse(
            "no such partition column", hint=f"the table is partitioned by {keys}", name=extra[0]
        )
    if partition:
        query = _restricted(query, partition)
    names = list(table.schema.field_names)
    with session.query(query) as reader:
        rows = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in reader)
        # a unique user: one user commits an identifier only once
        user = f"{REFRESH_USER}-{table.ids.uuid()}"
        count, _ = table.overwrite_rows(rows, partition=partition or {}, user=user)
    return count


def refresh_due(catalog: Catalog, identifier: str, now_ms: int | None = None) -> int | None:
    """Refresh a materialized table if a refresh is due.

    The whole table, or where its options define the time of a partition, the partitions of the
    periods that are over, one commit each. The first refresh is always of the whole table.

    Args:
        catalog: of the table and of those in its query.
        identifier: `database.table`.
        now_ms: current time [epoch ms]; None: that of the table's clock.

    Returns:
        How many rows were written; None: nothing is due, or the table is suspended.

    Raises:
        As `refresh`.
    """
    table = catalog.table(identifier)
    definition = MaterializedTable.from_schema(table.schema)
    if definition.suspended:
        return None
    now_ms = table.clock.now_ms() if now_ms is None else now_ms
    last_ms = last_refresh_ms(table.snapshots)
    ends = definition.periods(last_ms, now_ms)
    if not ends:
        return None
    periods = [definition.partition(table.schema, end) for end in ends]
    if last_ms is None or not periods[0]:
        periods = [{}]
    session = SqlSession(catalog, database=identifier.partition(".")[0])
    unique = [values for index, values in enumerate(periods) if values not in periods[:index]]
    return sum(refresh(session, table, values) for values in unique)


def _restricted(query: exp.Query, partition: Mapping[str, Any]) -> exp.Query:
    """The rows of a query with some values of partition columns."""
    conditions: list[exp.Expr] = []
    for name, value in partition.items():
        column = exp.column(exp.to_identifier(name, quoted=True))
        conditions.append(
            exp.Is(this=column, expression=exp.null())
            if value is None
            else exp.EQ(this=column, expression=exp.Literal.string(str(value)))
        )
    return exp.select("*").from_(query.subquery("rows")).where(exp.and_(*conditions))


def _new_query(
    session: SqlSession, table: "FileStoreTable", node: nodes.AlterMaterializedTable
) -> list[SchemaChange]:
    """Changes for a new query: its first columns are those of the table, others are new."""
    fields, old_fields = query_fields(session, node.args["query"]), table.schema.fields
    for field, column in zip(fields, old_fields, strict=False):
        if field.name != column.name or type_name(field.type).removesuffix(
            " NOT NULL"
        ) != type_name(column.type).removesuffix(" NOT NULL"):
            refuse(
                "the new query changes a column",
                node,
                hint="put new columns after the old ones; for other changes drop the table",
                name=column.name,
                type=type_name(column.type),
                found=f"{field.name} {type_name(field.type)}",
            )
    if len(fields) < len(old_fields):
        refuse("the new query lacks a column", node, name=old_fields[len(fields)].name)
    additions: list[SchemaChange] = [
        AddColumn((field.name,), field.type, None) for field in fields[len(old_fields) :]
    ]
    names = [field.name for field in fields]
    text = complete_text(session, node.args["query_text"], names, own_catalog=True)
    return [*additions, SetOption("materialized-table.definition-query", text)]


def _set(table: "FileStoreTable", options: Mapping[str, str]) -> list[SchemaChange]:
    current = table.schema.options
    return [SetOption(key, value) for key, value in options.items() if current.get(key) != value]
