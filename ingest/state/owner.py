# SPDX-License-Identifier: Apache-2.0
"""Which process an owner of a stream is, and whether it is surely gone.

Another machine's process is never surely gone: only that it has not been heard of says something
(`ingest.state.lease`). On this machine the process table knows, so that a daemon that was killed
is followed at once by the next.
"""

import dataclasses
import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["INSTANCE_VARIABLE", "Owner"]

INSTANCE_VARIABLE = "LAKEWARD_INSTANCE"
"""Environment variable with a name of which at most one process lives at any time, such as the UID
of a Kubernetes pod: its containers follow one another."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process.

    Attributes:
        token: unique for every start.
        host: name of the machine, for people.
        pid: process id, as the process sees itself.
        since_ms: start by the wall clock [epoch ms], for people.
        boot: of the machine; empty = not known.
        namespace: in which `pid` means something.
        ticks: start time of the process in the machine's own ticks.
        instance: see `INSTANCE_VARIABLE`; empty = none.
    """

    token: str
    host: str
    pid: int
    since_ms: int
    boot: str = ""
    namespace: str = ""
    ticks: str = ""
    instance: str = ""

    @staticmethod
    def this_process(now_ms: int) -> "Owner":
        """The process that asks."""
        pid = os.getpid()
        return Owner(
            token=secrets.token_hex(8),
            host=socket.gethostname(),
            pid=pid,
            since_ms=now_ms,
            boot=_boot(),
            namespace=_namespace(),
            ticks=_ticks(pid),
            instance=os.environ.get(INSTANCE_VARIABLE, ""),
        )

    @staticmethod
    def of(raw: Mapping[str, Any]) -> "Owner":
        """From what `dataclasses.asdict` made; members of later versions are left out."""
        names = {field.name for field in dataclasses.fields(Owner)}
        return Owner(**{key: value for key, value in raw.items() if key in names})

    def surely_gone(self, me: "Owner") -> bool:
        """Whether the process has ended, for certain.

        Args:
            me: the process that asks.
        """
        if self.token == me.token:
            return False
        here = bool(self.boot and self.ticks) and self.boot == me.boot
        if here and self.namespace and self.namespace == me.namespace:
            return _ticks(self.pid) != self.ticks
        return bool(self.instance) and self.instance == me.instance

    def __str__(self) -> str:
        return f"{self.host}, pid {self.pid}"


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _ticks(pid: int) -> str:
    """When a process started; empty = there is none, or it has ended and waits for its parent."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
