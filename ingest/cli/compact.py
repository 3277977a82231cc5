# SPDX-License-Identifier: Apache-2.0
"""`lakeward compact`: merges the files of tables, beside whatever writes them.

The words, the progress line, the summary and the signals; the work is in `compact_runs`.
"""

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
from ingest.cli.progress import ProgressLine, StopSignal, open_progress
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
from storage.errors import NotFoundError
from storage.table.catalog import FileSystemCatalog
from storage.table.compaction.compact_plan import BucketWork, CompactRequest
from storage.table.compaction.compact_table import CompactProgress
from storage.table.compaction.sort_codes import SortOrder
from storage.table.table import FileStoreTable

__all__ = ["compact", "progress_text", "show_progress"]

_ABOUT = """\
Merge the files of tables, beside whatever writes them.

Merges small and overlapping files of tables, so that reads are fast and deleted rows are gone.
Safe beside a running daemon and beside other writers: where both change a bucket the compaction
is made again or dropped, and rows never differ. Killed, it leaves nothing but files that no
snapshot names. Also compacts tables that are `write-only`, and makes the changelog of tables that
have it made by compaction."""

_EXAMPLES = """\
Examples:
  lakeward compact --warehouse /data/warehouse shop.orders
  lakeward compact --warehouse /data/warehouse shop.orders --partition dt=2024-01-01 --dry-run
  lakeward compact -c shop.yaml --database shop --excluding-tables 'shop\\.tmp_.*'
  lakeward compact -c shop.yaml --including-tables 'shop\\.(orders|lines)' --minor --json
  lakeward compact --warehouse s3://lake/warehouse --database shop --watch 1m
  lakeward compact -c shop.yaml --database shop --partition-idle-time 1d    partitions at rest
  lakeward compact --warehouse /data/warehouse shop.clicks --order-by day,user --order-type zorder

Kinds:
  --full   everything of a bucket into its last level: one sorted run, no deleted rows
           (default without --watch)
  --minor  only what the table's options say is due, as its writers would do
           (default with --watch)
  --order-by A,B  of append tables without buckets: partitions rewritten whole, rows near each
           other that filters ask for together; --order-type zorder or hilbert for filters on
           any of the columns

Exit codes:
    0  everything asked for is done, or a signal asked to stop
   65  a file is damaged; the other buckets and tables are done
   69  the store does not answer
   75  some buckets lost their race each time; run it again
   78  no such table, or a table that was named cannot be compacted
"""


_how = functools.partial(option, section="How")


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("name columns")
    return names


def _sort_of(arguments: Arguments) -> SortBy | None:
    if arguments.order_by is None:
        return None
    if arguments.watch is not None or arguments.partition_idle_time is not None:
        refuse("--order-by goes with neither --watch nor --partition-idle-time")
    return SortBy(arguments.order_by, SortOrder(arguments.order_type))


@command(
    "compact",
    _ABOUT,
    TABLES,
    partitions("only partitions with these values; may be repeated", section="Which tables"),
    option(
        "--partition-idle-time",
        DURATION_MS,
        "only partitions that got no file for so long, such as 1h",
        section="Which tables",
    ),
    flag("--full", "everything into the last level", section="How"),
    flag("--minor", "only what is due", section="How"),
    _how(
        "--order-by",
        Value(_columns, "A,B"),
        "append tables without buckets: rewrite partitions with their rows in this order",
    ),
    _how(
        "--order-type",
        click.Choice([one.value for one in SortOrder]),
        "by the first column, then the next; or by all alike (default: order)",
        default=SortOrder.ORDER.value,
    ),
    _how(
        "--parallelism",
        POSITIVE,
        "buckets at a time, each in a process of its own (default: the cores)",
        default=os.cpu_count() or 1,
    ),
    _how(
        "--watch",
        DURATION_MS,
        "run until SIGTERM: look for work again after this time, such as 30s",
    ),
    DRY_RUN,
    JSON,
    examples=_EXAMPLES,
)
def compact(arguments: Arguments) -> int:
    """Compact the chosen tables, once or until a signal."""
    choose_one(arguments, "full", "minor", "order_by")
    chosen = chosen_tables(arguments)
    sort = _sort_of(arguments)
    request = CompactRequest(
        full=arguments.full or (arguments.watch is None and not arguments.minor),
        partitions=tuple(arguments.partition),
        idle_ms=arguments.partition_idle_time,
    )
    catalog = selected_catalog(arguments)
    if arguments.dry_run:
        return _dry_run(catalog, chosen, request, sort, as_json=arguments.json)
    progress = open_progress()
    with (
        StopSignal("the buckets in work are") as stop,
        worker_pool(arguments.parallelism) as executor,
    ):
        totals: dict[str, TableRun] = {}
        while True:
            runs = compact_tables(
                catalog,
                _there(catalog, chosen, waiting=arguments.watch is not None),
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
    return exit_code(list(totals.values()), chosen.tables)


def _there(catalog: FileSystemCatalog, chosen: Selection, *, waiting: bool) -> list[str]:
    """The chosen tables; who waits for work also waits for the database."""
    try:
        return selected(catalog, chosen)
    except NotFoundError:
        if not waiting:
            raise
        return []


def show_progress(line: ProgressLine, name: str, progress: CompactProgress) -> None:
    """Tell how far a table is."""
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
    """One line on how far a table is."""
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
        parts.append(f"{progress.dropped} dropped")
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
        one = run.report
        counts = [one.buckets, one.compacted, one.dropped, one.lost]
        counts += [one.files_before, one.files_after]
        sizes = [human_size(one.read_bytes), human_size(one.written_bytes)]
        rows.append(
            [
                run.table,
                run.kind,
                run.outcome,
                *counts,
                *sizes,
                one.changelog_rows,
                round(one.seconds, 1),
            ]
        )
    print(aligned(_SUMMARY, rows))
    for run in runs:
        _explain(run)


def _explain(run: TableRun) -> None:
    if run.error is not None:
        print(f"{run.table}: {run.error}", file=sys.stderr)
    for failure in run.report.failures:
        where = f"{failure.partition}/" if failure.partition else ""
        print(f"{run.table} {where}bucket-{failure.bucket}: {failure.error}", file=sys.stderr)
    if run.report.lost:
        print(
            f"{run.table}: {run.report.lost} buckets lost every race against another writer; "
            "their rows are as they were, run it again",
            file=sys.stderr,
        )


_PLAN = ["table", "partition", "bucket", "runs", "files", "rows", "size"]
_PLAN += ["takes files", "takes", "to level"]


def _dry_run(
    catalog: FileSystemCatalog,
    chosen: Selection,
    request: CompactRequest,
    sort: SortBy | None,
    *,
    as_json: bool,
) -> int:
    found = plan_tables(catalog, selected(catalog, chosen), request, sort)
    rows: list[list[Any]] = []
    for run, plan in found:
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
    plans = [plan for _, plan in found if plan is not None]
    if not as_json:
        size = sum(work.taken_size for plan in plans for work in plan.work)
        files = sum(work.taken_files for plan in plans for work in plan.work)
        buckets = sum(plan.buckets for plan in plans)
        print(
            f"would compact {len(rows)} of {buckets} buckets in {len(plans)} tables: "
            f"{files} files, {human_size(size)} (nothing was changed)"
        )
    for run, _ in found:
        _explain(run)
    return exit_code([run for run, _ in found], chosen.tables)


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
