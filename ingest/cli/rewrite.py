# SPDX-License-Identifier: Apache-2.0
"""`lakeward table delete-rows|drop-partition|truncate|overwrite|rewrite-index|rescale|…`.

Commands that replace rows make one OVERWRITE commit, which is safe while a daemon runs: the files
that are live at the commit are deleted, later commits of other writers remain. Older snapshots keep
the rows until they expire.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import csv, dataset, json

from ingest.cli.commands import Arguments, Value, choose_one, command, flag, option, positional
from ingest.cli.parameters import (
    DRY_RUN,
    JSON,
    NAMES,
    ONE_TABLE,
    PARTITION,
    PATH,
    POSITIVE,
    WAREHOUSE,
    ProgressLine,
    catalog_of,
    emit,
    emit_fact,
    open_progress,
    partitions,
    table_of,
)
from ingest.observe.text_table import human_size
from storage.errors import InvalidRequestError, LakewardError
from storage.table.branches import repair_hints
from storage.table.compaction.rescale import (
    RescaleProgress,
    rescaled_partitions,
    rewrite_file_index,
    unindexed_files,
)
from storage.table.compaction.rescale import rescale as rescale_rows
from storage.table.inspect.analyze import analyze as compute_statistics
from storage.table.materialized_table import MATERIALIZED_TABLE
from storage.table.table import FileStoreTable
from storage.table.table_types import ObjectTable
from storage.table.write.drop_partitions import (
    PartitionFiles,
    drop_partitions,
    live_partitions,
    overwrite_rows,
)
from storage.table.write.drop_partitions import truncate as truncate_rows

if TYPE_CHECKING:
    from storage.catalog.catalog import Catalog

_DROP_EXAMPLES = """\
Examples:
  lakeward table drop-partition /data/warehouse shop.orders --partition dt=2024-01-31 --dry-run
  lakeward table drop-partition /data/warehouse shop.orders --partition dt=a,h=1 --partition dt=b
"""

_DELETE_EXAMPLES = """\
Examples:
  lakeward table delete-rows /data/warehouse shop.orders --where "id = 5" --dry-run
  lakeward table delete-rows /data/warehouse shop.orders --where "dt < '2024-01-01' and price > 10"
"""

_OVERWRITE_EXAMPLES = """\
Examples:
  lakeward table overwrite /data/warehouse shop.rates rates.csv
  lakeward table overwrite /data/warehouse shop.orders fixed.parquet --partition dt=2024-01-31
"""

_REFRESH_EXAMPLES = """\
Examples:
  lakeward table refresh /data/warehouse shop.images
  lakeward table refresh /data/warehouse shop.sums --partition dt=2024-01-31
  lakeward table refresh /data/warehouse
"""

_HEAD = ["partition", "files", "rows", "size"]


@command(
    "drop-partition",
    ONE_TABLE,
    partitions("partitions with these values; repeatable", required=True),
    DRY_RUN,
    examples=_DROP_EXAMPLES,
)
def drop_partition(arguments: Arguments) -> int:
    """Delete the rows of partitions."""
    table = table_of(arguments)
    partitions = live_partitions(table, list(arguments.partition))
    if not arguments.dry_run and partitions:
        drop_partitions(table, list(arguments.partition))
    return _print_partitions(arguments, partitions, "no matching partition has rows", "dropped")


@command(
    "delete-rows",
    ONE_TABLE,
    option("--where", Value(str, "CONDITION"), "the rows to delete", required=True),
    DRY_RUN,
    examples=_DELETE_EXAMPLES,
)
def delete_rows(arguments: Arguments) -> int:
    """Delete the rows for which a condition is true.

    In a primary-key table the rows are deleted by key, and streams and changelogs contain the
    deletes. In an append table they are marked in deletion vectors if it has them; otherwise their
    files are rewritten. It is one commit, safe while a daemon runs: if other writers change the
    same rows meanwhile, they are searched again. A row for which the condition is null stays.

    UPDATE and MERGE INTO: `lakeward sql`.
    """
    table = table_of(arguments)
    if arguments.dry_run:
        count, snapshot = table.count_where(arguments.where), None
    else:
        result = table.delete_where(arguments.where, "lakeward-delete-rows")
        count, snapshot = result.row_count, result.snapshot_id
    outcome = "would be deleted; nothing was changed" if arguments.dry_run else "deleted"
    return emit_fact(arguments, f"{count} rows {outcome}", {"rows": count, "snapshot": snapshot})


@command(
    "truncate",
    ONE_TABLE,
    DRY_RUN,
    examples="Examples:\n  lakeward table truncate /data/warehouse shop.orders --dry-run\n",
)
def truncate(arguments: Arguments) -> int:
    """Delete all rows of a table."""
    table = table_of(arguments)
    partitions = live_partitions(table)
    if not arguments.dry_run and partitions:
        truncate_rows(table)
    return _print_partitions(arguments, partitions, "the table has no rows", "truncated")


def _print_partitions(
    arguments: Arguments, partitions: Sequence[PartitionFiles], nothing: str, verb: str
) -> int:
    rows: list[list[Any]] = [
        [part.name, part.files, part.rows, part.size if arguments.json else human_size(part.size)]
        for part in partitions
    ]
    emit(arguments, _HEAD, rows, nothing)
    if partitions and not arguments.json:
        text = (
            "nothing was changed" if arguments.dry_run else f"{len(partitions)} partitions {verb}"
        )
        print(f"({text})")
    return 0


@command(
    "overwrite",
    ONE_TABLE,
    positional("file", type=PATH, metavar="FILE", help="rows: .parquet, .json, .jsonl or .csv"),
    option("--partition", PARTITION, "the partition to replace"),
    examples=_OVERWRITE_EXAMPLES,
)
def overwrite(arguments: Arguments) -> int:
    """Replace the rows of a table or partition.

    Replaces the rows of the table, or of a partition, by those of a file: Parquet, JSON lines or
    CSV with a header line, by its extension. With `dynamic-partition-overwrite` (the default) only
    the partitions that occur in the file are replaced; with --partition only that one, and every
    row of the file must belong to it.
    """
    table = table_of(arguments)
    rows, result = overwrite_rows(
        table, _batches(arguments.file, table), partition=arguments.partition
    )
    text = f"{rows:,} rows, snapshot {result.append_snapshot_id}"
    facts = {"rows": rows, "snapshot": result.append_snapshot_id}
    return emit_fact(arguments, text, facts)


def _batches(path: Path, table: FileStoreTable) -> Iterator[pa.RecordBatch]:
    """Read the rows of a file, with the columns of a table."""
    schema = table.schema.arrow_schema
    if not path.is_file():
        raise InvalidRequestError("no such file", path=path)
    try:
        for batch in _read(path, schema):
            missing = sorted(set(schema.names) - set(batch.schema.names))
            if missing:
                raise InvalidRequestError(
                    "a column of the table is missing in the file", path=path, column=missing[0]
                )
            yield batch.select(schema.names).cast(schema)
    except (ValueError, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "rows of the file do not match the schema of the table", detail=str(error), path=path
        ) from error


def _read(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    match path.suffix.lower():
        case ".parquet":
            yield from dataset.dataset(path, format="parquet").to_batches()
        case ".csv":
            types = csv.ConvertOptions(column_types=schema, strings_can_be_null=True)
            yield from csv.open_csv(path, convert_options=types)
        case ".json" | ".jsonl" | ".ndjson":
            options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            yield from json.read_json(path, parse_options=options).to_batches()
        case other:
            raise InvalidRequestError(
                "unsupported file format", hint="use .parquet, .jsonl or .csv", kind=other
            )


def _counting(event: str, what: str, table: str) -> tuple[Callable[[int, int], None], ProgressLine]:
    line = open_progress()

    def show(done: int, of: int) -> None:
        facts = {"table": table, "done": done, "of": of}
        line.show(f"{table}  {done}/{of} {what}", event, facts, last=done == of)

    return show, line


@command(
    "rewrite-index",
    ONE_TABLE,
    option("--partition", PARTITION, "only partitions with these values"),
    flag("--rebuild", "also rebuild existing indexes"),
    DRY_RUN,
    examples="Examples:\n  lakeward table rewrite-index /data/warehouse shop.orders --dry-run\n",
)
def rewrite_index(arguments: Arguments) -> int:
    """Build missing file indexes.

    Builds the file indexes of the table options `file-index.…` for data files that lack them, for
    example after the options changed. Data files are not rewritten. Safe while a daemon runs: if it
    compacts a file meanwhile, the command retries.
    """
    table = table_of(arguments)
    partition, rebuild = arguments.partition, arguments.rebuild
    if arguments.dry_run:
        files = unindexed_files(table, partition, rebuild=rebuild)
        size = sum(entry.file.file_size for entry in files)
        text = f"{len(files)} files of {human_size(size)} would be read (nothing was changed)"
        return emit_fact(arguments, text, {"files": len(files), "size": size})
    show, line = _counting("rewrite_index", "files", arguments.table)
    result = rewrite_file_index(table, partition, rebuild=rebuild, on_progress=show)
    line.clear()
    snapshot = None if result is None else result.compact_snapshot_id
    if result is None:
        text = "no index is missing"
    elif snapshot is None:
        text = "lost every commit race against another writer; run it again"
    else:
        text = f"indexes are built, snapshot {snapshot}"
    return emit_fact(arguments, text, {"table": arguments.table, "snapshot": snapshot})


@command(
    "rescale",
    ONE_TABLE,
    option("--buckets", POSITIVE, "new number of buckets", required=True),
    partitions("only partitions with these values; others cannot be written until rescaled"),
    DRY_RUN,
    examples="Examples:\n  lakeward table rescale /data/warehouse shop.orders --buckets 16\n",
)
def rescale(arguments: Arguments) -> int:
    """Change the number of buckets of a table.

    Rewrites the rows of a table with a fixed number of buckets, partition by partition. The table
    stays readable. No row is lost if another process writes meanwhile: a partition that changes
    while it is rewritten is retried, and the command fails if it changes each time. So park the
    table first:

      lakeward pause -c shop.yaml shop.orders
      lakeward table rescale /data/warehouse shop.orders --buckets 16
      lakeward resume -c shop.yaml shop.orders

    If it was killed, run it again: it continues with the remaining partitions. Partitions with the
    old number of buckets can be read but not written.
    """
    table = table_of(arguments)
    parts = rescaled_partitions(table, arguments.buckets, list(arguments.partition))
    if not arguments.dry_run:
        line = open_progress()
        show = functools.partial(_show_rescale, line, arguments.table)
        parts = rescale_rows(table, arguments.buckets, list(arguments.partition), on_progress=show)
        line.clear()
    raw = arguments.json
    rows: list[list[Any]] = [
        [
            part.files.name,
            part.before,
            part.buckets,
            part.files.files,
            part.files.rows,
            part.files.size if raw else human_size(part.files.size),
        ]
        for part in parts
    ]
    head = ["partition", "buckets_before", "buckets", "files", "rows", "size"]
    emit(arguments, head, rows, f"every partition has {arguments.buckets} buckets")
    if parts and not raw:
        print("(nothing was changed)" if arguments.dry_run else f"({len(parts)} rescaled)")
    return 0


def _show_rescale(line: ProgressLine, table: str, progress: RescaleProgress) -> None:
    text = f"{table}  {progress.done}/{progress.partitions} partitions  "
    text += f"{progress.done_rows:,} of {progress.rows:,} rows"
    facts = {"table": table, "done_rows": progress.done_rows, "rows": progress.rows}
    facts |= {"retries": progress.retries}
    line.show(text, "rescaling", facts, last=progress.done == progress.partitions)


@command(
    "analyze",
    ONE_TABLE,
    option("--columns", NAMES, "also statistics of these columns", default=()),
    flag("--all-columns", "also statistics of all columns that support them"),
    examples="Examples:\n"
    "  lakeward table analyze /data/warehouse shop.orders --columns id,amount\n",
)
def analyze(arguments: Arguments) -> int:
    """Compute statistics for query engines.

    Computes the row count and column statistics of the newest snapshot, for the planners of query
    engines (TABLE$statistics). Later snapshots keep them until the schema changes.
    """
    choose_one(arguments, "columns", "all_columns")
    show, line = _counting("analyzing", "splits", arguments.table)
    columns = None if arguments.all_columns else list(arguments.columns)
    result = compute_statistics(table_of(arguments), columns, on_progress=show)
    line.clear()
    if result is None:
        return emit_fact(arguments, "the table has no snapshot yet", {"snapshot": None})
    stats = result.statistics
    if arguments.json:
        facts = {
            "snapshot": result.snapshot_id,
            "of_snapshot": stats.snapshot_id,
            "rows": stats.merged_record_count,
            "size": stats.merged_record_size,
            "columns": sorted(stats.columns),
        }
        return emit_fact(arguments, "", facts)
    print(f"{stats.merged_record_count:,} rows, {human_size(stats.merged_record_size or 0)}")
    rows = [
        [name, col.distinct_count, col.null_count, col.min, col.max, col.avg_len, col.max_len]
        for name, col in stats.columns.items()
    ]
    head = ["column", "distinct", "nulls", "min", "max", "mean_size", "largest"]
    return emit(arguments, head, rows, "(no columns: see --columns)")


@command(
    "repair",
    ONE_TABLE,
    DRY_RUN,
    examples="Examples:\n  lakeward table repair /data/warehouse shop.orders --dry-run\n",
)
def repair(arguments: Arguments) -> int:
    """Rewrite wrong or missing LATEST and EARLIEST hints.

    Lakeward does not rely on these hint files; other readers may.
    """
    hints = repair_hints(table_of(arguments), dry_run=arguments.dry_run)
    rows = [[hint.path, hint.recorded, hint.corrected] for hint in hints]
    return emit(arguments, ["hint", "said", "right"], rows, "all hints are correct")


@command(
    "iceberg-sync",
    ONE_TABLE,
    examples="Examples:\n  lakeward table iceberg-sync /data/warehouse shop.orders\n",
)
def iceberg_sync(arguments: Arguments) -> int:
    """Bring the Iceberg metadata of a table to its newest snapshot."""
    published = table_of(arguments).sync_iceberg()
    return emit(arguments, ["versions_published"], [[published]], "")


@command(
    "refresh",
    WAREHOUSE,
    positional(
        "table",
        required=False,
        help="database.table (default: all materialized tables that are due)",
    ),
    option("--partition", PARTITION, "of a materialized table: only this partition"),
    JSON,
    examples=_REFRESH_EXAMPLES,
)
def refresh(arguments: Arguments) -> int:
    """Refresh object tables and materialized tables.

    With TABLE: lists the objects of an object table, or runs the query of a materialized table,
    now. Without: refreshes the materialized tables of the warehouse that are due by the clock,
    which a scheduler can call where no daemon runs. A refresh is one commit; older snapshots stay
    readable.
    """
    from storage.sql import materialized

    catalog = catalog_of(arguments)
    if arguments.table is not None:
        rows = _refreshed(catalog, arguments.table, arguments.partition)
        return emit(arguments, ["table", "rows"], [[arguments.table, rows]], "")
    if arguments.partition is not None:
        raise InvalidRequestError("`--partition` needs a table", hint="name the table")
    refreshes: list[list[Any]] = []
    failed = 0
    for name in catalog.tables_of_type(MATERIALIZED_TABLE):
        try:
            row_count = materialized.refresh_due(catalog, name)
        except (LakewardError, OSError) as error:
            failed += 1
            print(f"{name}: {error}", file=sys.stderr)
            continue
        if row_count is not None:
            refreshes.append([name, row_count])
    emit(arguments, ["table", "rows"], refreshes, "nothing is due")
    return 1 if failed else 0


def _refreshed(catalog: "Catalog", name: str, partition: Any) -> int:
    from storage.sql import materialized
    from storage.sql.session import SqlSession

    table = catalog.table(name)
    if isinstance(table, ObjectTable) and partition is None:
        return table.refresh()
    if table.schema.options.get("type") == MATERIALIZED_TABLE:
        return materialized.refresh(SqlSession(catalog, name.partition(".")[0]), table, partition)
    raise InvalidRequestError(
        "only materialized tables, and object tables without --partition, can be refreshed",
        table=name,
        type=table.schema.options.get("type", "table"),
    )
