# SPDX-License-Identifier: Apache-2.0
"""Suggest the known name that is most similar to an unknown one."""

import difflib
from collections.abc import Iterable

from storage.errors import InvalidOptionError
from storage.options.options import TABLE_OPTIONS, find_option

_SHORT = 2
"""Names up to this length are matched exactly: they resemble too many others."""


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a hint with the most similar name; empty if there is none."""
    match = nearest_of(name, candidates, cutoff)
    return f"did you mean `{match}`?" if match else ""


def nearest_of(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the most similar known name, ignoring case; empty if there is none.

    Args:
        name: unknown name.
        candidates: known names.
        cutoff: minimum similarity, between 0 and 1.
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    cutoff = cutoff if len(name) > _SHORT else 1.0
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[matches[0]] if matches else ""


def refuse_misspelt(option: str) -> None:
    """Refuse a table option that seems misspelt; other unknown ones are kept unchanged."""
    if find_option(option) is not None:
        return
    hint = nearest(option, (row.key for row in TABLE_OPTIONS), cutoff=0.85)
    if hint:
        raise InvalidOptionError("there is no such table option", hint=hint, option=option)
