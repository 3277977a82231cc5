# SPDX-License-Identifier: Apache-2.0
"""`lakeward status|pause|resume|reload`: look at a running pipeline, and tell it something.

Commands reach the daemon through files of the warehouse (`ingest.requests`), so they work from any
machine that reaches the warehouse, and also while no daemon runs.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from ingest.commands.config_arguments import add_configuration, resolved
from ingest.observing.pipeline_status import pipeline_status, status_text
from ingest.requests.asking import AskOptions, ask_and_wait

__all__ = ["add_pipeline_commands", "add_waiting", "ask_command"]

_PAUSE = """Parks tables: their events are left alone from the next batch on, and the other tables
flow. Nothing is lost: `resume` reads again what was left out, as far as the source still has it."""

_RESUME = """Writes parked tables again. The stream goes back to where they were parked; rows that
other tables have already are dropped on the way. It needs the source's records since then: when
retention took them, the command says so, and the table stays parked."""

_RELOAD = """The daemon reads its configuration files again (SIGHUP does the same) and goes on with
the new settings after the batch in progress: topics, routes, tables, trigger. With any mistake, or
a change of what is fixed while it runs, it says so and goes on as before."""

_EXAMPLES = """\
examples:
  lakeward {name} -c shop.yaml shop.orders shop.items
  lakeward {name} -c shop.yaml shop.orders --no-wait
"""


def add_pipeline_commands(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands; each sets `run` to a function of the parsed arguments."""
    status = parent.add_parser(
        "status",
        help="state of a pipeline and its tables: running, parked, why, how far behind",
        description="What the warehouse says about a pipeline, and its daemon if one answers.",
    )
    add_configuration(status)
    status.add_argument("--json", action="store_true", help="as one JSON object")
    status.set_defaults(run=_status)
    pause = _add(parent, "pause", "park tables: the others flow", _PAUSE)
    pause.add_argument("tables", nargs="+", metavar="TABLE", help="database.table")
    pause.add_argument("--reason", metavar="TEXT", help="shown by `status` and the status page")
    pause.add_argument("--unknown", action="store_true", help="also tables that do not exist (yet)")
    pause.set_defaults(run=_pause)
    resume = _add(parent, "resume", "write parked tables again", _RESUME)
    resume.add_argument("tables", nargs="+", metavar="TABLE", help="database.table")
    resume.add_argument(
        "--skip-missed",
        action="store_true",
        help="go on from now and leave out what was missed, for tables that are snapshotted again",
    )
    resume.set_defaults(run=_resume)
    reload = _add(parent, "reload", "read the configuration again", _RELOAD, examples=False)
    reload.set_defaults(run=_reload)


def _add(
    parent: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    about: str,
    description: str,
    *,
    examples: bool = True,
) -> argparse.ArgumentParser:
    parser = parent.add_parser(
        name,
        help=about,
        description=description,
        epilog=_EXAMPLES.format(name=name) if examples else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_configuration(parser)
    add_waiting(parser)
    return parser


def add_waiting(parser: argparse.ArgumentParser) -> None:
    """Options of a command that asks the daemon for something."""
    parser.add_argument("--no-wait", action="store_true", help="leave the request and end at once")
    parser.add_argument(
        "--timeout",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long to wait for the daemon's answer (default: 120)",
    )
    parser.add_argument("--json", action="store_true", help="the answer as one JSON object")


def ask_command(arguments: argparse.Namespace, kind: str, request: Mapping[str, Any]) -> int:
    """Ask for something and print the answer; the exit code.

    Raises:
        LakewardError: the daemon refused, or did not answer in time.
    """
    options = AskOptions(wait=not arguments.no_wait, timeout_s=arguments.timeout)
    answer = ask_and_wait(resolved(arguments).settings, kind, request, options)
    if answer is None:
        text = "asked; the daemon does it between two batches, or at its next start"
        print(json.dumps({"state": "waiting"}) if arguments.json else text)
    elif arguments.json:
        print(json.dumps({"state": "done", "text": answer.text, **answer.result}))
    else:
        print(answer.text)
    return 0


def _pause(arguments: argparse.Namespace) -> int:
    request = {
        "tables": arguments.tables,
        "reason": arguments.reason or "",
        "unknown": arguments.unknown,
    }
    return ask_command(arguments, "pause", request)


def _resume(arguments: argparse.Namespace) -> int:
    request = {"tables": arguments.tables, "skip_missed": arguments.skip_missed}
    return ask_command(arguments, "resume", request)


def _reload(arguments: argparse.Namespace) -> int:
    resolved(arguments)  # a mistake shows here at once
    return ask_command(arguments, "reload", {})


def _status(arguments: argparse.Namespace) -> int:
    status = pipeline_status(resolved(arguments).settings)
    print(json.dumps(status, indent=2) if arguments.json else status_text(status))
    return 0
