# SPDX-License-Identifier: Apache-2.0
"""What the compiled scan of JSON events and its callers agree on, without importing numba."""

import enum
from typing import Any

from ingest.compiled import loading

_WORTH_LOADING = 50_000
"""Events that a process decodes before it loads the functions by itself."""


class Wire(enum.IntEnum):
    """How the scan reads a column's values, null besides; `LOOSE` is the greatest number."""

    TOKEN = 0
    """Anything: its text is decoded value by value."""
    INTEGER = 1
    TEXT = 2
    BASE64 = 3
    NUMBER = 4
    """The text of a number."""
    BOOLEAN = 5
    LOOSE = 6
    """The text of a string, or of a number, `true` or `false`."""


END, ANY, OP, ABSENT, STAMP, SET_STAMP, WHOLE, OLD, FIRST_ROW, NEXT_ROW = range(20, 30)
"""What else may follow a constant text: nothing; any value; the operation; a column's absence; an
integer from zero on or null; the same but null; an integer or null; the row before a change; the
first row of an array; behind a row of an array the next one, or the array's end."""

FIRST, OPS, OP_CODE, KEEPS_KEY, NAMES, NAME_COUNT, CLOSED = range(7)
"""Of a layout: its first step; operations that it may have (bits of `c r u d`); the operation of
all its events, 0 where they name it; 1 where the row before must not have another key, 2 where it
must have the key; the first of the names of the row's members and their number; whether the row
before may have no other member."""


class _EventCounter:
    events = 0


def scanner(events: int) -> Any:
    """The functions of `scan`, if this process has them; it loads them after many events.

    Args:
        events: that are decoded now.
    """
    scan = loading.loaded(loading.SCAN)
    if scan is None:
        _EventCounter.events += events
        if _EventCounter.events >= _WORTH_LOADING:
            _EventCounter.events = 0
            loading.load()
    return scan or loading.loaded(loading.SCAN)
