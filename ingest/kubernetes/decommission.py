# SPDX-License-Identifier: Apache-2.0
"""`lakeward-decommission`: Kubernetes runs it in an executor's pod before terminating it.

Spark puts it into its pods as the `preStop` hook. It makes the executor accept no more
tasks, finish those that run and migrate its shuffle files, and waits until the executor has ended;
work that does not end within the pod's grace period is lost and repeated elsewhere.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from ingest.kubernetes.entrypoint import BACKEND
from storage.clock import Clock, SystemClock

SCRIPT = "lakeward-decommission"

_SIGNAL = signal.SIGPWR
"""`spark.executor.decommission.signal`, of which this is the default."""

_TIMEOUT_S = 600.0
"""Longer than any sensible grace period, whose end also ends this process [s]."""


def executor_process(processes: Path = Path("/proc")) -> int | None:
    """The executor's JVM in this container; None = there is none."""
    for entry in processes.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if BACKEND.encode() in words and Path(os.fsdecode(words[0])).name == "java":
            return int(entry.name)
    return None


def decommission(processes: Path = Path("/proc"), clock: Clock | None = None) -> bool:
    """Signal the executor and wait for its end; whether it ended."""
    clock = clock or SystemClock()
    pid = executor_process(processes)
    if pid is None:
        return True
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, _SIGNAL)
    deadline = clock.monotonic_s() + _TIMEOUT_S
    while executor_process(processes) == pid:
        if clock.monotonic_s() > deadline:
            return False
        clock.sleep(0.2)
    return True


def main() -> int:
    """The exit code of the hook; Kubernetes sends SIGTERM in any case."""
    return 0 if decommission() else 1


if __name__ == "__main__":
    sys.exit(main())
