# SPDX-License-Identifier: Apache-2.0
"""Publishing a snapshot that another process has prepared: the server's part of a commit by REST.

The other process has written data files, manifests and lists, and made the snapshot document; the
server publishes it if it still follows the newest snapshot. The client may retry when the response
is lost: a snapshot that is part of the history already is confirmed.
"""

from storage.errors import InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.commit.publish import Outcome
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg

__all__ = ["publish_prepared"]


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
