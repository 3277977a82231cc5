# SPDX-License-Identifier: Apache-2.0
"""`lakeward stream points|rollback`: a whole stream at one of its batches.

The stream's daemon must be stopped: `rollback` is refused while one owns the stream.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.cli.argument_values import parse_moment_ms
from ingest.cli.config_arguments import add_configuration, resolved
from ingest.cli.recover import offsets_table
from ingest.cli.table_arguments import add_dry_run, add_json, emit
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.observe.text_table import aligned, human_time, json_line
from ingest.source.lag import LagProbe
from ingest.state.owned_stream import owned_stream
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_rollback import Point, TablePlan, carry_out, plan_rollback, points_of
from ingest.state.stream_state import stored_offsets
from ingest.state.table_registry import TableBook
from storage.clock import SystemClock
from storage.errors import DataLossError

__all__ = ["add_stream_commands"]

_ABOUT = "Look at the batches of a stream, and take all its tables back to one of them."

_ROLLBACK = """\
Takes every table of the stream back to the end of one batch, and the stream with them: the next
start reads on from there and writes the rows again. Rows of later batches go; so do tags of later
snapshots. What was brought in from quarantine since then is not brought in again. Needs the
source's records since that batch; refused while a daemon owns the stream. When it is interrupted,
no daemon starts until it is repeated or `lakeward run --recover-offsets` is run."""

_EXAMPLES = """\
examples:
  lakeward stream points -c shop.yaml
  lakeward stream rollback -c shop.yaml --to-batch 1841 --dry-run
  lakeward stream rollback -c shop.yaml --to-time 2024-01-31T12:00:00
"""


def add_stream_commands(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `stream` and its verbs; each sets `run` to a function of the parsed arguments."""
    stream = parent.add_parser(
        "stream",
        help="the batches of a stream, and going back to one with all its tables",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = stream.add_subparsers(dest="verb", metavar="VERB", required=True)
    points = verbs.add_parser(
        "points", help="batches that can be gone back to", description=_ABOUT, epilog=_EXAMPLES
    )
    add_configuration(points)
    points.add_argument(
        "--limit", type=int, default=20, metavar="N", help="newest N; 0 = all (default: 20)"
    )
    add_json(points)
    points.set_defaults(run=_points)
    rollback = verbs.add_parser(
        "rollback",
        help="take all tables of a stream, and its offsets, back to the end of a batch",
        description=_ROLLBACK,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(rollback)
    target = rollback.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to-batch", type=int, metavar="N", help="commit identifier of the last batch that stays"
    )
    target.add_argument(
        "--to-time",
        type=parse_moment_ms,
        metavar="TIME",
        help="the last batch committed at or before it stays; ISO 8601 (UTC unless it says else)",
    )
    add_dry_run(rollback)
    rollback.add_argument("--json", action="store_true", help="as one JSON object")
    rollback.set_defaults(run=_rollback)


def _points(arguments: argparse.Namespace) -> int:
    settings = resolved(arguments).settings
    book = TableBook(settings, SystemClock())
    book.load(create=False)
    found = points_of(book, settings.pipeline.name)
    shown = found[: arguments.limit] if arguments.limit else found
    rows = [
        [
            point.identifier,
            point.time_ms if arguments.json else human_time(point.time_ms),
            point.tables,
        ]
        for point in shown
    ]
    return emit(arguments, ["batch", "committed", "tables"], rows, "no batches")


def _rollback(arguments: argparse.Namespace) -> int:
    settings = resolved(arguments).settings
    stream = settings.pipeline.name
    wanted = {"identifier": arguments.to_batch, "time_ms": arguments.to_time}
    if arguments.dry_run:
        book = TableBook(settings, SystemClock())
        book.load(create=False)
        point, plans = plan_rollback(book, stream, **wanted)
        _tell(arguments, point, plans, "nothing was changed")
        return 0
    with owned_stream(settings) as (book, ownership):
        point, plans = plan_rollback(book, stream, **wanted)
        _require_records(settings, plans)
        state = carry_out(book, StreamPosition(settings, book, ownership), stream, plans)
        tables = sorted(book.progresses())
    _tell(arguments, point, plans, f"the next commit identifier is {state.base}")
    if not arguments.json:
        print(f"\n{offsets_table(state, tables)}")
    return 0


def _tell(
    arguments: argparse.Namespace, point: Point, plans: Sequence[TablePlan], end: str
) -> None:
    rows = [_row(plan) for plan in plans]
    head = ["table", "newest", "target", "committed", "lost_records", "lost_replays"]
    if arguments.json:
        tables = [dict(zip(head, row, strict=True)) for row in rows]
        document: Mapping[str, Any] = {"batch": point.identifier, "tables": tables, "end": end}
        print(json_line(document))
        return
    print(f"batch {point.identifier} of {human_time(point.time_ms)} is the last that stays\n")
    print(f"{aligned(head, rows)}\n\n{end}")


def _row(plan: TablePlan) -> list[Any]:
    lost = [plan.lost_records, plan.lost_replays]
    return [plan.name, plan.newest.id, plan.target.id, human_time(plan.target.time_ms), *lost]


def _require_records(settings: Settings, plans: Sequence[TablePlan]) -> None:
    """Refuse when Kafka has dropped records that the tables would lack.

    Raises:
        DataLossError: it has.
    """
    if not isinstance(settings.source, KafkaSourceSettings):
        return
    with LagProbe(settings.source) as probe:
        marks = probe.poll()
    for plan in plans:
        if plan.stays:
            continue
        offsets = stored_offsets(plan.target, settings.pipeline.name) or {}
        for topic, parts in offsets.items():
            for key, offset in parts.items():
                low, _ = marks.get((topic, int(key)), (offset, offset))
                if low > offset:
                    raise DataLossError(
                        "kafka no longer has the records since that batch",
                        hint="choose a later batch, or take a new snapshot of the tables",
                        table=plan.name,
                        topic=topic,
                        partition=key,
                        wanted=offset,
                        earliest=low,
                    )
