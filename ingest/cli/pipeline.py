# SPDX-License-Identifier: Apache-2.0
"""`lakeward status|pause|resume|reload|quarantine`: a pipeline and its bad records.

Commands reach the daemon through request files in the warehouse (`ingest.daemon.requests`), so they
work from any machine with access to the warehouse, and also while no daemon runs.
"""

import datetime
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ingest.cli.commands import Arguments, combine, command, flag, group, option, positional, refuse
from ingest.cli.parameters import (
    CONFIGURATION,
    DURATION_S,
    JSON,
    POSITIVE,
    SECONDS,
    configuration,
    emit,
    resolved,
)
from ingest.config.setting import duration
from ingest.observe.text_table import json_line, rows_of
from storage.clock import SystemClock
from storage.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.pipeline.quarantine import Choice

_STATUS_EXAMPLES = """\
Examples:
  lakeward status -c shop.yaml
  lakeward status -c shop.yaml --json
  lakeward status -c shop.yaml --check --max-freshness 5m     for scripts and cron
  lakeward status --url http://lakeward:9108 --check          remote, without the warehouse

Exit codes with --check (without it 0, if the state could be read):
   0  healthy: a daemon answers and is ready, no table is parked, unreadable or too old
   1  not healthy; the problems are on standard error
  69  no daemon answers
"""


@command(
    "status",
    configuration(required=False),
    option("--url", "URL", "address of the daemon's HTTP endpoint"),
    flag("--json", "print one JSON object"),
    flag("--check", "report the health in the exit code"),
    option(
        "--max-freshness",
        DURATION_S,
        "with --check: maximum age of the newest change of a table, such as 5m",
    ),
    examples=_STATUS_EXAMPLES,
)
def status(arguments: Arguments) -> int:
    """Show the state of a pipeline and its tables.

    Reads the state in the warehouse, and that of the daemon if one answers at `metrics.host` and
    `metrics.port`, or at --url. With --url alone only the daemon is queried.
    """
    from ingest.tools.pipeline_status import pipeline_status, problems_of, status_at, status_text

    if not arguments.config and arguments.url is None:
        refuse("specify the configuration with -c, or the daemon with --url")
    if arguments.max_freshness is not None and not arguments.check:
        refuse("--max-freshness requires --check")
    if arguments.config:
        document = pipeline_status(resolved(arguments).settings, arguments.url)
    else:
        document = status_at(arguments.url)
    problems = problems_of(document, arguments.max_freshness) if arguments.check else []
    if arguments.json:
        extra = {"problems": [problem.text for problem in problems]} if arguments.check else {}
        print(json.dumps({**document, **extra}, indent=2))
    else:
        print(status_text(document))
    for problem in problems:
        print(f"lakeward: {problem.text}", file=sys.stderr)
    return max((int(problem.exit_code) for problem in problems), default=0)


def _examples(name: str) -> str:
    return f"""\
Examples:
  lakeward {name} -c shop.yaml shop.orders shop.items
  lakeward {name} -c shop.yaml shop.orders --no-wait
  lakeward {name} -c shop.yaml --stream
"""


WAITING = combine(
    flag("--no-wait", "submit the request and exit immediately"),
    option(
        "--timeout",
        SECONDS,
        "time to wait for the daemon's answer (default: 120)",
        default=120.0,
    ),
    flag("--json", "print the answer as one JSON object"),
)
"""Options of a command that sends a request to the daemon (`send_request`)."""

_TARGET = combine(
    positional("tables", nargs=-1, metavar="[TABLE]...", help="database.table"),
    flag("--stream", "the whole stream instead of tables"),
)


def _check_target(arguments: Arguments) -> None:
    if arguments.stream == bool(arguments.tables):
        refuse("specify tables, or --stream for the whole stream")


def send_request(arguments: Arguments, kind: str, request: Mapping[str, Any]) -> int:
    """Send a request to the daemon and print the answer; return the exit code.

    Raises:
        LakewardError: the daemon refused, or did not answer in time.
    """
    from ingest.daemon.requests.request_client import RequestOptions, request_and_wait

    options = RequestOptions(wait=not arguments.no_wait, timeout_s=arguments.timeout)
    answer = request_and_wait(resolved(arguments).settings, kind, request, options)
    if answer is None:
        text = "request submitted; the daemon handles it between two batches or at its next start"
        print(json.dumps({"state": "waiting"}) if arguments.json else text)
    elif arguments.json:
        print(json.dumps({"state": "done", "text": answer.text, **answer.result}))
    else:
        print(answer.text)
    return 0


@command(
    "pause",
    CONFIGURATION,
    _TARGET,
    option("--reason", "TEXT", "shown by `status` and the status page"),
    flag("--unknown", "allow tables that do not exist yet"),
    WAITING,
    examples=_examples("pause"),
)
def pause(arguments: Arguments) -> int:
    """Park tables, or pause the whole stream.

    From the next batch on, events of parked tables are not processed; other tables continue.
    Nothing is lost: `resume` reads the missed events again, as far as the source still has them.

    With --stream the whole stream is paused after the batch in progress, across restarts, until
    `resume --stream`. The daemon keeps running and keeps its offsets.
    """
    _check_target(arguments)
    if arguments.stream:
        return send_request(arguments, "pause_stream", {"reason": arguments.reason or ""})
    request = {
        "tables": list(arguments.tables),
        "reason": arguments.reason or "",
        "unknown": arguments.unknown,
    }
    return send_request(arguments, "pause", request)


@command(
    "resume",
    CONFIGURATION,
    _TARGET,
    flag(
        "--skip-missed",
        "resume at the current offsets without the missed events, before a new snapshot",
    ),
    WAITING,
    examples=_examples("resume"),
)
def resume(arguments: Arguments) -> int:
    """Resume parked tables, or a paused stream.

    The stream goes back to the offsets where the tables were parked; rows that other tables already
    have are skipped. The source must still have the records since then. If they have expired, the
    command says so and the table stays parked. --stream resumes a stream that was paused as a
    whole.
    """
    _check_target(arguments)
    if arguments.stream:
        return send_request(arguments, "resume_stream", {})
    request = {"tables": list(arguments.tables), "skip_missed": arguments.skip_missed}
    return send_request(arguments, "resume", request)


@command(
    "reload",
    CONFIGURATION,
    WAITING,
    examples="Examples:\n  lakeward reload -c shop.yaml\n",
)
def reload(arguments: Arguments) -> int:
    """Reload the configuration.

    The daemon reads its configuration files again (SIGHUP does the same) and applies topics,
    routes, table rules and trigger after the batch in progress. If the configuration is invalid, or
    a setting changed that cannot change at run time, it reports that and continues with the
    previous settings.
    """
    resolved(arguments)  # reports mistakes here, without waiting for the daemon
    return send_request(arguments, "reload", {})


# `lakeward quarantine ls|show|replay|drop`: inspect bad records, and replay them after a fix.
#
# `ls` and `show` read the quarantine table; `replay` and `drop` send requests to the daemon
# (`ingest.daemon.requests`), which is the only writer.


_ABOUT = """\
Inspect, replay and drop records that could not be decoded.

Records that could not be decoded, routed or transformed are stored completely in the quarantine
table (`bad.records.table`). Guide: docs/guides/quarantine.md"""

_EXAMPLES = """\
Examples:
  lakeward quarantine ls -c shop.yaml
  lakeward quarantine ls -c shop.yaml --table shop.orders --class type --since 2h --json
  lakeward quarantine show -c shop.yaml --newest 3
  lakeward quarantine show -c shop.yaml shop.public.orders 0 4711
  lakeward quarantine replay -c shop.yaml --table shop.orders --dry-run
  lakeward quarantine replay -c shop.yaml --table shop.orders
  lakeward quarantine drop -c shop.yaml --topic shop.public.orders --class json
"""

quarantine = group("quarantine", _ABOUT, examples=_EXAMPLES)

_FILTERS = combine(
    option("--topic", "TOPIC", "only records of this source topic"),
    option(
        "--table", "NAME", "only records of this database.table; unknown = records without a table"
    ),
    option("--class error_class", "CLASS", "only records of this error class"),
    option("--state", click.Choice(("new", "replayed")), "only records in this state"),
    option(
        "--since",
        "TIME",
        "only records quarantined since: 2h, 7d, or a time such as 2026-05-01T10:00:00+00:00",
    ),
)


def _choice(arguments: Arguments) -> "Choice":
    from ingest.pipeline.quarantine import Choice

    return Choice(
        topic=arguments.topic,
        table=arguments.table,
        error_class=arguments.error_class,
        state=arguments.state,
        since_ms=None if arguments.since is None else _since_ms(arguments.since),
    )


def _since_ms(text: str) -> int:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.UTC)
        return int(moment.timestamp() * 1000)
    try:
        ago_s = float(duration.parse(text))
    except ValueError as error:
        raise InvalidRequestError(f"--since expects {error}, or a time", since=text) from error
    return SystemClock().now_ms() - int(ago_s * 1000)


def _rows(arguments: Arguments, choice: "Choice", columns: list[str] | None = None) -> "pa.Table":
    from ingest.pipeline.quarantine import read_quarantine
    from ingest.state.stream_state import Warehouse, catalog_of

    settings = resolved(arguments).settings
    table = catalog_of(Warehouse.of(settings.sink)).table(settings.bad_records.table)
    return read_quarantine(table, choice, columns)


@command("ls", CONFIGURATION, _FILTERS, JSON, into=quarantine)
def ls(arguments: Arguments) -> int:
    """Count bad records by topic, table, error class and state."""
    from ingest.pipeline.quarantine import GROUP_COLUMNS, count_groups

    columns = ["topic", "target", "error_class", "state", "ingested_at", "error"]
    groups = count_groups(_rows(arguments, _choice(arguments), columns))
    rows = rows_of(groups)
    if not arguments.json:
        rows = [[*row[:5], _moment(row[5]), _moment(row[6]), row[7]] for row in rows]
    return emit(arguments, GROUP_COLUMNS, rows, "no bad records")


def _moment(value: datetime.datetime) -> str:
    return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


@command(
    "show",
    CONFIGURATION,
    positional("record", nargs=-1, metavar="[TOPIC PARTITION OFFSET]", help="only this record"),
    option("--newest", POSITIVE, "the newest N records (default: 1)", default=1),
    flag("--whole", "print long values in full"),
    _FILTERS,
    JSON,
    into=quarantine,
)
def show(arguments: Arguments) -> int:
    """Print records with their bytes, error, and what to do."""
    from ingest.pipeline.quarantine import Choice

    if arguments.record:
        topic, partition, offset = _position(arguments.record)
        rows = _rows(arguments, Choice(topic=topic, partition=partition, offset=offset))
        if rows.num_rows == 0:
            raise NotFoundError(
                "no such record in quarantine", topic=topic, partition=partition, offset=offset
            )
    else:
        rows = _rows(arguments, _choice(arguments))
        rows = rows.sort_by([("ingested_at", "descending"), ("offset", "descending")])
        rows = rows.slice(0, arguments.newest)
    for number, row in enumerate(rows.to_pylist()):
        if arguments.json:
            print(json_line(_document(row)))
        else:
            print(("\n" if number else "") + _record(row, whole=arguments.whole))
    if rows.num_rows == 0 and not arguments.json:
        print("no bad records")
    return 0


def _position(words: tuple[str, ...]) -> tuple[str, int, int]:
    if len(words) != 3 or not words[1].isdecimal() or not words[2].isdecimal():
        raise InvalidRequestError("specify a record as TOPIC PARTITION OFFSET")
    return words[0], int(words[1]), int(words[2])


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row, with bytes in base64, and the explanation of its class."""
    from ingest.pipeline.quarantine import bad_class, record_text

    explanation = bad_class(row["error_class"])
    kinds = {f"{part}_kind": record_text(row[part])[0] for part in ("key", "value")}
    return {**row, **kinds, "meaning": explanation.meaning, "hint": explanation.hint}


def _record(row: dict[str, Any], *, whole: bool) -> str:
    from ingest.pipeline.quarantine import bad_class, record_text

    explanation = bad_class(row["error_class"])
    facts = [
        ("record", f"{row['topic']} {row['partition']} {row['offset']}"),
        ("table", row["target"] or "unknown"),
        ("state", row["state"]),
        ("quarantined", _moment(row["ingested_at"])),
        ("class", f"{row['error_class']}: {explanation.meaning}"),
        ("error", row["error"]),
        ("what to do", explanation.hint),
    ]
    if row["timestamp"] is not None:
        facts.insert(3, ("timestamp", _moment(row["timestamp"])))
    if row["replayed_at"] is not None:
        facts.insert(3, ("replayed", _moment(row["replayed_at"])))
    if row["headers"]:
        facts.append(("headers", row["headers"]))
    lines = [f"{name:<12} {value}" for name, value in facts]
    for part in ("key", "value"):
        kind, text = record_text(row[part], in_full=whole)
        size = "" if row[part] is None else f", {len(row[part])} bytes"
        lines.append(f"{part:<12} {kind}{size}")
        lines += [f"  {line}" for line in text.splitlines()]
    return "\n".join(lines)


@command(
    "replay",
    CONFIGURATION,
    _FILTERS,
    flag("--dry-run", "print what would be replayed, without changing anything"),
    flag(
        "--alone",
        "do not read later records of the same keys: if the source no longer has them, and you "
        "know that there are none",
    ),
    WAITING,
    into=quarantine,
)
def replay(arguments: Arguments) -> int:
    """Replay quarantined records, after their cause is fixed.

    The daemon replays them between two batches, without restart: it decodes them with the settings
    in force and, so that no older record overwrites a newer row, reads the later records of the
    same keys again from the source. Records that fail again stay in quarantine, with the new error.
    """
    request = {
        "choice": _choice(arguments).to_values(),
        "alone": arguments.alone,
        "dry_run": arguments.dry_run,
    }
    return send_request(arguments, "replay", request)


@command(
    "drop",
    CONFIGURATION,
    _FILTERS,
    flag("--all", "all records; required without a filter"),
    WAITING,
    into=quarantine,
)
def drop(arguments: Arguments) -> int:
    """Delete records from the quarantine table permanently."""
    values = _choice(arguments).to_values()
    if not values and not arguments.all:
        raise InvalidRequestError("specify a filter, or --all")
    return send_request(arguments, "drop_bad", {"choice": values})
