# SPDX-License-Identifier: Apache-2.0
"""INSERT INTO and INSERT OVERWRITE: rows of VALUES or of a query as rows of a table.

An overwrite replaces, by the table's option `dynamic-partition-overwrite`, the partitions
that get rows (the default), or those that PARTITION (…) names, all of them without it.
Source: SEMANTICS.md §F.4.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from sqlglot import exp

from storage.format.metadata.schema_changes import AddColumn, SchemaChange, UpdateType
from storage.format.types.casts import can_cast
from storage.format.types.default_values import default_of
from storage.sql.engine import machine_zone
from storage.sql.errors import refuse, suggestion
from storage.sql.query import constant, time_zone
from storage.table.scan.predicate import literal_scalar
from storage.table.scan.time_travel import travel_of
from storage.table.table import FileStoreTable
from storage.table.write.rows.row_changes import fit_columns

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
_DYNAMIC = "dynamic-partition-overwrite"
_MERGE_SCHEMA = "spark.paimon.write.merge-schema"
_KEYS_REPLACE = "a row replaces that of its primary key: INSERT INTO"
_REFRESHED = {
    "object-table": "CALL sys.refresh_object_table('…') lists its objects again",
    "materialized-table": "ALTER MATERIALIZED TABLE … AS SELECT … gives it another query",
}
"""By type of a table: what changes its rows."""
_REFUSED_CLAUSES = {
    "where": "DELETE the rows and INSERT others, or INSERT OVERWRITE partitions",
    "alternative": _KEYS_REPLACE,
    "conflict": _KEYS_REPLACE,
    "returning": "SELECT the rows afterwards",
}


def insert(session: "SqlSession", node: exp.Insert) -> int:
    """INSERT INTO and INSERT OVERWRITE; how many rows were written.

    Raises:
        SqlError: the columns do not fit those of the query.
        InvalidRequestError: a value does not fit its column; names column and row.
        As the writer of the table.
    """
    for name, hint in _REFUSED_CLAUSES.items():
        if node.args.get(name):
            refuse("INSERT does not take this clause", node, hint=hint, clause=name)
    into = node.this.this if isinstance(node.this, exp.Schema) else node.this
    if node.args.get("by_name") and session.options.get(_MERGE_SCHEMA, "").lower() == "true":
        _merge_schema(session, node, into)
    table = target_table(session, into, appending=True)
    partition = into.args.get("partition") or node.args.get("partition")
    static = _static_partition(session, table, partition)
    names, batches = _source_rows(session, table, node, static)
    constants = static | {
        field.name: default_of(field.default, field.type, field.name)[0]
        for field in table.schema.fields
        if field.default is not None and field.name not in (*names, *static)
    }

    def full_rows() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            zeros = pa.array(np.zeros(batch.num_rows, np.int64))
            columns = dict(zip(names, batch.columns, strict=True))
            columns |= {name: pa.repeat(value, 1).take(zeros) for name, value in constants.items()}
            yield pa.RecordBatch.from_pydict(columns)

    if not node.args.get("overwrite"):
        return _rows_of(table.append_rows(full_rows()))
    mode = session.options.get(_OVERWRITE_MODE)
    if mode is not None:
        table = table.with_options({_DYNAMIC: "true" if mode.lower() == "dynamic" else "false"})
    if table.schema.partition_keys and table.options.dynamic_partition_overwrite:
        return _rows_of(table.overwrite_rows(full_rows()))
    values = {name: value.as_py() for name, value in static.items()}
    return _rows_of(table.overwrite_rows(full_rows(), partition=values))


def _merge_schema(session: "SqlSession", node: exp.Insert, into: exp.Table) -> None:
    """Give the table the columns that a query by name has besides, and the wider types."""
    from storage.sql.ddl import query_fields

    source, table = _source(node), target_table(session, into)
    if not isinstance(source, exp.Query):
        return
    present = {field.name.lower(): field for field in table.schema.fields}
    changes: list[SchemaChange] = []
    for field in query_fields(session, source):
        same = present.get(field.name.lower())
        if same is None:
            changes.append(AddColumn(field.name, field.type))
        elif can_cast(same.type, field.type, explicit=False) and not can_cast(
            field.type, same.type, explicit=False
        ):
            changes.append(UpdateType(same.name, field.type))
    if changes:
        session.catalog_of(into).alter_table(session.identifier(into), changes)


def _rows_of(result: int | tuple[int, object]) -> int:
    """How many rows were written; tables without snapshots return nothing else."""
    return result if isinstance(result, int) else result[0]


def _static_partition(
    session: "SqlSession", table: FileStoreTable, partition: exp.Expr | None
) -> dict[str, pa.Scalar]:
    """Values of PARTITION (a = 1, b); columns without a value come from the query."""
    values: dict[str, pa.Scalar] = {}
    for part in partition.expressions if partition else ():
        name = column_of(table, part.this if isinstance(part, exp.EQ) else part)
        if name not in table.schema.partition_keys:
            keys = ", ".join(table.schema.partition_keys) or "nothing"
            refuse("not a partition column", part, hint=f"the table is partitioned by {keys}")
        if not isinstance(part, exp.EQ):
            continue
        value = constant(session, part.expression)
        type_ = table.schema.arrow_schema.field(name).type
        try:
            scalar = literal_scalar(value, type_)
        except (pa.ArrowException, ValueError, TypeError) as error:
            refuse("no value of a partition column", part, detail=str(error), name=name)
        if scalar is None and value is not None:
            refuse("no value of a partition column", part, name=name, value=value)
        values[name] = pa.scalar(None, type_) if scalar is None else scalar
    return values


def _source(node: exp.Insert) -> exp.Expr | None:
    """What is inserted: of `INSERT INTO t TABLE s` all rows of `s`."""
    table = node.args.get("source")
    rows = exp.select("*").from_(table.copy()) if table else node.expression
    if node.args.get("with_") and isinstance(rows, exp.Query):  # WITH … INSERT, of Spark
        rows = rows.copy()
        rows.set("with_", node.args["with_"].copy())
    return rows


def _source_rows(
    session: "SqlSession", table: FileStoreTable, node: exp.Insert, static: dict[str, pa.Scalar]
) -> tuple[list[str], Iterable[pa.RecordBatch]]:
    """The columns that the statement inserts, and the rows in the types of the table."""
    names = [name for name in table.schema.field_names if name not in static]
    if isinstance(node.this, exp.Schema):
        names = [column_of(table, column) for column in node.this.expressions]
        columns = {*static}
        for name in names:
            if name in columns:
                refuse("a column is given twice", node.this, name=name)
            columns.add(name)
    source, arrow_schema = _source(node), table.schema.arrow_schema
    schema = pa.schema([arrow_schema.field(name) for name in names])
    if isinstance(source, exp.Values):
        if node.args.get("by_name"):
            refuse("VALUES has no column names", source, hint="remove BY NAME")
        return names, _value_rows(session, source, schema)
    if not isinstance(source, exp.Query):
        refuse("there are no rows to insert", node, hint="write VALUES (…) or a query")
    reader = session.query(source)
    if node.args.get("by_name"):
        by_fold = {name.lower(): name for name in names}
        for name in reader.schema.names:
            if name.lower() not in by_fold:
                hint = suggestion(name, names, f"the table has {', '.join(names)}")
                refuse("the table has no column of this name", source, hint=hint, name=name)
        names = [by_fold[name.lower()] for name in reader.schema.names]
        schema = pa.schema([arrow_schema.field(name) for name in names])
    _require_width(source, len(reader.schema), schema)
    return names, _fitted(session, reader, schema)


def _value_rows(
    session: "SqlSession", values: exp.Values, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows of VALUES: all at once where types agree, else one by one to name the wrong row."""
    rows = [
        exp.Tuple(expressions=[value_or_default(value) for value in item.expressions])
        if isinstance(item, exp.Tuple)
        else exp.Tuple(expressions=[value_or_default(item.unnest())])
        for item in values.expressions
    ]
    for row in rows:
        _require_width(row, len(row.expressions), schema)
    alike = all(map(_alike, zip(*(row.expressions for row in rows), strict=True)))
    row_count = 0
    for group in [rows] if alike else [[row] for row in rows]:
        source = exp.Values(
            expressions=[row.copy() for row in group],
            alias=exp.TableAlias(
                this=exp.to_identifier("v"),
                columns=[exp.to_identifier(f"c{place}") for place in range(len(schema))],
            ),
        )
        reader = session.query(exp.select("*").from_(source))
        for batch in _fitted(session, reader, schema, row_count + 1):
            row_count += batch.num_rows
            yield batch


def value_or_default(node: exp.Expr) -> exp.Expr:
    """A value of a statement; of DEFAULT null, in whose place the column's default is written."""
    if isinstance(node, exp.Column | exp.Var) and node.sql().upper() == "DEFAULT":
        return exp.null()
    return node


def _alike(column: Iterable[exp.Expr]) -> bool:
    """Whether DuckDB finds a type for all values of a column: texts or others, not both."""
    values = [value for value in column if not isinstance(value, exp.Null)]
    return len({isinstance(value, exp.Literal) and bool(value.is_string) for value in values}) < 2


def _require_width(node: exp.Expr, count: int, schema: pa.Schema) -> None:
    if count != len(schema):
        refuse(
            f"{count} columns given, {len(schema)} expected",
            node,
            hint=f"give {', '.join(schema.names)}, or name the columns: INSERT INTO t (…)",
        )


def _fitted(
    session: "SqlSession", batches: Iterable[pa.RecordBatch], schema: pa.Schema, first_row: int = 1
) -> Iterator[pa.RecordBatch]:
    """Rows in the types of the table; local times and instants convert in the session's zone."""
    zone: str | None = None
    for batch in batches:
        if zone is None and _zoned(batch.schema) != _zoned(schema):
            zone = time_zone(session) or machine_zone()
        yield fit_columns(batch, schema, first_row=first_row, zone=zone)
        first_row += batch.num_rows


def _zoned(schema: pa.Schema) -> list[bool]:
    """Which columns are instants, and what is in nested ones."""
    return [zoned for type_ in schema.types for zoned in _zoned_parts(type_)]


def _zoned_parts(type_: pa.DataType) -> Iterator[bool]:
    if pa.types.is_nested(type_):
        for place in range(type_.num_fields):
            yield from _zoned_parts(type_.field(place).type)
    else:
        yield pa.types.is_timestamp(type_) and type_.tz is not None


def target_table(
    session: "SqlSession", node: exp.Expr, *, appending: bool = False
) -> FileStoreTable:
    """The table that a statement changes.

    Args:
        session: resolves the name.
        node: the name.
        appending: rows are added or replaced as a whole, which tables without snapshots can do.

    Raises:
        SqlError: the name is of something else, or of a past snapshot.
        NotFoundError: there is no such table.
    """
    if not isinstance(node, exp.Table):
        refuse("the name of a table is expected", node)
    table = session.resolve(node)
    plain = appending and hasattr(type(table), "append_rows")
    if not (plain or isinstance(table, FileStoreTable)):
        hint = "name a table, not a view or t$…"
        if hasattr(type(table), "append_rows"):
            hint = "a format table takes INSERT and INSERT OVERWRITE only"
        refuse("rows of this cannot be changed", node, hint=hint)
    if hint := _REFRESHED.get(table.schema.options.get("type", ""), ""):
        refuse("the rows of this table come from its refreshes", node, hint=hint)
    if not travel_of(table.schema.options).to_newest:
        refuse("a past snapshot cannot be changed", node, hint="remove the scan options")
    return table


def column_of(table: FileStoreTable, node: exp.Expr) -> str:
    """The column of the table that a name means, case-insensitive."""
    name = node.name
    by_fold = {column.lower(): column for column in table.schema.field_names}
    if name in table.schema.field_names:
        return name
    if name.lower() not in by_fold:
        columns = ", ".join(table.schema.field_names)
        hint = suggestion(name, table.schema.field_names, f"the table has {columns}")
        refuse("there is no such column", node, hint=hint, name=name)
    return by_fold[name.lower()]
