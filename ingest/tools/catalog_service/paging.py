# SPDX-License-Identifier: Apache-2.0
"""Lists of names in pages, and the patterns by which clients choose names.

A page ends with the token of the next one: the last name that was given. So pages stay right while
names come and go.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ingest.tools.catalog_service.protected import Call, Failure

__all__ = ["MOST", "matching", "page"]

MOST = 1000
"""Names in a page, unless the client wants less."""

Item = TypeVar("Item")


def page(
    call: Call,
    items: Iterable[Item],
    name: Callable[[Item], str] = str,
    query: Any = None,
) -> tuple[list[Item], str | None]:
    """One page of items, sorted by name, and the token of the next; None: it is the last.

    Args:
        call: its query has `maxResults` and `pageToken`.
        items: all of them.
        name: of an item; no two are equal.
        query: instead of that of the call.

    Raises:
        Failure: `maxResults` is no number.
    """
    given = call.query if query is None else query
    most, token = _most(given.get("maxResults")), given.get("pageToken") or ""
    left = sorted(((name(item), item) for item in items), key=lambda pair: pair[0])
    left = [pair for pair in left if pair[0] > token]
    found = [item for _, item in left[:most]]
    return found, left[most - 1][0] if len(left) > most else None


def _most(value: Any) -> int:
    try:
        wanted = int(value or 0)
    except (TypeError, ValueError) as error:
        raise Failure(400, f"maxResults is a number, not {value!r}") from error
    return min(wanted, MOST) if wanted > 0 else MOST


def matching(pattern: str | None) -> Callable[[str], bool]:
    """Whether names match a pattern: `%` is any text, a backslash makes it a letter."""
    if not pattern:
        return lambda _: True
    parts = re.findall(r"\\.|%|[^\\%]+|\\$", pattern, re.DOTALL)
    texts = (".*" if part == "%" else re.escape(part.removeprefix("\\")) for part in parts)
    compiled = re.compile("".join(texts), re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None
