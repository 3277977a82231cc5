# SPDX-License-Identifier: Apache-2.0
"""The row-level changes one snapshot brought, as a follow-up reader receives them.

Source: SEMANTICS.md §C.1 and §C.8 (follow-up). With a changelog producer the changes are in
changelog files, ordinary key-value files that the snapshot's changelog manifest list names; reading
them needs neither the producer nor the merge engine. Without one they are the files an APPEND
snapshot added, read one by one without merging, with the kinds as they were flushed.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from storage.format.data_file import read_key_values, read_rows
from storage.format.file_meta import FileKind, ManifestEntry
from storage.format.snapshot import CommitKind, Snapshot
from storage.format.types import VALUE_KIND, RowKind
from storage.table.core import TableCore
from storage.table.live_files import delta_entries, list_entries

__all__ = ["changelog_entries", "read_snapshot_changelog"]

_NO_PRODUCER = "none"


def changelog_entries(table: TableCore, snapshot: Snapshot) -> tuple[ManifestEntry, ...]:
    """The changelog files of a snapshot.

    Args:
        table: the table.
        snapshot: one of its snapshots.

    Returns:
        One ADD entry per file, in manifest order; empty without a changelog manifest list.

    Raises:
        CorruptDataError: a manifest cannot be decoded.
        FileNotFoundError: a manifest is gone, as after expiry.
    """
    if snapshot.changelog_manifest_list is None:
        return ()
    metas = table.manifests.read_list(*snapshot.lists[2])
    return _added(list_entries(table, metas))


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
    schema = pa.schema(
        [pa.field(VALUE_KIND, pa.int8(), nullable=False), *table.schema.arrow_schema]
    )
    batches = [
        batch
        for entry in sorted(_entries(table, snapshot), key=_order)
        for batch in _read(table, entry)
    ]
    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_arrays(batch.select(schema.names).columns, schema=schema)
            for batch in batches
        ],
        schema=schema,
    )


def _entries(table: TableCore, snapshot: Snapshot) -> tuple[ManifestEntry, ...]:
    if table.options.changelog_producer != _NO_PRODUCER:
        return changelog_entries(table, snapshot)
    if snapshot.commit_kind is not CommitKind.APPEND:
        return ()
    return _added(delta_entries(table, snapshot))


def _added(entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    return tuple(entry for entry in entries if entry.kind is FileKind.ADD)


def _order(entry: ManifestEntry) -> tuple[bytes, int, int]:
    return entry.partition, entry.bucket, entry.file.min_sequence_number


def _read(table: TableCore, entry: ManifestEntry) -> Iterator[pa.RecordBatch]:
    file = entry.file
    path = file.external_path or table.data_path(entry.partition, entry.bucket, file.file_name)
    file_schema = table.schemas.read(file.schema_id)
    if table.schema.primary_keys:
        yield from read_key_values(table.file_io, path, file, file_schema, table.schema, None)
        return
    for rows in read_rows(table.file_io, path, file, file_schema, table.schema, None):
        kinds = pa.array(np.full(rows.num_rows, RowKind.INSERT.value, dtype=np.int8))
        yield rows.append_column(VALUE_KIND, kinds)
