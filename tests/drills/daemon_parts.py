# SPDX-License-Identifier: Apache-2.0
"""The processes that a daemon consists of."""

import contextlib
from pathlib import Path

from tests.sessions import session_processes

EXECUTOR = "CoarseGrainedExecutorBackend"


def java_processes(leader: int) -> list[int]:
    """Java machines of the session that `leader` leads: the driver's own and those of executors."""
    return [pid for pid, name in session_processes(leader) if name == "java"]


def executors(leader: int) -> list[int]:
    """Executors that are processes of their own."""
    found = []
    for pid in java_processes(leader):
        with contextlib.suppress(OSError):
            if EXECUTOR in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                found.append(pid)
    return found
