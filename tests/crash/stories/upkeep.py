# SPDX-License-Identifier: Apache-2.0
"""Histories of upkeep: automatic tags, their end, dropped partitions, expiry.

Whenever a process dies, every tag that is there can be read whole.
"""

from storage.table.table import FileStoreTable
from storage.table.tags import all_tags
from storage.table.upkeep import TableUpkeep
from storage.testing.invariants import check_table
from tests.crash.histories import History, Step, write_step
from tests.table_kit import rows_of


def upkeep_step() -> Step:
    """Do what is due a while later."""

    def step(table: FileStoreTable, identifier: int) -> None:
        del identifier
        table.clock.sleep(90)
        TableUpkeep().run(table)

    return step


def check_tags(table: FileStoreTable) -> None:
    """Read what every tag keeps."""
    check_table(table, rows=True)
    for tag in all_tags(table):
        rows_of(table, tag=tag.name)


HISTORIES = {
    "tags": History(
        steps=(
            write_step([("+I", 1, "a"), ("+I", 2, "b")]),
            upkeep_step(),
            write_step([("+U", 1, "A"), ("-D", 2, "b")], full=True),
            upkeep_step(),
            write_step([("+I", 3, "c")]),
            upkeep_step(),
            write_step([("+I", 4, "d")], full=True),
            upkeep_step(),
        ),
        options={
            "bucket": "1",
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": "1",
            "tag.automatic-creation": "process-time",
            "tag.creation-period-duration": "1 min",
            "tag.num-retained-max": "2",
            "tag.default-time-retained": "4 min",
        },
        check=check_tags,
    ),
}
