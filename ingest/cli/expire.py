# SPDX-License-Identifier: Apache-2.0
"""`lakeward expire` and `lakeward orphans`: remove what is expired, and orphan files.

Source: SEMANTICS.md §F.5. A daemon expires after its commits, in the same order. The command is for
tables without a writer, and for limits other than those of the table options.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ingest.cli.commands import Arguments, Value, command, flag, option
from ingest.cli.parameters import (
    DRY_RUN,
    DURATION_MS,
    JSON,
    PAIR,
    POSITIVE,
    TABLES,
    chosen_tables,
    emit,
    selected_catalog,
)
from ingest.daemon.maintenance.compact_runs import selected
from ingest.errors import exit_code_of, kind_of
from ingest.observe.text_table import human_size
from ingest.state.rolled_back import streams_of
from ingest.tools.progress import ProgressLine, StopSignal, open_progress
from storage.errors import InvalidRequestError, LakewardError
from storage.table.retention.auto_tags import expire_tags, outlived_tags
from storage.table.retention.consumers import expire_consumers, idle_consumers
from storage.table.retention.expire import (
    Retention,
    expirable_changelogs,
    expirable_snapshots,
    expire_changelogs,
    expire_snapshots,
)
from storage.table.retention.expire_partitions import expirable_partitions, expire_partitions
from storage.table.retention.orphans import DEFAULT_AGE_MS, OrphanFiles, remove_orphan_files
from storage.table.table import FileStoreTable

_LOG = logging.getLogger(__name__)

KINDS = ("tags", "partitions", "consumers", "snapshots", "changelogs")
"""What can expire, in the order of processing."""

_EXAMPLES = """\
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
    examples=_EXAMPLES,
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
