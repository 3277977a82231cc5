# SPDX-License-Identifier: Apache-2.0
"""Suggests the known name that an unknown one was probably meant to be."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]

_SHORT = 2
"""Names of so many characters look like anything."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint with the known name that looks most like another one; empty without one."""
    by_lower = {one.lower(): one for one in known}
    cutoff = 0.6 if len(name) > _SHORT else 1.0
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return f"did you mean `{by_lower[found[0]]}`?" if found else ""
