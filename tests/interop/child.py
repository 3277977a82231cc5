# SPDX-License-Identifier: Apache-2.0
"""A child process that answers JSON lines with JSON lines."""

import json
import os
import pathlib
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Child", "ChildError"]

STDERR_TAIL = 3_000


class ChildError(Exception):
    """The child answered with an error; the text is its stack trace."""


class Child:
    """One process; started on the first question.

    Args:
        command: the program; it answers each line with an object that has `error` (or null).
        environment: variables beside the inherited ones.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = list(command)
        self._environment = {**os.environ, "TZ": "UTC", "PYTHONPATH": "", **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._log: pathlib.Path | None = None

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask and wait for the answer.

        Raises:
            ChildError: it answered with an error.
            OSError: it ended, or did not answer in time (then it is killed).
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], timeout_s)
        line = process.stdout.readline() if ready else ""
        if not line:
            log = self._log.read_text(errors="replace")[-STDERR_TAIL:] if self._log else ""
            self.close()
            raise OSError(f"no answer from {self._command[0]} within {timeout_s} s:\n{log}")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise ChildError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
        if self._log is not None:
            self._log.unlink(missing_ok=True)
            self._log = None

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            handle, name = tempfile.mkstemp(prefix="lakeward-peer-", suffix=".log")
            self._log = pathlib.Path(name)
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=handle,
                text=True,
                env=self._environment,
            )
            os.close(handle)
        return self._process
