# SPDX-License-Identifier: Apache-2.0
"""Results of statements as tables, CSV, or one JSON object per statement."""

import contextlib
import dataclasses
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ingest.errors import kind_of
from ingest.observe.text_table import aligned, csv_text, json_line, rows_of
from storage.clock import Clock, SystemClock
from storage.errors import LakewardError

if TYPE_CHECKING:
    from storage.sql.dialect import Statement
    from storage.sql.session import Result, SqlSession

_WIDE_COLUMNS = ("create_table", "create_view", "create_database", "create_catalog", "plan")
"""Columns that hold whole texts: they are printed as they are."""


@dataclasses.dataclass(slots=True)
class Output:
    """Prints results.

    Attributes:
        format: one of `FORMATS`.
        timing: whether the seconds of a statement are printed.
        most_rows: rows that are printed of a result as a table or vertically; None: all.
        write: takes the text.
    """

    format: str = "table"
    timing: bool = False
    most_rows: int | None = None
    write: Callable[[str], Any] = dataclasses.field(default_factory=lambda: sys.stdout.write)

    def show(self, result: "Result", seconds: float) -> None:
        """Print the result of a statement."""
        if self.format == "json":
            self.write(json_line(_document(result)) + "\n")
            return
        if result.rows is None:
            if self.format == "table":
                affected = result.affected or 0
                what = "ok" if not affected else f"{affected:,} row{'s' * (affected != 1)}"
                self.write(what + self._time(seconds) + "\n")
            return
        rows = result.rows
        head = rows.column_names
        if self.format == "csv":
            self.write(csv_text(head, rows_of(rows)))
            return
        page = rows if self.most_rows is None else rows.slice(0, self.most_rows)
        if rows.num_columns == 1 and head[0] in _WIDE_COLUMNS:
            self.write("\n".join(map(str, rows.column(0).to_pylist())) + "\n")
        elif self.format == "vertical":
            self.write(_vertical(head, rows_of(page)))
        else:
            self.write(aligned(head, rows_of(page)) + "\n")
        count = f"{rows.num_rows:,} row{'s' * (rows.num_rows != 1)}"
        if page.num_rows < rows.num_rows:
            count = f"first {page.num_rows:,} of {count}; \\rows sets how many are printed"
        self.write(f"({count}{self._time(seconds)})\n")

    def fail(self, error: BaseException) -> None:
        """Print an error."""
        if self.format == "json":
            self.write(json_line(error_document(error)) + "\n")
        else:
            sys.stdout.flush()
            sys.stderr.write(error_text(error))

    def _time(self, seconds: float) -> str:
        return f", {seconds:.3f} s" if self.timing else ""


FORMATS = ("table", "vertical", "csv", "json")


def _document(result: "Result") -> dict[str, Any]:
    if result.rows is None:
        return {"affected": result.affected or 0}
    return {"columns": result.rows.column_names, "rows": rows_of(result.rows)}


def _vertical(head: list[str], rows: list[list[Any]]) -> str:
    width = max(map(len, head), default=0)
    lines = []
    for number, row in enumerate(rows, start=1):
        lines.append(f"-- row {number} --")
        texts = ("null" if value is None else str(value) for value in row)
        lines += [f"{name:>{width}} | {text}" for name, text in zip(head, texts, strict=True)]
    return "".join(f"{line}\n" for line in lines)


def error_document(error: BaseException) -> dict[str, Any]:
    """An error as JSON: the sentence, its class, hint, line and column."""
    if not isinstance(error, LakewardError):
        return {"error": str(error) or type(error).__name__, "type": type(error).__name__}
    document: dict[str, Any] = {"error": _sentence(error), "type": type(error).__name__}
    if error.hint:
        document["hint"] = error.hint
    places = ("line", "column")
    return document | {key: error.context[key] for key in places if key in error.context}


def error_text(error: BaseException) -> str:
    """An error for people: where, what, and what to do next."""
    if not isinstance(error, LakewardError):
        return f"error: {type(error).__name__}: {error}\n"
    place = ""
    if error.context.get("line"):
        place = f" at line {error.context['line']}, column {error.context.get('column', 1)}"
    hint = f"  hint: {error.hint}\n" if error.hint else ""
    return f"error{place}: {_sentence(error)}\n{hint}"


def _sentence(error: LakewardError) -> str:
    facts = ", ".join(
        f"{key} = {value}" for key, value in error.context.items() if key not in ("line", "column")
    )
    text = error.message + (f" ({facts})" if facts else "")
    return text + (f": {error.detail}" if error.detail else "")


# Running statements of a console: progress of long ones, Ctrl-C, the first error.


_QUIET_S = 0.7
"""Statements that take longer show their progress [s]."""

_REDRAWN_S = 0.2
_CANCELLED = 130
"""Exit code of a statement that Ctrl-C cancelled."""


def run_text(session: "SqlSession", text: str, output: Output, clock: Clock | None = None) -> int:
    """Run the statements of a text up to the first that fails, and print their results.

    Returns:
        Exit code of the statement that failed; 0: none did.
    """
    from storage.sql.dialect import statements

    clock = clock or SystemClock()
    try:
        for statement in statements(text):
            started = clock.monotonic_s()
            with _progress(session, clock, started):
                result = _run(session, statement)
            output.show(result, clock.monotonic_s() - started)
    except (LakewardError, OSError) as error:
        output.fail(error)
        return int(kind_of(error).exit_code)
    except KeyboardInterrupt:
        output.fail(LakewardError("the statement was cancelled"))
        return _CANCELLED
    return 0


def _run(session: "SqlSession", statement: "Statement") -> "Result":
    """Run a statement; a query in a thread, because Ctrl-C does not reach DuckDB.

    Other statements run here: Ctrl-C stops them between two steps, and nothing was committed.
    """
    if not session.is_query(statement):
        return session.run(statement)
    results: list[Any] = []
    errors: list[BaseException] = []
    finished = threading.Event()  # an interrupted join() of a thread marks it as ended

    def work() -> None:
        try:
            results.append(session.run(statement))
        except BaseException as error:  # noqa: BLE001 - raised again in the other thread
            errors.append(error)
        finally:
            finished.set()

    threading.Thread(target=work, daemon=True, name="query").start()
    try:
        while not finished.wait(0.05):
            pass
    except KeyboardInterrupt:
        while not finished.is_set():
            session.interrupt()
            finished.wait(0.1)
        raise
    if errors:
        raise errors[0]
    result: Result = results[0]
    return result


@contextlib.contextmanager
def _progress(session: "SqlSession", clock: Clock, started: float) -> Iterator[None]:
    """While the statement runs, show its duration and rows read on the terminal."""
    if not sys.stderr.isatty():
        yield
        return
    finished = threading.Event()
    session.rows_read = 0

    def draw() -> None:
        drawn = False
        wait = _QUIET_S
        while not finished.wait(wait):
            seconds = clock.monotonic_s() - started
            rows = f", {session.rows_read:,} rows read" if session.rows_read else ""
            sys.stderr.write(f"\r{seconds:.1f} s{rows}; Ctrl-C cancels\x1b[K")
            sys.stderr.flush()
            drawn, wait = True, _REDRAWN_S
        if drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    thread = threading.Thread(target=draw, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
