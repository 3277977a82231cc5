# SPDX-License-Identifier: Apache-2.0
"""Structured logs on standard error: text on a terminal, one JSON object per line elsewhere.

Fields come from `extra={...}` of the standard logging calls. JSON lines have `ts` (RFC 3339,
milliseconds, UTC), `level`, `logger`, `event` (a stable id), `msg`, the extra fields, and
`error.{type,message,stack}`. Messages are lowercase fragments; INFO = state change, WARNING =
unexpected but handled, ERROR = someone must act. Payloads and secrets are never logged.
"""

import dataclasses
import datetime
import json
import logging
import os
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, TextIO

# Rate limit of repeated warnings: a maximum per minute, and the number of suppressed lines.
#
# Two lines are the same if their logger, level, event (or message) and table (or topic) are. The
# number of suppressed lines is logged with the first line of any kind after the minute.


DEFAULT_REPEATS = 10
"""Maximum number of the same warning per minute."""

_WINDOW_S = 60.0
_MOST_KEYS = 10_000

_Key = tuple[str, int, str, str]


@dataclasses.dataclass(slots=True)
class _Window:
    began_s: float
    count: int = 0
    left_out: int = 0


class SamplingHandler(logging.StreamHandler[TextIO]):
    """See the module.

    Args:
        stream: where lines go.
        repeats: maximum number of the same warning per minute; 0 = no limit.
        now_s: monotonic clock [s].
    """

    def __init__(
        self,
        stream: TextIO,
        repeats: int = DEFAULT_REPEATS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self.repeats = repeats
        self._now_s = now_s
        self._windows: dict[_Key, _Window] = {}
        self._looked_s = now_s()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; holds the handler's lock."""
        now_s = self._now_s()
        self._tell(now_s)
        if self._passes(record, now_s):
            super().emit(record)

    def _passes(self, record: logging.LogRecord, now_s: float) -> bool:
        sampled = logging.WARNING <= record.levelno < logging.CRITICAL
        if not self.repeats or not sampled:
            return True
        facts = vars(record)
        event = str(facts.get("event") or record.msg)
        subject = str(facts.get("table") or facts.get("topic") or "")
        key = (record.name, record.levelno, event, subject)
        window = self._windows.setdefault(key, _Window(now_s))
        window.count += 1
        if window.count <= self.repeats:
            return True
        window.left_out += 1
        return False

    def _tell(self, now_s: float) -> None:
        """Log the number of suppressed lines of windows that have passed."""
        if now_s - self._looked_s < 1.0 and len(self._windows) < _MOST_KEYS:
            return
        self._looked_s = now_s
        full = len(self._windows) >= _MOST_KEYS
        expired = [k for k, w in self._windows.items() if full or now_s - w.began_s >= _WINDOW_S]
        for key in expired:
            window = self._windows.pop(key)
            if window.left_out:
                super().emit(_summary(key, window.left_out))


def _summary(key: _Key, count: int) -> logging.LogRecord:
    name, level, event, subject = key
    record = logging.LogRecord(
        name, level, __file__, 0, "the same line was left out %d times", (count,), None
    )
    vars(record).update({"event": "left_out", "of": event, "count": count})
    if subject:
        vars(record)["about"] = subject
    return record


CHILD_VARIABLE = "LAKEWARD_LOG"
"""Environment variable with the logging settings of Spark's Python processes."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NOISY = ("py4j", "pyspark", "urllib3", "asyncio", "librdkafka")
_UNCAUGHT = {"event": "uncaught", "action": "report the bug"}
_PY4J_SAYS = (
    "There was an exception while executing the Python Proxy",
    "Exception while sending command",
)
_SET: set[str] = set()
"""Loggers with a separate level in the settings."""
_COLOURS = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31;1m"}
_RESET = "\x1b[0m"


def configure_logging(
    *,
    level: str = "info",
    form: str = "auto",
    stream: TextIO | None = None,
    levels: Mapping[str, str] = MappingProxyType({}),
    repeats: int = DEFAULT_REPEATS,
) -> None:
    """Send all logs of this process to one stream; earlier handlers are dropped.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        form: `auto`, `text` or `json`.
        stream: default is standard error.
        levels: of single loggers, by name.
        repeats: maximum number of the same warning per minute; 0 = no limit.
    """
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    as_text = form == "text" or (form == "auto" and terminal)
    handler = SamplingHandler(target, repeats)
    handler.setFormatter(TextFormatter(colours=terminal) if as_text else JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_levels(level, levels)
    logging.captureWarnings(capture=True)
    warnings.formatwarning = _warning_line
    for logger in (root, logging.getLogger("py4j.clientserver")):
        logger.addFilter(_not_said_elsewhere)


def is_json() -> bool:
    """Whether the log of this process is JSON lines: then messages for people go there, too."""
    return any(isinstance(h.formatter, JsonFormatter) for h in logging.getLogger().handlers)


def log_uncaught() -> None:
    """Log unhandled exceptions, those of threads included."""
    log = logging.getLogger("ingest.uncaught")

    def in_main(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        log.critical("%s: %s", kind.__name__, error, exc_info=(kind, error, trace), extra=_UNCAUGHT)

    def in_thread(raised: threading.ExceptHookArgs) -> None:
        error = raised.exc_value or raised.exc_type()
        if not isinstance(error, SystemExit):
            in_main(raised.exc_type, error, raised.exc_traceback)

    sys.excepthook = in_main
    threading.excepthook = in_thread


def child_settings(*, level: str, levels: Mapping[str, str], repeats: int) -> str:
    """The value of `CHILD_VARIABLE`; arguments as of `configure_logging`."""
    return json.dumps({"level": level, "levels": dict(levels), "repeats": repeats})


def configure_child_logging() -> None:
    """Make a Python process that Spark started log JSON lines, which the driver collects.

    On executors of a cluster they are the log of the pod. Without effect if the daemon has not
    requested it, or if the process has a log.
    """
    text = os.environ.get(CHILD_VARIABLE)
    if text and not logging.getLogger().handlers:
        conf = json.loads(text)
        configure_logging(
            level=conf["level"], form="json", levels=conf["levels"], repeats=conf["repeats"]
        )


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: object = None
) -> str:
    del line  # source text, which would be a second line
    return f"{category.__name__}: {message} ({filename}:{lineno})"


def _not_said_elsewhere(record: logging.LogRecord) -> bool:
    """Drop py4j's traces of a failed batch and of a JVM that has exited: the daemon logs them."""
    return not str(record.msg).startswith(_PY4J_SAYS)


def set_levels(level: str, levels: Mapping[str, str]) -> None:
    """Set the level of all loggers, then those of single ones; earlier single ones are reset.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        levels: by name of the logger, which covers those below it.
    """
    logging.getLogger().setLevel(level.upper())
    for name in _SET - levels.keys():
        logging.getLogger(name).setLevel(logging.NOTSET)
    _SET.clear()
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name, value in levels.items():
        logging.getLogger(name).setLevel(value.upper())
        _SET.add(name)


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {k: v for k, v in vars(record).items() if k not in _STANDARD and not k.startswith("_")}


class JsonFormatter(logging.Formatter):
    """One JSON object per record; values that JSON does not know become text."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        extras = _extras(record)
        if "event" in extras:
            line["event"] = extras.pop("event")
        line["msg"] = record.getMessage()
        line.update(extras)
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = {
                "type": type(error).__name__,
                "message": str(error),
                "stack": self.formatException(record.exc_info),
            }
        elif "error" in line and not isinstance(line["error"], dict):
            line["error"] = {"message": str(line["error"])}
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """For people: time, level, module, message, then `key=value` pairs.

    Args:
        colours: whether warnings and errors are coloured.
    """

    def __init__(self, *, colours: bool = False) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC).astimezone()
        extras = _extras(record)
        extras.pop("event", None)
        if record.exc_info or _stack(self, record):
            extras.pop("error", None)
        pairs = "".join(f" {key}={_short_text(value)}" for key, value in extras.items())
        name = record.name.rpartition(".")[2]
        line = f"{moment:%H:%M:%S} {record.levelname:<7} {name}: {record.getMessage()}{pairs}"
        colour = _COLOURS.get(record.levelname, "")
        if self._colours and colour:
            line = f"{colour}{line}{_RESET}"
        if stack := _stack(self, record):
            line += "\n" + textwrap.indent(stack, "    ", lambda _: True)
        return line


def _stack(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The trace of a record of this process, or of another one."""
    if record.exc_info and record.exc_info[1] is not None:
        return formatter.formatException(record.exc_info)
    error = vars(record).get("error")
    return str(error.get("stack") or "").rstrip() if isinstance(error, dict) else ""


def _short_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text
