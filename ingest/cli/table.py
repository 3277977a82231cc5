# SPDX-License-Identifier: Apache-2.0
"""`lakeward table …`: look at tables from the command line, without Spark.

The verbs of this module read what is published and change nothing; those that look after a table
are in `tag_commands`, `branch_commands`, `partition_commands` and `rewrite_commands`.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ingest.cli.argument_values import parse_moment_ms, parse_pair
from ingest.cli.branch import add_branch_commands
from ingest.cli.partition import add_partition_commands
from ingest.cli.rewrite import add_rewrite_commands
from ingest.cli.scanning import CATALOG_PREFIX, ScanRequest, scanned
from ingest.cli.table_arguments import (
    add_json,
    add_verb,
    add_warehouse,
    catalog_of,
    emit,
    table_of,
)
from ingest.cli.tag import add_tag_commands
from ingest.observe.metrics.layout_figures import levels_of
from ingest.observe.text_table import aligned, csv_text, human_size, human_time, json_line, rows_of
from storage.errors import NotFoundError
from storage.format.metadata.file_meta import DataFileMeta, ManifestEntry
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.types.type_text import type_to_json
from storage.table.commit.live_files import live_entries
from storage.table.inspect.system.catalog_tables import CATALOG_TABLES
from storage.table.inspect.system.registry import SYSTEM_TABLES
from storage.table.scan.predicate_text import parse_predicate
from storage.table.table import FileStoreTable

__all__ = ["add_table_commands"]

_ABOUT = """\
Look at the tables of a warehouse: ls, show, scan, files, snapshots change nothing. The other verbs
look after one table; they are safe beside a daemon except where their help says what to stop."""

_SCAN = f"""\
Rows of a table as they are in a snapshot: merged, without deleted ones. TABLE may also be a system
table: {", ".join(f"TABLE${name}" for name in SYSTEM_TABLES)};
{", ".join(f"{CATALOG_PREFIX}{name}" for name in CATALOG_TABLES)}."""

_SCAN_EXAMPLES = """\
  lakeward table scan /data/warehouse shop.orders --columns id,amount --filter "id > 5"
  lakeward table scan /data/warehouse shop.orders --tag 2024-01-31 --limit 0 --csv > orders.csv
  lakeward table scan /data/warehouse shop.orders --option incremental-between=3,7
  lakeward table scan /data/warehouse 'shop.orders$audit_log' --option incremental-between=3,7
  lakeward table scan /data/warehouse 'shop.orders$snapshots' --json
  lakeward table scan /data/warehouse 'shop.orders$branch_test$files'
  lakeward table scan /data/warehouse sys.all_table_options --filter "key = 'bucket'"
"""

_EXAMPLES = """\
examples:
  lakeward table ls /data/warehouse
  lakeward table show /data/warehouse shop.orders
  lakeward table scan /data/warehouse shop.orders --columns id,amount --filter "id > 5" --limit 20
  lakeward table scan /data/warehouse shop.orders --snapshot 3 --csv > orders.csv
  lakeward table files /data/warehouse shop.orders --json
"""


def add_table_commands(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `table` and its verbs; each sets `run` to a function of the parsed arguments."""
    table = parent.add_parser(
        "table",
        help="look at tables and look after them: ls, show, scan, tag, rollback, …",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = table.add_subparsers(dest="verb", metavar="VERB", required=True)
    ls = verbs.add_parser("ls", help="databases and tables with their newest snapshot")
    add_warehouse(ls)
    ls.add_argument("database", nargs="?", help="only this database")
    add_json(ls)
    ls.set_defaults(run=_ls)
    show = add_verb(verbs, "show", "schema, options, keys, rows, files per level", _show)
    _add_snapshot(show)
    scan = add_verb(
        verbs,
        "scan",
        "rows of a snapshot, merged; or of a system table",
        _scan,
        details=_SCAN,
        examples=_SCAN_EXAMPLES,
    )
    _add_snapshot(scan)
    scan.add_argument("--tag", metavar="NAME", help="the snapshot that this tag keeps")
    scan.add_argument(
        "--timestamp",
        type=parse_moment_ms,
        metavar="TIME",
        help="the newest snapshot of this time, ISO 8601 (UTC unless it says otherwise)",
    )
    scan.add_argument(
        "--option",
        type=parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a reading option, such as incremental-between=3,7 or scan.watermark=1700000000000",
    )
    scan.add_argument("--columns", metavar="A,B", help="only these columns, in this order")
    scan.add_argument("--filter", metavar="TEXT", help="such as \"id > 5 and name = 'x'\"")
    scan.add_argument(
        "--limit", type=_limit, default=20, metavar="N", help="rows at most; 0 = all (default: 20)"
    )
    scan.add_argument("--csv", action="store_true", help="comma-separated values with a head line")
    files = add_verb(verbs, "files", "live data files of a snapshot", _files)
    _add_snapshot(files)
    snapshots = add_verb(verbs, "snapshots", "snapshots that can be read", _snapshots)
    snapshots.add_argument(
        "--limit", type=_limit, default=20, metavar="N", help="newest N; 0 = all (default: 20)"
    )
    add_tag_commands(verbs)
    add_branch_commands(verbs)
    add_partition_commands(verbs)
    add_rewrite_commands(verbs)


def _add_snapshot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--snapshot", type=int, metavar="N", help="default: the newest")


def _limit(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("not a number of rows")
    return number


def _snapshot(table: FileStoreTable, number: int | None) -> Snapshot | None:
    return table.latest_snapshot() if number is None else table.snapshots.read(number)


def _ls(arguments: argparse.Namespace) -> int:
    catalog = catalog_of(arguments)
    databases = catalog.list_databases()
    if arguments.database is not None:
        if arguments.database not in databases:
            raise NotFoundError("there is no such database", database=arguments.database)
        databases = [arguments.database]
    rows: list[list[Any]] = []
    for database in databases:
        for name in catalog.list_tables(database):
            newest = catalog.table(f"{database}.{name}").snapshots.latest()
            rows.append([f"{database}.{name}", *_newest(newest, raw=arguments.json)])
    return emit(arguments, ["table", "snapshot", "records", "committed"], rows, "no tables")


def _newest(snapshot: Snapshot | None, *, raw: bool) -> list[Any]:
    if snapshot is None:
        return [None, 0, None]
    committed = snapshot.time_ms if raw else human_time(snapshot.time_ms)
    return [snapshot.id, snapshot.total_record_count, committed]


def _entries(table: FileStoreTable, snapshot: Snapshot | None) -> list[ManifestEntry]:
    return [] if snapshot is None else live_entries(table, snapshot)


def _show(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    snapshot = _snapshot(table, arguments.snapshot)
    schema = table.schema if snapshot is None else table.schemas.read(snapshot.schema_id)
    levels = levels_of(_entries(table, snapshot))
    columns = [[f.id, f.name, _type_of(type_to_json(f.type))] for f in schema.fields]
    document = {
        "table": arguments.table,
        "snapshot": None if snapshot is None else snapshot.id,
        "schema_id": schema.id,
        "columns": [dict(zip(("id", "name", "type"), column, strict=True)) for column in columns],
        "primary_key": list(schema.primary_keys),
        "partition_by": list(schema.partition_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
        "record_count": 0 if snapshot is None else snapshot.total_record_count,
        "levels": [
            dict(zip(("level", "files", "rows", "bytes"), level, strict=True)) for level in levels
        ],
    }
    if arguments.json:
        print(json_line(document))
        return 0
    print(_heading(arguments.table, snapshot, schema.id))
    print(f"primary key   {', '.join(schema.primary_keys) or 'none'}")
    print(f"partitions    {', '.join(schema.partition_keys) or 'none'}")
    print(f"records       {document['record_count']:,} in data files (before merging)")
    print("\n" + aligned(["id", "column", "type"], columns))
    if schema.options:
        print("\n" + aligned(["option", "value"], sorted(schema.options.items())))
    if levels:
        shown = [[*level[:3], human_size(level[3])] for level in levels]
        print("\n" + aligned(["level", "files", "rows", "size"], shown))
    return 0


def _heading(name: str, snapshot: Snapshot | None, schema_id: int) -> str:
    if snapshot is None:
        return f"{name}: no snapshot yet, schema {schema_id}"
    return f"{name}: snapshot {snapshot.id} of {human_time(snapshot.time_ms)}, schema {schema_id}"


def _type_of(value: object) -> str:
    return value if isinstance(value, str) else json_line({"type": value})


def _files(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    entries = _entries(table, _snapshot(table, arguments.snapshot))
    entries.sort(key=lambda e: (e.partition, e.bucket, e.file.level, -e.file.max_sequence_number))
    head = ["partition", "bucket", "level", "rows", "deletes", "size", "min_key", "max_key"]
    head += ["min_sequence", "max_sequence", "schema", "file"]
    rows = [_file_row(table, entry, raw=arguments.json) for entry in entries]
    if not table.schema.partition_keys:
        head = head[1:]
        rows = [row[1:] for row in rows]
    return emit(arguments, head, rows, "no data files")


def _file_row(table: FileStoreTable, entry: ManifestEntry, *, raw: bool) -> list[Any]:
    file = entry.file
    return [
        table.partition_path(entry.partition),
        entry.bucket,
        file.level,
        file.row_count,
        file.delete_row_count,
        file.file_size if raw else human_size(file.file_size),
        _key(table, file, file.min_key),
        _key(table, file, file.max_key),
        file.min_sequence_number,
        file.max_sequence_number,
        file.schema_id,
        file.file_name,
    ]


def _key(table: FileStoreTable, file: DataFileMeta, framed: bytes) -> Any:
    """A key for people: the value itself when the key is one column."""
    fields = table.schemas.read(file.schema_id).key_fields
    if not fields:
        return None
    values = decode_row(framed, [field.type for field in fields])
    return values[0] if len(values) == 1 else list(values)


def _snapshots(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    numbers = sorted(table.snapshots.ids())
    chosen = numbers[-arguments.limit :] if arguments.limit else numbers
    head = ["id", "kind", "time", "schema", "records", "delta", "identifier", "user"]
    rows: list[list[Any]] = []
    for number in chosen:
        each = table.snapshots.read(number)
        time: Any = each.time_ms if arguments.json else human_time(each.time_ms)
        counts = [each.total_record_count, each.delta_record_count]
        writer = [each.commit_identifier, each.commit_user]
        rows.append([each.id, each.commit_kind.value, time, each.schema_id, *counts, *writer])
    return emit(arguments, head, rows, "no snapshots")


def _scan(arguments: argparse.Namespace) -> int:
    columns = [name.strip() for name in (arguments.columns or "").split(",") if name.strip()]
    travel = {
        "scan.snapshot-id": arguments.snapshot,
        "scan.tag-name": arguments.tag,
        "scan.timestamp-millis": arguments.timestamp,
    }
    given = {key: str(value) for key, value in travel.items() if value is not None}
    names, batches = scanned(
        catalog_of(arguments),
        ScanRequest(
            name=arguments.table,
            columns=tuple(columns) or None,
            predicate=parse_predicate(arguments.filter) if arguments.filter else None,
            options={**given, **dict(arguments.option)},
        ),
    )
    return _print_rows(arguments, names, _rows(batches, arguments.limit))


def _rows(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[list[Any]]:
    """Rows for printing, at most `limit` (0 = all); stops reading when it has enough."""
    rows = itertools.chain.from_iterable(rows_of(batch) for batch in batches)
    return itertools.islice(rows, limit or None)


def _print_rows(
    arguments: argparse.Namespace, columns: list[str], rows: Iterator[list[Any]]
) -> int:
    if arguments.json:
        for row in rows:
            print(json_line(dict(zip(columns, row, strict=True))))
        return 0
    if arguments.csv:
        print(csv_text(columns, []), end="")
        for row in rows:
            print(csv_text(columns, [row], with_head=False), end="")
        return 0
    shown = list(rows)
    print(aligned(columns, shown))
    more = arguments.limit and len(shown) == arguments.limit
    print(f"({len(shown)} rows{', maybe more: see --limit' if more else ''})")
    return 0
