# SPDX-License-Identifier: Apache-2.0
"""How commands name a warehouse and one table, and how they print rows.

Every command prints aligned text, or with `--json` one JSON object per line.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.cli.argument_values import parse_pair, parse_partition
from ingest.observe.text_table import aligned, json_line
from storage.table.catalog import FileSystemCatalog
from storage.table.table import FileStoreTable

__all__ = [
    "add_dry_run",
    "add_json",
    "add_partitions",
    "add_store_options",
    "add_verb",
    "add_warehouse",
    "catalog_of",
    "emit",
    "table_of",
    "tell",
]


def add_warehouse(parser: argparse.ArgumentParser) -> None:
    """Add the warehouse, and options of its store."""
    parser.add_argument("warehouse", help="directory of the databases, or s3://bucket/directory")
    add_store_options(parser)


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add `--store-option`."""
    parser.add_argument(
        "--store-option",
        type=parse_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of an object store, such as s3.endpoint=http://host:port; keep secrets in AWS_…",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add `--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")


def add_partitions(parser: argparse.ArgumentParser, text: str, *, required: bool = False) -> None:
    """Add `--partition`."""
    parser.add_argument(
        "--partition",
        type=parse_partition,
        action="append",
        default=[],
        required=required,
        metavar="COLUMN=VALUE[,…]",
        help=text,
    )


def add_verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    about: str,
    run: Any,
    *,
    details: str = "",
    examples: str = "",
) -> argparse.ArgumentParser:
    """A verb on one table: warehouse, table and `--json`; it sets `run`.

    Args:
        verbs: where it goes.
        name: the word.
        about: one line.
        run: function of the parsed arguments, which gives the exit code.
        details: the description where one line is not enough.
        examples: command lines, one a line.
    """
    parser = verbs.add_parser(
        name,
        help=about,
        description=details or about,
        epilog=f"examples:\n{examples}" if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_warehouse(parser)
    parser.add_argument("table", help="database.table, or database.table$branch_name")
    add_json(parser)
    parser.set_defaults(run=run)
    return parser


def catalog_of(arguments: argparse.Namespace) -> FileSystemCatalog:
    """The catalog that `add_warehouse` names."""
    return FileSystemCatalog(arguments.warehouse, options=dict(arguments.store_option))


def table_of(arguments: argparse.Namespace) -> FileStoreTable:
    """The table that `add_verb` names."""
    return catalog_of(arguments).table(arguments.table)


def emit(
    arguments: argparse.Namespace, head: Sequence[str], rows: Sequence[list[Any]], nothing: str
) -> int:
    """Print rows; `nothing` when there are none. The exit code 0."""
    if arguments.json:
        sys.stdout.writelines(f"{json_line(dict(zip(head, row, strict=True)))}\n" for row in rows)
    else:
        sys.stdout.write((aligned(head, rows) if rows else nothing) + "\n")
    return 0


def tell(arguments: argparse.Namespace, text: str, facts: Mapping[str, Any]) -> int:
    """Print what was done: a sentence, or facts as JSON. The exit code 0."""
    sys.stdout.write((json_line(facts) if arguments.json else text) + "\n")
    return 0
