# SPDX-License-Identifier: Apache-2.0
"""Shared parts of procedures: tables by name, and partitions by text or condition."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from storage.errors import InvalidRequestError
from storage.format.row.binary_row import decode_row
from storage.format.row.row_values import from_row_values
from storage.sql.calls.declaration import Argument, Call
from storage.sql.errors import locate, refuse
from storage.sql.relations import check_options, is_of_tables
from storage.table.scan.predicate import columns_of, mask
from storage.table.scan.predicate_text import parse_predicate
from storage.table.table import FileStoreTable
from storage.table.write.drop_partitions import live_partitions

TABLE = Argument("table", "the table, `database.table` or `table`", required=True)
PARTITIONS = Argument(
    "partitions",
    "partitions by their values: `,` between values of one, `;` between partitions: "
    "`dt=2024-01-31,hh=01;dt=2024-02-01`",
    aliases=("partition",),
)
WHERE = Argument("where", "partitions by a condition on partition columns: `dt > '5'`")
OPTIONS = Argument("options", "options of the table for this call alone", type="options")


def table_node(call: Call, name: str) -> exp.Table:
    """`catalog.database.table` as a name in a statement."""
    parts = [part.strip("`") for part in name.split(".")]
    if len(parts) > 3 or not all(parts):
        refuse("no name of a table", call.node, table=name)
    padded = [None] * (3 - len(parts)) + [exp.to_identifier(part, quoted=True) for part in parts]
    return exp.Table(this=padded[2], db=padded[1], catalog=padded[0])


def called_table(call: Call, name: str | None = None) -> FileStoreTable:
    """The table of a call, with its options.

    Raises:
        NotFoundError: there is no such table or branch.
        InvalidOptionError: an option is unknown.
        SqlError: the name is of no table.
    """
    name = call.text("table") if name is None else name
    try:
        table = call.session.resolve(table_node(call, name))
    except InvalidRequestError as error:
        raise locate(error, call.node) from error
    if not isinstance(table, FileStoreTable):
        refuse("procedures work on tables", call.node, table=name)
    try:
        options = call["options"] or {}
    except KeyError:
        options = {}
    options = {key: text for key, text in options.items() if is_of_tables(key)}
    check_options(options, call.node)
    return table.with_options(options) if options else table


def parse_partitions(call: Call, text: str) -> tuple[Mapping[str, Any], ...]:
    """Values of partitions; of a text such as `dt=1,hh=2;dt=3`.

    Raises:
        SqlError: it is not of this form.
    """
    partitions = []
    for part in text.split(";"):
        if not part.strip():
            continue
        values: dict[str, str] = {}
        for pair in part.split(","):
            name, sign, value = pair.partition("=")
            if not sign or not name.strip():
                refuse(
                    "no partition", call.node, hint="write 'dt=2024-01-31,hh=01;dt=…'", text=pair
                )
            values[name.strip()] = value.strip().strip("'\"")
        partitions.append(values)
    return tuple(partitions)


def chosen_partitions(call: Call, table: FileStoreTable) -> tuple[Mapping[str, Any], ...] | None:
    """Values of the partitions that `partitions` or `where` chooses; (): all; None: none.

    Raises:
        SqlError: both are given, or a condition is on other columns.
    """
    text, where = call["partitions"], call["where"]
    if text and where:
        refuse("partitions and where cannot be given together", call.node)
    if text:
        return parse_partitions(call, text)
    if not where:
        return ()
    predicate = parse_predicate(where)
    fields = table.schema.partition_fields
    other_columns = columns_of(predicate) - {field.name for field in fields}
    if other_columns:
        keys = ", ".join(table.schema.partition_keys) or "nothing"
        refuse(
            "where takes partition columns only",
            call.node,
            hint=f"the table is partitioned by {keys}",
            name=sorted(other_columns)[0],
        )
    types = [field.type for field in fields]
    rows = [decode_row(entry.partition, types) for entry in live_partitions(table)]
    columns = [
        from_row_values([row[place] for row in rows], field.type)
        for place, field in enumerate(fields)
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=[field.name for field in fields])
    return tuple(batch.filter(mask(predicate, batch)).to_pylist()) or None
