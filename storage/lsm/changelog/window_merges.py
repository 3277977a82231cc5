# SPDX-License-Identifier: Apache-2.0
"""How a window of complete keys is merged where its changes go into the changelog.

Lookup compaction merges the rows of level 0 with the one older row of their key: the lowest one of
the levels that are merged, or else looked up in the levels above the output, where it is marked as
deleted if the table has deletion vectors. A full merge compares its results with the rows of the
last level. Data plane: no Python object per row. Source: SEMANTICS.md §C.2, §C.3, §C.6, §E.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from storage.format.types.types import VALUE_KIND
from storage.lsm.changelog.leveled_rows import LeveledRows, Merged
from storage.lsm.changelog.row_changes import ChangeRule, row_changes
from storage.lsm.key_order import KeyGroups
from storage.lsm.lookup.contract import DeletedRows, Found
from storage.lsm.merge import Outcome, reduced
from storage.lsm.merge_functions import MergeFunction
from storage.lsm.merge_functions.pick_row import retractions
from storage.lsm.merge_order import in_merge_order

__all__ = ["Find", "FirstRowMerge", "FullMerge", "LookupMerge"]

Find = Callable[[pa.RecordBatch, bool], Found | None]
"""Looks keys up in the levels above the output, None where these are empty; the flag says whether
rows are wanted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LookupMerge:
    """A `WindowMerge` for all merge engines but first-row.

    Attributes:
        key_names: key columns in key order.
        function: reduces the rows of each key, lone rows too.
        find: looks up older rows.
        with_values: the older rows are merged, not only marked.
        deletions: where older rows that were looked up are marked; None = nowhere.
        rule: of the changelog; None = there is none.
        drop_retractions: leave keys whose result is -U or -D out of the rows to be written.
    """

    key_names: tuple[str, ...]
    function: MergeFunction
    find: Find
    with_values: bool
    deletions: DeletedRows | None
    rule: ChangeRule | None
    drop_retractions: bool

    def merge(self, batches: Sequence[pa.RecordBatch]) -> Merged:
        """See `WindowMerge`."""
        rows = LeveledRows.of(batches, self.key_names)
        before = rows.keep_lowest()
        in_level_0 = rows.in_level_0
        looked_up = in_level_0 & (before < 0)
        if looked_up.any():
            found = self.find(rows.keys(looked_up, self.key_names), self.with_values)
            if found is not None and len(found.keys):
                if self.deletions is not None:
                    _mark(found, self.deletions)
                if self.with_values and found.rows is not None:
                    keys = np.flatnonzero(looked_up)[found.keys]
                    before[keys] = rows.append(keys, found.rows)
        groups = KeyGroups(rows.order, rows.starts)
        groups = in_merge_order(rows.batch, groups, self.function.sequence)
        after = reduced(rows.batch, groups, self.function, self.key_names)
        changes = None
        if self.rule is not None and in_level_0.any():
            changes = row_changes(
                rows.batch, before[in_level_0], after.rows, after.at[in_level_0], rule=self.rule
            )
        return Merged(after.batch(drop_retractions=self.drop_retractions), changes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FirstRowMerge:
    """A `WindowMerge` for first-row: an existing row wins.

    Attributes:
        key_names: key columns in key order.
        function: reduces the rows of each key, lone rows too.
        find: looks up older rows.
        emits_changelog: new keys go into the changelog, with the kinds they arrived with.
    """

    key_names: tuple[str, ...]
    function: MergeFunction
    find: Find
    emits_changelog: bool

    def merge(self, batches: Sequence[pa.RecordBatch]) -> Merged:
        """See `WindowMerge`."""
        rows = LeveledRows.of(batches, self.key_names)
        groups = in_merge_order(rows.batch, KeyGroups(rows.order, rows.starts))
        after = reduced(rows.batch, groups, self.function, self.key_names)
        adds = ~retractions(rows.batch.column(VALUE_KIND).to_numpy()[rows.order])
        known = np.logical_or.reduceat((rows.levels > 0) & adds, rows.starts)
        at = after.at.copy()
        new = (at >= 0) & ~known
        if new.any():
            found = self.find(rows.keys(new, self.key_names), False)
            if found is not None:
                old = np.flatnonzero(new)[found.keys]
                new[old] = False
                at[old] = -1
        changes = (
            Outcome(after.rows, at[new]).batch() if self.emits_changelog and new.any() else None
        )
        return Merged(Outcome(after.rows, at).batch(), changes)


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

    def merge(self, batches: Sequence[pa.RecordBatch]) -> Merged:
        """See `WindowMerge`."""
        rows = LeveledRows.of(batches, self.key_names)
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


def _mark(found: Found, deletions: DeletedRows) -> None:
    for number, file in enumerate(found.files):
        positions = found.positions[found.file_of == number]
        if len(positions):
            deletions.mark(file.file_name, positions)
