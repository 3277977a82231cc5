# SPDX-License-Identifier: Apache-2.0
"""`lakeward table refresh`: object tables and materialized tables."""

import sys
from typing import Any

from ingest.cli.commands import Arguments, command, option, positional
from ingest.cli.parameters import JSON, PARTITION, WAREHOUSE, catalog_of, emit
from storage.catalog.catalog import Catalog
from storage.errors import InvalidRequestError, LakewardError
from storage.sql.materialized import materialized_tables, refresh_due
from storage.sql.materialized import refresh as refresh_rows
from storage.sql.session import SqlSession
from storage.table.materialized_table import MATERIALIZED_TABLE
from storage.table.object_table import ObjectTable

__all__ = ["refresh"]

_ABOUT = """\
Refresh object tables and materialized tables.

With TABLE: lists the objects of an object table, or runs the query of a materialized table, now.
Without: refreshes the materialized tables of the warehouse that are due by the clock, which a
scheduler can call where no daemon runs. A refresh is one commit; older snapshots stay readable."""

_EXAMPLES = """\
Examples:
  lakeward table refresh /data/warehouse shop.images
  lakeward table refresh /data/warehouse shop.sums --partition dt=2024-01-31
  lakeward table refresh /data/warehouse
"""


@command(
    "refresh",
    _ABOUT,
    WAREHOUSE,
    positional("table", required=False, help="DATABASE.TABLE; all that are due unless given"),
    option("--partition", PARTITION, "of a materialized table: only this partition"),
    JSON,
    examples=_EXAMPLES,
)
def refresh(arguments: Arguments) -> int:
    """Refresh one table, or those that are due."""
    catalog = catalog_of(arguments)
    if arguments.table is not None:
        rows = _refreshed(catalog, arguments.table, arguments.partition)
        return emit(arguments, ["table", "rows"], [[arguments.table, rows]], "")
    if arguments.partition is not None:
        raise InvalidRequestError("a partition of which table", hint="name the table")
    done: list[list[Any]] = []
    failed = 0
    for name in materialized_tables(catalog):
        try:
            written = refresh_due(catalog, name)
        except (LakewardError, OSError) as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        if written is not None:
            done.append([name, written])
    emit(arguments, ["table", "rows"], done, "nothing is due")
    return 1 if failed else 0


def _refreshed(catalog: Catalog, name: str, partition: Any) -> int:
    table = catalog.table(name)
    if isinstance(table, ObjectTable) and partition is None:
        return table.refresh()
    if table.schema.options.get("type") == MATERIALIZED_TABLE:
        return refresh_rows(SqlSession(catalog, name.partition(".")[0]), table, partition)
    raise InvalidRequestError(
        "only object tables and materialized tables are refreshed, these without partition",
        table=name,
        type=table.schema.options.get("type", "table"),
    )
