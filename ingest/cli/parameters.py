# SPDX-License-Identifier: Apache-2.0
"""Shared options of commands, their parsing, and the output of rows.

Every command prints an aligned table, or with `--json` one JSON object per line.
"""

import datetime
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import click

from ingest.cli.commands import (
    Arguments,
    Decorator,
    Value,
    combine,
    flag,
    option,
    positional,
    refuse,
)
from ingest.config.setting import duration
from ingest.errors import SAME_STOP_S, ExitCode
from ingest.logs import configure_logging
from ingest.observe.text_table import aligned, json_line
from storage.clock import Clock, SystemClock

if TYPE_CHECKING:
    from ingest.config.loading import Resolved
    from ingest.config.settings import Settings
    from ingest.daemon.compact_runs import Selection
    from storage.catalog.catalog import Catalog
    from storage.table.table import FileStoreTable


def _pair(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("expected KEY=VALUE")
    return key.strip(), value


def _partition(text: str) -> dict[str, str]:
    """Parse `COLUMN=VALUE[,COLUMN=VALUE…]`."""
    return dict(_pair(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    """Parse `A,B`; empty names are dropped."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _count(text: str) -> int:
    """Parse an integer from 0."""
    if not text.isdecimal():
        raise ValueError("not a non-negative integer")
    return int(text)


def _positive(text: str) -> int:
    """Parse an integer from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("not an integer greater than 0")
    return int(text)


def _duration_s(text: str) -> float:
    """Parse a duration such as `30s`, `12h` or `7d` [s]."""
    try:
        return float(duration.parse(text))
    except ValueError as error:
        raise ValueError(f"not {error}") from error


def _duration_ms(text: str) -> int:
    """Parse a duration [ms]."""
    return int(_duration_s(text) * 1000)


def _moment_ms(text: str) -> int:
    """Parse a timestamp in ISO 8601 (UTC without a zone), or in epoch milliseconds."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError("expected 2024-01-31T12:00:00 or epoch milliseconds") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError("not a number of seconds") from error


PAIR = Value(_pair, "KEY=VALUE")
PARTITION = Value(_partition, "COLUMN=VALUE[,…]")
NAMES = Value(_names, "A,B")
COUNT = Value(_count, "N")
POSITIVE = Value(_positive, "N")
SECONDS = Value(_seconds, "SECONDS")
DURATION_S = Value(_duration_s, "TIME")
DURATION_MS = Value(_duration_ms, "TIME")
MOMENT_MS = Value(_moment_ms, "TIME")
PATH = click.Path(path_type=Path)

JSON = flag("--json", "one JSON object per line")

DRY_RUN = flag("--dry-run", "print what would be done, without changing anything")

_WAREHOUSE_HELP = (
    "path of the warehouse: a directory, s3://bucket/directory, or the YAML file of a catalog"
)

_STORE_OPTION = option(
    "--store-option",
    PAIR,
    "option of the object store, such as s3.endpoint=http://host:port; keep secrets in AWS_…",
    multiple=True,
)

WAREHOUSE = combine(
    positional("warehouse", help=_WAREHOUSE_HELP),
    _STORE_OPTION,
)
"""The warehouse, and options of its store (`catalog_of`)."""

ONE_TABLE = combine(
    positional("warehouse", help=_WAREHOUSE_HELP),
    positional("table", help="database.table, or database.table$branch_name"),
    _STORE_OPTION,
    JSON,
)
"""One table of a warehouse (`table_of`), and `--json`."""


def configuration(*, required: bool) -> Decorator:
    """Declare `-c FILE` and `--set KEY=VALUE` (see `resolved`)."""
    return combine(
        option(
            "-c --config",
            "FILE",
            "YAML file; repeatable, later files override earlier ones; - is standard input",
            multiple=True,
            required=required,
        ),
        option("--set", PAIR, "a setting, overrides files and environment", multiple=True),
    )


CONFIGURATION = configuration(required=True)


def partitions(text: str, *, required: bool = False, section: str = "Options") -> Decorator:
    """Declare `--partition`, repeatable."""
    return option("--partition", PARTITION, text, multiple=True, required=required, section=section)


def warehouse_or_config(
    about_config: str = "configuration of a pipeline, whose warehouse is used",
) -> Decorator:
    """Declare `--warehouse`, `--catalog` and `-c`: one is given (see `settings_at`)."""
    return combine(
        option("--warehouse", "DIR", _WAREHOUSE_HELP),
        option("--catalog", "FILE", "YAML file of a catalog: metastore, uri, warehouse, …"),
        option("-c --config", "FILE", f"{about_config}; repeatable", multiple=True),
        _STORE_OPTION,
    )


_WHICH = "Which tables"

TABLES = combine(
    warehouse_or_config(),
    positional("tables", nargs=-1, metavar="[TABLE]...", help="database.table"),
    option("--database", "NAME", "all tables of a database", section=_WHICH),
    option("--including-tables", "REGEX", "tables whose full name matches", section=_WHICH),
    option("--excluding-tables", "REGEX", "exclude tables whose full name matches", section=_WHICH),
)
"""Tables of a warehouse or a configuration (`chosen_tables`, `selected_catalog`)."""


def resolved(arguments: Arguments) -> "Resolved":
    """Resolve the settings of `CONFIGURATION`."""
    from ingest.daemon.configuration import resolve

    return resolve(list(arguments.config), dict(arguments.set))


def settings_at(arguments: Arguments) -> "Settings | None":
    """Load the settings of `warehouse_or_config`; None if a warehouse or a catalog is given."""
    flags = (bool(arguments.config), arguments.warehouse is not None, arguments.catalog is not None)
    if sum(flags) != 1:
        refuse("specify one of --warehouse, --catalog and -c")
    if not arguments.config:
        return None
    from ingest.daemon.configuration import load_settings

    return load_settings([text if text == "-" else Path(text) for text in arguments.config])


def open_catalog(location: str, options: Mapping[str, str] | None = None) -> "Catalog":
    """Open a catalog by its warehouse, or by the YAML file of its options.

    Args:
        location: a warehouse, or the path of a file `*.yaml` or `*.yml` (`read_catalog_file`).
        options: of the store and the catalog, over those of the file.
    """
    from ingest.config.settings_sources import read_catalog_file
    from storage.catalog.catalog import Catalog

    catalog_options = dict(options or {})
    if location.endswith((".yaml", ".yml")):
        catalog_options = {**read_catalog_file(location), **catalog_options}
        location = catalog_options.pop("warehouse", "")
    return Catalog.open(location, catalog_options)


def catalog_at(arguments: Arguments, settings: "Settings | None") -> "Catalog":
    """Open the catalog of `warehouse_or_config`."""
    store_options = dict(arguments.store_option)
    if settings is None:
        return open_catalog(arguments.catalog or arguments.warehouse, store_options)
    sink = settings.sink
    return open_catalog(sink.warehouse, {**sink.options, **sink.catalog, **store_options})


def selected_catalog(arguments: Arguments) -> "Catalog":
    """Open the catalog of `TABLES`."""
    return catalog_at(arguments, settings_at(arguments))


def chosen_tables(arguments: Arguments) -> "Selection":
    """Return the selection of `TABLES`; a usage error if it is empty."""
    from ingest.daemon.compact_runs import Selection

    selection = Selection(
        tables=arguments.tables,
        database=arguments.database,
        including=arguments.including_tables,
        excluding=arguments.excluding_tables,
    )
    if not (selection.tables or selection.database or selection.including):
        refuse("specify tables, --database or --including-tables")
    return selection


def catalog_of(arguments: Arguments) -> "Catalog":
    """Open the catalog of `WAREHOUSE`."""
    return open_catalog(arguments.warehouse, dict(arguments.store_option))


def table_of(arguments: Arguments) -> "FileStoreTable | Any":
    """Open the table of `ONE_TABLE`."""
    return catalog_of(arguments).table(arguments.table)


def emit(arguments: Arguments, head: Sequence[str], rows: Sequence[list[Any]], nothing: str) -> int:
    """Print rows, or the text `nothing` if there are none; return exit code 0."""
    if arguments.json:
        sys.stdout.writelines(f"{json_line(dict(zip(head, row, strict=True)))}\n" for row in rows)
    else:
        sys.stdout.write((aligned(head, rows) if rows else nothing) + "\n")
    return 0


def emit_fact(arguments: Arguments, text: str, facts: Mapping[str, Any]) -> int:
    """Print a result: a sentence, or facts as JSON; return exit code 0."""
    sys.stdout.write((json_line(facts) if arguments.json else text) + "\n")
    return 0


# Progress of long commands, and their reaction to SIGTERM and SIGINT.
#
# Progress is one line that is rewritten on a terminal, and log lines elsewhere.


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
        self._since_s = 0.0
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
            if time.monotonic() - self._since_s >= SAME_STOP_S:
                os._exit(int(ExitCode.RETRY))
            return
        self._since_s = time.monotonic()
        self.event.set()
        sys.stderr.write(f"stopping when {self._subject} done; a second signal stops at once\n")
