# SPDX-License-Identifier: Apache-2.0
"""`-c FILE` and `--set KEY=VALUE` name the configuration of a command; `schema` describes it."""

import argparse
import json

from ingest.cli.argument_values import parse_pair
from ingest.config.json_schema import json_schema
from ingest.config.loading import Resolved
from ingest.daemon.configuration import resolve

__all__ = ["add_configuration", "add_schema_command", "resolved"]

_ABOUT = """\
Prints the JSON Schema of configuration files. Editors with a YAML language server complete and
check a file by it whose first line is

  # yaml-language-server: $schema=lakeward.schema.json

`lakeward validate` checks more: values against each other, expressions, files, variables."""

_EXAMPLES = """\
examples:
  lakeward schema > lakeward.schema.json
"""


def add_configuration(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the two options; without `required` there may be no file."""
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        required=required,
        metavar="FILE",
        help="YAML file; may be repeated, later ones win; - is standard input",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        type=parse_pair,
        help="one setting, over files and environment",
    )


def resolved(arguments: argparse.Namespace) -> Resolved:
    """The settings that the options name."""
    return resolve(arguments.config, dict(arguments.set))


def add_schema_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `schema`; it sets `run`."""
    parser = parent.add_parser(
        "schema",
        help="the JSON Schema of configuration files, for editors",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_schema)


def _schema(arguments: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0
