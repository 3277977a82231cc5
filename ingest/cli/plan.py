# SPDX-License-Identifier: Apache-2.0
"""`lakeward plan`: what a pipeline would make of its topics, before it runs."""

import argparse
import json

from ingest.cli.config_arguments import add_configuration, resolved
from ingest.errors import ExitCode
from ingest.observe.text_table import plain
from ingest.tools.plan.outline import as_document
from ingest.tools.plan.plan_text import plan_text
from ingest.tools.plan.planner import planned
from storage.errors import InvalidRequestError

__all__ = ["add_plan_command"]

_ABOUT = """\
Reads some records of the beginning and the end of every topic, decodes them and plays the schema
decisions beside the warehouse. Nothing is written or committed. Shows every topic and table:
columns with their types, key, partitions, buckets, options, transforms; what would go to
quarantine; how types that need care are treated; and what to know before the stream starts.

The exit code is 0 when the plan could be made, whatever it says; with --strict it is 65 when there
is a problem: a table that cannot be written, records that would go to quarantine. 78: the
configuration is wrong. 69 and 77: source, registry or store do not answer, or refuse us."""

_EXAMPLES = """\
examples:
  lakeward plan -c shop.yaml
  lakeward plan -c shop.yaml --estimate            sizes, files and how many buckets
  lakeward plan -c shop.yaml --sample 100000       look at more records of every topic
  lakeward plan -c shop.yaml --json | jq '.tables[].name'
  lakeward plan -c shop.yaml --strict && lakeward run -c shop.yaml
"""


def add_plan_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `plan`; it sets `run`."""
    parser = parent.add_parser(
        "plan",
        help="what would become of the topics: tables, types, keys, buckets, warnings",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser)
    parser.add_argument(
        "--sample",
        type=int,
        default=1000,
        metavar="N",
        help="most records to read of each topic (default: 1000)",
    )
    parser.add_argument(
        "--estimate", action="store_true", help="also rows, bytes, files and buckets of each table"
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit code 65 when there is a problem"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.sample < 1:
        raise InvalidRequestError("--sample must be at least 1")
    settings = resolved(arguments).settings
    outline = planned(settings, records=arguments.sample, estimates=arguments.estimate)
    if arguments.json:
        print(json.dumps(plain(as_document(outline)), indent=2))
    else:
        print(plan_text(outline))
    return int(ExitCode.DATA) if arguments.strict and outline.severe else 0
