# SPDX-License-Identifier: Apache-2.0
"""`lakeward expire`: removes what has had its time, in the order in which commits do it.

Source: SEMANTICS.md §F.5. A daemon does the same after its commits; the command is for tables that
nobody writes, and for other limits than the table's options say.
"""

import argparse
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ingest.cli.argument_values import parse_duration_ms, parse_pair, parse_positive
from ingest.cli.progress_line import ProgressLine, open_progress
from ingest.cli.stop_signal import StopSignal
from ingest.cli.table_arguments import add_dry_run, add_json, emit
from ingest.cli.table_selection import add_selection, chosen_tables, selected_catalog
from ingest.daemon.maintenance.compact_runs import selected
from ingest.errors import exit_code_of, kind_of
from ingest.state.rolled_back import streams_of
from storage.errors import LakewardError
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
from storage.table.table import FileStoreTable

__all__ = ["KINDS", "add_expire_command"]

_LOG = logging.getLogger(__name__)

KINDS = ("tags", "partitions", "consumers", "snapshots", "changelogs")
"""What can expire, in the order in which it does."""

_ABOUT = """\
Removes what has had its time, and the files that only it names: tags (their own time), partitions
(`partition.expiration-time`), consumers (`consumer.expiration-time`), snapshots (`snapshot.…`) and
long-lived changelogs (`changelog.…`), in this order. What a tag, branch or consumer needs stays.
Safe beside a daemon and beside other passes. Killed, it leaves files that the next pass or
`lakeward orphans` removes."""

_EXAMPLES = """\
examples:
  lakeward expire --warehouse /data/warehouse shop.orders --dry-run
  lakeward expire -c shop.yaml --database shop --only snapshots --older-than 12h --retain-min 5
  lakeward expire --warehouse /data/warehouse shop.orders --only partitions \\
    --option partition.expiration-time=30d
  lakeward expire --warehouse /data/warehouse shop.orders --only changelogs --all-changelogs
"""

_PASS = 50
"""Snapshots removed between two words of progress."""


def add_expire_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `expire`; it sets `run`."""
    parser = parent.add_parser(
        "expire",
        help="remove snapshots, tags, partitions and more that have had their time",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_selection(parser)
    what = parser.add_argument_group("what")
    what.add_argument(
        "--only", metavar="KIND[,…]", type=_kinds, default=KINDS, help=f"of {', '.join(KINDS)}"
    )
    what.add_argument(
        "--older-than",
        type=parse_duration_ms,
        metavar="TIME",
        help="snapshots: instead of `snapshot.time-retained`, such as 12h",
    )
    what.add_argument(
        "--retain-min", type=parse_positive, metavar="N", help="snapshots: newest that stay"
    )
    what.add_argument(
        "--retain-max", type=parse_positive, metavar="N", help="snapshots: most that stay"
    )
    what.add_argument("--limit", type=parse_positive, metavar="N", help="snapshots: most that go")
    what.add_argument(
        "--all-changelogs",
        action="store_true",
        help="every long-lived changelog, whoever still needs it",
    )
    what.add_argument(
        "--option",
        type=parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a table option, for this call only",
    )
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(run=_expire)


def _kinds(text: str) -> tuple[str, ...]:
    names = {name.strip() for name in text.split(",")}
    if not names or names - set(KINDS):
        raise argparse.ArgumentTypeError(f"write some of {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pass:
    """What is done to every table."""

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
        most = self.retention.limit or len(table.snapshots.ids()) or 1
        retention = dataclasses.replace(self.retention, limit=most)
        keep_from = _needed_by_streams(table)
        wanted = expirable_snapshots(table, now_ms=now_ms, keep_from=keep_from, retention=retention)
        if self.dry_run:
            return [str(one) for one in wanted]
        done = 0
        while done < len(wanted) and not self.stopping():
            gone = expire_snapshots(
                table,
                now_ms=now_ms,
                keep_from=keep_from,
                retain_min=retention.retain_min,
                retain_max=retention.retain_max,
                time_retained_ms=retention.time_retained_ms,
                limit=min(_PASS, len(wanted) - done),
                alone=True,
            )
            if not gone:
                break
            done += gone
            self._tell(table, "snapshots", done, len(wanted))
        return [str(one) for one in wanted[:done]]

    def changelogs(self, table: FileStoreTable, now_ms: int) -> list[str]:
        everything = self.all_changelogs
        wanted = expirable_changelogs(table, now_ms=now_ms, delete_all=everything)
        if wanted and not self.dry_run:
            while expire_changelogs(table, now_ms=now_ms, delete_all=everything):
                self._tell(table, "changelogs", 0, 0)
                if self.stopping():
                    break
        return [str(one) for one in wanted]

    def _tell(self, table: FileStoreTable, what: str, done: int, of: int) -> None:
        name = table.layout.root.rpartition("/")[2]
        facts: Mapping[str, Any] = {"table": name, "what": what, "done": done, "of": of}
        self.line.show(f"{name}  {done}/{of} {what}", "expiring", facts, last=done == of)


def _expire(arguments: argparse.Namespace) -> int:
    chosen = chosen_tables(arguments)
    catalog = selected_catalog(arguments)
    line = open_progress()
    rows: list[list[Any]] = []
    errors: list[BaseException] = []
    with StopSignal("the pass in work is") as stop:
        one_pass = _Pass(
            Retention(
                retain_min=arguments.retain_min,
                retain_max=arguments.retain_max,
                time_retained_ms=arguments.older_than,
                limit=arguments.limit,
            ),
            arguments.all_changelogs,
            arguments.dry_run,
            line,
            stop.event.is_set,
        )
        for name in selected(catalog, chosen):
            if stop.event.is_set():
                break
            try:
                table = catalog.table(name)
                if arguments.option:
                    table = table.with_options(dict(arguments.option))
                rows += _table(one_pass, name, table, arguments.only)
            except (LakewardError, OSError) as error:
                errors.append(error)
                _LOG.log(
                    kind_of(error).level,
                    "a table could not be looked after",
                    extra={"event": "expire_failed", "table": name},
                    exc_info=error,
                )
    line.clear()
    shown = rows if arguments.json else [[*row[:3], _shortened(row[3])] for row in rows]
    emit(arguments, ["table", "what", "count", "names"], shown, "nothing has had its time")
    if rows and arguments.dry_run and not arguments.json:
        print("(nothing was changed)")
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
    found = ((kind, steps[kind](table, now_ms)) for kind in kinds)
    return [[name, kind, len(gone), gone] for kind, gone in found if gone]


def _needed_by_streams(table: FileStoreTable) -> int | None:
    """The oldest of the newest snapshots of the streams that write the table: it tells offsets."""
    newest = (
        table.new_commit(one).latest_of_user(one) for one in streams_of(table.latest_snapshot())
    )
    return min((one.id for one in newest if one is not None), default=None)


def _shortened(names: list[str]) -> str:
    if len(names) > 4:
        return f"{names[0]}, {names[1]} … {names[-1]}"
    return ", ".join(names)
