# SPDX-License-Identifier: Apache-2.0
"""Pages of names, and the patterns by which clients filter names.

A page ends with the token of the next one: the last name that was returned. So pages stay
consistent while names are added and removed.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ingest.tools.catalog_service.protected import Call, Failure

__all__ = ["MAX_RESULTS", "matching", "page"]

MAX_RESULTS = 1000
"""Names in a page, unless the client requests fewer."""

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
        name: of an item; unique.
        query: instead of that of the call.

    Raises:
        Failure: `maxResults` is no number.
    """
    parameters = call.query if query is None else query
    most, token = _page_size(parameters.get("maxResults")), parameters.get("pageToken") or ""
    remaining = sorted(((name(item), item) for item in items), key=lambda pair: pair[0])
    remaining = [pair for pair in remaining if pair[0] > token]
    chunk = [item for _, item in remaining[:most]]
    return chunk, remaining[most - 1][0] if len(remaining) > most else None


def _page_size(value: Any) -> int:
    try:
        size = int(value or 0)
    except (TypeError, ValueError) as error:
        raise Failure(400, f"maxResults is a number, not {value!r}") from error
    return min(size, MAX_RESULTS) if size > 0 else MAX_RESULTS


def matching(pattern: str | None) -> Callable[[str], bool]:
    """Whether names match a pattern: `%` is any text, a backslash escapes it."""
    if not pattern:
        return lambda _: True
    parts = re.findall(r"\\.|%|[^\\%]+|\\$", pattern, re.DOTALL)
    texts = (".*" if part == "%" else re.escape(part.removeprefix("\\")) for part in parts)
    compiled = re.compile("".join(texts), re.DOTALL)
    return lambda name: compiled.fullmatch(name) is not None
