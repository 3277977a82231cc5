# SPDX-License-Identifier: Apache-2.0
"""The past commits of a user: the idempotence half of the commit protocol.

Source: SEMANTICS.md §F.2, FORMAT.md §3.2. A commit is identified by (user, identifier, kind) of
its snapshots. Snapshots expire, so commits of a user could be forgotten while others write the
table, and a replay be committed twice; therefore every snapshot carries, in the property
`lakeward.committed.<user>`, the newest identifier of each streaming user, and later snapshots of
this writer carry it forward. Writers that do not know the property break the chain; beyond them the
snapshots themselves are searched.
"""

import dataclasses
from collections.abc import Iterator

import msgspec

from storage.errors import CorruptDataError, InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from storage.table.core import TableCore

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
