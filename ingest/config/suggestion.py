# SPDX-License-Identifier: Apache-2.0
"""Suggests the known name that an unknown one was probably meant to be."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest", "nearest_of"]

_SHORT = 2
"""Names of so many characters look like anything."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint with the known name that looks most like another one; empty without one."""
    found = nearest_of(name, known, cutoff)
    return f"did you mean `{found}`?" if found else ""


def nearest_of(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that looks most like another one, letter case aside; empty without one.

    Args:
        name: unknown.
        known: those that exist.
        cutoff: least likeness, between 0 and 1.
    """
    by_lower = {each.lower(): each for each in known}
    cutoff = cutoff if len(name) > _SHORT else 1.0
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else ""
