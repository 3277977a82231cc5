# SPDX-License-Identifier: Apache-2.0
"""Keeping the number of manifests small: which to merge (pure), and the merging.

Source: FORMAT.md §4.7. Merging is never needed for correctness. It writes new manifests and
leaves the old ones alone, because older snapshots name them until they expire.
"""

import dataclasses
from collections.abc import Sequence

from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.manifest import ManifestFileMeta, fold, merge_entries
from storage.format.metadata.manifest_store import ManifestStore

__all__ = ["MergePolicy", "merge_manifests", "plan_minor", "wants_full"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """When manifests are merged.

    Attributes:
        target_size: `manifest.target-file-size` [bytes].
        full_threshold: `manifest.full-compaction-threshold-size` [bytes].
        min_count: `manifest.merge-min-count`.
    """

    target_size: int
    full_threshold: int
    min_count: int


def wants_full(metas: Sequence[ManifestFileMeta], policy: MergePolicy) -> bool:
    """Whether so much is small or holds deletions that everything affected is rewritten."""
    changing = [meta for meta in metas if _must_change(meta, policy)]
    size = sum(meta.file_size for meta in changing)
    return len(changing) > 1 and size >= policy.full_threshold


def plan_minor(
    metas: Sequence[ManifestFileMeta], policy: MergePolicy
) -> list[tuple[ManifestFileMeta, ...]]:
    """Cut manifests into consecutive groups; a group of one stays as it is.

    Args:
        metas: base list before delta list, in order.
        policy: sizes and counts.

    Returns:
        All manifests in their order, grouped.
    """
    groups: list[tuple[ManifestFileMeta, ...]] = []
    open_group: list[ManifestFileMeta] = []
    size = 0
    for meta in metas:
        open_group.append(meta)
        size += meta.file_size
        if size >= policy.target_size:
            groups.append(tuple(open_group))
            open_group, size = [], 0
    if len(open_group) >= policy.min_count:
        groups.append(tuple(open_group))
    else:
        groups.extend((meta,) for meta in open_group)
    return groups


def merge_manifests(
    metas: Sequence[ManifestFileMeta], store: ManifestStore, policy: MergePolicy
) -> tuple[list[ManifestFileMeta], list[str]]:
    """Merge what is due.

    Args:
        metas: manifests of a snapshot's base list, then of its delta list.
        store: reads and writes manifests.
        policy: when to merge.

    Returns:
        The manifests of the next base list, which fold to the same state, and the names of those
        among them that were written now.

    Raises:
        FileNotFoundError: a manifest is missing: the snapshot expired meanwhile.
    """
    if wants_full(metas, policy):
        return _full(metas, store, policy)
    merged: list[ManifestFileMeta] = []
    written: list[str] = []
    groups = plan_minor(metas, policy)
    store.preload_manifests(meta for group in groups if len(group) > 1 for meta in group)
    for group in groups:
        if len(group) == 1:
            merged.append(group[0])
            continue
        entries = merge_entries(entry for meta in group for entry in _read(store, meta))
        new = store.write_manifests(entries, policy.target_size)
        merged.extend(new)
        written.extend(meta.file_name for meta in new)
    return merged, written


def _full(
    metas: Sequence[ManifestFileMeta], store: ManifestStore, policy: MergePolicy
) -> tuple[list[ManifestFileMeta], list[str]]:
    """Rewrite what is small, holds deletions or loses a file; large manifests else stay unread."""
    store.preload_manifests(meta for meta in metas if _must_change(meta, policy))
    removals = [
        entry
        for meta in metas
        if meta.num_deleted_files > 0
        for entry in _read(store, meta)
        if entry.kind is FileKind.DELETE
    ]
    deleted = {entry.identity for entry in removals}
    partitions = frozenset(entry.partition for entry in removals)
    kept: list[ManifestFileMeta] = []
    rewritten: list[ManifestEntry] = []
    for meta in metas:
        if not _must_change(meta, policy) and (
            not store.may_hold_partition(meta, partitions)
            or deleted.isdisjoint(entry.identity for entry in _read(store, meta))
        ):
            kept.append(meta)
        else:
            rewritten.extend(_read(store, meta))
    new = store.write_manifests(fold(rewritten), policy.target_size)
    return [*kept, *new], [meta.file_name for meta in new]


def _must_change(meta: ManifestFileMeta, policy: MergePolicy) -> bool:
    return meta.num_deleted_files > 0 or meta.file_size < policy.target_size


def _read(store: ManifestStore, meta: ManifestFileMeta) -> tuple[ManifestEntry, ...]:
    (entries,) = store.read_manifests([meta])
    return entries
