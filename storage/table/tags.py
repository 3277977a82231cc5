# SPDX-License-Identifier: Apache-2.0
"""Creating, replacing, renaming, deleting and listing the tags of a table or branch.

Source: SEMANTICS.md §F.9, FORMAT.md §11.1. Expiry removes no file that a tag's snapshot references;
so deleting the tag of an expired snapshot must remove the files that only it references.
"""

import dataclasses
import datetime

from storage.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from storage.format.metadata.snapshot import CommitKind, Snapshot
from storage.format.metadata.tag import Tag, list_tags, read_tag
from storage.table.core import TableCore
from storage.table.iceberg import publish_iceberg
from storage.table.retention.reachability import (
    Documents,
    live_data_files,
    remove_unreachable,
)


def create_tag(
    table: TableCore,
    name: str,
    snapshot_id: int | None = None,
    *,
    time_retained_ms: int | None = None,
    ignore_if_exists: bool = False,
) -> Tag:
    """Create a tag; of several concurrent calls exactly one creates it.

    Args:
        name: of the tag; not blank, a valid file name.
        snapshot_id: what it keeps; None: the newest snapshot.
        time_retained_ms: how long it lives [ms]; None: until it is deleted.
        ignore_if_exists: return the existing tag, whatever it keeps.

    Raises:
        InvalidRequestError: the name is bad, or taken.
        NotFoundError: there is no such snapshot (any more).
    """
    _check_name(name)
    tag = _new_tag(table, name, snapshot_id, time_retained_ms)
    path = table.layout.tag_file(name)
    if not table.file_io.put_if_absent(path, tag.to_json()):
        if ignore_if_exists:
            return get_tag(table, name)
        raise AlreadyExistsError(f"Tag '{name}' already exists.", table=table.layout.root)
    _require_kept(table, tag)
    publish_iceberg(table)
    return tag


def replace_tag(
    table: TableCore,
    name: str,
    snapshot_id: int | None = None,
    *,
    time_retained_ms: int | None = None,
) -> Tag:
    """Point an existing tag to another snapshot. Files that only the old one references are kept.

    Raises:
        NotFoundError: there is no such tag or snapshot.
    """
    before = get_tag(table, name)
    tag = _new_tag(table, name, snapshot_id, time_retained_ms)
    table.file_io.overwrite_bytes(table.layout.tag_file(name), tag.to_json())
    try:
        _require_kept(table, tag)
    except NotFoundError:
        table.file_io.overwrite_bytes(table.layout.tag_file(name), before.to_json())
        raise
    publish_iceberg(table)
    return tag


def rename_tag(table: TableCore, name: str, new_name: str) -> None:
    """Rename a tag. Both names exist for a moment, so nothing is lost.

    Raises:
        NotFoundError: there is no such tag.
        InvalidRequestError: the new name is bad, or taken.
    """
    _check_name(new_name)
    tag = dataclasses.replace(get_tag(table, name), name=new_name)
    if not table.file_io.put_if_absent(table.layout.tag_file(new_name), tag.to_json()):
        raise AlreadyExistsError(f"Tag '{new_name}' already exists.", table=table.layout.root)
    table.file_io.delete(table.layout.tag_file(name))
    publish_iceberg(table)


def delete_tag(table: TableCore, name: str) -> bool:
    """Remove a tag, and the files that only it references; False when there is no such tag."""
    _check_name(name)
    try:
        tag = get_tag(table, name)
    except NotFoundError:
        return False
    remaining = [entry for entry in all_tags(table) if entry.name != name]
    deleted = table.file_io.delete(table.layout.tag_file(name))
    publish_iceberg(table)
    same = any(entry.snapshot.id == tag.snapshot.id for entry in remaining)
    if deleted and not same and not table.snapshots.exists(tag.snapshot.id):
        _clean(table, tag.snapshot, remaining)
    return deleted


def get_tag(table: TableCore, name: str) -> Tag:
    """One tag.

    Raises:
        NotFoundError: there is none of that name.
        CorruptDataError: its file is damaged.
    """
    _check_name(name)
    try:
        return read_tag(table.file_io, table.layout, name)
    except FileNotFoundError as error:
        raise NotFoundError(f"Tag '{name}' doesn't exist.", table=table.layout.root) from error


def all_tags(table: TableCore) -> list[Tag]:
    """All tags, by snapshot id, then name."""
    return list_tags(table.file_io, table.layout)


def _new_tag(table: TableCore, name: str, snapshot_id: int | None, retained_ms: int | None) -> Tag:
    if snapshot_id is None:
        snapshot = table.latest_snapshot()
        if snapshot is None:
            raise NotFoundError(
                "the table has no snapshot to tag", hint="write to it", table=table.layout.root
            )
    else:
        snapshot = _snapshot_or_tagged(table, snapshot_id)
    created = None
    if retained_ms is not None:
        now_s = table.clock.now_ms() / 1000
        created = datetime.datetime.fromtimestamp(now_s, datetime.UTC).astimezone()
    return Tag(name=name, snapshot=snapshot, created=created, time_retained_ms=retained_ms)


def _snapshot_or_tagged(table: TableCore, snapshot_id: int) -> Snapshot:
    try:
        return table.snapshots.read(snapshot_id)
    except NotFoundError:
        for tag in all_tags(table):
            if tag.snapshot.id == snapshot_id:
                return tag.snapshot
        raise


def _require_kept(table: TableCore, tag: Tag) -> None:
    """Delete the tag if expiry may have started on its snapshot before it saw the tag.

    Expiry moves EARLIEST first and lists tags afterwards. So a tag that exists while EARLIEST
    has not passed its snapshot is seen by every expiry that could remove its files.
    """
    earliest = table.snapshots.earliest_id()
    if earliest is not None and earliest <= tag.snapshot.id:
        return
    if any(entry.snapshot == tag.snapshot and entry.name != tag.name for entry in all_tags(table)):
        return
    table.file_io.delete(table.layout.tag_file(tag.name))
    raise NotFoundError(
        "the snapshot expired while it was being tagged",
        hint="tag a newer one",
        snapshot=tag.snapshot.id,
        table=table.layout.root,
    )


def _clean(table: TableCore, expired: Snapshot, tags: list[Tag]) -> None:
    """Remove files that only the tag of an expired snapshot referenced.

    A file is live in consecutive snapshots, so only the neighbours can still reference it: the
    adjacent tags and the oldest snapshot. Overwrites in newer snapshots could have restored a
    file; they are checked, too.
    """
    before = [tag for tag in tags if tag.snapshot.id < expired.id]
    after = [tag for tag in tags if tag.snapshot.id > expired.id]
    ids = table.snapshots.ids()
    newer = table.snapshots.recall_many(ids[1:])
    live_documents = Documents(
        snapshots=(
            *(table.snapshots.read(id_) for id_ in ids[:1]),
            *(snapshot for snapshot in newer if snapshot.commit_kind is CommitKind.OVERWRITE),
        ),
        tags=(*before[-1:], *after[:1]),
        changelogs=tuple(table.changelogs.read_many(table.changelogs.ids())),
    )
    remove_unreachable(table, [expired], live_data_files(table, expired), live_documents)


def _check_name(name: str) -> None:
    if not name.strip():
        raise InvalidRequestError("Tag name shouldn't be blank.")
    if "/" in name or any(ord(letter) < 32 for letter in name):
        raise InvalidRequestError("this name of a tag is not allowed", name=name)
