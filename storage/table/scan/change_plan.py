# SPDX-License-Identifier: Apache-2.0
"""Which files hold the changes of a snapshot, or between two, cut into pieces that can be read.

Source: SEMANTICS.md §C.8 (follow-up), §C.9. Planning only; reading the pieces is in `change_read`,
which changes a reader wants is in `incremental` and in package `changelog`.
"""

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from storage.errors import InvalidRequestError
from storage.format.metadata.file_meta import DataFileMeta, FileKind, ManifestEntry
from storage.format.metadata.layout import POSTPONE_BUCKET
from storage.format.metadata.snapshot import Snapshot
from storage.lsm.levels import sections
from storage.table.commit.live_files import BucketId, delta_entries, list_entries, live_state
from storage.table.core import TableCore
from storage.table.read.deletion_vectors import DeletionFile, deletion_files
from storage.table.scan.predicate import Predicate
from storage.table.scan.scan_pruning import Pruning

__all__ = ["ChangeForm", "ChangePlanner", "ChangeSplit", "changelog_entries"]

_Vectors = tuple[tuple[str, DeletionFile], ...]
_VectorsOf = Callable[[BucketId], Mapping[str, DeletionFile]]


class ChangeForm(enum.Enum):
    """How the files of a split become changes."""

    STORED = "stored"
    """The rows of `files`, one file after another, with their kinds."""

    REPLACED = "replaced"
    """The merged rows of `before` as -D, then those of `files` as +I."""

    COMPARED = "compared"
    """The merged rows of `files` that `before` lacks or has otherwise, those that went as -D."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSplit:
    """Changes of one bucket that can be read by themselves. Picklable.

    Attributes:
        snapshot_id: the snapshot that brought them.
        partition: framed BinaryRow.
        partition_path: directory part of the partition.
        bucket: bucket id.
        form: how the files become changes.
        files: what was added, in the order in which it was written.
        before: what it replaced.
        vectors: where the deletion vectors of `files` lie, by file name.
        before_vectors: where those of `before` lie.
    """

    snapshot_id: int
    partition: bytes
    partition_path: str
    bucket: int
    form: ChangeForm
    files: tuple[DataFileMeta, ...]
    before: tuple[DataFileMeta, ...] = ()
    vectors: _Vectors = ()
    before_vectors: _Vectors = ()

    @property
    def row_count(self) -> int:
        """Rows that are read, which are at least as many as changes [rows]."""
        return sum(file.row_count for file in (*self.before, *self.files))

    @property
    def size(self) -> int:
        """Sum of file sizes [bytes]."""
        return sum(file.file_size for file in (*self.before, *self.files))


def changelog_entries(table: TableCore, snapshot: Snapshot) -> tuple[ManifestEntry, ...]:
    """The changelog files of a snapshot.

    Args:
        table: the table.
        snapshot: one of its snapshots, or long-lived changelogs.

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


class ChangePlanner:
    """Plans reads of changes. Safe for several threads.

    Args:
        table: the table.
        predicate: rows wanted; what the plan cannot decide is left to the reader.
        buckets: buckets wanted; None = all.
        postponed: whether rows count that have no bucket yet.
    """

    def __init__(
        self,
        table: TableCore,
        predicate: Predicate | None = None,
        buckets: frozenset[int] | None = None,
        *,
        postponed: bool = False,
    ) -> None:
        self._table = table
        self._buckets = buckets
        self._pruning = Pruning(table, predicate)
        self._postponed = postponed

    def delta(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """The files that a snapshot added, each row with the kind it was flushed with."""
        return self._stored(snapshot, _added(delta_entries(self._table, snapshot)))

    def changelog(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """The changelog files of a snapshot."""
        return self._stored(snapshot, changelog_entries(self._table, snapshot))

    def overwrite(self, snapshot: Snapshot) -> tuple[ChangeSplit, ...]:
        """What an overwrite took away, and what it put there.

        Raises:
            NotFoundError: the snapshot before it is gone and marks deleted rows.
        """
        entries = delta_entries(self._table, snapshot)
        after = _by_bucket(_added(entries))
        before = _by_bucket(entry for entry in entries if entry.kind is FileKind.DELETE)
        vectors: tuple[_VectorsOf, _VectorsOf] | None = None
        if self._table.options.deletion_vectors_enabled and before:
            earlier = self._table.snapshots.read(snapshot.id - 1)
            vectors = (
                deletion_files(self._table, earlier),
                deletion_files(self._table, snapshot),
            )
        form = ChangeForm.REPLACED
        return self._both(snapshot, form, before, after, vectors, lambda one, other: (one, other))

    def compared(self, before: Snapshot | None, after: Snapshot) -> tuple[ChangeSplit, ...]:
        """What is different in a later state; of append tables, the files it has besides.

        Args:
            before: the earlier state; None: empty.
            after: the later state.

        Raises:
            InvalidRequestError: a partition has another number of buckets than before.
        """
        table = self._table
        earlier = {} if before is None else live_state(table, before).buckets
        later = live_state(table, after).buckets
        _check_bucket_counts(table, earlier, later)
        vectors: tuple[_VectorsOf, _VectorsOf] | None = None
        if table.options.deletion_vectors_enabled:
            vectors = (deletion_files(table, before), deletion_files(table, after))
        return self._both(after, ChangeForm.COMPARED, earlier, later, vectors, self._different)

    def _stored(
        self, snapshot: Snapshot, entries: Sequence[ManifestEntry]
    ) -> tuple[ChangeSplit, ...]:
        pruning = self._pruning
        found = []
        for (partition, bucket), group in sorted(_by_bucket(entries).items()):
            if not self._wants(partition, bucket, group):
                continue
            files = [entry.file for entry in group]
            files = [f for f in files if pruning.keeps_by_key(f) and pruning.keeps_by_values(f)]
            if files:
                found.append(self._split(snapshot, partition, bucket, ChangeForm.STORED, files))
        return tuple(found)

    def _both(
        self,
        snapshot: Snapshot,
        form: ChangeForm,
        before: Mapping[BucketId, Sequence[ManifestEntry]],
        after: Mapping[BucketId, Sequence[ManifestEntry]],
        vectors: tuple[_VectorsOf, _VectorsOf] | None,
        chosen: Callable[["_Side", "_Side"], tuple["_Side", "_Side"]],
    ) -> tuple[ChangeSplit, ...]:
        found = []
        for one in sorted({*before, *after}):
            entries = (before.get(one, ()), after.get(one, ()))
            if not self._wants(*one, [*entries[0], *entries[1]]):
                continue
            old, new = (
                _Side(
                    {entry.file.file_name: entry.file for entry in some},
                    {} if vectors is None else vectors[side](one),
                )
                for side, some in enumerate(entries)
            )
            old, new = chosen(old, new)
            if old.files or new.files:
                split = self._split(snapshot, *one, form, tuple(new.files.values()))
                split = dataclasses.replace(
                    split,
                    before=tuple(old.files.values()),
                    vectors=new.located(),
                    before_vectors=old.located(),
                )
                found.append(split)
        return tuple(found)

    def _different(self, before: "_Side", after: "_Side") -> tuple["_Side", "_Side"]:
        """Without files that lie in both states over keys where nothing else differs."""
        same = {name for name in after.files if before.get(name) == after.get(name)}
        key_of = self._table.key_of
        if key_of is None:
            return _Side({}, {}), after.without(same)
        every = [*before.files.values()]
        every += (file for name, file in after.files.items() if name not in before.files)
        for section in sections(every, key_of):
            names = {file.file_name for run in section for file in run.files}
            if not names <= same:
                same -= names
        return before.without(same), after.without(same)

    def _wants(self, partition: bytes, bucket: int, entries: Sequence[ManifestEntry]) -> bool:
        if self._buckets is not None and bucket not in self._buckets:
            return False
        if bucket == POSTPONE_BUCKET and not self._postponed:
            return False
        if not self._pruning.keeps_partition(partition):
            return False
        return any(self._pruning.keeps_bucket(bucket, one.total_buckets) for one in entries)

    def _split(
        self,
        snapshot: Snapshot,
        partition: bytes,
        bucket: int,
        form: ChangeForm,
        files: Sequence[DataFileMeta],
    ) -> ChangeSplit:
        return ChangeSplit(
            snapshot_id=snapshot.id,
            partition=partition,
            partition_path=self._table.partition_path(partition),
            bucket=bucket,
            form=form,
            files=tuple(files),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Side:
    """Files of one bucket in one state, and where their deletion vectors lie, by file name."""

    files: Mapping[str, DataFileMeta]
    vectors: Mapping[str, DeletionFile]

    def get(self, name: str) -> tuple[DataFileMeta | None, DeletionFile | None]:
        return self.files.get(name), self.vectors.get(name)

    def without(self, names: set[str]) -> "_Side":
        return _Side(
            {name: file for name, file in self.files.items() if name not in names}, self.vectors
        )

    def located(self) -> _Vectors:
        return tuple((name, self.vectors[name]) for name in self.files if name in self.vectors)


def _added(entries: Iterable[ManifestEntry]) -> tuple[ManifestEntry, ...]:
    return tuple(entry for entry in entries if entry.kind is FileKind.ADD)


def _by_bucket(entries: Iterable[ManifestEntry]) -> dict[BucketId, list[ManifestEntry]]:
    found: dict[BucketId, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        found[(entry.partition, entry.bucket)].append(entry)
    return found


def _check_bucket_counts(
    table: TableCore,
    before: Mapping[BucketId, Sequence[ManifestEntry]],
    after: Mapping[BucketId, Sequence[ManifestEntry]],
) -> None:
    if table.options.bucket < 0:
        return
    counts = _bucket_counts(before)
    for partition, count in _bucket_counts(after).items():
        earlier = counts.get(partition, count)
        if earlier != count:
            raise InvalidRequestError(
                f"The bucket number of two snapshots are different ({earlier}, {count}), "
                "which is not supported in incremental diff query.",
                hint="read the later state, or compare states after the buckets were changed",
                partition=table.partition_path(partition),
            )


def _bucket_counts(buckets: Mapping[BucketId, Sequence[ManifestEntry]]) -> dict[bytes, int]:
    return {
        partition: entry.total_buckets
        for (partition, _), entries in buckets.items()
        for entry in entries
        if entry.total_buckets >= 0
    }
