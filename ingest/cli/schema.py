# SPDX-License-Identifier: Apache-2.0
"""`lakeward schema`: the JSON Schema of configuration files."""

import argparse
import json

from ingest.config.json_schema import json_schema

__all__ = ["add_schema_command"]

_ABOUT = """\
Prints the JSON Schema of configuration files. Editors with a YAML language server complete and
check a file by it whose first line is

  # yaml-language-server: $schema=lakeward.schema.json

`lakeward validate` checks more: values against each other, expressions, files, variables."""

_EXAMPLES = """\
examples:
  lakeward schema > lakeward.schema.json
"""


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
