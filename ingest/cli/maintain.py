# SPDX-License-Identifier: Apache-2.0
"""`lakeward compact|expire|orphans|simulate-compaction`."""

import dataclasses
import functools
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from ingest.cli.commands import Arguments, Value, choose_one, combine, command, flag, option, refuse
from ingest.cli.parameters import (
    COUNT,
    DRY_RUN,
    DURATION_MS,
    DURATION_S,
    JSON,
    PAIR,
    POSITIVE,
    TABLES,
    ProgressLine,
    StopSignal,
    chosen_tables,
    emit,
    open_progress,
    partitions,
    selected_catalog,
)
from ingest.config.setting import size
from ingest.daemon.compact_runs import (
    Selection,
    SortBy,
    TableRun,
    compact_tables,
    exit_code,
    plan_tables,
    selected,
    worker_pool,
)
from ingest.errors import exit_code_of, kind_of
from ingest.observe.text_table import aligned, human_size, json_line
from ingest.state.stream_state import streams_of
from storage.catalog.catalog import Catalog
from storage.errors import InvalidRequestError, LakewardError, NotFoundError
from storage.lsm.compaction_policy import CompactionPolicy, Outcome, Workload, simulate
from storage.table.compaction.compact_table import BucketWork, CompactProgress, CompactRequest
from storage.table.compaction.sort_table import SortOrder
from storage.table.retention.consumers import expire_consumers, idle_consumers
from storage.table.retention.expire import (
    DEFAULT_AGE_MS,
    OrphanFiles,
    Retention,
    expirable_changelogs,
    expirable_snapshots,
    expire_changelogs,
    expire_snapshots,
    remove_orphan_files,
)
from storage.table.retention.expire_partitions import expirable_partitions, expire_partitions
from storage.table.table import FileStoreTable
from storage.table.tags import expire_tags, outlived_tags

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


# `lakeward expire` and `lakeward orphans`: remove what is expired, and orphan files.
#
# Source: SEMANTICS.md §F.5. A daemon expires after its commits, in the same order. The command is
# for tables without a writer, and for limits other than those of the table options.


_LOG = logging.getLogger(__name__)

KINDS = ("tags", "partitions", "consumers", "snapshots", "changelogs")
"""What can expire, in the order of processing."""

_EXPIRE_EXAMPLES = """\
Examples:
  lakeward expire --warehouse /data/warehouse shop.orders --dry-run
  lakeward expire -c shop.yaml --database shop --only snapshots --older-than 12h --retain-min 5
  lakeward expire --warehouse /data/warehouse shop.orders --only partitions \\
    --option partition.expiration-time=30d
  lakeward expire --warehouse /data/warehouse shop.orders --only changelogs --all-changelogs
"""

_what = functools.partial(option, section="What")


_PASS = 50
"""Snapshots expired between two updates of the progress."""


def _kinds(text: str) -> tuple[str, ...]:
    names = {name.strip() for name in text.split(",")}
    if not names or names - set(KINDS):
        raise ValueError(f"expected some of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pass:
    """One expiry of a table, step by step."""

    retention: Retention
    all_changelogs: bool
    dry_run: bool
    line: ProgressLine
    stopping: Callable[[], bool]

    def tags(self, table: FileStoreTable, now_ms: int) -> list[str]:
        find = outlived_tags if self.dry_run else expire_tags
        return find(table, now_ms=now_ms)

    def partitions(self, table: FileStoreTable, now_ms: int) -> list[str]:
        if self.dry_run:
            return list(expirable_partitions(table, now_ms=now_ms).values())
        return expire_partitions(table, now_ms=now_ms)

    def consumers(self, table: FileStoreTable, now_ms: int) -> list[str]:
        age_ms = table.options.consumer_expiration_time_ms
        if age_ms is None:
            return []
        find = idle_consumers if self.dry_run else expire_consumers
        return find(table, now_ms=now_ms, age_ms=age_ms)

    def snapshots(self, table: FileStoreTable, now_ms: int) -> list[str]:
        limit = self.retention.limit or len(table.snapshots.ids()) or 1
        retention = dataclasses.replace(self.retention, limit=limit)
        keep_from = _needed_by_streams(table)
        ids = expirable_snapshots(table, now_ms=now_ms, keep_from=keep_from, retention=retention)
        if self.dry_run:
            return [str(snapshot_id) for snapshot_id in ids]
        progress = 0
        while progress < len(ids) and not self.stopping():
            expired = expire_snapshots(
                table,
                now_ms=now_ms,
                keep_from=keep_from,
                retain_min=retention.retain_min,
                retain_max=retention.retain_max,
                time_retained_ms=retention.time_retained_ms,
                limit=min(_PASS, len(ids) - progress),
                alone=True,
            )
            if not expired:
                break
            progress += expired
            self._show(table, "snapshots", progress, len(ids))
        return [str(snapshot_id) for snapshot_id in ids[:progress]]

    def changelogs(self, table: FileStoreTable, now_ms: int) -> list[str]:
        everything = self.all_changelogs
        ids = expirable_changelogs(table, now_ms=now_ms, delete_all=everything)
        if ids and not self.dry_run:
            while expire_changelogs(table, now_ms=now_ms, delete_all=everything):
                self._show(table, "changelogs", 0, 0)
                if self.stopping():
                    break
        return [str(changelog_id) for changelog_id in ids]

    def _show(self, table: FileStoreTable, what: str, done: int, of: int) -> None:
        name = table.layout.root.rpartition("/")[2]
        facts: Mapping[str, Any] = {"table": name, "what": what, "done": done, "of": of}
        self.line.show(f"{name}  {done}/{of} {what}", "expiring", facts, last=done == of)


@command(
    "expire",
    TABLES,
    _what("--only", Value(_kinds, "KIND[,…]"), f"only these: {', '.join(KINDS)}", default=KINDS),
    _what(
        "--older-than", DURATION_MS, "snapshots: instead of `snapshot.time-retained`, such as 12h"
    ),
    _what("--retain-min", POSITIVE, "snapshots: minimum number to retain"),
    _what("--retain-max", POSITIVE, "snapshots: maximum number to retain"),
    _what("--limit", POSITIVE, "snapshots: maximum number to expire"),
    flag("--all-changelogs", "expire all long-lived changelogs, even if needed", section="What"),
    _what("--option", PAIR, "a dynamic table option, for this run only", multiple=True),
    DRY_RUN,
    JSON,
    examples=_EXPIRE_EXAMPLES,
)
def expire(arguments: Arguments) -> int:
    """Remove expired snapshots, tags, partitions, consumers and changelogs.

    Files that only they reference are deleted too. The order is: tags (their own retention),
    partitions (`partition.expiration-time`), consumers (`consumer.expiration-time`), snapshots
    (`snapshot.…`) and long-lived changelogs (`changelog.…`). Files that a tag, branch or consumer
    needs are kept. Safe while a daemon or another expiry runs. If it is killed, the next run or
    `lakeward orphans` removes the remaining files.
    """
    rows: list[list[Any]] = []
    line = open_progress()

    def act(name: str, table: FileStoreTable, stopping: Callable[[], bool]) -> None:
        retention = Retention(
            retain_min=arguments.retain_min,
            retain_max=arguments.retain_max,
            time_retained_ms=arguments.older_than,
            limit=arguments.limit,
        )
        steps = _Pass(retention, arguments.all_changelogs, arguments.dry_run, line, stopping)
        if arguments.option:
            table = table.with_options(dict(arguments.option))
        rows.extend(_table(steps, name, table, arguments.only))

    code = _each_table(arguments, "step", "expire_failed", "expiry of a table failed", act)
    line.clear()
    output = rows if arguments.json else [[*row[:3], _shortened(row[3])] for row in rows]
    emit(arguments, ["table", "what", "count", "names"], output, "nothing to expire")
    if rows and arguments.dry_run and not arguments.json:
        print("(nothing was changed)")
    return code


def _each_table(
    arguments: Arguments,
    unit: str,
    event: str,
    message: str,
    act: Callable[[str, FileStoreTable, Callable[[], bool]], None],
) -> int:
    """Process the chosen tables until a signal; continue after errors. Exit code."""
    selection, catalog = chosen_tables(arguments), selected_catalog(arguments)
    errors: list[BaseException] = []
    with StopSignal(f"the {unit} in progress is") as stop:
        for name in selected(catalog, selection):
            if stop.event.is_set():
                break
            try:
                act(name, catalog.table(name), stop.event.is_set)
            except (LakewardError, OSError) as error:
                errors.append(error)
                extra = {"event": event, "table": name}
                _LOG.log(kind_of(error).level, message, extra=extra, exc_info=error)
    return exit_code_of(errors[0]) if errors else 0


def _table(
    one_pass: _Pass, name: str, table: FileStoreTable, kinds: tuple[str, ...]
) -> list[list[Any]]:
    now_ms = table.clock.now_ms()
    steps: Mapping[str, Callable[[FileStoreTable, int], list[str]]] = {
        "tags": one_pass.tags,
        "partitions": one_pass.partitions,
        "consumers": one_pass.consumers,
        "snapshots": one_pass.snapshots,
        "changelogs": one_pass.changelogs,
    }
    results = ((kind, steps[kind](table, now_ms)) for kind in kinds)
    return [[name, kind, len(names), names] for kind, names in results if names]


def _needed_by_streams(table: FileStoreTable) -> int | None:
    """Return the oldest of the newest snapshots of each stream: they hold the offsets."""
    newest = (
        table.new_commit(stream).latest_of_user(stream)
        for stream in streams_of(table.latest_snapshot())
    )
    return min((snapshot.id for snapshot in newest if snapshot is not None), default=None)


def _shortened(names: list[str]) -> str:
    if len(names) > 4:
        return f"{names[0]}, {names[1]} … {names[-1]}"
    return ", ".join(names)


MIN_AGE_MS = 3_600_000
"""More recent files are removed only with --force: they may belong to an in-flight commit [ms]."""

_ORPHANS_EXAMPLES = """\
Examples:
  lakeward orphans --warehouse /data/warehouse shop.orders --dry-run
  lakeward orphans -c shop.yaml --database shop
  lakeward orphans --warehouse s3://lake/warehouse --including-tables '.*' --older-than 3d --json
"""

_LISTED = 20
"""Files printed by a dry run; --json prints all."""


@command(
    "orphans",
    TABLES,
    option(
        "--older-than",
        DURATION_MS,
        "minimum time since the last modification (default: 1d; at least 1h)",
        default=DEFAULT_AGE_MS,
    ),
    flag("--force", "allow less than 1h: confirms that no commit is in flight"),
    DRY_RUN,
    JSON,
    examples=_ORPHANS_EXAMPLES,
)
def orphans(arguments: Arguments) -> int:
    """Remove files that no snapshot, tag, branch or changelog references.

    Orphan files remain after writers were killed, commits lost a race, or branches were deleted.
    Files more recent than --older-than are kept, because they may belong to in-flight commits: it
    is safe while a daemon runs whose batches take less time than that. If metadata of a table is
    corrupt, nothing of it is removed.
    """
    age_ms = arguments.older_than
    if age_ms < MIN_AGE_MS and not (arguments.force or arguments.dry_run):
        raise InvalidRequestError(
            "files this recent may belong to an in-flight commit",
            hint="use --older-than 1h or more, or --force if nothing writes the tables",
            older_than_s=age_ms // 1000,
        )
    line = open_progress()
    results: list[tuple[str, OrphanFiles]] = []

    def act(name: str, table: FileStoreTable, stopping: Callable[[], bool]) -> None:
        del stopping

        def show(phase: str, files: int) -> None:
            facts = {"table": name, "phase": phase, "files": files}
            line.show(f"{name}  {files:,} files {phase}", "orphans", facts)

        orphan_files = remove_orphan_files(
            table,
            older_than_ms=table.clock.now_ms() - age_ms,
            dry_run=arguments.dry_run,
            on_progress=show,
        )
        results.append((name, orphan_files))

    failure = "removing orphan files of a table failed"
    code = _each_table(arguments, "table", "orphans_failed", failure, act)
    line.clear()
    _print_orphans(arguments, results)
    return code


def _print_orphans(arguments: Arguments, orphans: list[tuple[str, OrphanFiles]]) -> None:
    raw = arguments.json
    head = ["table", "files", "size"] + (["paths"] if raw else [])
    rows: list[list[Any]] = []
    for name, files in orphans:
        row = [name, len(files.paths), files.size if raw else human_size(files.size)]
        rows.append([*row, list(files.paths)] if raw else row)
    emit(arguments, head, rows, "no tables")
    if not arguments.dry_run or raw:
        return
    paths = [path for _, files in orphans for path in files.paths]
    for path in paths[:_LISTED]:
        print(path)
    if len(paths) > _LISTED:
        print(f"… and {len(paths) - _LISTED} more: see --json")
    print("(nothing was changed)")


# `lakeward simulate-compaction`: the cost of compaction settings, before a table has them.


_SIMULATE_EXAMPLES = """\
Examples:
  lakeward simulate-compaction
  lakeward simulate-compaction --row-bytes 200 --rows 50k --keys 10m --updates 0.95
  lakeward simulate-compaction --trigger 2,5,10 --producer none,lookup
  lakeward simulate-compaction --producer full-compaction --delta-commits 1,5,20
"""

_CHART_COLUMNS = 60
_BARS = "▁▂▃▄▅▆▇█"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """One line of the comparison."""

    trigger: int
    stop_trigger: int
    max_size_amplification: int
    size_ratio: int
    producer: str
    delta_commits: int | None
    interval_s: float | None

    def run(self, workload: Workload) -> Outcome:
        interval = self.interval_s
        policy = CompactionPolicy(
            trigger=self.trigger,
            stop_trigger=self.stop_trigger,
            max_size_amplification_percent=self.max_size_amplification,
            size_ratio=self.size_ratio,
            optimization_interval_ms=None if interval is None else int(interval * 1000),
        )
        return simulate(
            workload,
            policy,
            num_levels=self.trigger + 1,
            lookup=self.producer == "lookup",
            delta_commits=self.delta_commits,
        )


def _number(text: str) -> int:
    units = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
    digits, unit = (text[:-1], units[text[-1].lower()]) if text[-1:].lower() in units else (text, 1)
    if not digits.isdecimal():
        raise ValueError("not a number such as 2000, 50k or 10m")
    return int(digits) * unit


def _numbers(text: str) -> list[int]:
    return [_number(part.strip()) for part in text.split(",")]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("not a ratio from 0 to 1")
    return share


def _producers(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    for name in names:
        if name not in ("none", "input", "lookup", "full-compaction"):
            raise ValueError(f"unknown changelog producer: {name}")
    return names


def _size(text: str) -> int:
    try:
        return int(size.parse(text))
    except ValueError as error:
        raise ValueError(f"not {error}") from error


_load = functools.partial(option, section="The load of one bucket")
_policy = functools.partial(option, section="The policy, each one value or several: A,B,…")

_NUMBER = Value(_number, "N")
_NUMBERS = Value(_numbers, "N[,…]")

_LOAD = combine(
    _load("--commits", _NUMBER, "commits (default: 300)", default=300),
    _load("--rows", _NUMBER, "rows of a commit (default: 2k)", default=2_000),
    _load("--keys", _NUMBER, "rows that exist at the beginning (default: 100k)", default=100_000),
    _load("--row-bytes", Value(_size, "SIZE"), "of a row in a file (default: 100)", default=100),
    _load(
        "--updates",
        Value(_share, "SHARE"),
        "rows whose key exists already, from 0 to 1 (default: 0.8)",
        default=0.8,
    ),
    _load("--commit-interval", DURATION_S, "between commits (default: 30s)", default=30.0),
    _load("--seed", COUNT, "of the keys (default: 1)", default=1),
)

_POLICY = combine(
    _policy(
        "--trigger",
        _NUMBERS,
        "num-sorted-run.compaction-trigger (default: 2,5,10)",
        default=(2, 5, 10),
    ),
    _policy(
        "--max-size-amplification",
        _NUMBERS,
        "compaction.max-size-amplification-percent (default: 200)",
        default=(200,),
    ),
    _policy("--size-ratio", _NUMBERS, "compaction.size-ratio (default: 1)", default=(1,)),
    _policy(
        "--producer",
        Value(_producers, "NAME[,…]"),
        "changelog-producer: none, input, lookup or full-compaction (default: none,lookup)",
        default=("none", "lookup"),
    ),
    _policy(
        "--delta-commits",
        _NUMBERS,
        "full-compaction.delta-commits, of the full-compaction producer (default: 1)",
        default=(1,),
    ),
    _policy(
        "--optimization-interval", DURATION_S, "compaction.optimization-interval (default: off)"
    ),
)


def _combinations(arguments: Arguments) -> Iterator[_Settings]:
    policies = itertools.product(
        arguments.producer,
        arguments.trigger,
        arguments.max_size_amplification,
        arguments.size_ratio,
    )
    for producer, trigger, amplification, ratio in policies:
        full = producer == "full-compaction"
        for delta_commits in arguments.delta_commits if full else [None]:
            yield _Settings(
                trigger=max(1, trigger),
                stop_trigger=max(1, trigger) + 3,
                max_size_amplification=amplification,
                size_ratio=ratio,
                producer=producer,
                delta_commits=delta_commits,
                interval_s=arguments.optimization_interval,
            )


@command("simulate-compaction", _LOAD, _POLICY, JSON, examples=_SIMULATE_EXAMPLES)
def simulate_compaction(arguments: Arguments) -> int:
    """Simulate write and space amplification of compaction settings.

    Applies the real compaction policy to a generated history of commits to one bucket, without
    writing files, and prints:

      write amp   bytes written, flushes included, per byte that was flushed
      space amp   bytes stored per byte of the newest rows (average, and the worst)
      runs        sorted runs after a commit, which a merging read has to merge
      largest     output of the largest compaction

    Options of the policy take several values, comma-separated; every combination is one line.
    """
    workload = Workload(
        commits=arguments.commits,
        commit_rows=arguments.rows,
        row_bytes=arguments.row_bytes,
        update_share=arguments.updates,
        keys=arguments.keys,
        interval_s=arguments.commit_interval,
        seed=arguments.seed,
    )
    results = [(settings, settings.run(workload)) for settings in _combinations(arguments)]
    if arguments.json:
        for settings, outcome in results:
            facts = {**dataclasses.asdict(settings), **dataclasses.asdict(outcome)}
            print(json.dumps({**facts, "mean_runs": outcome.mean_runs}))
        return 0
    print(
        f"{workload.commits} commits of {workload.commit_rows:,} rows of {workload.row_bytes} bytes"
        f" ({workload.update_share:.0%} updates) onto {workload.keys:,} rows, one bucket"
        + (f", simulated at 1:{workload.scale}" if workload.scale > 1 else "")
    )
    print("\nsorted runs over time")
    names = [_name(settings) for settings, _ in results]
    width = max(map(len, names))
    highest = max(max(outcome.runs, default=0) for _, outcome in results)
    for name, (_, outcome) in zip(names, results, strict=True):
        runs = outcome.runs
        print(f"  {name:<{width}}  {chart(runs, highest)}  max {max(runs, default=0)}")
    print("\n" + _simulate_table(results))
    return 0


def _name(settings: _Settings) -> str:
    every = "" if settings.delta_commits is None else f" every {settings.delta_commits}"
    return (
        f"{settings.producer}{every}, trigger {settings.trigger}, "
        f"amp {settings.max_size_amplification}%, ratio {settings.size_ratio}%"
    )


def chart(runs: Sequence[int], highest: int) -> str:
    """Runs over time as bars, from left to right; the highest bar is `highest`."""
    columns = min(_CHART_COLUMNS, len(runs))
    bars = []
    for column in range(columns):
        part = runs[column * len(runs) // columns : (column + 1) * len(runs) // columns]
        share = sum(part) / len(part) / max(1, highest)
        bars.append(_BARS[min(len(_BARS) - 1, int(share * len(_BARS)))])
    return "".join(bars)


_HEAD = ["producer", "every", "trigger", "amp %", "ratio %", "write amp", "space amp", "worst"]
_HEAD += ["runs avg", "max", "compactions", "written", "largest", "stored"]


def _simulate_table(outcomes: Sequence[tuple[_Settings, Outcome]]) -> str:
    rows: list[list[Any]] = []
    for settings, outcome in outcomes:
        every = "" if settings.delta_commits is None else str(settings.delta_commits)
        rows.append(
            [
                settings.producer,
                every,
                settings.trigger,
                settings.max_size_amplification,
                settings.size_ratio,
                round(outcome.write_amplification, 2),
                round(outcome.space_amplification, 2),
                round(outcome.most_space, 2),
                round(outcome.mean_runs, 2),
                max(outcome.runs, default=0),
                outcome.compactions,
                human_size(outcome.written_bytes),
                human_size(outcome.largest_compaction),
                human_size(outcome.stored_bytes),
            ]
        )
    return aligned(_HEAD, rows)
