# SPDX-License-Identifier: Apache-2.0
"""Making a history that fails small: fewer steps, rows and options, as long as it fails."""

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.property.histories import History, Step
from tests.property.judge import Disagreement, judge

__all__ = ["fails", "shrink"]

Fails = Callable[[History], bool]


def fails(history: History) -> Disagreement | None:
    """Run a history in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="history-") as scratch:
        try:
            judge(history, pathlib.Path(scratch))
        except Disagreement as found:
            return found
    return None


def shrink(history: History, found: Disagreement, *, seconds: float) -> History:
    """A smaller history that breaks the same law.

    Args:
        history: fails.
        found: how.
        seconds: to spend at most.
    """
    end = time.monotonic() + seconds

    def still(smaller: History) -> bool:
        if time.monotonic() > end:
            return False
        again = fails(smaller)
        return again is not None and again.law == found.law

    steps = history.steps[: found.step + 1] or history.steps
    first = dataclasses.replace(history, steps=steps)
    best = first if still(first) else history
    while time.monotonic() < end:
        smaller = next((one for one in _smaller(best) if still(one)), None)
        if smaller is None:
            return best
        best = smaller
    return best


def _smaller(history: History) -> Iterator[History]:
    """Histories with something taken away, the largest pieces first."""
    steps = list(history.steps)
    for fewer in _without_parts(steps):
        yield dataclasses.replace(history, steps=fewer)
    for place, step in enumerate(steps):
        for simpler in _simpler(step):
            yield dataclasses.replace(history, steps=[*steps[:place], simpler, *steps[place + 1 :]])
    for name in history.options:
        if name != "bucket":
            options = {key: text for key, text in history.options.items() if key != name}
            yield dataclasses.replace(history, options=options)
    if history.window_bytes is not None:
        yield dataclasses.replace(history, window_bytes=None)


def _simpler(step: Step) -> Iterator[Step]:
    if step["op"] == "write":
        batches: Sequence[Sequence[Any]] = step["batches"]
        rows = [row for batch in batches for row in batch]
        if len(batches) > 1:
            yield {**step, "batches": [rows]}
        for fewer in _without_parts(rows):
            yield {**step, "batches": [fewer]}
    if step["op"] == "bad" and len(step["rows"]) > 2:
        yield {**step, "rows": step["rows"][-2:]}
    for name in ("full", "lost"):
        if step.get(name):
            yield {**step, name: False}


def _without_parts(items: Sequence[Any]) -> Iterator[list[Any]]:
    size = len(items) // 2
    while size:
        for start in range(0, len(items), size):
            yield [*items[:start], *items[start + size :]]
        size //= 2
    if len(items) == 1:
        yield []
