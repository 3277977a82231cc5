# SPDX-License-Identifier: Apache-2.0
"""Running statements of a console: progress of long ones, Ctrl-C, the first error."""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingest.errors import kind_of
from ingest.tools.console.output import Output
from storage.clock import Clock, SystemClock
from storage.errors import LakewardError

if TYPE_CHECKING:
    from storage.sql.dialect import Statement
    from storage.sql.session import Result, SqlSession

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
