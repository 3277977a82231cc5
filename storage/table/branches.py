# SPDX-License-Identifier: Apache-2.0
"""Branches: lines of snapshots beside the main one that share its data files.

Source: SEMANTICS.md §F.10, FORMAT.md §11.2. A branch is a directory with schemas, snapshots, tags,
changelogs and consumers of its own. Making one copies a few small files; deleting one removes
these and leaves the data to orphan removal.
"""

import dataclasses

from storage.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedFeatureError,
)
from storage.format.metadata.layout import TableLayout
from storage.format.metadata.schema_store import SchemaStore
from storage.format.metadata.snapshot import Snapshot
from storage.format.metadata.snapshot_store import SnapshotStore
from storage.format.metadata.tag import list_tags
from storage.table.core import TableCore
from storage.table.iceberg import publish_branch, publish_iceberg
from storage.table.retention.reachability import branch_names
from storage.table.retention.rollback import take_back
from storage.table.tags import get_tag

__all__ = ["branch_names", "create_branch", "drop_branch", "fast_forward", "rename_branch"]

_MAIN = "main"


def create_branch(
    table: TableCore,
    name: str,
    *,
    tag: str | None = None,
    snapshot_id: int | None = None,
    ignore_if_exists: bool = False,
) -> None:
    """Make a branch of the table: empty, or at a tag or snapshot of it.

    Args:
        name: of the branch; not blank, not `main`, not only digits, a valid file name.
        tag: its snapshot becomes the first of the branch, which gets the tag too.
        snapshot_id: instead, the snapshot that becomes the first.
        ignore_if_exists: do nothing when there is such a branch.

    Raises:
        InvalidRequestError: the name is bad or taken, or both tag and snapshot are given.
        NotFoundError: there is no such tag or snapshot.
        UnsupportedFeatureError: a snapshot is given, and the catalog makes branches of tags only.
    """
    _check_name(name)
    if name in branch_names(table):
        if ignore_if_exists:
            return
        raise AlreadyExistsError(f"Branch name '{name}' already exists.", table=table.layout.root)
    if tag is not None and snapshot_id is not None:
        raise InvalidRequestError("a branch starts at a tag or at a snapshot, not at both")
    if table.snapshot_owner is None:
        _copy_metadata(table, name, tag, snapshot_id)
    elif snapshot_id is None:
        table.snapshot_owner.create_branch(name, tag)
    else:
        raise UnsupportedFeatureError(
            "in a REST catalog a branch starts at a tag or empty",
            hint="create a tag of the snapshot, then the branch at the tag",
            snapshot=snapshot_id,
            table=table.layout.root,
        )


def _copy_metadata(table: TableCore, name: str, tag: str | None, snapshot_id: int | None) -> None:
    source, target = table.layout, dataclasses.replace(table.layout, branch=name)
    newest_schema = max(table.schemas.ids(), default=-1)
    first: Snapshot | None = None
    if tag is not None:
        source_tag = get_tag(table, tag)
        first = source_tag.snapshot
        table.file_io.overwrite_bytes(target.tag_file(tag), source_tag.to_json())
    elif snapshot_id is not None:
        first = table.snapshots.read(snapshot_id)
    if first is not None:
        newest_schema = min(newest_schema, first.schema_id)
        path = target.snapshot_file(first.id)
        table.file_io.overwrite_bytes(path, first.to_json())
    for schema_id in table.schemas.ids():
        if schema_id <= newest_schema:
            data = table.file_io.read_bytes(source.schema_file(schema_id))
            table.file_io.overwrite_bytes(target.schema_file(schema_id), data)
    if snapshot_id is not None and not table.snapshots.exists(snapshot_id):
        drop_branch(table, name)
        raise NotFoundError(
            "the snapshot expired while the branch was being created",
            hint="start from a newer one, or from a tag",
            snapshot=snapshot_id,
            table=table.layout.root,
        )
    publish_branch(table, name)


def drop_branch(table: TableCore, name: str) -> None:
    """Remove a branch with its metadata; data files that only it references become orphans.

    Raises:
        InvalidRequestError: it is the branch that `table` is opened at, or `main`.
        NotFoundError: there is no such branch.
    """
    _require(table, name)
    if name == table.layout.branch:
        raise InvalidRequestError("a branch cannot be dropped while it is open", branch=name)
    if table.snapshot_owner is not None:
        table.snapshot_owner.drop_branch(name)
        return
    layout = dataclasses.replace(table.layout, branch=name)
    last: list[str] = []
    for status in table.file_io.walk(layout.branch_root):
        if status.path.startswith(f"{layout.schema_dir}/"):
            last.append(status.path)
        else:
            table.file_io.delete(status.path)
    for path in last:
        table.file_io.delete(path)
    table.file_io.prune(layout.branch_root)
    publish_iceberg(table)


def rename_branch(table: TableCore, name: str, new_name: str) -> None:
    """Give a branch another name, by copying its metadata.

    The branch must have no writers meanwhile.

    Raises:
        InvalidRequestError: the new name is bad or taken.
        NotFoundError: there is no such branch.
    """
    _require(table, name)
    _check_name(new_name)
    if new_name in branch_names(table):
        raise AlreadyExistsError(
            f"Branch name '{new_name}' already exists.", table=table.layout.root
        )
    if table.snapshot_owner is not None:
        table.snapshot_owner.rename_branch(name, new_name)
        return
    source = dataclasses.replace(table.layout, branch=name).branch_root
    target = dataclasses.replace(table.layout, branch=new_name).branch_root
    for status in list(table.file_io.walk(source)):
        if status.path.startswith(f"{source}/metadata/"):
            continue  # Iceberg metadata is generated again
        path = target + status.path.removeprefix(source)
        table.file_io.overwrite_bytes(path, table.file_io.read_bytes(status.path))
    drop_branch(table, name)
    publish_branch(table, new_name)


def fast_forward(table: TableCore, name: str) -> None:
    """Let main continue as a branch did: what main has since the branch's first snapshot is lost.

    Main's snapshots, schemas and tags from there on are replaced by the branch's. Data files that
    only they reference become orphans. Other processes must open the table again (`latest`) before
    they write to it, since schema ids may name other schemas now. Can be repeated after a failure.

    Args:
        table: the table, at main.
        name: the branch; it stays as it is.

    Raises:
        InvalidRequestError: the table is not opened at main, or the branch has no snapshot.
        NotFoundError: there is no such branch.
    """
    if table.layout.branch != _MAIN or name == _MAIN:
        raise InvalidRequestError(
            f"Branch name '{name}' do not use in fast-forward.",
            detail="only main can be fast-forwarded, to another branch",
        )
    _require(table, name)
    layout = dataclasses.replace(table.layout, branch=name)
    snapshots = SnapshotStore(table.file_io, layout)
    ids = snapshots.ids()
    if not ids:
        raise InvalidRequestError("the branch has no snapshot", branch=name)
    if table.snapshot_owner is not None:
        table.snapshot_owner.fast_forward(name)
        table.snapshots.forget()
        table.schemas.forget()
        return
    schemas = SchemaStore(table.file_io, layout).ids()
    first = snapshots.read(ids[0])
    table.snapshots.move_latest_hint(None)
    take_back(table, first.id)
    _replace_schemas(table, layout, schemas, first.schema_id)
    for tag in list_tags(table.file_io, layout):
        table.file_io.overwrite_bytes(table.layout.tag_file(tag.name), tag.to_json())
    for snapshot_id in ids:
        table.snapshots.put(snapshots.read(snapshot_id))
    table.snapshots.write_earliest_hint(min(table.snapshots.ids()))
    table.snapshots.move_latest_hint(ids[-1])
    table.snapshots.forget()
    table.schemas.forget()
    publish_iceberg(table)


def _replace_schemas(
    table: TableCore, layout: TableLayout, schemas: list[int], first_id: int
) -> None:
    """Main's schemas become the branch's; each is replaced in one step: a table always exists."""
    for schema_id in schemas:
        data = table.file_io.read_bytes(layout.schema_file(schema_id))
        path = table.layout.schema_file(schema_id)
        if schema_id >= first_id or not table.file_io.exists(path):
            table.file_io.overwrite_bytes(path, data)
    for schema_id in reversed(table.schemas.ids()):
        if schema_id > max(schemas):
            table.file_io.delete(table.layout.schema_file(schema_id))


def _require(table: TableCore, name: str) -> None:
    if name not in branch_names(table):
        raise NotFoundError(f"Branch name '{name}' doesn't exist.", table=table.layout.root)


def _check_name(name: str) -> None:
    if name == _MAIN:
        raise InvalidRequestError(f"Branch name '{name}' is the default branch and cannot be used.")
    if not name.strip():
        raise InvalidRequestError(f"Branch name '{name}' is blank.")
    if name.isdecimal():
        raise InvalidRequestError(
            f"Branch name cannot be pure numeric string but is '{name}'.", name=name
        )
    if "/" in name or "$" in name or any(ord(letter) < 32 for letter in name):
        raise InvalidRequestError("invalid branch name", name=name)
