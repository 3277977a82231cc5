# SPDX-License-Identifier: Apache-2.0
"""`lakeward sql` and `lakeward catalog …`: statements, and the catalog as a service."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingest.cli.commands import Arguments, command, flag, group, option, refuse
from ingest.cli.parameters import (
    PAIR,
    PATH,
    POSITIVE,
    catalog_at,
    open_catalog,
    settings_at,
    warehouse_or_config,
)
from ingest.tools.console.output import FORMATS, Output
from storage.errors import (
    InvalidOptionError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from ingest.tools.catalog_service.access import Tokens
    from ingest.tools.catalog_service.service import Listening
    from storage.catalog.catalog import Catalog
    from storage.sql.session import SqlSession

_EXAMPLES = """\
Examples:
  lakeward sql --warehouse /data/warehouse
  lakeward sql --warehouse /data/warehouse -e "SELECT count(*) FROM shop.orders"
  lakeward sql --catalog catalog.yaml --database shop -f nightly.sql
  lakeward sql --warehouse s3://lake/warehouse --json -e 'SHOW DATABASES; SELECT 1'
  lakeward sql --warehouse /data/warehouse --follow -e 'SELECT * FROM shop.orders'
"""

_ROWS_OF_CONSOLE = 1_000
_SEVERAL = "catalogs."


@command(
    "sql",
    option("--warehouse", "DIR", "path of the warehouse: a directory, or s3://bucket/directory"),
    option(
        "--catalog", PATH, "YAML file with the options of a catalog, as CREATE CATALOG has them"
    ),
    option("--store-option", PAIR, "option of the object store", multiple=True),
    option("--database", "NAME", "current database (default: default)", default="default"),
    option("-e --execute", "TEXT", "run these statements; repeatable", multiple=True),
    option("-f --file", PATH, "run the statements of this file"),
    option("--format", "FORMAT", f"one of {', '.join(FORMATS)} (default: table)", default="table"),
    flag("--json", "one JSON object per statement"),
    flag("--timing", "print the run time of each statement"),
    flag("--follow", "print the changes of a query's table as they are committed"),
    examples=_EXAMPLES,
)
def sql(arguments: Arguments) -> int:
    """Run SQL statements on the tables of a warehouse or catalog.

    Without -e and -f an interactive console starts; if standard input is not a terminal, it is read
    as a script. The first statement that fails ends the run and determines the exit code.
    """
    if (arguments.warehouse is None) == (arguments.catalog is None):
        refuse("specify either --warehouse or --catalog")
    if arguments.execute and arguments.file:
        refuse("specify only one of -e, -f")
    if arguments.format not in FORMATS:
        refuse(f"--format is one of {', '.join(FORMATS)}")
    output = Output("json" if arguments.json else arguments.format, arguments.timing)
    session = _session(arguments)
    text = _text(arguments)
    if arguments.follow:
        from ingest.tools.console.following import follow

        return follow(session, text or refuse("--follow needs a query: -e 'SELECT …'"), output)
    if text is None:
        from ingest.tools.console.console import run_console

        output.most_rows, output.timing = _ROWS_OF_CONSOLE, True
        return run_console(session, output)
    from ingest.tools.console.output import run_text

    return run_text(session, text, output)


def _text(arguments: Arguments) -> str | None:
    """The statements; None: interactive."""
    if arguments.execute:
        return ";\n".join(arguments.execute)
    if arguments.file:
        try:
            return str(arguments.file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise NotFoundError("the file cannot be read", detail=str(error)) from error
    return None if sys.stdin.isatty() else sys.stdin.read()


def _session(arguments: Arguments) -> "SqlSession":
    from storage.sql.session import SqlSession

    store = dict(arguments.store_option)
    if arguments.warehouse is not None:
        return SqlSession(open_catalog(arguments.warehouse, store), arguments.database)
    catalogs = {name: _open(options, store) for name, options in _catalogs(arguments.catalog)}
    name = next(iter(catalogs))
    session = SqlSession(catalogs[name], arguments.database, name)
    session.catalogs.update(catalogs)
    return session


def _open(options: Mapping[str, str], arguments: Mapping[str, str]) -> "Catalog":
    from storage.catalog.catalog import Catalog

    rest = {key: value for key, value in {**options, **arguments}.items() if key != "type"}
    return Catalog.open(rest.pop("warehouse", ""), rest)


def _catalogs(path: Path) -> list[tuple[str, dict[str, str]]]:
    """Names and options of catalogs: of one (`paimon`), or of those under `catalogs`."""
    from ingest.config.settings_sources import read_catalog_file

    options = read_catalog_file(str(path))
    catalogs: dict[str, dict[str, str]] = {}
    for key, value in options.items():
        if key.startswith(_SEVERAL):
            name, _, option = key.removeprefix(_SEVERAL).partition(".")
            catalogs.setdefault(name, {})[option] = value
    if any("" in entry for entry in catalogs.values()) or not options:
        raise InvalidRequestError(
            "the file does not contain catalog options",
            hint="write `warehouse: DIR` and `metastore: …`, or several under `catalogs:` by name",
            file=path,
        )
    return list(catalogs.items()) or [("paimon", options)]


# `lakeward catalog …`: the catalog as a service, without Spark.


_ABOUT = """\
Serve a catalog to other engines.

`serve` speaks Paimon's REST protocol and, read-only, Iceberg's."""

_CATALOG_EXAMPLES = """\
Examples:
  lakeward catalog serve --warehouse /data/warehouse
  lakeward catalog serve -c shop.yaml --port 9000
  lakeward catalog serve --catalog catalog.yaml --host 0.0.0.0 --tokens tokens.yaml
  lakeward catalog serve --warehouse s3://lake/warehouse --host 0.0.0.0 --tokens tokens.yaml \\
      --tls-cert server.pem --tls-key server.key
"""

catalog = group("catalog", _ABOUT, examples=_CATALOG_EXAMPLES)

_ACCESS, _LIMITS, _LOG = "Access", "Limits", "Log"


@command(
    "serve",
    warehouse_or_config(),
    option("--host", "ADDRESS", "address to listen on (default: 127.0.0.1)", default="127.0.0.1"),
    option("--port", POSITIVE, "port to listen on (default: 8181)", default=8181),
    option(
        "--tokens",
        PATH,
        "tokens file: YAML, the tokens and what they may read and write",
        section=_ACCESS,
    ),
    flag(
        "--without-tokens",
        "let anyone who can reach the address read and write everything",
        section=_ACCESS,
    ),
    option("--tls-cert", PATH, "PEM file of the certificate and its chain", section=_ACCESS),
    option("--tls-key", PATH, "PEM file of the key of the certificate", section=_ACCESS),
    flag(
        "--hand-out-credentials",
        "give clients the options of the object store, secrets included",
        section=_ACCESS,
    ),
    option(
        "--max-body", POSITIVE, "largest body, in MiB (default: 32)", default=32, section=_LIMITS
    ),
    option(
        "--request-timeout",
        POSITIVE,
        "longest request, in s (default: 60)",
        default=60,
        section=_LIMITS,
    ),
    option(
        "--threads",
        POSITIVE,
        "calls of the catalog at a time (default: 16)",
        default=16,
        section=_LIMITS,
    ),
    option(
        "--max-waiting",
        POSITIVE,
        "requests that wait for a thread (default: 256)",
        default=256,
        section=_LIMITS,
    ),
    option(
        "--log-level",
        click.Choice(("debug", "info", "warning", "error")),
        "default: info, with a line per request",
        default="info",
        section=_LOG,
    ),
    option(
        "--log-format",
        click.Choice(("auto", "text", "json")),
        "default: text on a terminal, else json",
        default="auto",
        section=_LOG,
    ),
    into=catalog,
)
def serve(arguments: Arguments) -> int:
    """Serve a catalog over HTTP until SIGTERM or SIGINT.

    Clients of Paimon's REST catalog take the address with `/paimon`, those of Iceberg's with
    `/iceberg`. `/healthz` needs no token, `/metrics` any. Running requests are finished first.
    """
    settings = settings_at(arguments)
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        refuse("specify both --tls-cert and --tls-key, or neither")
    if arguments.tokens is not None and arguments.without_tokens:
        refuse("specify only one of --tokens, --without-tokens")
    try:
        from ingest.tools.catalog_service.service import CatalogService, Limits, Listening, serve
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            "a package that the catalog service needs is not installed",
            detail=str(error),
            hint='pip install "lakeward[catalog-service]"',
        ) from error
    from ingest.logs import configure_logging, log_uncaught

    at = Listening(arguments.host, arguments.port, arguments.tls_cert, arguments.tls_key)
    configure_logging(level=arguments.log_level, form=arguments.log_format)
    log_uncaught()
    service = CatalogService(
        catalog_at(arguments, settings),
        _tokens(arguments, at),
        Limits(
            body_bytes=arguments.max_body << 20,
            seconds=arguments.request_timeout,
            threads=arguments.threads,
            waiting=arguments.max_waiting,
        ),
        hand_out_credentials=arguments.hand_out_credentials,
    )
    serve(service, at)
    return 0


def _tokens(arguments: Arguments, at: "Listening") -> "Tokens | None":
    if arguments.tokens is not None:
        import time

        from ingest.tools.catalog_service.access import Tokens

        return Tokens(arguments.tokens, time.monotonic)
    if not (at.loopback or arguments.without_tokens):
        raise InvalidOptionError(
            "without tokens the service may listen only on localhost",
            hint="give --tokens FILE, or --without-tokens",
            host=at.host,
        )
    return None
