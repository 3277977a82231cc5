# SPDX-License-Identifier: Apache-2.0
"""An executor without threads: what runs beside a compaction is what a test says, and when."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class InlineExecutor(Executor):
    """Runs what is submitted at once.

    Args:
        after: called with 1 after the first call, with 2 after the second, and so on.
    """

    def __init__(self, after: Callable[[int], None] = lambda number: None) -> None:
        self._after = after
        self._calls = 0

    def submit(self, fn: Any, /, *arguments: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*arguments, **named))
        except Exception as error:  # a simulated crash is none: it kills
            future.set_exception(error)
        self._calls += 1
        self._after(self._calls)
        return future
