# SPDX-License-Identifier: Apache-2.0
"""Merging everything into the last level, with what that changes there.

Source: SEMANTICS.md §C.3. Data plane: no Python object per row.
"""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from storage.lsm.changelog.leveled_rows import LeveledRows, Merged
from storage.lsm.changelog.row_changes import ChangeRule, row_changes
from storage.lsm.key_order import KeyGroups
from storage.lsm.merge import reduced
from storage.lsm.merge_functions import MergeFunction
from storage.lsm.merge_order import in_merge_order

__all__ = ["FullMerge"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FullMerge:
    """A `WindowMerge` that compares results with the rows of the last level.

    Retractions are not written.

    Attributes:
        key_names: key columns in key order.
        function: reduces the rows of each key.
        last_level: the level of the result.
        lowest_only: of the rows above level 0 only the lowest of each key counts.
        rule: of the changelog.
    """

    key_names: tuple[str, ...]
    function: MergeFunction
    last_level: int
    lowest_only: bool
    rule: ChangeRule

    def merge(self, pieces: Sequence[pa.RecordBatch]) -> Merged:
        """See `WindowMerge`."""
        rows = LeveledRows.of(pieces, self.key_names)
        before = rows.rows_of_level(self.last_level)
        touched = (before < 0) | (rows.sizes > 1)
        if self.lowest_only:
            rows.keep_lowest()
        groups = KeyGroups(rows.order, rows.starts)
        groups = in_merge_order(rows.batch, groups, self.function.sequence)
        after = reduced(rows.batch, groups, self.function, self.key_names)
        changes = None
        if touched.any():
            changes = row_changes(
                rows.batch, before[touched], after.rows, after.at[touched], rule=self.rule
            )
        return Merged(after.batch(drop_retractions=True), changes)
