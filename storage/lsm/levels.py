# SPDX-License-Identifier: Apache-2.0
"""The shape of one bucket's merge tree: sorted runs, levels, sections. Pure.

Source: SEMANTICS.md §D.1 (order of runs) and §D.6 (sections). Keys are compared through a
function given by the caller, so that this module needs no codec and does no I/O.
"""

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from storage.errors import CorruptDataError, InternalError
from storage.format.metadata.file_meta import DataFileMeta

KeyOf = Callable[[bytes], tuple[Any, ...]]
"""From a framed key to a tuple that compares in key order (`key_order.key_decoder`)."""

_MIXED = -1


@dataclasses.dataclass(frozen=True, slots=True)
class SortedRun:
    """Files that do not overlap, ascending by key.

    Attributes:
        level: level of all files; -1 in a section whose run crosses levels.
        files: at least one.
    """

    level: int
    files: tuple[DataFileMeta, ...]

    @property
    def size(self) -> int:
        """Sum of file sizes [bytes]."""
        return sum(file.file_size for file in self.files)


Section = tuple[SortedRun, ...]
"""Runs whose key ranges hang together; no key of one section is in another."""


@dataclasses.dataclass(frozen=True, slots=True)
class Levels:
    """The live files of one bucket. Build with `of`.

    Attributes:
        level0: newest first; each file is a run of its own, and they may overlap.
        upper: run of level 1, 2, …; None where a level is empty.

    Invariant: files of one level >= 1 do not overlap.
    """

    level0: tuple[DataFileMeta, ...]
    upper: tuple[SortedRun | None, ...]

    @staticmethod
    def of(files: Iterable[DataFileMeta], num_levels: int, key_of: KeyOf) -> "Levels":
        """Sort files into levels.

        Args:
            files: in any order.
            num_levels: levels required, level 0 included; raised if a file sits higher.
            key_of: comparable form of a framed key.

        Raises:
            CorruptDataError: two files of one level above 0 overlap.
        """
        by_level: dict[int, list[DataFileMeta]] = {}
        for file in files:
            by_level.setdefault(file.level, []).append(file)
        highest = max([num_levels - 1, *by_level])
        upper = tuple(_run(level, by_level.get(level), key_of) for level in range(1, highest + 1))
        return Levels(tuple(sorted(by_level.get(0, ()), key=_newest_first)), upper)

    @property
    def max_level(self) -> int:
        """The last level, empty or not."""
        return len(self.upper)

    @property
    def last_full_ms(self) -> int | None:
        """When the newest file of the last level was made; None: it has none [ms]."""
        last = self.upper[-1] if self.upper else None
        files = () if last is None else last.files
        return max((file.creation_time_ms or 0 for file in files), default=None)

    @property
    def highest_non_empty_level(self) -> int:
        """The highest level with files; 0 when only level 0 has some, -1 when none has."""
        for run in reversed(self.upper):
            if run is not None:
                return run.level
        return 0 if self.level0 else -1

    def runs(self) -> tuple[SortedRun, ...]:
        """All sorted runs: level-0 files newest first, then level 1, 2, …."""
        return (
            *(SortedRun(0, (file,)) for file in self.level0),
            *(run for run in self.upper if run is not None),
        )

    @property
    def run_count(self) -> int:
        """Number of sorted runs."""
        return len(self.level0) + sum(run is not None for run in self.upper)

    def files(self) -> tuple[DataFileMeta, ...]:
        """All files, in the order of `runs`."""
        return tuple(file for run in self.runs() for file in run.files)

    def replace(
        self, before: Iterable[DataFileMeta], after: Iterable[DataFileMeta], key_of: KeyOf
    ) -> "Levels":
        """The levels after some files took the place of others.

        Args:
            before: live files, found by (level, name).
            after: new files.
            key_of: comparable form of a framed key.

        Raises:
            InternalError: a file of `before` is not live.
            CorruptDataError: the result overlaps in a level above 0.
        """
        live = {(file.level, file.file_name): file for file in self.files()}
        for file in before:
            if live.pop((file.level, file.file_name), None) is None:
                raise InternalError(
                    "a file to replace is not live", file=file.file_name, level=file.level
                )
        return Levels.of([*live.values(), *after], self.max_level + 1, key_of)


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    return (
        -file.max_sequence_number,
        file.min_sequence_number,
        file.creation_time_ms or 0,
        file.file_name,
    )


def _run(level: int, files: list[DataFileMeta] | None, key_of: KeyOf) -> SortedRun | None:
    if not files:
        return None
    files = sorted(files, key=lambda file: key_of(file.min_key))
    for left, right in itertools.pairwise(files):
        if key_of(left.max_key) >= key_of(right.min_key):
            raise CorruptDataError(
                "the key ranges of two files of one level overlap",
                hint="compact the bucket with the writer that wrote them",
                level=level,
                left=left.file_name,
                right=right.file_name,
            )
    return SortedRun(level, tuple(files))


def sections(files: Iterable[DataFileMeta], key_of: KeyOf) -> tuple[Section, ...]:
    """Cut files into maximal groups with connected key ranges, each as few runs as possible.

    Args:
        files: in any order and of any level; the key range of a file includes both ends.
        key_of: comparable form of a framed key.

    Returns:
        Sections ascending by key, without a common key. Inside one the runs are ordered by the
        largest sequence number they hold, ascending.
    """
    groups: list[list[DataFileMeta]] = []
    reach: tuple[Any, ...] | None = None
    for file in sorted(files, key=lambda file: (key_of(file.min_key), key_of(file.max_key))):
        if reach is None or key_of(file.min_key) > reach:
            groups.append([])
            reach = key_of(file.max_key)
        else:
            reach = max(reach, key_of(file.max_key))
        groups[-1].append(file)
    return tuple(_fewest_runs(group, key_of) for group in groups)


def _fewest_runs(files: list[DataFileMeta], key_of: KeyOf) -> Section:
    """Files sorted by smallest key as runs: each file goes to the run that ends first."""
    ends: list[tuple[tuple[Any, ...], int]] = []
    runs: list[list[DataFileMeta]] = []
    for file in files:
        end = key_of(file.max_key)
        if ends and ends[0][0] < key_of(file.min_key):
            _, number = heapq.heapreplace(ends, (end, ends[0][1]))
            runs[number].append(file)
        else:
            heapq.heappush(ends, (end, len(runs)))
            runs.append([file])
    runs.sort(key=lambda run: max(file.max_sequence_number for file in run))
    return tuple(SortedRun(_common_level(run), tuple(run)) for run in runs)


def _common_level(files: list[DataFileMeta]) -> int:
    levels = {file.level for file in files}
    return levels.pop() if len(levels) == 1 else _MIXED
