# SPDX-License-Identifier: Apache-2.0
"""A server of a test as a child process: started, awaited, killed, stopped; its log in a file."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.availability import PartUnavailableError

START_TIMEOUT_S = 240.0
"""Long, since a busy machine of two cores starts a JVM server in a minute."""

UNPRIVILEGED = "nobody"


class ServerProcess:
    """One server that can be killed and started again.

    Args:
        command: with absolute program.
        log: file that its output is appended to.
        user: to run as; None = this process's.
        environment: added to this process's.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = list(command)
        self.log = log
        self._user = as_user(user)
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], bool], timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait until it answers.

        Raises:
            PartUnavailableError: it ended or did not answer in time.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.log.parent,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                **self._user,
            )
        deadline = time.monotonic() + timeout_s
        while not ready():
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                raise PartUnavailableError(
                    f"{self.command[0]} did not start (exit code {code}):\n{self.log_tail()}"
                )
            time.sleep(0.2)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, to it and what it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def stop(self, signal_number: int = signal.SIGTERM, timeout_s: float = 30.0) -> None:
        """Ask it to end; SIGKILL when it does not."""
        if self._process is None:
            return
        self._process.send_signal(signal_number)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def log_tail(self, characters: int = 3000) -> str:
        """The end of the log, for failure messages."""
        return self.log.read_text(errors="replace")[-characters:]


def runs_as() -> str | None:
    """Whom to run servers as that refuse root; None = as we are."""
    return UNPRIVILEGED if os.geteuid() == 0 else None


def as_user(user: str | None) -> dict[str, Any]:
    """Settings with which `subprocess` starts a process of a user."""
    return {"user": user, "group": "nogroup", "extra_groups": []} if user else {}


@contextlib.contextmanager
def server_folder(name: str) -> Iterator[Path]:
    """A temporary folder that an unprivileged server may write to."""
    folder = Path(tempfile.mkdtemp(prefix=f"lakeward-{name}-"))
    try:
        user = runs_as()
        if user:
            shutil.chown(folder, user, "nogroup")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reachable(path: Path) -> bool:
    """Whether everybody may go down to a path."""
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))
