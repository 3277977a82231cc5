# SPDX-License-Identifier: Apache-2.0
"""All processes of a session, such as a daemon's, found in the system's process table."""

import contextlib
import os
from pathlib import Path

_SESSION = 3  # of what follows the name in /proc/<pid>/stat


def session_processes(leader: int) -> list[tuple[int, str]]:
    """Identifiers and names of the processes of the session that `leader` leads, in order."""
    found: list[tuple[int, str]] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            stat = (path / "stat").read_text(errors="replace")
            name, rest = stat.split("(", 1)[1].rsplit(")", 1)
            if int(rest.split()[_SESSION]) == leader:
                found.append((int(path.name), name))
    return sorted(found)


def signal_session(leader: int, number: int) -> None:
    """Send a signal to each of them."""
    for pid, _ in session_processes(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
