# SPDX-License-Identifier: Apache-2.0
"""`lakeward compact`: merges the files of tables, beside whatever writes them.

The words, the progress line, the summary and the signals; the work is in `compact_runs`.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from ingest.compact_runs import (
    Selection,
    TableRun,
    compact_tables,
    exit_code,
    plan_tables,
    selected,
)
from ingest.compact_workers import worker_pool
from ingest.errors import ExitCode
from ingest.logs import configure_logging
from ingest.setting_kinds import duration
from ingest.settings import load_settings
from ingest.text_table import aligned, human_size, json_line
from storage.clock import Clock, SystemClock
from storage.table.catalog import FileSystemCatalog
from storage.table.compact_plan import BucketWork, CompactRequest
from storage.table.compact_table import CompactProgress
from storage.table.table import FileStoreTable

__all__ = ["add_compact_command"]

_LOG = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0
"""Time between two log lines of progress [s]."""

_DRAW_EVERY_S = 0.1

_ABOUT = """\
Merges small and overlapping files of tables, so that reads are fast and deleted rows are gone.
Safe beside a running daemon and beside other writers: where both change a bucket the compaction
is made again or dropped, and rows never differ. Killed, it leaves nothing but files that no
snapshot names. Also compacts tables that are `write-only`, and makes the changelog of tables that
have it made by compaction."""

_EXAMPLES = """\
examples:
  lakeward compact --warehouse /data/warehouse shop.orders
  lakeward compact --warehouse /data/warehouse shop.orders --partition dt=2024-01-01 --dry-run
  lakeward compact -c shop.yaml --database shop --excluding-tables 'shop\\.tmp_.*'
  lakeward compact -c shop.yaml --including-tables 'shop\\.(orders|lines)' --minor --json
  lakeward compact --warehouse s3://lake/warehouse --database shop --watch 1m
  lakeward compact -c shop.yaml --database shop --partition-idle-time 1d    partitions at rest

kinds:
  --full   everything of a bucket into its last level: one sorted run, no deleted rows
           (default without --watch)
  --minor  only what the table's options say is due, as its writers would do
           (default with --watch)

exit codes:
    0  everything asked for is done, or a signal asked to stop
   65  a file is damaged; the other buckets and tables are done
   69  the store does not answer
   75  some buckets lost their race each time; run it again
   78  no such table, or a table that was named cannot be compacted
"""


def add_compact_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `compact`; it sets `run`."""
    parser = parent.add_parser(
        "compact",
        help="merge the files of tables, beside whatever writes them",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--warehouse", metavar="DIR", help="directory of the databases, or s3://bucket/directory"
    )
    where.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="FILE",
        help="configuration of a pipeline: its warehouse and store are used; may be repeated",
    )
    parser.add_argument(
        "--store-option",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of an object store, such as s3.endpoint=http://host:port; keep secrets in AWS_…",
    )
    which = parser.add_argument_group("which tables")
    which.add_argument("tables", nargs="*", metavar="TABLE", help="database.table")
    which.add_argument("--database", metavar="NAME", help="all tables of a database")
    which.add_argument(
        "--including-tables", metavar="REGEX", help="whole names database.table that match"
    )
    which.add_argument("--excluding-tables", metavar="REGEX", help="leave these out")
    which.add_argument(
        "--partition",
        type=_partition,
        action="append",
        default=[],
        metavar="COLUMN=VALUE[,…]",
        help="only partitions with these values; may be repeated",
    )
    which.add_argument(
        "--partition-idle-time",
        type=_duration,
        metavar="TIME",
        help="only partitions that got no file for so long, such as 1h",
    )
    how = parser.add_argument_group("how")
    kind = how.add_mutually_exclusive_group()
    kind.add_argument("--full", action="store_true", help="everything into the last level")
    kind.add_argument("--minor", action="store_true", help="only what is due")
    how.add_argument(
        "--parallelism",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="buckets at a time, each in a process of its own (default: the cores)",
    )
    how.add_argument(
        "--watch",
        type=_duration,
        metavar="INTERVAL",
        help="go on until SIGTERM: look for work again after this time, such as 30s",
    )
    how.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    how.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.set_defaults(run=_compact, parser=parser)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError("write KEY=VALUE")
    return key.strip(), value


def _partition(text: str) -> dict[str, str]:
    return dict(_pair(part) for part in text.split(","))


def _duration(text: str) -> float:
    try:
        return float(duration.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not {error}") from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("not a number greater than 0")
    return int(text)


def _compact(arguments: argparse.Namespace) -> int:
    chosen = Selection(
        tables=tuple(arguments.tables),
        database=arguments.database,
        including=arguments.including_tables,
        excluding=arguments.excluding_tables,
    )
    if not (chosen.tables or chosen.database or chosen.including):
        arguments.parser.error("name tables, or give --database or --including-tables")
    idle_s = arguments.partition_idle_time
    request = CompactRequest(
        full=arguments.full or (arguments.watch is None and not arguments.minor),
        partitions=tuple(arguments.partition),
        idle_ms=None if idle_s is None else int(idle_s * 1000),
    )
    catalog = _catalog(arguments)
    if arguments.dry_run:
        return _dry_run(catalog, chosen, request, as_json=arguments.json)
    terminal = sys.stderr.isatty()
    configure_logging(level="warning" if terminal else "info")
    clock = SystemClock()
    progress: ProgressLine = TerminalLine(sys.stderr, clock) if terminal else ProgressLog(clock)
    with _Stop() as stop, worker_pool(arguments.parallelism) as executor:
        totals: dict[str, TableRun] = {}
        while True:
            runs = compact_tables(
                catalog,
                selected(catalog, chosen),
                request,
                executor,
                parallelism=arguments.parallelism,
                on_progress=progress.show,
                stopping=stop.event.is_set,
            )
            progress.clear()
            for run in runs:
                if run.table in totals:
                    totals[run.table].add(run)
                else:
                    totals[run.table] = run
            if arguments.watch is None or stop.event.wait(arguments.watch):
                break
    _summary(list(totals.values()), as_json=arguments.json)
    return exit_code(list(totals.values()), chosen.tables)


def _catalog(arguments: argparse.Namespace) -> FileSystemCatalog:
    if arguments.config is None:
        return FileSystemCatalog(arguments.warehouse, options=dict(arguments.store_option))
    sink = load_settings([text if text == "-" else Path(text) for text in arguments.config]).sink
    return FileSystemCatalog(
        sink.warehouse, options={**sink.options, **dict(arguments.store_option)}
    )


class _Stop:
    """The first signal lets the buckets in work end, the second ends the process."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Stop":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.event.is_set():
            os._exit(int(ExitCode.RETRY))
        self.event.set()
        print("stopping when the buckets in work are done; again: at once", file=sys.stderr)


class ProgressLine:
    """Where progress is told."""

    def show(self, name: str, progress: CompactProgress) -> None:
        """Tell how far a table is."""

    def clear(self) -> None:
        """The tables are done."""


class TerminalLine(ProgressLine):
    """One line that is written over and over."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._drawn_s: float | None = None

    def show(self, name: str, progress: CompactProgress) -> None:
        """See `ProgressLine`."""
        now = self._clock.monotonic_s()
        last = progress.done == progress.buckets
        if self._drawn_s is not None and now - self._drawn_s < _DRAW_EVERY_S and not last:
            return
        self._drawn_s = now
        text = progress_text(name, progress)
        width = _width(self._stream)
        self._stream.write(
            "\r" + (text if len(text) < width else text[: width - 2] + "…") + "\x1b[K"
        )
        self._stream.flush()

    def clear(self) -> None:
        """See `ProgressLine`."""
        if self._drawn_s is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._drawn_s = None


class ProgressLog(ProgressLine):
    """A log line now and then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_s = clock.monotonic_s()

    def show(self, name: str, progress: CompactProgress) -> None:
        """See `ProgressLine`."""
        now = self._clock.monotonic_s()
        if now - self._told_s < _LOG_EVERY_S:
            return
        self._told_s = now
        eta = None if progress.eta_s is None else round(progress.eta_s)
        _LOG.info(
            "compacting",
            extra={
                "event": "compacting",
                "table": name,
                "buckets": f"{progress.done}/{progress.buckets}",
                "bytes": progress.done_size,
                "of_bytes": progress.size,
                "files_before": progress.files_before,
                "files_after": progress.files_after,
                "dropped": progress.dropped,
                "left_s": eta,
            },
        )


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 80


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
        kind = "full" if run.full else "minor"
        counts = [one.buckets, one.compacted, one.dropped, one.lost]
        counts += [one.files_before, one.files_after]
        sizes = [human_size(one.read_bytes), human_size(one.written_bytes)]
        rows.append(
            [
                run.table,
                kind,
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
    catalog: FileSystemCatalog, chosen: Selection, request: CompactRequest, *, as_json: bool
) -> int:
    found = plan_tables(catalog, selected(catalog, chosen), request)
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
