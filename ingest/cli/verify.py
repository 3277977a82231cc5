# SPDX-License-Identifier: Apache-2.0
"""`lakeward verify`: are a lake table and its source equal?

The words and what is printed; the work is in `ingest.tools.verify`.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ingest.cli.commands import Arguments, choose_one, command, flag, option, positional
from ingest.cli.parameters import (
    catalog_at,
    parse_count,
    parse_duration_s,
    parse_names,
    parse_positive,
    settings_at,
    warehouse_or_config,
)
from ingest.logs import configure_logging
from ingest.observe.text_table import json_line
from storage.clock import SystemClock

if TYPE_CHECKING:
    from ingest.tools.verify.outcome import TableOutcome
    from ingest.tools.verify.runs import Request

__all__ = ["verify"]

_ABOUT = """\
Compare tables with the database they come from, or with other tables.

Compares lake tables with the tables of a database that they are filled from, with other lake
tables, or with Parquet files, and says whether they are equal. Nothing is changed on any side.

Rows of both sides are brought to the lake's types, hashed, and added up by ranges of the key; only
ranges whose sums differ are looked at key by key. Keys that differ are read again before they are
reported, so a source that goes on changing can be compared too (see --wait-for)."""

_EXAMPLES = """\
Examples:
  lakeward verify -c shop.yaml shop.orders \\
      --source 'postgresql+psycopg://reader:${file:/run/secrets/pw}@db.example/shop'
  lakeward verify -c shop.yaml 'shop.*' --source '${SHOP_DATABASE}' --json
  lakeward verify -c shop.yaml shop.orders --source '${SHOP_DATABASE}' \\
      --wait-for lag --rechecks 3 --recheck-wait 30s
  lakeward verify --warehouse /data/wh shop.all_orders --source 'mysql+pymysql://…/shard_a' \\
      --source-table shard_a.orders --where-lake "_shard = 'shard_a'"
  lakeward verify --warehouse /data/wh shop.orders --against s3://backup/wh:shop.orders
  lakeward verify --warehouse /data/wh shop.orders --against /data/export/orders

Drivers: pip install 'lakeward[verify]' brings SQLAlchemy, psycopg (PostgreSQL) and PyMySQL (MySQL,
MariaDB); SQLite needs none; others by their SQLAlchemy URL.

Exit codes:
    0  all tables are equal
    3  a table differs
   69  the source, the store or the status page does not answer, or the lake did not catch up
   75  keys changed whenever they were read: run it again
   77  credentials were refused
   78  no such table, column or package, or a condition is wrong
"""


def _range(text: str) -> tuple[str | None, str | None]:
    low, dots, high = text.partition("..")
    if not dots or not (low or high):
        raise ValueError("write LOW..HIGH")
    return low or None, high or None


def _request(arguments: Arguments) -> "Request":
    from ingest.tools.verify.runs import Request
    from storage.table.scan.predicate_text import parse_predicate

    waits = arguments.wait_for is not None
    rechecks, pause_s = arguments.rechecks, arguments.recheck_wait
    return Request(
        source_table=arguments.source_table,
        against=arguments.against,
        key=arguments.key,
        exclude=arguments.exclude,
        mask=arguments.mask,
        where=arguments.where,
        where_lake=None if arguments.where_lake is None else parse_predicate(arguments.where_lake),
        key_range=arguments.key_range,
        page_rows=arguments.page_rows,
        rechecks=(2 if waits else 1) if rechecks is None else rechecks,
        recheck_wait_s=(30.0 if waits else 0.0) if pause_s is None else pause_s,
        shown=arguments.show,
        limit=arguments.limit,
        wait=waits,
        wait_timeout_s=arguments.wait_timeout,
        settle_s=arguments.settle,
        status_url=arguments.status_url,
        slot=arguments.slot,
    )


@command(
    "verify",
    _ABOUT,
    positional(
        "tables", nargs=-1, required=True, metavar="TABLE...", help="database.table, or a glob"
    ),
    warehouse_or_config("configuration of the pipeline: its warehouse, its masks, its topics"),
    option(
        "--source",
        metavar="URL",
        help="SQLAlchemy URL of the database; ${NAME} and ${file:/path} are filled in",
        section="With what",
    ),
    option(
        "--against",
        metavar="PLACE",
        help="WAREHOUSE:database.table, a Parquet file, or a directory of them",
        section="With what",
    ),
    option(
        "--source-table",
        metavar="NAME",
        help="schema.table; {database} and {table} are parts of the lake table's name "
        "(default: the table's option lakeward.source-table)",
        section="With what",
    ),
    option(
        "--where",
        metavar="SQL",
        help="only these rows of the source, or of the other table",
        section="Which rows and columns",
    ),
    option(
        "--where-lake",
        metavar="TEXT",
        help="only these rows of the lake, such as \"_shard = 'a'\"",
        section="Which rows and columns",
    ),
    option(
        "--key-range",
        type=_range,
        metavar="LOW..HIGH",
        help="only rows whose first key column is in between; either may be missing",
        section="Which rows and columns",
    ),
    option(
        "--key",
        type=parse_names,
        default=(),
        metavar="A,B",
        help="columns that identify a row",
        section="Which rows and columns",
    ),
    option(
        "--exclude",
        type=parse_names,
        default=(),
        metavar="A,B",
        help="columns not to compare",
        section="Which rows and columns",
    ),
    option(
        "--mask",
        type=parse_names,
        default=(),
        metavar="A,B",
        help="columns whose values are not shown",
        section="Which rows and columns",
    ),
    option(
        "--page-rows",
        type=parse_positive,
        default=10_000,
        metavar="N",
        help="rows read from the source at a time, and rows of a range (default: 10000)",
        section="Which rows and columns",
    ),
    option(
        "--limit",
        type=parse_positive,
        default=100_000,
        metavar="N",
        help="stop looking after so many keys that differ (default: 100000)",
        section="Which rows and columns",
    ),
    option(
        "--wait-for",
        type=click.Choice(["lag"]),
        help="first, and before each recheck, wait until the lake has all that the source had",
        section="A source that moves",
    ),
    option(
        "--wait-timeout",
        type=parse_duration_s,
        default=600.0,
        metavar="TIME",
        help="default: 10m",
        section="A source that moves",
    ),
    option(
        "--settle",
        type=parse_duration_s,
        default=5.0,
        metavar="TIME",
        help="time the connector gets to send what the source had (default: 5s)",
        section="A source that moves",
    ),
    option(
        "--slot",
        metavar="NAME",
        help="PostgreSQL: wait for this replication slot instead",
        section="A source that moves",
    ),
    option(
        "--status-url",
        metavar="URL",
        help="ask the pipeline's status page for the lag, instead of Kafka and the tables",
        section="A source that moves",
    ),
    option(
        "--rechecks",
        type=parse_count,
        metavar="N",
        help="read keys that differ again so often; 0 = report them at once "
        "(default: 1, with --wait-for 2)",
        section="A source that moves",
    ),
    option(
        "--recheck-wait",
        type=parse_duration_s,
        metavar="TIME",
        help="time between (default: 0, with --wait-for 30s)",
        section="A source that moves",
    ),
    option(
        "--show",
        type=parse_positive,
        default=10,
        metavar="N",
        help="keys shown of each kind (default: 10)",
    ),
    flag("--json", "one JSON object per table and line"),
    examples=_EXAMPLES,
)
def verify(arguments: Arguments) -> int:
    """Compare the tables; the exit code says whether they are equal."""
    from ingest.tools.verify.outcome import exit_code
    from ingest.tools.verify.runs import opened_database, selected_tables, verify_tables
    from ingest.tools.verify.source_url import SourceUrl

    choose_one(arguments, "source", "against", required=True)
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


def _print(outcome: "TableOutcome", *, as_json: bool) -> None:
    if as_json:
        print(json_line(outcome.document()))
        return
    for line in outcome.lines():
        print(line, file=sys.stderr if outcome.error is not None else sys.stdout)
    sys.stdout.flush()
