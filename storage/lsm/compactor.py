# SPDX-License-Identifier: Apache-2.0
"""Carrying out one compact unit: what is rewritten, what merely changes its level.

Source: SEMANTICS.md §D.6. The plan is pure (`plan_unit`); carrying it out streams with bounded
memory. Nothing here touches a snapshot: the caller commits the increment.
"""

import dataclasses
from collections.abc import Iterable

from storage.format.file_meta import CompactIncrement, DataFileMeta, FileSource
from storage.lsm.bucket import BucketContext, MergeListener
from storage.lsm.compaction_policy import CompactUnit
from storage.lsm.levels import KeyOf, Section, SortedRun, sections
from storage.lsm.merge import MERGE_WINDOW_BYTES, merge_runs
from storage.lsm.merge_functions import merge_function_for
from storage.lsm.merge_functions.fold import naming_table

__all__ = ["MergeListener", "UnitPlan", "compact", "plan_unit"]


@dataclasses.dataclass(frozen=True, slots=True)
class UnitPlan:
    """What happens to the files of a unit.

    Attributes:
        rewrites: groups of neighbouring sections, ascending by key; each group becomes one series
            of rolling files.
        upgrades: files that stay as they are and move to the output level.
        kept: files that stay as they are where they are.
    """

    rewrites: tuple[tuple[Section, ...], ...]
    upgrades: tuple[DataFileMeta, ...]
    kept: tuple[DataFileMeta, ...]


def plan_unit(
    unit: CompactUnit, key_of: KeyOf, *, small_file_bytes: float, rewrite_all: bool = False
) -> UnitPlan:
    """Decide file by file between rewriting and upgrading. Pure.

    Sections of several runs are merged. Files that are alone in their section are merged with
    neighbouring candidates when small, and upgraded otherwise, unless retractions would come to
    lie in the last level.

    Args:
        unit: the files and the output level.
        key_of: comparable form of a framed key.
        small_file_bytes: files below are rewritten with their neighbours [bytes].
        rewrite_all: rewrite what could be upgraded.
    """
    rewrites: list[tuple[Section, ...]] = []
    alone: list[DataFileMeta] = []
    candidates: list[Section] = []

    def flush() -> None:
        if len(candidates) == 1 and len(candidates[0]) == 1:
            alone.extend(candidates[0][0].files)
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
                alone.append(file)
    flush()
    upgrades: list[DataFileMeta] = []
    kept: list[DataFileMeta] = []
    for file in alone:
        retracts = unit.output_level == unit.max_level and file.delete_row_count != 0
        if rewrite_all or retracts:
            rewrites.append(((SortedRun(file.level, (file,)),),))
        else:
            (kept if file.level == unit.output_level else upgrades).append(file)
    return UnitPlan(tuple(rewrites), tuple(upgrades), tuple(kept))


def compact(
    unit: CompactUnit, context: BucketContext, *, window_bytes: int = MERGE_WINDOW_BYTES
) -> CompactIncrement:
    """Merge the files of a unit into its output level.

    Rows keep their sequence numbers; of merged rows the last one's number is kept. Retractions
    are left out when the unit says so. The files of `compact_before` still exist afterwards.

    Args:
        unit: what to merge, from `compaction_policy.pick`.
        context: the bucket.
        window_bytes: Arrow memory of the merge [bytes].

    Returns:
        The files replaced and the files that take their place. Files that stay where they are
        are in neither.

    Raises:
        StorageUnavailableError: the store failed; files written so far are removed.
        CorruptDataError: an input file violates the format.
    """
    options = context.options
    plan = plan_unit(
        unit,
        context.key_of,
        small_file_bytes=options.target_file_size * options.compaction_small_file_ratio,
        rewrite_all=options.compaction_force_rewrite_all_files,
    )
    written: list[DataFileMeta] = []
    done = False
    try:
        with naming_table(context.layout.root):
            for group in plan.rewrites:
                written.extend(_rewrite(group, unit, context, window_bytes))
        done = True
    finally:
        if not done:
            context.delete_files(written)
    changelog = () if context.listener is None else context.listener.finish()
    rewritten = (file for group in plan.rewrites for file in _files(group))
    return CompactIncrement(
        compact_before=(*rewritten, *plan.upgrades),
        compact_after=(*written, *(file.at_level(unit.output_level) for file in plan.upgrades)),
        changelog_files=changelog,
    )


def _files(group: Iterable[Section]) -> Iterable[DataFileMeta]:
    return (file for section in group for run in section for file in run.files)


def _rewrite(
    group: tuple[Section, ...], unit: CompactUnit, context: BucketContext, window_bytes: int
) -> tuple[DataFileMeta, ...]:
    function = merge_function_for(context.options, context.schema)
    writer = context.open_writer(unit.output_level, FileSource.COMPACT)
    done = False
    try:
        for section in group:
            batch_bytes = window_bytes // len(section)
            merged = merge_runs(
                [context.read_run(run.files, batch_bytes=batch_bytes) for run in section],
                context.key_names,
                function,
                window_bytes=window_bytes,
                drop_retractions=unit.drop_deletes,
            )
            for batch in merged:
                writer.write(batch)
                if context.listener is not None:
                    context.listener.on_merged(None, batch)
        files = writer.close()
        done = True
    finally:
        if not done:
            writer.abort()
    return files
