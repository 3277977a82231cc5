# SPDX-License-Identifier: Apache-2.0
"""The interactive console: multi-line input with history and completion."""

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import has_completions
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from ingest.tools.console.output import FORMATS, Output, run_text
from storage.errors import LakewardError

if TYPE_CHECKING:
    from storage.sql.session import SqlSession

_OPTIONS_OF_CATALOG = re.compile(r"\bcreate\s+catalog\b", re.IGNORECASE)
_WORD = re.compile(r"[\w$.`]+")
_MOST_TABLES = 500
"""Tables of a database whose names are completed; columns are those of tables in the statement."""


def run_console(session: "SqlSession", output: Output) -> int:
    """Read and run statements until the end of input.

    Returns:
        Exit code: 0.
    """
    keys = KeyBindings()

    @keys.add("enter", filter=~has_completions)
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    prompts: PromptSession[str] = PromptSession(
        history=_history(),
        completer=_Names(session),
        complete_in_thread=True,
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        enable_history_search=True,
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, _line, _wrapped: "-> ".rjust(width),
    )
    output.write("Lakeward SQL. Statements end with ; and \\? helps.\n")
    while True:
        try:
            text = prompts.prompt(f"{session.catalog_name}:{session.database}> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return 0
        if text.startswith("\\") or text.lower().rstrip(";") in ("exit", "quit", "help"):
            if not run_shortcut(session, text, output):
                return 0
        elif text:
            run_text(session, text, output)


def is_complete(text: str) -> bool:
    """Whether ENTER runs the text: a shortcut, nothing, or statements that end with a semicolon."""
    stripped = text.strip()
    if not stripped or stripped.startswith("\\"):
        return True
    return stripped.lower() in ("exit", "quit", "help") or stripped.endswith(";")


def _history() -> History:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "lakeward"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = state / "sql_history"
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return _StatementHistory(path)


class _StatementHistory(FileHistory):
    """Keeps statements in a file, except those that may hold passwords and tokens of a catalog."""

    def store_string(self, string: str) -> None:
        """See prompt_toolkit."""
        if not _OPTIONS_OF_CATALOG.search(string):
            super().store_string(string)


@functools.cache
def _keywords() -> tuple[str, ...]:
    """Keywords of the dialect."""
    from storage.sql.dialect import Lakeward

    return tuple(sorted(word for word in Lakeward.Tokenizer.KEYWORDS if word.isalpha()))


class _Names(Completer):
    """Completes SQL keywords, names of databases, tables and columns, and shortcuts."""

    def __init__(self, session: "SqlSession") -> None:
        self._session = session
        self._columns: dict[str, tuple[str, ...]] = {}

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """See prompt_toolkit."""
        del complete_event
        before = document.text_before_cursor
        if before.startswith("\\") and " " not in before:
            yield from (
                Completion("\\" + name, -len(before))
                for name in SHORTCUTS
                if name.startswith(before[1:])
            )
            return
        word = document.get_word_before_cursor(pattern=_WORD)
        start, prefix = -len(word), word.lower()
        for name in dict.fromkeys(self._candidates(word, document.text)):
            if name.lower().startswith(prefix):
                yield Completion(name.lower() if word.islower() and name.isupper() else name, start)

    def _candidates(self, word: str, text: str) -> Iterator[str]:
        session = self._session
        try:
            if "." in word:
                database = word.partition(".")[0]
                yield from (f"{database}.{name}" for name in session.catalog.list_tables(database))
                return
            tables = session.catalog.list_tables(session.database)[:_MOST_TABLES]
            yield from tables
            for table in tables:
                if table.lower() in text.lower():
                    yield from self._columns_of(table)
            yield from session.catalog.list_databases()
        except (LakewardError, OSError):
            return
        finally:
            yield from _keywords()

    def _columns_of(self, table: str) -> tuple[str, ...]:
        key = f"{self._session.catalog_name}.{self._session.database}.{table}"
        if key not in self._columns:
            source = self._session.catalog.table(f"{self._session.database}.{table}")
            self._columns[key] = tuple(source.schema.field_names)
        return self._columns[key]


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
