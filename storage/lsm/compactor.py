# SPDX-License-Identifier: Apache-2.0
"""Carrying out one compact unit: which files are rewritten, which only change their level.

Source: SEMANTICS.md §D.6. The plan is pure (`plan_unit`); carrying it out streams with bounded
memory. Nothing here touches a snapshot: the caller commits the increment.
"""

import dataclasses
from collections.abc import Callable, Iterable

from storage.format.files.data_file import KeyValueFileWriter
from storage.format.metadata.file_meta import CompactIncrement, DataFileMeta, FileSource
from storage.lsm.bucket import BucketContext
from storage.lsm.changelog.unit_merge import Merged, Merging, upgrade_of
from storage.lsm.compaction_policy import CompactUnit
from storage.lsm.levels import KeyOf, Levels, Section, SortedRun, sections
from storage.lsm.merge import MERGE_WINDOW_BYTES
from storage.lsm.merge_functions.fold import naming_table


@dataclasses.dataclass(frozen=True, slots=True)
class UnitPlan:
    """What happens to the files of a unit.

    Attributes:
        rewrites: groups of neighbouring sections, ascending by key; each group becomes one series
            of rolling files.
        upgrades: files that stay as they are and move to the output level.
        unchanged: files that stay as they are, in their level.
    """

    rewrites: tuple[tuple[Section, ...], ...]
    upgrades: tuple[DataFileMeta, ...]
    unchanged: tuple[DataFileMeta, ...]


def plan_unit(
    unit: CompactUnit,
    key_of: KeyOf,
    *,
    small_file_bytes: float,
    rewrite_all: bool = False,
    expires: Callable[[DataFileMeta], bool] = lambda _: False,
) -> UnitPlan:
    """Decide file by file between rewriting and upgrading. Pure.

    Sections of several runs are merged. Files that are alone in their section are merged with
    neighbouring candidates when small, and upgraded otherwise, unless that puts retractions into
    the last level.

    Args:
        unit: the files and the output level.
        key_of: comparable form of a framed key.
        small_file_bytes: files below are rewritten with their neighbours [bytes].
        rewrite_all: rewrite what could be upgraded.
        expires: whether rows of a file have grown too old to be kept.
    """
    rewrites: list[tuple[Section, ...]] = []
    single_files: list[DataFileMeta] = []
    candidates: list[Section] = []

    def flush() -> None:
        if len(candidates) == 1 and len(candidates[0]) == 1:
            single_files.extend(candidates[0][0].files)
        elif candidates:
            rewrites.append(tuple(candidates))
        candidates.clear()

    for section in sections(unit.files, key_of):
        if len(section) > 1:
            candidates.append(section)
            continue
        for file in section[0].files:
            if file.file_size < small_file_bytes:
                candidates.append((SortedRun(file.level, (file,)),))
            else:
                flush()
                single_files.append(file)
    flush()
    upgrades: list[DataFileMeta] = []
    unchanged: list[DataFileMeta] = []
    for file in single_files:
        retracts = unit.output_level == unit.max_level and file.delete_row_count != 0
        if rewrite_all or retracts or expires(file):
            rewrites.append(((SortedRun(file.level, (file,)),),))
        else:
            (unchanged if file.level == unit.output_level else upgrades).append(file)
    return UnitPlan(tuple(rewrites), tuple(upgrades), tuple(unchanged))


def compact(
    unit: CompactUnit,
    context: BucketContext,
    levels: Levels,
    *,
    window_bytes: int = MERGE_WINDOW_BYTES,
) -> CompactIncrement:
    """Merge the files of a unit into its output level, and write the changelog of that.

    Rows keep their sequence numbers; of merged rows the last one's number is kept. Retractions
    are dropped if the unit demands it. Rows that newer ones replace are marked in
    `context.deletions`, whose changes the caller writes. The files of `compact_before` still exist
    afterwards.

    Args:
        unit: what to merge, from `compaction_policy.pick`.
        context: the bucket.
        levels: all its files, those of the unit included.
        window_bytes: Arrow memory of the merge [bytes].

    Returns:
        The files replaced and the files that take their place, and changelog files. Files that
        stay where they are are in neither.

    Raises:
        StorageUnavailableError: the store failed; files written so far are removed.
        CorruptDataError: an input file violates the format.
        InvalidRequestError: the merge engine cannot merge the rows of a key.
    """
    options = context.options
    if unit.each_alone:
        plan = _each_alone(unit)
    else:
        plan = plan_unit(
            unit,
            context.key_of,
            small_file_bytes=options.target_file_size * options.compaction_small_file_ratio,
            rewrite_all=options.compaction_force_rewrite_all_files,
            expires=context.expires_rows,
        )
    merging = Merging(unit, context, levels, window_bytes)
    output = _Output(unit, context)
    moved_files: list[DataFileMeta] = []
    try:
        with naming_table(context.layout.root):
            for group, moves in _in_key_order(plan, context.key_of):
                if not moves:
                    output.rewrite(merging.windows(group, unit.drop_deletes))
                    continue
                (file,) = _files(group)
                upgrade = upgrade_of(file, unit, options, context.deletions is not None)
                if upgrade.rewrites:
                    output.rewrite(merging.windows(group, context.deletions is not None))
                    continue
                moved_files.append(file)
                if upgrade.emits_changelog and merging.matters:
                    output.emit(merging.windows(group, drop_retractions=False))
        new_files, changelog = output.close()
    except BaseException:
        output.abort()
        raise
    live_names = {file.file_name for file in (*moved_files, *plan.unchanged)}
    rewritten = [file for file in unit.files if file.file_name not in live_names]
    if context.deletions is not None:
        for file in rewritten:
            context.deletions.drop(file.file_name)
    if context.lookup is not None:
        context.lookup.release(rewritten)
    return CompactIncrement(
        compact_before=(*rewritten, *moved_files),
        compact_after=(*new_files, *(file.at_level(unit.output_level) for file in moved_files)),
        changelog_files=changelog,
    )


Group = tuple[Section, ...]


def _each_alone(unit: CompactUnit) -> UnitPlan:
    return UnitPlan(tuple(((SortedRun(file.level, (file,)),),) for file in unit.files), (), ())


def _in_key_order(plan: UnitPlan, key_of: KeyOf) -> list[tuple[Group, bool]]:
    """What is rewritten and what may move (True), ascending by key."""
    steps: list[tuple[Group, bool]] = [(group, False) for group in plan.rewrites]
    steps += [(((SortedRun(file.level, (file,)),),), True) for file in plan.upgrades]
    return sorted(steps, key=lambda step: min(key_of(file.min_key) for file in _files(step[0])))


def _files(group: Group) -> Iterable[DataFileMeta]:
    return (file for section in group for run in section for file in run.files)


class _Output:
    """The files that one compaction writes. `close` or `abort` ends it."""

    def __init__(self, unit: CompactUnit, context: BucketContext) -> None:
        self._level = unit.output_level
        self._context = context
        self._written: list[DataFileMeta] = []
        self._changelog: KeyValueFileWriter | None = None

    def rewrite(self, windows: Iterable[Merged]) -> None:
        """Write rows as one series of files, and their changes."""
        writer = self._context.open_writer(self._level, FileSource.COMPACT)
        try:
            for merged in windows:
                writer.write(merged.rows)
                self._emit(merged)
            self._written.extend(writer.close())
        except BaseException:
            writer.abort()
            raise

    def emit(self, windows: Iterable[Merged]) -> None:
        """Write only the changes."""
        for merged in windows:
            self._emit(merged)

    def _emit(self, merged: Merged) -> None:
        if merged.changes is None or not merged.changes.num_rows:
            return
        if self._changelog is None:
            self._changelog = self._context.open_changelog_writer(self._level)
        self._changelog.write(merged.changes)

    def close(self) -> tuple[tuple[DataFileMeta, ...], tuple[DataFileMeta, ...]]:
        """Finish; the data files and the changelog files."""
        changelog = () if self._changelog is None else self._changelog.close()
        return tuple(self._written), tuple(changelog)

    def abort(self) -> None:
        """Remove everything written."""
        if self._changelog is not None:
            self._changelog.abort()
        self._context.delete_files(self._written)
