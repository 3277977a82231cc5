# SPDX-License-Identifier: Apache-2.0
"""The changes of a commit: manifest entries of its two snapshots, and the files that it wrote.

Source: SEMANTICS.md §F.1. Pure.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError, RetryableError
from storage.format.metadata.file_meta import (
    CommitMessage,
    DataFileMeta,
    FileKind,
    IndexFileMeta,
    IndexManifestEntry,
    IndexType,
    ManifestEntry,
)
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.table.commit.live_files import index_path
from storage.table.core import TableCore

OwnFiles = set[tuple[bytes, int, str]]
"""Physical files as (framed partition, bucket, name)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Content of one future snapshot.

    Attributes:
        entries: ADD and DELETE entries of the delta.
        changelog: ADD entries of changelog files.
        index: DELETE and ADD entries of table index files.
        removes: selects by partition (framed) live entries and index files to remove as well,
            again at every attempt; None unless overwriting.
        statistics: name of a new statistics file, or None.
        follows: names of files that the APPEND of the same commit added, if this is its COMPACT.
    """

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    removes: Callable[[bytes], bool] | None = None
    statistics: str | None = None
    follows: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.entries or self.changelog or self.index or self.removes or self.statistics)


def changes_of(messages: Sequence[CommitMessage]) -> tuple[Changes, Changes]:
    """The APPEND and the COMPACT part of a commit.

    The first is an OVERWRITE when data files are removed or rows of files are marked as deleted.
    """
    removed = [e for m in messages for e in _entries(m, FileKind.DELETE, m.data.deleted_files)]
    added = [e for m in messages for e in _entries(m, FileKind.ADD, m.data.new_files)]
    before = [e for m in messages for e in _entries(m, FileKind.DELETE, m.compact.compact_before)]
    after = [e for m in messages for e in _entries(m, FileKind.ADD, m.compact.compact_after)]
    index = tuple(
        entry
        for m in messages
        for entry in _index(m, m.data.deleted_index_files, m.data.new_index_files)
    )
    marks = any(entry.file.index_type == IndexType.DELETION_VECTORS for entry in index)
    append = Changes(
        kind=CommitKind.OVERWRITE if removed or marks else CommitKind.APPEND,
        entries=(*removed, *added),
        index=index,
        changelog=tuple(
            e for m in messages for e in _entries(m, FileKind.ADD, m.data.changelog_files)
        ),
    )
    compact = Changes(
        kind=CommitKind.COMPACT,
        entries=(*before, *after),
        index=tuple(
            entry
            for m in messages
            for entry in _index(m, m.compact.deleted_index_files, m.compact.new_index_files)
        ),
        changelog=tuple(
            e for m in messages for e in _entries(m, FileKind.ADD, m.compact.changelog_files)
        ),
        follows=frozenset(entry.file.file_name for entry in added),
    )
    return append, compact


def _entries(
    message: CommitMessage, kind: FileKind, files: Iterable[DataFileMeta]
) -> Iterator[ManifestEntry]:
    for file in files:
        yield ManifestEntry(
            kind=kind,
            partition=message.partition,
            bucket=message.bucket,
            total_buckets=message.total_buckets,
            file=file,
        )


def _index(
    message: CommitMessage, deleted: Iterable[IndexFileMeta], new: Iterable[IndexFileMeta]
) -> Iterator[IndexManifestEntry]:
    for kind, files in ((FileKind.DELETE, deleted), (FileKind.ADD, new)):
        for file in files:
            yield IndexManifestEntry(
                kind=kind, partition=message.partition, bucket=message.bucket, file=file
            )


def own_index_files(messages: Iterable[CommitMessage]) -> list[IndexManifestEntry]:
    """Every table index file that the messages' writers wrote, as ADD entries."""
    return [
        entry
        for message in messages
        for entry in _index(
            message, (), (*message.data.new_index_files, *message.compact.new_index_files)
        )
    ]


def compact_index_files(messages: Iterable[CommitMessage]) -> list[IndexManifestEntry]:
    """The table index files that only the COMPACT snapshot would reference."""
    return [
        entry
        for message in messages
        for entry in _index(message, (), message.compact.new_index_files)
    ]


def own_files(messages: Iterable[CommitMessage]) -> OwnFiles:
    """Every file that the messages' writers wrote, also by compaction.

    A file that a compaction only moved to another level is left out unless the same message
    also wrote it.
    """
    files: OwnFiles = set()
    for message in messages:
        data, compact = message.data, message.compact
        written = _names(message, (*data.new_files, *data.changelog_files))
        inputs = _names(message, (*data.deleted_files, *compact.compact_before)) - written
        outputs = _names(message, (*compact.compact_after, *compact.changelog_files))
        files |= written | (outputs - inputs)
    return files


def compact_files(messages: Iterable[CommitMessage]) -> OwnFiles:
    """The files that only the COMPACT snapshot would reference: deleted when it is dropped."""
    files: OwnFiles = set()
    for message in messages:
        data, compact = message.data, message.compact
        remaining = _names(
            message,
            (
                *data.new_files,
                *data.changelog_files,
                *data.deleted_files,
                *compact.compact_before,
            ),
        )
        files |= _names(message, (*compact.compact_after, *compact.changelog_files)) - remaining
    return files


def partitions_of(messages: Iterable[CommitMessage]) -> frozenset[bytes]:
    """Partitions that receive new files."""
    return frozenset(message.partition for message in messages if message.data.new_files)


def _names(message: CommitMessage, files: Iterable[DataFileMeta]) -> OwnFiles:
    return {
        (message.partition, message.bucket, name)
        for file in files
        for name in (file.file_name, *file.extra_files)
    }


# The past commits of a user: the idempotence half of the commit protocol.
#
# Source: SEMANTICS.md §F.2, FORMAT.md §3.2. A commit is identified by (user, identifier, kind) of
# its snapshots. Snapshots expire, so commits of a user could be forgotten while others write the
# table, and a replay be committed twice; therefore every snapshot carries, in the property
# `lakeward.committed.<user>`, the newest identifier of each streaming user, and later snapshots of
# this writer carry it forward. Writers that do not know the property break the chain; beyond them
# the snapshots themselves are searched.


COMMITTED_PREFIX = "lakeward.committed."


@dataclasses.dataclass(frozen=True, slots=True)
class CommitRecord:
    """The snapshots of one commit.

    Attributes:
        append: its APPEND or OVERWRITE snapshot; None when it has none, or it has expired.
        compact: its COMPACT snapshot, or None.
    """

    append: Snapshot | None
    compact: Snapshot | None

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that have not expired."""
        return tuple(snapshot for snapshot in (self.append, self.compact) if snapshot is not None)


class CommitHistory:
    """Looks for commits of one user, newest snapshots first.

    Identifiers of a user grow, batch commits (`BATCH_COMMIT_IDENTIFIER`) apart. Snapshots that
    were searched once are not searched again.

    Args:
        new_since: a snapshot that is older than the user, so that nothing up to it is searched.
    """

    def __init__(self, table: TableCore, user: str, *, new_since: Snapshot | None = None) -> None:
        self._table = table
        self._user = user
        self._property = COMMITTED_PREFIX + user
        self._clear_identifier = BATCH_COMMIT_IDENTIFIER + 1 if new_since is None else 0
        self._clear_to = new_since

    def properties_of(self, identifier: int) -> dict[str, str]:
        """What a snapshot of this commit must carry so that it is found after expiry."""
        if identifier == BATCH_COMMIT_IDENTIFIER:
            return {}
        return {self._property: str(identifier)}

    def find(self, identifier: int, latest: Snapshot | None) -> CommitRecord | None:
        """The commit with this identifier, or None when it was never made.

        Raises:
            InvalidRequestError: the user has committed a larger identifier, and not this one.
        """
        if latest is None:
            return None
        search = _Search(identifier)
        floor = self._clear_below(latest) if identifier >= self._clear_identifier else 0
        for snapshot in self._downwards(latest, floor):
            if snapshot.commit_user == self._user:
                search.see_own(snapshot)
            newest = self._known_identifier(snapshot)
            if newest is not None:
                search.see_record(newest)
            if search.over:
                break
        if search.exists:
            return CommitRecord(search.append, search.compact)
        if search.larger is not None:
            raise InvalidRequestError(
                "a commit identifier is too small",
                detail="the user has committed a larger identifier, but not this one",
                hint="identifiers of a commit user must increase",
                user=self._user,
                identifier=identifier,
                newest=search.larger,
            )
        self._clear_identifier, self._clear_to = identifier, latest
        return None

    def newest(self, latest: Snapshot | None) -> Snapshot | None:
        """The user's newest snapshot, whatever its kind; None when it never committed.

        When that snapshot has expired but later ones record it, the oldest of these is returned
        instead, with this user and its identifier; it holds the properties carried forward.
        """
        standin: Snapshot | None = None
        if latest is None:
            return None
        for snapshot in self._downwards(latest, 0):
            if snapshot.commit_user == self._user:
                return snapshot
            identifier = self._known_identifier(snapshot)
            if identifier is not None:
                standin = msgspec.structs.replace(
                    snapshot, commit_user=self._user, commit_identifier=identifier
                )
        return standin

    def newest_identifier(self, latest: Snapshot | None) -> int | None:
        """The largest identifier the user has committed, or None."""
        if latest is None:
            return None
        for snapshot in self._downwards(latest, 0):
            identifier = self._known_identifier(snapshot)
            if snapshot.commit_user == self._user:
                return max(snapshot.commit_identifier, -1 if identifier is None else identifier)
            if identifier is not None:
                return identifier
        return None

    def rows_of_others(self, latest: Snapshot | None, since: int) -> Snapshot | None:
        """A snapshot above an id, and above the user's newest, with which others changed rows."""
        for snapshot in () if latest is None else self._downwards(latest, since):
            if snapshot.commit_user == self._user:
                return None
            if snapshot.commit_kind not in (CommitKind.COMPACT, CommitKind.ANALYZE):
                return snapshot
        return None

    def _clear_below(self, latest: Snapshot) -> int:
        """The id up to which snapshots were searched; 0 when a rollback has changed them."""
        boundary = self._clear_to
        if boundary is None or boundary.id > latest.id:
            return 0
        if boundary == latest or self._table.snapshots.read_again(boundary.id) == boundary:
            return boundary.id
        return 0

    def _known_identifier(self, snapshot: Snapshot) -> int | None:
        text = (snapshot.properties or {}).get(self._property)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError as error:
            raise CorruptDataError(
                "a snapshot's record of committed identifiers cannot be read",
                snapshot=snapshot.id,
                value=text,
            ) from error

    def _downwards(self, latest: Snapshot, floor: int) -> Iterator[Snapshot]:
        """From the newest snapshot down to the oldest remaining one above `floor`."""
        if latest.id > floor:
            yield latest
        try:
            yield from self._table.snapshots.recall_many(range(latest.id - 1, floor, -1))
        except NotFoundError:
            return


class _Search:
    """The state of a search for one identifier from the newest snapshot downwards."""

    def __init__(self, identifier: int) -> None:
        self._identifier = identifier
        self._batch = identifier == BATCH_COMMIT_IDENTIFIER
        self.append: Snapshot | None = None
        self.compact: Snapshot | None = None
        self.larger: int | None = None
        self.exists = False
        self.over = False

    def see_own(self, snapshot: Snapshot) -> None:
        """A snapshot of the user."""
        if snapshot.commit_identifier == self._identifier:
            self.exists = True
            if snapshot.commit_kind is CommitKind.COMPACT:
                self.compact = self.compact or snapshot
            else:
                self.append, self.over = snapshot, True
        elif not self._batch and snapshot.commit_identifier != BATCH_COMMIT_IDENTIFIER:
            self.see_record(snapshot.commit_identifier)

    def see_record(self, newest: int) -> None:
        """A snapshot records this as the user's newest streaming identifier."""
        if self._batch:
            return
        if newest < self._identifier:
            self.over = True
        elif newest > self._identifier:
            self.larger = newest
        else:
            self.exists = True


# Removing files of commits that did not happen: written, and referenced by no snapshot.


def delete_uncommitted(table: TableCore, messages: Iterable[CommitMessage]) -> None:
    """Remove data, changelog and index files of messages that are not and will not be committed."""
    messages = tuple(messages)
    delete_files(table, own_files(messages), own_index_files(messages))


@contextlib.contextmanager
def discarded_on(
    table: TableCore,
    messages: Iterable[CommitMessage],
    errors: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
) -> Iterator[None]:
    """Remove the files of messages when the block raises; without `errors`, any exception.

    Messages that the block still appends are removed, too.
    """
    try:
        yield
    except errors:
        with contextlib.suppress(RetryableError, OSError):  # what stays is an orphan
            delete_uncommitted(table, messages)
        raise


def delete_files(
    table: TableCore, files: OwnFiles, index_files: Iterable[IndexManifestEntry]
) -> None:
    """Remove data files, and index files given as entries; one that stays is an orphan."""
    paths = [table.data_path(*file) for file in sorted(files)]
    paths += [index_path(table, entry.partition, entry.bucket, entry.file) for entry in index_files]
    table.delete_quietly(paths)


def folded_files(
    table: TableCore, message: CommitMessage
) -> tuple[tuple[DataFileMeta, ...], tuple[DataFileMeta, ...]]:
    """What one snapshot changes that holds both the new files of a message and its compaction.

    Files that the message both creates and replaces are removed from the store.

    Returns:
        The live files it removes, and the files it adds.
    """
    compact = message.compact
    new = {file.file_name for file in message.data.new_files}
    replaced = {file.file_name for file in compact.compact_before}
    after = {file.file_name for file in compact.compact_after}
    garbage = {
        (message.partition, message.bucket, name)
        for file in compact.compact_before
        if file.file_name in new - after
        for name in (file.file_name, *file.extra_files)
    }
    delete_files(table, garbage, ())
    before = tuple(file for file in compact.compact_before if file.file_name not in new)
    remaining = tuple(file for file in message.data.new_files if file.file_name not in replaced)
    return before, (*remaining, *compact.compact_after)


def without_changelog(table: TableCore, messages: Iterable[CommitMessage]) -> list[CommitMessage]:
    """The messages of an overwrite, which emits no changelog: their changelog files are removed."""
    result: list[CommitMessage] = []
    paths: list[str] = []
    for message in messages:
        paths += [
            table.data_path(message.partition, message.bucket, name)
            for file in (*message.data.changelog_files, *message.compact.changelog_files)
            for name in (file.file_name, *file.extra_files)
        ]
        data = dataclasses.replace(message.data, changelog_files=())
        compact = dataclasses.replace(message.compact, changelog_files=())
        result.append(dataclasses.replace(message, data=data, compact=compact))
    table.delete_quietly(paths)
    return result
