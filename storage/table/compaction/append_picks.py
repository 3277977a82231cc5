# SPDX-License-Identifier: Apache-2.0
"""Which small files of an append table are worth merging. Pure.

Two ways, as Apache Paimon has them. In a fixed bucket the rows have an order, so only neighbours
are merged. Without buckets they have none: files are packed by size.
"""

import dataclasses
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from storage.format.metadata.file_meta import DataFileMeta

_LEAST_PACK = 2
"""One file by itself is not merged with anything."""

_FULL_LEAST_FILES = 3
"""Fewer files are left alone by a full compaction of a fixed bucket."""


def pick_ordered(
    files: Sequence[DataFileMeta], least_files: int, target_size: int
) -> tuple[list[DataFileMeta], list[DataFileMeta]]:
    """The first neighbours in a fixed bucket that are worth merging.

    A window moves over the files: as soon as it holds enough files they are taken; when it holds
    enough bytes its first file is released.

    Args:
        files: in the order of their rows.
        least_files: files in a window that is taken.
        target_size: bytes in a window at which it moves on.

    Returns:
        The files to merge, none when nothing is due, and the files to consider next time.
    """
    window: list[DataFileMeta] = []
    least_files = max(_LEAST_PACK, least_files)
    size = 0
    for i, file in enumerate(files):
        window.append(file)
        size += file.file_size
        if len(window) >= least_files:
            return window, list(files[i + 1 :])
        if size >= target_size:
            size -= window.pop(0).file_size
    return [], window


def pick_all(
    files: Sequence[DataFileMeta],
    target_size: int,
    *,
    deleted: Container[str] | None,
    force: bool = False,
) -> list[DataFileMeta]:
    """The files that a full compaction of a fixed bucket rewrites.

    Args:
        files: in the order of their rows.
        target_size: a file of this size is large.
        deleted: names of files with deleted rows; None on a table without deletion vectors.
        force: rewrite whatever there is.

    Returns:
        All files from the first on that is small or has deleted rows. Without deletion vectors
        only when there are at least 3 and most of them are small.
    """
    if force:
        return list(files)
    if deleted is None and len(files) < _FULL_LEAST_FILES:
        return []
    marked: Container[str] = () if deleted is None else deleted
    first = 0
    while (
        first < len(files)
        and files[first].file_size >= target_size
        and files[first].file_name not in marked
    ):
        first += 1
    chosen = list(files[first:])
    if deleted is not None:
        return chosen
    small = sum(file.file_size < target_size for file in chosen)
    return chosen if 2 * small > len(chosen) >= _FULL_LEAST_FILES else []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PackRules:
    """How files without buckets are packed.

    Attributes:
        target_size: of files [bytes].
        small_size: files below this are candidates [bytes].
        open_cost: what a file counts besides its size [bytes].
        least_files: files in a pack that is not full.
        delete_ratio: share of deleted rows above which a file is a candidate.
    """

    target_size: int
    small_size: int
    open_cost: int
    least_files: int
    delete_ratio: float


def pack_files(
    files: Iterable[DataFileMeta],
    rules: PackRules,
    *,
    cardinality: Callable[[str], int | None] = lambda _: None,
    vector_file: Mapping[str, str] | None = None,
) -> list[list[DataFileMeta]]:
    """Packs of files of one partition to merge, each for itself.

    Args:
        cardinality: deleted rows of a file by its name, None when unknown.
        vector_file: the index file that holds a data file's deletion vector, by data file name;
            None on a table without deletion vectors. Files whose vectors share an index file
            come into one pack, since that file is rewritten.
    """
    vectors = vector_file or {}
    candidates = [
        file
        for file in files
        if file.file_size < rules.small_size or _lost_much(file, rules, cardinality, vectors)
    ]
    if vector_file is None:
        return _packed([[file] for file in _by_size(candidates)], rules, flush_last=False)
    groups: dict[str, list[DataFileMeta]] = {}
    whole: list[DataFileMeta] = []
    for file in candidates:
        name = vectors.get(file.file_name)
        if name is None:
            whole.append(file)
        else:
            groups.setdefault(name, []).append(file)
    ordered = sorted(groups.values(), key=lambda group: sum(file.file_size for file in group))
    packs = _packed(ordered, rules, flush_last=True)
    if len(whole) > 1:
        packs += _packed([[file] for file in _by_size(whole)], rules, flush_last=False)
    return packs


def _lost_much(
    file: DataFileMeta,
    rules: PackRules,
    cardinality: Callable[[str], int | None],
    vectors: Mapping[str, str],
) -> bool:
    if file.file_name not in vectors:
        return False
    removed = cardinality(file.file_name)
    return removed is None or removed > file.row_count * rules.delete_ratio


def _by_size(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    return sorted(files, key=lambda file: file.file_size)


def _packed(
    groups: Iterable[Sequence[DataFileMeta]], rules: PackRules, *, flush_last: bool
) -> list[list[DataFileMeta]]:
    """Packs of groups that fill two files; the last may be smaller if `flush_last`."""
    packs: list[list[DataFileMeta]] = []
    pack: list[DataFileMeta] = []
    size = 0
    for group in groups:
        pack.extend(group)
        size += sum(file.file_size + rules.open_cost for file in group)
        if len(pack) > 1 and size >= 2 * rules.target_size:
            packs.append(pack)
            pack, size = [], 0
    if pack and (flush_last or len(pack) >= max(_LEAST_PACK, rules.least_files)):
        packs.append(pack)
    return packs
