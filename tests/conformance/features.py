# SPDX-License-Identifier: Apache-2.0
"""The features that later releases bring, and which of them a case needs.

`LATER` is the only reason a case may be left out. Needs are derived from what a case says
(options, columns, steps, checks), never from its name; `test_cases.py` checks that no entry of
`LATER` is already carried out by the storage layer. The golden packs use the same table.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = [
    "LATER",
    "case_needs",
    "check_needs",
    "later",
    "option_needs",
    "read_needs",
    "step_needs",
]

LATER: Mapping[str, str] = {
    # merging
    "sequence.snapshot-ordering": "ordering by snapshot",
}
"""Feature -> the capability that brings it. Delete an entry when the feature is there."""


def later(needs: Iterable[str]) -> list[str]:
    """Reasons to leave something out: one text per need that is not there yet, without repeats."""
    return [f"{need}: {LATER[need]}" for need in dict.fromkeys(needs) if need in LATER]


# ------------------------------------------------------------------------------- options


def read_needs(options: Mapping[str, str]) -> Iterator[str]:
    """Features without which reading a table with these options would be wrong."""
    if options.get("sequence.snapshot-ordering") == "true":
        yield "sequence.snapshot-ordering"


_WRITE_PREFIXES = {
    "partition.expiration-": "partition-expiration",
    "tag.": "auto-tags",
}


def option_needs(options: Mapping[str, str]) -> Iterator[str]:
    """Features without which a table with these options cannot be created, written and read."""
    yield from read_needs(options)
    for key in options:
        for prefix, feature in _WRITE_PREFIXES.items():
            if key.startswith(prefix):
                yield feature


# --------------------------------------------------------------------------------- cases

_CALLS = {
    "remove_orphan_files": "orphan-files",
}
_UNITS = {
    "auto_tag": "auto-tags",
    "partition_expire": "partition-expiration",
}


def case_needs(case: Mapping[str, Any]) -> Iterator[str]:
    """Features a case cannot run without; what only single checks need is not among them."""
    table = case.get("table")
    if table is not None:
        yield from option_needs(table.get("options") or {})
    for step in case["steps"]:
        for kind, body in step.items():
            yield from step_needs(kind, body)


def step_needs(kind: str, body: Any) -> Iterator[str]:
    """Features without which a step that changes the table cannot run."""
    if kind == "alter":
        yield from option_needs(body.get("set_options") or {})
    elif kind == "call":
        yield from (_CALLS[name] for name in body if name in _CALLS)
    elif kind == "unit" and body["fn"] in _UNITS:
        yield _UNITS[body["fn"]]


def check_needs(kind: str, body: Any) -> Iterator[str]:
    """Features without which a step that only looks at the table has nothing to look at."""
    del kind, body
    yield from ()
