# SPDX-License-Identifier: Apache-2.0
"""What the compiled scan of JSON events and its callers agree on, without importing numba."""

import enum
from typing import Any

from ingest.compiled import loading

__all__ = [
    "ABSENT",
    "ANY",
    "END",
    "FIRST",
    "HAS_OLD_KEY",
    "OP",
    "OPS",
    "Wire",
    "scanner",
]

_WORTH_LOADING = 50_000
"""Events that a process decodes before it loads the functions by itself."""


class Wire(enum.IntEnum):
    """How the scan reads a column's values, null besides."""

    TOKEN = 0
    """Anything: its text is decoded value by value."""
    INTEGER = 1
    TEXT = 2
    BASE64 = 3
    NUMBER = 4
    """The text of a number."""
    BOOLEAN = 5


END, ANY, OP, ABSENT = range(20, 24)
"""What else may follow a constant text: nothing, any value, the operation, a column's absence."""

FIRST, OPS, HAS_OLD_KEY = range(3)
"""Of a layout: its first step, operations that it may have (bits of `c r u d`), whether key columns
of `before` are to be compared with those of `after`."""


class _Seen:
    events = 0


def scanner(events: int) -> Any:
    """The functions of `scan`, if this process has them; it loads them after many events.

    Args:
        events: that are decoded now.
    """
    scan = loading.loaded(loading.SCAN)
    if scan is None:
        _Seen.events += events
        if _Seen.events >= _WORTH_LOADING:
            _Seen.events = 0
            loading.load()
    return scan or loading.loaded(loading.SCAN)
