# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, what they stand for, and how rows are printed.

Every command prints aligned text, or with `--json` one JSON object per line.
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
    from storage.table.catalog import FileSystemCatalog
    from storage.table.table import FileStoreTable

__all__ = [
    "CONFIGURATION",
    "COUNT",
    "DRY_RUN",
    "DURATION_MS",
    "DURATION_S",
    "JSON",
    "MOMENT_MS",
    "NAMES",
    "ONE_TABLE",
    "PAIR",
    "PARTITION",
    "PATH",
    "POSITIVE",
    "SECONDS",
    "TABLES",
    "WAREHOUSE",
    "catalog_at",
    "catalog_of",
    "chosen_tables",
    "configuration",
    "emit",
    "emit_fact",
    "partitions",
    "resolved",
    "selected_catalog",
    "settings_at",
    "table_of",
    "warehouse_or_config",
]


def _pair(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("write KEY=VALUE")
    return key.strip(), value


def _partition(text: str) -> dict[str, str]:
    """`COLUMN=VALUE[,COLUMN=VALUE…]`."""
    return dict(_pair(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    """`A,B`, without empty names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _count(text: str) -> int:
    """A whole number from 0."""
    if not text.isdecimal():
        raise ValueError("not a number")
    return int(text)


def _positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("not a number greater than 0")
    return int(text)


def _duration_s(text: str) -> float:
    """A time such as `30s`, `12h` or `7d` [s]."""
    try:
        return float(duration.parse(text))
    except ValueError as error:
        raise ValueError(f"not {error}") from error


def _duration_ms(text: str) -> int:
    """The same [ms]."""
    return int(_duration_s(text) * 1000)


def _moment_ms(text: str) -> int:
    """A moment in ISO 8601 (without zone: UTC), or epoch milliseconds [epoch ms]."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("write 2024-01-31T12:00:00 or epoch ms") from error
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

DRY_RUN = flag("--dry-run", "print what would be done, do nothing")

_STORE_OPTION = option(
    "--store-option",
    PAIR,
    "of an object store, such as s3.endpoint=http://host:port; keep secrets in AWS_…",
    multiple=True,
)

WAREHOUSE = combine(
    positional("warehouse", help="directory of the databases, or s3://bucket/directory"),
    _STORE_OPTION,
)
"""The warehouse, and options of its store (`catalog_of`)."""

ONE_TABLE = combine(
    positional("warehouse", help="directory of the databases, or s3://bucket/directory"),
    positional("table", help="database.table, or database.table$branch_name"),
    _STORE_OPTION,
    JSON,
)
"""One table of a warehouse (`table_of`), and `--json`."""


def configuration(*, required: bool) -> Decorator:
    """`-c FILE` and `--set KEY=VALUE` (`resolved`); without `required` there may be no file."""
    return combine(
        option(
            "-c --config",
            "FILE",
            "YAML file; may be repeated, later ones win; - is standard input",
            multiple=True,
            required=required,
        ),
        option("--set", PAIR, "one setting, over files and environment", multiple=True),
    )


CONFIGURATION = configuration(required=True)


def partitions(text: str, *, required: bool = False, section: str = "Options") -> Decorator:
    """`--partition`, which may be repeated."""
    return option("--partition", PARTITION, text, multiple=True, required=required, section=section)


def warehouse_or_config(
    about_config: str = "configuration of a pipeline: its warehouse and store are used",
) -> Decorator:
    """Where tables are: `--warehouse` or `-c` (`settings_at`, `catalog_at`)."""
    return combine(
        option("--warehouse", "DIR", "directory of the databases, or s3://bucket/directory"),
        option("-c --config", "FILE", f"{about_config}; may be repeated", multiple=True),
        _STORE_OPTION,
    )


_WHICH = "Which tables"

TABLES = combine(
    warehouse_or_config(),
    positional("tables", nargs=-1, metavar="[TABLE]...", help="database.table"),
    option("--database", "NAME", "all tables of a database", section=_WHICH),
    option("--including-tables", "REGEX", "whole names database.table that match", section=_WHICH),
    option("--excluding-tables", "REGEX", "leave these out", section=_WHICH),
)
"""Tables of a warehouse or a configuration (`chosen_tables`, `selected_catalog`)."""


def resolved(arguments: Arguments) -> "Resolved":
    """The settings that `CONFIGURATION` names."""
    from ingest.daemon.configuration import resolve

    return resolve(list(arguments.config), dict(arguments.set))


def settings_at(arguments: Arguments) -> "Settings | None":
    """Of the configuration that `warehouse_or_config` names; None where it names a warehouse."""
    if bool(arguments.config) == (arguments.warehouse is not None):
        refuse("give either --warehouse or -c")
    if not arguments.config:
        return None
    from ingest.daemon.configuration import load_settings

    return load_settings([text if text == "-" else Path(text) for text in arguments.config])


def catalog_at(arguments: Arguments, settings: "Settings | None") -> "FileSystemCatalog":
    """The catalog of that place."""
    from storage.table.catalog import FileSystemCatalog

    given = dict(arguments.store_option)
    if settings is None:
        return FileSystemCatalog(arguments.warehouse, options=given)
    return FileSystemCatalog(settings.sink.warehouse, options={**settings.sink.options, **given})


def selected_catalog(arguments: Arguments) -> "FileSystemCatalog":
    """The catalog of the warehouse that `TABLES` names."""
    return catalog_at(arguments, settings_at(arguments))


def chosen_tables(arguments: Arguments) -> "Selection":
    """The tables that `TABLES` names; a usage error when there are none."""
    from ingest.daemon.maintenance.compact_runs import Selection

    chosen = Selection(
        tables=arguments.tables,
        database=arguments.database,
        including=arguments.including_tables,
        excluding=arguments.excluding_tables,
    )
    if not (chosen.tables or chosen.database or chosen.including):
        refuse("name tables, or give --database or --including-tables")
    return chosen


def catalog_of(arguments: Arguments) -> "FileSystemCatalog":
    """The catalog that `WAREHOUSE` names."""
    from storage.table.catalog import FileSystemCatalog

    return FileSystemCatalog(arguments.warehouse, options=dict(arguments.store_option))


def table_of(arguments: Arguments) -> "FileStoreTable":
    """The table that `ONE_TABLE` names."""
    return catalog_of(arguments).table(arguments.table)


def emit(arguments: Arguments, head: Sequence[str], rows: Sequence[list[Any]], nothing: str) -> int:
    """Print rows; `nothing` when there are none. The exit code 0."""
    if arguments.json:
        sys.stdout.writelines(f"{json_line(dict(zip(head, row, strict=True)))}\n" for row in rows)
    else:
        sys.stdout.write((aligned(head, rows) if rows else nothing) + "\n")
    return 0


def emit_fact(arguments: Arguments, text: str, facts: Mapping[str, Any]) -> int:
    """Print what was done: a sentence, or facts as JSON. The exit code 0."""
    sys.stdout.write((json_line(facts) if arguments.json else text) + "\n")
    return 0
