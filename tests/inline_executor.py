# SPDX-License-Identifier: Apache-2.0
"""An executor without threads: a test decides what runs during a compaction, and when."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class InlineExecutor(Executor):
    """Runs what is submitted at once.

    Args:
        on_call: called with 1 after the first call, with 2 after the second, and so on.
    """

    def __init__(self, on_call: Callable[[int], None] = lambda number: None) -> None:
        self._on_call = on_call
        self._calls = 0

    def submit(self, fn: Any, /, *arguments: Any, **options: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*arguments, **options))
        except Exception as error:  # a SimulatedCrash is not caught: it ends the process
            future.set_exception(error)
        self._calls += 1
        self._on_call(self._calls)
        return future
