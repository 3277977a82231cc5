# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify`: compares lake tables with their sources.

Options and output; the work is in `ingest.tools.verify`.
"""

import dataclasses
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ingest.cli.commands import Arguments, Value, choose_one, command, flag, option, positional
from ingest.cli.parameters import (
    COUNT,
    DURATION_S,
    NAMES,
    POSITIVE,
    catalog_at,
    settings_at,
    warehouse_or_config,
)
from ingest.logs import configure_logging
from ingest.observe.text_table import json_line
from storage.clock import SystemClock

if TYPE_CHECKING:
    from ingest.tools.verify.repair import TableOutcome
    from ingest.tools.verify.runs import Request

_EXAMPLES = """\
Examples:
  lakeward verify -c shop.yaml shop.orders \\
      --source 'postgresql+psycopg://reader:${file:/run/secrets/pw}@db.example/shop'
  lakeward verify -c shop.yaml 'shop.*' --source '${SHOP_DATABASE}' --json
  lakeward verify -c shop.yaml shop.orders --source '${SHOP_DATABASE}' \\
      --wait-for lag --rechecks 3 --recheck-wait 30s
  lakeward verify -c shop.yaml shop.orders --source '${SHOP_DATABASE}' --wait-for lag --repair
  lakeward verify --warehouse /data/wh shop.all_orders --source 'mysql+pymysql://…/shard_a' \\
      --source-table shard_a.orders --where-lake "_shard = 'shard_a'"
  lakeward verify --warehouse /data/wh shop.orders --against s3://backup/wh:shop.orders
  lakeward verify --warehouse /data/wh shop.orders --against /data/export/orders

Drivers: pip install 'lakeward[verify]' brings SQLAlchemy, psycopg (PostgreSQL) and PyMySQL (MySQL,
MariaDB); SQLite needs none; others by their SQLAlchemy URL.

Exit codes:
    0  all tables are equal, or were repaired
    3  a table differs, or could not be repaired
   69  the source, the store or the status page does not answer, or the lake did not catch up
   75  keys changed whenever they were read: run it again
   77  credentials were refused
   78  no such table, column or package, or a condition is wrong
"""


_against = functools.partial(option, section="With what")
_rows = functools.partial(option, section="Which rows and columns")
_moving = functools.partial(option, section="A source that changes")


def _range(text: str) -> tuple[str | None, str | None]:
    low, dots, high = text.partition("..")
    if not dots or not (low or high):
        raise ValueError("write LOW..HIGH")
    return low or None, high or None


def _request(arguments: Arguments) -> "Request":
    from ingest.tools.verify.runs import Request
    from storage.table.scan.predicate import parse_predicate

    waits = arguments.wait_for is not None
    rechecks, pause_s, text = arguments.rechecks, arguments.recheck_wait, arguments.where_lake
    shared = {field.name for field in dataclasses.fields(Request)} & vars(arguments).keys()
    values = {name: getattr(arguments, name) for name in shared} | {
        "where_lake": None if text is None else parse_predicate(text),
        "rechecks": (2 if waits else 1) if rechecks is None else rechecks,
        "recheck_wait_s": (30.0 if waits else 0.0) if pause_s is None else pause_s,
        "examples_per_kind": arguments.show,
        "wait": waits,
        "wait_timeout_s": arguments.wait_timeout,
        "settle_s": arguments.settle,
    }
    return Request(**values)


@command(
    "verify",
    positional(
        "tables", nargs=-1, required=True, metavar="TABLE...", help="database.table, or a glob"
    ),
    warehouse_or_config("configuration of the pipeline: its warehouse, its masks, its topics"),
    _against(
        "--source", "URL", "SQLAlchemy URL of the database; ${NAME} and ${file:/path} are filled in"
    ),
    _against(
        "--against", "PLACE", "WAREHOUSE:database.table, a Parquet file, or a directory of them"
    ),
    _against(
        "--source-table",
        "NAME",
        "schema.table; {database} and {table} are parts of the lake table's name "
        "(default: the table's option lakeward.source-table)",
    ),
    _rows("--where", "SQL", "only these rows of the source, or of the other table"),
    _rows("--where-lake", "TEXT", "only these rows of the lake, such as \"_shard = 'a'\""),
    _rows(
        "--key-range",
        Value(_range, "LOW..HIGH"),
        "only rows whose first key column is in between; either may be missing",
    ),
    _rows("--key", NAMES, "columns that identify a row", default=()),
    _rows("--exclude", NAMES, "columns not to compare", default=()),
    _rows("--mask", NAMES, "columns whose values are not shown", default=()),
    _rows(
        "--page-rows",
        POSITIVE,
        "rows read from the source at a time, and rows of a range (default: 10000)",
        default=10_000,
    ),
    _rows(
        "--limit",
        POSITIVE,
        "stop after this number of keys that differ (default: 100000)",
        default=100_000,
    ),
    _moving(
        "--wait-for",
        click.Choice(["lag"]),
        "before the comparison and each recheck, wait until the lake has what the source had",
    ),
    _moving("--wait-timeout", DURATION_S, "default: 10m", default=600.0),
    _moving(
        "--settle",
        DURATION_S,
        "time the connector gets to send what the source had (default: 5s)",
        default=5.0,
    ),
    _moving("--slot", "NAME", "PostgreSQL: wait for this replication slot instead"),
    _moving(
        "--status-url",
        "URL",
        "take the lag from the pipeline's status page, instead of Kafka and the tables",
    ),
    _moving(
        "--rechecks",
        COUNT,
        "how often keys that differ are read again; 0 = report them at once "
        "(default: 1, with --wait-for 2)",
    ),
    _moving(
        "--recheck-wait", DURATION_S, "time between rechecks (default: 0, with --wait-for 30s)"
    ),
    flag(
        "--repair",
        "write rows that differ to the lake as the source has them; needs --source and -c",
        section="Repair",
    ),
    flag("--dry-run", "with --repair: only say what would be written", section="Repair"),
    option("--show", POSITIVE, "keys shown of each kind (default: 10)", default=10),
    flag("--json", "one JSON object per table and line"),
    examples=_EXAMPLES,
)
def verify(arguments: Arguments) -> int:
    """Compare tables with the database they come from, or with other tables.

    Compares lake tables with their source tables, with other lake tables, or with Parquet files,
    and reports whether they are equal. Both sides are only read, unless --repair writes rows that
    differ to the lake as the source has them.

    Rows of both sides are converted to the lake's types and hashed; the hashes are summed by range
    of the key's hash, and joined where the sums differ. Keys that differ are read again before they
    are reported, so a source that keeps changing can be compared too (see --wait-for).
    """
    from ingest.tools.verify.repair import exit_code
    from ingest.tools.verify.runs import opened_database, selected_tables, verify_tables
    from ingest.tools.verify.source_url import SourceUrl

    choose_one(arguments, "source", "against", required=True)
    _check_repair(arguments)
    configure_logging(level="info")
    request = _request(arguments)
    settings = settings_at(arguments)
    catalog = catalog_at(arguments, settings)
    tables = selected_tables(catalog, list(arguments.tables))
    database: Any = None
    if arguments.source is not None:
        database = opened_database(SourceUrl.of(arguments.source, os.environ))
    outcomes: list[TableOutcome] = []
    try:
        for outcome in verify_tables(
            catalog, tables, request, database=database, settings=settings, clock=SystemClock()
        ):
            outcomes.append(outcome)
            _print(outcome, as_json=arguments.json)
    finally:
        if database is not None:
            database.close()
    return exit_code(outcomes)


def _check_repair(arguments: Arguments) -> None:
    """Refuse options that contradict a repair.

    Raises:
        InvalidRequestError: rows would be written or removed that do not differ.
    """
    from storage.errors import InvalidRequestError

    if not arguments.repair:
        if arguments.dry_run:
            raise InvalidRequestError("--dry-run requires --repair")
        return
    incompatible = ("against", "where", "where_lake", "key", "exclude")
    conflicts = [name for name in incompatible if getattr(arguments, name)]
    if conflicts:
        raise InvalidRequestError(
            "--repair does not support this option: it compares whole rows",
            hint="choose rows with --key-range only",
            option=f"--{conflicts[0].replace('_', '-')}",
        )
    if not arguments.rechecks and arguments.rechecks is not None:
        raise InvalidRequestError("--repair rechecks keys that differ: --rechecks must be above 0")


def _print(outcome: "TableOutcome", *, as_json: bool) -> None:
    if as_json:
        print(json_line(outcome.document()))
        return
    for line in outcome.lines():
        print(line, file=sys.stderr if outcome.error is not None else sys.stdout)
    sys.stdout.flush()
