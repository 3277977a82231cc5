# SPDX-License-Identifier: Apache-2.0
"""`lakeward doctor`: gathers what somebody needs to help, without secrets."""

import argparse
import datetime
import json
import sys
from pathlib import Path

from ingest.cli.config_arguments import add_configuration, resolved
from ingest.tools.support_bundle import write_bundle
from storage.clock import SystemClock
from storage.errors import InvalidRequestError

__all__ = ["add_doctor_command"]

_ABOUT = """Writes an archive for whoever is to help: versions, this machine, the settings in force,
what `validate --check` finds, the daemon's pages and metrics, the stream's own state, and of
tables the newest snapshots and what their files are like. It changes nothing and needs no daemon.

No rows, keys or payloads are in it, and the values of secret settings are starred wherever they
stand, in logs too. Names of tables, columns, topics and hosts are in it."""

_EXAMPLES = """\
examples:
  lakeward doctor -c shop.yaml
  lakeward doctor -c shop.yaml --table shop.orders --log /var/log/lakeward.log
  lakeward doctor -c shop.yaml --offline -o /tmp/shop.tar.gz
"""


def add_doctor_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `doctor`; it sets `run`."""
    parser = parent.add_parser(
        "doctor",
        help="an archive with what somebody needs to help, without secrets",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: lakeward-NAME-TIME.tar.gz here"
    )
    parser.add_argument("--url", metavar="URL", help="where the daemon's endpoint is")
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="look at this one closely; repeatable (default: up to 50, parked ones first)",
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="put the end of this log file in, too; repeatable",
    )
    parser.add_argument("--offline", action="store_true", help="ask neither broker nor registry")
    parser.add_argument("--json", action="store_true", help="the parts as one JSON object")
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    given = resolved(arguments)
    now = datetime.datetime.fromtimestamp(SystemClock().now_ms() / 1000, datetime.UTC)
    default = Path(f"lakeward-{given.settings.pipeline.name}-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    target: Path = arguments.output or default
    if target.exists():
        raise InvalidRequestError("there is such a file already", hint="name another", path=target)
    parts = write_bundle(
        target,
        given,
        url=arguments.url,
        tables=arguments.table,
        logs=arguments.log,
        ask=not arguments.offline,
        told=lambda part: print(f"  {part}", file=sys.stderr),
    )
    missing = {path: why for path, why in parts if why is not None}
    if arguments.json:
        document = {"bundle": str(target), "parts": [path for path, _ in parts], "missing": missing}
        print(json.dumps(document))
        return 0
    for path, why in missing.items():
        print(f"missing: {path}: {why}")
    print(f"{target}, {target.stat().st_size:,} bytes; look at it before you send it")
    return 0
