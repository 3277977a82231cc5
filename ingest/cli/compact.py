# SPDX-License-Identifier: Apache-2.0
"""`lakeward compact`: options, progress, summary and signals; `compact_runs` does the work."""

import functools
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from ingest.cli.commands import Arguments, Value, choose_one, command, flag, option, refuse
from ingest.cli.parameters import (
    DRY_RUN,
    DURATION_MS,
    JSON,
    POSITIVE,
    TABLES,
    chosen_tables,
    partitions,
    selected_catalog,
)
from ingest.daemon.maintenance.compact_runs import (
    Selection,
    SortBy,
    TableRun,
    compact_tables,
    exit_code,
    plan_tables,
    selected,
    worker_pool,
)
from ingest.observe.text_table import aligned, human_size, json_line
from ingest.tools.progress import ProgressLine, StopSignal, open_progress
from storage.catalog.catalog import Catalog
from storage.errors import NotFoundError
from storage.table.compaction.compact_plan import BucketWork, CompactRequest
from storage.table.compaction.compact_table import CompactProgress
from storage.table.compaction.sort_codes import SortOrder
from storage.table.table import FileStoreTable

_EXAMPLES = """\
Examples:
  lakeward compact --warehouse /data/warehouse shop.orders
  lakeward compact --warehouse /data/warehouse shop.orders --partition dt=2024-01-01 --dry-run
  lakeward compact -c shop.yaml --database shop --excluding-tables 'shop\\.tmp_.*'
  lakeward compact -c shop.yaml --including-tables 'shop\\.(orders|lines)' --minor --json
  lakeward compact --warehouse s3://lake/warehouse --database shop --watch 1m
  lakeward compact -c shop.yaml --database shop --partition-idle-time 1d    idle partitions
  lakeward compact --warehouse /data/warehouse shop.clicks --order-by day,user --order-type zorder

Kinds:
  --full   merge all runs of a bucket into its last level: one sorted run, no deleted rows
           (default without --watch)
  --minor  only compactions that are due by the options of the table, as its writers would do
           (default with --watch)
  --order-by A,B  for append tables without buckets: rewrite partitions, sorted or clustered by
           these columns; --order-type zorder or hilbert for filters on any of the columns

Exit codes:
    0  done, or stopped by a signal
   65  a file is corrupt; the other buckets and tables are done
   69  the store is unavailable
   75  some buckets lost every commit race; run it again
   78  no such table, or a table that was named cannot be compacted
"""


_how = functools.partial(option, section="How")


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("expected column names")
    return names


def _sort_of(arguments: Arguments) -> SortBy | None:
    if arguments.order_by is None:
        return None
    if arguments.watch is not None or arguments.partition_idle_time is not None:
        refuse("--order-by cannot be combined with --watch or --partition-idle-time")
    return SortBy(arguments.order_by, SortOrder(arguments.order_type))


@command(
    "compact",
    TABLES,
    partitions("only partitions with these values; repeatable", section="Which tables"),
    option(
        "--partition-idle-time",
        DURATION_MS,
        "only partitions without new files for this time, such as 1h",
        section="Which tables",
    ),
    flag("--full", "full compaction: one sorted run per bucket", section="How"),
    flag("--minor", "only compactions that are due", section="How"),
    _how(
        "--order-by",
        Value(_columns, "A,B"),
        "append tables without buckets: rewrite partitions, clustered by these columns",
    ),
    _how(
        "--order-type",
        click.Choice([order.value for order in SortOrder]),
        "lexicographic order, or a space-filling curve (default: order)",
        default=SortOrder.ORDER.value,
    ),
    _how(
        "--parallelism",
        POSITIVE,
        "buckets compacted concurrently, each in a separate process (default: cores)",
        default=os.cpu_count() or 1,
    ),
    _how(
        "--watch",
        DURATION_MS,
        "run until SIGTERM, checking for due compactions at this interval, such as 30s",
    ),
    DRY_RUN,
    JSON,
    examples=_EXAMPLES,
)
def compact(arguments: Arguments) -> int:
    """Compact tables, also while other processes write them.

    Merges sorted runs and small files, which makes reads faster and removes deleted rows from the
    data files. Safe while a daemon or other writers run: if both change a bucket, the compaction is
    retried or discarded, and the rows of the table never change. If it is killed, only orphan files
    remain. Also compacts `write-only` tables, and produces the changelog of tables with
    changelog-producer `lookup` or `full-compaction`.
    """
    choose_one(arguments, "full", "minor", "order_by")
    selection = chosen_tables(arguments)
    sort = _sort_of(arguments)
    request = CompactRequest(
        full=arguments.full or (arguments.watch is None and not arguments.minor),
        partitions=tuple(arguments.partition),
        idle_ms=arguments.partition_idle_time,
    )
    catalog = selected_catalog(arguments)
    if arguments.dry_run:
        return _dry_run(catalog, selection, request, sort, as_json=arguments.json)
    progress = open_progress()
    with (
        StopSignal("the buckets in progress are") as stop,
        worker_pool(arguments.parallelism) as executor,
    ):
        totals: dict[str, TableRun] = {}
        while True:
            runs = compact_tables(
                catalog,
                _existing(catalog, selection, watching=arguments.watch is not None),
                request,
                executor,
                parallelism=arguments.parallelism,
                on_progress=functools.partial(show_progress, progress),
                stopping=stop.event.is_set,
                sort=sort,
            )
            progress.clear()
            for run in runs:
                if run.table in totals:
                    totals[run.table].add(run)
                else:
                    totals[run.table] = run
            if arguments.watch is None or stop.event.wait(arguments.watch / 1000):
                break
    _summary(list(totals.values()), as_json=arguments.json)
    return exit_code(list(totals.values()), selection.tables)


def _existing(catalog: Catalog, selection: Selection, *, watching: bool) -> list[str]:
    """Return the chosen tables; while watching, a missing database has none yet."""
    try:
        return selected(catalog, selection)
    except NotFoundError:
        if not watching:
            raise
        return []


def show_progress(line: ProgressLine, name: str, progress: CompactProgress) -> None:
    """Show the progress of a table."""
    facts = {
        "table": name,
        "buckets": f"{progress.done}/{progress.buckets}",
        "bytes": progress.done_size,
        "of_bytes": progress.size,
        "files_before": progress.files_before,
        "files_after": progress.files_after,
        "dropped": progress.dropped,
        "left_s": None if progress.eta_s is None else round(progress.eta_s),
    }
    last = progress.done == progress.buckets
    line.show(progress_text(name, progress), "compacting", facts, last=last)


def progress_text(name: str, progress: CompactProgress) -> str:
    """Format the progress of a table as one line."""
    parts = [
        name,
        f"{progress.done}/{progress.buckets} buckets",
        f"{human_size(progress.done_size)} of {human_size(progress.size)}",
        f"{progress.done_rows:,} rows",
        f"files {progress.files_before} → {progress.files_after}",
        _minutes(progress.elapsed_s),
    ]
    if progress.eta_s is not None:
        parts.append(f"{_minutes(progress.eta_s)} left")
    if progress.dropped:
        parts.append(f"{progress.dropped} discarded")
    return "  ".join(parts)


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


_SUMMARY = ["table", "kind", "outcome", "buckets", "compacted", "dropped", "lost"]
_SUMMARY += ["files before", "after", "read", "written", "changelog rows", "seconds"]


def _summary(runs: Sequence[TableRun], *, as_json: bool) -> None:
    if as_json:
        for run in runs:
            print(json_line(run.document()))
        return
    if not runs:
        print("no tables")
        return
    rows: list[list[Any]] = []
    for run in runs:
        report = run.report
        counts = [report.buckets, report.compacted, report.dropped, report.lost]
        counts += [report.files_before, report.files_after]
        sizes = [human_size(report.read_bytes), human_size(report.written_bytes)]
        rows.append(
            [
                run.table,
                run.kind,
                run.outcome,
                *counts,
                *sizes,
                report.changelog_rows,
                round(report.seconds, 1),
            ]
        )
    print(aligned(_SUMMARY, rows))
    for run in runs:
        _explain(run)


def _explain(run: TableRun) -> None:
    if run.error is not None:
        print(f"{run.table}: {run.error}", file=sys.stderr)
    for failure in run.report.failures:
        directory = f"{failure.partition}/" if failure.partition else ""
        print(f"{run.table} {directory}bucket-{failure.bucket}: {failure.error}", file=sys.stderr)
    if run.report.lost:
        print(
            f"{run.table}: {run.report.lost} buckets lost every commit race against another "
            "writer and are unchanged; run it again",
            file=sys.stderr,
        )


_PLAN = ["table", "partition", "bucket", "runs", "files", "rows", "size"]
_PLAN += ["takes files", "takes", "to level"]


def _dry_run(
    catalog: Catalog,
    selection: Selection,
    request: CompactRequest,
    sort: SortBy | None,
    *,
    as_json: bool,
) -> int:
    results = plan_tables(catalog, selected(catalog, selection), request, sort)
    rows: list[list[Any]] = []
    for run, plan in results:
        if plan is not None:
            table = catalog.table(run.table)
            rows += [_plan_row(run.table, table, work, raw=as_json) for work in plan.work]
    if as_json:
        for row in rows:
            print(
                json_line(dict(zip([name.replace(" ", "_") for name in _PLAN], row, strict=True)))
            )
    elif rows:
        print(aligned(_PLAN, rows))
    plans = [plan for _, plan in results if plan is not None]
    if not as_json:
        size = sum(work.taken_size for plan in plans for work in plan.work)
        files = sum(work.taken_files for plan in plans for work in plan.work)
        buckets = sum(plan.buckets for plan in plans)
        print(
            f"would compact {len(rows)} of {buckets} buckets in {len(plans)} tables: "
            f"{files} files, {human_size(size)} (nothing was changed)"
        )
    for run, _ in results:
        _explain(run)
    return exit_code([run for run, _ in results], selection.tables)


def _plan_row(name: str, table: FileStoreTable, work: BucketWork, *, raw: bool) -> list[Any]:
    return [
        name,
        table.partition_path(work.partition),
        work.bucket,
        work.runs,
        work.files,
        work.rows,
        work.size if raw else human_size(work.size),
        work.taken_files,
        work.taken_size if raw else human_size(work.taken_size),
        work.output_level,
    ]
