# SPDX-License-Identifier: Apache-2.0
"""`lakeward ready`: asks a running daemon whether its pipeline does its work.

It needs the daemon's address only, neither configuration nor warehouse: for `helm test`, scripts
that wait for a start, and probes of platforms that have no HTTP ones.
"""

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.request
from typing import Any

from ingest.errors import ExitCode
from storage.clock import Clock, SystemClock

__all__ = ["add_ready_command", "ask_ready"]

_ABOUT = """Asks the daemon at an address whether its pipeline does its work (`/readyz`), and waits
until it does."""

_EXAMPLES = """\
examples:
  lakeward ready http://shop-lakeward.data.svc:9108 --timeout 120
  lakeward ready http://localhost:9108 --json

exit codes:
    0  ready
   69  not ready in time, or nobody answers; says why
"""

_PAUSE_S = 1.0
_HTTP_TIMEOUT_S = 5.0


def add_ready_command(parent: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `ready`; it sets `run`."""
    parser = parent.add_parser(
        "ready",
        help="ask a running daemon whether its pipeline does its work",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="of the daemon, such as http://localhost:9108")
    parser.add_argument(
        "--timeout",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="how long to ask again (default: once)",
    )
    parser.add_argument("--json", action="store_true", help="the daemon's answer, as it is")
    parser.set_defaults(run=_ready)


def ask_ready(url: str) -> tuple[bool, dict[str, Any]]:
    """Whether the daemon is ready, and its answer: `reasons` says why it is not."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/readyz", timeout=_HTTP_TIMEOUT_S) as answer:
            document = json.loads(answer.read())
        ready = isinstance(document, dict) and document.get("ready") is True
    except urllib.error.HTTPError as error:  # 503: not ready
        try:
            ready, document = False, json.loads(error.read())
        except ValueError:
            return False, {"ready": False, "reasons": [f"{url} answers {error.code}"]}
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return False, {"ready": False, "reasons": [f"{url} does not answer: {reason}"]}
    if not isinstance(document, dict) or "ready" not in document:
        return False, {"ready": False, "reasons": [f"{url} is no Lakeward daemon"]}
    return ready, document


def _ready(arguments: argparse.Namespace, clock: Clock | None = None) -> int:
    clock = clock or SystemClock()
    end_s = clock.monotonic_s() + arguments.timeout
    while True:
        ready, document = ask_ready(arguments.url)
        if ready or clock.monotonic_s() + _PAUSE_S > end_s:
            break
        clock.sleep(_PAUSE_S)
    if arguments.json:
        print(json.dumps(document))
    elif ready:
        print(f"ready ({document.get('state')})")
    else:
        print("not ready", file=sys.stderr)
        for reason in document.get("reasons", ()):
            print(f"  {reason}", file=sys.stderr)
    return int(ExitCode.OK if ready else ExitCode.UNAVAILABLE)
