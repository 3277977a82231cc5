# SPDX-License-Identifier: Apache-2.0
"""How much memory and how many cores this process may use: control groups, then the machine.

The JVM and `os.cpu_count` see the node; a container has a part of it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from storage.errors import InvalidOptionError

CORES_VARIABLE = "LAKEWARD_CORES"
"""Number of cores where no CPU limit is set: Kubernetes shows requests only this way."""

_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 50
"""Version 1 says "no limit" with a number near 2^63 [bytes]."""

_HEAP_SHARE = 0.45
"""Of the limit: the rest is for Python workers, Arrow buffers and the JVM's own (SPARK.md §4)."""

_LEAST_HEAP = 512 << 20
"""Spark refuses to start with less than about 450 MiB [bytes]."""


def memory_limit(groups: Path = _CONTROL_GROUPS) -> int | None:
    """The container's memory limit [bytes]; None = there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = _number(groups / name)
        if limit is not None:
            return limit if limit < _NO_LIMIT else None
    return None


def heap_of(limit: int) -> int:
    """The driver's heap in a container with `limit` bytes of memory [MiB]."""
    return max(_LEAST_HEAP, int(limit * _HEAP_SHARE)) >> 20


def available_cores(
    environ: Mapping[str, str] | None = None, groups: Path = _CONTROL_GROUPS
) -> int:
    """Cores that this process may use, at least 1: `LAKEWARD_CORES`, the CPU limit, the machine.

    Raises:
        InvalidOptionError: `LAKEWARD_CORES` is not a whole number above 0.
    """
    value = (os.environ if environ is None else environ).get(CORES_VARIABLE)
    if value:
        if not value.isdecimal() or int(value) < 1:
            raise InvalidOptionError(
                "not a number of cores", variable=CORES_VARIABLE, value=value, hint="give 1 or more"
            )
        return int(value)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _cpu_quota(groups)
    return max(1, min(usable or 1, quota or usable or 1))


def _cpu_quota(groups: Path) -> int | None:
    """The CPU limit in whole cores, rounded up; None = there is none."""
    words = _text(groups / "cpu.max").split()
    if len(words) != 2:
        words = [_text(groups / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if not all(word.isdecimal() for word in words) or int(words[1]) == 0:  # "max", -1, no file
        return None
    return -(-int(words[0]) // int(words[1]))


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
