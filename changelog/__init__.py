# SPDX-License-Identifier: Apache-2.0
"""Row-level changes of a table: streams of them, and judging them.

Begin with `ChangelogReader`; `stream_scan` is for programs that share a stream among workers. The
names below are imported when they are first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from changelog.changelog_reader import ChangelogReader
    from changelog.stream_scan import ChangelogBatch, StreamPlan, StreamScan, read_changelog

__all__ = ["ChangelogBatch", "ChangelogReader", "StreamPlan", "StreamScan", "read_changelog"]

_MODULES = {
    "ChangelogBatch": "changelog.stream_scan",
    "ChangelogReader": "changelog.changelog_reader",
    "StreamPlan": "changelog.stream_scan",
    "StreamScan": "changelog.stream_scan",
    "read_changelog": "changelog.stream_scan",
}
"""Where each public name comes from."""


def __getattr__(name: str) -> Any:
    """A public name, from its module."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(module), name)
    return found


def __dir__() -> list[str]:
    """What is public, imported or not."""
    return sorted({*globals(), *__all__})
