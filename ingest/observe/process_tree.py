# SPDX-License-Identifier: Apache-2.0
"""Memory and processor time of this process and of those it started, read from /proc.

The driver's JVM and the Python workers of its tasks are children of this process; on a cluster the
executors are elsewhere and not seen. Where there is no /proc nothing is known.
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
    """What the groups of processes use.

    Attributes:
        resident: memory by group [bytes].
        cpu_s: processor time by group, of children that ended and were waited for too [s].
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
        root: id of the process at the top; None = this one.
        proc: where the kernel tells about processes.
    """

    def __init__(self, root: int | None = None, proc: Path = _PROC) -> None:
        self._root = os.getpid() if root is None else root
        self._proc = proc

    def use(self) -> TreeUse | None:
        """What the processes use now; None where that cannot be known."""
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
                continue  # it has ended
            found[int(name)] = _parsed(text)
        return found


def _parsed(text: str) -> _Stat:
    """A line of `stat`: the name is in brackets and may hold brackets and spaces itself."""
    name = text[text.index("(") + 1 : text.rindex(")")]
    rest = text[text.rindex(")") + 2 :].split()
    ticks = sum(int(rest[index]) for index in (11, 12, 13, 14))
    return _Stat(int(rest[1]), name, ticks / _TICKS, int(rest[21]) * _PAGE)
