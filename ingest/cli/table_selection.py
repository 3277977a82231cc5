# SPDX-License-Identifier: Apache-2.0
"""How maintenance commands name many tables: a warehouse or a configuration, names and patterns."""

import argparse
from pathlib import Path

from ingest.cli.table_arguments import add_store_options
from ingest.config.settings import Settings
from ingest.daemon.configuration import load_settings
from ingest.daemon.maintenance.compact_runs import Selection
from storage.table.catalog import FileSystemCatalog

__all__ = [
    "add_place",
    "add_selection",
    "catalog_at",
    "chosen_tables",
    "selected_catalog",
    "settings_at",
]


def add_place(
    parser: argparse.ArgumentParser,
    about_config: str = "configuration of a pipeline: its warehouse and store are used",
) -> None:
    """Add where the tables are: `--warehouse` or `-c`, and options of the store."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--warehouse", metavar="DIR", help="directory of the databases, or s3://bucket/directory"
    )
    where.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="FILE",
        help=f"{about_config}; may be repeated",
    )
    add_store_options(parser)


def settings_at(arguments: argparse.Namespace) -> Settings | None:
    """Of the configuration that `add_place` named; None where it named a warehouse."""
    if arguments.config is None:
        return None
    return load_settings([text if text == "-" else Path(text) for text in arguments.config])


def catalog_at(arguments: argparse.Namespace, settings: Settings | None) -> FileSystemCatalog:
    """The catalog of that place."""
    given = dict(arguments.store_option)
    if settings is None:
        return FileSystemCatalog(arguments.warehouse, options=given)
    return FileSystemCatalog(settings.sink.warehouse, options={**settings.sink.options, **given})


def add_selection(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """Add where the tables are and which; the group takes what else narrows them."""
    add_place(parser)
    which = parser.add_argument_group("which tables")
    which.add_argument("tables", nargs="*", metavar="TABLE", help="database.table")
    which.add_argument("--database", metavar="NAME", help="all tables of a database")
    which.add_argument(
        "--including-tables", metavar="REGEX", help="whole names database.table that match"
    )
    which.add_argument("--excluding-tables", metavar="REGEX", help="leave these out")
    parser.set_defaults(parser=parser)
    return which


def chosen_tables(arguments: argparse.Namespace) -> Selection:
    """What the arguments choose; a usage error when it is nothing."""
    chosen = Selection(
        tables=tuple(arguments.tables),
        database=arguments.database,
        including=arguments.including_tables,
        excluding=arguments.excluding_tables,
    )
    if not (chosen.tables or chosen.database or chosen.including):
        arguments.parser.error("name tables, or give --database or --including-tables")
    return chosen


def selected_catalog(arguments: argparse.Namespace) -> FileSystemCatalog:
    """The catalog of the warehouse that the arguments name."""
    return catalog_at(arguments, settings_at(arguments))
