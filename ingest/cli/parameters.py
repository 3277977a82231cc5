# SPDX-License-Identifier: Apache-2.0
"""Shared options of commands, their parsing, and the output of rows.

Every command prints an aligned table, or with `--json` one JSON object per line.
"""

import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingest.cli.commands import (
    Arguments,
    Decorator,
    Value,
    combine,
    flag,
    option,
    positional,
    refuse,
)
from ingest.config.setting_kinds import duration
from ingest.observe.text_table import aligned, json_line

if TYPE_CHECKING:
    from ingest.config.loading import Resolved
    from ingest.config.settings import Settings
    from ingest.daemon.maintenance.compact_runs import Selection
    from storage.catalog.catalog import Catalog
    from storage.table.table import FileStoreTable


def _pair(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("expected KEY=VALUE")
    return key.strip(), value


def _partition(text: str) -> dict[str, str]:
    """Parse `COLUMN=VALUE[,COLUMN=VALUE…]`."""
    return dict(_pair(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    """Parse `A,B`; empty names are dropped."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _count(text: str) -> int:
    """Parse an integer from 0."""
    if not text.isdecimal():
        raise ValueError("not a non-negative integer")
    return int(text)


def _positive(text: str) -> int:
    """Parse an integer from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("not an integer greater than 0")
    return int(text)


def _duration_s(text: str) -> float:
    """Parse a duration such as `30s`, `12h` or `7d` [s]."""
    try:
        return float(duration.parse(text))
    except ValueError as error:
        raise ValueError(f"not {error}") from error


def _duration_ms(text: str) -> int:
    """Parse a duration [ms]."""
    return int(_duration_s(text) * 1000)


def _moment_ms(text: str) -> int:
    """Parse a timestamp in ISO 8601 (UTC without a zone), or in epoch milliseconds."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("expected 2024-01-31T12:00:00 or epoch milliseconds") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("not a number of seconds") from error


PAIR = Value(_pair, "KEY=VALUE")
PARTITION = Value(_partition, "COLUMN=VALUE[,…]")
NAMES = Value(_names, "A,B")
COUNT = Value(_count, "N")
POSITIVE = Value(_positive, "N")
SECONDS = Value(_seconds, "SECONDS")
DURATION_S = Value(_duration_s, "TIME")
DURATION_MS = Value(_duration_ms, "TIME")
MOMENT_MS = Value(_moment_ms, "TIME")
PATH = click.Path(path_type=Path)

JSON = flag("--json", "one JSON object per line")

DRY_RUN = flag("--dry-run", "print what would be done, without changing anything")

_WAREHOUSE_HELP = (
    "path of the warehouse: a directory, s3://bucket/directory, or the YAML file of a catalog"
)

_STORE_OPTION = option(
    "--store-option",
    PAIR,
    "option of the object store, such as s3.endpoint=http://host:port; keep secrets in AWS_…",
    multiple=True,
)

WAREHOUSE = combine(
    positional("warehouse", help=_WAREHOUSE_HELP),
    _STORE_OPTION,
)
"""The warehouse, and options of its store (`catalog_of`)."""

ONE_TABLE = combine(
    positional("warehouse", help=_WAREHOUSE_HELP),
    positional("table", help="database.table, or database.table$branch_name"),
    _STORE_OPTION,
    JSON,
)
"""One table of a warehouse (`table_of`), and `--json`."""


def configuration(*, required: bool) -> Decorator:
    """Declare `-c FILE` and `--set KEY=VALUE` (see `resolved`)."""
    return combine(
        option(
            "-c --config",
            "FILE",
            "YAML file; repeatable, later files override earlier ones; - is standard input",
            multiple=True,
            required=required,
        ),
        option("--set", PAIR, "a setting, overrides files and environment", multiple=True),
    )


CONFIGURATION = configuration(required=True)


def partitions(text: str, *, required: bool = False, section: str = "Options") -> Decorator:
    """Declare `--partition`, repeatable."""
    return option("--partition", PARTITION, text, multiple=True, required=required, section=section)


def warehouse_or_config(
    about_config: str = "configuration of a pipeline, whose warehouse is used",
) -> Decorator:
    """Declare `--warehouse`, `--catalog` and `-c`: one is given (see `settings_at`)."""
    return combine(
        option("--warehouse", "DIR", _WAREHOUSE_HELP),
        option("--catalog", "FILE", "YAML file of a catalog: metastore, uri, warehouse, …"),
        option("-c --config", "FILE", f"{about_config}; repeatable", multiple=True),
        _STORE_OPTION,
    )


_WHICH = "Which tables"

TABLES = combine(
    warehouse_or_config(),
    positional("tables", nargs=-1, metavar="[TABLE]...", help="database.table"),
    option("--database", "NAME", "all tables of a database", section=_WHICH),
    option("--including-tables", "REGEX", "tables whose full name matches", section=_WHICH),
    option("--excluding-tables", "REGEX", "exclude tables whose full name matches", section=_WHICH),
)
"""Tables of a warehouse or a configuration (`chosen_tables`, `selected_catalog`)."""


def resolved(arguments: Arguments) -> "Resolved":
    """Resolve the settings of `CONFIGURATION`."""
    from ingest.daemon.configuration import resolve

    return resolve(list(arguments.config), dict(arguments.set))


def settings_at(arguments: Arguments) -> "Settings | None":
    """Load the settings of `warehouse_or_config`; None if a warehouse or a catalog is given."""
    flags = (bool(arguments.config), arguments.warehouse is not None, arguments.catalog is not None)
    if sum(flags) != 1:
        refuse("specify one of --warehouse, --catalog and -c")
    if not arguments.config:
        return None
    from ingest.daemon.configuration import load_settings

    return load_settings([text if text == "-" else Path(text) for text in arguments.config])


def open_catalog(location: str, options: Mapping[str, str] | None = None) -> "Catalog":
    """Open a catalog by its warehouse, or by the YAML file of its options.

    Args:
        location: a warehouse, or the path of a file `*.yaml` or `*.yml` (`read_catalog_file`).
        options: of the store and the catalog, over those of the file.
    """
    from ingest.config.settings_sources import read_catalog_file
    from storage.catalog.catalog import Catalog

    catalog_options = dict(options or {})
    if location.endswith((".yaml", ".yml")):
        catalog_options = {**read_catalog_file(location), **catalog_options}
        location = catalog_options.pop("warehouse", "")
    return Catalog.open(location, catalog_options)


def catalog_at(arguments: Arguments, settings: "Settings | None") -> "Catalog":
    """Open the catalog of `warehouse_or_config`."""
    store_options = dict(arguments.store_option)
    if settings is None:
        return open_catalog(arguments.catalog or arguments.warehouse, store_options)
    sink = settings.sink
    return open_catalog(sink.warehouse, {**sink.options, **sink.catalog, **store_options})


def selected_catalog(arguments: Arguments) -> "Catalog":
    """Open the catalog of `TABLES`."""
    return catalog_at(arguments, settings_at(arguments))


def chosen_tables(arguments: Arguments) -> "Selection":
    """Return the selection of `TABLES`; a usage error if it is empty."""
    from ingest.daemon.maintenance.compact_runs import Selection

    selection = Selection(
        tables=arguments.tables,
        database=arguments.database,
        including=arguments.including_tables,
        excluding=arguments.excluding_tables,
    )
    if not (selection.tables or selection.database or selection.including):
        refuse("specify tables, --database or --including-tables")
    return selection


def catalog_of(arguments: Arguments) -> "Catalog":
    """Open the catalog of `WAREHOUSE`."""
    return open_catalog(arguments.warehouse, dict(arguments.store_option))


def table_of(arguments: Arguments) -> "FileStoreTable | Any":
    """Open the table of `ONE_TABLE`."""
    return catalog_of(arguments).table(arguments.table)


def emit(arguments: Arguments, head: Sequence[str], rows: Sequence[list[Any]], nothing: str) -> int:
    """Print rows, or the text `nothing` if there are none; return exit code 0."""
    if arguments.json:
        sys.stdout.writelines(f"{json_line(dict(zip(head, row, strict=True)))}\n" for row in rows)
    else:
        sys.stdout.write((aligned(head, rows) if rows else nothing) + "\n")
    return 0


def emit_fact(arguments: Arguments, text: str, facts: Mapping[str, Any]) -> int:
    """Print a result: a sentence, or facts as JSON; return exit code 0."""
    sys.stdout.write((json_line(facts) if arguments.json else text) + "\n")
    return 0
