# SPDX-License-Identifier: Apache-2.0
"""`lakeward quarantine ls|show|replay|drop`: inspect bad records, and replay them after a fix.

`ls` and `show` read the quarantine table; `replay` and `drop` send requests to the daemon
(`ingest.daemon.requests`), which is the only writer.
"""

import datetime
from typing import TYPE_CHECKING, Any

import click

from ingest.cli.commands import Arguments, combine, command, flag, group, option, positional
from ingest.cli.parameters import CONFIGURATION, JSON, POSITIVE, emit, resolved
from ingest.cli.pipeline import WAITING, send_request
from ingest.config.setting_kinds import duration
from ingest.observe.text_table import json_line, rows_of
from storage.clock import SystemClock
from storage.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    import pyarrow as pa

    from ingest.pipeline.quarantine.quarantine_choice import Choice

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
    from ingest.pipeline.quarantine.quarantine_choice import Choice

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
    from ingest.pipeline.quarantine.quarantine_choice import read_quarantine
    from ingest.state.table_cache import Warehouse, catalog_of

    settings = resolved(arguments).settings
    table = catalog_of(Warehouse.of(settings.sink)).table(settings.bad_records.table)
    return read_quarantine(table, choice, columns)


@command("ls", CONFIGURATION, _FILTERS, JSON, into=quarantine)
def ls(arguments: Arguments) -> int:
    """Count bad records by topic, table, error class and state."""
    from ingest.pipeline.quarantine.quarantine_choice import GROUP_COLUMNS, count_groups

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
    from ingest.pipeline.quarantine.quarantine_choice import Choice

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
    from ingest.pipeline.quarantine.bad_classes import bad_class, record_text

    explanation = bad_class(row["error_class"])
    kinds = {f"{part}_kind": record_text(row[part])[0] for part in ("key", "value")}
    return {**row, **kinds, "meaning": explanation.meaning, "hint": explanation.hint}


def _record(row: dict[str, Any], *, whole: bool) -> str:
    from ingest.pipeline.quarantine.bad_classes import bad_class, record_text

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
