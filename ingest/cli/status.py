# SPDX-License-Identifier: Apache-2.0
"""`lakeward status`: a pipeline and its tables, for people, programs, probes and scripts."""

import argparse
import json
import sys

from ingest.cli.argument_values import parse_duration_s
from ingest.cli.config_arguments import add_configuration, resolved
from ingest.tools.pipeline_status import (
    pipeline_status,
    problems_of,
    status_at,
    status_text,
)

__all__ = ["add_status_command"]

_ABOUT = """What the warehouse says about a pipeline, and its daemon if one answers. The daemon is
asked at `metrics.host` and `metrics.port`, or at --url; with --url alone, nothing else is asked."""

_EXAMPLES = """\
examples:
  lakeward status -c shop.yaml
  lakeward status -c shop.yaml --json
  lakeward status -c shop.yaml --check --max-freshness 5m     for scripts and cron
  lakeward status --url http://lakeward:9108 --check          from elsewhere, without the warehouse

exit codes with --check (without it, 0 whenever the question could be asked):
   0  a daemon answers and is ready, no table is parked or unreadable, none is older than allowed
   1  something of this is not so; standard error says what
  69  no daemon answers
"""


def add_status_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `status`; it sets `run`."""
    parser = parent.add_parser(
        "status",
        help="state of a pipeline and its tables: running, parked, why, how far behind",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser, required=False)
    parser.add_argument("--url", metavar="URL", help="where the daemon's endpoint is")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--check", action="store_true", help="exit code says whether all is well")
    parser.add_argument(
        "--max-freshness",
        type=parse_duration_s,
        metavar="TIME",
        help="with --check: how old the newest change of a table may be, such as 5m",
    )
    parser.set_defaults(run=_status, parser=parser)


def _status(arguments: argparse.Namespace) -> int:
    if not arguments.config and arguments.url is None:
        arguments.parser.error("name the configuration with -c, or the daemon with --url")
    if arguments.max_freshness is not None and not arguments.check:
        arguments.parser.error("--max-freshness goes with --check")
    if arguments.config:
        status = pipeline_status(resolved(arguments).settings, arguments.url)
    else:
        status = status_at(arguments.url)
    problems = problems_of(status, arguments.max_freshness) if arguments.check else []
    if arguments.json:
        more = {"problems": [each.text for each in problems]} if arguments.check else {}
        print(json.dumps({**status, **more}, indent=2))
    else:
        print(status_text(status))
    for each in problems:
        print(f"lakeward: {each.text}", file=sys.stderr)
    return max((int(each.exit_code) for each in problems), default=0)
