# SPDX-License-Identifier: Apache-2.0
"""Memory of the processes of one session, sampled while they work."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.sessions import session_processes

_PROPORTIONAL = re.compile(r"^Pss_(Anon|File):\s+(\d+) kB$", re.MULTILINE)


class MemorySamples:
    """Memory [MB] of a daemon's own process, its Java machine and its workers.

    A page that processes share, as forked workers do, is divided among them (`Pss`): the sum is
    what a pod's limit counts. Pages of mapped files, as the local copies for lookups are, count by
    themselves: the system takes them back when it needs them.

    Args:
        leader: process that leads the session.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self.taken: list[dict[str, int]] = []

    def take(self) -> None:
        """Look once; processes that end meanwhile do not count."""
        parts = ("driver", "java", "workers")
        kilobytes = dict.fromkeys([*parts, *(f"{part} mapped" for part in parts)], 0)
        for pid, name in session_processes(self._leader):
            try:
                program = os.readlink(f"/proc/{pid}/exe")
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(errors="replace")
            except OSError:
                continue
            if name != "java" and program.endswith("/java"):
                continue  # a command that Java starts, until then in Java's own memory (vfork(2))
            resident = dict(_PROPORTIONAL.findall(rollup))
            own = pid == self._leader
            part = "driver" if own else "java" if name == "java" else "workers"
            kilobytes[part] += int(resident.get("Anon", 0))
            kilobytes[f"{part} mapped"] += int(resident.get("File", 0))
        self.taken.append({part: size // 1024 for part, size in kilobytes.items()})

    def by_part(self, count: int, figure: Callable[[list[int]], float]) -> dict[str, list[int]]:
        """A figure of the samples of each of so many parts of the time [MB]."""
        if not self.taken:
            return {}
        size = -(-len(self.taken) // count)
        parts = [self.taken[at : at + size] for at in range(0, len(self.taken), size)]
        return {
            name: [round(figure([one[name] for one in part])) for part in parts]
            for name in self.taken[0]
        }
