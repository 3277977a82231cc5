# SPDX-License-Identifier: Apache-2.0
"""`lakeward status|pause|resume|reload`: look at a running pipeline, and tell it something.

Commands reach the daemon through files of the warehouse (`ingest.daemon.requests`), so they work
from any
machine that reaches the warehouse, and also while no daemon runs.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from ingest.cli.config_arguments import add_configuration, resolved
from ingest.cli.status import add_status_command
from ingest.daemon.requests.asking import AskOptions, ask_and_wait

__all__ = ["add_pipeline_commands", "add_waiting", "ask_command"]

_PAUSE = """Parks tables: their events are left alone from the next batch on, and the other tables
flow. Nothing is lost: `resume` reads again what was left out, as far as the source still has it.

With --stream the whole stream: it reads nothing more after the batch that is planned, restarts
included, until `resume --stream`. The daemon lives on and keeps its place in the source."""

_RESUME = """Writes parked tables again. The stream goes back to where they were parked; rows that
other tables have already are dropped on the way. It needs the source's records since then: when
retention took them, the command says so, and the table stays parked. With --stream a stream that
was paused as a whole goes on."""

_RELOAD = """The daemon reads its configuration files again (SIGHUP does the same) and goes on with
the new settings after the batch in progress: topics, routes, tables, trigger. With any mistake, or
a change of what is fixed while it runs, it says so and goes on as before."""

_EXAMPLES = """\
examples:
  lakeward {name} -c shop.yaml shop.orders shop.items
  lakeward {name} -c shop.yaml shop.orders --no-wait
  lakeward {name} -c shop.yaml --stream
"""


def add_pipeline_commands(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands; each sets `run` to a function of the parsed arguments."""
    add_status_command(parent)
    pause = _add(parent, "pause", "park tables: the others flow; or the whole stream", _PAUSE)
    _add_what(pause)
    pause.add_argument("--reason", metavar="TEXT", help="shown by `status` and the status page")
    pause.add_argument("--unknown", action="store_true", help="also tables that do not exist (yet)")
    pause.set_defaults(run=_pause)
    resume = _add(parent, "resume", "write parked tables again; or go on with the stream", _RESUME)
    _add_what(resume)
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


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="database.table")
    parser.add_argument("--stream", action="store_true", help="the whole stream, not tables")
    parser.set_defaults(parser=parser)


def _check_what(arguments: argparse.Namespace) -> None:
    if arguments.stream == bool(arguments.tables):
        arguments.parser.error("name tables, or say --stream for the whole stream")


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
    _check_what(arguments)
    if arguments.stream:
        return ask_command(arguments, "pause_stream", {"reason": arguments.reason or ""})
    request = {
        "tables": arguments.tables,
        "reason": arguments.reason or "",
        "unknown": arguments.unknown,
    }
    return ask_command(arguments, "pause", request)


def _resume(arguments: argparse.Namespace) -> int:
    _check_what(arguments)
    if arguments.stream:
        return ask_command(arguments, "resume_stream", {})
    request = {"tables": arguments.tables, "skip_missed": arguments.skip_missed}
    return ask_command(arguments, "resume", request)


def _reload(arguments: argparse.Namespace) -> int:
    resolved(arguments)  # a mistake shows here at once
    return ask_command(arguments, "reload", {})
