# SPDX-License-Identifier: Apache-2.0
"""Exactly-once commits, with concurrent writers and under every fault.

Protocol of `FileStoreCommit.commit` (SEMANTICS.md §F, FORMAT.md §11.5):

1. Read the newest snapshot L. If this (user, identifier) has been committed already, stop:
   delete the files that only this attempt wrote, and report it. A compaction of such a replay is
   dropped, because its inputs are files of the replay.
2. Publish the APPEND snapshot (§ `Publisher`): conflict check, manifests, create-if-absent of
   `snapshot-(L+1)`; a lost race starts over with the new L, and with the check of step 1.
3. Publish the COMPACT snapshot the same way. If its files conflict with another writer's, the
   compaction is dropped and its files deleted; the append stays.

What makes it safe:

* Data files are deleted only where it is certain that no snapshot references them. While the
  outcome of a publication is unknown nothing is deleted at all.
* A process that dies between two steps leaves files that no snapshot references, or an APPEND
  without its COMPACT; both are legal, and step 1 recognises the replay.
"""

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from storage.errors import (
    CommitConflictError,
    FileConflictError,
    InvalidRequestError,
    NotFoundError,
)
from storage.format.metadata.file_meta import CommitMessage, ManifestEntry
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.table.bucket_mode import BucketMode, bucket_mode
from storage.table.commit.commit_changes import (
    Changes,
    CommitHistory,
    CommitRecord,
    OwnFiles,
    changes_of,
    compact_files,
    compact_index_files,
    delete_files,
    discarded_on,
    own_files,
    own_index_files,
    partitions_of,
)
from storage.table.commit.live_files import delta_entries, index_entries, list_entries
from storage.table.commit.publish import (
    AlreadyCommitted,
    BeforePublish,
    Outcome,
    Publisher,
    Request,
)
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg
from storage.table.inspect.statistics import Statistics, write_statistics
from storage.table.write.overwritten import overwritten_partitions, require_keys_replaced

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The outcome of a commit.

    Attributes:
        append_snapshot_id: the snapshot with the new rows (kind APPEND or OVERWRITE); None when
            there was nothing to append, or it has expired since.
        compact_snapshot_id: the snapshot with the compaction, or None.
        already_committed: an earlier attempt had committed; nothing was written now.
        compaction_dropped: the messages held a compaction that was not committed.
        attempts: publications tried, both snapshots together; 0 when nothing was to do.
    """

    append_snapshot_id: int | None = None
    compact_snapshot_id: int | None = None
    already_committed: bool = False
    compaction_dropped: bool = False
    attempts: int = 0


Attempt = tuple[Sequence[CommitMessage], Callable[[], CommitResult]]
"""Messages whose files are written, and the function that commits them."""

Committed = tuple[Sequence[CommitMessage], CommitResult]
"""Messages of the last attempt, and the outcome of their commit."""

NOT_COMMITTED = (CommitConflictError, FileConflictError)
"""Errors of a commit after which it is certain that nothing was committed."""


class FileStoreCommit:
    """Commits of one user to one table. Not thread-safe; make one per thread.

    Args:
        commit_user: identity of the writing job; with the identifier it names a commit.
        new_since: a snapshot older than the user, so that its commits are not searched for in
            older ones; None: it may have committed before.
        after_batch: called with the messages after each commit of a batch job that made a snapshot.
    """

    def __init__(
        self,
        table: TableCore,
        commit_user: str,
        *,
        new_since: Snapshot | None = None,
        after_batch: Callable[[Sequence[CommitMessage]], None] | None = None,
    ) -> None:
        self._table = table
        self._user = commit_user
        self._after_batch = after_batch
        self._history = CommitHistory(table, commit_user, new_since=new_since)
        self._publisher = Publisher(table, commit_user, self._history)

    def commit(
        self,
        messages: Sequence[CommitMessage],
        identifier: int,
        *,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
        check_append_conflicts: bool = False,
        before_publish: BeforePublish | None = None,
        ignore_empty: bool = True,
    ) -> CommitResult:
        """Commit the work of all buckets, at most once per identifier.

        Args:
            messages: one per bucket.
            identifier: grows with every commit of the user; `BATCH_COMMIT_IDENTIFIER` for a job
                that commits once.
            properties: go into the snapshots; keys that begin with `lakeward.` are carried to
                later ones until they are set again.
            watermark: event time reached [epoch ms]; never decreases.
            check_append_conflicts: check also what normally cannot conflict: that new files are
                not live already and the bucket count has not changed. For messages of a writer
                that did not see the newest state, as in recovery.
            before_publish: called with the newest snapshot before every publication; raises to
                stop the commit (fencing).
            ignore_empty: do not make an APPEND snapshot when nothing was written.

        Raises:
            CommitConflictError: other writers won every race that `commit.max-retries` allows;
                nothing was committed, the messages may be committed again.
            FileConflictError: an overwrite, a checked append, or rows that an index of all keys
                placed, conflict with another writer; nothing was committed.
            StorageUnavailableError: the store failed; whether the commit happened may be
                unknown. Commit the same messages again: that is safe.
            InvalidRequestError: the identifier is smaller than one committed before.
        """
        append, compact = changes_of(messages)
        bases = [message.index_base for message in messages if message.index_base is not None]
        if bases:
            before_publish = functools.partial(self._require_alone, min(bases), before_publish)
        result = self._commit(
            messages,
            append,
            compact,
            identifier,
            dict(properties or {}),
            watermark,
            check=check_append_conflicts or append.kind is CommitKind.OVERWRITE,
            before_publish=before_publish,
            ignore_empty=ignore_empty,
        )
        self._committed(messages, identifier, result)
        return result

    def overwrite(
        self,
        messages: Sequence[CommitMessage],
        identifier: int,
        *,
        partition: Mapping[str, Any] | None = None,
        replaces: Callable[[bytes], bool] | None = None,
        before_publish: BeforePublish | None = None,
    ) -> CommitResult:
        """Replace what is live at commit time by new files (SEMANTICS.md §F.4).

        What is replaced, also when there are no new files:

        * a partitioned table with `dynamic-partition-overwrite`: the partitions that receive new
          files, whatever `partition` says; nothing when there are none;
        * otherwise the partitions with the values of `partition`; without it the whole table.

        Changelog files of the messages are not committed; `TableWrite` makes none then.

        Args:
            messages: of writers that started with empty buckets.
            identifier: as for `commit`.
            partition: values of some partition columns; None is the null partition.
            replaces: decides instead which partitions (framed) lose their live files.
            before_publish: as for `commit`.

        Raises:
            InvalidRequestError: a new file does not belong to the partition, it names a column
                that is no partition key, or a partition that stays has a key of the new rows,
                which may be in one partition.
            As `commit`.
        """
        append, compact = changes_of(messages)
        removes = replaces
        if removes is None:
            removes = overwritten_partitions(self._table, partition, partitions_of(messages))
        if removes is None:
            return CommitResult()
        removal = dataclasses.replace(
            append, kind=CommitKind.OVERWRITE, changelog=(), removes=removes
        )
        compact = dataclasses.replace(compact, changelog=())
        if bucket_mode(self._table.schema, self._table.options) is BucketMode.CROSS_PARTITION:
            before_publish = self._checking_keys(messages, removes, before_publish)
        result = self._commit(
            messages,
            removal,
            compact,
            identifier,
            {},
            None,
            check=True,
            before_publish=before_publish,
        )
        self._committed(messages, identifier, result)
        return result

    def _require_alone(
        self, base: int, then: BeforePublish | None, latest: Snapshot | None
    ) -> None:
        """Check that others wrote no rows since the index of all keys that placed ours."""
        if (other := self._history.rows_of_others(latest, base)) is not None:
            raise FileConflictError(
                "another job wrote to a table whose keys move between partitions",
                hint="write the rows again; one job at a time",
                table=self._table.layout.root,
                snapshot=other.id,
            )
        if then is not None:
            then(latest)

    def _checking_keys(
        self,
        messages: Sequence[CommitMessage],
        replaces: Callable[[bytes], bool],
        then: BeforePublish | None,
    ) -> BeforePublish:
        checked = False

        def check(latest: Snapshot | None) -> None:
            nonlocal checked
            follows_append = latest is not None and latest.commit_user == self._user and checked
            if not follows_append:  # the compaction of the same commit follows its rows
                require_keys_replaced(self._table, latest, messages, replaces)
            checked = True
            if then is not None:
                then(latest)

        return check

    def truncate(
        self, identifier: int, *, partitions: Callable[[bytes], bool] | None = None
    ) -> CommitResult:
        """Remove all rows, or those of some partitions (framed)."""
        return self.overwrite((), identifier, replaces=partitions or (lambda _: True))

    def update_statistics(self, statistics: Statistics, identifier: int) -> CommitResult:
        """Publish table statistics as an ANALYZE snapshot; rows stay as they are.

        Args:
            statistics: of some snapshot; later snapshots name them until the schema changes.
            identifier: as for `commit`.

        Raises:
            InvalidRequestError: a column is not in the schema of the statistics.
            As `commit`.
        """
        name = write_statistics(self._table, statistics)
        analyze = Changes(kind=CommitKind.ANALYZE, statistics=name)
        no_compaction = Changes(kind=CommitKind.COMPACT)
        result = self._commit((), analyze, no_compaction, identifier, {}, None, check=False)
        if result.already_committed:
            self._table.delete_quietly([self._table.layout.statistics_file(name)])
        return result

    def filter_committed(self, identifiers: Sequence[int]) -> list[int]:
        """The identifiers that are larger than all that the user has committed."""
        newest = self._history.newest_identifier(self._table.latest_snapshot())
        return [identifier for identifier in identifiers if newest is None or identifier > newest]

    def latest_of_user(self, user: str) -> Snapshot | None:
        """The newest snapshot of a user; see `CommitHistory.newest` for expired ones."""
        return CommitHistory(self._table, user).newest(self._table.latest_snapshot())

    def _committed(
        self, messages: Sequence[CommitMessage], identifier: int, result: CommitResult
    ) -> None:
        if self._after_batch is None or identifier != BATCH_COMMIT_IDENTIFIER:
            return
        if not result.already_committed and result.attempts:
            self._after_batch(messages)

    def _commit(
        self,
        messages: Sequence[CommitMessage],
        append: Changes,
        compact: Changes,
        identifier: int,
        properties: Mapping[str, str],
        watermark: int | None,
        *,
        check: bool,
        before_publish: BeforePublish | None = None,
        ignore_empty: bool = True,
    ) -> CommitResult:
        latest = self._table.latest_snapshot()
        record = self._history.find(identifier, latest)
        if record is not None:
            return self._replayed(messages, record, attempts=0)
        request = Request(
            identifier=identifier,
            properties={**properties, **self._history.properties_of(identifier)},
            watermark=watermark,
            before_publish=before_publish,
        )
        attempts = 0
        append_id: int | None = None
        if not (append.empty and ignore_empty):
            try:
                published = self._publisher.publish(append, request, latest, check=check)
            except AlreadyCommitted as replay:
                return self._replayed(messages, replay.record, replay.attempts)
            latest, attempts = published.snapshot, published.attempts
            append_id = published.snapshot.id
        if compact.empty:
            return CommitResult(append_snapshot_id=append_id, attempts=attempts)
        try:
            published = self._publisher.publish(
                compact, request, latest, check=True, after_append=append_id is not None
            )
        except AlreadyCommitted as replay:
            return self._replayed(messages, replay.record, replay.attempts)
        except (FileConflictError, CommitConflictError) as error:
            if append_id is None and isinstance(error, CommitConflictError):
                raise
            return self._drop_compaction(messages, append_id, attempts, error)
        return CommitResult(
            append_snapshot_id=append_id,
            compact_snapshot_id=published.snapshot.id,
            attempts=attempts + published.attempts,
        )

    def _drop_compaction(
        self,
        messages: Sequence[CommitMessage],
        append_id: int | None,
        attempts: int,
        reason: FileConflictError | CommitConflictError,
    ) -> CommitResult:
        """The compaction is certainly lost: its files are deleted, the append stays."""
        _LOG.info(
            "a compaction is dropped, another writer won",
            extra={"table": self._table.layout.root, "reason": str(reason)},
        )
        delete_files(self._table, compact_files(messages), compact_index_files(messages))
        return CommitResult(
            append_snapshot_id=append_id, compaction_dropped=True, attempts=attempts + 1
        )

    def _replayed(
        self, messages: Sequence[CommitMessage], record: CommitRecord, attempts: int
    ) -> CommitResult:
        """The commit exists already: delete the files that only this attempt has written.

        Messages that share a file with the committed snapshots are the committed ones, retried;
        then nothing is deleted, since a COMPACT of unknown outcome may still reference the
        rest. Nothing is deleted either when the snapshots have expired and cannot be compared.
        """
        files, index_files = own_files(messages), own_index_files(messages)
        names = {entry.file.file_name for entry in index_files}
        committed = self._files_of(record.snapshots)
        if (
            record.append is not None
            and committed is not None
            and files.isdisjoint(committed[0])
            and names.isdisjoint(committed[1])
        ):
            delete_files(self._table, files, index_files)
        compaction = any(not message.compact.empty for message in messages)
        return CommitResult(
            append_snapshot_id=None if record.append is None else record.append.id,
            compact_snapshot_id=None if record.compact is None else record.compact.id,
            already_committed=True,
            compaction_dropped=compaction and record.compact is None,
            attempts=attempts,
        )

    def _files_of(self, snapshots: Iterable[Snapshot]) -> tuple[OwnFiles, set[str]] | None:
        """Files that snapshots reference in delta and changelog, and names of their index files.

        None when they cannot be read.
        """
        entries: list[ManifestEntry] = []
        index: set[str] = set()
        try:
            for snapshot in snapshots:
                entries += delta_entries(self._table, snapshot)
                if snapshot.changelog_manifest_list is not None:
                    metas = self._table.manifests.read_list(snapshot.changelog_manifest_list)
                    entries += list_entries(self._table, metas)
                index |= {entry.file.file_name for entry in index_entries(self._table, snapshot)}
        except FileNotFoundError:
            return None
        files = {
            (entry.partition, entry.bucket, name)
            for entry in entries
            for name in (entry.file.file_name, *entry.file.extra_files)
        }
        return files, index


def run_until_committed(
    table: TableCore,
    prepare: Callable[[], Attempt | None],
    *,
    attempts: int,
    retried: tuple[type[Exception], ...] = (),
    on_lost: Callable[[], None] = lambda: None,
) -> Committed | None:
    """Make attempts until one is committed, or all allowed ones have lost.

    For jobs that read a table, write files and commit them beside other writers. An attempt is lost
    when its compaction is dropped, or it raises one of `retried`: its files are removed, and the
    next one starts from the newest snapshot. Where it is unknown whether the commit happened
    (`StorageUnavailableError`), nothing is removed and nothing is tried again: the caller may
    commit the same messages.

    Args:
        prepare: plans and writes from the newest state; None: there is nothing to commit.
        retried: errors after which another attempt may succeed; of `NOT_COMMITTED`.
        on_lost: called after each lost attempt, its files removed.

    Returns:
        None when there was nothing to commit. The compaction of the last attempt may be dropped.

    Raises:
        The error of the last attempt, or one that is not in `retried`.
    """
    committed: Committed | None = None
    for number in range(attempts):
        try:
            attempt = prepare()
            if attempt is None:
                return None
            messages, commit = attempt
            with discarded_on(table, messages, NOT_COMMITTED):
                committed = messages, commit()
        except retried:
            on_lost()
            if number == attempts - 1:
                raise
            continue
        if not committed[1].compaction_dropped:
            break
        on_lost()
    return committed


# Publishing a snapshot that another process has prepared: the server's part of a commit by REST.
#
# The other process has written data files, manifests and lists, and made the snapshot document; the
# server publishes it if it still follows the newest snapshot. The client may retry when the
# response is lost: a snapshot that is part of the history already is confirmed.


def publish_prepared(
    table: TableCore, snapshot: Snapshot, base_uuid: str | None, *, based: bool = True
) -> bool:
    """Publish a snapshot that was prepared on top of another one.

    Args:
        table: the table, at the branch of the snapshot.
        snapshot: its lists and index manifest are in the table's directory.
        base_uuid: of the snapshot that it was prepared on; None: that has none, or does not exist.
        based: whether the base is given; without it the id alone must follow.

    Returns:
        Whether it is part of the table's history; False: another writer won, prepare it again.

    Raises:
        InvalidRequestError: it names a schema or a file that is not there; nothing was published.
        StorageUnavailableError: it is unknown whether it was published; retry with the same.
    """
    latest = table.latest_snapshot()
    if latest is not None and latest.id >= snapshot.id:
        existing = table.snapshots.read_again(snapshot.id)
        return existing is not None and _same_snapshot(existing, snapshot)
    next_id = 1 if latest is None else latest.id + 1
    newest_uuid = None if latest is None else latest.uuid
    if snapshot.id != next_id or (based and base_uuid != newest_uuid):
        return False
    _check(table, snapshot)
    if snapshot.uuid is None:  # the client cannot distinguish its snapshot from another's
        if not table.snapshots.publish(snapshot):
            return False
    elif not Outcome(table).published(snapshot, latest):
        return False
    else:
        table.snapshots.announce(snapshot)
    if table.environment is not None:
        table.environment.published(table, snapshot)
    publish_iceberg(table)
    return True


def _same_snapshot(snapshot: Snapshot, other: Snapshot) -> bool:
    return snapshot == other if other.uuid is None else snapshot.uuid == other.uuid


def _check(table: TableCore, snapshot: Snapshot) -> None:
    """Check that the files that a snapshot references exist: readers need them."""
    try:
        table.schemas.read(snapshot.schema_id)
    except NotFoundError as error:
        raise InvalidRequestError(
            "the snapshot names a missing schema",
            schema=snapshot.schema_id,
            table=table.layout.root,
        ) from error
    names = [name for name, _ in snapshot.lists]
    names += [] if snapshot.index_manifest is None else [snapshot.index_manifest]
    for name in names:
        if not table.file_io.is_file(table.layout.manifest(name)):
            raise InvalidRequestError(
                "the snapshot names a missing file",
                hint="write the manifests into the table's own directory first",
                file=name,
                table=table.layout.root,
            )
