# SPDX-License-Identifier: Apache-2.0
"""What a snapshot changed in each partition, in the form in which catalogs keep it.

Source: Paimon's `PartitionStatistics`.
"""

import dataclasses
from collections.abc import Iterable, Mapping

from storage.format.metadata.file_meta import FileKind, ManifestEntry
from storage.format.metadata.layout import escape, unescape
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.live_files import delta_entries, live_state
from storage.table.core import TableCore


@dataclasses.dataclass(slots=True)
class PartitionChange:
    """What one snapshot changed in one partition; numbers are negative where it removed more.

    Attributes:
        spec: values as texts, by column.
        record_count: rows.
        file_size: bytes.
        file_count: data files.
        last_created_ms: when the newest added file was made [epoch ms].
        total_buckets: of the files.
    """

    spec: dict[str, str]
    record_count: int = 0
    file_size: int = 0
    file_count: int = 0
    last_created_ms: int = 0
    total_buckets: int = 0


def spec_of_path(path: str) -> dict[str, str]:
    """Values of a partition, as texts, of its directory `dt=a/hh=1`; "" has none."""
    pairs = (part.partition("=") for part in path.split("/") if part)
    return {unescape(name): unescape(value) for name, _, value in pairs}


def path_of_spec(spec: Mapping[str, str]) -> str:
    """Directory of a partition."""
    return "/".join(f"{escape(name)}={escape(value)}" for name, value in spec.items())


def partition_changes(table: TableCore, snapshot: Snapshot) -> list[PartitionChange]:
    """What a snapshot changed, by partition; reads its delta manifests.

    Raises:
        FileNotFoundError: they have expired.
    """
    return _sums(table, delta_entries(table, snapshot))


def live_partitions(table: TableCore, snapshot: Snapshot) -> list[PartitionChange]:
    """What a snapshot has, by partition; reads its manifests.

    Raises:
        FileNotFoundError: they have expired.
    """
    return _sums(table, live_state(table, snapshot).entries())


def _sums(table: TableCore, entries: Iterable[ManifestEntry]) -> list[PartitionChange]:
    changes: dict[bytes, PartitionChange] = {}
    for entry in entries:
        change = changes.get(entry.partition)
        if change is None:
            change = PartitionChange(spec_of_path(table.partition_path(entry.partition)))
            changes[entry.partition] = change
        sign = 1 if entry.kind is FileKind.ADD else -1
        change.record_count += sign * entry.file.row_count
        change.file_size += sign * entry.file.file_size
        change.file_count += sign
        change.total_buckets = entry.total_buckets
        if sign > 0:
            change.last_created_ms = max(change.last_created_ms, entry.file.creation_time_ms or 0)
    return list(changes.values())
