# SPDX-License-Identifier: Apache-2.0
"""Spark's log as part of our own: output of the driver's JVM becomes records of `logging`.

The JVM's standard output and error are a pipe. Its logging writes JSON lines to it, one record a
line (`log4j2.properties`), and so do the Python processes that it starts
(`ingest.logs.configure_child_logging`), whose standard error the JVM forwards. Anything else
bypassed logging, such as the last output of a dying process: consecutive lines become one
warning.
"""

import datetime
import json
import logging
import os
import re
import selectors
import shlex
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storage.errors import InvalidOptionError

RAW_LOGGER = "spark.stderr"
"""Of lines that bypassed logging."""

_LOG = logging.getLogger(__name__)

_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
_LOG4J_FILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")
_QUIET_S = 0.3
"""Lines that bypassed logging are one record until no line has come for so long [s]."""

_MOST_LINES = 5_000
"""Of one such record; the stacks of all threads of a JVM have some thousand."""
_CHUNK = 1 << 16
_LEVELS = logging.getLevelNamesMapping()
_NORMAL = re.compile(
    r"WARNING: Using incubator modules: |Picked up (?:_?JAVA|JDK)\w*_OPTIONS: |NOTE: Picked up JDK"
)
_OWN_FIELDS = ("ts", "level", "logger", "msg")
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
"""Of a frame in a Python trace that a message of Java carries."""

_EXCEPTION = re.compile(r":? (?:[\w$]+\.)+[\w$]*(?:Exception|Error)\b", re.ASCII)


_TRACE = "Traceback (most recent call last)"
_PYTHON_CAUSE = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_LETTER = re.compile(r"[A-Za-z]")
_JAVA_CAUSE = re.compile(r"^Caused by: (.+)$", re.MULTILINE)


def cause_line(text: str) -> str:
    """The line of a trace, Python's or Java's, with the cause; of other text the first.

    Of a Python trace inside a Java one it is Python's: Java only carries it.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    cause, in_trace = "", False
    for line in lines:
        if _TRACE in line:
            in_trace = True
        elif in_trace and _PYTHON_CAUSE.match(line):
            cause, in_trace = line, False
    if cause:
        return cause
    java = _JAVA_CAUSE.findall(text)
    if java:
        return str(java[-1]).strip()
    return next((line for line in lines if _LETTER.search(line)), "".join(lines[:1])).strip()


def java_words(options: str) -> list[str]:
    """Single options of a text with Java options.

    Raises:
        InvalidOptionError: a quote is open; the text, which may hold secrets, is not shown.
    """
    try:
        return shlex.split(options)
    except ValueError as error:
        raise InvalidOptionError(
            "malformed Java options", detail=str(error), hint="close the quote", key="spark.conf"
        ) from error


def log_options(options: str, environ: Mapping[str, str], *, driver: bool) -> str:
    """Java options, with those for our log unless the user has a logging configuration.

    Args:
        options: of the user, or the defaults.
        environ: of this process; `SPARK_CONF_DIR` may contain the configuration.
        driver: whether they are for the driver's JVM, not for executors'.
    """
    directory = environ.get("SPARK_CONF_DIR")
    has_configuration = directory and any(
        (Path(directory) / name).exists() for name in _LOG4J_FILES
    )
    if has_configuration or any("log4j" in option for option in java_words(options)):
        return options
    added = f"-Dlog4j2.configurationFile={_CONFIGURATION.as_uri()}"
    if driver:  # in the same JVM the scheduler logs what the executor does
        added += " -Dlakeward.log.task=Exception"
    return f"{options} {added}".strip()


class JvmLog:
    """Reads the pipe in a thread until its last writer has ended.

    Attributes:
        fileno: output of the JVM; call `handed_over` when the JVM has it.
    """

    def __init__(self) -> None:
        self._reads, self.fileno = os.pipe()
        self._thread = threading.Thread(target=self._run, name="jvm-log", daemon=True)
        self._thread.start()

    def handed_over(self) -> None:
        """Close our copy of the JVM's end of the pipe, so that end of file is detected."""
        os.close(self.fileno)

    def join(self, timeout_s: float) -> None:
        """Wait until all output is read, if the JVM has ended."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        lines = _Lines()
        with selectors.DefaultSelector() as selector:
            selector.register(self._reads, selectors.EVENT_READ)
            while True:
                if not selector.select(_QUIET_S if lines.waiting else None):
                    lines.flush()
                    continue
                data = os.read(self._reads, _CHUNK)
                if not data:
                    break
                try:
                    lines.take(data)
                except Exception:  # noqa: BLE001 - without a reader the JVM blocks
                    _LOG.exception("JVM log lines are lost", extra={"event": "jvm_log"})
        lines.end()
        os.close(self._reads)


class _Lines:
    """Makes log records of chunks of output."""

    def __init__(self) -> None:
        self._partial_line = b""
        self._raw: list[str] = []

    @property
    def waiting(self) -> bool:
        """Whether lines wait for the rest of their record."""
        return bool(self._raw)

    def take(self, data: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            self._line(line.decode(errors="replace"))

    def end(self) -> None:
        if self._partial_line:
            self._line(self._partial_line.decode(errors="replace"))
        self._partial_line = b""
        self.flush()

    def flush(self) -> None:
        """Log lines that bypassed logging as one record."""
        lines, self._raw = self._raw, []
        text = "\n".join(lines).strip("\n")
        if text.strip():
            info = {"error": {"message": cause_line(text), "stack": text}} if len(lines) > 1 else {}
            _write(RAW_LOGGER, logging.WARNING, cause_line(text), {"event": "stderr", **info})

    def _line(self, line: str) -> None:
        fields = _fields(line)
        if fields is None:
            if not _NORMAL.match(line):
                self._raw.append(line.rstrip("\r"))
            if len(self._raw) >= _MOST_LINES:
                self.flush()
            return
        self.flush()
        info = {name: value for name, value in fields.items() if name not in _OWN_FIELDS}
        if place := _PLACE.findall(str(fields["msg"])):
            info["at"] = "{}:{} {}".format(*place[-1])
        level = _LEVELS.get(str(fields.get("level", "")).upper(), logging.WARNING)
        moment = _moment(fields.get("ts"))
        _write(str(fields["logger"]), level, _in_short(str(fields["msg"])), info, moment)


def _fields(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and {"logger", "msg"} <= fields.keys() else None


def _moment(text: object) -> float | None:
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def _in_short(text: str) -> str:
    """A message in one line: of one with a stack trace its first line and the cause."""
    first, _, rest = text.partition("\n")
    if not rest:
        return text
    return f"{_EXCEPTION.split(first, maxsplit=1)[0]}: {cause_line(text)}"


def _write(
    name: str, level: int, text: str, more: Mapping[str, Any], moment: float | None = None
) -> None:
    logger = logging.getLogger(name)
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(name, level, "", 0, "%s", (text,), None)
    if moment is not None:
        record.created = moment
    attributes = vars(record)
    attributes.update({key: value for key, value in more.items() if key not in attributes})
    logger.handle(record)
