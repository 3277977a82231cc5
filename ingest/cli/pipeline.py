# SPDX-License-Identifier: Apache-2.0
"""`lakeward status|pause|resume|reload`: look at a running pipeline, and ask it for something.

Commands reach the daemon through files of the warehouse (`ingest.daemon.requests`), so they work
from any machine that reaches the warehouse, and also while no daemon runs.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from ingest.cli.commands import Arguments, combine, command, flag, option, positional, refuse
from ingest.cli.parameters import CONFIGURATION, DURATION_S, SECONDS, configuration, resolved

__all__ = ["WAITING", "ask_command", "pause", "reload", "resume", "status"]

_STATUS = """\
Show the state of a pipeline and its tables.

What the warehouse says about a pipeline, and its daemon if one answers. The daemon is asked at
`metrics.host` and `metrics.port`, or at --url; with --url alone, nothing else is asked."""

_STATUS_EXAMPLES = """\
Examples:
  lakeward status -c shop.yaml
  lakeward status -c shop.yaml --json
  lakeward status -c shop.yaml --check --max-freshness 5m     for scripts and cron
  lakeward status --url http://lakeward:9108 --check          from elsewhere, without the warehouse

Exit codes with --check (without it, 0 whenever the question could be asked):
   0  a daemon answers and is ready, no table is parked or unreadable, none is older than allowed
   1  something of this is not so; standard error says what
  69  no daemon answers
"""


@command(
    "status",
    _STATUS,
    configuration(required=False),
    option("--url", "URL", "where the daemon's endpoint is"),
    flag("--json", "as one JSON object"),
    flag("--check", "exit code says whether all is well"),
    option(
        "--max-freshness",
        DURATION_S,
        "with --check: how old the newest change of a table may be, such as 5m",
    ),
    examples=_STATUS_EXAMPLES,
)
def status(arguments: Arguments) -> int:
    """Print the state; with --check the exit code says whether all is well."""
    from ingest.tools.pipeline_status import pipeline_status, problems_of, status_at, status_text

    if not arguments.config and arguments.url is None:
        refuse("name the configuration with -c, or the daemon with --url")
    if arguments.max_freshness is not None and not arguments.check:
        refuse("--max-freshness goes with --check")
    if arguments.config:
        found = pipeline_status(resolved(arguments).settings, arguments.url)
    else:
        found = status_at(arguments.url)
    problems = problems_of(found, arguments.max_freshness) if arguments.check else []
    if arguments.json:
        more = {"problems": [each.text for each in problems]} if arguments.check else {}
        print(json.dumps({**found, **more}, indent=2))
    else:
        print(status_text(found))
    for each in problems:
        print(f"lakeward: {each.text}", file=sys.stderr)
    return max((int(each.exit_code) for each in problems), default=0)


_PAUSE = """\
Park tables, or pause the whole stream.

The events of parked tables are left alone from the next batch on, and the other tables flow.
Nothing is lost: `resume` reads again what was left out, as far as the source still has it.

With --stream the whole stream: it reads nothing more after the batch that is planned, restarts
included, until `resume --stream`. The daemon keeps running and keeps its offsets in the source."""

_RESUME = """\
Write parked tables again, or resume the stream.

The stream goes back to where the tables were parked; rows that other tables have already are
dropped on the way. It needs the source's records since then: when retention removed them, the
command says so, and the table stays parked. With --stream a stream that was paused as a whole
resumes."""

_RELOAD = """\
Read the configuration again.

The daemon reads its configuration files again (SIGHUP does the same) and continues with the new
settings after the batch in progress: topics, routes, tables, trigger. With any mistake, or a change
of what is fixed while it runs, it reports it and continues as before."""


def _examples(name: str) -> str:
    return f"""\
Examples:
  lakeward {name} -c shop.yaml shop.orders shop.items
  lakeward {name} -c shop.yaml shop.orders --no-wait
  lakeward {name} -c shop.yaml --stream
"""


WAITING = combine(
    flag("--no-wait", "leave the request and exit at once"),
    option(
        "--timeout",
        SECONDS,
        "how long to wait for the daemon's answer (default: 120)",
        default=120.0,
    ),
    flag("--json", "the answer as one JSON object"),
)
"""Options of a command that asks the daemon for something (`ask_command`)."""

_WHAT = combine(
    positional("tables", nargs=-1, metavar="[TABLE]...", help="database.table"),
    flag("--stream", "the whole stream, not tables"),
)


def _check_what(arguments: Arguments) -> None:
    if arguments.stream == bool(arguments.tables):
        refuse("name tables, or give --stream for the whole stream")


def ask_command(arguments: Arguments, kind: str, request: Mapping[str, Any]) -> int:
    """Ask for something and print the answer; the exit code.

    Raises:
        LakewardError: the daemon refused, or did not answer in time.
    """
    from ingest.daemon.requests.asking import AskOptions, ask_and_wait

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


@command(
    "pause",
    _PAUSE,
    CONFIGURATION,
    _WHAT,
    option("--reason", "TEXT", "shown by `status` and the status page"),
    flag("--unknown", "also tables that do not exist (yet)"),
    WAITING,
    examples=_examples("pause"),
)
def pause(arguments: Arguments) -> int:
    """Ask the daemon to park tables, or to pause."""
    _check_what(arguments)
    if arguments.stream:
        return ask_command(arguments, "pause_stream", {"reason": arguments.reason or ""})
    request = {
        "tables": list(arguments.tables),
        "reason": arguments.reason or "",
        "unknown": arguments.unknown,
    }
    return ask_command(arguments, "pause", request)


@command(
    "resume",
    _RESUME,
    CONFIGURATION,
    _WHAT,
    flag(
        "--skip-missed",
        "resume from now and leave out what was missed, for tables that are snapshotted again",
    ),
    WAITING,
    examples=_examples("resume"),
)
def resume(arguments: Arguments) -> int:
    """Ask the daemon to write parked tables again, or to resume."""
    _check_what(arguments)
    if arguments.stream:
        return ask_command(arguments, "resume_stream", {})
    request = {"tables": list(arguments.tables), "skip_missed": arguments.skip_missed}
    return ask_command(arguments, "resume", request)


@command(
    "reload",
    _RELOAD,
    CONFIGURATION,
    WAITING,
    examples="Examples:\n  lakeward reload -c shop.yaml\n",
)
def reload(arguments: Arguments) -> int:
    """Ask the daemon to read its configuration."""
    resolved(arguments)  # a mistake shows here at once
    return ask_command(arguments, "reload", {})
