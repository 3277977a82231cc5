# SPDX-License-Identifier: Apache-2.0
"""Streams of the row-level changes of a table.

Begin with `ChangelogReader`; `stream_scan` is for programs that share a stream among workers. The
names below are imported when they are first used.
"""

from typing import TYPE_CHECKING

from storage.lazy_names import lazy_names

if TYPE_CHECKING:
    from changelog.stream_scan import (
        ChangelogBatch,
        ChangelogReader,
        StreamPlan,
        StreamScan,
        read_changelog,
    )

__all__ = ["ChangelogBatch", "ChangelogReader", "StreamPlan", "StreamScan", "read_changelog"]

_MODULES = {
    "ChangelogBatch": "changelog.stream_scan",
    "ChangelogReader": "changelog.stream_scan",
    "StreamPlan": "changelog.stream_scan",
    "StreamScan": "changelog.stream_scan",
    "read_changelog": "changelog.stream_scan",
}
"""Where each public name comes from."""

__getattr__, __dir__ = lazy_names(globals(), _MODULES)
