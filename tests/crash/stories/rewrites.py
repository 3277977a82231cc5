# SPDX-License-Identifier: Apache-2.0
"""Histories of what rewrites tables whole: other buckets, sorted rows, statistics.

None of it changes a row, whenever it dies. A rescale that died is finished before rows are
written again: until then partitions with the old number of buckets refuse them.
"""

from storage.table.branches import repair_hints
from storage.table.compaction.rescale import rescale
from storage.table.compaction.sort_table import SortOrder, sort_table
from storage.table.inspect.analyze import analyze
from storage.table.table import FileStoreTable
from tests.crash.histories import History, Rows, Step, delete_step, expire_step, write_step
from tests.crash.table_options import LOOKUP, VECTORS

_COLUMNS = (("p", "STRING"), ("k", "INT"), ("v", "STRING"))
_FIRST: Rows = [("+I", p, k, f"{k}") for p in "ab" for k in range(6)]


def rescale_step(buckets: int) -> Step:
    """Give the table another number of buckets, and put its hints right."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        rescale(table.latest(), buckets)
        repair_hints(table)

    return step


def write_on_step(rows: Rows, *, full: bool = False) -> Step:
    """Finish what a rescale has left, then write."""

    def step(table: FileStoreTable, identifier: int) -> None:
        table = table.latest()
        rescale(table, table.options.bucket)
        write_step(rows, full=full)(table, identifier)

    return step


def sort_step(order: SortOrder) -> Step:
    """Sort every partition."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        sort_table(table, ["k", "v"], order)

    return step


def analyze_step() -> Step:
    """Compute statistics of all columns."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        analyze(table, None)

    return step


_RESCALES = (
    write_on_step(_FIRST),
    rescale_step(3),
    write_on_step([("+U", "a", 1, "new"), ("-D", "b", 2, "2"), ("+I", "c", 9, "c")]),
    analyze_step(),
    rescale_step(2),
    expire_step(1),
    write_on_step([("+U", "c", 9, "d")]),
    write_on_step([], full=True),
)
_SORTS = (
    write_step(_FIRST),
    write_step([("+I", "a", 3, "again"), ("+I", "b", -1, "less")]),
    sort_step(SortOrder.ZORDER),
    write_step([("+I", "a", 2, "late")]),
    analyze_step(),
    sort_step(SortOrder.ORDER),
    expire_step(1),
)
HISTORIES = {
    "rescale": History(
        steps=_RESCALES,
        options={"bucket": "1"},
        columns=_COLUMNS,
        keys=("p", "k"),
        partitions=("p",),
    ),
    "rescale-vectors": History(
        steps=_RESCALES,
        options=LOOKUP | VECTORS | {"bucket": "1"},
        columns=_COLUMNS,
        keys=("p", "k"),
        partitions=("p",),
    ),
    "sort": History(
        steps=_SORTS, options={"bucket": "-1"}, columns=_COLUMNS, keys=(), partitions=("p",)
    ),
    "sort-vectors": History(
        steps=(*_SORTS[:2], delete_step("k = 3"), *_SORTS[2:]),
        options=VECTORS | {"bucket": "-1"},
        columns=_COLUMNS,
        keys=(),
        partitions=("p",),
    ),
}
