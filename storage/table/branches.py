# SPDX-License-Identifier: Apache-2.0
"""Branches of a table, rollback to older snapshots, and repair of hints.

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
from storage.format.metadata.file_meta import FileKind
from storage.format.metadata.layout import MAIN_BRANCH, TableLayout
from storage.format.metadata.schema import SchemaStore
from storage.format.metadata.snapshot import (
    CommitKind,
    Snapshot,
    SnapshotStore,
    list_tags,
    listed_ids,
    read_hint,
)
from storage.table.core import TableCore
from storage.table.iceberg import publish_branch, publish_iceberg
from storage.table.retention.reachability import (
    DataFile,
    branch_names,
    data_files,
    documents,
    listed_entries,
    live_data_files,
    remove_unreachable,
)
from storage.table.tags import all_tags, get_tag, is_kept

# Rolling a table back to an older snapshot or to a tag.
#
# Source: SEMANTICS.md §F.11. Order of a rollback, so that it can stop at any point and be repeated:
#
# 1. the target exists as a snapshot: that of an expired tag is written again, EARLIEST points to
# it; 2. LATEST points to it, because a LATEST beyond the last snapshot would be trusted; 3. newer
# snapshots are removed from the newest down, so that what is left is always a history, then
# long-lived changelogs and tags of newer snapshots; 4. files that only those referenced are
# removed.
#
# Concurrent committers: one that read a removed snapshot detects that when it publishes
# (`publish.Publisher`) and starts over. A commit published before the rollback lists the snapshots
# is rolled back, too. On stores that do not report which of two callers deleted a file, stop the
# writers first.


def rollback_to(
    table: TableCore,
    snapshot_id: int | None = None,
    *,
    tag: str | None = None,
    timestamp_ms: int | None = None,
) -> Snapshot:
    """Make a snapshot the newest again; later ones, their tags and their files are lost.

    The schema stays as it is.

    Args:
        snapshot_id: the snapshot; if it has expired, a tag of it is enough.
        tag: instead, the tag whose snapshot it is.
        timestamp_ms: instead, the newest that was committed at or before this time [epoch ms].

    Raises:
        InvalidRequestError: not exactly one of them is given.
        NotFoundError: there is no such snapshot or tag.
        StorageUnavailableError: the store failed; call again.
    """
    target = rollback_target(table, snapshot_id, tag=tag, timestamp_ms=timestamp_ms)
    table.snapshots.forget()
    if table.snapshot_owner is not None:
        table.snapshot_owner.roll_back(target.id, tag)
        return target
    if table.snapshots.put(target):
        table.snapshots.write_earliest_hint(min(table.snapshots.ids()))
    table.snapshots.move_latest_hint(target.id)
    expired, tagged = take_back(table, target.id + 1)
    _delete_changelogs(table, target.id)  # of an expired tag: it is a snapshot again
    # an overwrite could have restored files of any snapshot; otherwise the newest references all
    overwritten = any(state.commit_kind is CommitKind.OVERWRITE for state in (*expired, *tagged))
    live_documents = documents(table, table.layout.branch, None if overwritten else (target,))
    files: set[DataFile] = set()
    for snapshot in expired:
        delta = listed_entries(table, snapshot.lists[1], strict=False)
        files |= set(data_files(entry for entry in delta if entry.kind is FileKind.ADD))
    # what was added between an older target and the oldest of these
    oldest = sorted((*expired, *tagged), key=lambda snapshot: snapshot.id)[:1]
    files = files.union(*(live_data_files(table, snapshot) for snapshot in (*tagged, *oldest)))
    remove_unreachable(table, (*expired, *tagged), files, live_documents)
    table.snapshots.move_latest_hint(target.id)
    publish_iceberg(table)
    return target


def take_back(table: TableCore, first_id: int) -> tuple[list[Snapshot], list[Snapshot]]:
    """Remove the snapshots, long-lived changelogs and tags from an id on; their files stay.

    Returns:
        The removed snapshots and changelogs, and the snapshots of the removed tags.
    """
    expired: list[Snapshot] = []
    while newer := [id_ for id_ in table.snapshots.ids() if id_ >= first_id]:
        for snapshot_id in reversed(newer):
            try:
                snapshot = table.snapshots.read(snapshot_id)
            except NotFoundError:
                continue
            if table.snapshots.delete(snapshot_id):
                expired.append(snapshot)
    table.snapshots.forget()
    expired += _delete_changelogs(table, first_id)
    tags = [tag for tag in all_tags(table) if tag.snapshot.id >= first_id]
    for tag in tags:
        table.file_io.delete(table.layout.tag_file(tag.name))
    return expired, [tag.snapshot for tag in tags]


def rollback_target(
    table: TableCore,
    snapshot_id: int | None = None,
    *,
    tag: str | None = None,
    timestamp_ms: int | None = None,
) -> Snapshot:
    """The snapshot that `rollback_to` would go back to. Arguments and errors are the same."""
    if sum(argument is not None for argument in (snapshot_id, tag, timestamp_ms)) != 1:
        raise InvalidRequestError("a rollback goes back to a snapshot, to a tag or to a time")
    if tag is not None:
        return get_tag(table, tag).snapshot
    if snapshot_id is None:
        snapshot = table.snapshots.at_time(timestamp_ms or 0)
        if snapshot is None:
            raise NotFoundError(
                "There is currently no snapshot earlier than or equal to "
                f"timestamp[{timestamp_ms}]",
                table=table.layout.root,
            )
        return snapshot
    try:
        return table.snapshots.read(snapshot_id)
    except NotFoundError:
        for candidate in all_tags(table):
            if candidate.snapshot.id == snapshot_id:
                return candidate.snapshot
        raise NotFoundError(
            f"Rollback snapshot '{snapshot_id}' doesn't exist.",
            detail="it is neither a snapshot nor tagged",
            table=table.layout.root,
        ) from None


def _delete_changelogs(table: TableCore, first_id: int) -> list[Snapshot]:
    store = table.changelogs
    ids = store.ids()
    newer = [id_ for id_ in ids if id_ >= first_id]
    if not newer:
        return []
    store.move_latest_hint(max((id_ for id_ in ids if id_ < first_id), default=None))
    deleted = list(store.read_many(newer))
    for snapshot_id in reversed(newer):
        store.delete(snapshot_id)
    return deleted


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
    _check_branch(name)
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
    if first is not None and not is_kept(table, first):
        drop_branch(table, name)
        raise NotFoundError(
            "the snapshot expired while the branch was being created",
            hint="start from a newer one, or from a tag",
            snapshot=first.id,
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
    _check_branch(new_name)
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

    Main's snapshots, schemas and tags from there on are replaced by the branch's. Where that one
    has expired, all of main's snapshots are lost: the branch may not continue the older ones. Data
    files that only they reference become orphans. Other processes must open the table again
    (`latest`) before they write to it, since schema ids may name other schemas now. Can be repeated
    after a failure.

    Args:
        table: the table, at main.
        name: the branch; it stays as it is.

    Raises:
        InvalidRequestError: the table is not opened at main, or the branch has no snapshot.
        NotFoundError: there is no such branch.
    """
    if table.layout.branch != MAIN_BRANCH or name == MAIN_BRANCH:
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
    is_shared = _is_shared(table, first)
    table.snapshots.move_latest_hint(None)
    take_back(table, first.id)
    if not is_shared:
        _delete_changelogs(table, 1)
        for snapshot_id in reversed(table.snapshots.ids()):
            table.snapshots.delete(snapshot_id)
    _replace_schemas(table, layout, schemas, first.schema_id if is_shared else 0)
    for tag in list_tags(table.file_io, layout):
        table.file_io.overwrite_bytes(table.layout.tag_file(tag.name), tag.to_json())
    for snapshot_id in ids:
        table.snapshots.put(snapshots.read(snapshot_id))
    table.snapshots.write_earliest_hint(min(table.snapshots.ids()))
    table.snapshots.move_latest_hint(ids[-1])
    table.snapshots.forget()
    table.schemas.forget()
    publish_iceberg(table)


def lost_by_forward(table: TableCore, first: Snapshot) -> list[int]:
    """Ids of main's snapshots that `fast_forward` removes, ascending.

    Args:
        table: the table, at main.
        first: the branch's first snapshot.
    """
    is_shared = _is_shared(table, first)
    return [id_ for id_ in table.snapshots.ids() if id_ >= first.id or not is_shared]


def _is_shared(table: TableCore, first: Snapshot) -> bool:
    """Whether a branch's first snapshot is main's, too, so that it continues main's older ones."""
    return table.snapshots.read_again(first.id) == first


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


def _check_branch(name: str) -> None:
    if name == MAIN_BRANCH:
        raise InvalidRequestError(f"Branch name '{name}' is the default branch and cannot be used.")
    if not name.strip():
        raise InvalidRequestError(f"Branch name '{name}' is blank.")
    if name.isdecimal():
        raise InvalidRequestError(
            f"Branch name cannot be pure numeric string but is '{name}'.", name=name
        )
    if "/" in name or "$" in name or any(ord(letter) < 32 for letter in name):
        raise InvalidRequestError("invalid branch name", name=name)


# Repair of the hints of a table or branch: LATEST and EARLIEST, of snapshots and changelogs.
#
# Source: FORMAT.md §3.3. Readers and writers of this implementation check a hint before they use
# it; others trust a LATEST whose successor does not exist. Correct values come from a listing. Safe
# beside commits and expiry: the directory is listed again after a hint is written.


_TRIES = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HintRepair:
    """One hint that was wrong.

    Attributes:
        path: of the hint file.
        recorded: its old content; None: it was missing or invalid.
        corrected: its new content; None: there is nothing to point at, so it is deleted.
    """

    path: str
    recorded: int | None
    corrected: int | None


def repair_hints(table: TableCore, *, dry_run: bool = False) -> list[HintRepair]:
    """Write the hints that are missing or wrong, and return what was wrong.

    Raises:
        StorageUnavailableError: the store failed; call again.
    """
    layout = table.layout
    snapshots, changelogs = (layout.snapshot_dir, "snapshot-"), (layout.changelog_dir, "changelog-")
    hints = (
        (layout.latest_hint, snapshots, -1),
        (layout.earliest_hint, snapshots, 0),
        (layout.changelog_latest_hint, changelogs, -1),
        (layout.changelog_earliest_hint, changelogs, 0),
    )
    repairs = (_repaired(table, *hint, dry_run=dry_run) for hint in hints)
    return [repair for repair in repairs if repair is not None]


def _repaired(
    table: TableCore,
    hint: str,
    hint_names: tuple[str, str],
    position: int,
    *,
    dry_run: bool,
) -> HintRepair | None:
    """Repair a hint that must hold the id at a position of the ascending listing."""

    def listed_id() -> int | None:
        ids = listed_ids(table.file_io, *hint_names)
        return ids[position] if ids else None

    old_id, new_id = read_hint(table.file_io, hint), listed_id()
    if old_id == new_id and not (new_id is None and table.file_io.exists(hint)):
        return None
    for _ in range(0 if dry_run else _TRIES):
        if new_id is None:
            table.file_io.delete(hint)
        else:
            table.file_io.overwrite_bytes(hint, str(new_id).encode())
        previous, new_id = new_id, listed_id()
        if new_id == previous:
            break
    return HintRepair(path=hint, recorded=old_id, corrected=new_id)
