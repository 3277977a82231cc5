# SPDX-License-Identifier: Apache-2.0
"""SIGTERM and SIGINT while a command works: the first lets what is begun end."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from ingest.errors import ExitCode

__all__ = ["StopSignal"]


class StopSignal:
    """The first signal asks to stop, the second ends the process. A context manager.

    Args:
        what: what is finished first, for the line that says so.
    """

    def __init__(self, what: str) -> None:
        self.event = threading.Event()
        self._what = what
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.event.is_set():
            os._exit(int(ExitCode.RETRY))
        self.event.set()
        sys.stderr.write(f"stopping when {self._what} done; again: at once\n")
