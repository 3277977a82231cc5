# SPDX-License-Identifier: Apache-2.0
"""`lakeward table rewrite-index|rescale|analyze|repair`: what is done to one table as a whole."""

import argparse
import functools
from collections.abc import Callable
from typing import Any

from ingest.cli.argument_values import parse_partition, parse_positive
from ingest.cli.progress_line import open_progress
from ingest.cli.table_arguments import (
    add_dry_run,
    add_partitions,
    add_verb,
    emit,
    table_of,
    tell,
)
from ingest.observe.text_table import human_size
from storage.table.compaction.rescale import RescaleProgress, rescale, rescaled_partitions
from storage.table.compaction.rewrite_index import rewrite_file_index, unindexed_files
from storage.table.inspect.analyze import analyze
from storage.table.retention.repair import repair_hints

__all__ = ["add_rewrite_commands"]

_INDEX = """\
Builds the file indexes that the table's options ask for (`file-index.…`) for files that lack them,
as after the options changed. Data files stay as they are. Safe beside a daemon: when it compacts a
file meanwhile, the work is done again."""

_RESCALE = """\
Gives a table with a fixed number of buckets another number, and its rows their new place, partition
by partition. Reading goes on meanwhile. Beside a writer no row is lost: a partition that changes
while it is rewritten is rewritten again, and given up when it changes each time. Let the pipeline
leave the table alone meanwhile:

  lakeward pause -c shop.yaml shop.orders
  lakeward table rescale /data/warehouse shop.orders --buckets 16
  lakeward resume -c shop.yaml shop.orders

Killed, it goes on where it was when it is called again; partitions that still have the old number
can be read but not written."""

_ANALYZE = """\
Counts the rows, and computes statistics of columns, of the newest snapshot; query engines plan with
them (TABLE$statistics). They stay with later snapshots until the schema changes."""

_REPAIR = """\
Writes the files LATEST and EARLIEST anew where they are missing or wrong. Lakeward does not rely on
them; other readers believe what they say."""


def add_rewrite_commands(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verbs; each sets `run`."""
    index = add_verb(
        verbs, "rewrite-index", "build the file indexes that files lack", _index, details=_INDEX
    )
    index.add_argument(
        "--partition",
        type=parse_partition,
        metavar="COLUMN=VALUE[,…]",
        help="only partitions with these values",
    )
    index.add_argument("--rebuild", action="store_true", help="also those that files have")
    add_dry_run(index)
    buckets = add_verb(
        verbs, "rescale", "give a table another number of buckets", _rescale, details=_RESCALE
    )
    buckets.add_argument("--buckets", type=parse_positive, required=True, metavar="N")
    text = "only partitions with these values; the others cannot be written until it is their turn"
    add_partitions(buckets, text)
    add_dry_run(buckets)
    statistics = add_verb(
        verbs,
        "analyze",
        "compute statistics for query engines",
        _analyze,
        details=_ANALYZE,
        examples="  lakeward table analyze /data/warehouse shop.orders --columns id,amount\n",
    )
    which = statistics.add_mutually_exclusive_group()
    which.add_argument("--columns", metavar="A,B", help="statistics of these columns, too")
    which.add_argument("--all-columns", action="store_true", help="of all that can have any")
    hints = add_verb(verbs, "repair", "write wrong LATEST and EARLIEST anew", _repair)
    hints.description = _REPAIR
    add_dry_run(hints)


def _counting(event: str, what: str, table: str) -> tuple[Callable[[int, int], None], Any]:
    line = open_progress()

    def show(done: int, of: int) -> None:
        facts = {"table": table, "done": done, "of": of}
        line.show(f"{table}  {done}/{of} {what}", event, facts, last=done == of)

    return show, line


def _index(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    partition, rebuild = arguments.partition, arguments.rebuild
    if arguments.dry_run:
        found = unindexed_files(table, partition, rebuild=rebuild)
        size = sum(one.file.file_size for one in found)
        text = f"{len(found)} files of {human_size(size)} would be read (nothing was changed)"
        return tell(arguments, text, {"files": len(found), "size": size})
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
    return tell(arguments, text, {"table": arguments.table, "snapshot": snapshot})


def _rescale(arguments: argparse.Namespace) -> int:
    table = table_of(arguments)
    found = rescaled_partitions(table, arguments.buckets, arguments.partition)
    if not arguments.dry_run:
        line = open_progress()
        show = functools.partial(_show_rescale, line, arguments.table)
        found = rescale(table, arguments.buckets, arguments.partition, on_progress=show)
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


def _show_rescale(line: Any, table: str, progress: RescaleProgress) -> None:
    text = f"{table}  {progress.done}/{progress.partitions} partitions  "
    text += f"{progress.done_rows:,} of {progress.rows:,} rows"
    facts = {"table": table, "done_rows": progress.done_rows, "rows": progress.rows}
    facts |= {"retries": progress.retries}
    line.show(text, "rescaling", facts, last=progress.done == progress.partitions)


def _analyze(arguments: argparse.Namespace) -> int:
    names = [name.strip() for name in (arguments.columns or "").split(",") if name.strip()]
    show, line = _counting("analyzing", "splits", arguments.table)
    columns = None if arguments.all_columns else names
    done = analyze(table_of(arguments), columns, on_progress=show)
    line.clear()
    if done is None:
        return tell(arguments, "the table has no snapshot yet", {"snapshot": None})
    found = done.statistics
    if arguments.json:
        facts = {
            "snapshot": done.snapshot_id,
            "of_snapshot": found.snapshot_id,
            "rows": found.merged_record_count,
            "size": found.merged_record_size,
            "columns": sorted(found.columns),
        }
        return tell(arguments, "", facts)
    print(f"{found.merged_record_count:,} rows, {human_size(found.merged_record_size or 0)}")
    rows = [
        [name, one.distinct_count, one.null_count, one.min, one.max, one.avg_len, one.max_len]
        for name, one in found.columns.items()
    ]
    head = ["column", "distinct", "nulls", "min", "max", "mean_size", "largest"]
    return emit(arguments, head, rows, "(no columns: see --columns)")


def _repair(arguments: argparse.Namespace) -> int:
    found = repair_hints(table_of(arguments), dry_run=arguments.dry_run)
    rows = [[one.path, one.found, one.right] for one in found]
    return emit(arguments, ["hint", "said", "right"], rows, "all hints are right")
