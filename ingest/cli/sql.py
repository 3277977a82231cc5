# SPDX-License-Identifier: Apache-2.0
"""`lakeward sql`: statements on the tables of a warehouse or catalog, without Spark."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.cli.commands import Arguments, command, flag, option, refuse
from ingest.cli.parameters import PAIR, PATH, open_catalog
from ingest.tools.console.output import FORMATS, Output
from storage.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
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
    from ingest.tools.console.runs import run_text

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
