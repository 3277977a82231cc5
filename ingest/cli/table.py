# SPDX-License-Identifier: Apache-2.0
"""`lakeward table …`: tables from the command line, without Spark.

The list of tables is here, because it reads only metadata and starts fast; `inspection` reads one
table, `history` changes which snapshots it has, `rewrite` changes its files.
"""

from typing import TYPE_CHECKING, Any

from ingest.cli.commands import Arguments, Lazy, command, group, positional
from ingest.cli.parameters import JSON, WAREHOUSE, catalog_of, emit
from ingest.observe.text_table import human_time
from storage.errors import NotFoundError

if TYPE_CHECKING:
    from storage.format.metadata.snapshot import Snapshot

_ABOUT = """\
Inspect and change the tables of a warehouse.

`ls`, `show`, `scan`, `files` and `snapshots` are read-only. The others are safe while a daemon
runs, unless their help says what to stop first."""

_EXAMPLES = """\
Examples:
  lakeward table ls /data/warehouse
  lakeward table show /data/warehouse shop.orders
  lakeward table scan /data/warehouse shop.orders --columns id,amount --filter "id > 5" --limit 20
  lakeward table scan /data/warehouse shop.orders --snapshot 3 --csv > orders.csv
  lakeward table files /data/warehouse shop.orders --json
  lakeward table ls catalog.yaml                  # a catalog: metastore, uri, warehouse, …
"""

_INSPECT = "Inspect tables"

_COMMANDS = (
    Lazy(
        _INSPECT, "ingest.cli.table", {"ls": "list databases and tables with their newest snapshot"}
    ),
    Lazy(
        _INSPECT,
        "ingest.cli.inspection",
        {
            "show": "print schema, options, keys, rows, files per level",
            "scan": "print the merged rows of a snapshot, or the rows of a system table",
            "files": "list the live data files of a snapshot",
            "snapshots": "list the available snapshots",
        },
    ),
    Lazy(
        "Change definitions",
        "ingest.cli.define",
        {
            "create": "create a table from columns given as SQL types",
            "alter": "add, drop, rename and retype columns",
            "set-option": "set or reset options of a table",
            "rename": "rename a table, or move it to another database",
            "drop": "drop a table with all its files",
        },
    ),
    Lazy(
        "Change the history",
        "ingest.cli.define",
        {
            "tag": "manage tags: ls, create, delete, rename, replace",
            "branch": "manage branches: ls, create, delete, rename, forward",
            "consumer": "manage the progress of streaming readers: ls, set, delete",
            "rollback": "roll a table back to an older snapshot",
        },
    ),
    Lazy(
        "Change rows and files",
        "ingest.cli.rewrite",
        {
            "delete-rows": "delete the rows for which a condition is true",
            "drop-partition": "delete the rows of partitions",
            "truncate": "delete all rows",
            "overwrite": "replace the rows of a table or partition",
            "rewrite-index": "build missing file indexes",
            "rescale": "change the number of buckets of a table",
            "analyze": "compute statistics for query engines",
            "repair": "rewrite wrong or missing LATEST and EARLIEST hints",
            "iceberg-sync": "bring the Iceberg metadata of a table to its newest snapshot",
            "refresh": "refresh object tables and materialized tables",
        },
    ),
)

table = group("table", _ABOUT, examples=_EXAMPLES, lazy=_COMMANDS)


@command(
    "ls",
    WAREHOUSE,
    positional("database", required=False, help="only this database"),
    JSON,
    examples="Examples:\n  lakeward table ls /data/warehouse\n"
    "  lakeward table ls s3://lake/warehouse shop --json\n",
)
def ls(arguments: Arguments) -> int:
    """List databases and tables with their newest snapshot."""
    catalog = catalog_of(arguments)
    databases = catalog.list_databases()
    if arguments.database is not None:
        if arguments.database not in databases:
            raise NotFoundError("no such database", database=arguments.database)
        databases = [arguments.database]
    rows: list[list[Any]] = []
    for database in databases:
        for name in catalog.list_tables(database):
            newest = catalog.newest_snapshot(f"{database}.{name}")
            rows.append([f"{database}.{name}", *_newest(newest, raw=arguments.json)])
    return emit(arguments, ["table", "snapshot", "records", "committed"], rows, "no tables")


def _newest(snapshot: "Snapshot | None", *, raw: bool) -> list[Any]:
    if snapshot is None:
        return [None, 0, None]
    committed = snapshot.time_ms if raw else human_time(snapshot.time_ms)
    return [snapshot.id, snapshot.total_record_count, committed]
