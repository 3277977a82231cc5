# SPDX-License-Identifier: Apache-2.0
r"""Shortcuts of the console, such as `\d`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.tools.console.output import FORMATS, Output
from ingest.tools.console.runs import run_text

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

__all__ = ["HELP", "SHORTCUTS", "run_shortcut"]

_STATEMENTS: Mapping[str, tuple[str, str]] = {
    "d": ("SHOW TABLES", "DESCRIBE EXTENDED {}"),
    "dt": ("SHOW TABLES", "SHOW TABLES IN {}"),
    "dv": ("SHOW VIEWS", "SHOW VIEWS IN {}"),
    "dp": ("", "SHOW PARTITIONS {}"),
    "dc": ("", "SHOW CREATE TABLE {}"),
    "l": ("SHOW DATABASES", "SHOW DATABASES LIKE '{}'"),
    "lc": ("SHOW CATALOGS", ""),
    "c": ("SHOW CURRENT DATABASE", "USE {}"),
}
"""Statement without and with an argument, by shortcut; empty: there is none."""

HELP = r"""
  \d [table]           tables of the database; columns and options of a table
  \dt [database]       tables          \dv [database]  views
  \dp table            partitions      \dc table       CREATE statement
  \l [pattern]         databases       \lc             catalogs
  \c [database]        current database; use another one
  \f table|vertical|csv|json           how rows are printed
  \rows N              most rows that are printed, 0: all
  \timing              print the seconds of statements, or do not
  \i file              run the statements of a file
  \? or \h             this help       \q              leave
Statements end with a semicolon and may span lines; Ctrl-C cancels one.
"""

SHORTCUTS = (*_STATEMENTS, "f", "rows", "timing", "i", "?", "h", "q")


def run_shortcut(session: "SqlSession", line: str, output: Output) -> bool:
    r"""Carry out a line that begins with a backslash; False: leave the console.

    Unknown ones print the help.
    """
    word, _, rest = line.strip().lstrip("\\").rstrip(";").partition(" ")
    argument = rest.strip()
    if word in ("q", "quit", "exit"):
        return False
    settings: dict[str, Callable[[], None]] = {
        "f": lambda: _format(output, argument),
        "rows": lambda: _rows(output, argument),
        "timing": lambda: _timing(output),
        "i": lambda: _file(session, argument, output),
    }
    statement = _STATEMENTS.get(word, ("", ""))[1 if argument else 0]
    if statement:
        run_text(session, statement.format(argument), output)
    elif word in settings:
        settings[word]()
    else:
        output.write(HELP.lstrip("\n"))
    return True


def _format(output: Output, name: str) -> None:
    if name in FORMATS:
        output.format = name
    else:
        output.write(f"formats: {', '.join(FORMATS)}; now {output.format}\n")


def _rows(output: Output, number: str) -> None:
    if number.isdecimal():
        output.most_rows = int(number) or None
    output.write(f"rows: {'all' if output.most_rows is None else output.most_rows}\n")


def _timing(output: Output) -> None:
    output.timing = not output.timing
    output.write(f"timing: {'on' if output.timing else 'off'}\n")


def _file(session: "SqlSession", name: str, output: Output) -> None:
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        output.fail(error)
        return
    run_text(session, text, output)
