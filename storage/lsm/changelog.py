# SPDX-License-Identifier: Apache-2.0
"""How the rows of a compact unit are merged, as the table's changelog producer requires.

Owns the choice between the kinds of merge, and what a file that only changes its level needs.
Lookup compaction merges the rows of level 0 with the one older row of their key: the lowest one of
the levels that are merged, or else looked up in the levels above the output, where it is marked as
deleted if the table has deletion vectors. A full merge compares its results with the rows of the
last level. Source: SEMANTICS.md §C.2, §C.3, §C.6, §D.6, §E.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from storage.errors import InternalError, UnsupportedFeatureError
from storage.format.metadata.file_meta import DataFileMeta
from storage.format.types.types import SEQUENCE_NUMBER, VALUE_KIND, RowKind
from storage.lsm.bucket import BucketContext, DeletedRows, LookupResult
from storage.lsm.compaction_policy import CompactUnit
from storage.lsm.key_order import KeyGroups, order_words, sort_and_group
from storage.lsm.levels import KeyOf, Levels, Section, SortedRun
from storage.lsm.merge import (
    MERGE_WINDOW_BYTES,
    Outcome,
    complete_windows,
    in_merge_order,
    merge_runs,
    reduced,
)
from storage.lsm.merge_functions import MergeFunction, merge_function_for
from storage.lsm.merge_functions.segments import (
    Deduplicate,
    numbers_in,
    retractions,
    segment_lasts,
    valid_mask,
)
from storage.options.options import TableOptions

# The changelog rows of keys whose row changed. Pure.
#
# Owns the table of SEMANTICS.md §C.2 and the options `changelog-producer.row-deduplicate`. Data
# plane: whole columns, no Python object per row.


Mask = npt.NDArray[np.bool_]


_SYSTEM = (SEQUENCE_NUMBER, VALUE_KIND)


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeRule:
    """Which changes are emitted.

    Attributes:
        row_deduplicate: no change is emitted for a row that stays the same.
        ignore_fields: columns left out when rows are compared for that.
    """

    row_deduplicate: bool = False
    ignore_fields: tuple[str, ...] = ()

    @staticmethod
    def of(options: TableOptions) -> "ChangeRule":
        """The rule of a table."""
        return ChangeRule(options.row_deduplicate, options.row_deduplicate_ignore_fields)


def row_changes(
    before: pa.RecordBatch,
    before_at: npt.NDArray[np.int64],
    after: pa.RecordBatch,
    after_at: npt.NDArray[np.int64],
    *,
    rule: ChangeRule,
) -> pa.RecordBatch:
    """The changes that lead from some rows to others, key by key.

    Key i has the row `before_at[i]` of `before` and the row `after_at[i]` of `after`; -1 = none.
    A row of kind -U or -D counts as none. The keys themselves are not compared: rows of the same
    i belong together, and the result is ordered by i.

    | before | after | emitted |
    |---|---|---|
    | none | a row | +I of the later row |
    | a row | none | -D of the earlier row |
    | a row | a row | -U of the earlier, +U of the later; nothing where `rule` says they are equal |

    Args:
        before: KeyValueBatch, of any number of rows in any order.
        before_at: row number per key, -1 where there is none; int64.
        after: KeyValueBatch of the same Arrow schema.
        after_at: row number per key, -1 where there is none; int64, as many as `before_at`.
        rule: which changes are emitted.

    Returns:
        KeyValueBatch with the kinds of the table above, each row with its own sequence number;
        -U directly before its +U.
    """
    has_before = before_at >= 0
    has_after = after_at >= 0
    has_before[has_before] = _adds(before)[before_at[has_before]]
    has_after[has_after] = _adds(after)[after_at[has_after]]
    emits = has_before | has_after
    updates = has_before & has_after
    if rule.row_deduplicate and updates.any():
        updated_keys = np.flatnonzero(updates)
        emits[updated_keys] = ~_equal_rows(
            before, before_at[updated_keys], after, after_at[updated_keys], rule
        )
    updates &= emits
    emits_before, emits_after = has_before & emits, has_after & emits
    counts = emits_before.astype(np.int64) + emits_after
    ends = np.cumsum(counts)
    rows = np.empty(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    kinds = np.empty(len(rows), dtype=np.int8)
    first_rows = (ends - counts)[emits_before]
    rows[first_rows] = before_at[emits_before]
    kinds[first_rows] = np.where(updates[emits_before], RowKind.UPDATE_BEFORE, RowKind.DELETE)
    last_rows = (ends - 1)[emits_after]
    rows[last_rows] = after_at[emits_after] + before.num_rows
    kinds[last_rows] = np.where(updates[emits_after], RowKind.UPDATE_AFTER, RowKind.INSERT)
    return _gathered(before, after, rows, kinds)


def _adds(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    return ~retractions(numbers_in(batch, VALUE_KIND))


def _equal_rows(
    before: pa.RecordBatch,
    before_rows: npt.NDArray[np.int64],
    after: pa.RecordBatch,
    after_rows: npt.NDArray[np.int64],
    rule: ChangeRule,
) -> npt.NDArray[np.bool_]:
    """Which pairs of rows have equal values in all columns that count."""
    same = np.ones(len(before_rows), dtype=bool)
    for name in after.schema.names:
        if name in _SYSTEM or name in rule.ignore_fields:
            continue
        previous = before.column(name).take(pa.array(before_rows))
        same &= equal_rows(previous, after.column(name).take(pa.array(after_rows)))
    return same


def _gathered(
    before: pa.RecordBatch,
    after: pa.RecordBatch,
    rows: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.int8],
) -> pa.RecordBatch:
    """Rows of both batches, numbered consecutively, with new kinds."""
    position = after.schema.get_field_index(VALUE_KIND)
    if before is after:
        batch = after.take(pa.array(np.where(rows < after.num_rows, rows, rows - after.num_rows)))
    elif not before.num_rows or (rows >= before.num_rows).all():
        batch = after.take(pa.array(rows - before.num_rows))
    else:
        batch = pa.concat_batches([before, after]).take(pa.array(rows))
    return batch.set_column(position, after.schema.field(position), pa.array(kinds))


def equal_rows(left: pa.Array, right: pa.Array) -> Mask:
    """Which rows of two columns are equal, as by Apache Paimon's equaliser (SEMANTICS.md §C.2).

    Two nulls are equal; floats are compared by their bits, all NaN being one; nested values by
    their content, maps without regard to the order of their entries.
    """
    left_valid, right_valid = valid_mask(left), valid_mask(right)
    valid = left_valid & right_valid
    equal = left_valid == right_valid
    kind = left.type
    if pa.types.is_null(kind) or not valid.any():
        return equal
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return equal & (_equal_lists(left, right, valid) | ~valid)
    if pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            equal &= equal_rows(left.field(position), right.field(position)) | ~valid
        return equal
    if pa.types.is_fixed_size_list(kind):
        return equal & (_equal_vectors(left, right, valid) | ~valid)
    if pa.types.is_floating(kind):
        return equal & ((_bits(left) == _bits(right)) | ~valid)
    if pa.types.is_dictionary(kind):
        return equal_rows(left.dictionary_decode(), right.dictionary_decode())
    same = pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return equal & (same | ~valid)


def _bits(column: pa.Array) -> np.ndarray:
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy(zero_copy_only=False)
    integer = np.dtype(f"i{values.dtype.itemsize}")
    bits = values.view(integer)
    nan = np.isnan(values)
    return np.where(nan, np.iinfo(integer).max, bits) if nan.any() else bits


def _equal_vectors(left: pa.Array, right: pa.Array, both_valid: Mask) -> Mask:
    size = left.type.list_size
    rows = np.flatnonzero(both_valid)
    indices = pa.array(rows)
    inner = equal_rows(left.take(indices).flatten(), right.take(indices).flatten())
    equal = np.zeros(len(both_valid), dtype=bool)
    equal[rows] = inner.reshape(len(rows), size).all(axis=1) if size else True
    return equal


def _equal_lists(left: pa.Array, right: pa.Array, both_valid: Mask) -> Mask:
    """Which lists and maps have the same length and equal elements; undefined for nulls."""
    left_sizes, right_sizes = _lengths(left), _lengths(right)
    equal = both_valid & (left_sizes == right_sizes)
    rows = np.flatnonzero(equal & (left_sizes > 0))
    if not len(rows):
        return equal
    inner = equal_rows(_elements(left, rows), _elements(right, rows))
    starts = np.cumsum(left_sizes[rows]) - left_sizes[rows]
    equal[rows] = np.logical_and.reduceat(inner, starts)
    return equal


def _lengths(column: pa.Array) -> np.ndarray:
    if pa.types.is_map(column.type):
        lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False)).astype(np.int64)
        return np.where(valid_mask(column), lengths, 0)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def _elements(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The elements of some rows concatenated, those of a map by key; no row is null."""
    lists = column.take(pa.array(rows))
    if not pa.types.is_map(column.type):
        return lists.flatten()
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    keys = lists.keys.slice(offsets[0], offsets[-1] - offsets[0])
    items = lists.items.slice(offsets[0], offsets[-1] - offsets[0])
    entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    owner = np.repeat(np.arange(len(rows)), np.diff(offsets))
    try:
        words = [word for word, _ in order_words([keys])]
    except UnsupportedFeatureError:
        return entries  # keys that are nested have no order: entries are compared as they come
    order = np.lexsort([*reversed(words), owner])
    return entries.take(pa.array(order))


_LEVEL = "_LEVEL"
_NO_LEVEL = 127


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """The result of merging a window.

    Attributes:
        rows: KeyValueBatch to be written, strictly ascending by key.
        changes: KeyValueBatch for the changelog, ascending by key; None where there is none.
    """

    rows: pa.RecordBatch
    changes: pa.RecordBatch | None


class WindowMerge(Protocol):
    """Merges the rows of one window of complete keys."""

    def merge(self, batches: Sequence[pa.RecordBatch]) -> Merged:
        """Merge rows from `at_level`, at least one.

        Raises:
            InvalidRequestError: the merge engine cannot merge the rows of a key.
            StorageUnavailableError: older rows could not be looked up.
            CorruptDataError: a file with older rows violates the format.
        """


def at_level(batches: Iterable[pa.RecordBatch], level: int) -> Iterator[pa.RecordBatch]:
    """KeyValueBatches with their level as a last column."""
    for batch in batches:
        levels = pa.array(np.full(batch.num_rows, level, dtype=np.int8))
        yield batch.append_column(_LEVEL, levels)


@dataclasses.dataclass(slots=True)
class LeveledRows:
    """The rows of a window by key.

    Attributes:
        batch: KeyValueBatch in any order.
        order: int64 rows that count, by key, those of one key in arrival order.
        starts: int64 positions in `order` at which keys begin, ascending from 0.
        levels: int8 level of each row of `order`.
    """

    batch: pa.RecordBatch
    order: np.ndarray
    starts: np.ndarray
    levels: np.ndarray

    @staticmethod
    def of(batches: Sequence[pa.RecordBatch], key_names: Sequence[str]) -> "LeveledRows":
        """Sort the rows of a window."""
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        groups = sort_and_group(batch, key_names)
        levels = batch.column(_LEVEL).to_numpy()
        batch = batch.select(batch.schema.names[:-1])
        if groups.order is None:
            order = np.arange(batch.num_rows, dtype=np.int64)
            return LeveledRows(batch, order, groups.starts, levels)
        return LeveledRows(batch, groups.order, groups.starts, levels[groups.order])

    @property
    def sizes(self) -> np.ndarray:
        """Rows of each key, int64."""
        counts: np.ndarray = segment_lasts(self.starts, len(self.order)) + 1 - self.starts
        return counts

    @property
    def in_level_0(self) -> np.ndarray:
        """Which keys have rows of level 0: bool per key."""
        flags: np.ndarray = np.logical_or.reduceat(self.levels == 0, self.starts)
        return flags

    def rows_of_level(self, level: int) -> np.ndarray:
        """The row of each key on a level above 0: int64 per key, -1 where there is none."""
        return self._rows_where(self.levels == level)

    def keep_lowest(self) -> np.ndarray:
        """Leave out the rows above level 0 but the lowest one of each key.

        Returns:
            This row: int64 per key, -1 where there is none.
        """
        levels = np.where(self.levels == 0, np.int8(_NO_LEVEL), self.levels)
        lowest = np.minimum.reduceat(levels, self.starts)
        counts = (levels == _NO_LEVEL) | (levels == np.repeat(lowest, self.sizes))
        if not counts.all():
            sizes = np.add.reduceat(counts, self.starts, dtype=np.int64)
            self.order, self.levels = self.order[counts], self.levels[counts]
            self.starts = np.cumsum(sizes) - sizes
        return self._rows_where(self.levels > 0)

    def append(self, keys: np.ndarray, rows: pa.RecordBatch) -> np.ndarray:
        """Add a row to each of some keys, after their others; their row numbers in `batch`, int64.

        Keys are int64 numbers, ascending, with a row of a KeyValueBatch for each.
        """
        added_rows = np.arange(rows.num_rows, dtype=np.int64) + self.batch.num_rows
        self.batch = pa.concat_batches([self.batch, rows])
        sizes = self.sizes
        ends = self.starts + sizes
        self.order = np.insert(self.order, ends[keys], added_rows)
        self.levels = np.insert(self.levels, ends[keys], np.int8(_NO_LEVEL))
        sizes[keys] += 1
        self.starts = np.cumsum(sizes) - sizes
        return added_rows

    def keys(self, groups: np.ndarray, names: Sequence[str]) -> pa.RecordBatch:
        """Some of the keys."""
        rows = self.order[self.starts[groups]]
        return self.batch.select(list(names)).take(pa.array(rows))

    def _rows_where(self, mask: np.ndarray) -> np.ndarray:
        """The matching row of each key, at most one: int64 per key, -1 where none is."""
        positions = np.flatnonzero(mask)
        rows = np.full(len(self.starts), -1, dtype=np.int64)
        rows[np.searchsorted(self.starts, positions, side="right") - 1] = self.order[positions]
        return rows


Find = Callable[[pa.RecordBatch, bool], LookupResult | None]
"""Looks keys up in the levels above the output, None where these are empty; the flag says whether
rows are needed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LookupMerge:
    """A `WindowMerge` for all merge engines but first-row.

    Attributes:
        function: reduces the rows of each key, lone rows too.
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
            hits = self.find(rows.keys(looked_up, self.key_names), self.with_values)
            if hits is not None and len(hits.keys):
                if self.deletions is not None:
                    _mark(hits, self.deletions)
                if self.with_values and hits.rows is not None:
                    keys = np.flatnonzero(looked_up)[hits.keys]
                    before[keys] = rows.append(keys, hits.rows)
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
        function: reduces the rows of each key, lone rows too.
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
        adds = ~retractions(numbers_in(rows.batch, VALUE_KIND)[rows.order])
        existing = np.logical_or.reduceat((rows.levels > 0) & adds, rows.starts)
        at = after.at.copy()
        is_new = (at >= 0) & ~existing
        if is_new.any():
            hits = self.find(rows.keys(is_new, self.key_names), False)
            if hits is not None:
                keys_with_rows = np.flatnonzero(is_new)[hits.keys]
                is_new[keys_with_rows] = False
                at[keys_with_rows] = -1
        changes = (
            Outcome(after.rows, at[is_new]).batch()
            if self.emits_changelog and is_new.any()
            else None
        )
        return Merged(Outcome(after.rows, at).batch(), changes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FullMerge:
    """A `WindowMerge` that compares results with the rows of the last level.

    Retractions are not written.

    Attributes:
        lowest_only: of the rows above level 0 only the lowest of each key counts.
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
        candidates = (before < 0) | (rows.sizes > 1)
        if self.lowest_only:
            rows.keep_lowest()
        groups = KeyGroups(rows.order, rows.starts)
        groups = in_merge_order(rows.batch, groups, self.function.sequence)
        after = reduced(rows.batch, groups, self.function, self.key_names)
        changes = None
        if candidates.any():
            changes = row_changes(
                rows.batch, before[candidates], after.rows, after.at[candidates], rule=self.rule
            )
        return Merged(after.batch(drop_retractions=True), changes)


def _mark(hits: LookupResult, deletions: DeletedRows) -> None:
    for number, file in enumerate(hits.files):
        positions = hits.positions[hits.file_of == number]
        if len(positions):
            deletions.mark(file.file_name, positions)


@dataclasses.dataclass(frozen=True, slots=True)
class Upgrade:
    """The work on a file that may change its level without being rewritten.

    Attributes:
        emits_changelog: its rows are merged for the changelog, and the rows they replace marked.
    """

    emits_changelog: bool
    rewrites: bool


def upgrade_of(
    file: DataFileMeta, unit: CompactUnit, options: TableOptions, deletion_vectors: bool
) -> Upgrade:
    """The work to move a file to the output level of a unit. Pure.

    The file is alone in its section, without retractions if the output is the last level.
    """
    output = unit.output_level
    if options.changelog_producer == "full-compaction":
        return Upgrade(emits_changelog=output == unit.max_level, rewrites=False)
    if not options.needs_lookup or file.level > 0:
        return Upgrade(emits_changelog=False, rewrites=False)
    formats = options.file_format_per_level
    format_now = formats.get(file.level, options.file_format)
    rewrites = format_now != formats.get(output, options.file_format)
    rewrites |= deletion_vectors and file.delete_row_count != 0
    last_row_counts = options.merge_engine == "deduplicate" and not options.sequence_field
    rewrites |= output != unit.max_level and not last_row_counts
    return Upgrade(emits_changelog=True, rewrites=rewrites)


class Merging:
    """Merges the sections of one unit.

    Args:
        window_bytes: Arrow memory of the merge [bytes].
    """

    def __init__(
        self, unit: CompactUnit, context: BucketContext, levels: Levels, window_bytes: int
    ) -> None:
        self._unit = unit
        self._context = context
        self._runs_above = tuple(
            run for run in levels.upper if run is not None and run.level > unit.output_level
        )
        self._window_bytes = window_bytes

    @property
    def matters(self) -> bool:
        """Whether merging has an effect besides the rows that are written."""
        options = self._context.options
        return (
            options.changelog_producer in ("lookup", "full-compaction")
            or self._context.deletions is not None
        )

    def windows(self, group: tuple[Section, ...], drop_retractions: bool) -> Iterator[Merged]:
        """Merge sections that follow one another in key order.

        Yields:
            Rows ascending by key across windows, with their changes; some may be empty.
        """
        options = self._context.options
        merge: WindowMerge | None = None
        if options.changelog_producer == "full-compaction":
            if self._unit.output_level == self._unit.max_level:
                merge = self._full_merge()
        elif options.needs_lookup and _has_level_0(group):
            merge = self._lookup_merge(drop_retractions)
        for section in group:
            if merge is None:
                yield from self._plain(section, drop_retractions)
                continue
            batch_bytes = self._window_bytes // len(section)
            runs = [self._leveled(run, batch_bytes) for run in section]
            for batches in complete_windows(
                runs, self._context.key_names, window_bytes=self._window_bytes
            ):
                yield merge.merge(batches)

    def _plain(self, section: Section, drop_retractions: bool) -> Iterator[Merged]:
        context = self._context
        batch_bytes = self._window_bytes // len(section)
        inputs = merge_inputs(
            section,
            lambda run: context.read_run(run.files, batch_bytes=batch_bytes),
            context.key_names,
            context.key_of,
            context.options,
        )
        for batch in merge_runs(
            inputs,
            context.key_names,
            merge_function_for(context.options, context.schema),
            window_bytes=self._window_bytes,
            drop_retractions=drop_retractions,
        ):
            yield Merged(batch, None)

    def _leveled(self, run: SortedRun, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        return itertools.chain.from_iterable(
            at_level(self._context.read_run((file,), batch_bytes=batch_bytes), file.level)
            for file in run.files
        )

    def _full_merge(self) -> WindowMerge:
        context = self._context
        return FullMerge(
            key_names=context.key_names,
            function=merge_function_for(context.options, context.schema),
            last_level=self._unit.max_level,
            lowest_only=context.options.needs_lookup,
            rule=ChangeRule.of(context.options),
        )

    def _lookup_merge(self, drop_retractions: bool) -> WindowMerge:
        context, options = self._context, self._context.options
        function = merge_function_for(options, context.schema, lone_rows=True)
        emits_changelog = options.changelog_producer == "lookup"
        if options.merge_engine == "first-row":
            return FirstRowMerge(
                key_names=context.key_names,
                function=function,
                find=self._find,
                emits_changelog=emits_changelog,
            )
        plain = options.merge_engine == "deduplicate" and not options.sequence_field
        return LookupMerge(
            key_names=context.key_names,
            function=function,
            find=self._find,
            with_values=emits_changelog or not plain or context.deletions is None,
            deletions=context.deletions,
            rule=ChangeRule.of(options) if emits_changelog else None,
            drop_retractions=drop_retractions,
        )

    def _find(self, keys: pa.RecordBatch, values: bool) -> LookupResult | None:
        if not self._runs_above:
            return None
        if self._context.lookup is None:
            raise InternalError(
                "a table with lookup compaction has no lookup",
                table=self._context.layout.root,
            )
        return self._context.lookup.find(keys, self._runs_above, values=values)


def _has_level_0(group: tuple[Section, ...]) -> bool:
    return any(file.level == 0 for section in group for run in section for file in run.files)


_SUMMING = ("partial-update", "aggregation")


def merge_inputs(
    section: Section,
    read: Callable[[SortedRun], Iterator[pa.RecordBatch]],
    key_names: Sequence[str],
    key_of: KeyOf | None,
    options: TableOptions,
) -> list[Iterator[pa.RecordBatch]]:
    """What is to be merged for a section: sorted runs, oldest first.

    Lookup compaction writes the finished row of a key into a level while an older one is still
    in a level above, so a merge that makes one row of several must not take both in: of the
    levels above 0 only the lowest row counts (SEMANTICS.md §C.2).

    Runs of a section are oldest first. Files of one level may be in several of them.
    """
    looks_up = options.needs_lookup and options.merge_engine in _SUMMING
    if key_of is None or not looks_up:
        return [read(run) for run in section]
    above_level_0 = [file for run in section for file in run.files if file.level > 0]
    upper_runs = [run for run in Levels.of(above_level_0, 1, key_of).upper if run is not None]
    if len(upper_runs) < 2:
        return [read(run) for run in section]
    level_0 = [tuple(file for file in run.files if file.level == 0) for run in section]
    return [
        merge_runs([read(run) for run in reversed(upper_runs)], key_names, Deduplicate()),
        *(read(SortedRun(0, part)) for part in level_0 if part),
    ]


# Walking two sorted states of a bucket side by side, key by key, in bounded memory.
#
# The caller decides what is emitted for a key: `row_changes` for a changelog, `later_images` for an
# incremental read. Data plane: whole columns, no Python object per row.


Positions = npt.NDArray[np.int64]
EmitChanges = Callable[[pa.RecordBatch, Positions, pa.RecordBatch, Positions], pa.RecordBatch]
"""From rows before, their number per key (-1: none), rows after, and theirs, to changes."""

_OWN_SEQUENCE = "_OWN_SEQUENCE"
_STORED_KIND = "_STORED_KIND"


def side_by_side(
    before: Iterable[pa.RecordBatch],
    after: Iterable[pa.RecordBatch],
    key_names: Sequence[str],
    emit: EmitChanges,
    *,
    window_bytes: int = MERGE_WINDOW_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The changes between two states, key by key.

    Args:
        before: KeyValueBatches strictly ascending by key across batches.
        after: the same of the later state, in the same Arrow schema.
        key_names: key columns in key order.
        emit: gets the rows of many keys at a time, in key order; may return any number of rows.
        window_bytes: Arrow memory held, as in `merge_runs` [bytes].

    Yields:
        The results of `emit`, in key order; without empty ones.

    Raises:
        CorruptDataError: a state has descending keys.
    """
    runs = [_on_side(before, 0), _on_side(after, 1)]
    return merge_runs(runs, key_names, _Compared(emit), window_bytes=window_bytes)


def later_images(
    before: pa.RecordBatch, before_at: Positions, after: pa.RecordBatch, after_at: Positions
) -> pa.RecordBatch:
    """New and changed rows with their stored kinds, removed ones as -D.

    Unchanged rows are left out; so are rows of kind -U and -D, which count as none.
    Source: SEMANTICS.md §C.9, scan mode `diff`.
    """
    rule = ChangeRule(row_deduplicate=True, ignore_fields=(_STORED_KIND,))
    changes = row_changes(_with_stored(before), before_at, _with_stored(after), after_at, rule=rule)
    kinds = numbers_in(changes, VALUE_KIND)
    stored_kinds = numbers_in(changes, _STORED_KIND)
    image_kinds = np.where(retractions(kinds), kinds, stored_kinds).astype(np.int8)
    images = changes.drop_columns([_STORED_KIND])
    position = images.schema.get_field_index(VALUE_KIND)
    images = images.set_column(position, images.schema.field(position), pa.array(image_kinds))
    return images.filter(pa.array(kinds != RowKind.UPDATE_BEFORE))


@dataclasses.dataclass(frozen=True, slots=True)
class _Compared:
    """A `MergeFunction` that sees at most one row of either side per key."""

    emit: EmitChanges
    sequence: None = None

    def reduce(self, batch: pa.RecordBatch, starts: np.ndarray) -> pa.RecordBatch:
        sides = numbers_in(batch, SEQUENCE_NUMBER)
        lasts = np.append(starts[1:], batch.num_rows) - 1
        before_at = np.where(sides[starts] == 0, starts, -1)
        after_at = np.where(sides[lasts] == 1, lasts, -1)
        position = batch.schema.get_field_index(SEQUENCE_NUMBER)
        seqnos = batch.column(_OWN_SEQUENCE)
        rows = batch.drop_columns([_OWN_SEQUENCE]).set_column(
            position, batch.schema.field(position), seqnos
        )
        return self.emit(rows, before_at, rows, after_at)


def _on_side(batches: Iterable[pa.RecordBatch], side: int) -> Iterator[pa.RecordBatch]:
    """Rows whose sequence number marks the state they come from."""
    for batch in batches:
        position = batch.schema.get_field_index(SEQUENCE_NUMBER)
        seqnos = batch.column(position)
        number = pa.array(np.full(batch.num_rows, side, dtype=np.int64))
        numbered = batch.set_column(position, batch.schema.field(position), number)
        yield numbered.append_column(_OWN_SEQUENCE, seqnos)


def _with_stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(_STORED_KIND, batch.column(VALUE_KIND))
