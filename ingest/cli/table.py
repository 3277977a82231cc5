# SPDX-License-Identifier: Apache-2.0
"""`lakeward table …`: tables from the command line, without Spark.

The list of tables is here, because it reads metadata alone and starts at once; `look` reads one
table, `history` changes which snapshots it has, `rewrite` changes its files.
"""

from typing import TYPE_CHECKING, Any

from ingest.cli.commands import Arguments, Lazy, command, group, positional
from ingest.cli.parameters import JSON, WAREHOUSE, catalog_of, emit
from ingest.observe.text_table import human_time
from storage.errors import NotFoundError

if TYPE_CHECKING:
    from storage.format.metadata.snapshot import Snapshot

__all__ = ["table"]

_ABOUT = """\
Look at the tables of a warehouse, and maintain one.

`ls`, `show`, `scan`, `files` and `snapshots` change nothing. The others are safe beside a daemon
except where their help says what to stop."""

_EXAMPLES = """\
Examples:
  lakeward table ls /data/warehouse
  lakeward table show /data/warehouse shop.orders
  lakeward table scan /data/warehouse shop.orders --columns id,amount --filter "id > 5" --limit 20
  lakeward table scan /data/warehouse shop.orders --snapshot 3 --csv > orders.csv
  lakeward table files /data/warehouse shop.orders --json
"""

_LOOK = "Look at tables"

_COMMANDS = (
    Lazy(_LOOK, "ingest.cli.table", {"ls": "databases and tables with their newest snapshot"}),
    Lazy(
        _LOOK,
        "ingest.cli.look",
        {
            "show": "schema, options, keys, rows, files per level",
            "scan": "rows of a snapshot, merged; or of a system table",
            "files": "live data files of a snapshot",
            "snapshots": "snapshots that can be read",
        },
    ),
    Lazy(
        "Change the history",
        "ingest.cli.history",
        {
            "tag": "names for snapshots: ls, create, delete, rename, replace",
            "branch": "branches: ls, create, delete, rename, forward",
            "consumer": "progress of streaming readers: ls, set, delete",
            "rollback": "make an older snapshot the newest again",
        },
    ),
    Lazy(
        "Change rows and files",
        "ingest.cli.rewrite",
        {
            "drop-partition": "remove the rows of partitions",
            "truncate": "remove all rows",
            "overwrite": "replace the rows of a table or partition",
            "rewrite-index": "build the file indexes that files lack",
            "rescale": "give a table another number of buckets",
            "analyze": "compute statistics for query engines",
            "repair": "rewrite LATEST and EARLIEST where they are wrong",
        },
    ),
)

table = group("table", _ABOUT, examples=_EXAMPLES, lazy=_COMMANDS)


@command(
    "ls",
    "List databases and tables with their newest snapshot.",
    WAREHOUSE,
    positional("database", required=False, help="only this database"),
    JSON,
    examples="Examples:\n  lakeward table ls /data/warehouse\n"
    "  lakeward table ls s3://lake/warehouse shop --json\n",
)
def ls(arguments: Arguments) -> int:
    """Print the tables."""
    catalog = catalog_of(arguments)
    databases = catalog.list_databases()
    if arguments.database is not None:
        if arguments.database not in databases:
            raise NotFoundError("there is no such database", database=arguments.database)
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
