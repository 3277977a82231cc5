# SPDX-License-Identifier: Apache-2.0
"""`-c FILE` and `--set KEY=VALUE`: how commands of a pipeline name its configuration."""

import argparse

from ingest.cli.argument_values import parse_pair
from ingest.config.loading import Resolved
from ingest.daemon.configuration import resolve

__all__ = ["add_configuration", "resolved"]


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
