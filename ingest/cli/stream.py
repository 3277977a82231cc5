# SPDX-License-Identifier: Apache-2.0
"""`lakeward stream points|rollback`: roll a whole stream back to one of its batches.

The daemon of the stream must be stopped: `rollback` is refused while one owns the stream.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ingest.cli.commands import Arguments, choose_one, command, flag, group, option
from ingest.cli.parameters import CONFIGURATION, COUNT, DRY_RUN, JSON, MOMENT_MS, emit, resolved
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.observe.text_table import aligned, human_time, json_line
from ingest.source.open import LagProbe
from ingest.source.ranges import ANY_TABLE, floor_of, resume_token
from ingest.state.lease import owned_stream
from ingest.state.rolled_back import forget_rollback, rolled_back_topics
from ingest.state.stream_position import StreamPosition
from ingest.state.stream_rollback import Point, TablePlan, carry_out, plan_rollback, points_of
from ingest.state.stream_state import CheckpointState, stored_offsets
from ingest.state.table_registry import TableRegistry
from storage.clock import SystemClock
from storage.errors import DataLossError


def recover_offsets(settings: Settings, *, dry_run: bool, take_over: bool = False) -> None:
    """Print the recovered offsets and, unless it is a dry run, write them to a new checkpoint.

    Raises:
        StreamHeldError: a daemon owns the stream.
        RetryableError: the source did not answer.
    """
    if dry_run:
        book = TableRegistry(settings, SystemClock())
        book.load(create=False)
        state = StreamPosition(settings, book).recovered()
        print(offsets_table(state, sorted({*book.progresses(), *book.parking.parked()})))
        print("\nnothing was changed")
        return
    with owned_stream(settings, take_over=take_over) as (book, ownership):
        position = StreamPosition(settings, book, ownership)
        state = position.recovered()
        print(offsets_table(state, sorted({*book.progresses(), *book.parking.parked()})))
        position.start_from(state)
        for name in rolled_back_topics(book.options(), settings.pipeline.name):
            forget_rollback(book.table(name), settings.pipeline.name)
    print(f"\nthe new checkpoint starts at these offsets; next commit identifier {state.base}")


def offsets_table(state: CheckpointState, tables: list[str]) -> str:
    """Format the start offset of every partition, and up to which offsets tables are complete."""
    start = resume_token(state.initial)
    partitions = {(topic, key) for topic, parts in start.items() for key in parts}
    for name in (*tables, ANY_TABLE):
        floor = floor_of(state.floors, name)
        partitions |= {(topic, key) for topic, parts in floor.items() for key in parts}
    if not partitions:
        return "no table has data of this stream: it starts as its settings say"
    rows: list[list[Any]] = []
    for topic, key in sorted(partitions, key=lambda partition: (partition[0], int(partition[1]))):
        begin = start.get(topic, {}).get(key)
        rows.append([topic, key, "beginning" if begin is None else begin, "", ""])
        rows += [
            ["", "", "", name, complete]
            for name in tables
            if (complete := floor_of(state.floors, name).get(topic, {}).get(key)) is not None
        ]
    return aligned(["topic", "partition", "start", "table", "complete up to"], rows)


_ABOUT = "List the batches of a stream, and roll all its tables back to one of them."

_EXAMPLES = """\
Examples:
  lakeward stream points -c shop.yaml
  lakeward stream rollback -c shop.yaml --to-batch 1841 --dry-run
  lakeward stream rollback -c shop.yaml --to-time 2024-01-31T12:00:00
"""


stream = group("stream", _ABOUT, examples=_EXAMPLES)


@command(
    "points",
    CONFIGURATION,
    option("--limit", COUNT, "newest N; 0 = all (default: 20)", default=20),
    JSON,
    into=stream,
)
def points(arguments: Arguments) -> int:
    """List the batches to which a stream can be rolled back."""
    settings = resolved(arguments).settings
    book = TableRegistry(settings, SystemClock())
    book.load(create=False)
    batches = points_of(book, settings.pipeline.name)
    selection = batches[: arguments.limit] if arguments.limit else batches
    rows = [
        [
            point.identifier,
            point.time_ms if arguments.json else human_time(point.time_ms),
            point.tables,
        ]
        for point in selection
    ]
    return emit(arguments, ["batch", "committed", "tables"], rows, "no batches")


@command(
    "rollback",
    CONFIGURATION,
    option("--to-batch", COUNT, "commit identifier of the last batch to keep"),
    option(
        "--to-time",
        MOMENT_MS,
        "keep the batches committed up to this time; ISO 8601 (UTC without a zone)",
    ),
    DRY_RUN,
    flag("--json", "print one JSON object"),
    into=stream,
)
def rollback(arguments: Arguments) -> int:
    """Roll all tables of a stream, and its offsets, back to the end of a batch.

    Snapshots of later batches and their tags are deleted. The next start resumes from there and
    writes the rows again; rows that were replayed from quarantine since then are not replayed
    again. The source must still have the records since that batch. Refused while a daemon owns the
    stream. If it is interrupted, no daemon starts until it is repeated or `lakeward run
    --recover-offsets` is run.
    """
    choose_one(arguments, "to_batch", "to_time", required=True)
    settings = resolved(arguments).settings
    name = settings.pipeline.name
    target = {"identifier": arguments.to_batch, "time_ms": arguments.to_time}
    if arguments.dry_run:
        book = TableRegistry(settings, SystemClock())
        book.load(create=False)
        point, plans = plan_rollback(book, name, **target)
        _print_plan(arguments, point, plans, "nothing was changed")
        return 0
    with owned_stream(settings) as (book, ownership):
        point, plans = plan_rollback(book, name, **target)
        _require_records(settings, plans)
        state = carry_out(book, StreamPosition(settings, book, ownership), name, plans)
        tables = sorted(book.progresses())
    _print_plan(arguments, point, plans, f"the next commit identifier is {state.base}")
    if not arguments.json:
        print(f"\n{offsets_table(state, tables)}")
    return 0


def _print_plan(arguments: Arguments, point: Point, plans: Sequence[TablePlan], end: str) -> None:
    rows = [_row(plan) for plan in plans]
    head = ["table", "newest", "target", "committed", "lost_records", "lost_replays"]
    if arguments.json:
        tables = [dict(zip(head, row, strict=True)) for row in rows]
        document: Mapping[str, Any] = {"batch": point.identifier, "tables": tables, "end": end}
        print(json_line(document))
        return
    print(f"last batch to keep: {point.identifier} of {human_time(point.time_ms)}\n")
    print(f"{aligned(head, rows)}\n\n{end}")


def _row(plan: TablePlan) -> list[Any]:
    losses = [plan.lost_records, plan.lost_replays]
    return [plan.name, plan.newest.id, plan.target.id, human_time(plan.target.time_ms), *losses]


def _require_records(settings: Settings, plans: Sequence[TablePlan]) -> None:
    """Require that Kafka still has the records that the next start reads again.

    Raises:
        DataLossError: it has deleted some of them.
    """
    if not isinstance(settings.source, KafkaSourceSettings):
        return
    with LagProbe(settings.source) as probe:
        marks = probe.poll()
    for plan in plans:
        if plan.unchanged:
            continue
        offsets = stored_offsets(plan.target, settings.pipeline.name) or {}
        for topic, parts in offsets.items():
            for key, offset in parts.items():
                low, _ = marks.get((topic, int(key)), (offset, offset))
                if low > offset:
                    raise DataLossError(
                        "Kafka no longer has the records since that batch",
                        hint="choose a later batch, or take a new snapshot of the tables",
                        table=plan.name,
                        topic=topic,
                        partition=key,
                        wanted=offset,
                        earliest=low,
                    )
