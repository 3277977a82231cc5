# SPDX-License-Identifier: Apache-2.0
"""`lakeward table show|scan|files|snapshots`: the read-only commands on one table.

Tables are named as in Paimon: `db.t`, `db.t$branch_b`, `db.t$files`, `db.t$branch_b$files`,
`sys.all_table_options`.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from ingest.cli.commands import Arguments, Decorator, command, flag, option
from ingest.cli.parameters import (
    COUNT,
    MOMENT_MS,
    NAMES,
    ONE_TABLE,
    PAIR,
    catalog_of,
    emit,
    table_of,
)
from ingest.observe.metrics.layout_figures import levels_of
from ingest.observe.text_table import aligned, csv_text, human_size, human_time, json_line, rows_of
from storage.catalog.catalog import BRANCH_MARK, Catalog, split_branch
from storage.catalog.system_tables import CATALOG_TABLES, catalog_system_table
from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import DataFileMeta, ManifestEntry
from storage.format.metadata.snapshot import Snapshot
from storage.format.row.binary_row import decode_row
from storage.format.types.types import type_to_json
from storage.table.commit.live_files import live_entries
from storage.table.format_table import FormatTable
from storage.table.inspect.system.registry import SYSTEM_TABLES, system_table
from storage.table.scan.predicate import Predicate, mask, parse_predicate
from storage.table.table import FileStoreTable

CATALOG_PREFIX = "sys."
"""Prefix of the names of the catalog's system tables."""

_SCAN = f"""\
Print the merged rows of a snapshot, or the rows of a system table.

Deleted rows are not printed. TABLE may also be a system table:
{", ".join(f"TABLE${name}" for name in SYSTEM_TABLES)};
{", ".join(f"{CATALOG_PREFIX}{name}" for name in CATALOG_TABLES)}."""

_SCAN_EXAMPLES = """\
Examples:
  lakeward table scan /data/warehouse shop.orders --columns id,amount --filter "id > 5"
  lakeward table scan /data/warehouse shop.orders --tag 2024-01-31 --limit 0 --csv > orders.csv
  lakeward table scan /data/warehouse shop.orders --option incremental-between=3,7
  lakeward table scan /data/warehouse 'shop.orders$audit_log' --option incremental-between=3,7
  lakeward table scan /data/warehouse 'shop.orders$snapshots' --json
  lakeward table scan /data/warehouse 'shop.orders$branch_test$files'
  lakeward table scan /data/warehouse sys.all_table_options --filter "key = 'bucket'"
"""

_SNAPSHOT = option("--snapshot", COUNT, "snapshot id (default: the newest)")


def _limit(text: str) -> Decorator:
    return option("--limit", COUNT, f"{text}; 0 = all (default: 20)", default=20)


def _open_table(
    catalog: Catalog,
    name: str,
    columns: tuple[str, ...] | None,
    predicate: Predicate | None,
    options: Mapping[str, str],
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return the columns of a table or system table, and its rows as batches."""
    if name.startswith(CATALOG_PREFIX):
        rows = catalog_system_table(catalog, name.removeprefix(CATALOG_PREFIX))
        return _select(rows, columns, predicate)
    base, system = _split(name)
    table = catalog.table(base)
    if options:
        table = table.with_options(options)
    if system is not None:
        return _select(system_table(table, system), columns, predicate)
    scan = table.scan(predicate, columns)
    return scan.schema.names, (batch for split in scan.plan() for batch in scan.read(split))


def _split(name: str) -> tuple[str, str | None]:
    """Split a name into that of a table or branch, and that of a system table."""
    base, branch, parts = split_branch(name)
    if len(parts) > 1:
        raise InvalidRequestError(
            "no such table", hint="write database.table$files, or $branch_b$files", table=name
        )
    main = base if branch is None else f"{base}{BRANCH_MARK}{branch}"
    return main, parts[0] if parts else None


def _select(
    rows: pa.Table, names: tuple[str, ...] | None, predicate: Predicate | None
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Apply the filter and the projection to a table in memory."""
    columns = list(names or rows.column_names)
    unknown = sorted(set(columns) - set(rows.column_names))
    if unknown:
        raise InvalidRequestError(
            "no such column",
            hint=f"the table has {', '.join(rows.column_names)}",
            column=unknown[0],
        )
    batches = rows.to_batches()
    if predicate is not None:
        batches = [batch.filter(mask(predicate, batch)) for batch in batches]
    return columns, (batch.select(columns) for batch in batches)


def _snapshot(table: FileStoreTable, number: int | None) -> Snapshot | None:
    return table.latest_snapshot() if number is None else table.snapshots.read(number)


def _entries(table: FileStoreTable, snapshot: Snapshot | None) -> list[ManifestEntry]:
    return [] if snapshot is None else live_entries(table, snapshot)


@command(
    "show",
    ONE_TABLE,
    _SNAPSHOT,
    examples="Examples:\n  lakeward table show /data/warehouse shop.orders --snapshot 3\n",
)
def show(arguments: Arguments) -> int:
    """Print schema, options, keys, rows and files per level."""
    table = table_of(arguments)
    if isinstance(table, FormatTable):
        return _show_files(table, arguments)
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
        level_rows = [[*level[:3], human_size(level[3])] for level in levels]
        print("\n" + aligned(["level", "files", "rows", "size"], level_rows))
    return 0


def _show_files(table: FormatTable, arguments: Arguments) -> int:
    """Print a format table."""
    schema, files = table.schema, table.scan().plan()
    columns = [[f.id, f.name, _type_of(type_to_json(f.type))] for f in schema.fields]
    document = {
        "table": arguments.table,
        "type": "format-table",
        "format": table.file_format,
        "schema_id": schema.id,
        "columns": [dict(zip(("id", "name", "type"), column, strict=True)) for column in columns],
        "partition_by": list(schema.partition_keys),
        "options": dict(schema.options),
        "comment": schema.comment,
        "files": len(files),
        "bytes": sum(file.size for file in files),
    }
    if arguments.json:
        print(json_line(document))
        return 0
    print(f"{arguments.table}: {table.file_format} files, schema {schema.id}")
    print(f"partitions    {', '.join(schema.partition_keys) or 'none'}")
    print(f"files         {len(files):,} of {human_size(sum(file.size for file in files))}")
    print("\n" + aligned(["id", "column", "type"], columns))
    print("\n" + aligned(["option", "value"], sorted(schema.options.items())))
    return 0


def _heading(name: str, snapshot: Snapshot | None, schema_id: int) -> str:
    if snapshot is None:
        return f"{name}: no snapshot yet, schema {schema_id}"
    return f"{name}: snapshot {snapshot.id} of {human_time(snapshot.time_ms)}, schema {schema_id}"


def _type_of(value: object) -> str:
    return value if isinstance(value, str) else json_line({"type": value})


@command(
    "files",
    ONE_TABLE,
    _SNAPSHOT,
    examples="Examples:\n  lakeward table files /data/warehouse shop.orders --json\n",
)
def files(arguments: Arguments) -> int:
    """List the live data files of a snapshot."""
    table = table_of(arguments)
    if isinstance(table, FormatTable):
        start = len(table.location) + 1
        file_rows = [
            [file.path[start:], file.size if arguments.json else human_size(file.size)]
            for file in table.scan().plan()
        ]
        return emit(arguments, ["file", "size"], file_rows, "no data files")
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
    """Decode a key for display: the value itself if the key is one column."""
    fields = table.schemas.read(file.schema_id).key_fields
    if not fields:
        return None
    values = decode_row(framed, [field.type for field in fields])
    return values[0] if len(values) == 1 else list(values)


@command(
    "snapshots",
    ONE_TABLE,
    _limit("newest N"),
    examples="Examples:\n  lakeward table snapshots /data/warehouse shop.orders --limit 0\n",
)
def snapshots(arguments: Arguments) -> int:
    """List the available snapshots."""
    table = table_of(arguments)
    numbers = sorted(table.snapshots.ids())
    ids = numbers[-arguments.limit :] if arguments.limit else numbers
    head = ["id", "kind", "time", "schema", "records", "delta", "identifier", "user"]
    rows: list[list[Any]] = []
    for number in ids:
        commit = table.snapshots.read(number)
        time: Any = commit.time_ms if arguments.json else human_time(commit.time_ms)
        counts = [commit.total_record_count, commit.delta_record_count]
        writer = [commit.commit_identifier, commit.commit_user]
        rows.append([commit.id, commit.commit_kind.value, time, commit.schema_id, *counts, *writer])
    return emit(arguments, head, rows, "no snapshots")


@command(
    "scan",
    ONE_TABLE,
    _SNAPSHOT,
    option("--tag", "NAME", "the snapshot of this tag"),
    option(
        "--timestamp", MOMENT_MS, "the newest snapshot at this time, ISO 8601 (UTC without a zone)"
    ),
    option(
        "--option",
        PAIR,
        "a dynamic table option, such as incremental-between=3,7 or scan.watermark=1700000000000",
        multiple=True,
    ),
    option("--columns", NAMES, "only these columns, in this order", default=()),
    option("--filter", "TEXT", "only rows that match, such as \"id > 5 and name = 'x'\""),
    _limit("maximum number of rows"),
    flag("--csv", "print comma-separated values with a header line"),
    text=_SCAN,
    examples=_SCAN_EXAMPLES,
)
def scan(arguments: Arguments) -> int:
    """Print rows."""
    time_travel = {
        "scan.snapshot-id": arguments.snapshot,
        "scan.tag-name": arguments.tag,
        "scan.timestamp-millis": arguments.timestamp,
    }
    scan_options = {key: str(value) for key, value in time_travel.items() if value is not None}
    names, batches = _open_table(
        catalog_of(arguments),
        arguments.table,
        arguments.columns or None,
        parse_predicate(arguments.filter) if arguments.filter else None,
        {**scan_options, **dict(arguments.option)},
    )
    rows = itertools.chain.from_iterable(rows_of(batch) for batch in batches)
    return _print_rows(arguments, names, itertools.islice(rows, arguments.limit or None))


def _print_rows(arguments: Arguments, columns: list[str], rows: Iterator[list[Any]]) -> int:
    if arguments.json:
        for row in rows:
            print(json_line(dict(zip(columns, row, strict=True))))
        return 0
    if arguments.csv:
        print(csv_text(columns, []), end="")
        for row in rows:
            print(csv_text(columns, [row], with_head=False), end="")
        return 0
    table_rows = list(rows)
    print(aligned(columns, table_rows))
    limited = arguments.limit and len(table_rows) == arguments.limit
    count = "1 row" if len(table_rows) == 1 else f"{len(table_rows)} rows"
    print(f"({count}{', possibly more: see --limit' if limited else ''})")
    return 0
