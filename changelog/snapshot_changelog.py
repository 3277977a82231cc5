# SPDX-License-Identifier: Apache-2.0
"""The row-level changes one snapshot brought, as a follow-up reader receives them.

Source: SEMANTICS.md §C.1 and §C.8 (follow-up). With a changelog producer the changes are in
changelog files, ordinary key-value files that the snapshot's changelog manifest list names; reading
them needs neither the producer nor the merge engine. Without one they are the files an APPEND
snapshot added, read one by one without merging, with the kinds as they were flushed.
"""

import pyarrow as pa

from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.table.core import TableCore
from storage.table.read.change_read import ChangeRead
from storage.table.scan.change_plan import ChangePlanner, ChangeSplit, changelog_entries

__all__ = ["changelog_entries", "changes_counted", "read_snapshot_changelog", "snapshot_changes"]

_NO_PRODUCER = "none"


def snapshot_changes(
    table: TableCore, planner: ChangePlanner, snapshot: Snapshot
) -> tuple[ChangeSplit, ...]:
    """The files that hold the changes of a snapshot; none for most compactions and overwrites.

    Args:
        table: the table; its options say where the changes are.
        planner: of the table.
        snapshot: one of its snapshots or long-lived changelogs.

    Raises:
        CorruptDataError: a manifest cannot be decoded.
        FileNotFoundError: a manifest is gone, as after expiry.
        NotFoundError: the snapshot before an overwrite is gone, and its deletion vectors count.
    """
    options = table.options
    if snapshot.commit_kind is CommitKind.OVERWRITE:
        if table.schema.primary_keys and options.streaming_read_overwrite:
            return planner.overwrite(snapshot)
        if not table.schema.primary_keys and options.streaming_read_append_overwrite:
            return planner.delta(snapshot)
    if options.changelog_producer != _NO_PRODUCER:
        return planner.changelog(snapshot)
    if snapshot.commit_kind is not CommitKind.APPEND:
        return ()
    return planner.delta(snapshot)


def changes_counted(table: TableCore, snapshot: Snapshot) -> int:
    """About how many changes `snapshot_changes` will find, without a look into manifests [rows].

    Returns:
        0 only where there are none.
    """
    options, kind = table.options, snapshot.commit_kind
    rewritten = (
        options.streaming_read_overwrite
        if table.schema.primary_keys
        else options.streaming_read_append_overwrite
    )
    if kind is CommitKind.OVERWRITE and rewritten:
        return max(1, abs(snapshot.delta_record_count))
    if options.changelog_producer != _NO_PRODUCER:
        if snapshot.changelog_manifest_list is None:
            return 0
        return max(1, snapshot.changelog_record_count or 0)
    return max(1, snapshot.delta_record_count) if kind is CommitKind.APPEND else 0


def read_snapshot_changelog(table: TableCore, snapshot_id: int) -> pa.Table:
    """The changes of one snapshot in the columns of the table's current schema.

    Args:
        table: the table; its `changelog-producer` says where the changes are.
        snapshot_id: the snapshot.

    Returns:
        `_VALUE_KIND` (int8, `RowKind`) and the value columns in schema order. The changes of one
        key are in the order in which they happened; buckets follow each other in no defined
        order. Empty when the snapshot brings none: compactions and overwrites without a
        changelog.

    Raises:
        NotFoundError: there is no such snapshot.
        CorruptDataError: a manifest or a file cannot be decoded.
        FileNotFoundError: a manifest or a file is gone, as after expiry.
        UnsupportedFeatureError: the files have a format that cannot be read.
    """
    snapshot = table.snapshots.read(snapshot_id)
    planner = ChangePlanner(table, postponed=table.options.changelog_producer == _NO_PRODUCER)
    return ChangeRead(table).to_table(snapshot_changes(table, planner, snapshot))
