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

_LOOK, _HISTORY, _REWRITE = "Look at tables", "Change the history", "Change rows and files"

_COMMANDS = {
    "ls": Lazy("ingest.cli.table:ls", "databases and tables with their newest snapshot", _LOOK),
    "show": Lazy("ingest.cli.look:show", "schema, options, keys, rows, files per level", _LOOK),
    "scan": Lazy("ingest.cli.look:scan", "rows of a snapshot, merged; or of a system table", _LOOK),
    "files": Lazy("ingest.cli.look:files", "live data files of a snapshot", _LOOK),
    "snapshots": Lazy("ingest.cli.look:snapshots", "snapshots that can be read", _LOOK),
    "tag": Lazy(
        "ingest.cli.history:tag",
        "names for snapshots: ls, create, delete, rename, replace",
        _HISTORY,
    ),
    "branch": Lazy(
        "ingest.cli.history:branch", "branches: ls, create, delete, rename, forward", _HISTORY
    ),
    "consumer": Lazy(
        "ingest.cli.history:consumer", "progress of streaming readers: ls, set, delete", _HISTORY
    ),
    "rollback": Lazy(
        "ingest.cli.history:rollback", "make an older snapshot the newest again", _HISTORY
    ),
    "drop-partition": Lazy(
        "ingest.cli.rewrite:drop_partition", "remove the rows of partitions", _REWRITE
    ),
    "truncate": Lazy("ingest.cli.rewrite:truncate_table", "remove all rows", _REWRITE),
    "overwrite": Lazy(
        "ingest.cli.rewrite:overwrite", "replace the rows of a table or partition", _REWRITE
    ),
    "rewrite-index": Lazy(
        "ingest.cli.rewrite:rewrite_index", "build the file indexes that files lack", _REWRITE
    ),
    "rescale": Lazy(
        "ingest.cli.rewrite:rescale_table", "give a table another number of buckets", _REWRITE
    ),
    "analyze": Lazy(
        "ingest.cli.rewrite:analyze_table", "compute statistics for query engines", _REWRITE
    ),
    "repair": Lazy(
        "ingest.cli.rewrite:repair", "rewrite LATEST and EARLIEST where they are wrong", _REWRITE
    ),
}

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
