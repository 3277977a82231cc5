# SPDX-License-Identifier: Apache-2.0
"""`lakeward orphans`: removes files that nothing names, as crashes and lost races leave them."""

import argparse
import logging
from typing import Any

from ingest.cli.argument_values import parse_duration_ms
from ingest.cli.progress_line import open_progress
from ingest.cli.stop_signal import StopSignal
from ingest.cli.table_arguments import add_dry_run, add_json, emit
from ingest.cli.table_selection import add_selection, chosen_tables, selected_catalog
from ingest.daemon.maintenance.compact_runs import selected
from ingest.errors import exit_code_of, kind_of
from ingest.observe.text_table import human_size
from storage.errors import InvalidRequestError, LakewardError
from storage.table.retention.orphans import DEFAULT_AGE_MS, OrphanFiles, remove_orphan_files

__all__ = ["LEAST_AGE_MS", "add_orphan_command"]

_LOG = logging.getLogger(__name__)

LEAST_AGE_MS = 3_600_000
"""Younger files are removed only when somebody insists: a slow commit may be under way [ms]."""

_ABOUT = """\
Removes files of tables that no snapshot, tag, branch or long-lived changelog names: what is left of
writers that were killed, of lost races and of deleted branches. Files younger than --older-than
stay, because commits that are under way have not named theirs yet. So it is safe beside a daemon
whose batches take less time than that. Where metadata is damaged nothing is removed."""

_EXAMPLES = """\
examples:
  lakeward orphans --warehouse /data/warehouse shop.orders --dry-run
  lakeward orphans -c shop.yaml --database shop
  lakeward orphans --warehouse s3://lake/warehouse --including-tables '.*' --older-than 3d --json
"""
_LISTED = 20
"""Files printed of a dry run for people; --json has all."""


def add_orphan_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `orphans`; it sets `run`."""
    parser = parent.add_parser(
        "orphans",
        help="remove files that nothing names",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_selection(parser)
    parser.add_argument(
        "--older-than",
        type=parse_duration_ms,
        default=DEFAULT_AGE_MS,
        metavar="TIME",
        help="only files not written for so long (default: 1d; at least 1h)",
    )
    parser.add_argument(
        "--force", action="store_true", help="also younger than 1h: no commit is under way"
    )
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(run=_orphans)


def _orphans(arguments: argparse.Namespace) -> int:
    chosen = chosen_tables(arguments)
    age_ms = arguments.older_than
    if age_ms < LEAST_AGE_MS and not (arguments.force or arguments.dry_run):
        raise InvalidRequestError(
            "files that young may belong to a commit that is under way",
            hint="give --older-than 1h or more, or --force when nobody writes",
            older_than_s=age_ms // 1000,
        )
    catalog = selected_catalog(arguments)
    line = open_progress()
    found: list[tuple[str, OrphanFiles]] = []
    errors: list[BaseException] = []
    with StopSignal("the table in work is") as stop:
        for name in selected(catalog, chosen):
            if stop.event.is_set():
                break

            def show(phase: str, files: int, name: str = name) -> None:
                facts = {"table": name, "phase": phase, "files": files}
                line.show(f"{name}  {files:,} files {phase}", "orphans", facts)

            try:
                table = catalog.table(name)
                gone = remove_orphan_files(
                    table,
                    older_than_ms=table.clock.now_ms() - age_ms,
                    dry_run=arguments.dry_run,
                    on_progress=show,
                )
                found.append((name, gone))
            except (LakewardError, OSError) as error:
                errors.append(error)
                _LOG.log(
                    kind_of(error).level,
                    "a table could not be cleaned",
                    extra={"event": "orphans_failed", "table": name},
                    exc_info=error,
                )
    line.clear()
    _told(arguments, found)
    return exit_code_of(errors[0]) if errors else 0


def _told(arguments: argparse.Namespace, found: list[tuple[str, OrphanFiles]]) -> None:
    raw = arguments.json
    head = ["table", "files", "size"] + (["paths"] if raw else [])
    rows: list[list[Any]] = []
    for name, one in found:
        row = [name, len(one.paths), one.size if raw else human_size(one.size)]
        rows.append([*row, list(one.paths)] if raw else row)
    emit(arguments, head, rows, "no tables")
    if not arguments.dry_run or raw:
        return
    paths = [path for _, one in found for path in one.paths]
    for path in paths[:_LISTED]:
        print(path)
    if len(paths) > _LISTED:
        print(f"… and {len(paths) - _LISTED} more: see --json")
    print("(nothing was changed)")
