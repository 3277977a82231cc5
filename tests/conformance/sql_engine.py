# SPDX-License-Identifier: Apache-2.0
"""`check.sql` of cases: a SELECT over Arrow tables, evaluated by DuckDB.

Tables and system tables (`T$files`) are fetched by name when a statement mentions them; what they
hold is Lakeward's, only the SELECT itself is DuckDB's.
"""

import re
from collections.abc import Callable

import duckdb
import pyarrow as pa

__all__ = ["select"]

_UNNEST = re.compile(r"\bUNNEST\s*\(\s*([\w.]+)\s*\)", re.IGNORECASE)


def select(text: str, relation: Callable[[str], pa.Table]) -> pa.Table:
    """The result of a SELECT.

    Args:
        text: the statement; names may be quoted by backticks. UNNEST of an array of rows gives
            the fields of the rows, as in the SQL of Flink.
        relation: the content of a table named in it: `T`, `T$files`, `sys.tables`.
    """
    statement = _UNNEST.sub(r"(SELECT unnest(\1, recursive := true))", text.replace("`", '"'))
    with duckdb.connect() as connection:
        for found in sorted(connection.get_table_names(statement, qualified=True)):
            name = found.partition(" AS ")[0].replace('"', "")
            schema, _, table = name.rpartition(".")
            if schema:
                connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            place = f'"{schema or "main"}"."{table}"'
            connection.register("content", relation(name))
            connection.execute(f"CREATE TABLE IF NOT EXISTS {place} AS SELECT * FROM content")
            connection.unregister("content")
        return connection.sql(statement).to_arrow_table()
