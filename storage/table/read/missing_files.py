# SPDX-License-Identifier: Apache-2.0
"""The diagnosis of a missing file that a snapshot names.

Source: FORMAT.md §11.6. Expiry removes the files of old snapshots while readers may use
them, and the snapshots themselves last. So of a snapshot that is not there any more a missing file
says that it expired, and of the newest one, which never expires, that the table is damaged. Of
one between it says either; then the missing file's own error is all that is known.
"""

import contextlib
from collections.abc import Iterator

from storage.errors import CorruptDataError, LakewardError, NotFoundError
from storage.format.metadata.snapshot import Snapshot
from storage.table.core import TableCore


@contextlib.contextmanager
def explain_missing_files(table: TableCore, snapshot_id: int) -> Iterator[None]:
    """Say of files found missing inside the context what that means.

    Args:
        table: the table, at the branch of the snapshot.
        snapshot_id: the snapshot that names the files.

    Raises:
        CorruptDataError: a file is missing of the newest snapshot; names both.
        NotFoundError: the snapshot has expired, or was rolled back.
        FileNotFoundError: neither is known.
    """
    try:
        yield
    except FileNotFoundError as error:
        diagnosis = _diagnosis(table, snapshot_id, error)
        if diagnosis is None:
            raise
        raise diagnosis from error


def _diagnosis(
    table: TableCore, snapshot_id: int, error: FileNotFoundError
) -> LakewardError | None:
    snapshots = table.snapshots
    newest = snapshots.latest_id()
    if not _unchanged(table, snapshot_id):
        return NotFoundError(
            "a snapshot expired while it was read",
            detail=str(error),
            hint="read a newer one; a tag or a consumer keeps a snapshot from expiring",
            snapshot=snapshot_id,
            table=table.layout.root,
        )
    if newest != snapshot_id:
        return None
    context = {} if error.filename is None else {"path": error.filename}
    return CorruptDataError(
        "the newest snapshot names a missing file",
        detail=str(error),
        hint="restore the file, or roll back to a snapshot that does not name it",
        **context,
        snapshot=snapshot_id,
        table=table.layout.root,
    )


def _unchanged(table: TableCore, snapshot_id: int) -> bool:
    """Whether the snapshot is there, and still the one that this process has read."""
    before: Snapshot | None
    try:
        before = table.snapshots.recall(snapshot_id)
    except NotFoundError:
        return False
    return table.snapshots.read_again(snapshot_id) == before
