# SPDX-License-Identifier: Apache-2.0
"""`lakeward resnapshot`: lets Debezium read single tables again while streaming continues.

The command talks to the connector (`snapshot_requests`), not to the daemon: the snapshot's rows
come through the topics like all others.
"""

import functools
import json
import sys
from collections.abc import Iterator

from ingest.cli.commands import Arguments, command, flag, option, positional
from ingest.cli.parameters import CONFIGURATION, SECONDS, resolved
from ingest.config.choices import DEBEZIUM_AVRO, DEBEZIUM_JSON
from ingest.config.settings import Settings
from ingest.config.source_settings import KafkaSourceSettings
from ingest.decode.decoders import json_values
from ingest.decode.events import SOURCE_TABLE_OPTION
from ingest.decode.schema_change_events import JsonValue
from ingest.source.open import TopicTail, send_record
from ingest.state.table_cache import Warehouse, catalog_of
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
from storage.errors import InvalidRequestError

_EXAMPLES = """\
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
    examples=_EXAMPLES,
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
