# SPDX-License-Identifier: Apache-2.0
"""Reading buckets whose compaction looks up: of the levels above 0 only the lowest row counts.

Lookup compaction writes the finished row of a key into a level while an older one still lies in
a level above, so a merge that makes one row of several must not take both in. Source: SEMANTICS.md
§C.2 ("level>0 kvs other than *before* are ignored").
"""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from storage.lsm.levels import Section, SortedRun
from storage.lsm.merge import merge_runs
from storage.lsm.merge_functions.pick_row import Deduplicate
from storage.options.options import TableOptions

__all__ = ["merge_inputs"]

_SUMMING = ("partial-update", "aggregation")


def merge_inputs(
    section: Section,
    read: Callable[[SortedRun], Iterator[pa.RecordBatch]],
    key_names: Sequence[str],
    options: TableOptions,
) -> list[Iterator[pa.RecordBatch]]:
    """What is to be merged for a section.

    Runs of a section are oldest first.

    Returns:
        Sorted runs, oldest first.
    """
    if not (options.needs_lookup and options.merge_engine in _SUMMING):
        return [read(run) for run in section]
    files = [file for run in section for file in run.files]
    levels = sorted({file.level for file in files if file.level > 0}, reverse=True)
    if len(levels) < 2:
        return [read(run) for run in section]
    upper = [
        read(SortedRun(level, tuple(file for file in files if file.level == level)))
        for level in levels
    ]
    young = [tuple(file for file in run.files if file.level == 0) for run in section]
    return [
        merge_runs(upper, key_names, Deduplicate()),
        *(read(SortedRun(0, part)) for part in young if part),
    ]
