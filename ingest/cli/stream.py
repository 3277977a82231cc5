# SPDX-License-Identifier: Apache-2.0
"""`lakeward stream points|rollback` and `lakeward resnapshot`: go back, or read again.

The daemon of the stream must be stopped: `rollback` is refused while one owns the stream.
"""

import functools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingest.cli.commands import Arguments, choose_one, command, flag, group, option, positional
from ingest.cli.parameters import (
    CONFIGURATION,
    COUNT,
    DRY_RUN,
    JSON,
    MOMENT_MS,
    SECONDS,
    emit,
    resolved,
)
from ingest.config.choices import DEBEZIUM_AVRO, DEBEZIUM_JSON
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.decode.decoders import json_values
from ingest.decode.events import SOURCE_TABLE_OPTION
from ingest.decode.schema_change_events import JsonValue
from ingest.observe.text_table import aligned, human_time, json_line
from ingest.source.open import LagProbe, TopicTail, send_record
from ingest.source.records import ANY_TABLE, floor_of, resume_token
from ingest.state.lease import owned_stream
from ingest.state.stream_position import (
    Point,
    StreamPosition,
    TablePlan,
    carry_out,
    plan_rollback,
    points_of,
)
from ingest.state.stream_state import (
    CheckpointState,
    Warehouse,
    catalog_of,
    forget_rollback,
    rolled_back_topics,
    stored_offsets,
)
from ingest.state.table_registry import TableRegistry
from ingest.tools.snapshot_requests import (
    Followed,
    Notification,
    SnapshotSignal,
    SourceName,
    follow,
    notification,
    source_name,
)
from storage.clock import Clock, RandomIds, SystemClock
from storage.errors import DataLossError, InvalidRequestError


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


# `lakeward resnapshot`: lets Debezium read single tables again while streaming continues.
#
# The command talks to the connector (`snapshot_requests`), not to the daemon: the snapshot's rows
# come through the topics like all others.


_RESNAPSHOT_EXAMPLES = """\
Examples:
  lakeward resnapshot -c shop.yaml shop.orders
  lakeward resnapshot -c shop.yaml shop.orders --filter "created_at > '2026-01-01'"
  lakeward resnapshot -c shop.yaml shop.orders --blocking --no-wait
  lakeward resnapshot -c shop.yaml shop.orders --server shop --collection public.orders
"""

_FORMATS = (DEBEZIUM_JSON, DEBEZIUM_AVRO, "debezium-flat")


@command(
    "resnapshot",
    CONFIGURATION,
    positional("tables", nargs=-1, required=True, metavar="TABLE...", help="database.table"),
    flag(
        "--blocking", "streaming pauses while the tables are read (default: in chunks, beside it)"
    ),
    option(
        "--filter",
        "SQL",
        "only rows with this condition; with --blocking a whole SELECT",
        default="",
    ),
    option("--server", "PREFIX", "the connector's prefix", default=""),
    option(
        "--collection",
        "NAME",
        "the source table as the connector names it (default: from the table's options)",
        default="",
    ),
    option(
        "--signal-table",
        "NAME",
        "for the printed statement (default: debezium_signal)",
        default="debezium_signal",
    ),
    flag("--no-wait", "exit when the signal is sent"),
    option(
        "--timeout", SECONDS, "how long to wait for the snapshot (default: as long as it takes)"
    ),
    flag("--json", "the result as one JSON object"),
    examples=_RESNAPSHOT_EXAMPLES,
)
def resnapshot(arguments: Arguments) -> int:
    """Request a new Debezium snapshot of tables, while streaming continues.

    Sends a signal to the Debezium connector and waits until it reports that the snapshot is
    complete. The rows come through the topics like all others and are upserted; rows that the
    source no longer has remain. Needs `source.debezium.signal.topic` (the connector's
    signal.kafka.topic); without it the command prints the statement for the signalling table. With
    `source.debezium.notification.topic` it shows the progress.
    """
    settings = resolved(arguments).settings
    signal = _signal(settings, arguments)
    topic = settings.events.signal_topic
    if topic is None:
        statement = signal.statement(arguments.signal_table)
        _print(arguments, signal, "statement", statement, {"statement": statement})
        return 0
    if not isinstance(settings.source, KafkaSourceSettings):
        raise InvalidRequestError(
            "a signal topic needs Kafka", hint="leave out source.debezium.signal.topic"
        )
    answers = settings.events.notification_topic
    if arguments.no_wait or answers is None:
        send_record(settings.source, topic, *signal.record())
        note = "" if answers else "; set source.debezium.notification.topic to wait for the end"
        _print(arguments, signal, "sent", f"asked {signal.server} for {_names(signal)}{note}", {})
        return 0
    clock = SystemClock()
    tail = TopicTail(settings.source, answers, clock)  # first, so that no answer is missed
    try:
        send_record(settings.source, topic, *signal.record())
        _to_stderr(f"asked {signal.server} for {_names(signal)}")
        snapshot = _followed(signal, tail, json_values(settings), clock, arguments.timeout)
    finally:
        tail.close()
    total = sum(snapshot.rows.values())
    text = f"snapshot of {_names(signal)} complete: {total} rows in {snapshot.seconds:.0f} s"
    figures = {"rows": snapshot.rows, "seconds": round(snapshot.seconds, 1)}
    _print(arguments, signal, "complete", text, figures)
    return 0


def _followed(
    signal: SnapshotSignal, tail: TopicTail, value: JsonValue, clock: Clock, timeout: float | None
) -> Followed:
    read = functools.partial(_notifications, tail, value)
    return follow(signal, read, clock=clock, say=_to_stderr, timeout_s=timeout)


def _notifications(tail: TopicTail, value: JsonValue) -> Iterator[Notification]:
    for raw in tail.read():
        for at in range(len(raw)):
            message = notification(value(raw, at))
            if message is not None:
                yield message


def _signal(settings: Settings, arguments: Arguments) -> SnapshotSignal:
    if settings.format not in _FORMATS:
        raise InvalidRequestError("only Debezium supports ad hoc snapshots", format=settings.format)
    if len(arguments.tables) > 1 and (arguments.filter or arguments.collection):
        raise InvalidRequestError("--filter and --collection need a single table")
    names = [_source_name(settings, table, arguments) for table in dict.fromkeys(arguments.tables)]
    servers = sorted({name.server for name in names})
    if len(servers) > 1:
        raise InvalidRequestError(
            "the tables come from several connectors",
            hint="send one request per connector",
            servers=servers,
        )
    return SnapshotSignal(
        id=f"lakeward-{RandomIds().uuid()}",
        server=servers[0],
        collections=tuple(name.collection for name in names),
        blocking=arguments.blocking,
        filter=arguments.filter,
    )


def _source_name(settings: Settings, table: str, arguments: Arguments) -> SourceName:
    names = {"server": arguments.server, "collection": arguments.collection}
    if all(names.values()):  # the table need not exist
        return source_name(table, "", {}, **names)
    options = catalog_of(Warehouse.of(settings.sink)).table(table).schema.options
    return source_name(table, options.get(SOURCE_TABLE_OPTION, ""), options, **names)


def _names(signal: SnapshotSignal) -> str:
    return ", ".join(signal.collections)


def _print(
    arguments: Arguments, signal: SnapshotSignal, state: str, text: str, more: dict[str, object]
) -> None:
    if arguments.json:
        document = {
            "state": state,
            "id": signal.id,
            "server": signal.server,
            "collections": signal.collections,
            "type": signal.data["type"].lower(),
        }
        text = json.dumps(document | more)
    sys.stdout.write(f"{text}\n")


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
