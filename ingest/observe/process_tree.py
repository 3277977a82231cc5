# SPDX-License-Identifier: Apache-2.0
"""Memory and CPU time of this process and its descendants, read from /proc.

The driver's JVM and the Python workers of its tasks are descendants of this process; executors of a
cluster are not included. Without /proc the values are unknown.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["GROUPS", "ProcessTree", "TreeUse"]

GROUPS = ("driver", "jvm", "workers")

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


@dataclasses.dataclass(frozen=True, slots=True)
class TreeUse:
    """Resource usage by group of processes.

    Attributes:
        resident: resident memory by group [bytes].
        cpu_s: CPU time by group, including that of reaped children [s].
    """

    resident: Mapping[str, int]
    cpu_s: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    name: str
    cpu_s: float
    resident: int


class ProcessTree:
    """See the module.

    Args:
        root: id of the root process; None = this one.
        proc: mount point of procfs.
    """

    def __init__(self, root: int | None = None, proc: Path = _PROC) -> None:
        self._root = os.getpid() if root is None else root
        self._proc = proc

    def use(self) -> TreeUse | None:
        """Return the current usage; None if it is unknown."""
        stats = self._stats()
        if self._root not in stats:
            return None
        children: dict[int, list[int]] = {}
        for pid, stat in stats.items():
            children.setdefault(stat.parent, []).append(pid)
        resident, cpu_s = dict.fromkeys(GROUPS, 0), dict.fromkeys(GROUPS, 0.0)
        waiting = [(self._root, "driver")]
        while waiting:
            pid, group = waiting.pop()
            resident[group] += stats[pid].resident
            cpu_s[group] += stats[pid].cpu_s
            for child in children.get(pid, ()):
                below = "jvm" if group == "driver" and stats[child].name == "java" else "workers"
                waiting.append((child, below))
        return TreeUse(resident, cpu_s)

    def _stats(self) -> dict[int, _Stat]:
        found = {}
        try:
            names = [entry.name for entry in self._proc.iterdir() if entry.name.isdigit()]
        except OSError:
            return {}
        for name in names:
            try:
                text = (self._proc / name / "stat").read_text(encoding="ascii", errors="replace")
            except OSError:
                continue  # the process has exited
            found[int(name)] = _parsed(text)
        return found


def _parsed(text: str) -> _Stat:
    """Parse a line of `stat`: the name is in brackets and may contain brackets and spaces."""
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    ticks = sum(int(rest[index]) for index in (11, 12, 13, 14))
    return _Stat(int(rest[1]), name, ticks / _TICKS, int(rest[21]) * _PAGE)
