# SPDX-License-Identifier: Apache-2.0
"""Compaction of many tables, one after another, with a report of each; nothing is printed."""

import dataclasses
import functools
import logging
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import forkserver, resource_tracker
from typing import Any

import pyarrow as pa

from ingest.errors import ExitCode, exit_code_of, kind_of
from storage.catalog.catalog import Catalog
from storage.errors import (
    InvalidRequestError,
    LakewardError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.table.compaction.compact_table import (
    CompactionPlan,
    CompactProgress,
    CompactReport,
    CompactRequest,
    compact_table,
    plan_compaction,
)
from storage.table.compaction.sort_table import SortOrder, plan_sort, sort_table

_LOG = logging.getLogger(__name__)

_ORPHANED = 75
"""Exit code of a worker without a parent."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of tables.

    Attributes:
        tables: names, `database.table`.
        database: all tables of this database.
        including: regular expression that a whole name must match; with `database` it narrows.
        excluding: regular expression; tables whose whole name matches are left out.
    """

    tables: tuple[str, ...] = ()
    database: str | None = None
    including: str | None = None
    excluding: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class SortBy:
    """A sort order for rows.

    Attributes:
        columns: sort columns.
        order: kind of order.
    """

    columns: tuple[str, ...]
    order: SortOrder


@dataclasses.dataclass(slots=True, kw_only=True)
class TableRun:
    """Outcome of one table.

    Attributes:
        table: `database.table`.
        kind: of compaction: `full`, `minor`, or how rows are sorted.
        report: result; of several passes the sum.
        error: why compaction was not possible, or incomplete.
        passes: number of passes in the sum.
    """

    table: str
    kind: str
    report: CompactReport = dataclasses.field(default_factory=CompactReport)
    error: BaseException | None = None
    passes: int = 1

    @property
    def is_refused(self) -> bool:
        """Whether tables like this one cannot be compacted."""
        return isinstance(self.error, UnsupportedFeatureError)

    @property
    def outcome(self) -> str:
        """One word: `done`, `nothing`, `stopped`, `lost`, `refused` or `failed`."""
        if self.is_refused:
            return "refused"
        if self.error is not None or self.report.failures:
            return "failed"
        if self.report.lost:
            return "lost"
        if self.report.skipped:
            return "stopped"
        return "done" if self.report.compacted else "nothing"

    def document(self) -> dict[str, Any]:
        """As plain values."""
        values = dataclasses.asdict(dataclasses.replace(self.report, failures=[]))
        values["failures"] = [
            {"partition": failure.partition, "bucket": failure.bucket, "error": str(failure.error)}
            for failure in self.report.failures
        ]
        error = None if self.error is None else str(self.error)
        return {
            "table": self.table,
            "kind": self.kind,
            "outcome": self.outcome,
            **values,
            "error": error,
        }

    def add(self, later: "TableRun") -> None:
        """Add a later pass over the same table."""
        total, report = self.report, later.report
        for name in ("compacted", "unchanged", "dropped", "planned"):
            setattr(total, name, getattr(total, name) + getattr(report, name))
        for name in ("read_bytes", "written_bytes", "changelog_rows", "bucket_seconds", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(report, name))
        total.buckets, total.files_after = report.buckets, report.files_after
        total.lost, total.skipped = report.lost, report.skipped  # a later pass compensates for them
        total.failures = report.failures
        total.snapshots += report.snapshots
        self.error = later.error
        self.passes += later.passes


def selected(catalog: Catalog, selection: Selection) -> list[str]:
    """Names of the chosen tables.

    Raises:
        InvalidRequestError: a pattern is not a valid regular expression.
        NotFoundError: there is no such database.
    """
    including = _pattern("--including-tables", selection.including)
    excluding = _pattern("--excluding-tables", selection.excluding)
    names = list(selection.tables)
    if selection.database is not None or including is not None:
        databases = catalog.list_databases()
        if selection.database is not None:
            if selection.database not in databases:
                raise NotFoundError("there is no such database", database=selection.database)
            databases = [selection.database]
        tables = [f"{db}.{name}" for db in databases for name in catalog.list_tables(db)]
        matching = [name for name in tables if including is None or including.fullmatch(name)]
        names += [name for name in matching if not _is_format_table(catalog, name)]
    remaining = [name for name in names if excluding is None or not excluding.fullmatch(name)]
    return list(dict.fromkeys(remaining))


def _is_format_table(catalog: Catalog, name: str) -> bool:
    """Whether a table is a directory of files without anything to compact or expire."""
    schema = catalog.schemas(name).latest()
    return schema is not None and schema.options.get("type") == "format-table"


def _pattern(option: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise InvalidRequestError(
            "not a regular expression", detail=str(error), option=option, value=text
        ) from error


def compact_tables(
    catalog: Catalog,
    names: Sequence[str],
    request: CompactRequest,
    executor: Executor,
    *,
    parallelism: int,
    on_progress: Callable[[str, CompactProgress], None] = lambda _name, _progress: None,
    stopping: Callable[[], bool] = lambda: False,
    sort: SortBy | None = None,
) -> list[TableRun]:
    """Compact tables one after another; a failure of one does not affect the others."""
    runs = []
    for name in names:
        if stopping():
            break
        run = TableRun(table=name, kind=_kind(request, sort))
        try:
            table, progress = catalog.table(name), functools.partial(on_progress, name)
            if sort is not None:
                run.report = sort_table(
                    table,
                    sort.columns,
                    sort.order,
                    request,
                    on_progress=progress,
                    stopping=stopping,
                )
            else:
                run.report = compact_table(
                    table,
                    request,
                    executor,
                    parallelism=parallelism,
                    on_progress=progress,
                    stopping=stopping,
                )
        except (LakewardError, OSError) as error:
            run.error = error
        _log(run)
        runs.append(run)
    return runs


def _kind(request: CompactRequest, sort: SortBy | None) -> str:
    if sort is not None:
        return sort.order.value
    return "full" if request.full else "minor"


def plan_tables(
    catalog: Catalog,
    names: Sequence[str],
    request: CompactRequest,
    sort: SortBy | None = None,
) -> list[tuple[TableRun, CompactionPlan | None]]:
    """The plans of `compact_tables`."""
    plans: list[tuple[TableRun, CompactionPlan | None]] = []
    for name in names:
        run, plan = TableRun(table=name, kind=_kind(request, sort)), None
        try:
            table = catalog.table(name)
            if sort is None:
                plan = plan_compaction(table, request)
            else:
                plan = plan_sort(table, sort.columns, request)
        except (LakewardError, OSError) as error:
            run.error = error
        plans.append((run, plan))
    return plans


def _log(run: TableRun) -> None:
    report = run.report
    quiet = run.outcome == "nothing"
    facts = {
        "event": "compacted",
        "table": run.table,
        "outcome": run.outcome,
        "buckets": report.compacted,
        "dropped": report.dropped,
        "lost": report.lost,
        "files_before": report.files_before,
        "files_after": report.files_after,
        "written_bytes": report.written_bytes,
        "duration_s": round(report.seconds, 3),
    }
    level = logging.DEBUG if quiet else logging.INFO
    if run.error is not None:
        level = kind_of(run.error).level
    _LOG.log(level, "table compacted", extra=facts, exc_info=run.error)
    for failure in report.failures:
        _LOG.log(
            kind_of(failure.error).level,
            "a bucket could not be compacted",
            extra={
                "event": "bucket_failed",
                "table": run.table,
                "partition": failure.partition,
                "bucket": failure.bucket,
            },
            exc_info=failure.error,
        )


def exit_code(runs: Sequence[TableRun], table_names: Sequence[str] = ()) -> int:
    """The process's exit code.

    Args:
        runs: of all tables.
        table_names: tables selected by name; for these a refusal counts as a failure.
    """
    errors: list[BaseException] = []
    for run in runs:
        if run.error is not None and (run.table in table_names or not run.is_refused):
            errors.append(run.error)
        errors += [failure.error for failure in run.report.failures]
    if errors:
        return exit_code_of(errors[0])
    return int(ExitCode.RETRY if any(run.report.lost for run in runs) else ExitCode.OK)


def worker_pool(parallelism: int) -> Executor:
    """Worker processes for that many buckets at a time; with one, a thread of this process.

    They are not forked from this process, whose Arrow threads would not survive a fork, but from an
    idle server process that has imported the program; they start on demand. A worker exits as soon
    as its parent process has ended for any reason. Signals to the process group, such as those of
    Ctrl-C and `timeout`, reach neither workers nor server: the parent handles them.
    """
    if parallelism <= 1:
        return ThreadPoolExecutor(1, thread_name_prefix="compact")
    resource_tracker.ensure_running()  # starting it unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # inherited until `_begin`
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(parallelism, mp_context=context, initializer=_begin)


def _begin() -> None:
    os.setpgid(0, 0)
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)  # discards one that is pending
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the pool ends workers with it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
    pa.set_cpu_count(1)  # the buckets are the parallelism
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_leave_with, args=(parent,), name="parent", daemon=True).start()


def _leave_with(parent: "multiprocessing.process.BaseProcess") -> None:
    parent.join()
    os._exit(_ORPHANED)
