# SPDX-License-Identifier: Apache-2.0
"""Publishing one snapshot: the attempt, the retry, and determining the outcome.

Protocol of one attempt, given the newest snapshot L (FORMAT.md §11.5):

1. check conflicts of the delta with the state of L (`conflict`), where requested; those of index
   files always, because a writer that did not see the file it replaces would lose what is in it;
2. write the delta's manifests once for all attempts, and for this one the base list
   = merged(L.base ++ L.delta), the small lists and, when index files change, the complete index
   manifest;
3. `before_publish(L)`, then create-if-absent of `snapshot-(L+1)`;
4. determine the outcome:
   * created: the id must still follow L. A writer that paused while others committed *and* expiry
     removed the early ids could create an expired id again unnoticed; so the attempt counts
     only while L exists, or when the next snapshot builds on ours (`_follows`). Only then is
     LATEST written;
   * the id exists: read it. It may be ours (a response was lost inside the store's client);
   * the response was lost: retry, with the same bytes at the same id, until it is known. A
     request still in flight can then only have the intended effect;
5. certainly lost: remove this attempt's lists, back off, read the newest snapshot, check whether
   the commit exists by now (of a twin of this process), and retry on top of it.

Everything that reads L may find files missing, because snapshots expire: then L is not the newest
any more and the attempt starts over.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from storage.errors import (
    CommitConflictError,
    CorruptDataError,
    NotFoundError,
    StorageUnavailableError,
)
from storage.format.metadata.file_meta import FileKind, IndexManifestEntry, ManifestEntry
from storage.format.metadata.manifest import ManifestFileMeta, combine, fold, merge_entries, removal
from storage.format.metadata.manifest_store import ManifestStore
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.io.local import durable_together
from storage.table.commit.commit_changes import Changes, CommitHistory, CommitRecord
from storage.table.commit.conflict import check_conflicts, check_delta, check_vectors
from storage.table.commit.live_files import (
    by_file_name,
    index_entries,
    list_entries,
    live_entries,
    live_state,
)
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg


class Outcome:
    """Creates snapshot files and determines whether they are part of the history."""

    def __init__(self, table: TableCore) -> None:
        self._table = table
        self._withdrawn: set[str | None] = set()

    def published(self, snapshot: Snapshot, latest: Snapshot | None) -> bool:
        """Create a snapshot; False when it is certainly lost.

        Args:
            latest: the snapshot it builds on.

        Raises:
            StorageUnavailableError: it is unknown; nothing may be deleted.
        """
        return self._insist(snapshot, lambda: self._created(snapshot)) and self._insist(
            snapshot, lambda: self._follows(snapshot, latest)
        )

    def _insist(self, snapshot: Snapshot, question: Callable[[], bool]) -> bool:
        """Retry until the store responds.

        Raises:
            StorageUnavailableError: it never did; nothing may be deleted.
        """
        last = self._table.options.commit_max_retries
        for number in range(last):
            try:
                return question()
            except StorageUnavailableError as error:
                _LOG.warning("the outcome of a commit is not known yet", exc_info=error)
                back_off(self._table, number + 1)
        try:
            return question()
        except StorageUnavailableError as error:
            raise StorageUnavailableError(
                "it is unknown whether a snapshot was published",
                detail=str(error),
                hint="commit the same messages again once the store answers: that is safe",
                table=self._table.layout.root,
                snapshot=snapshot.id,
                user=snapshot.commit_user,
                identifier=snapshot.commit_identifier,
            ) from error

    def _created(self, snapshot: Snapshot) -> bool:
        """Create the snapshot file; False when the id belongs to another writer."""
        snapshots = self._table.snapshots
        if snapshots.put(snapshot):
            return True
        existing = snapshots.read_again(snapshot.id)
        if existing is None:
            raise StorageUnavailableError(
                "a snapshot exists but cannot be read",
                snapshot=snapshot.id,
                table=self._table.layout.root,
            )
        return existing.uuid == snapshot.uuid

    def _follows(self, snapshot: Snapshot, latest: Snapshot | None) -> bool:
        """Whether the snapshot just created is part of the table's history.

        Expiry removes ids from below. While the snapshot that ours builds on exists, no id
        above it has been removed, so ours had never been used. A rollback removes ids from above,
        so an older id that remains while that snapshot is missing proves one.
        """
        snapshots = self._table.snapshots
        if latest is not None and snapshots.read_again(latest.id) == latest:
            return True
        ids = snapshots.ids()
        newer = [snapshot_id for snapshot_id in ids if snapshot_id > snapshot.id]
        if not newer and (latest is None or ids[:1] == [snapshot.id] or not ids):
            return True
        if not newer:  # a rollback removed the base of ours; if ours too, it was committed
            is_retry = snapshot.uuid in self._withdrawn
            self._withdrawn.add(snapshot.uuid)
            return not (snapshots.delete(snapshot.id) or is_retry)
        if newer[0] == snapshot.id + 1 and self._builds_on(newer[0], snapshot):
            return True
        _LOG.warning(
            "a snapshot was created at an id that had expired; removing it and committing again",
            extra={"table": self._table.layout.root, "snapshot": snapshot.id},
        )
        snapshots.delete(snapshot.id)
        return False

    def _builds_on(self, successor_id: int, snapshot: Snapshot) -> bool:
        """Whether the base of a snapshot is the state of ours: no other writer has these files."""
        store = self._table.manifests
        try:
            successor = self._table.snapshots.read_again(successor_id)
            if successor is None:
                return False
            base = list_entries(self._table, store.read_list(successor.base_manifest_list))
            before = _live_identities(base)
            expected = {entry.identity for entry in live_state(self._table, snapshot).entries()}
            index = {entry.file.file_name for entry in index_entries(self._table, snapshot)}
            later = {entry.file.file_name for entry in index_entries(self._table, successor)}
        except FileNotFoundError as error:  # both have expired: the history decides
            raise StorageUnavailableError(
                "a snapshot expired right after it was published",
                table=self._table.layout.root,
                snapshot=snapshot.id,
            ) from error
        if before == expected and index and index.isdisjoint(later):
            raise StorageUnavailableError(  # replaced, or of another writer: the history decides
                "a snapshot expired right after it was published",
                table=self._table.layout.root,
                snapshot=snapshot.id,
            )
        return before == expected


def back_off(table: TableCore, number: int) -> None:
    """Back off before attempt `number`: doubling, with jitter so that competing writers spread."""
    options = table.options
    longest = min(
        options.commit_min_retry_wait_ms * 2 ** (number - 1), options.commit_max_retry_wait_ms
    )
    jitter = int(table.ids.uuid()[:4], 16) / 0xFFFF
    table.clock.sleep(longest * (0.5 + jitter / 2) / 1000)


def _live_identities(entries: Iterable[ManifestEntry]) -> set[tuple[object, ...]]:
    live: set[tuple[object, ...]] = set()
    for entry in entries:
        if entry.kind is FileKind.ADD:
            live.add(entry.identity)
        else:
            live.discard(entry.identity)
    return live


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
    """Whether manifests that are small or hold deletions are large enough in sum to rewrite."""
    changing = [meta for meta in metas if _must_change(meta, policy)]
    size = sum(meta.file_size for meta in changing)
    return len(changing) > 1 and size >= policy.full_threshold


def plan_minor(
    metas: Sequence[ManifestFileMeta], policy: MergePolicy
) -> list[tuple[ManifestFileMeta, ...]]:
    """Cut manifests, in their order, into consecutive groups; a group of one stays as it is.

    Args:
        metas: base list before delta list, in order.
        policy: sizes and counts.
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
    """Merge what is due; never needed for correctness. Source: FORMAT.md §4.7.

    Old manifests stay, because older snapshots reference them until they expire.

    Args:
        metas: manifests of a snapshot's base list, then of its delta list.

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
    """Rewrite manifests that are small, hold deletions or lose a file; others stay unread."""
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
    unchanged: list[ManifestFileMeta] = []
    rewritten: list[ManifestEntry] = []
    for meta in metas:
        if not _must_change(meta, policy) and (
            not store.may_hold_partition(meta, partitions)
            or deleted.isdisjoint(entry.identity for entry in _read(store, meta))
        ):
            unchanged.append(meta)
        else:
            rewritten.extend(_read(store, meta))
    new = store.write_manifests(fold(rewritten), policy.target_size)
    return [*unchanged, *new], [meta.file_name for meta in new]


def _must_change(meta: ManifestFileMeta, policy: MergePolicy) -> bool:
    return meta.num_deleted_files > 0 or meta.file_size < policy.target_size


def _read(store: ManifestStore, meta: ManifestFileMeta) -> tuple[ManifestEntry, ...]:
    (entries,) = store.read_manifests([meta])
    return entries


_LOG = logging.getLogger(__name__)

BeforePublish = Callable[[Snapshot | None], None]

CARRIED_PREFIX = "lakeward."
"""Properties with this prefix are carried from snapshot to snapshot."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The common part of both snapshots of a commit.

    Attributes:
        properties: to set.
        watermark: event time [epoch ms], or None.
        before_publish: called with the newest snapshot before each publication.
    """

    identifier: int
    properties: Mapping[str, str]
    watermark: int | None
    before_publish: BeforePublish | None


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """A snapshot that is visible.

    Attributes:
        attempts: publications tried.
    """

    snapshot: Snapshot
    attempts: int


class AlreadyCommitted(Exception):
    """A twin of this process made the commit while this one was retrying."""

    def __init__(self, record: CommitRecord, attempts: int) -> None:
        super().__init__("already committed")
        self.record = record
        self.attempts = attempts


@dataclasses.dataclass(slots=True)
class _Delta:
    """The manifests of the changes, written once and used by every attempt."""

    metas: list[ManifestFileMeta]
    list_name: str
    list_size: int
    changelog_metas: list[ManifestFileMeta]
    changelog_list: str | None
    changelog_list_size: int | None
    record_count: int
    changelog_record_count: int | None

    def names(self) -> list[str]:
        metas = [meta.file_name for meta in (*self.metas, *self.changelog_metas)]
        lists = [self.list_name, *([self.changelog_list] if self.changelog_list else [])]
        return [*lists, *metas]


@dataclasses.dataclass(slots=True)
class _Attempt:
    """Metadata files of one attempt, to be removed if it is lost."""

    names: list[str]
    delta: _Delta | None = None
    sent: bool = False

    def all_names(self) -> list[str]:
        return self.names if self.delta is None else [*self.names, *self.delta.names()]


class Publisher:
    """Publishes snapshots of one commit user; see the module for the protocol.

    Args:
        history: finds commits by user and identifier.
    """

    def __init__(self, table: TableCore, user: str, history: CommitHistory) -> None:
        self._table = table
        self._user = user
        self._history = history
        self._outcome = Outcome(table)

    def publish(
        self,
        changes: Changes,
        request: Request,
        latest: Snapshot | None,
        *,
        check: bool,
        after_append: bool = False,
    ) -> Published:
        """Publish one snapshot on top of the newest.

        Args:
            request: of the commit.
            latest: the newest known snapshot; tried first.
            check: whether to check for conflicts.
            after_append: this is the COMPACT of a commit whose APPEND is published.

        Raises:
            AlreadyCommitted: a twin won.
            CommitConflictError: too many lost races; nothing was published.
            FileConflictError: nothing was published.
            StorageUnavailableError: unknown whether it was published.
        """
        check_delta(changes.entries)
        last = self._table.options.commit_max_retries
        delta: _Delta | None = None
        started_s = self._table.clock.monotonic_s()
        for number in range(last + 1):
            attempt = _Attempt([], delta)
            try:
                if number:
                    back_off(self._table, number)
                    latest = self._table.latest_snapshot()
                    self._ask_history(request, latest, after_append, attempts=number)
                published = self._try(attempt, changes, request, latest, check, first=number == 0)
            except BaseException as error:
                if attempt.sent:
                    raise
                if not isinstance(error, StorageUnavailableError) or number == last:
                    self._forget(attempt.all_names())
                    raise
                _LOG.warning("a commit attempt failed, retrying", exc_info=error)
                published = None
                self._forget(attempt.names)
            delta = attempt.delta
            if published is not None:
                return Published(published, number + 1)
            if self._timed_out(started_s):
                break
        if delta is not None:
            self._forget(delta.names())
        raise CommitConflictError(
            "commit failed: other writers won every attempt",
            hint="commit again, or raise `commit.max-retries`",
            table=self._table.layout.root,
            user=self._user,
            identifier=request.identifier,
            kind=changes.kind.value,
        )

    def _ask_history(
        self, request: Request, latest: Snapshot | None, after_append: bool, *, attempts: int
    ) -> None:
        record = self._history.find(request.identifier, latest)
        if record is not None and not (after_append and record.compact is None):
            raise AlreadyCommitted(record, attempts)

    def _try(
        self,
        attempt: _Attempt,
        changes: Changes,
        request: Request,
        latest: Snapshot | None,
        check: bool,
        *,
        first: bool,
    ) -> Snapshot | None:
        """One attempt; None when it is certainly lost, its files removed."""
        try:
            entries = self._entries(changes, latest)
            if check and latest is not None:
                check_conflicts(
                    self._live(latest),
                    entries,
                    key_of=self._table.key_of,
                    overwrite=changes.kind is CommitKind.OVERWRITE,
                    follows=changes.follows,
                )
            elif latest is not None and latest.schema_id > self._table.schema.id:
                _check_buckets(self._table, latest, entries)
            index = self._index(changes, latest, entries)
            if attempt.delta is None or changes.removes is not None:
                attempt.delta = self._write_delta(attempt, entries, changes)
            snapshot = self._prepare(
                attempt, attempt.delta, changes, request, latest, first=first, index=index
            )
        except (FileNotFoundError, NotFoundError) as error:
            if not self._moved_on(latest):
                raise CorruptDataError(
                    "the newest snapshot names a missing file",
                    detail=str(error),
                    table=self._table.layout.root,
                    snapshot=None if latest is None else latest.id,
                ) from error
            self._forget(attempt.names)
            return None
        if request.before_publish is not None:
            request.before_publish(latest)
        attempt.sent = True
        if self._outcome.published(snapshot, latest):
            self._table.snapshots.announce(snapshot)
            if self._table.environment is not None:
                self._table.environment.published(self._table, snapshot)
            publish_iceberg(self._table, added=snapshot)
            return snapshot
        attempt.sent = False
        self._forget(attempt.names)
        return None

    def _entries(self, changes: Changes, latest: Snapshot | None) -> tuple[ManifestEntry, ...]:
        if changes.removes is None or latest is None:
            return changes.entries
        # rows without a bucket stay where a partition of a postponed table gets other buckets
        least = min(self._table.options.bucket, 0)
        removed = (
            msgspec.structs.replace(entry, kind=FileKind.DELETE)
            for entry in live_state(self._table, latest).entries()
            if changes.removes(entry.partition) and entry.bucket >= least
        )
        return (*removed, *changes.entries)

    def _index(
        self, changes: Changes, latest: Snapshot | None, entries: tuple[ManifestEntry, ...]
    ) -> tuple[IndexManifestEntry, ...] | None:
        """All index files of the future snapshot; None: those of the newest snapshot.

        Raises:
            FileConflictError: another writer changed an index file, or data files of its vectors.
        """
        table = self._table
        removing = any(entry.kind is FileKind.DELETE for entry in entries)
        if not changes.index and changes.removes is None and not removing:
            return None
        before = index_entries(table, latest)
        removed = [
            removal(entry)
            for entry in before
            if changes.removes is not None and changes.removes(entry.partition)
        ]
        delta = (*removed, *changes.index)
        after = combine(before, delta, by_file_name=by_file_name(table)) if delta else before
        check_vectors(self._live(latest), entries, before, after)
        return after if delta else None

    def _live(self, latest: Snapshot | None) -> Callable[[bytes, int], list[ManifestEntry]]:
        def live(partition: bytes, bucket: int) -> list[ManifestEntry]:
            if latest is None:
                return []
            return live_entries(self._table, latest, partition=partition, bucket=bucket)

        return live

    @durable_together()
    def _write_delta(
        self, attempt: _Attempt, entries: tuple[ManifestEntry, ...], changes: Changes
    ) -> _Delta:
        """Write the manifests of the changes; every attempt reuses them unless overwriting.

        Durable at return: what could not be synced is written again, never named.
        """
        store = self._table.manifests
        target = self._table.options.manifest_target_size
        if attempt.delta is not None:
            self._forget(attempt.delta.names())
            attempt.delta = None
        metas = store.write_manifests(entries, target)
        list_name, list_size = store.write_list(metas)
        changelog_metas: list[ManifestFileMeta] = []
        changelog_list: str | None = None
        changelog_size: int | None = None
        if changes.changelog:
            changelog_metas = store.write_manifests(changes.changelog, target)
            changelog_list, changelog_size = store.write_list(changelog_metas)
        added = sum(e.file.row_count for e in entries if e.kind is FileKind.ADD)
        removed = sum(e.file.row_count for e in entries if e.kind is FileKind.DELETE)
        return _Delta(
            metas=metas,
            list_name=list_name,
            list_size=list_size,
            changelog_metas=changelog_metas,
            changelog_list=changelog_list,
            changelog_list_size=changelog_size,
            record_count=added - removed,
            changelog_record_count=sum(e.file.row_count for e in changes.changelog)
            if changes.changelog
            else None,
        )

    @durable_together()
    def _prepare(
        self,
        attempt: _Attempt,
        delta: _Delta,
        changes: Changes,
        request: Request,
        latest: Snapshot | None,
        *,
        first: bool,
        index: tuple[IndexManifestEntry, ...] | None,
    ) -> Snapshot:
        """Write this attempt's base list and index manifest, and make the snapshot document."""
        table = self._table
        base = self._base(attempt, latest, merging=first)
        base_name, base_size = table.manifests.write_list(base)
        attempt.names.append(base_name)
        index_manifest = None if latest is None else latest.index_manifest
        if index is not None:
            index_manifest = table.manifests.write_index_manifest(index)
            attempt.names.append(index_manifest)
        now_ms = table.clock.now_ms()
        schema_id = table.schema.id
        carried: dict[str, str] = {}
        if latest is not None:
            now_ms = max(now_ms, latest.time_ms)
            schema_id = max(schema_id, latest.schema_id)
            previous = latest.properties or {}
            carried = {k: v for k, v in previous.items() if k.startswith(CARRIED_PREFIX)}
        properties = {**carried, **request.properties}
        marks = (request.watermark, None if latest is None else latest.watermark)
        same_schema = latest is not None and latest.schema_id == schema_id
        carried_statistics = latest.statistics if latest is not None and same_schema else None
        return Snapshot(
            id=1 if latest is None else latest.id + 1,
            schema_id=schema_id,
            base_manifest_list=base_name,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta.list_name,
            delta_manifest_list_size=delta.list_size,
            changelog_manifest_list=delta.changelog_list,
            changelog_manifest_list_size=delta.changelog_list_size,
            index_manifest=index_manifest,
            commit_user=self._user,
            commit_identifier=request.identifier,
            commit_kind=changes.kind,
            time_ms=now_ms,
            total_record_count=(0 if latest is None else latest.total_record_count)
            + delta.record_count,
            delta_record_count=delta.record_count,
            changelog_record_count=delta.changelog_record_count,
            watermark=max((mark for mark in marks if mark is not None), default=None),
            statistics=changes.statistics or carried_statistics,
            properties=properties or None,
            next_row_id=None if latest is None else latest.next_row_id,
            uuid=table.ids.uuid(),
        )

    def _base(
        self, attempt: _Attempt, latest: Snapshot | None, *, merging: bool
    ) -> list[ManifestFileMeta]:
        if latest is None:
            return []
        store = self._table.manifests
        lists = store.read_lists(latest.lists[:2])
        metas = [meta for group in lists for meta in group]
        if not merging:  # in a race others merge; merging again each time would lose it
            return metas
        options = self._table.options
        policy = MergePolicy(
            target_size=options.manifest_target_size,
            full_threshold=options.manifest_full_compaction_threshold,
            min_count=options.manifest_merge_min_count,
        )
        merged, written = merge_manifests(metas, store, policy)
        attempt.names.extend(written)
        return merged

    def _moved_on(self, latest: Snapshot | None) -> bool:
        """Whether there is a newer snapshot than the one an attempt was built on."""
        newest = self._table.snapshots.latest_id()
        return newest is not None and (latest is None or newest > latest.id)

    def _forget(self, names: Iterable[str]) -> None:
        """Remove metadata files that certainly no snapshot references."""
        layout = self._table.layout
        self._table.delete_quietly(layout.manifest(name) for name in names)

    def _timed_out(self, started_s: float) -> bool:
        limit = self._table.options.commit_timeout_ms
        return limit is not None and self._table.clock.monotonic_s() - started_s > limit / 1000


def _check_buckets(table: TableCore, latest: Snapshot, entries: Iterable[ManifestEntry]) -> None:
    """Check the number of buckets of new files against a state of a newer schema.

    Appends never conflict, so they are not checked against what is live. But `rescale` changes the
    schema before it changes a partition (SEMANTICS.md §F.15), so what was written by an older
    schema is: rows in buckets of two numbers would hide each other.

    Args:
        table: at the schema of the files.
        latest: the newest snapshot, of a newer schema.

    Raises:
        CommitConflictError: a partition has another number of buckets; nothing was committed.
    """
    expected = table.schemas.read(latest.schema_id).num_buckets
    if expected == table.schema.num_buckets:
        return
    written = {e.partition: e.total_buckets for e in entries if e.kind is FileKind.ADD}
    for partition, buckets in sorted(written.items()):
        live = live_entries(table, latest, partition=partition)
        actual = live[0].total_buckets if live else expected
        if actual != buckets:
            raise CommitConflictError(
                "the number of buckets was changed while rows were written",
                detail=f"Total buckets of partition changed from {buckets} to {actual}",
                hint="open the table again and repeat the write",
                table=table.layout.root,
                partition=table.partition_path(partition),
            )
