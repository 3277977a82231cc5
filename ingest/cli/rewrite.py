# SPDX-License-Identifier: Apache-2.0
"""`lakeward table drop-partition|truncate|overwrite|rewrite-index|rescale|analyze|repair`.

What replaces rows makes one OVERWRITE commit, safe beside a daemon: what is live when it commits is
deleted, and what others commit later stays. Old snapshots keep the rows until they expire.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv, dataset, json

from ingest.cli.commands import Arguments, choose_one, command, flag, option, positional
from ingest.cli.parameters import (
    DRY_RUN,
    NAMES,
    ONE_TABLE,
    PARTITION,
    PATH,
    POSITIVE,
    emit,
    emit_fact,
    partitions,
    table_of,
)
from ingest.cli.progress import ProgressLine, open_progress
from ingest.observe.text_table import human_size
from storage.errors import InvalidRequestError
from storage.table.compaction.rescale import RescaleProgress, rescaled_partitions
from storage.table.compaction.rescale import rescale as rescale_rows
from storage.table.compaction.rewrite_index import rewrite_file_index, unindexed_files
from storage.table.inspect.analyze import analyze as compute_statistics
from storage.table.retention.repair import repair_hints
from storage.table.table import FileStoreTable
from storage.table.write.drop_partitions import (
    PartitionFiles,
    drop_partitions,
    live_partitions,
    overwrite_rows,
)
from storage.table.write.drop_partitions import truncate as truncate_rows

__all__ = [
    "analyze",
    "drop_partition",
    "overwrite",
    "repair",
    "rescale",
    "rewrite_index",
    "truncate",
]

_DROP_EXAMPLES = """\
Examples:
  lakeward table drop-partition /data/warehouse shop.orders --partition dt=2024-01-31 --dry-run
  lakeward table drop-partition /data/warehouse shop.orders --partition dt=a,h=1 --partition dt=b
"""

_OVERWRITE = """\
Replace the rows of a table or partition.

Puts the rows of a file (Parquet, JSON lines or CSV with a head line; by its extension) in the place
of those of the table, or of a partition. With `dynamic-partition-overwrite` (the default) a
partitioned table loses the partitions that get rows; with --partition exactly that one, and every
row must belong to it."""

_OVERWRITE_EXAMPLES = """\
Examples:
  lakeward table overwrite /data/warehouse shop.rates rates.csv
  lakeward table overwrite /data/warehouse shop.orders fixed.parquet --partition dt=2024-01-31
"""

_INDEX = """\
Build the file indexes that files lack.

Builds the file indexes that the table's options ask for (`file-index.…`) for files that lack them,
as after the options changed. Data files stay as they are. Safe beside a daemon: when it compacts a
file meanwhile, the work is done again."""

_RESCALE = """\
Give a table another number of buckets.

The rows of a table with a fixed number of buckets are written anew, partition by partition. Reading
goes on meanwhile. Beside a writer no row is lost: a partition that changes while it is rewritten is
rewritten again, and given up when it changes each time. Park the table in its pipeline first:

  lakeward pause -c shop.yaml shop.orders
  lakeward table rescale /data/warehouse shop.orders --buckets 16
  lakeward resume -c shop.yaml shop.orders

When it was killed, it continues where it was when it is called again; partitions that still have
the old number can be read but not written."""

_ANALYZE = """\
Compute statistics for query engines.

Counts the rows, and computes statistics of columns, of the newest snapshot; query engines plan with
them (TABLE$statistics). They stay with later snapshots until the schema changes."""

_REPAIR = """\
Rewrite LATEST and EARLIEST where they are wrong.

Writes both files anew where they are missing or wrong. Lakeward does not rely on them; other
readers believe what they say."""

_HEAD = ["partition", "files", "rows", "size"]


@command(
    "drop-partition",
    "Remove the rows of partitions.",
    ONE_TABLE,
    partitions("partitions with these values; may be repeated", required=True),
    DRY_RUN,
    examples=_DROP_EXAMPLES,
)
def drop_partition(arguments: Arguments) -> int:
    """Remove the rows of partitions."""
    table = table_of(arguments)
    found = live_partitions(table, list(arguments.partition))
    if not arguments.dry_run and found:
        drop_partitions(table, list(arguments.partition))
    return _print_partitions(arguments, found, "no such partition has rows", "dropped")


@command(
    "truncate",
    "Remove all rows of a table.",
    ONE_TABLE,
    DRY_RUN,
    examples="Examples:\n  lakeward table truncate /data/warehouse shop.orders --dry-run\n",
)
def truncate(arguments: Arguments) -> int:
    """Remove all rows."""
    table = table_of(arguments)
    found = live_partitions(table)
    if not arguments.dry_run and found:
        truncate_rows(table)
    return _print_partitions(arguments, found, "the table has no rows", "emptied")


def _print_partitions(
    arguments: Arguments, found: Sequence[PartitionFiles], nothing: str, done: str
) -> int:
    rows: list[list[Any]] = [
        [one.name, one.files, one.rows, one.size if arguments.json else human_size(one.size)]
        for one in found
    ]
    emit(arguments, _HEAD, rows, nothing)
    if found and not arguments.json:
        text = "nothing was changed" if arguments.dry_run else f"{len(found)} partitions {done}"
        print(f"({text})")
    return 0


@command(
    "overwrite",
    _OVERWRITE,
    ONE_TABLE,
    positional("file", type=PATH, metavar="FILE", help="the rows: .parquet, .json, .jsonl or .csv"),
    option("--partition", PARTITION, "the partition that they replace"),
    examples=_OVERWRITE_EXAMPLES,
)
def overwrite(arguments: Arguments) -> int:
    """Replace rows."""
    table = table_of(arguments)
    rows, result = overwrite_rows(
        table, _batches(arguments.file, table), partition=arguments.partition
    )
    text = f"{rows:,} rows, snapshot {result.append_snapshot_id}"
    facts = {"rows": rows, "snapshot": result.append_snapshot_id}
    return emit_fact(arguments, text, facts)


def _batches(path: Path, table: FileStoreTable) -> Iterator[pa.RecordBatch]:
    """Rows of a file with the columns of a table."""
    schema = table.schema.arrow_schema
    if not path.is_file():
        raise InvalidRequestError("there is no such file", path=path)
    try:
        for batch in _read(path, schema):
            missing = sorted(set(schema.names) - set(batch.schema.names))
            if missing:
                raise InvalidRequestError(
                    "the file lacks a column of the table", path=path, column=missing[0]
                )
            yield batch.select(schema.names).cast(schema)
    except (ValueError, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "rows of the file do not fit the table", detail=str(error), path=path
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
                "files of this kind are not read", hint="use .parquet, .jsonl or .csv", kind=other
            )


def _counting(event: str, what: str, table: str) -> tuple[Callable[[int, int], None], ProgressLine]:
    line = open_progress()

    def show(done: int, of: int) -> None:
        facts = {"table": table, "done": done, "of": of}
        line.show(f"{table}  {done}/{of} {what}", event, facts, last=done == of)

    return show, line


@command(
    "rewrite-index",
    _INDEX,
    ONE_TABLE,
    option("--partition", PARTITION, "only partitions with these values"),
    flag("--rebuild", "also those that files have"),
    DRY_RUN,
    examples="Examples:\n  lakeward table rewrite-index /data/warehouse shop.orders --dry-run\n",
)
def rewrite_index(arguments: Arguments) -> int:
    """Build indexes."""
    table = table_of(arguments)
    partition, rebuild = arguments.partition, arguments.rebuild
    if arguments.dry_run:
        found = unindexed_files(table, partition, rebuild=rebuild)
        size = sum(one.file.file_size for one in found)
        text = f"{len(found)} files of {human_size(size)} would be read (nothing was changed)"
        return emit_fact(arguments, text, {"files": len(found), "size": size})
    show, line = _counting("rewrite_index", "files", arguments.table)
    result = rewrite_file_index(table, partition, rebuild=rebuild, on_progress=show)
    line.clear()
    snapshot = None if result is None else result.compact_snapshot_id
    if result is None:
        text = "no file lacks an index"
    elif snapshot is None:
        text = "another writer was faster each time; run it again"
    else:
        text = f"indexes are built, snapshot {snapshot}"
    return emit_fact(arguments, text, {"table": arguments.table, "snapshot": snapshot})


@command(
    "rescale",
    _RESCALE,
    ONE_TABLE,
    option("--buckets", POSITIVE, "the new number", required=True),
    partitions("only partitions with these values; the others cannot be written until then"),
    DRY_RUN,
    examples="Examples:\n  lakeward table rescale /data/warehouse shop.orders --buckets 16\n",
)
def rescale(arguments: Arguments) -> int:
    """Rewrite the rows into other buckets."""
    table = table_of(arguments)
    found = rescaled_partitions(table, arguments.buckets, list(arguments.partition))
    if not arguments.dry_run:
        line = open_progress()
        show = functools.partial(_show_rescale, line, arguments.table)
        found = rescale_rows(table, arguments.buckets, list(arguments.partition), on_progress=show)
        line.clear()
    raw = arguments.json
    rows: list[list[Any]] = [
        [
            one.files.name,
            one.before,
            one.buckets,
            one.files.files,
            one.files.rows,
            one.files.size if raw else human_size(one.files.size),
        ]
        for one in found
    ]
    head = ["partition", "buckets_before", "buckets", "files", "rows", "size"]
    emit(arguments, head, rows, f"every partition has {arguments.buckets} buckets")
    if found and not raw:
        print("(nothing was changed)" if arguments.dry_run else f"({len(found)} rescaled)")
    return 0


def _show_rescale(line: ProgressLine, table: str, progress: RescaleProgress) -> None:
    text = f"{table}  {progress.done}/{progress.partitions} partitions  "
    text += f"{progress.done_rows:,} of {progress.rows:,} rows"
    facts = {"table": table, "done_rows": progress.done_rows, "rows": progress.rows}
    facts |= {"retries": progress.retries}
    line.show(text, "rescaling", facts, last=progress.done == progress.partitions)


@command(
    "analyze",
    _ANALYZE,
    ONE_TABLE,
    option("--columns", NAMES, "statistics of these columns, too", default=()),
    flag("--all-columns", "of all that can have any"),
    examples="Examples:\n"
    "  lakeward table analyze /data/warehouse shop.orders --columns id,amount\n",
)
def analyze(arguments: Arguments) -> int:
    """Compute statistics."""
    choose_one(arguments, "columns", "all_columns")
    show, line = _counting("analyzing", "splits", arguments.table)
    columns = None if arguments.all_columns else list(arguments.columns)
    done = compute_statistics(table_of(arguments), columns, on_progress=show)
    line.clear()
    if done is None:
        return emit_fact(arguments, "the table has no snapshot yet", {"snapshot": None})
    found = done.statistics
    if arguments.json:
        facts = {
            "snapshot": done.snapshot_id,
            "of_snapshot": found.snapshot_id,
            "rows": found.merged_record_count,
            "size": found.merged_record_size,
            "columns": sorted(found.columns),
        }
        return emit_fact(arguments, "", facts)
    print(f"{found.merged_record_count:,} rows, {human_size(found.merged_record_size or 0)}")
    rows = [
        [name, one.distinct_count, one.null_count, one.min, one.max, one.avg_len, one.max_len]
        for name, one in found.columns.items()
    ]
    head = ["column", "distinct", "nulls", "min", "max", "mean_size", "largest"]
    return emit(arguments, head, rows, "(no columns: see --columns)")


@command(
    "repair",
    _REPAIR,
    ONE_TABLE,
    DRY_RUN,
    examples="Examples:\n  lakeward table repair /data/warehouse shop.orders --dry-run\n",
)
def repair(arguments: Arguments) -> int:
    """Write the hints anew."""
    found = repair_hints(table_of(arguments), dry_run=arguments.dry_run)
    rows = [[one.path, one.found, one.right] for one in found]
    return emit(arguments, ["hint", "said", "right"], rows, "all hints are right")
