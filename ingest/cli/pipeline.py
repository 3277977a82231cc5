# SPDX-License-Identifier: Apache-2.0
"""`lakeward status|pause|resume|reload`: state and control of a running pipeline.

Commands reach the daemon through request files in the warehouse (`ingest.daemon.requests`), so they
work from any machine with access to the warehouse, and also while no daemon runs.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from ingest.cli.commands import Arguments, combine, command, flag, option, positional, refuse
from ingest.cli.parameters import CONFIGURATION, DURATION_S, SECONDS, configuration, resolved

_STATUS_EXAMPLES = """\
Examples:
  lakeward status -c shop.yaml
  lakeward status -c shop.yaml --json
  lakeward status -c shop.yaml --check --max-freshness 5m     for scripts and cron
  lakeward status --url http://lakeward:9108 --check          remote, without the warehouse

Exit codes with --check (without it 0, if the state could be read):
   0  healthy: a daemon answers and is ready, no table is parked, unreadable or too old
   1  not healthy; the problems are on standard error
  69  no daemon answers
"""


@command(
    "status",
    configuration(required=False),
    option("--url", "URL", "address of the daemon's HTTP endpoint"),
    flag("--json", "print one JSON object"),
    flag("--check", "report the health in the exit code"),
    option(
        "--max-freshness",
        DURATION_S,
        "with --check: maximum age of the newest change of a table, such as 5m",
    ),
    examples=_STATUS_EXAMPLES,
)
def status(arguments: Arguments) -> int:
    """Show the state of a pipeline and its tables.

    Reads the state in the warehouse, and that of the daemon if one answers at `metrics.host` and
    `metrics.port`, or at --url. With --url alone only the daemon is queried.
    """
    from ingest.tools.pipeline_status import pipeline_status, problems_of, status_at, status_text

    if not arguments.config and arguments.url is None:
        refuse("specify the configuration with -c, or the daemon with --url")
    if arguments.max_freshness is not None and not arguments.check:
        refuse("--max-freshness requires --check")
    if arguments.config:
        document = pipeline_status(resolved(arguments).settings, arguments.url)
    else:
        document = status_at(arguments.url)
    problems = problems_of(document, arguments.max_freshness) if arguments.check else []
    if arguments.json:
        extra = {"problems": [problem.text for problem in problems]} if arguments.check else {}
        print(json.dumps({**document, **extra}, indent=2))
    else:
        print(status_text(document))
    for problem in problems:
        print(f"lakeward: {problem.text}", file=sys.stderr)
    return max((int(problem.exit_code) for problem in problems), default=0)


def _examples(name: str) -> str:
    return f"""\
Examples:
  lakeward {name} -c shop.yaml shop.orders shop.items
  lakeward {name} -c shop.yaml shop.orders --no-wait
  lakeward {name} -c shop.yaml --stream
"""


WAITING = combine(
    flag("--no-wait", "submit the request and exit immediately"),
    option(
        "--timeout",
        SECONDS,
        "time to wait for the daemon's answer (default: 120)",
        default=120.0,
    ),
    flag("--json", "print the answer as one JSON object"),
)
"""Options of a command that sends a request to the daemon (`send_request`)."""

_TARGET = combine(
    positional("tables", nargs=-1, metavar="[TABLE]...", help="database.table"),
    flag("--stream", "the whole stream instead of tables"),
)


def _check_target(arguments: Arguments) -> None:
    if arguments.stream == bool(arguments.tables):
        refuse("specify tables, or --stream for the whole stream")


def send_request(arguments: Arguments, kind: str, request: Mapping[str, Any]) -> int:
    """Send a request to the daemon and print the answer; return the exit code.

    Raises:
        LakewardError: the daemon refused, or did not answer in time.
    """
    from ingest.daemon.requests.request_client import RequestOptions, request_and_wait

    options = RequestOptions(wait=not arguments.no_wait, timeout_s=arguments.timeout)
    answer = request_and_wait(resolved(arguments).settings, kind, request, options)
    if answer is None:
        text = "request submitted; the daemon handles it between two batches or at its next start"
        print(json.dumps({"state": "waiting"}) if arguments.json else text)
    elif arguments.json:
        print(json.dumps({"state": "done", "text": answer.text, **answer.result}))
    else:
        print(answer.text)
    return 0


@command(
    "pause",
    CONFIGURATION,
    _TARGET,
    option("--reason", "TEXT", "shown by `status` and the status page"),
    flag("--unknown", "allow tables that do not exist yet"),
    WAITING,
    examples=_examples("pause"),
)
def pause(arguments: Arguments) -> int:
    """Park tables, or pause the whole stream.

    From the next batch on, events of parked tables are not processed; other tables continue.
    Nothing is lost: `resume` reads the missed events again, as far as the source still has them.

    With --stream the whole stream is paused after the batch in progress, across restarts, until
    `resume --stream`. The daemon keeps running and keeps its offsets.
    """
    _check_target(arguments)
    if arguments.stream:
        return send_request(arguments, "pause_stream", {"reason": arguments.reason or ""})
    request = {
        "tables": list(arguments.tables),
        "reason": arguments.reason or "",
        "unknown": arguments.unknown,
    }
    return send_request(arguments, "pause", request)


@command(
    "resume",
    CONFIGURATION,
    _TARGET,
    flag(
        "--skip-missed",
        "resume at the current offsets without the missed events, before a new snapshot",
    ),
    WAITING,
    examples=_examples("resume"),
)
def resume(arguments: Arguments) -> int:
    """Resume parked tables, or a paused stream.

    The stream goes back to the offsets where the tables were parked; rows that other tables already
    have are skipped. The source must still have the records since then. If they have expired, the
    command says so and the table stays parked. --stream resumes a stream that was paused as a
    whole.
    """
    _check_target(arguments)
    if arguments.stream:
        return send_request(arguments, "resume_stream", {})
    request = {"tables": list(arguments.tables), "skip_missed": arguments.skip_missed}
    return send_request(arguments, "resume", request)


@command(
    "reload",
    CONFIGURATION,
    WAITING,
    examples="Examples:\n  lakeward reload -c shop.yaml\n",
)
def reload(arguments: Arguments) -> int:
    """Reload the configuration.

    The daemon reads its configuration files again (SIGHUP does the same) and applies topics,
    routes, table rules and trigger after the batch in progress. If the configuration is invalid, or
    a setting changed that cannot change at run time, it reports that and continues with the
    previous settings.
    """
    resolved(arguments)  # reports mistakes here, without waiting for the daemon
    return send_request(arguments, "reload", {})
