# SPDX-License-Identifier: Apache-2.0
"""Progress of long commands, and their reaction to SIGTERM and SIGINT.

Progress is one line that is rewritten on a terminal, and log lines elsewhere.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any, TextIO

from ingest.errors import ExitCode
from ingest.logs import configure_logging
from storage.clock import Clock, SystemClock

_LOG = logging.getLogger(__name__)

_LOG_EVERY_S = 10.0
"""Time between two log lines of progress [s]."""

_DRAW_EVERY_S = 0.1


class ProgressLine:
    """Output of progress; this one shows nothing."""

    def show(self, text: str, event: str, facts: Mapping[str, Any], *, last: bool = False) -> None:
        """Show progress.

        Args:
            text: one line for a terminal.
            event: name of the event, for logs.
            facts: fields of the log line.
            last: whether the work is complete.
        """

    def clear(self) -> None:
        """End the line: the work is done."""


def open_progress() -> ProgressLine:
    """Return the output for the kind of standard error, and configure logging for it."""
    terminal = sys.stderr.isatty()
    configure_logging(level="warning" if terminal else "info")
    clock = SystemClock()
    return TerminalLine(sys.stderr, clock) if terminal else ProgressLog(clock)


class TerminalLine(ProgressLine):
    """One line of a terminal that is rewritten."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._drawn_s: float | None = None

    def show(self, text: str, event: str, facts: Mapping[str, Any], *, last: bool = False) -> None:
        """See `ProgressLine`."""
        del event, facts
        now = self._clock.monotonic_s()
        if self._drawn_s is not None and now - self._drawn_s < _DRAW_EVERY_S and not last:
            return
        self._drawn_s = now
        width = _width(self._stream)
        self._stream.write(
            "\r" + (text if len(text) < width else text[: width - 2] + "…") + "\x1b[K"
        )
        self._stream.flush()

    def clear(self) -> None:
        """See `ProgressLine`."""
        if self._drawn_s is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._drawn_s = None


class ProgressLog(ProgressLine):
    """Periodic log lines."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged_s = clock.monotonic_s()

    def show(self, text: str, event: str, facts: Mapping[str, Any], *, last: bool = False) -> None:
        """See `ProgressLine`."""
        del text, last
        now = self._clock.monotonic_s()
        if now - self._logged_s < _LOG_EVERY_S:
            return
        self._logged_s = now
        _LOG.info(event, extra={"event": event, **facts})


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 80


class StopSignal:
    """Context manager: the first signal requests a stop, the second ends the process."""

    def __init__(self, what: str) -> None:
        self.event = threading.Event()
        self._subject = what
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._previous_handlers[number] = signal.signal(number, self._signalled)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.event.is_set():
            os._exit(int(ExitCode.RETRY))
        self.event.set()
        sys.stderr.write(f"stopping when {self._subject} done; a second signal stops at once\n")
