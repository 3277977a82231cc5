# SPDX-License-Identifier: Apache-2.0
"""The processes that a daemon consists of, found in the system's process table."""

from pathlib import Path

_SESSION = 3  # of what follows the name in /proc/<pid>/stat
EXECUTOR = "CoarseGrainedExecutorBackend"


def java_processes(leader: int) -> list[int]:
    """Java machines of the session that `leader` leads: the driver's own and those of executors."""
    return [pid for pid, _ in _session(leader)]


def executors(leader: int) -> list[int]:
    """Executors that are processes of their own."""
    return [pid for pid, command in _session(leader) if EXECUTOR in command]


def _session(leader: int) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (path / "stat").read_text(errors="replace").split("(", 1)[1].rsplit(")", 1)
            if name != "java" or int(rest.split()[_SESSION]) != leader:
                continue
            command = (path / "cmdline").read_text(errors="replace").replace("\0", " ")
        except (OSError, IndexError):
            continue
        found.append((int(path.name), command))
    return sorted(found)
